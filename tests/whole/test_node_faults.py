"""Missing or wrong things on a node: the environment, the model, the GPU, the clock; and shared files."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobkit.core.layout import read_begin
from jobkit.core.records import Outcome
from jobkit.report.tables import collect
from jobkit.runs.reader import read_standings
from jobkit.runs.results import worker_s
from jobkit.runs.standing import PointState
from tests.support.halted import halted as halted  # noqa: PLC0414 - a fixture is found by its name here
from tests.whole.test_job_script import WORKLOADS, ScriptRun

pytestmark = pytest.mark.fault

SIZES = {"batch_size": [1, 2, 3]}


def test_a_card_that_was_too_small_for_one_point(tmp_path: Path) -> None:
    """FAULT: a point runs out of GPU memory, and larger points on the same kind of GPU would too.

    HOW: fake: an NVML with one GPU, and an error as torch raises it; script, gate and worker are real.
    REPORTED: `gpu_oom` for that point, `pruned` for larger points on the same kind of GPU, before anything
    is copied to the node; smaller points run, and so do all points on another kind of GPU.
    LOST: nothing: both are results, and GPU time is saved.
    """
    run = ScriptRun(tmp_path, workload="broken:TooLarge", sweep=SIZES, device="cuda")
    fake = {"PYTHONPATH": f"{WORKLOADS}/nvml:{WORKLOADS}", "JOBKIT_JOB": "77", "BROKEN_FROM": "2"}
    ends = [
        run.run("--offset", 0, JOBKIT_TASK=point, FAKE_CARD=card, **fake)
        for point, card in (("2", "V100"), ("3", "V100"), ("1", "V100"), ("3", "A100"))
    ]
    assert [status for status, _ in ends] == [0] * 4, ends
    assert run.record(2).outcome is Outcome.GPU_OOM
    pruned = run.exit(3)
    assert (pruned.outcome, pruned.stage) == (Outcome.PRUNED, "gate")
    assert pruned.message == "batch_size-2-r1 ran out of memory on V100, with a smaller load"
    assert run.record(1).outcome is Outcome.OK
    assert run.record(3, 2).outcome is Outcome.GPU_OOM, "it ran, on another card"


def test_a_node_whose_clock_is_wrong(tmp_path: Path) -> None:
    """FAULT: the node's clock is three hours ahead of the login node's, or behind it.

    HOW: fake: `date` and Python's clock show another time in the job.
    REPORTED: nothing: each duration is measured by one clock, so none is negative.
    LOST: nothing.
    """
    date = tmp_path / "bin" / "date"
    date.parent.mkdir()
    date.write_text(f'#!/bin/bash\nexec {shutil.which("date")} -d "$((CLOCK_OFF_S)) seconds" "$@"\n')
    date.chmod(0o755)
    run = ScriptRun(tmp_path)
    paths = {
        "PATH": f"{date.parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{WORKLOADS}/clock:{WORKLOADS}",
    }
    for point, off_s in ((1, 3 * 3600), (2, -3 * 3600)):
        status, said = run.run(point, CLOCK_OFF_S=str(off_s), **paths)
        assert status == 0, said
        begun = datetime.fromisoformat(read_begin(run.home(point) / "begin").at)
        record = run.record(point)
        for told in (begun, datetime.fromisoformat(record.started_at)):
            assert abs((told - datetime.now(UTC)).total_seconds() - off_s) < 300
        took = worker_s(record)
        assert took is not None
        assert 0 <= took < 60
    found = collect([run.dir]).points
    assert found["outcome"].tolist() == ["ok", "ok"]
    assert (found.select_dtypes("number").fillna(0) >= 0).all(axis=None)
    (seen,) = read_standings([run.dir], ask=False)
    assert [point.standing for point in seen.points] == [PointState.DONE] * 2
