"""Follow a run that is under way: progress for each point, and the wait for the last one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from jobkit.core.errors import JobkitError
from jobkit.core.layout import EXIT_FILE, TRY_PREFIX, point_folder, read_batches
from jobkit.core.records import Outcome, Point
from jobkit.core.terminal import printable
from jobkit.core.units import format_about
from jobkit.outcome.journal import Role, Submission, Task
from jobkit.outcome.timing import task_s
from jobkit.outcome.trials import finished
from jobkit.outcome.tries import latest_number, read_try
from jobkit.outcome.verdict import TryFiles
from jobkit.run.paragraphs import read_paragraphs
from jobkit.schedulers.registry import by_name
from jobkit.schedulers.types import State
from jobkit.spec.policy import Policy
from jobkit.status import queue
from jobkit.status.progress import DONE, RUNNING, WAITING, Pace, progress_of, setting_of, to_go
from jobkit.status.retry import due
from jobkit.status.standing import RunStanding, Standing, followers, read_standings, reason, state_of
from jobkit.status.summary import RunStatus, status_of
from jobkit.status.table import plain

FIRST_POLL_S, SLOWEST_POLL_S, BACK_OFF = 2.0, 30.0, 1.3
MOST_BARS = 24
"""With more points than this a finished one's bar goes, so that the running ones stay in sight."""


class Progress:
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
        self._left = {point.index: point for point in points}
        self._total = len(points)
        self._console = Console(stderr=True)
        self._items = _items(points[0])
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
        self._all = self._bars.add_task("all points", total=len(points), unit="points")
        self._paces = {point.index: _pace(point, WAITING) for point in points}
        self._failures = Failures(before)
        tried = (point for point in before.points if point.tries) if before else ()
        self._old = {point.point.index: point.tries[0].files.number for point in tried}
        self._turn = time.monotonic()

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.refresh()
        self._bars.stop()

    def tick(self, _: Point) -> None:
        """Look at what is home and show it."""
        self.refresh()

    def refresh(self, status: RunStatus | None = None) -> set[int]:
        """Look at what is home and show it; return the points that are not yet finished.

        Parameters
        ----------
        status
            How the run stands on its cluster; ``None`` on this machine, where one point runs at a time.
        """
        before = len(self._left)
        for point in list(self._left.values()):
            home = Path(point_folder(self._run_dir, point.point_id))
            number = latest_number(str(home))
            if number > self._old.get(point.index, 0):
                self._show(point, home, number, status)
        if status is not None:
            self._say(self._failures.lines(status.seen))
        elif len(self._left) < before:
            self._say(self._failures.lines(*read_standings([self._run_dir], ask=False)))
        why = "" if self._tasks or status is None else _reasons(status)
        unit = f"points{self._to_go(status)}{why}"
        self._bars.update(self._all, completed=self._total - len(self._left), unit=unit)
        return set(self._left)

    def _show(self, point: Point, home: Path, number: int, status: RunStatus | None) -> None:
        folder = home / f"{TRY_PREFIX}{number}"
        batches = read_batches(str(home), number, [])
        if point.index not in self._tasks:
            name = f"{printable(point.point_id):<20}"
            self._tasks[point.index] = self._bars.add_task(name, total=self._items, unit="paragraphs")
        task = self._tasks[point.index]
        self._bars.update(task, completed=sum(batch.items for batch in batches))
        if not (folder / EXIT_FILE).is_file():
            far = progress_of(batches)
            left_s, elapsed_s = far.left_s if far else None, time.monotonic() - self._turn
            self._paces[point.index] = _pace(point, RUNNING, elapsed_s, left_s)
            return
        del self._left[point.index]
        self._bars.stop_task(task)
        self._bars.update(task, visible=self._total <= MOST_BARS)
        self._paces[point.index] = self._took(point, folder, read_try(str(home), number, point))
        if not self._console.is_terminal:
            finished = self._total - len(self._left)
            self._say([f"{point.point_id:<20} {finished}/{self._total} points{self._to_go(status)}"])

    def _took(self, point: Point, folder: Path, files: TryFiles) -> Pace:
        """Return how long a point took, from the end of the one before; of a failed one nothing."""
        ran_s, self._turn = time.monotonic() - self._turn, time.monotonic()
        well = files.record is not None and files.record.outcome is Outcome.OK
        return _pace(point, DONE if well else "", max(ran_s, task_s(files, folder) or 0.0))

    def _say(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)

    def _to_go(self, status: RunStatus | None) -> str:
        left_s = to_go([*self._paces.values()], at_a_time=1) if status is None else status.to_go_s
        return f", about {format_about(left_s)} to go" if left_s is not None and self._left else ""


