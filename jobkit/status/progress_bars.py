"""Progress of a run that is under way: a bar a point, and the wait for the last point."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from jobkit.core.records import Point
from jobkit.core.terminal import printable
from jobkit.core.units import format_about, format_count, pauses
from jobkit.outcome.journal import Role
from jobkit.spec.policy import Policy
from jobkit.status.needs import progress_of_try
from jobkit.status.reader import read_standings
from jobkit.status.refresh import record_accounting
from jobkit.status.standing import ENDINGS, PointStanding, RunStanding, first_task, followers
from jobkit.status.watch import FIRST_POLL_S, SLOWEST_POLL_S, Failures, is_over

MOST_BARS = 24
"""Of more points than this a finished one's bar goes, so that the running ones stay in sight."""
PAUSES = 9
"""Between two readings of the run folder passes at least this many times what the first took."""


class ProgressBars:
    """A bar a point on a terminal, a line a finished point elsewhere; on stderr. A failure has a line.

    Parameters
    ----------
    run_dir, points
        The run, and those of its points that are awaited.
    before
        The run before these points were submitted again: its tries and its failures are old.
    """

    def __init__(self, run_dir: Path, points: Sequence[Point], before: RunStanding | None = None) -> None:
        self._run_dir = run_dir
        self._left = {point.index for point in points}
        self._total = len(points)
        self._console = Console(stderr=True)
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
        self._noun = points[0].noun if points else "point"
        self._all = self._bars.add_task(f"all {self._noun}s", total=len(points), unit=f"{self._noun}s")
        self._failures = Failures(before)
        tried = (point for point in before.points if point.tries) if before else ()
        self._old = {point.point.index: point.tries[0].files.number for point in tried}
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
            self._next = time.monotonic() + PAUSES * (time.monotonic() - began)

    def _read(self, *, ask: bool) -> None:
        (run,) = read_standings([self._run_dir], ask=ask)
        self.refresh(run)

    def refresh(self, run: RunStanding) -> set[int]:
        """Show the state of a run; return the points that have not ended yet."""
        for point in run.points:
            if point.point.index in self._left:
                self._show(point, run)
        self._print(self._failures.lines(run))
        follow = {first_task(job) for job, _ in followers(run, Role.FOLLOW)}
        queued = (entry for task, entry in run.queued.items() if task not in follow)
        reasons = sorted({entry.reason for entry in queued if entry.reason})
        why = f", waiting: {', '.join(reasons)}" if reasons and not self._tasks else ""
        self._print_reason(why)
        unit = f"{self._noun}s{self._to_go(run)}{why}"
        self._bars.update(self._all, completed=self._total - len(self._left), unit=unit)
        return set(self._left)

    def _print_reason(self, why: str) -> None:
        """Print why all points wait, each reason once: only a terminal shows it in the bar."""
        if why and why not in self._said and not self._console.is_terminal:
            self._print([f"{format_count(self._total, self._noun)}{why}"])
        self._said.add(why)

    def _show(self, point: PointStanding, run: RunStanding) -> None:
        index, tries = point.point.index, point.tries
        if tries and tries[0].files.number > self._old.get(index, 0):
            if index not in self._tasks:
                name = f"{printable(point.point.point_id):<20}"
                self._tasks[index] = self._bars.add_task(name, total=None, unit="batches")
            progress = progress_of_try(tries[0])
            if progress:
                self._bars.update(
                    self._tasks[index], completed=progress.batches, total=progress.batches_total
                )
        elif tries:
            return  # the try is from before
        if point.standing in ENDINGS:
            self._end(point, run)

    def _end(self, point: PointStanding, run: RunStanding) -> None:
        self._left.discard(point.point.index)
        if (task := self._tasks.get(point.point.index)) is not None:
            self._bars.stop_task(task)
            self._bars.update(task, visible=self._total <= MOST_BARS)
        if not self._console.is_terminal:
            ended = self._total - len(self._left)
            self._print([f"{point.point.point_id:<20} {ended}/{self._total} {self._noun}s{self._to_go(run)}"])

    def _print(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)

    def _to_go(self, run: RunStanding) -> str:
        left_s = run.to_go_s
        return f", about {format_about(left_s)} to go" if left_s is not None and self._left else ""


def until_planned(run_dir: Path) -> None:
    """Return when no job plans the corpus of a run any more, or is to submit its shards."""
    for pause_s in pauses(FIRST_POLL_S, SLOWEST_POLL_S):
        (run,) = read_standings([run_dir])
        if run.planner is None:
            break
        time.sleep(pause_s)


def until_done(
    run_dir: Path, points: Sequence[Point], policy: Policy, before: RunStanding | None = None
) -> None:
    """Return when nothing of a run is to come: no point, no trial of the largest batch, no retry.

    The queue is asked once a cycle, for all arrays together, at growing intervals; at the end the
    accounting is asked once, and the run folder keeps the answer.

    Parameters
    ----------
    run_dir, points, policy
        The run, those of its points that are awaited, and the policy of its spec.
    before
        As `ProgressBars` takes it.
    """
    with ProgressBars(run_dir, points, before) as progress:
        for pause_s in pauses(FIRST_POLL_S, SLOWEST_POLL_S):
            (run,) = read_standings([run_dir])
            progress.refresh(run)
            if is_over(run, policy):
                break
            time.sleep(pause_s)
    record_accounting(run)
