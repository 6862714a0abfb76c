"""What differs between the kinds of work of a point; a step calls a hook and never asks for the kind."""

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
    why: str = ""  # why the process cannot be forked; empty if it can
    # of Python, before ``-m MODULE``; if there are any, this process cannot do the work itself
    arguments: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)  # environment of the process


class Recording:
    """What is recorded of the calls of a process besides their batches; nothing in a sweep."""

    def of_call(self) -> AbstractContextManager[None]:
        return nullcontext()

    def write(self, out: Path, try_number: int) -> None:
        """Write what was recorded into the folder of the try."""


class PointWork:
    """The hooks of the work of a sweep, on the text of the spec; the other kinds inherit them."""

    def launcher(self, task: Task) -> Launcher:
        del task
        return Launcher()

    def read(self, state: TryState) -> Todo:
        point = state.task.point
        paragraphs = read_paragraphs(check_text(state.task), point.text.path)
        chosen = paragraphs[:: point.every]
        state.items_total = len(chosen)
        state.characters_total = sum(map(len, chosen))
        return Todo(Window(0, paragraphs))

    def output(self, folder: Path) -> Output:
        """Return the file for the rows of a try, in the folder that is copied home."""
        return EntitiesFile(folder)

    def rows(self, result: Result, columns: Sequence[str], items: Sequence[int]) -> list[Row]:
        """Return the rows of a call for the output, with the numbers of its paragraphs, ``items``.

        ``columns`` are those of the workload's rows.
        """
        del columns
        return [(items[number], *values) for number, *values in result.entities]

    def recording(self, task: Task) -> Recording:
        del task
        return Recording()


def work_of(point: Point) -> PointWork:
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
