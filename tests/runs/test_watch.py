from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from jobkit.core.layout import ORDER_FILE, Exit
from jobkit.core.records import JobFacts, Outcome, Point
from jobkit.runs import watch as status_watch
from jobkit.runs.driver_lock import driving, last_driver
from jobkit.runs.journal import JobTask, Role
from jobkit.runs.reader import read_status
from jobkit.runs.status import PointStanding, RunKind, RunStatus
from jobkit.runs.watch import ProgressBars, Screen, is_over, watch
from jobkit.schedulers.types import State
from jobkit.spec.policy import Policy
from tests.runs.test_status import run_of
from tests.support.builders import (
    batch,
    grid,
    record,
    try_folder,
    write_batches,
    write_begin,
    write_exit,
    write_points,
    write_record,
    write_submitted,
)
from tests.support.programs import RUN_ID, Programs
from tests.support.programs import queue as queue  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.statuses import TASK, a_point, a_run, waits, with_job

PENDING = "77_1|PENDING|Priority|||N/A"
RUNNING = "77_1|RUNNING|None|n2|1:07|2026-01-02T10:19:00"


class Clock:
    """A sleep that lets things happen instead: the n-th is followed by the n-th of ``then``."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.then: dict[int, object] = {}

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        assert len(self.pauses) < 50, "it never ends"
        act = self.then.get(len(self.pauses))
        if callable(act):
            act()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Clock:
    """Have nobody sleep; answers of the scheduler age by themselves, for nobody shares them here."""
    made = Clock()
    monkeypatch.setattr(status_watch, "time", made)
    (tmp_path / "cache").write_text("no folder, so nothing is kept", encoding="utf-8")
    return made


def words(found: Sequence[RunStatus]) -> str:
    return "".join(f"{one.points[0].state}\n" for one in found)


@pytest.mark.slow
def test_it_looks_ever_more_seldom_until_nothing_is_to_come(
    tmp_path: Path, queue: Programs, clock: Clock
) -> None:
    points = grid([50])
    run = run_of(tmp_path / "run", points)
    queue.holds(PENDING)
    clock.then = {2: lambda: queue.holds(RUNNING), 20: lambda: write_record(run, record(points[0]))}
    out: list[str] = []
    (last,) = watch([run], words, Screen(out.append, in_place=False))
    assert last.points[0].outcome is Outcome.OK
    assert [text.splitlines()[1] for text in out] == ["waiting", "running", "ok"], "a block a change"
    assert clock.pauses[0] == 2
    assert clock.pauses == sorted(clock.pauses)
    assert clock.pauses[-1] == 30
    assert queue.asked["squeue"] == 20


@pytest.mark.slow
def test_a_program_gets_what_it_asked_for_and_nothing_else(
    tmp_path: Path, queue: Programs, clock: Clock
) -> None:
    run = run_of(tmp_path / "run", grid([50]))
    queue.holds(RUNNING)
    clock.then = {
        3: lambda: queue.holds("77_1|PENDING|JobHeldUser|||N/A"),
        5: lambda: queue.holds("77_1|PENDING|BadConstraints|||N/A"),
    }
    out: list[str] = []
    watch(
        [run], lambda found: json.dumps(words(found)) + "\n", Screen(out.append, in_place=False, plain=True)
    )
    assert [json.loads(text) for text in out] == ["running\n", "held\n", "stuck\n"]


@pytest.mark.slow
def test_on_a_terminal_each_look_is_drawn_over_the_one_before(
    tmp_path: Path, queue: Programs, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((30, 8)))
    points = grid([50])
    run = run_of(tmp_path / "run", points)
    queue.holds(RUNNING)
    clock.then = {1: lambda: write_record(run, record(points[0]))}
    out: list[str] = []
    long = "a line that is longer than the terminal is wide\n"
    watch([run], lambda found: words(found) + 9 * long, Screen(out.append, in_place=True))
    first, second = out
    assert first.splitlines()[0] == "running"
    assert all(len(line) <= 30 for line in first.splitlines())
    assert first.splitlines()[5:] == ["... 5 more lines", first.splitlines()[-1]]
    assert "again in 2 s" in first.splitlines()[-1]
    assert second.startswith("\x1b[7F\x1b[Jok\n"), "seven lines up, and all below is cleared"
    assert second.count(long) == 9, "the last look is whole"


@pytest.mark.slow
def test_the_policy_of_the_run_says_what_is_to_come(tmp_path: Path, queue: Programs, clock: Clock) -> None:
    """A point that ran out of host memory runs again by the job that follows: unless the spec says no."""
    points = grid([50])
    run = run_of(tmp_path / "run", points)
    write_record(run, replace(record(points[0]), outcome=Outcome.RAM_OOM))
    write_submitted(run, "slurm", "78", first=1, last=1, role="follow")
    queue.holds("78_1|PENDING|Dependency|||N/A")
    clock.then = {2: lambda: queue.holds("78_1|PENDING|DependencyNeverSatisfied|||N/A")}
    watch([run], words, Screen(lambda _: None, in_place=False))
    assert len(clock.pauses) == 2
    queue.holds("78_1|PENDING|Dependency|||N/A")
    spec = "name: demo\npolicy: {ram_oom: {tries: 0}}\n"
    (run / "sweep.yaml").write_text(spec, encoding="utf-8")
    watch([run], words, Screen(lambda _: None, in_place=False))
    assert len(clock.pauses) == 2, "nothing is due, so nothing is waited for"


@pytest.fixture
def points() -> list[Point]:
    return grid([1], 2)


def job_of(run: Path) -> str:
    driver = last_driver(run)
    assert driver
    return driver.job_id


def begin(run: Path, point: Point, number: int = 1) -> Path:
    write_begin(run, point, number, scheduler="local", job=job_of(run))
    return try_folder(run, point, number)


def end(run: Path, point: Point, outcome: Outcome = Outcome.OK, number: int = 1, took_s: float = 7.0) -> None:
    """Let a try end whose worker took no time: staging and environment took it all."""
    folder = begin(run, point, number)
    ended = replace(record(point), outcome=outcome, ended_at=record(point).started_at, try_number=number)
    write_record(
        run, replace(ended, job=JobFacts(scheduler="local", job_id=job_of(run), task_id=str(point.index)))
    )
    write_exit(run, point, Exit(status=0, stage="done"), number)
    for name, at in (("begin", 1000.0), ("exit", 1000.0 + took_s)):
        os.utime(folder / name, (at, at))


@pytest.fixture
def driven(tmp_path: Path, points: list[Point]) -> Iterator[Path]:
    """Return the folder of a run whose points this process runs."""
    run = write_points(tmp_path / "run", points)
    with driving(run) as job_id:
        write_submitted(run, "local", job_id, first=1, last=len(points))
        yield run


def test_a_finished_point_has_a_line_with_the_time_to_go_and_a_failure_its_reason(
    driven: Path, points: list[Point], capsys: pytest.CaptureFixture[str]
) -> None:
    with ProgressBars(driven, points) as progress:
        progress.tick(points[0])
        begin(driven, points[0])
        write_batches(driven, points[0], [batch(0)])
        progress.refresh(*read_status([driven]))
        end(driven, points[0])
        progress.refresh(*read_status([driven]))
        end(driven, points[1], Outcome.BUG)
        for _ in range(2):  # it has one line
            progress.refresh(*read_status([driven]))
    said = [" ".join(line.split()) for line in capsys.readouterr().err.splitlines()]
    progress_lines = ["p001 1/2 points, about 7 s to go", "p002 2/2 points, 1 failed"]
    assert said == [*progress_lines, "p002 bug: by its record"]


def test_in_a_notebook_the_progress_replaces_itself(
    driven: Path, points: list[Point], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a kernel does
    shown: list[str] = []
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    kernel = SimpleNamespace(kernel=True)
    cell = SimpleNamespace(update=lambda data, **_: shown.append(data["text/plain"]))
    monkeypatch.setattr(ipython, "get_ipython", lambda: kernel, raising=False)
    monkeypatch.setattr(display, "display", lambda *_, **__: cell, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    with ProgressBars(driven, points) as progress:
        for point, outcome in zip(points, (Outcome.OK, Outcome.BUG), strict=True):
            begin(driven, point)
            end(driven, point, outcome)
            progress.refresh(*read_status([driven]))
    assert len(shown) == 3
    assert all("all points" in text and "\x1b" not in text for text in shown)
    assert " ".join(shown[-1].splitlines()[-1].split()) == "p002 bug: by its record"
    assert not capsys.readouterr().err


def test_what_a_person_must_release_is_printed_once_with_its_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    held = waits(State.HELD, "JobHeldUser")
    run = a_run([a_point(1, PointStanding.WAITING, queued=held)], queued={TASK: held})
    progress = ProgressBars(run.folder, [run.points[0].point])
    progress.refresh(run)
    progress.refresh(run)
    first, step = capsys.readouterr().err.splitlines()
    assert first.strip() == "1 point, waiting: JobHeldUser: held by its owner"
    assert step.strip() == "next: scontrol release 77_1  releases 1 point"


@pytest.mark.slow
def test_a_job_that_plans_is_not_waited_for_if_it_can_never_begin(
    tmp_path: Path, queue: Programs, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_points(tmp_path / RUN_ID, [])
    (run / ORDER_FILE).touch()
    write_submitted(run, "slurm", "78", first=1, last=1, role="plan")
    queue.holds("78_1|PENDING|JobHeldUser|||N/A")
    clock.then = {2: lambda: queue.holds("78_1|PENDING|QOSNotAllowed|||N/A")}
    status_watch.until_planned(run)
    assert len(clock.pauses) == 2
    assert "waits: JobHeldUser: held by its owner\n  next: scontrol release 78_1 " in capsys.readouterr().err


def test_a_try_from_before_a_point_was_submitted_again_is_old(
    driven: Path, points: list[Point], capsys: pytest.CaptureFixture[str]
) -> None:
    end(driven, points[0], Outcome.BUG)
    (before,) = read_status([driven])
    with ProgressBars(driven, points[:1], before) as progress:
        progress.refresh(before)
        assert not capsys.readouterr().err
        end(driven, points[0], number=2)
        progress.refresh(*read_status([driven]))
        assert "1/1 points" in capsys.readouterr().err


def follows(outcome: Outcome, state: State) -> RunStatus:
    return with_job(a_run([a_point(1, PointStanding.FAILED, outcome)]), Role.FOLLOW, state)


def test_a_run_is_over_once_no_point_moves_and_no_job_that_can_begin_runs_one_again() -> None:
    moving = {one for one in PointStanding if not is_over(a_run([a_point(1, one)]), Policy())}
    assert moving == {PointStanding.RUNNING, PointStanding.WAITING, PointStanding.UNSETTLED}
    assert not is_over(follows(Outcome.RAM_OOM, State.PENDING), Policy())
    assert is_over(follows(Outcome.RAM_OOM, State.ERROR), Policy())
    assert is_over(follows(Outcome.BUG, State.PENDING), Policy())


def test_the_trials_of_the_largest_batch_are_waited_for_until_the_last_or_until_their_job_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = with_job(a_run([a_point(1, PointStanding.DONE, Outcome.OK)]), Role.FIND, State.RUNNING)
    for tried_all in (False, True):
        monkeypatch.setattr(RunKind, "finished", lambda *_, all_=tried_all: all_)
        assert is_over(run, Policy()) is tried_all
    monkeypatch.setattr(RunKind, "finished", lambda *_: False)
    assert is_over(replace(run, ended=frozenset({JobTask("slurm", "79", 1)})), Policy())
