"""What a user's environment does to real schedulers' answers, and to jobs: nothing, and what it should."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobkit.runs.reader import read_status
from jobkit.runs.status import PointStanding
from tests.cluster.daemons import Wait
from tests.cluster.lab import FaultySweep
from tests.cluster.test_apply import Applied

HOSTILE = """
SQUEUE_PARTITION=gpu SQUEUE_USERS=nobody SQUEUE_STATES=PENDING SQUEUE_NAMES=x SQUEUE_ACCOUNT=x
SQUEUE_FORMAT=%j SACCT_FORMAT=jobname SINFO_PARTITION=gpu SCANCEL_PARTITION=gpu SCANCEL_USER=nobody
SCANCEL_STATE=PENDING SCANCEL_NAME=x SBATCH_PARTITION=cpu SBATCH_ARRAY_INX=9 SBATCH_TIMELIMIT=1
SBATCH_HOLD=1 SLURM_TIME_FORMAT=relative SLURM_NTASKS=99 SLURM_MEM_PER_NODE=1 SGE_SINGLE_LINE=0
SGE_LONG_QNAMES=1 LOGNAME=nobody USER=nobody
"""
REQUEST = "-b y\n-now y\n-t 9\n-N other\n-o /dev/null\n-S /bin/false\n-hold_jid 9999999\n"
QSTAT = "-s z\n-u nobody\n-r\n-ext\n"
"""Of sge_request and sge_qstat, which stand in a cell, or in the home that the system knows a user's."""


@pytest.fixture
def hostile(
    scheduler: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Export what changes the answers of schedulers, and on Grid Engine write the files that do."""
    files: dict[Path, str] = {}
    if scheduler == "sge":
        request.getfixturevalue("sge_alone")
        cell = Path(os.environ["SGE_ROOT"], os.environ["SGE_CELL"], "common")
        files = {cell / "sge_request": REQUEST, cell / "sge_qstat": QSTAT}
    for path, lines in files.items():
        path.write_text(lines, encoding="ascii")
    for name, _, value in (pair.partition("=") for pair in HOSTILE.split()):
        monkeypatch.setenv(name, value)
    yield
    for path in files:
        path.unlink()


@pytest.mark.usefixtures("hostile")
def test_defaults_of_the_user_change_no_answer_of_a_scheduler(faulty: FaultySweep, wait_until: Wait) -> None:
    faulty.fail(dict.fromkeys(range(1, 7), "hangs"))
    lab = faulty.lab
    said = faulty.sweep("--set", "max_parallel=2", "--set", "sweep.batch_size=[1, 2, 3]")
    assert ("SBATCH_PARTITION is cpu" in said) is (lab.scheduler == "slurm")
    run = lab.run_dir()

    def stand() -> list[str]:
        (seen,) = read_status([run])
        return [str(point.standing) for point in seen.points]

    wait_until(lambda: stand() == [PointStanding.RUNNING] * 2 + [PointStanding.WAITING], 60)
    # afterwards the queue no longer holds what was cancelled, and the accounting may come late
    assert "gone" not in {json.loads(line)["kind"] for line in _lines(run / "accounting.jsonl")}
    done = lab.jobkit("cancel", run)
    assert "cancelled: 3 points\n" in done.stderr
    faulty.fail({})
    assert "again: 3 points" in lab.jobkit("resume", run).stderr
    faulty.becomes_ok(60)
    applied = Applied(lab)
    assert applied.apply("--wait", shards=2).returncode == 0
    assert applied.merged() == applied.rows


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
