"""Look at runs again and again until nothing is to come: in place on a terminal, else at each change."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.layout import SPEC_FILE
from jobkit.core.terminal import for_terminal
from jobkit.core.units import format_count
from jobkit.spec.policy import Policy
from jobkit.spec.sweep_spec import load_spec
from jobkit.status.progress_bars import BACK_OFF, FIRST_POLL_S, SLOWEST_POLL_S, Failures, over
from jobkit.status.summary import PointStatus, RunStatus, status
from jobkit.status.table import cut

STOP = "Ctrl-C ends the watch, not the run"

Statuses = Sequence[RunStatus]


@dataclass(slots=True)
class Screen:
    """Where a watch is shown.

    Attributes
    ----------
    write
        Takes text, as it is.
    in_place
        Whether each look is drawn over the one before: on a terminal.
    plain
        Whether nothing is added to what is shown: for programs.
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
        """Show a look: in place always, else where it differs from the one before.

        Parameters
        ----------
        key
            What a change is told by.
        pause_s
            Until the next look; ``None`` where there is none.
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


def watch(folders: Sequence[Path], shown: Callable[[Statuses], str], screen: Screen) -> Statuses:
    """Look again and again, ever more seldom, until nothing is to come; return the last look.

    It ends too where something is to come only if a person acts.
    Two who watch the same run share the scheduler's answers: one asks, and the other takes what is
    younger than its own pause.

    Parameters
    ----------
    folders
        Run folders.
    shown
        Returns a look as text.
    """
    pause_s = FIRST_POLL_S
    policies = {folder: _policy(folder) for folder in folders}
    failures: dict[Path, Failures] = {}
    while True:
        found = status(folders, max_age_s=pause_s)
        done = all(over(one.seen, policies[one.seen.folder]) for one in found)
        for run in found:
            screen.report(failures.setdefault(run.seen.folder, Failures(run.seen)).lines(run.seen))
        screen.show(shown(found), changes(found), None if done else pause_s)
        if done:
            return found
        time.sleep(pause_s)
        pause_s = min(SLOWEST_POLL_S, pause_s * BACK_OFF)


def changes(found: Statuses) -> Hashable:
    """Return what a change between two looks is told by: not the clock, and not each batch."""
    return tuple(
        (
            tuple(map(_change, run.points)),
            tuple((job.job.job.id, job.state) for job in run.jobs),
            (run.seen.silent, run.seen.unanswered is None, run.seen.left is None),
        )
        for run in found
    )


def _change(one: PointStatus) -> Hashable:
    return one.state, one.look.queued.reason if one.look.queued else "", len(one.look.tries)


def _policy(folder: Path) -> Policy:
    try:
        return load_spec(folder / SPEC_FILE).policy
    except (JobkitError, OSError):
        return Policy()
