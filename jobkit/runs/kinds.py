"""What differs between kinds of run: a sweep here, the others in extensions.

A room asks `kind_of` a run folder, or `kind_for` a point, and calls a hook; it never asks which kind it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jobkit.core.errors import JobkitError
from jobkit.core.extensions import extension_of, load
from jobkit.core.layout import POINTS_FILE
from jobkit.core.records import Outcome, Point
from jobkit.core.terminal import shell_path

if TYPE_CHECKING:
    from jobkit.runs.journal import Role
    from jobkit.runs.standing import RunStanding
    from jobkit.runs.tries import Try

NextStep = tuple[str, str]  # a command, and what it does; empty if the command says so


@dataclass(frozen=True, slots=True)
class Order:
    """What is known of a run whose points a job writes, before it has written them."""

    run_id: str = ""  # of the run, and the name of its jobs; empty if it cannot be read
    caveat: str = ""  # the label of a stand-in model; empty for a real one


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What was known of a point before it ran: its time, and the most RAM of a try; ``None`` if unknown."""

    seconds: float | None = None
    peak_bytes: int | None = None


class RunKind:
    """The hooks of a sweep, which every other kind of run inherits."""

    command = "sweep"  # the command that makes such a run
    look = "collect"  # the command that shows its results while it is under way
    noun = "point"  # what a person calls one of its points
    subject = "the run"  # what a job plans: the points are its parts
    untabled = ""  # why no table has its points; empty if tables have them
    again = "jobkit sweep SPEC --new"  # what runs all points once more, in another run
    # what makes fewer, larger points of the same work; empty if several points may share a job
    fewer_points = ""

    def order(self, folder: Path) -> Order | None:
        """Return the order of a run whose points a job writes; ``None`` for any other."""
        del folder
        return None

    def unplanned(self, folder: Path) -> Order | None:
        """Return the order of a run whose points are still to be written."""
        try:
            empty = (folder / POINTS_FILE).stat().st_size == 0
        except OSError:
            return None
        return self.order(folder) if empty else None

    def settle(self, folder: Path) -> str:
        """Do what the jobs of a run could not do; return the closing line of a run that is done."""
        del folder
        return ""

    def title(self, run: RunStanding) -> str:
        """Return what a person calls the run."""
        return run.name

    def status_lines(self, run: RunStanding) -> Iterator[str]:
        """Yield what `jobkit status` says of the run besides its points."""
        del run
        yield from ()

    def status_data(self, run: RunStanding) -> Mapping[str, object]:
        """Return the further keys of ``jobkit status --json``."""
        del run
        return {}

    def looks(self, run: RunStanding, typed: str) -> Iterator[NextStep]:
        """Yield what shows the results of a run; ``typed`` is its folder as a shell takes it."""
        from jobkit.runs.standing import PointState  # it stands above this module

        if any(point.standing is PointState.DONE for point in run.points):
            yield f"jobkit collect {typed}", "the table of what is done"

    def steps_after(self, folder: Path, outcomes: Collection[Outcome | None]) -> Iterator[NextStep]:
        """Yield what to type next of a run by its points' outcomes; nothing if its setting can be used."""
        if None in outcomes or Outcome.OK not in outcomes:
            yield f"jobkit status {shell_path(folder)}", "how it stands"

    def refusal(self, folder: Path, command: str) -> JobkitError | None:
        """Return why a command that reads measured settings has nothing to say of a run."""
        del folder, command
        return None

    def foreseen(self, folder: Path, point: Point) -> Foreseen:
        del folder, point
        return Foreseen()

    def finished(self, folder: Path) -> bool:
        """Return whether the job that adds points to a run, if it has one, has added the last."""
        from jobkit.runs.trials import finished  # here, for most runs have no such job

        return finished(folder)

    def awaited(self, folder: Path) -> Role | None:
        """Return the role of the job without whose end the run cannot go on; ``None`` if there is none."""
        del folder
        return None

    def places(self, folder: Path) -> tuple[str, ...]:
        """Return the folders that the points read besides text and model: a container must see them."""
        del folder
        return ()

    def is_home(self, home: str, folder: str) -> bool:
        """Return whether a try that ended well has brought home all that it must.

        ``home`` and ``folder``, of the point and of the try, are text: a Path costs as much as to open a
        file.
        """
        del home, folder
        return True

    def judged(self, home: str, tries: Iterable[Try]) -> Iterable[Try]:
        """Return the tries of a point, judged by more than their own files."""
        del home
        return tries


def kind_of(folder: Path) -> RunKind:
    return load(extension_of(folder), "run") or SWEEP


def kind_for(point: Point) -> RunKind:
    return load(point.kind.extension, "run") or SWEEP


def run_id_of(folder: Path, points: Collection[Point] = ()) -> str | None:
    """Return the id of a run: of its points, or of the order to write them; ``None`` if it has neither."""
    for point in points:
        return point.run_id
    order = kind_of(folder).order(folder)
    return order.run_id or None if order else None


SWEEP = RunKind()