def _pace(point: Point, standing: str, elapsed_s: float | None = None, left_s: float | None = None) -> Pace:
    setting = setting_of(point.params)
    return Pace(setting=setting, standing=standing, elapsed_s=elapsed_s, left_s=left_s)


def _reasons(status: RunStatus) -> str:
    """Return why points wait, in the scheduler's words."""
    reasons = sorted({task.reason for task in status.seen.queued.values() if task.reason})
    return f", waiting: {', '.join(reasons)}" if reasons else ""


class Failures:
    """Which failed tries have had their line.

    Parameters
    ----------
    seen
        The run before: what had failed by then gets no line.
    """

    def __init__(self, seen: RunStanding | None = None) -> None:
        self._known: set[tuple[int, int, Task | None]] = set()
        if seen is not None:
            list(self.lines(seen))

    def lines(self, seen: RunStanding) -> Iterator[str]:
        """Yield a line for each point that has failed since: its outcome, and what led to it."""
        now = datetime.now(UTC)
        for point in seen.points:
            key = (point.point.index, point.counts.files.number, point.task)
            if point.standing is Standing.FAILED and not point.cancelled and key not in self._known:
                self._known.add(key)
                words = reason(point, seen.silent, now).removeprefix("exit file: ")
                yield f"{point.point.point_id:<20} {plain(f'{state_of(point)}: {words}')}"


def _items(point: Point) -> int | None:
    try:
        return len(read_paragraphs(Path(point.text.path)))
    except JobkitError:
        return None


def until_done(
    run_dir: Path, points: Sequence[Point], policy: Policy, before: RunStanding | None = None
) -> None:
    """Return when nothing of a run is to come: no point, no trial of the largest batch, no retry.

    The queue is asked once a cycle, for all arrays together, more and more seldom; at the end the
    accounting is asked once, and kept in the run folder.

    Parameters
    ----------
    run_dir, points, policy
        The run, those of its points that are awaited, and the policy of its spec.
    before
        As `Progress` takes it.
    """
    pause_s = FIRST_POLL_S
    with Progress(run_dir, points, before) as progress:
        while True:
            (seen,) = read_standings([run_dir])
            progress.refresh(status_of(seen, datetime.now(UTC)))
            if over(seen, policy):
                break
            time.sleep(pause_s)
            pause_s = min(SLOWEST_POLL_S, pause_s * BACK_OFF)
    ask_accounting(seen)


def over(seen: RunStanding, policy: Policy) -> bool:
    """Tell whether nothing of a run is to come unless a person acts."""
    moving = {Standing.RUNNING, Standing.WAITING, Standing.UNSETTLED}
    if any(point.standing in moving for point in seen.points):
        return False
    finds = [one for one, _ in followers(seen, Role.FIND)]
    if finds and not finished(seen.folder) and not _ended(seen, finds[-1]):
        return False
    follows = [one for one, _ in followers(seen, Role.FOLLOW)]
    return not (due(seen, policy) and follows and not _ended(seen, follows[-1]))


def _ended(seen: RunStanding, one: Submission) -> bool:
    """Tell whether a job that follows has ended, or will not begin unless a person acts."""
    task = Task(one.scheduler, one.job.id, one.first)
    queued = seen.queued.get(task)
    return task in seen.ended or (queued is not None and queued.state is State.ERROR)


def ask_accounting(seen: RunStanding) -> None:
    """Ask the accounting about all jobs of a run, once, and keep the answer."""
    for name in {submission.scheduler for submission in seen.submissions}:
        jobs = tuple(submission.job for submission in seen.submissions if submission.scheduler == name)
        since = queue.local_time(min(submission.at for submission in seen.submissions))
        queue.ask_accounting(by_name(name), jobs, since, seen.points[0].point.run_id, seen.folder)
