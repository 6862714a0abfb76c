"""Check a workload of the user's own: the members of its class and the answers of its methods.

Standard library only. An error in the class is the user's, so the message has its file and line.
"""

from __future__ import annotations

import inspect
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

from jobkit.core.errors import JobkitError
from jobkit.core.knobs import BATCH_SIZE, ORDER, PADDED, SORTED, Knob, Value, numbers
from jobkit.core.paragraphs import GIVEN
from jobkit.core.records import MODEL_OPTIONS, ModelRef
from jobkit.core.terminal import Say
from jobkit.worker.failure import describe_error
from jobkit.worker.paragraphs import cut_by_budget, load_of, sorted_places
from jobkit.worker.workloads.base import (
    BY_LENGTHS,
    CHARACTERS,
    SHIPPED,
    Entity,
    Ragged,
    Result,
    Workload,
    class_name,
    columns_of,
    cuts_itself,
    finds_lengths,
    knobs_of,
    same_type,
    vectors_of,
    workload_class,
)
from jobkit.worker.workloads.function import HINT as FUNCTION_HINT
from jobkit.worker.workloads.function import FunctionWorkload, short
from jobkit.worker.workloads.in_file import class_in_file
from jobkit.worker.workloads.user_file import names_file, source_path

HINT = "python -m pydoc jobkit.worker.workloads.base.Workload lists what its class must have and return"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_result(value: object) -> bool:
    if not isinstance(value, Result) or not _is_count(value.load):
        return False
    entities: object = value.entities
    rows: object = () if value.rows is None else value.rows
    sized = value.vectors is None or hasattr(value.vectors, "__len__")
    if not sized or not isinstance(entities, tuple) or not isinstance(rows, tuple):
        return False
    first = [isinstance(row, tuple) and bool(row) and _is_count(row[0]) for row in rows[:1]]
    return all(first) and all(isinstance(row, Entity) for row in entities[:1])  # to check all would take time


ANSWERS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "items_per_call": ("a whole number above 0", lambda value: _is_count(value) and value > 0),
    "process": (
        "a jobkit.worker.workloads.base.Result: load a whole number, a tuple of Entity or rows, or an array",
        _is_result,
    ),
    "effective": (
        "a mapping of knobs to whole numbers, words or None",
        lambda value: (
            isinstance(value, Mapping)
            and all(one is None or isinstance(one, str) or _is_count(one) for one in value.values())
        ),
    ),
    "versions": (
        "a mapping of names to texts",
        lambda value: isinstance(value, Mapping) and all(isinstance(v, str) for v in value.values()),
    ),
    "attempted_load": ("a whole number", _is_count),
}
"""What these methods must return, in words and as a check."""


