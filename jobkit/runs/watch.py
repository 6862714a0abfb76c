"""Show runs again and again until nothing is to come, and the progress of a run that is under way."""

from __future__ import annotations

import html
import importlib
import io
import itertools
import math
import shutil
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from jobkit.core.errors import JobkitError
from jobkit.core.layout import SPEC_FILE
from jobkit.core.records import Point
from jobkit.core.terminal import for_terminal, note, printable, shell_quote
from jobkit.core.units import format_about, format_count, pauses
from jobkit.runs.driver_lock import is_held
from jobkit.runs.hints import release_jobs, releases
from jobkit.runs.journal import PLANNERS, SEARCHES, Role
from jobkit.runs.reader import read_status, record_accounting
from jobkit.runs.request import any_retry_due
from jobkit.runs.status import ENDINGS, MOVING, PointStanding, PointStatus, RunStatus, first_task, followers
from jobkit.runs.status_text import cut, job_line, plain
from jobkit.runs.tries import progress_of_try
from jobkit.schedulers.registry import SCHEDULERS, runs_here
from jobkit.schedulers.types import State
from jobkit.spec.policy import Policy
from jobkit.spec.sweep_spec import load_spec

FIRST_POLL_S, SLOWEST_POLL_S = 2.0, 30.0


@dataclass(slots=True)
class Screen:
    write: Callable[[str], None]  # takes text, as it is
    in_place: bool  # whether each text is drawn over the one before: on a terminal
    plain: bool = False  # whether nothing is added to the text: for programs
    note: Callable[[str], None] = lambda _: None  # takes a line for a person: a failure
    _drawn: int = 0
    _last: Hashable = field(default=None)

    def report(self, lines: Iterable[str]) -> None:
        """Print lines that stay, above what is drawn."""
        for line in lines:
            self.write(self._up())
            self._drawn = 0
            self.note(line)

    def _up(self) -> str:
        return f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""

    def show(self, text: str, key: Hashable, pause_s: float | None) -> None:
        """Show a text: in place always, else if its ``key`` is new; ``pause_s`` is ``None`` for the last."""
        text, at = for_terminal(text), f"{datetime.now().astimezone():%H:%M:%S}"
        if not self.in_place:
            if key != self._last:
                self.write(text if self.plain else f"{at}\n{text}\n")
            self._last = key
            return
        size, lines = shutil.get_terminal_size(), text.splitlines()
        if pause_s is not None:
            room = max(1, size.lines - 3)
            hidden = len(lines) - room
            lines = lines[:room] + ([f"... {format_count(hidden, 'more line')}"] if hidden > 0 else [])
            foot = f"{at}; again in {pause_s:.0f} s; Ctrl-C ends the watch, not the run"
            lines = [cut(line, size.columns) for line in (*lines, foot)]
        self.write(self._up() + "".join(f"{line}\n" for line in lines))
        self._drawn = len(lines)


def watch(
    folders: Sequence[Path], shown: Callable[[Sequence[RunStatus]], str], screen: Screen
) -> Sequence[RunStatus]:
    """Show runs at growing intervals until nothing is to come without a person; return their states then.

    Two people who watch the same run share the scheduler's answers: one asks, and the other takes an answer
    that is younger than its own pause.
    """
    policies: dict[Path, Policy] = {}
    for folder in folders:
        try:
            policies[folder] = load_spec(folder / SPEC_FILE).policy
        except (JobkitError, OSError):
            policies[folder] = Policy()
    failures: dict[Path, Failures] = {}
    for pause_s in pauses(FIRST_POLL_S, SLOWEST_POLL_S):
        runs = read_status(folders, max_age_s=pause_s)
        done = all(is_over(run, policies[run.folder]) for run in runs)
        for run in runs:
            screen.report(failures.setdefault(run.folder, Failures(run)).lines(run))
        screen.show(shown(runs), changes(runs), None if done else pause_s)
        if done:
            break
        time.sleep(pause_s)
    return runs


def changes(runs: Sequence[RunStatus]) -> Hashable:
    """Return a key that changes with the states, not with the clock or each batch."""
    return tuple(
        (
            tuple((p.state, p.queued.reason if p.queued else "", len(p.tries)) for p in run.points),
            tuple((job.submission.job.id, job.state) for job in run.jobs),
            (tuple(run.silent), run.unanswered is None, run.left is None),
        )
        for run in runs
    )


