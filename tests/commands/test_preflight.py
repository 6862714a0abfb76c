from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SPEC = (
    "name: t\nworkload: count\ntext: sample:80\nscheduler: local\n"
    "resources: {gpus: 0}\nsweep: {batch_size: [10]}\n"
)


@pytest.fixture
def spec(here: Path) -> Path:
    path = here / "spec.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return path


@pytest.mark.slow
def test_in_haste_torch_is_not_imported(spec: Path) -> None:
    code = (
        "import sys; from jobkit.commands.sweep import preflight\n"
        f"preflight.main([{str(spec)!r}, '--fast', '--set', 'workload=stanza-ner',"
        " '--set', 'model.fallback=stand-in'], standalone_mode=False)\n"
        "print({'torch', 'stanza', 'pandas', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("set()\n")
    assert "ESTIMATED from punctuation" in done.stdout
