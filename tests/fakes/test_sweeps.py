"""A whole sweep through each fake, by the command that a user types."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.test_sweeps import QUEUE, REQUESTS, SITE
from tests.support.commands import jobkit
from tests.whole.test_job_script import left_on

SPEC = """\
name: count
workload: count
text: sample:30
sweep: {batch_size: [1, 10]}
repeats: 2
resources: {gpus: 0, cpus: 1, memory: 200MiB, walltime: "00:02:00"}
max_parallel: 3
"""


@pytest.mark.parametrize("scheduler", ["slurm", "sge"])
def test_a_sweep_goes_out_and_its_records_come_home(
    scheduler: str, tmp_path: Path, kept_cache: Path, request: pytest.FixtureRequest
) -> None:
    cluster = request.getfixturevalue(f"fake_{scheduler}")
    home, scratch = tmp_path / "my home", tmp_path / "scratch"
    home.mkdir()
    scratch.mkdir()
    site = SITE % (scheduler, QUEUE[scheduler], REQUESTS[scheduler], scratch)
    (home / "lab.yaml").write_text(site, encoding="utf-8")
    (home / "spec.yaml").write_text(SPEC, encoding="utf-8")
    words = ("sweep", "spec.yaml", "--scheduler", scheduler, "--site", home / "lab.yaml", "--wait")
    done = jobkit(*words, cwd=home, env={"JOBKIT_CACHE": str(kept_cache)})
    assert done.returncode == 0, done.stdout + done.stderr
    records = [json.loads(path.read_text()) for path in home.glob("runs/*/results/*/try-1/record.json")]
    assert [record["outcome"] for record in records] == ["ok"] * 4
    assert {record["job"]["scheduler"] for record in records} == {scheduler}
    assert left_on(scratch) == []
    for command in {"slurm": ("sbatch", "squeue", "sacct"), "sge": ("qsub", "qstat", "qacct")}[scheduler]:
        assert cluster.calls(command)
