"""docs/pipelines.md works as it is written: with make, and as a rule of Snakemake types it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.pages.test_docs import blocks, page
from tests.support.commands import JOBKIT

SPEC = """\
name: words
workload: count
text: letters.txt
scheduler: local
site: local-default
sweep: {batch_size: [50]}
resources: {gpus: 0, cpus: 1, memory: 500MiB, walltime: 5m}
"""


@pytest.mark.slow
@pytest.mark.rare
@pytest.mark.program("make")
def test_make_merges_once_and_the_rule_of_snakemake_goes_on(here: Path) -> None:
    (here / "first.yaml").write_text(SPEC, encoding="utf-8")
    (here / "letters.txt").write_text("\n\n".join(["One two."] * 20), encoding="utf-8")
    (here / "snake").mkdir()  # as Snakemake does
    (makefile,) = blocks(page("pipelines.md"), "make")
    (here / "Makefile").write_text(makefile, encoding="utf-8")
    path = {**os.environ, "PATH": f"{Path(JOBKIT).parent}:{os.environ['PATH']}"}

    def run(*argv: str) -> str:
        done = subprocess.run(argv, env=path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "merged 20 rows" in run("make")
    assert "up to date" in run("make")
    (rule,) = blocks(page("pipelines.md"), "python")
    (shell,) = re.findall(r'shell: "(.+)"', rule)
    assert "merged 20 rows" in run(
        "bash", "-c", shell.replace("{input[0]}", "letters.txt").replace("tagged", "snake")
    )