class Failures:
    """A line for each failed try, without those of the run ``before``."""

    def __init__(self, before: RunStatus | None = None) -> None:
        self._known: set[Hashable] = set()
        if before is not None:
            list(self.lines(before))

    def lines(self, run: RunStatus) -> Iterator[str]:
        """Yield a line for each point that has failed since: its outcome, and what led to it."""
        for point in run.points:
            key = (point.point.index, point.verdict.number, point.task)
            if point.failed and key not in self._known:
                self._known.add(key)
                evidence = point.why.removeprefix("exit file: ")
                yield f"{point.point.point_id:<20} {plain(f'{point.state}: {evidence}')}"


def is_over(run: RunStatus, policy: Policy, *, submits: bool = False) -> bool:
    """Return whether nothing of a run is to come; ``submits``: the caller submits what is missing itself."""
    if any(point.standing in MOVING for point in run.points):
        return False
    if any(map(runs_here, run.schedulers)) and is_held(run.folder):  # a search chooses its next point
        return False
    if _is_pending(run, *PLANNERS):
        return False
    if _is_pending(run, *SEARCHES) and not run.kind.finished(run.folder):
        return False
    awaited = run.kind.awaited(run.folder)
    again = any_retry_due(run, policy) or awaited not in {None, Role.FOLLOW if submits else None}
    return not (again and _is_pending(run, Role.FOLLOW))


def _is_pending(run: RunStatus, *roles: Role) -> bool:
    """Return whether the last job of some roles has not ended, and will begin without a person."""
    jobs = followers(run, *roles)
    if not jobs:
        return False
    submission, queued = jobs[-1]
    in_error = queued is not None and queued.state is State.ERROR
    return first_task(submission) not in run.ended and not in_error


class ProgressBars:
    """A bar a point on a terminal, a line a finished point elsewhere; on stderr. A failure has a line.

    ``points`` are awaited; ``before`` is the run before they were submitted again: its tries are old.
    """

    def __init__(self, run_dir: Path, points: Sequence[Point], before: RunStatus | None = None) -> None:
        self._run_dir = run_dir
        self._left = {point.index for point in points}
        self._last = max(self._left, default=0)
        self._counted = {*self._left}  # of shards all that the run has
        self._console, self._cell, self._below = Console(stderr=True), None, io.StringIO()
        # a notebook, whose kernel sets FORCE_COLOR
        if hasattr(getattr(sys.modules.get("IPython"), "get_ipython", object)(), "kernel"):
            self._console = Console(file=self._below, width=100, force_terminal=False, force_jupyter=False)
            show = importlib.import_module("IPython.display").display
            self._cell = show({"text/plain": ""}, raw=True, display_id=True)
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[int, TaskID] = {}
        self._noun = points[0].kind.noun if points else "point"
        self._all = self._bars.add_task(f"all {self._noun}s", total=len(points), unit=f"{self._noun}s")
        self._failures = Failures(before)
        tried = (point for point in before.points if point.tries) if before else ()
        self._old = {point.point.index: point.tries[0].number for point in tried}
        self._next = 0.0
        self._said: set[str] = set()

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._read(ask=False)
        self._bars.stop()

    def tick(self, _: Point) -> None:
        """Read the run folder, unless that was done a moment ago, and show it."""
        if time.monotonic() >= self._next:
            began = time.monotonic()
            self._read(ask=True)
            # Least time between two readings of the run folder, in times of the first reading
            self._next = time.monotonic() + 9 * (time.monotonic() - began)

    def _read(self, *, ask: bool) -> None:
        (run,) = read_status([self._run_dir], ask=ask)
        self.refresh(run)

    def refresh(self, run: RunStatus) -> None:
        """Show the state of a run."""
        planned = [point.point.index for point in run.points if point.point.kind.replanned]
        if planned:  # a plan may replace some, and add others
            self._left = {index for index in planned if index in self._left or index > self._last}
            self._counted, self._last = {*planned}, max(self._last, *planned)
        for point in run.points:
            if point.point.index in self._left:
                self._show(point, run)
        self._print(self._failures.lines(run))
        follow = {first_task(job) for job, _ in followers(run, Role.FOLLOW)}
        queued = ((task.scheduler, one) for task, one in run.queued.items() if task not in follow)
        reasons = sorted({SCHEDULERS[name].explain(one) for name, one in queued if one.reason})
        why = f", waiting: {'; '.join(reasons)}" if reasons and not self._tasks else ""
        if why and not self._console.is_terminal:  # whose bar shows it
            self._print_once(f"{format_count(len(self._left), self._noun)}{why}")
        for step in releases(run, run.points, shell_quote(str(run.folder))):
            self._print_once(f"next: {step.command}  {step.does}")
        ended, far = self._far(run)
        self._bars.update(self._all, completed=ended, total=len(self._counted), unit=f"{far}{why}")
        if self._cell:  # bars and lines below the cell of a notebook replace those before
            with self._console.capture() as bars:
                self._console.print(self._bars.get_renderable())
            text = bars.get() + self._below.getvalue()
            data = {"text/plain": text, "text/html": f"<pre>{html.escape(text)}</pre>"}
            self._cell.update(data, raw=True)

    def _print_once(self, line: str) -> None:
        if line not in self._said:
            self._print([line])
        self._said.add(line)

    def _show(self, point: PointStatus, run: RunStatus) -> None:
        index, tries = point.point.index, point.tries
        if tries and tries[0].number > self._old.get(index, 0):
            if index not in self._tasks:
                name = f"{printable(point.point.point_id):<20}"
                self._tasks[index] = self._bars.add_task(name, total=None, unit="batches")
            if progress := progress_of_try(tries[0]):
                done, total = progress.batches, progress.batches_total
                self._bars.update(self._tasks[index], completed=done, total=total)
        elif tries:
            return  # the try is from before
        if point.standing not in ENDINGS:
            return
        self._left.discard(index)
        if (task := self._tasks.get(index)) is not None:
            self._bars.stop_task(task)
            # with more points, bars of finished ones go, so that running ones stay in sight
            self._bars.update(task, visible=len(self._counted) <= 24)
        if not (self._console.is_terminal or self._cell):
            ended, far = self._far(run)
            self._print([f"{point.point.point_id:<20} {ended}/{len(self._counted)} {far}"])

    def _print(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)

    def _far(self, run: RunStatus) -> tuple[int, str]:
        """Return how many points have ended, and in words how many of them failed, and the time to go."""
        counted = self._counted - self._left
        ended = [one for one in run.points if one.point.index in counted and one.standing in ENDINGS]
        failed, left_s = sum(point.failed for point in ended), run.to_go_s
        words = f", {failed:,} failed" if failed else ""
        words += f", about {format_about(left_s)} to go" if left_s is not None and self._left else ""
        return len(ended), f"{self._noun}s{words}"


