"""What a workload is: one class with a few short methods. Standard library only."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

from jobkit.core.errors import JobkitError
from jobkit.core.terminal import suggest
from jobkit.run.failure import describe_error

SHIPPED = {
    "stanza-ner": "jobkit.run.workloads.stanza_ner:StanzaNer",
    "count": "jobkit.run.workloads.count:Count",
}
"""The workloads that a spec may name by one word, and the classes behind them."""


class Entity(NamedTuple):
    """One row of ``entities.tsv``: offsets are into the paragraph as read."""

    paragraph: int
    text: str
    label: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one call came to; see `jobkit.core.records.Batch` for the fields' meaning.

    ``entities`` number their paragraphs from 0 *within the call*.
    """

    entities: tuple[Entity, ...]
    load: int
    sentences: int | None = None
    tokens: int | None = None
    longest_sentence_chars: int | None = None
    padded_chars: int | None = None


@dataclass(frozen=True, slots=True)
class Heavy:
    """A batch that can be done again: its load, and a function that does it."""

    load: int
    again: Callable[[], object]


class Workload(Protocol):
    """One kind of work, loaded once and called batch by batch.

    A workload may also have a static method ``lengths(paragraphs: Sequence[str], model: ModelRef |
    None) -> Sequence[Sequence[int]]``: for each paragraph the length of each of its items, in the
    units that the framework pads to. It is called on the login side, with no GPU, so that the load
    of every batch size is known before anything runs. Without it the batch size is taken for it.

    A workload may also have a method ``heaviest() -> Sequence[Heavy]``, the largest load first:
    the heaviest batches so far, to be done again while their need of GPU memory is measured; and
    a method ``attempted_load() -> int``: the load of what was begun last, where a call failed that of
    what did; 0 for none.

    Attributes
    ----------
    KNOBS
        The names that a spec may sweep, each a positive integer.
    NEEDS_MODEL
        Whether a model folder is staged for it.
    """

    KNOBS: ClassVar[tuple[str, ...]]
    NEEDS_MODEL: ClassVar[bool]

    def load(self, model: Path | None, device: str, params: Mapping[str, int], threads: int) -> None:
        """Get ready: import the framework, load the model, with no network."""
        ...

    def items_per_call(self) -> int:
        """Return how many paragraphs one call takes (a batch of ``batches.jsonl``)."""
        ...

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Do the work on these paragraphs."""
        ...

    def effective(self) -> Mapping[str, int | None]:
        """Return what every knob really came to so far, as seen inside the framework."""
        ...

    def versions(self) -> Mapping[str, str]:
        """Return the versions of what was imported to do the work."""
        ...


def knobs(name: str) -> tuple[str, ...] | None:
    """Return the knobs of a workload without importing a framework; ``None`` if unknowable."""
    return getattr(workload_class(name), "KNOBS", None) if name in SHIPPED else None


def workload_class(name: str, folder: str | None = None) -> type[Workload]:
    """Return the class that a spec's ``workload`` names.

    Parameters
    ----------
    name
        A word of `SHIPPED`, or ``package.module:Class``.
    folder
        The spec's: there a module of the user's own is looked for, after all that is installed.

    Raises
    ------
    JobkitError
        Where there is no such module or class, or the module fails as it is imported.
    """
    module_name, _, class_name = SHIPPED.get(name, name).partition(":")
    if folder and name not in SHIPPED and folder not in sys.path:
        sys.path.append(folder)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a module of the user's may raise whatever it likes
        raise _not_imported(name, module_name, folder, error) from error
    found: type[Workload] | None = getattr(module, class_name, None)
    if found is None:
        close = suggest(class_name, [one for one in vars(module) if not one.startswith("_")])
        message = f"workload {name!r}: {module.__file__} has no {class_name!r}{close}"
        raise JobkitError(message, hint=FORM)
    return found


FORM = f"name one of {', '.join(SHIPPED)}, or module:Class of a module next to the spec"


def _not_imported(name: str, module: str, folder: str | None, error: BaseException) -> JobkitError:
    absent = error.name if isinstance(error, ModuleNotFoundError) else None
    if absent and f"{module}.".startswith(f"{absent}."):
        where = f"neither installed nor in {folder}" if folder else "not installed"
        return JobkitError(f"workload {name!r}: the module {absent!r} is {where}", hint=FORM)
    message = f"workload {name!r} cannot be imported: {describe_error(error, folder)}"
    return JobkitError(message, hint=f"{sys.executable} -m pip install {absent}" if absent else FORM)
