"""Missing or wrong things on a node: the environment, the model, the GPU, the clock; and shared files."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobkit.core.layout import read_begin
from jobkit.core.records import Outcome
from jobkit.report.tables import collect
from jobkit.runs.reader import read_standings
from jobkit.runs.results import worker_s
from jobkit.runs.standing import PointState
from jobkit.worker.workloads.model_files import fingerprint
from tests.support.builders import MODEL, MODEL_FILES, write_model
from tests.support.halted import Halted, ended, outcome
from tests.support.halted import halted as halted  # noqa: PLC0414 - a fixture is found by its name here
from tests.whole.test_job_script import WORKLOADS, ScriptRun

pytestmark = pytest.mark.fault

SIZES = {"batch_size": [1, 2, 3]}


def test_two_sweeps_on_one_node(tmp_path: Path, halted: Halted) -> None:
    """FAULT: two sweeps run on one node at a time.

    HOW: real: two runs with the same scratch folder; the first ends while the second works.
    REPORTED: nothing: each run has its own inputs, and removes only these.
    LOST: nothing.
    """
    scratch = {"scratch": str(tmp_path / "scratch")}
    (tmp_path / "b").mkdir()
    first = ScriptRun(tmp_path, workload="broken:Waits", site=scratch)
    second = ScriptRun(tmp_path / "b", workload="broken:Waits", site=scratch, run_id="t-2")
    one, two = halted.start(first), halted.start(second, 2)
    assert {"t-1.inputs", "t-2.inputs"} < set(first.left_on_scratch())
    one.send_signal(signal.SIGTERM)
    ended(one)
    left = first.left_on_scratch()
    assert "t-2.inputs" in left
    assert not [name for name in left if name.startswith("t-1")]
    halted.go()
    said = ended(two)
    assert two.returncode == 0, said
    assert second.record(2).outcome is Outcome.OK
    assert first.left_on_scratch() == []


def test_an_environment_that_breaks_between_two_tasks(tmp_path: Path) -> None:
    """FAULT: the environment breaks between two tasks of a run.

    HOW: real: a file that its set-up reads is removed.
    REPORTED: `environment`, with the shell's message in the log; two such points stop the sweep.
    LOST: nothing.
    """
    needed = tmp_path / "env.sh"
    needed.write_text("export READY=1\n")
    run = ScriptRun(tmp_path, environment={"setup": [f"source {needed}"]}, sweep=SIZES)
    task = {"JOBKIT_JOB": "77"}
    assert run.run("--offset", 0, JOBKIT_TASK="1", **task)[0] == 0
    needed.unlink()
    for point in ("2", "3"):
        status, said = run.run("--offset", 0, JOBKIT_TASK=point, **task)
        assert status == 1
        assert "env.sh: No such file" in said
    assert [outcome(run, point) for point in (1, 2, 3)] == ["ok", "environment", "environment"]
    status, said = run.run("--offset", 0, JOBKIT_TASK="1", **task)
    assert run.exit(1, 2).outcome is Outcome.ENVIRONMENT, "it breaks before anybody can ask"


def test_a_model_that_goes_between_submission_and_start(tmp_path: Path) -> None:
    """FAULT: the model's folder is removed after the submission.

    HOW: real: it is removed.
    REPORTED: `stage_in`: "the model could not be copied", and the message of rsync or cp in the log.
    LOST: nothing.
    """
    folder = tmp_path / "model"
    write_model(folder)
    run = ScriptRun(
        tmp_path, model=replace(MODEL, path=str(folder), fingerprint=fingerprint(folder, MODEL_FILES))
    )
    assert run.run(1)[0] == 0
    shutil.rmtree(folder)
    status, said = run.run(1)
    assert (status, run.exit(1, 2).outcome) == (1, Outcome.STAGE_IN), said
    assert "the model could not be copied" in run.exit(1, 2).message
    assert "No such file or directory" in said
    assert run.left_on_scratch() == []


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
    assert [status for status, _ in ends] == [0, 0, 0, 0], ends
    assert run.record(2).outcome is Outcome.GPU_OOM
    pruned = run.exit(3)
    assert (pruned.outcome, pruned.stage) == (Outcome.PRUNED, "gate")
    assert pruned.message == "batch_size-2-r1 ran out of memory on V100, with a smaller load"
    assert run.record(1).outcome is Outcome.OK
    assert run.record(3, 2).outcome is Outcome.GPU_OOM, "it ran, on another card"


@pytest.mark.parametrize("off_s", [3 * 3600, -3 * 3600])
def test_a_node_whose_clock_is_wrong(tmp_path: Path, off_s: int) -> None:
    """FAULT: the node's clock is three hours ahead of the login node's, or behind it.

    HOW: fake: `date` and Python's clock show another time in the job.
    REPORTED: nothing: each duration is measured by one clock, so none is negative.
    LOST: nothing.
    """
    date = tmp_path / "bin" / "date"
    date.parent.mkdir()
    date.write_text(f'#!/bin/bash\nexec {shutil.which("date")} -d "$(({off_s})) seconds" "$@"\n')
    date.chmod(0o755)
    run = ScriptRun(tmp_path)
    clock = {"PATH": f"{date.parent}:{os.environ['PATH']}", "CLOCK_OFF_S": str(off_s)}
    status, said = run.run(1, PYTHONPATH=f"{WORKLOADS}/clock:{WORKLOADS}", **clock)
    assert status == 0, said
    begun = datetime.fromisoformat(read_begin(run.home() / "begin").at)
    record = run.record()
    for told in (begun, datetime.fromisoformat(record.started_at)):
        assert abs((told - datetime.now(UTC)).total_seconds() - off_s) < 300
    found = collect([run.dir]).points
    assert found["outcome"].tolist()[0] == "ok"
    assert (found.iloc[[0]].select_dtypes("number").fillna(0) >= 0).all(axis=None)
    (seen,) = read_standings([run.dir], ask=False)
    took = worker_s(record)
    assert seen.points[0].standing is PointState.DONE
    assert took is not None
    assert 0 <= took < 60
