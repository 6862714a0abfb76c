"""Follow a run that is under way: progress for each point, and the wait for the last one."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from jobkit import states
from jobkit.choice import due
from jobkit.errors import JobkitError
from jobkit.find import finished
from jobkit.look import RunLook, Standing, followers, look
from jobkit.policy import Policy
from jobkit.record_files import read_lines
from jobkit.record_json import from_json
from jobkit.records import BATCHES_FILE, EXIT_FILE, RESULTS_FOLDER, TRY_PREFIX, Batch, Point
from jobkit.run.paragraphs import read_paragraphs
from jobkit.schedulers.base import Queued, State
from jobkit.schedulers.registry import by_name
from jobkit.submissions import Role, Submission, Task
from jobkit.tries import latest_number

FIRST_POLL_S, SLOWEST_POLL_S, BACK_OFF = 2.0, 30.0, 1.3
MOST_BARS = 24
"""With more points than this a finished one's bar goes, so that the running ones stay in sight."""


class Progress:
    """A bar a point on a terminal, a line a finished point elsewhere; on stderr.

    Parameters
    ----------
    run_dir, points
        The run.
    """

    def __init__(self, run_dir: Path, points: Sequence[Point]) -> None:
        self._run_dir = run_dir
        self._left = {point.index: point for point in points}
        self._total = len(points)
        self._console = Console(stderr=True)
        self._items = _items(points[0])
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[int, TaskID] = {}
        self._all = self._bars.add_task("all points", total=len(points), unit="points")
        self._start = time.monotonic()

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

    def refresh(self, queued: Sequence[Queued] = ()) -> set[int]:
        """Look at what is home and show it; return the points that are not yet finished.

        Parameters
        ----------
        queued
            What the queue says, to tell why a point has not begun.
        """
        for point in list(self._left.values()):
            home = self._run_dir / RESULTS_FOLDER / point.point_id
            if number := latest_number(str(home)):
                self._show(point, home / f"{TRY_PREFIX}{number}")
        waiting = {one.reason for one in queued if one.reason}
        why = f", waiting: {', '.join(sorted(waiting))}" if waiting and not self._tasks else ""
        self._bars.update(
            self._all, completed=self._total - len(self._left), unit=f"points{self._to_go()}{why}"
        )
        return set(self._left)

    def _show(self, point: Point, folder: Path) -> None:
        done = sum(batch.items for batch in _batches(folder / BATCHES_FILE))
        if point.index not in self._tasks:
            name = f"{point.point_id:<20}"
            self._tasks[point.index] = self._bars.add_task(name, total=self._items, unit="paragraphs")
        task = self._tasks[point.index]
        self._bars.update(task, completed=done)
        if (folder / EXIT_FILE).is_file():
            del self._left[point.index]
            self._bars.stop_task(task)
            self._bars.update(task, visible=self._total <= MOST_BARS)
            self._report(point)

    def _report(self, point: Point) -> None:
        if not self._console.is_terminal:
            finished = self._total - len(self._left)
            told = f"{point.point_id:<20} {finished}/{self._total} points{self._to_go()}"
            self._console.print(f"  {told}", highlight=False)

    def _to_go(self) -> str:
        finished = self._total - len(self._left)
        if not finished or not self._left:
            return ""
        left_s = (time.monotonic() - self._start) / finished * len(self._left)
        return f", about {_clock(left_s)} to go"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}:{rest:02d}"


def _items(point: Point) -> int | None:
    try:
        return len(read_paragraphs(Path(point.text.path)))
    except JobkitError:
        return None


def _batches(path: Path) -> list[Batch]:
    """Return the batches that are home; a half-written last line is left for the next look."""
    found = []
    if path.is_file():
        for number, line in read_lines(path):
            try:
                found.append(from_json(Batch, line, where=f"{path}:{number}"))
            except JobkitError:
                break
    return found


def until_done(run_dir: Path, points: Sequence[Point], policy: Policy) -> None:
    """Return when nothing of a run is to come: no point, no trial of the largest batch, no retry.

    The queue is asked once a cycle, for all arrays together, more and more seldom; at the end the
    accounting is asked once, and kept in the run folder.
    """
    pause_s = FIRST_POLL_S
    with Progress(run_dir, points) as progress:
        while True:
            (seen,) = look([run_dir])
            progress.refresh(tuple(seen.queued.values()))
            if over(seen, policy):
                break
            time.sleep(pause_s)
            pause_s = min(SLOWEST_POLL_S, pause_s * BACK_OFF)
    ask_accounting(seen)


def over(seen: RunLook, policy: Policy) -> bool:
    """Tell whether nothing of a run is to come unless a person acts."""
    moving = {Standing.RUNNING, Standing.WAITING, Standing.UNSETTLED}
    if any(one.standing in moving for one in seen.points):
        return False
    finds = [one for one, _ in followers(seen, Role.FIND)]
    if finds and not finished(seen.folder) and not _ended(seen, finds[-1]):
        return False
    follows = [one for one, _ in followers(seen, Role.FOLLOW)]
    return not (due(seen, policy) and follows and not _ended(seen, follows[-1]))


def _ended(seen: RunLook, one: Submission) -> bool:
    """Tell whether a job that follows has ended, or will not begin unless a person acts."""
    task = Task(one.scheduler, one.job.id, one.first)
    queued = seen.queued.get(task)
    return task in seen.ended or (queued is not None and queued.state is State.ERROR)


def ask_accounting(seen: RunLook) -> None:
    """Ask the accounting about all jobs of a run, once, and keep the answer."""
    for name in {one.scheduler for one in seen.submissions}:
        jobs = tuple(one.job for one in seen.submissions if one.scheduler == name)
        since = states.local_time(min(one.at for one in seen.submissions))
        states.ask_accounting(by_name(name), jobs, since, seen.points[0].point.run_id, seen.folder)
