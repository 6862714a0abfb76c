"""The Protocol of a workload, its rows as a file, and the shipped workloads. Standard library only."""

from __future__ import annotations

import csv
import importlib
import io
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from jobkit.core.errors import JobkitError
from jobkit.core.extras import added, missing_extra
from jobkit.core.files import write_atomically
from jobkit.core.frozen import frozen, keyed
from jobkit.core.knobs import BUDGET, FP16, FP32, RENAMED, RUN_KNOBS, Knob, Value, declared
from jobkit.core.layout import ENTITIES_FILE
from jobkit.core.records import Outcome
from jobkit.core.terminal import suggest
from jobkit.core.units import format_count
from jobkit.worker.failure import TryFailed, describe_error

SHIPPED = {
    "stanza-ner": "jobkit.worker.workloads.stanza_ner:StanzaNer",
    "count": "jobkit.worker.workloads.count:Count",
    "hf-token-classification": "jobkit.worker.workloads.extras.encoder_workloads:TokenClassification",
    "sentence-embedding": "jobkit.worker.workloads.extras.encoder_workloads:SentenceEmbedding",
    "spacy-ner": "jobkit.worker.workloads.extras.spacy_ner:SpacyNer",
}
"""The workloads that a spec may name by one word, and their classes."""
ENTRY_POINTS = "jobkit.workloads"
"""The group of entry points by which an installed package offers workloads under a name of one word."""

EXTRA_OF = {
    "stanza-ner": "stanza",
    "hf-token-classification": "hf",
    "sentence-embedding": "embedding",
    "spacy-ner": "spacy",
}
"""The extra that a shipped workload needs."""


CHARACTERS = "padded characters"
"""What a load counts unless the workload names another unit."""
ENTITY_COLUMNS = ("text", "label", "start", "end")
"""The columns of a workload that names none: its rows are its entities."""

DEFAULT_BATCH_SIZE = 32
"""Paragraphs per call if the sweep does not set it: also the default of Stanza, and of ``encode``."""
BY_LENGTHS = -1
"""The load of a result whose load follows from the lengths of the paragraphs."""

Row = tuple[Any, ...]
"""The number of a paragraph, and a value for each of the workload's columns. An `Entity` is one."""
Bad = tuple[int, Outcome, str]
"""The number of a paragraph that no process can take, the outcome of a try of it alone, and a message."""


class Entity(NamedTuple):
    """One row of ``entities.tsv``: offsets are into the paragraph as read."""

    paragraph: int
    text: str
    label: str
    start: int
    end: int


@keyed
class Result:
    """The result of one call; `jobkit.core.records.Batch` explains the fields.

    ``entities`` and ``rows`` number their paragraphs from 0 *within the call*.

    Attributes
    ----------
    entities
        What a sweep writes to ``entities.tsv``, and ``jobkit apply`` too if there are no rows.
    rows
        What ``jobkit apply`` writes of a workload with ``COLUMNS`` of its own; ``None`` of any other.
    vectors
        In place of rows, an array of fp32 or fp16 with one vector, or array of one shape, for each paragraph,
        which is the only column; or `Ragged` arrays. ``None`` of any other workload.
    load
        `BY_LENGTHS` only of a workload with a method ``load_of(paragraphs) -> int``, which jobkit calls
        once the clock has stopped.
    """

    entities: tuple[Entity, ...] = ()
    rows: Sequence[Row] | None = None
    vectors: Any = None
    load: int
    sentences: int | None = None
    tokens: int | None = None
    longest_sentence_chars: int | None = None
    padded_chars: int | None = None

    def trimmed(self) -> Result:
        """Return it without the blanks at the ends of entities, and without entities of blanks alone."""
        found = []
        for paragraph, text, label, start, _ in self.entities:
            first, kept = start + len(text) - len(text.lstrip()), text.strip()
            found += [Entity(paragraph, kept, label, first, first + len(kept))] if kept else []
        return replace(self, entities=tuple(found))


