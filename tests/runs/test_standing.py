from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobkit.core.files import append_line, write_atomically
from jobkit.core.json_codec import to_json
from jobkit.core.layout import POINTS_FILE, SEARCH_GOAL_FILE, TRIALS_FILE, Begin, Exit
from jobkit.core.records import Outcome, Point
from jobkit.runs.journal import JobTask
from jobkit.runs.progress import Progress
from jobkit.runs.reader import read_standings
from jobkit.runs.standing import PointState, PointStatus, RunStanding, count_by_state
from jobkit.schedulers.types import Queued, State
from tests.support.builders import (
    batch,
    grid,
    point,
    record,
    write_answer,
    write_batches,
    write_begin,
    write_event,
    write_exit,
    write_points,
    write_record,
    write_submitted,
)
from tests.support.programs import RUN_ID, Programs
from tests.support.programs import queue as queue  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.statuses import TASK, a_run, tried, waits

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
LOCAL = JobTask("local", "77", 1)


def stands(
    standing: PointState,
    outcome: Outcome | None = None,
    *,
    queued: Queued | None = None,
    task: JobTask | None = TASK,
    index: int = 1,
    silent: bool = False,
) -> PointStatus:
    return PointStatus(
        point=point(index),
        all_tries=(tried(0, outcome, evidence="so it is", task=task),),
        standing=standing,
        task=task,
        queued=queued,
        silent=silent,
        now=NOW,
    )


