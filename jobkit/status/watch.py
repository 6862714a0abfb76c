"""Show runs again and again until nothing is to come: in place on a terminal, else at each change."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.layout import SPEC_FILE
from jobkit.core.terminal import for_terminal
from jobkit.core.units import format_count, pauses
from jobkit.outcome.journal import SEARCHES, Role
from jobkit.outcome.trials import finished, tunes
from jobkit.schedulers.types import State
from jobkit.spec.policy import Policy
from jobkit.spec.sweep_spec import load_spec
from jobkit.status.reader import read_standings
from jobkit.status.retry import due
from jobkit.status.standing import MOVING, PointStanding, RunStanding, Standing, first_task, followers
from jobkit.status.table import cut, plain

FIRST_POLL_S, SLOWEST_POLL_S = 2.0, 30.0
STOP = "Ctrl-C ends the watch, not the run"


@dataclass(slots=True)
class Screen:
    """Where a watch is shown.

    Attributes
    ----------
    write
        Takes text, as it is.
    in_place
        Whether each text is drawn over the one before: on a terminal.
    plain
        Whether nothing is added to the text: for programs.
    note
        Takes a line for a person: a failure.
    """

    write: Callable[[str], None]
    in_place: bool
    plain: bool = False
    note: Callable[[str], None] = lambda _: None
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
        """Show a text: in place always, else if it differs from the one before.

        Parameters
        ----------
        key
            Two texts differ if their keys do.
        pause_s
            Until the next text; ``None`` if it is the last.
        """
        text = for_terminal(text)
        if self.in_place:
            self._draw(text, pause_s)
        elif key != self._last:
            at = "" if self.plain else f"{datetime.now().astimezone():%H:%M:%S}\n"
            self.write(f"{at}{text}" if self.plain else f"{at}{text}\n")
        self._last = key

    def _draw(self, text: str, pause_s: float | None) -> None:
        size = shutil.get_terminal_size()
        lines = text.splitlines()
        if pause_s is not None:
            foot = f"{datetime.now().astimezone():%H:%M:%S}; again in {pause_s:.0f} s; {STOP}"
            room = max(1, size.lines - 3)
            hidden = len(lines) - room
            lines = lines[:room] + ([f"... {format_count(hidden, 'more line')}"] if hidden > 0 else [])
            lines = [cut(line, size.columns) for line in (*lines, foot)]
        self.write(self._up() + "".join(f"{line}\n" for line in lines))
        self._drawn = len(lines)


def watch(
    folders: Sequence[Path], shown: Callable[[Sequence[RunStanding]], str], screen: Screen
) -> Sequence[RunStanding]:
    """Show runs at growing intervals until nothing is to come; return their states at the end.

    It ends too if something is to come only after a person acts.
    Two people who watch the same run share the scheduler's answers: one asks, and the other takes an
    answer that is younger than its own pause.

    Parameters
    ----------
    folders
        Run folders.
    shown
        Returns runs as text.
    """
    policies = {folder: _policy(folder) for folder in folders}
    failures: dict[Path, Failures] = {}
    for pause_s in pauses(FIRST_POLL_S, SLOWEST_POLL_S):
        runs = read_standings(folders, max_age_s=pause_s)
        done = all(is_over(run, policies[run.folder]) for run in runs)
        for run in runs:
            screen.report(failures.setdefault(run.folder, Failures(run)).lines(run))
        screen.show(shown(runs), changes(runs), None if done else pause_s)
        if done:
            break
        time.sleep(pause_s)
    return runs


def changes(runs: Sequence[RunStanding]) -> Hashable:
    """Return a key that changes with the standings, not with the clock or each batch."""
    return tuple(
        (
            tuple(map(_change, run.points)),
            tuple((job.submission.job.id, job.state) for job in run.jobs),
            (run.silent, run.unanswered is None, run.left is None),
        )
        for run in runs
    )


def _change(point: PointStanding) -> Hashable:
    return point.state, point.queued.reason if point.queued else "", len(point.tries)


def _policy(folder: Path) -> Policy:
    try:
        return load_spec(folder / SPEC_FILE).policy
    except (JobkitError, OSError):
        return Policy()


class Failures:
    """Lines about failed tries, one for each.

    Parameters
    ----------
    before
        The run before: what had failed by then gets no line.
    """

    def __init__(self, before: RunStanding | None = None) -> None:
        self._known: set[Hashable] = set()
        if before is not None:
            list(self.lines(before))

    def lines(self, run: RunStanding) -> Iterator[str]:
        """Yield a line for each point that has failed since: its outcome, and what led to it."""
        for point in run.points:
            key = (point.point.index, point.counts.files.number, point.task)
            if point.standing is Standing.FAILED and not point.cancelled and key not in self._known:
                self._known.add(key)
                why = point.why.removeprefix("exit file: ")
                yield f"{point.point.point_id:<20} {plain(f'{point.state}: {why}')}"


def is_over(run: RunStanding, policy: Policy) -> bool:
    """Return whether nothing of a run is to come unless a person acts."""
    if any(point.standing in MOVING for point in run.points):
        return False
    if _is_pending(run, Role.PLAN):
        return False
    if _is_pending(run, *SEARCHES) and not finished(run.folder):
        return False
    again = due(run, policy) or tunes(run.folder)
    return not (again and _is_pending(run, Role.FOLLOW))


def _is_pending(run: RunStanding, *roles: Role) -> bool:
    """Return whether the last job of some roles has not ended, and will begin without a person."""
    jobs = followers(run, *roles)
    if not jobs:
        return False
    submission, queued = jobs[-1]
    in_error = queued is not None and queued.state is State.ERROR
    return first_task(submission) not in run.ended and not in_error