@frozen
class Ragged:
    """Arrays of any length: for each column those of consecutive paragraphs, end to end.

    Attributes
    ----------
    lengths
        By paragraph the length of each of its arrays; -1 of a paragraph that has none.
    columns
        Arrays of numpy, one for each column.
    """

    lengths: Any
    columns: tuple[Any, ...]

    @classmethod
    def of(cls, arrays: Iterable[Sequence[Any] | None], empty: Sequence[Any] = ()) -> Ragged:
        """Join the arrays of each paragraph, which are of one length, one for each column.

        ``empty`` has an empty array of the type of each column, if they are known.

        Raises
        ------
        ValueError
            If they are no such arrays, or their types differ.
        """
        import numpy as np  # whoever has arrays has it

        lengths, parts = list[int](), [empty] if empty else []
        for number, some in enumerate(arrays):
            if some is None:
                lengths.append(-1)
                continue
            given = [np.asarray(one) for one in some]
            large = [one.dtype.kind == "f" and one.itemsize > 4 for one in given]
            given = [one.astype("<f4") if wide else one for one, wide in zip(given, large, strict=True)]
            parts.append(given)
            sizes = {len(one) if one.ndim and one.dtype.kind in "fiu" else -2 for one in given}
            types = [[(one.dtype, one.shape[1:]) for one in each] for each in (given, parts[0])]
            if len(sizes) != 1 or -2 in sizes or types[0] != types[1]:
                names = [[f"{one.dtype} {one.shape}" for one in each] for each in (given, parts[0])]
                now, was = map(" and ".join, names)
                what = f"arrays of {now} for paragraph {number}, counted from 0"
                what += f", and {was} for the first" if number else ""
                raise ValueError(f"{what}; expected: numbers, a paragraph's of one length, all of one type")
            lengths += sizes
        joined = (np.concatenate(column) for column in zip(*parts, strict=True))
        return cls(np.array(lengths, np.int64), tuple(joined))

    def __len__(self) -> int:
        return len(self.lengths)

    def split(self) -> list[tuple[Any, ...] | None]:
        """Return the arrays of each paragraph."""
        sizes = self.lengths.tolist()
        places = zip(sizes, accumulate(max(size, 0) for size in sizes), strict=True)
        return [
            None if size < 0 else tuple(column[end - size : end] for column in self.columns)
            for size, end in places
        ]


def type_of(vectors: Any) -> str:  # noqa: ANN401 - an array of any framework
    """Return the type of vectors as they are written, ``fp32[384]``: fp64 becomes fp32.

    Of `Ragged` it is that of each column, with a star for any length: ``int64[*] fp32[*,128]``.
    """
    if isinstance(vectors, Ragged):
        return " ".join(type_of(column).replace("[", "[*,").replace(",]", "]") for column in vectors.columns)
    shape = getattr(vectors, "shape", None) or (len(vectors), *{len(one) for one in vectors})
    given = getattr(vectors, "dtype", "float32")
    name = str(getattr(given, "name", given)).removeprefix("torch.")
    kind = FP16 if name == "float16" else FP32 if name.startswith("float") else name
    return f"{kind}[{','.join(map(str, map(int, shape[1:])))}]"


def noun(types: str) -> str:
    """Return what arrays of this type are called."""
    return "array" if {*types} & {"*", ","} else "vector"


def vectors_of(result: Result, paragraphs: int) -> str:
    """Return the type of the vectors of a call, empty of rows; refuse what is not of its paragraphs."""
    numbers = {row[0] for row in chain(result.entities, result.rows or ())} - {*range(paragraphs)}
    wrong = [f"a row of paragraph {number}, counted from 0," for number in numbers]
    if result.vectors is not None and len(result.vectors) != paragraphs:
        wrong = [format_count(len(result.vectors), noun(type_of(result.vectors)))]
    if wrong:
        what = f"{wrong[0]} for {format_count(paragraphs, 'paragraph')}"
        raise TryFailed(Outcome.BUG, f"the workload returned {what}")
    return "" if result.vectors is None else type_of(result.vectors)


def same_type(vectors: str, before: str | None, place: str) -> str:
    """Return the type of vectors, empty of rows; refuse another one than before."""
    if before not in {None, vectors}:
        now, earlier = (f"{noun(one)}s of {one}" if one else "no vectors" for one in (vectors, before or ""))
        raise TryFailed(Outcome.BUG, f"{place}: the workload returned {now} here, {earlier} before")
    return vectors


@frozen
class Heavy:
    """A batch that can run again: its load, and a function that runs it."""

    load: int
    again: Callable[[], object]


