"""What differs between the kinds of work of a point: that of a sweep here, the others in extensions.

A step asks `work_of` and calls a hook; it never asks which kind it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from jobkit.core.extensions import load
from jobkit.core.files import digest
from jobkit.core.records import Outcome, Point
from jobkit.worker.failure import TryFailed
from jobkit.worker.paragraphs import read_paragraphs
from jobkit.worker.record import Task, TryState
from jobkit.worker.windows import Todo, Window
from jobkit.worker.workloads.base import Result, Row
from jobkit.worker.workloads.entities import EntitiesFile, Output


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """How Python is started for a process that works.

    Attributes
    ----------
    why
        Why the process cannot be forked; empty if it may be.
    arguments
        Of Python, before ``-m MODULE``; if there are any, this process cannot do the work itself.
    variables
        Of its environment.
    """

    why: str = ""
    arguments: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


class Recording:
    """What is recorded of the calls of a process besides their batches: nothing in a sweep."""

    def of_call(self) -> AbstractContextManager[None]:
        """Return what surrounds a call."""
        return nullcontext()

    def write(self, out: Path, try_number: int) -> None:
        """Write what was recorded into the folder of the try."""


class PointWork:
    """The hooks of the work of a sweep, on the text of the spec; every other kind of work inherits them."""

    def launcher(self, task: Task) -> Launcher:
        """Return how a process that works is started.

        Raises
        ------
        TryFailed
            If this Python lacks what the work needs.
        """
        del task
        return Launcher()

    def read(self, state: TryState) -> Todo:
        """Return what the try works through; keep its totals in the state.

        Raises
        ------
        TryFailed
            If it is not what was planned.
        """
        point = state.task.point
        paragraphs = read_paragraphs(check_text(state.task), point.text.path)
        chosen = paragraphs[:: point.every]
        state.items_total = len(chosen)
        state.characters_total = sum(map(len, chosen))
        return Todo(Window(0, paragraphs))

    def output(self, folder: Path) -> Output:
        """Return the file for the rows of a try, in the folder that is copied home."""
        return EntitiesFile(folder)

    def rows(self, result: Result, columns: Sequence[str]) -> Sequence[Row]:
        """Return the rows of a call that the output gets.

        Parameters
        ----------
        columns
            Of the rows of the workload.

        Raises
        ------
        TryFailed
            If they do not have these columns.
        """
        del columns
        return result.entities

    def recording(self, task: Task) -> Recording:
        """Return what records the calls of this process, whose workload is loaded."""
        del task
        return Recording()


def work_of(point: Point) -> PointWork:
    """Return the kind of work of a point."""
    return load(point.kind.extension, "work") or SWEEP


def check_text(task: Task) -> Path:
    """Return the path of the staged text; refuse one that was not planned."""
    text, path = task.point.text, task.inputs / "text"
    sha256, _ = digest(path)
    if sha256 != text.sha256:
        message = f"{text.path} is not the text that was planned: sha256 {sha256[:12]}"
        raise TryFailed(Outcome.STAGE_IN, f"{message}, not {text.sha256[:12]}")
    return path


SWEEP = PointWork()