class OpenedWorkload:
    """A workload, which is called once for each batch if that has a budget and it cuts no batches itself.

    The answers of a class of the user's have to be those of `ANSWERS`.
    """

    def __init__(self, name: str, workload: Workload) -> None:
        self._name, kind = name, type(workload)
        self._checks = name not in SHIPPED and not isinstance(workload, FunctionWorkload)
        self._cuts = finds_lengths(kind) and not cuts_itself(kind)
        self._workload: Any = workload
        self._cap = 0  # of the load; 0 for none
        self._by_length = False
        self._model: ModelRef | None = None

    def __getattr__(self, method: str) -> Any:  # noqa: ANN401 - whatever the workload has
        call = getattr(self._workload, method)
        if not self._checks or method not in ANSWERS:
            return call
        expected, fits = ANSWERS[method]

        def checked(*arguments: object) -> object:
            if not fits(answer := call(*arguments)):
                what = f"returned {answer!r}"
                raise _wrong_answer(self._name, type(self._workload), method, what, expected)
            return answer

        return checked

    def load(self, model: Path | None, device: str, params: Mapping[str, Value], threads: int) -> None:
        """Load the workload; with a cap its batch size is the paragraphs of a call."""
        if model:
            options: Any = {key: params[key] for key in MODEL_OPTIONS if key in params}
            unknown: Any = {"name": "", "size": "", "fingerprint": "", "stand_in": False, "size_bytes": 0}
            self._model = ModelRef(path=str(model), **unknown, **options)
        self._workload.load(model, device, self._capped(params), threads)

    @property
    def change(self) -> Callable[[Mapping[str, Value]], None] | None:
        """Gives it other sizes, with what is loaded; ``None`` if it cannot take them."""
        own = getattr(self._workload, "change", None)
        return own and (lambda params: own(self._capped(params)))

    def _capped(self, params: Mapping[str, Value]) -> dict[str, Value]:
        values = dict(params)
        self._by_length = values.get(ORDER) == SORTED
        self._cap = (numbers(params).get(PADDED) or 0) if self._cuts else 0
        if self._cap:
            values[BATCH_SIZE] = values["paragraphs_per_call"]
        return values

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Process these paragraphs, batch by batch; the load is that of the heaviest batch."""
        call: Callable[[Sequence[str]], Result] = self.__getattr__("process")
        if not self._cap or getattr(self._workload, "tokenize_ahead", None):
            return call(paragraphs)
        pads = getattr(self._workload, "PADS", True)
        kind, answer = type(self._workload), self._workload.lengths(paragraphs, self._model)
        rows = _checked_lengths(self._name, kind, answer, len(paragraphs))
        places: Sequence[int] = range(len(rows))
        if self._by_length:
            places = sorted_places([max(row, default=0) for row in rows], None)
        sizes = cut_by_budget((load_of(rows[at], pads=pads) for at in places), self._cap, pads=pads)
        left, parts, vectors = iter(places), [], None
        for size in sizes:
            batch = [*islice(left, size)]
            result = call([paragraphs[at] for at in batch])
            if result.load == BY_LENGTHS:
                items = [item for at in batch for item in rows[at]]
                result = replace(result, load=load_of(items, pads=pads))
            vectors = same_type(vectors_of(result, size), vectors, f"paragraph {batch[0] + 1:,} of it")
            parts.append((batch, result))
        return _merged(parts)


def _merged(parts: Sequence[tuple[Sequence[int], Result]]) -> Result:
    """Return the result of a call from those of its batches, each with the places of its paragraphs."""
    results = [result for _, result in parts]

    def total(name: str) -> int | None:
        counts = [getattr(result, name) for result in results]
        return None if None in counts else sum(counts)

    def placed(kind: str) -> list[Any]:
        rows = [(at[row[0]], *row[1:]) for at, result in parts for row in getattr(result, kind) or ()]
        return sorted(rows, key=itemgetter(0))

    vectors: Any = None
    if not any(result.vectors is None for result in results):
        import numpy as np  # a workload with vectors has it

        order = np.argsort([place for at, _ in parts for place in at])
        if isinstance(results[0].vectors, Ragged):
            arrays = [one for result in results for one in result.vectors.split()]
            vectors = Ragged.of(arrays[at] for at in order)
        else:
            vectors = np.concatenate([np.asarray(result.vectors) for result in results])[order]
    return Result(
        entities=tuple(map(Entity._make, placed("entities"))),
        rows=None if all(result.rows is None for result in results) else tuple(placed("rows")),
        vectors=vectors,
        load=max(result.load for result in results),
        sentences=total("sentences"),
        tokens=total("tokens"),
        longest_sentence_chars=max(result.longest_sentence_chars or 0 for result in results) or None,
        padded_chars=total("padded_chars"),
    )


def open_workload(
    name: str, folder: str | None, staged: str | None = None, queries: str | None = None
) -> Workload:
    return cast("Workload", OpenedWorkload(name, checked_class(name, folder, staged, queries=queries)()))


def checked_class(
    name: str,
    folder: str | None,
    staged: str | None = None,
    *,
    parsed: bool = False,
    queries: str | None = None,
) -> type[Workload]:
    """Return the class that a spec's ``workload`` names, after checking its members.

    ``name``, ``folder``: as `jobkit.worker.workloads.base.workload_class` takes them; or a file and a
        function of it.
    ``staged``: the folder with the files of the run, from which a file is read.
    ``parsed``, ``queries``: as for `jobkit.worker.workloads.in_file.class_in_file`.
    """
    if names_file(name):
        workload = class_in_file(name, folder, staged, parsed=parsed, queries=queries)
    else:
        workload = workload_class(name, folder)
    if not isinstance(workload, type):
        raise JobkitError(f"workload {name!r}: {workload!r} is not a class", hint=HINT)
    methods = ("load", "items_per_call", "process", "effective", "versions")
    lacks = [f"no method {method}" for method in methods if not callable(getattr(workload, method, None))]
    knobs = getattr(workload, "KNOBS", None)
    if not isinstance(knobs, tuple | list) or not all(isinstance(knob, str | Knob) for knob in knobs):
        lacks.append("no KNOBS, a tuple of the names that a sweep may vary")
    if not isinstance(getattr(workload, "NEEDS_MODEL", None), bool):
        lacks.append("no NEEDS_MODEL, True or False")
    columns: object = columns_of(workload)
    if not (
        isinstance(columns, tuple)
        and all(isinstance(name, str) and name for name in columns)
        and 0 < len(columns) == len({*columns} - {*GIVEN})
    ):
        lacks.append("COLUMNS that are not a tuple of different names besides document and paragraph")
    if lacks:
        raise JobkitError(f"workload {name!r} ({_location(workload)}) has {'; '.join(lacks)}", hint=HINT)
    return workload


def code_folder(name: str, folder: str | None) -> str | None:
    """Return the folder of the code of a user's own workload; ``None`` for a shipped one."""
    if name in SHIPPED:
        return None
    if names_file(name):
        return str(Path(source_path(name, folder)).parent)
    file = getattr(sys.modules.get(class_name(name).partition(":")[0]), "__file__", None)
    return str(Path(file).parent) if file else folder