class Workload(Protocol):
    """One kind of work, loaded once and called batch by batch.

    A workload may also have a static method ``lengths(paragraphs: Sequence[str], model: ModelRef |
    None) -> Sequence[Sequence[int]]``: for each paragraph the length of each of its items, in the
    units that the framework pads to. jobkit calls it on the login side, without a GPU, to compute the
    load of every batch size before anything runs. Without this method the load is the batch size.

    With ``lengths`` it may have ``LOAD_UNIT: ClassVar[str]``, what its load counts (``padded tokens``;
    without it ``padded characters``), and ``PADS: ClassVar[bool]``: ``False`` if the framework does not pad
    the items of a batch to the longest, so that the load is the sum of their lengths. A spec may then cap
    the load of every batch with the knob ``padded``: jobkit calls ``process`` for each batch of a call. A
    workload with ``padded`` in ``KNOBS`` cuts its calls, of ``paragraphs_per_call``, into batches itself.

    A workload may also have two methods for the measurement of memory. ``heaviest() ->
    Sequence[Heavy]`` returns the heaviest batches so far, the largest load first; jobkit runs them
    again to measure their need of GPU memory. ``attempted_load() -> int`` returns the load of the batch
    that began last, which after an error is the batch that failed; 0 if none began.

    A workload may also have a static method ``preload() -> None``, which imports all that the framework
    imports, starts no thread and opens no GPU. Then processes that work are forked from one that has called
    it, so that each of them is ready sooner. Without this method each try is a fresh process.

    A workload may also have a method ``change(params: Mapping[str, Value]) -> None``: with what is loaded it
    takes other values of the knobs that limit a batch, and another ``order``. Then ``jobkit tune`` measures
    several sizes in the same processes. ``effective`` and ``heaviest`` are about the calls since then.

    A workload may also have ``COLUMNS: ClassVar[tuple[str, ...]]``, the names of what ``jobkit apply`` writes
    of each row after document and paragraph. Without it they are `ENTITY_COLUMNS`, and the entities are the
    rows; with it each `Result` has ``rows``. Values are what JSON can hold; the columns ``start`` and ``end``
    are whole numbers, offsets into the paragraph as read, and come out as offsets into the document.

    A workload may also have ``WINDOW: ClassVar[Mapping[str, int]]``: by device the paragraphs of a call if
    ``padded`` caps its batches, its ``shortcuts`` are ``exact``, and the spec has no ``work_unit``. It says
    that one process may fill a GPU: ``jobkit tune`` then tries one worker first, with all CPUs of the job.

    With it a workload may have ``BUDGET: ClassVar[Mapping[str, int]]``: by device the ``padded`` of a spec
    that has neither ``padded`` nor a batch size.

    A workload may also have ``GC: ClassVar[bool]``: ``False`` if Python's garbage collector is to run as it
    does by itself, also during a call. Without it jobkit runs it between calls only.

    Attributes
    ----------
    KNOBS
        The knobs that a spec may sweep: names of whole numbers, or `jobkit.core.knobs.Knob`.
    NEEDS_MODEL
        Whether it needs a model folder on the node.
    """

    KNOBS: ClassVar[tuple[Knob | str, ...]]
    NEEDS_MODEL: ClassVar[bool]

    def load(self, model: Path | None, device: str, params: Mapping[str, Value], threads: int) -> None:
        """Import the framework and load the model, without network."""
        ...

    def items_per_call(self) -> int:
        """Return the number of paragraphs in one call (a batch of ``batches.jsonl``)."""
        ...

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Process these paragraphs."""
        ...

    def effective(self) -> Mapping[str, Value | None]:
        """Return the effective value of every knob so far, as seen inside the framework."""
        ...

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the imported frameworks."""
        ...


def text_order(columns: Sequence[str]) -> Callable[[Row], Any]:
    """Return the key that sorts rows by paragraph, and by offset if they have one."""
    places = [1 + columns.index(name) for name in ("start", "end") if name in columns]
    return lambda row: tuple(row[place] for place in (0, *places))


def as_tsv(entities: Iterable[Row]) -> str:
    """Return the entities, sorted by paragraph and offset, under a header line.

    The text is tab-separated; an entity with a newline or a tab is in double quotes, as Python's
    csv module writes and reads it. Paragraphs count from 0, offsets are into the paragraph as read.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, dialect="excel-tab", lineterminator="\n")
    writer.writerow(Entity._fields)
    rows: list[Row] = sorted(entities, key=text_order(ENTITY_COLUMNS))
    writer.writerows(rows)
    return stream.getvalue()


class Output:
    """The rows of a try as a file; of a text ``entities.tsv``, written at the end, also of a try that failed.

    What fails on a full disk raises an ``OSError``.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / ENTITIES_FILE
        self._entities: list[Row] = []

    def open(self, columns: Sequence[str]) -> None:
        """Begin the file, once the workload has named its columns; a try that fails early does not."""

    def encode(self, rows: Sequence[Row], first: int, places: Sequence[Any]) -> Sequence[Row]:
        """Return what `write` takes of the rows of a call, while the worker is at its next call."""
        return rows

    def write(self, rows: list[Row], first: int, places: Sequence[Any], bad: Sequence[Bad] = ()) -> None:
        """Take the rows of a `Window` that is done, with its fields ``first``, ``places`` and ``bad``."""
        self._entities += rows

    def close(self, left: Sequence[Row], *, failed: bool) -> None:
        """End the file, also of a try that failed; ``left`` are the rows of windows that are not done."""
        write_atomically(self._path, as_tsv([*self._entities, *left]))