def until_planned(run_dir: Path) -> None:
    """Return when no job plans a run any more, or is to submit its points, or can begin to."""
    said = ""
    for pause_s in pauses(FIRST_POLL_S, SLOWEST_POLL_S):
        (run,) = read_status([run_dir])
        if run.planner is None or run.planner.state == PointStanding.STUCK:
            break
        reason = run.planner.queued.reason if run.planner.queued else ""
        if reason not in {"", said}:
            steps = (f"  next: {step.command}  {step.does}" for step in release_jobs(run))
            note("\n".join([job_line(run, run.planner), *steps]))
            said = reason
        time.sleep(pause_s)


def until_done(
    run_dir: Path,
    points: Sequence[Point],
    policy: Policy,
    before: RunStatus | None = None,
    waits: Iterable[float] | None = None,
    look: Callable[[], tuple[RunStatus, bool]] | None = None,
    *,
    submits: bool = False,
) -> RunStatus:
    """Return when nothing of a run is to come: no point, no trial of the largest batch, no retry.

    It also returns when ``waits``, the seconds between two looks, has an end.

    The queue is asked once a cycle, for all arrays together, at growing intervals; at the end the accounting
    is asked once, and the run folder keeps the answer. ``points`` and ``before`` as in `ProgressBars`,
    ``submits`` as in `is_over`. ``look`` returns, of a run on another machine, how it stands and whether
    nothing is to come.
    """
    with ProgressBars(run_dir, points, before) as progress:
        for pause_s in itertools.chain(waits or pauses(FIRST_POLL_S, SLOWEST_POLL_S), [0]):
            if look:
                run, over = look()
            else:
                (run,) = read_status([run_dir])
                over = is_over(run, policy, submits=submits)
            progress.refresh(run)
            if over:
                break
            time.sleep(pause_s)
    if over and not run.silent and not look:
        record_accounting(run)
    return run


def until_time(timeout_s: float | None, poll_s: float | None) -> Iterator[float]:
    """Yield the seconds between two looks: ``poll_s`` or growing ones, for ``timeout_s`` or without end."""
    end = time.monotonic() + timeout_s if timeout_s is not None else math.inf
    for pause_s in itertools.repeat(poll_s) if poll_s else pauses(FIRST_POLL_S, SLOWEST_POLL_S):
        left_s = end - time.monotonic()
        if left_s <= 0:
            return
        yield min(pause_s, left_s)
