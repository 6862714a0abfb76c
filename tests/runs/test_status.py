"""Where points stand, and what is asked of the schedulers; the real ones are asked in tests/cluster."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.files import append_line, write_atomically
from jobkit.core.json_codec import to_json
from jobkit.core.layout import ORDER_FILE, POINTS_FILE, SEARCH_GOAL_FILE, TRIALS_FILE, Begin
from jobkit.core.records import JobFacts, Outcome, Point
from jobkit.runs.journal import JobTask, Role
from jobkit.runs.reader import read_status
from jobkit.runs.status import TO_COME, PointStanding, PointStatus, Requested, count_by_state, history
from jobkit.schedulers.types import Queued, State
from tests.support.builders import (
    grid,
    record,
    write_answer,
    write_begin,
    write_event,
    write_exit,
    write_points,
    write_record,
    write_submitted,
)
from tests.support.meanwhile import meanwhile
from tests.support.programs import FAILED, RUN_ID, Programs, outcomes, seen, standings, sweep
from tests.support.programs import programs as programs  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.programs import queue as queue  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.statuses import a_point, a_run, tried, waits

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


def stands(standing: PointStanding, outcome: Outcome | None = None, **fields: Any) -> PointStatus:
    return a_point(1, standing, outcome, why="so it is", now=NOW, **{"queued": None} | fields)


def local(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%dT%H:%M:%S")


def test_points_are_counted_by_where_they_stand() -> None:
    running, done = stands(PointStanding.RUNNING), stands(PointStanding.DONE, Outcome.OK)
    bug, late, cancelled = (
        stands(PointStanding.FAILED, outcome) for outcome in (Outcome.BUG, Outcome.TIMEOUT, Outcome.CANCELLED)
    )
    assert count_by_state(a_run([cancelled, done, bug, late, bug, running, cancelled])) == (
        "7 points: 1 done, 3 failed (2 bug, 1 timeout), 2 cancelled, 1 running"
    )
    assert a_run([done, cancelled]).exit_code == 4
    trial = a_run([done, replace(cancelled, point=replace(cancelled.point, trial=True))])
    assert (trial.exit_code, count_by_state(trial)) == (0, "2 points: 1 done, 1 test cancelled")


def test_the_exit_code_is_that_of_what_is_most_to_come() -> None:
    done, failed, stuck, *to_come = map(
        stands, (PointStanding.DONE, PointStanding.FAILED, PointStanding.STUCK, *TO_COME)
    )
    assert [a_run(points).exit_code for points in ([done], [done, failed], [stuck])] == [0, 4, 4]
    assert {a_run([one, failed]).exit_code for one in to_come} == {5}


SOON, PAST = NOW + timedelta(minutes=5), NOW - timedelta(hours=1)
AHEAD = "Priority: other jobs are ahead of it"
SHARES = "the job that it shares has begun, and its turn is to come"
WAITING, RUNNING = PointStanding.WAITING, PointStanding.RUNNING
SUSPENDED = replace(waits(State.RUNNING, "s: suspended"), suspended=True)
AHEAD_SOON = waits(reason="Priority", start_at=local(SOON))


@pytest.mark.parametrize(
    ("point", "state", "why"),
    [
        (stands(PointStanding.DONE, Outcome.OK), "ok", ""),
        (stands(PointStanding.DONE, Outcome.PRUNED), "pruned", "so it is"),
        (stands(PointStanding.FAILED, Outcome.BUG, queued=waits()), "bug", "so it is"),
        (stands(PointStanding.UNSETTLED), "unsettled", "left the queue: so it is"),
        (stands(PointStanding.UNSETTLED, silent="slurm is away"), "unsettled", "slurm is away"),
        (stands(WAITING, queued=waits(State.HELD)), "held", ""),
        (stands(PointStanding.STUCK, Outcome.QUEUE_ERROR, queued=waits(State.ERROR)), "stuck", ""),
        (stands(WAITING, queued=waits(State.RUNNING)), "waiting", SHARES),
        (stands(RUNNING, queued=waits(State.RUNNING, start_at=local(SOON))), "running", ""),
        (replace(stands(RUNNING, queued=waits(State.RUNNING)), queued=waits(task=0)), "running", ""),
        (stands(RUNNING, queued=SUSPENDED), "suspended", "s: suspended"),
        (stands(WAITING, queued=AHEAD_SOON), "waiting", f"{AHEAD}; to begin about {SOON.astimezone():%H:%M}"),
        (stands(WAITING, queued=waits(start_at="N/A")), "waiting", ""),
        (stands(WAITING, queued=waits(start_at=local(PAST))), "waiting", ""),
    ],
)
def test_the_word_for_where_a_point_stands_and_why(point: PointStatus, state: str, why: str) -> None:
    assert (point.state, point.why) == (state, why)


BEGIN = Begin(scheduler="slurm", job="77", task=1, restart=0, round=1, at="2026-01-02T11:59:00Z")
SINCE = local(NOW - timedelta(seconds=67))


def test_how_long_a_point_has_been_running() -> None:
    """By the scheduler's clock; a point that shares its task by the node's, since its own try began."""
    for queued, shared, begin, elapsed_s in (
        (waits(State.RUNNING, elapsed_s=7.0), False, BEGIN, 7),
        (waits(State.RUNNING, start_at=SINCE), False, BEGIN, 67),
        (waits(State.RUNNING), False, BEGIN, None),
        (waits(State.RUNNING, elapsed_s=700.0), True, BEGIN, 60),
        (waits(State.RUNNING, task=0), False, BEGIN, 60),
        (None, False, None, None),
        (None, False, replace(BEGIN, at="2026-01-02T12:30:00Z"), 0),
    ):
        point = stands(PointStanding.RUNNING, queued=queued)
        begun = replace(tried(1), begin=begin, alone=not shared)
        assert replace(point, all_tries=(begun,), queued=queued).elapsed_s == elapsed_s


def run_of(folder: Path, points: list[Point]) -> Path:
    run = write_points(folder, points)
    write_submitted(run, "slurm", "77", first=1, last=len(points))
    (run / "sweep.yaml").write_text("name: demo\nresources: {gpus: 2, gpu_type: h200}\n", encoding="utf-8")
    return run


@pytest.mark.slow
def test_a_sweep_tells_how_long_it_has_to_go_unless_somebody_must_act(
    tmp_path: Path, queue: Programs
) -> None:
    points = grid([50], 4)
    run = run_of(tmp_path / "run", points)
    write_record(run, record(points[0]))
    rows = ["77_2|RUNNING|None|n2|0:20|2026-01-02T10:19:00", "77_3|PENDING|Priority|||N/A"]
    queue.holds(*rows, "77_4|PENDING|Priority|||N/A")
    assert seen(run).to_go_s == pytest.approx(40 + 60 + 60)
    queue.holds(*rows, "77_4|PENDING|JobHeldUser|||N/A")
    assert (seen(run).to_go_s, seen(run).points[3].state) == (None, "held")
    queue.holds(*rows, "77_4|PENDING|BadConstraints|||N/A")
    assert (seen(run).to_go_s, seen(run).points[3].state) == (None, "stuck")
    (run / "points.jsonl").write_text("".join(to_json(point) + "\n" for point in grid([50], 5)))
    queue.holds(*rows, "77_4|PENDING|Priority|||N/A")
    assert (seen(run).to_go_s, seen(run).points[4].state) == (None, "missing")


SACCT = f"78_2|TIMEOUT|0:0|3|||1|n1|None|{RUN_ID}"
TRIAL = {"index": 2, "batch_size": 64, "load": 9, "capacity_bytes": 9, "expected_bytes": 8, "bound_bytes": 9}


def write_trial(run: Path, trial: Point, outcome: str | None) -> None:
    """Write a trial that has begun, or has ended, as its job does; a killed one leaves no outcome."""
    append_line(run / POINTS_FILE, to_json(trial))
    if outcome:
        write_record(run, record(trial))
    write_atomically(run / SEARCH_GOAL_FILE, '{"memory_bytes": null, "ram_bytes": 9, "ledger": "/l"}')
    append_line(run / TRIALS_FILE, json.dumps(TRIAL | {"outcome": outcome, "measured_bytes": 8}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outcome", "answer", "end"),
    [("ok", "", "its last trial has ended"), (None, SACCT, "sacct: TIMEOUT, ExitCode 0:0")],
)
def test_how_the_job_that_tries_the_largest_batch_ended(
    tmp_path: Path, queue: Programs, outcome: str | None, answer: str, end: str
) -> None:
    points = grid([50])
    run = run_of(tmp_path / "run", points)
    write_record(run, record(points[0]))
    write_submitted(run, "slurm", "78", first=2, last=2, role="find")
    write_trial(run, replace(points[0], index=2, point_id="batch_size-64-verify"), outcome)
    queue.says("sacct", answer)
    (job,) = seen(run).jobs
    assert (job.state, job.why) == ("ended", end)


@pytest.mark.slow
def test_a_job_that_follows_and_left_no_trace_is_said_to_be_gone_or_cancelled(
    tmp_path: Path, queue: Programs
) -> None:
    run = run_of(tmp_path / "run", grid([50]))
    write_submitted(run, "slurm", "78", first=1, last=1, role="follow")
    for at in ("2026-01-02T11:00:00+00:00", "2026-01-02T11:05:00+00:00"):
        write_answer(run, "slurm", "gone", "78.1", argv=[], at=at)
    (job,) = seen(run).jobs
    assert job.why.startswith("neither the queue nor the accounting has listed it since 2026-01-02")
    assert queue.asked == {"squeue": 1, "sacct": 1}, "about the point alone"
    write_event(run, "cancelled", job_id="78", status=0)
    (job,) = seen(run).jobs
    assert (job.state, job.why[:12]) == ("ended", "cancelled at")
    write_record(run, record(grid([50])[0]))
    write_submitted(run, "slurm", "79", first=1, last=1, role="follow")
    queue.says("sacct", f"79_1|COMPLETED|0:0|3|||1|n1|None|{RUN_ID}")
    queue.calls()
    for asked in ({"squeue": 1, "sacct": 1}, {}):
        assert [job.state for job in seen(run).jobs] == ["ended", "ended"]
        assert queue.asked == asked


@pytest.mark.slow
def test_a_further_trial_of_the_largest_batch_is_of_the_job_that_made_it(
    tmp_path: Path, queue: Programs
) -> None:
    points = grid([50, 900, 800])
    run = write_points(tmp_path / "run", points)
    write_submitted(run, "slurm", "77", first=1, last=1)
    write_submitted(run, "slurm", "78", first=1, last=1, offset=1, role=Role.FIND)
    write_record(run, record(points[0]))
    write_record(run, replace(record(points[1]), outcome=Outcome.GPU_OOM))
    write_begin(run, points[2], job=78, task=1)
    queue.squeue("78_1 RUNNING")
    last = seen(run).points[2]
    assert (last.standing, last.task and last.task.job_id) == (PointStanding.RUNNING, "78")
    assert queue.called("squeue")[0].split()[-1] == "78"


@pytest.mark.parametrize("before", range(4))
def test_a_corpus_that_is_planned_while_it_is_read_is_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    (tmp_path / POINTS_FILE).touch()
    (tmp_path / ORDER_FILE).write_text(f'{{"run_id": "{RUN_ID}"}}', encoding="utf-8")
    meanwhile(monkeypatch, before, lambda: write_points(tmp_path, grid([50])))
    (run,) = read_status([tmp_path], ask=False)
    assert (len(run.points) <= 1, run.notes) == (True, ())


@pytest.mark.parametrize("before", range(4))
def test_a_point_that_a_search_adds_while_the_run_is_read_is_not_foreign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    points = grid([50, 900])
    run = write_points(tmp_path / "run", points[:1])
    write_record(run, record(points[0]))

    def add() -> None:
        append_line(run / POINTS_FILE, to_json(points[1]))
        write_begin(run, points[1])

    meanwhile(monkeypatch, before, add)
    (found,) = read_status([run], ask=False)
    assert (found.points[0].outcome, found.notes) == (Outcome.OK, ())


def test_a_trial_that_ran_out_of_memory_has_its_answer(tmp_path: Path) -> None:
    points = grid([50])
    trial = replace(points[0], index=2, point_id="batch_size-900-verify")
    run = write_points(tmp_path / "run", [*points, trial])
    for one in (points[0], trial):
        write_record(run, replace(record(one), outcome=Outcome.RAM_OOM))
    assert standings(run) == [PointStanding.FAILED, PointStanding.DONE]


@pytest.mark.slow
def test_where_points_stand(tmp_path: Path, programs: Programs) -> None:
    run, points = tmp_path / "run", grid(range(1, 10))
    write_points(run, points)
    write_submitted(run, "slurm", "77", first=1, last=8)
    write_record(run, record(points[0]))
    write_exit(run, points[1], FAILED)
    write_begin(run, points[3])
    write_exit(run, points[7], FAILED)
    waiting = ("77_3 PENDING Resources", "77_6 PENDING BadConstraints")
    programs.squeue(*waiting, "77_4 RUNNING", "77_5 RUNNING", "77_8 COMPLETING")
    expected = "done failed waiting running running stuck unsettled failed missing"
    assert [str(standing) for standing in standings(run)] == expected.split()
    assert seen(run).points[2].queued == Queued(
        job_id="77", task=3, state=State.PENDING, reason="Resources", name=RUN_ID, node="n1"
    )


@pytest.mark.slow
def test_points_that_share_a_task(tmp_path: Path, programs: Programs) -> None:
    run = tmp_path / "run"
    points = grid([1, 2, 3])
    write_points(run, points)
    (run / "tasks-1.txt").write_text("1 2 3\n", encoding="utf-8")
    write_submitted(run, "slurm", "77", first=1, last=1, list="tasks-1.txt")
    job = JobFacts(scheduler="slurm", job_id="77", task_id="1")
    write_record(run, replace(record(points[0]), outcome=Outcome.BUG, job=job))
    write_begin(run, points[1], task=1)
    programs.squeue("77_1 RUNNING")
    assert standings(run) == [PointStanding.FAILED, PointStanding.RUNNING, PointStanding.WAITING]
    write_record(run, replace(record(points[1]), job=job))
    programs.squeue()
    programs.sacct("77_1 TIMEOUT 0:0")
    found = seen(run).points
    assert [one.standing for one in found] == [PointStanding.FAILED, PointStanding.DONE, PointStanding.FAILED]
    assert found[2].outcome is Outcome.TIMEOUT
    programs.sacct("77_1 FAILED 1:0")
    last = seen(run).points[2]
    assert last.outcome is Outcome.TIMEOUT, "what is known is not asked again"


@pytest.mark.slow
def test_one_queue_call_and_one_accounting_call_for_all_runs(tmp_path: Path, programs: Programs) -> None:
    runs = [tmp_path / name for name in ("one", "two", "three")]
    for run, job in zip(runs, ("77", "78", "79"), strict=True):
        write_points(run, grid(range(1, 101)))
        write_submitted(run, "slurm", job, first=1, last=50)
        write_submitted(run, "slurm", f"8{job}", first=1, last=50, offset=50)
    programs.squeue("77_1 RUNNING", "78_2 RUNNING")
    programs.sacct("877_1 TIMEOUT 0:0")
    found = read_status(runs)
    queue, accounting = programs.calls()
    assert queue.startswith("squeue ")
    assert queue.endswith(" -j 77,877,78,878,79,879")
    assert accounting.startswith("sacct ")
    assert [str(one.points[0].standing) for one in found] == ["running", "unsettled", "unsettled"]
    assert found[0].points[50].outcome is Outcome.TIMEOUT
    assert [one.points[50].outcome for one in found[1:]] == [None, None]


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_silent(tmp_path: Path, programs: Programs) -> None:
    good, _ = sweep(tmp_path / "run", 2)
    write_record(tmp_path / "run", record(good))
    programs.says("squeue", status=1, error="slurm_load_jobs error: Unable to contact slurm controller")
    found = seen(tmp_path / "run")
    assert [*found.silent] == ["slurm"]
    assert [point.standing for point in found.points] == [PointStanding.DONE, PointStanding.UNSETTLED]
    assert [call.split()[0] for call in programs.calls()] == ["squeue"], "nothing has left the queue"
    programs.at(90)
    assert seen(tmp_path / "run").points[1].outcome is None, "silence makes nothing gone"
    (tmp_path / "run" / "accounting.jsonl").unlink()
    (tmp_path / "run" / "accounting.jsonl").mkdir()  # whoever runs the tests, nobody can append to it
    programs.squeue()
    programs.sacct("77_2 TIMEOUT 0:0")
    assert [point.outcome for point in seen(tmp_path / "run").points] == [Outcome.OK, Outcome.TIMEOUT]


CONFIG = "ClusterName = {}\nSlurmctldHost[0] = {}(10.0.0.1)\nSlurmctldPort = 6817"
HOME = {
    "name": "alpine",
    "controllers": ["ctl1:6817", "ctl2:6817"],
    "user": "ada",
    "shell": {"SLURM_CONF": "/a"},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "queued", "accounted", "reason"),
    [
        (CONFIG.format("blanca", "ctl1"), (), (), "this run is on alpine; this shell talks to blanca"),
        (CONFIG.format("alpine", "new1"), (), (), "not known whether this shell"),
        ("", (), (), "not known whether this shell"),
        (CONFIG.format("alpine", "new1"), (), ("77_1 FAILED 1:0", "77_2 RUNNING 0:0"), ""),
        (CONFIG.format("alpine", "ctl2"), (), (), ""),
        (CONFIG.format("alpine", "ctl1"), ("cpu|eve|2026-01-02T11:15:00",), (), "name, user or time"),
        (CONFIG.format("alpine", "ctl1"), ("cpu|ada|2026-01-01T03:15:00",), (), "name, user or time"),
        (CONFIG.format("alpine", "ctl1"), ("cpu|ada|2026-01-02T23:15:00",), (), ""),
    ],
)
def test_a_run_of_another_cluster_is_not_lost(
    tmp_path: Path,
    programs: Programs,
    config: str,
    queued: tuple[str, ...],
    accounted: tuple[str, ...],
    reason: str,
) -> None:
    run = write_points(tmp_path / "run", grid([1, 2]))
    write_submitted(run, "slurm", "77", first=1, last=2, scheduler_id=HOME)
    programs.says("scontrol", config)
    programs.holds(*(f"77_1|PENDING|None||0:00|N/A|{RUN_ID}" for _ in queued), name="".join(queued))
    programs.sacct(*accounted)
    for seconds in (0, 90):
        programs.at(seconds)
        found = seen(run)
    why = found.silent.get("slurm")
    assert reason in why.message if why else not reason, found.silent
    asked = programs.asked
    assert asked["scontrol"] == (1 if config else 2), "once a process, if it answers"
    lost = [point.outcome for point in found.points] == [Outcome.LOST] * 2
    assert lost == (not reason and not accounted and not queued)
    if "alpine;" in reason:
        assert asked["sacct"] == 0
        assert why is not None
        assert "export SLURM_CONF=/a" in why.hint


@pytest.mark.slow
@pytest.mark.parametrize("program", ["squeue", "sacct"])
@pytest.mark.parametrize("task", ["77", "77_1"])
def test_a_number_of_another_job_loses_no_run_without_a_cluster(
    tmp_path: Path, programs: Programs, program: str, task: str
) -> None:
    """The journal of an earlier version lacks the cluster, and most jobs of other people are no arrays."""
    run = tmp_path / "run"
    sweep(run, 2)
    row = "|PENDING|None||0:00|N/A|other" if program == "squeue" else "|COMPLETED|0:0|60||50M|1|n1|None|other"
    programs.says(program, f"{task}{row}")
    for seconds in (0, 90):
        programs.at(seconds)
        found = seen(run)
    assert "slurm job 77 has another name, user or time" in found.silent["slurm"].message
    assert [point.outcome for point in found.points] == [None] * 2


@pytest.mark.slow
def test_what_the_accounting_alone_lists_as_alive_is_not_lost(tmp_path: Path, programs: Programs) -> None:
    run = tmp_path / "run"
    sweep(run, 2)
    programs.sacct("77_1 RUNNING 0:0", "77_2 FAILED 1:0")
    for seconds in (0, 90):
        programs.at(seconds)
        alive, ended = seen(run).points
        assert (alive.standing, ended.outcome) == (PointStanding.RUNNING, Outcome.LOST)
    evidence = "the queue does not list it; sacct: RUNNING, ExitCode 0:0"
    assert alive.why == f"{evidence}; if it no longer runs: jobkit cancel"
    programs.says("sacct", status=1, error="sacct: error: Problem talking to the database")
    for seconds in (180, 300):
        programs.at(seconds)
        assert seen(run).points[0].outcome is None, "it answered before: its silence makes nothing gone"
    write_event(run, "cancelled", job_id="77", tasks=[1], status=0, refused="")
    programs.sacct("77_1 RUNNING 0:0", "77_2 FAILED 1:0")
    assert seen(run).points[0].outcome is Outcome.CANCELLED, "the way out if slurmdbd has missed its end"


@pytest.mark.slow
def test_results_have_a_minute_to_come_home(tmp_path: Path, queue: Programs) -> None:
    run = tmp_path / "run"
    sweep(run, 2)
    now = datetime.now().astimezone()
    ends = (f"{now - timedelta(seconds=ago):%Y-%m-%dT%H:%M:%S}" for ago in (20, 70))
    rows = (f"77_{n}|COMPLETED|0:0|9|||1|n1|None|{RUN_ID}|{end}" for n, end in enumerate(ends, 1))
    queue.says("sacct", *rows)
    assert outcomes(run) == [None, Outcome.LOST]


@pytest.mark.slow
def test_what_was_preempted_for_good_is_soon_asked_no_more(tmp_path: Path, programs: Programs) -> None:
    run = tmp_path / "run"
    sweep(run, 1)
    programs.sacct("77_1 PREEMPTED 0:0")
    assert (standings(run), outcomes(run)) == ([PointStanding.FAILED], [Outcome.PREEMPTED])
    programs.at(61)
    assert outcomes(run) == [Outcome.PREEMPTED]
    programs.calls()
    assert outcomes(run) == [Outcome.PREEMPTED]
    assert programs.calls() == []


@pytest.mark.slow
def test_a_point_that_was_submitted_again_is_looked_for_there(tmp_path: Path, programs: Programs) -> None:
    run = tmp_path / "run"
    one, _ = sweep(run, 2)
    for point_ in (one, _):
        write_begin(run, point_)
        write_exit(run, point_, replace(FAILED, outcome=Outcome.RAM_OOM))
    write_submitted(run, "slurm", "78", first=1, last=1, round=2)
    programs.squeue("78_1 PENDING Priority")
    again, left = seen(run).points
    assert (again.standing, again.outcome) == (PointStanding.WAITING, None)
    assert again.task == JobTask("slurm", "78", 1)
    assert [tried.number for tried in again.tries] == [1]
    assert left.standing is PointStanding.FAILED
    programs.squeue()
    assert seen(run).points[0].standing is PointStanding.UNSETTLED
    programs.sacct("78_1 NODE_FAIL 0:0")
    again = seen(run).points[0]
    assert (again.standing, again.outcome) == (PointStanding.FAILED, Outcome.NODE_FAIL)
    before = [(one.outcome, one.node) for one in history(again)]
    assert before == [(Outcome.RAM_OOM, "node1"), (Outcome.NODE_FAIL, "n1")]
    write_submitted(run, "slurm", "79", first=1, last=1, round=3)
    write_begin(run, one, 2, job=79)
    write_exit(run, one, FAILED, 2)
    before = [(one.outcome, one.node) for one in history(seen(run).points[0])]
    assert before == [(Outcome.NODE_FAIL, "n1"), (Outcome.RAM_OOM, "node1"), (Outcome.BUG, "node1")]


@pytest.mark.slow
def test_what_ran_by_hand_is_done_once_the_queue_has_let_the_point_go(
    tmp_path: Path, programs: Programs
) -> None:
    run = tmp_path / "run"
    (one,) = sweep(run, 1)
    write_record(run, replace(record(one), job=JobFacts(scheduler="hand", job_id="4711")))
    programs.squeue("77_1 PENDING Priority")
    assert standings(run) == [PointStanding.WAITING]
    (seen_one,) = seen(run).points
    assert (seen_one.tries, len(seen_one.by_hand), history(seen_one)) == ((), 1, ())
    programs.squeue()
    assert standings(run) == [PointStanding.DONE]


SHARED = (
    "77_1|RUNNING|0:0|5|||1|n1|None|{name}\n77_[2-3%2]|CANCELLED by 0|0:0|0|||1|None assigned|None|{name}"
)


@pytest.mark.slow
def test_a_task_that_has_just_begun_is_not_cancelled_with_those_that_it_waited_with(
    tmp_path: Path, queue: Programs
) -> None:
    """Sacct says so for some seconds: see tests/data/slurm/sacct-shared.txt."""
    points = grid([1, 2, 3])
    run = run_of(tmp_path / "run", points)
    queue.says("sacct", SHARED.format(name=RUN_ID))
    queue.squeue("77_1 RUNNING", "77_2 RUNNING")
    for _ in range(2):
        assert standings(run) == [PointStanding.RUNNING, PointStanding.RUNNING, PointStanding.FAILED]
    write_begin(run, points[1])
    (without,) = read_status([run], ask=False)
    assert without.points[1].outcome is None, "it has begun: that account is not of it"
    queue.squeue("77_1 RUNNING")
    assert seen(run).points[1].standing is PointStanding.UNSETTLED, "its own row is on its way"
    shutil.rmtree(run / "results")
    queue.squeue()
    queue.says("sacct", SHARED.replace("RUNNING", "COMPLETED").format(name=RUN_ID))
    write_record(run, record(points[0]))
    cancelled = [Outcome.OK, Outcome.CANCELLED, Outcome.CANCELLED]
    assert outcomes(run) == cancelled
    kept = run / "accounting.jsonl"
    lines = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    long_ago = [json.dumps({**line, "at": "2026-01-02T10:15:00+00:00"}) for line in lines]
    kept.write_text("".join(line + "\n" for line in long_ago), encoding="utf-8")
    seen(run)
    queue.calls()
    assert outcomes(run) == cancelled
    assert queue.calls() == []


def cut_short(run: Path, of: Point, number: int = 1) -> None:
    job = JobFacts(scheduler="slurm", job_id="77", task_id="1", restart=number - 1)
    cut = replace(record(of), outcome=Outcome.CANCELLED, provisional=True, signal="TERM", try_number=number)
    write_record(run, replace(cut, job=job))


@pytest.mark.slow
def test_a_requeued_task_is_not_over_and_the_accounting_says_why(tmp_path: Path, queue: Programs) -> None:
    (one,) = points = grid([50])
    run = run_of(tmp_path / "run", points)
    cut_short(run, one)
    for word, reason, standing in (
        ("RUNNING", "None", PointStanding.RUNNING),
        ("COMPLETING", "None", PointStanding.RUNNING),
        ("PENDING", "BeginTime", PointStanding.WAITING),
    ):
        queue.squeue(f"77_1 {word} {reason}")
        assert seen(run).points[0].standing is standing, word
    queue.squeue()
    assert seen(run).points[0].standing is PointStanding.FAILED
    job = JobFacts(scheduler="slurm", job_id="77", task_id="1", restart=1)
    write_record(run, replace(record(one), try_number=2, job=job))
    queue.sacct("77_1 PREEMPTED 0:0", "77_1 COMPLETED 0:0")
    assert [tried.outcome for tried in seen(run).points[0].tries] == [Outcome.OK, Outcome.PREEMPTED]
    queue.calls()
    seen(run)
    assert queue.calls() == [], "once is enough"
    write_record(run, replace(record(one), outcome=Outcome.BUG))
    (run / "results" / one.point_id / "try-2" / "record.json").unlink()
    (run / "results" / one.point_id / "try-2").rmdir()
    queue.squeue("77_1 COMPLETING")
    assert seen(run).points[0].standing is PointStanding.FAILED, "a bug is a bug"


def test_a_run_of_another_user_without_a_spec_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_points(tmp_path / "run", grid([50]))
    assert (seen(run).mine, seen(run).requested) == (True, Requested())
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everywhere
    assert not seen(run).mine
    for text in ("[", "resources: {gpus: many, gpu_type: null}"):
        (run / "sweep.yaml").write_text(text, encoding="utf-8")
        assert seen(run).requested == Requested()


@pytest.mark.slow
def test_what_is_missed_is_noted_when_it_is_news_and_once_a_minute(
    tmp_path: Path, programs: Programs
) -> None:
    run = tmp_path / "run"
    sweep(run, 2)

    def noted(seconds: float, *queue: str) -> list[str]:
        programs.at(seconds)
        programs.squeue(*queue)
        seen(run)
        lines = [json.loads(line) for line in (run / "accounting.jsonl").read_text().splitlines()]
        return [line["stdout"] for line in lines if line["kind"] == "gone"]

    assert noted(0, "77_2 RUNNING") == ["77.1"]
    assert noted(10) == ["77.1", "77.2"]
    assert noted(20, "77_2 RUNNING") == ["77.1", "77.2", "-77.2"]
    assert noted(79, "77_2 RUNNING") == ["77.1", "77.2", "-77.2"]
    assert noted(80, "77_2 RUNNING") == ["77.1", "77.2", "-77.2", ""]
    assert noted(200, "77_2 RUNNING") == ["77.1", "77.2", "-77.2", ""], "it is gone, so nothing is news"