def columns_of(workload: type[Workload] | Workload) -> tuple[str, ...]:
    """Return the columns of the rows of a workload."""
    columns: tuple[str, ...] = getattr(workload, "COLUMNS", ENTITY_COLUMNS)
    return columns


def load_unit(name: str) -> str:
    """Return what the load of a shipped workload counts; of any other ``padded characters``."""
    workload = workload_class(name) if name in SHIPPED else None
    return str(getattr(workload, "LOAD_UNIT", CHARACTERS))


def knobs(name: str) -> tuple[Knob, ...] | None:
    """Return the knobs of a shipped workload without importing its framework; ``None`` for any other."""
    return (*knobs_of(workload_class(name)), *RUN_KNOBS) if name in SHIPPED else None


def finds_lengths(workload: type[Workload]) -> bool:
    """Return whether a class finds lengths itself: a function without ``lengths`` next to it does not."""
    return callable(getattr(workload, "lengths", None)) and getattr(workload, "LENGTHS", workload) is not None


def cuts_itself(workload: type[Workload]) -> bool:
    """Return whether a class cuts its batches by ``padded`` itself."""
    return BUDGET.name in {RENAMED.get(knob.name, knob.name) for knob in declared(workload.KNOBS)}


def knobs_of(workload: type[Workload]) -> tuple[Knob, ...]:
    """Return the knobs of a class, with ``padded`` if it finds lengths."""
    own = tuple(replace(knob, name=RENAMED.get(knob.name, knob.name)) for knob in declared(workload.KNOBS))
    return own if cuts_itself(workload) or not finds_lengths(workload) else (*own, BUDGET)


def offered_by(knob: str) -> list[str]:
    """Return the shipped workloads that have a knob."""
    return [name for name in SHIPPED if knob in [own.name for own in knobs(name) or ()]]


def class_name(name: str) -> str:
    """Return ``package.module:Class`` of a shipped workload, of an entry point, or as it is named."""
    if name in SHIPPED or ":" in name:
        return SHIPPED.get(name, name)
    from importlib import metadata  # 8 ms, which a child with a shipped workload does without

    found = metadata.entry_points(group=ENTRY_POINTS, name=name)
    return next((entry.value for entry in found), name)


def offered() -> list[str]:
    """Return the names of one word that a spec may have here."""
    from importlib import metadata

    return [*SHIPPED, *metadata.entry_points(group=ENTRY_POINTS).names]


def workload_class(name: str, folder: str | None = None) -> type[Workload]:
    """Return the class that a spec's ``workload`` names.

    Parameters
    ----------
    name
        A word of `SHIPPED`, the name of an entry point, or ``package.module:Class``.
    folder
        The spec's folder, in which Python looks for a module of the user after installed packages.

    Raises
    ------
    JobkitError
        If there is no such module or class, or the module fails during its import.
    """
    module_name, _, member = class_name(name).partition(":")
    if folder and name not in SHIPPED and folder not in sys.path:
        sys.path.append(folder)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if absent and f"{module_name}.".startswith(f"{absent}."):
            where = f"neither installed nor in {folder}" if folder else "not installed"
            raise JobkitError(f"workload {name!r}: the module {absent!r} is {where}", hint=FORM) from error
        raise not_imported(name, folder, error, FORM) from error
    workload: type[Workload] | None = getattr(module, member, None)
    if workload is None:
        close = suggest(member, [name for name in vars(module) if not name.startswith("_")])
        message = f"workload {name!r}: {module.__file__} has no {member!r}{close}"
        raise JobkitError(message, hint=FORM)
    return workload


def missing_framework(name: str) -> JobkitError | None:
    """Return the error of a shipped workload whose framework this Python lacks; ``None`` if it has it."""
    return missing_extra(f"workload {name!r}", EXTRA_OF[name]) if name in EXTRA_OF else None


FORM = f"name one of {', '.join(SHIPPED)}, ./FILE.py:FUNCTION, or package.module:Class"


def not_imported(name: str, folder: str | None, error: BaseException, hint: str) -> JobkitError:
    """Return the error of a workload whose import failed; without an absent module it has ``hint``."""
    message = f"workload {name!r} cannot be imported: {describe_error(error, folder)}"
    absent = error.name if isinstance(error, ModuleNotFoundError) else None
    return JobkitError(message, hint=added(absent) if absent else hint)