def traits(
    name: str,
    folder: str | None,
    staged: str | None = None,
    parsed: bool = False,  # noqa: FBT001, FBT002 - JSON names no argument
    *,
    say: Say,
) -> tuple[
    bool,
    bool,
    list[dict[str, Any]],
    tuple[str, ...],
    str,
    bool,
    bool,
    Mapping[str, int],
    Mapping[str, int],
    bool,
]:
    """Return the fields of `jobkit.planning.workload_traits.Traits`."""
    workload = checked_class(name, folder, staged, parsed=parsed)
    knobs = [asdict(knob) for knob in knobs_of(workload)]
    has_lengths = callable(getattr(workload, "lengths", None))
    unit, pads = str(getattr(workload, "LOAD_UNIT", CHARACTERS)), bool(getattr(workload, "PADS", True))
    says = pads and finds_lengths(workload)
    windows, budgets = (dict(getattr(workload, name, {})) for name in ("WINDOW", "BUDGET"))
    found = workload.NEEDS_MODEL, has_lengths, knobs, columns_of(workload), unit, pads, says, windows, budgets
    return *found, bool(getattr(workload, "PAIRS", False))


def lengths(
    name: str,
    folder: str | None,
    paragraphs: Sequence[str],
    model: Mapping[str, Any] | None,
    queries: str | None = None,
    *,
    say: Say,
) -> list[list[int]]:
    """Return the lengths of a text's items, computed by a workload.

    ``name``, ``folder``: as for `checked_class`.
    ``paragraphs``: of the text.
    ``model``: the fields of a `ModelRef`.
    ``queries``: as for `checked_class`.
    """
    workload: Any = checked_class(name, folder, queries=queries)
    try:
        answer = workload.lengths(paragraphs, ModelRef(**model) if model else None)
    except Exception as error:  # a user's workload or a framework may raise anything
        reason = describe_error(error, code_folder(name, folder))
        message = f"workload {name!r}: the lengths of the text could not be computed: {reason}"
        hint = "jobkit preflight --fast estimates them without a model; batch sizes in numbers need none"
        raise JobkitError(message, hint=hint) from error
    return _checked_lengths(name, workload, answer, len(paragraphs))


def _checked_lengths(name: str, workload: type, answer: Any, paragraphs: int) -> list[list[int]]:  # noqa: ANN401 - whatever it returns
    expected = "a list for each paragraph, with the length of each of its items, a whole number of 0 or more"
    try:
        rows = [[operator.index(item) for item in row] for row in answer]
    except TypeError as error:
        raise _wrong_answer(name, workload, "lengths", f"returned {short(answer)}", expected) from error
    if min(chain.from_iterable(rows), default=0) < 0:
        raise _wrong_answer(name, workload, "lengths", f"returned {short(answer)}", expected)
    if len(rows) != paragraphs:
        what = f"returned lengths of {len(rows)} paragraphs, not {paragraphs}"
        raise _wrong_answer(name, workload, "lengths", what, expected)
    return rows


def help_for(name: str) -> str:
    """Return the place that says what a workload of this name may take and return."""
    return FUNCTION_HINT if names_file(name) else HINT


def _wrong_answer(name: str, workload: type, method: str, what: str, expected: str) -> JobkitError:
    place = _location(getattr(workload, method, workload))
    message = f"workload {name!r} ({place}): {method}() {what}; expected: {expected}"
    return JobkitError(message, hint=HINT)


def _location(thing: object) -> str:
    try:
        return f"{inspect.getsourcefile(cast('Any', thing))}:{inspect.getsourcelines(cast('Any', thing))[1]}"
    except (OSError, TypeError):
        return "its source is not available"