def local(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%dT%H:%M:%S")


def test_points_are_counted_by_where_they_stand() -> None:
    running, done = stands(PointState.RUNNING), stands(PointState.DONE, Outcome.OK)
    bug, late, cancelled = (
        stands(PointState.FAILED, outcome) for outcome in (Outcome.BUG, Outcome.TIMEOUT, Outcome.CANCELLED)
    )
    assert count_by_state(a_run([running])) == "1 point: 1 running"
    assert count_by_state(a_run([cancelled, done, bug, late, bug, running, cancelled])) == (
        "7 points: 1 done, 3 failed (2 bug, 1 timeout), 2 cancelled, 1 running"
    )
    assert a_run([done, cancelled]).exit_code == 4
    trial = a_run([done, replace(cancelled, point=replace(cancelled.point, trial=True))])
    assert (trial.exit_code, count_by_state(trial)) == (0, "2 points: 1 done, 1 test cancelled")


@pytest.mark.parametrize(
    ("standing", "code"),
    [
        ((PointState.DONE,), 0),
        ((PointState.DONE, PointState.FAILED), 4),
        ((PointState.STUCK,), 4),
        *(((standing, PointState.FAILED), 5) for standing in (PointState.RUNNING, PointState.WAITING)),
        *(((standing, PointState.FAILED), 5) for standing in (PointState.UNSETTLED, PointState.MISSING)),
    ],
)
def test_the_exit_code_is_that_of_what_is_most_to_come(standing: tuple[PointState, ...], code: int) -> None:
    assert a_run([stands(each) for each in standing]).exit_code == code


SOON, LATER, PAST = (NOW + timedelta(**ago) for ago in ({"minutes": 5}, {"days": 40}, {"hours": -1}))
AHEAD = "Priority: other jobs are ahead of it"
SHARES = "the job that it shares has begun, and its turn is to come"
WAITING, RUNNING = PointState.WAITING, PointState.RUNNING
SUSPENDED, AHEAD_SOON = waits(State.RUNNING, "s: suspended"), waits(reason="Priority", start_at=local(SOON))


@pytest.mark.parametrize(
    ("point", "state", "why"),
    [
        (stands(PointState.DONE, Outcome.OK), "ok", ""),
        (stands(PointState.DONE, Outcome.PRUNED), "pruned", "so it is"),
        (stands(PointState.FAILED, Outcome.BUG, queued=waits()), "bug", "so it is"),
        (stands(PointState.MISSING, task=None), "missing", "never submitted"),
        (stands(PointState.UNSETTLED), "unsettled", "left the queue: so it is"),
        (stands(PointState.UNSETTLED, silent=True), "unsettled", "slurm does not answer"),
        (stands(WAITING, queued=waits(reason="Priority")), "waiting", AHEAD),
        (stands(WAITING, queued=waits(State.HELD)), "held", ""),
        (stands(PointState.STUCK, Outcome.QUEUE_ERROR, queued=waits(State.ERROR)), "stuck", ""),
        (stands(WAITING, queued=waits(State.RUNNING)), "waiting", SHARES),
        (
            stands(WAITING, queued=waits(State.RUNNING, task=0), task=LOCAL),
            "waiting",
            "one at a time runs here",
        ),
        (stands(RUNNING, queued=waits(State.RUNNING, start_at=local(SOON))), "running", ""),
        (stands(RUNNING, queued=waits(State.RUNNING, task=0), task=LOCAL), "running", ""),
        (stands(RUNNING, queued=SUSPENDED, task=JobTask("sge", "77", 1)), "running", "s: suspended"),
        (
            stands(WAITING, queued=waits(start_at=local(LATER))),
            "waiting",
            f"to begin about {LATER.astimezone():%Y-%m-%d %H:%M}",
        ),
        (stands(WAITING, queued=AHEAD_SOON), "waiting", f"{AHEAD}; to begin about {SOON.astimezone():%H:%M}"),
        (stands(WAITING, queued=waits(start_at="N/A")), "waiting", ""),
        (stands(WAITING, queued=waits(start_at=local(PAST))), "waiting", ""),
    ],
)
def test_the_word_for_where_a_point_stands_and_why(point: PointStatus, state: str, why: str) -> None:
    assert (point.state, point.why) == (state, why)


BEGIN = Begin(scheduler="slurm", job="77", task=1, restart=0, round=1, at="2026-01-02T11:59:00Z")
SINCE = local(NOW - timedelta(seconds=67))


@pytest.mark.parametrize(
    ("queued", "shared", "begin", "elapsed_s"),
    [
        (waits(State.RUNNING, elapsed_s=7.0), False, BEGIN, 7),
        (waits(State.RUNNING, start_at=SINCE), False, BEGIN, 67),
        (waits(State.RUNNING, start_at=local(SOON)), False, BEGIN, 0),
        (waits(State.RUNNING), False, BEGIN, None),
        (waits(State.RUNNING, elapsed_s=700.0), True, BEGIN, 60),
        (waits(State.RUNNING, task=0), False, BEGIN, 60),
        (None, False, BEGIN, 60),
        (None, False, None, None),
        (None, False, replace(BEGIN, at="2026-01-02T12:30:00Z"), 0),
    ],
)
def test_how_long_a_point_has_been_running(
    queued: Queued | None,
    shared: bool,  # noqa: FBT001 - pytest passes by name
    begin: Begin | None,
    elapsed_s: float | None,
) -> None:
    """By the scheduler's clock; a point that shares its task by the node's, since its own try began."""
    point = stands(PointState.RUNNING, queued=queued)
    begun = replace(tried(1), begin=begin)
    packed = frozenset({TASK}) if shared else frozenset()
    assert replace(point, all_tries=(begun,), shared_tasks=packed).elapsed_s == elapsed_s


def run_of(folder: Path, points: list[Point], scheduler: str = "slurm") -> Path:
    run = write_points(folder, points)
    write_submitted(run, scheduler, "77", first=1, last=len(points))
    (run / "sweep.yaml").write_text("name: demo\nresources: {gpus: 2, gpu_type: h200}\n", encoding="utf-8")
    return run


def one(run: Path) -> RunStanding:
    (found,) = read_standings([run])
    return found


def point_of(run: Path, index: int = 1) -> PointStatus:
    return one(run).points[index - 1]


def test_a_point_that_runs_tells_how_far_it_is_and_for_how_long(tmp_path: Path, queue: Programs) -> None:
    points = grid([50])
    run = run_of(tmp_path / "run", points)
    write_begin(run, points[0])
    write_batches(
        run,
        points[0],
        [replace(batch(n), batches_total=10, characters_total=50_000) for n in range(4)],
        half="{",
    )
    queue.holds("77_1|RUNNING|None|n2|1:07|2026-01-02T10:19:00")
    found = point_of(run)
    assert (found.state, found.elapsed_s, found.why) == ("running", 67, "")
    assert found.progress == Progress(
        batches=4, batches_total=10, characters=20_000, characters_total=50_000, work_s=2.0
    )
    assert one(run).to_go_s == pytest.approx(3.0)
    assert one(run).exit_code == 5


def test_a_point_that_has_ended_tells_its_card_and_how_long_it_took(tmp_path: Path, queue: Programs) -> None:
    points = grid([50, 100])
    run = run_of(tmp_path / "run", points)
    write_record(run, record(points[0]))
    write_exit(run, points[1], Exit(status=1, stage="stage_in", message="no text"))
    found = one(run)
    first, second = found.points
    assert (first.state, first.elapsed_s, found.gpu_of(first)) == ("ok", 60, "NVIDIA H200")
    assert (second.state, second.elapsed_s, found.gpu_of(second)) == ("stage_in", None, "h200")
    assert second.why == "exit file: no text"
    assert (found.exit_code, found.to_go_s, found.saved) == (4, None, None)
    assert queue.asked == {}, "where nothing is open nobody is asked"


def test_a_sweep_tells_how_long_it_has_to_go_unless_somebody_must_act(
    tmp_path: Path, queue: Programs
) -> None:
    points = grid([50], 4)
    run = run_of(tmp_path / "run", points)
    write_record(run, record(points[0]))
    rows = ["77_2|RUNNING|None|n2|0:20|2026-01-02T10:19:00", "77_3|PENDING|Priority|||N/A"]
    queue.holds(*rows, "77_4|PENDING|Priority|||N/A")
    assert one(run).to_go_s == pytest.approx(40 + 60 + 60)
    queue.holds(*rows, "77_4|PENDING|JobHeldUser|||N/A")
    assert (one(run).to_go_s, point_of(run, 4).state) == (None, "held")
    queue.holds(*rows, "77_4|PENDING|BadConstraints|||N/A")
    assert (one(run).to_go_s, point_of(run, 4).state) == (None, "stuck")


@pytest.mark.parametrize(
    ("row", "state"),
    [
        ("78_1|PENDING|Dependency|||N/A", "waiting"),
        ("78_1|RUNNING|None|n1|0:01|N/A", "running"),
        ("78_1|PENDING|DependencyNeverSatisfied|||N/A", "stuck"),
        ("78_1|STRANGE|None|||N/A", "unsettled"),
        ("77_1|PENDING|Priority|||N/A", "unsettled"),
    ],
)
def test_how_the_job_that_follows_stands(tmp_path: Path, queue: Programs, row: str, state: str) -> None:
    run = run_of(tmp_path / "run", grid([50]))
    write_submitted(run, "slurm", "78", first=1, last=1, role="follow")
    queue.holds(row)
    assert [job.state for job in one(run).jobs] == [state]


SACCT = f"78_2|TIMEOUT|0:0|3|||1|n1|None|{RUN_ID}"
QACCT = f"""\
==============================================================
jobname      {RUN_ID}
jobnumber    78
taskid       2
failed       100 : assumedly after job
exit_status  137"""
TRIAL = {"index": 2, "batch_size": 64, "load": 9, "capacity_bytes": 9, "expected_bytes": 8, "bound_bytes": 9}


def write_trial(run: Path, trial: Point, outcome: str | None) -> None:
    """Write a trial that has begun, or has ended, as its job does; a killed one leaves no outcome."""
    append_line(run / POINTS_FILE, to_json(trial))
    if outcome:
        write_record(run, record(trial))
    write_atomically(run / SEARCH_GOAL_FILE, '{"memory_bytes": null, "ram_bytes": 9, "ledger": "/l"}')
    append_line(run / TRIALS_FILE, json.dumps(TRIAL | {"outcome": outcome, "measured_bytes": 8}))


@pytest.mark.parametrize(
    ("outcome", "program", "answer", "end"),
    [
        pytest.param("ok", "sacct", "", "its last trial has ended", id="home"),
        pytest.param(None, "sacct", SACCT, "sacct: TIMEOUT, ExitCode 0:0", id="slurm"),
        pytest.param(None, "qacct", QACCT, "qacct: failed 100 : assumedly after job", id="sge"),
    ],
)
def test_how_the_job_that_tries_the_largest_batch_ended(
    tmp_path: Path, queue: Programs, outcome: str | None, program: str, answer: str, end: str
) -> None:
    points = grid([50])
    scheduler = "slurm" if program == "sacct" else "sge"
    run = run_of(tmp_path / "run", points, scheduler)
    write_record(run, record(points[0]))
    write_submitted(run, scheduler, "78", first=2, last=2, role="find")
    write_trial(run, replace(points[0], index=2, point_id="batch_size-64-verify"), outcome)
    queue.says("qstat", "<job_info/>")
    queue.says(program, answer)
    (job,) = one(run).jobs
    assert job.state == "ended"
    assert job.why.startswith(end)


def test_a_job_that_follows_and_left_no_trace_is_said_to_be_gone_or_cancelled(
    tmp_path: Path, queue: Programs
) -> None:
    run = run_of(tmp_path / "run", grid([50]))
    write_submitted(run, "slurm", "78", first=1, last=1, role="follow")
    for at in ("2026-01-02T11:00:00+00:00", "2026-01-02T11:05:00+00:00"):
        write_answer(run, "slurm", "gone", "78.1", argv=[], at=at)
    (job,) = one(run).jobs
    assert job.why.startswith("neither the queue nor the accounting has listed it since 2026-01-02")
    assert queue.asked == {"squeue": 1, "sacct": 1}, "about the point alone"
    write_event(run, "cancelled", job_id="78", status=0)
    (job,) = one(run).jobs
    assert (job.state, job.why[:12]) == ("ended", "cancelled at")


def test_a_job_that_follows_and_has_ended_is_asked_about_once(tmp_path: Path, queue: Programs) -> None:
    points = grid([50])
    run = run_of(tmp_path / "run", points)
    write_record(run, record(points[0]))
    write_submitted(run, "slurm", "78", first=1, last=1, role="follow")
    queue.says("sacct", f"78_1|COMPLETED|0:0|3|||1|n1|None|{RUN_ID}")
    for asked in ({"squeue": 1, "sacct": 1}, {}):
        assert [job.state for job in one(run).jobs] == ["ended"]
        assert queue.asked == asked
