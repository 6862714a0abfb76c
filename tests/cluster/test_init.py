"""What `jobkit init` writes on real schedulers, up to a real sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import load_spec
from tests.support.commands import jobkit, ran

LIGHT = ("--set", "workload=count", "--set", "resources.gpus=0")


@pytest.fixture(autouse=True)
def home(here: Path) -> Path:
    (here / "cache").mkdir()
    return here


def test_from_init_to_a_table(scheduler: str, home: Path) -> None:
    ran("init", "--scheduler", scheduler)
    site, spec = load_site("auto", scheduler), load_spec("first.yaml")
    assert site.queue == spec.resources.queue == {"slurm": "cpu", "sge": "gpu.q"}[scheduler]
    assert spec.resources.gpus == 1

    well = ran("doctor", "first.yaml", *LIGHT)
    assert "missing" not in well.stdout
    dry = ran("sweep", "first.yaml", "--dry-run", "--stand-in")
    assert {"slurm": "--gres=gpu:1", "sge": "-l ngpus=1"}[scheduler] in dry.stdout

    swept = ran("sweep", "first.yaml", *LIGHT, "--wait")
    assert "paragr./s" in swept.stdout
    assert len(list(home.glob("runs/first-*/results/*/try-1/record.json"))) == 4

    again = jobkit("init", "--scheduler", scheduler)
    assert again.returncode == 2
    assert "nothing was written" in again.stderr
