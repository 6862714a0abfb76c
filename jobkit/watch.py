"""Follow a run that is under way: progress for each point, and the wait for the last one."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from jobkit import journal, states
from jobkit.errors import JobkitError
from jobkit.find import finished
from jobkit.records import BATCHES_FILE, EXIT_FILE, Batch, Point, from_json, read_lines
from jobkit.run.paragraphs import read_paragraphs
from jobkit.schedulers.base import JobId, Queued, Scheduler
from jobkit.submit import Submitted

FIRST_POLL_S, SLOWEST_POLL_S, BACK_OFF = 2.0, 30.0, 1.3
MOST_BARS = 24
"""With more points than this a finished one's bar goes, so that the running ones stay in sight."""
GONE_GRACE_S = 20.0
"""A task may leave the queue before its results are seen here (NFS attribute cache; a Grid Engine
queue listing is empty for a moment now and then), so silence counts only after this long."""


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

    def look(self) -> None:
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
            tries = sorted((self._run_dir / "results" / point.point_id).glob("try-*"))
            if tries:
                self._show(point, tries[-1])
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


def until_done(
    run_dir: Path, points: Sequence[Point], taken: Sequence[Submitted], scheduler: Scheduler
) -> None:
    """Return when every point has an exit file at home or has been gone from the queue for long.

    Where a job follows that tries the largest batch, its last trial must be home as well. The queue
    is asked once a cycle, for all arrays together, more and more seldom; at the end the accounting
    is asked once, and kept in the run folder.
    """
    jobs = tuple(one.job for one in taken)
    followers = {one.job.id for one in taken if one.follows}
    pause_s, seen_at = FIRST_POLL_S, time.monotonic()
    with Progress(run_dir, points) as progress:
        while True:
            answer = states.ask_queue(scheduler, jobs, run_dir)
            left = progress.refresh(answer or ())
            if not left and (not followers or finished(run_dir)):
                break
            following = {one.job_id for one in answer or ()} & followers
            if answer is None or following or _points_of(answer, taken) & left:
                seen_at = time.monotonic()
            if time.monotonic() - seen_at > GONE_GRACE_S:
                break
            time.sleep(pause_s)
            pause_s = min(SLOWEST_POLL_S, pause_s * BACK_OFF)
    ask_accounting(run_dir, jobs, scheduler)


def ask_accounting(run_dir: Path, jobs: tuple[JobId, ...], scheduler: Scheduler) -> None:
    """Ask the accounting about the jobs of a run, once, and keep the answer."""
    first = next((event["at"] for event in journal.events(run_dir) if event["event"] == "submitting"), None)
    since = datetime.fromisoformat(first) if first else datetime.now().astimezone()
    states.ask_accounting(
        scheduler, jobs, since.astimezone().strftime("%Y-%m-%dT%H:%M:%S"), run_dir.name, run_dir
    )


def _points_of(answer: Sequence[Queued], taken: Sequence[Submitted]) -> set[int]:
    offsets = {one.job.id: one.array.offset for one in taken}
    return {one.task + offsets[one.job_id] for one in answer if one.job_id in offsets}
