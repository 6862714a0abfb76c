"""A plain function of the user's as a workload: ``./tagger.py:tag``.

docs/workloads.md says what such a function takes and returns.
"""

from __future__ import annotations

import inspect
import platform
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeGuard

from jobkit.core.errors import JobkitError
from jobkit.core.knobs import BATCH_SIZE, SWITCH, TRUE, Knob, Value, declared
from jobkit.core.records import ModelRef
from jobkit.core.units import format_count
from jobkit.worker.paragraphs import load_of as load_of_items
from jobkit.worker.workloads.base import (
    BY_LENGTHS,
    DEFAULT_BATCH_SIZE,
    ENTITY_COLUMNS,
    Entity,
    Ragged,
    Result,
    Row,
)
from jobkit.worker.workloads.user_file import UserFile

GIVEN = ("model", "device", "threads", "loaded")
"""Parameters that jobkit fills in; ``loaded`` is what ``load()`` has returned."""
RESULT_COLUMN = ("result",)
"""The only column of a function whose file has no ``COLUMNS``."""
HINT = "jobkit help workloads, under 'A function', has what it may take and return"

Function = Callable[..., Any]


def is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool)


def refuse(workload: str, function: Function, what: str) -> NoReturn:
    code = inspect.unwrap(function).__code__
    place = f"{code.co_filename}:{code.co_firstlineno}"
    raise JobkitError(f"workload {workload!r} ({place}): {function.__name__}() {what}", hint=HINT)


class FunctionWorkload:
    """A workload whose calls are calls of a function; each function has a sub-class of its own."""

    WORKLOAD: ClassVar[str]
    FILE: ClassVar[UserFile]
    FUNCTION: ClassVar[Function]
    # `LOADER`, `LENGTHS`: ``load`` and ``lengths`` next to the function; ``None`` if the file has none
    LOADER: ClassVar[Function | None] = None
    LENGTHS: ClassVar[Function | None] = None
    KNOBS: ClassVar[tuple[Knob | str, ...]]
    NEEDS_MODEL: ClassVar[bool]
    COLUMNS: ClassVar[tuple[str, ...]]
    FOUND: ClassVar[tuple[str, ...]]  # those that the function returns: of pairs the query is not among them
    LOAD_UNIT: ClassVar[str]
    PADS: ClassVar[bool]
    GC: ClassVar[bool] = True
    ITEM: ClassVar[str] = "paragraph"  # what the function takes a list of

    def __init__(self) -> None:
        self._batch_size = DEFAULT_BATCH_SIZE
        self._arguments: dict[str, Any] = {}
        self._effective: dict[str, Value | None] = {}
        self._last: Sequence[str] = ()
        self._model: Path | None = None
        self._largest_call: int | None = None

    def load(self, model: Path | None, device: str, params: Mapping[str, Value], threads: int) -> None:
        """Call ``load`` of the file, if it has one."""
        self._model = model
        taken_size = inspect.signature(self.FUNCTION).parameters.get(BATCH_SIZE)
        default = taken_size.default if taken_size and is_count(taken_size.default) else DEFAULT_BATCH_SIZE
        size = params.get(BATCH_SIZE) or default
        self._batch_size = int(size)
        values = {"threads": threads, **params, BATCH_SIZE: size, "model": model, "device": device}
        taken: dict[str, Any] = {}
        if self.LOADER:
            taken = self._taken(self.LOADER, values)
            values["loaded"] = self.LOADER(**taken)
        self._arguments = self._taken(self.FUNCTION, values)
        self._effective = {
            name: SWITCH[value] if isinstance(value, bool) else value
            for name, value in {**taken, **self._arguments}.items()
            if isinstance(value, int | str) and name not in {*GIVEN, BATCH_SIZE}
        }

    def _taken(self, function: Function, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that a function takes by name, with the defaults of its knobs."""
        parameters = list(inspect.signature(function).parameters.values())
        switches = {knob.name for knob in declared(self.KNOBS) if knob.words == SWITCH}
        taken: dict[str, Any] = {}
        for parameter in parameters[function is self.FUNCTION :]:
            if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
                continue
            if parameter.name in values:
                value = values[parameter.name]
                taken[parameter.name] = value == TRUE if parameter.name in switches else value
            elif parameter.default is not parameter.empty:
                taken[parameter.name] = parameter.default
            else:
                what = f"needs {parameter.name}, which the sweep does not set; sweep it, or give it a default"
                refuse(self.WORKLOAD, function, what)
        return taken

    def items_per_call(self) -> int:
        """Return the batch size, in paragraphs; of pairs, a call has so many batches as queries."""
        return self._batch_size

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Call the function."""
        self._last = paragraphs
        return self._called(list(paragraphs))

    def _called(self, items: Sequence[Any]) -> Result:
        self._largest_call = max(self._largest_call or 0, len(items))
        return self._result(self.FUNCTION(items, **self._arguments), len(items))

    def _result(self, answer: object, count: int) -> Result:
        found, load = _split_load(answer)
        if found is None:
            return Result(load=load)
        if is_count(found) and found >= 0:
            return Result(load=load, tokens=int(found))
        by_item = self._one_each(found, count)
        if hasattr(by_item, "__array__"):
            if getattr(by_item, "ndim", 2) > 1:
                return Result(load=load, vectors=by_item)
            by_item = by_item.tolist()  # a number for each
        first = self._arrays(next((one for one in by_item if one is not None), None))
        if any(getattr(one, "ndim", 0) for one in first):
            return Result(load=load, vectors=self._ragged(by_item, len(first)))
        rows = self._rows(by_item)
        if self.FOUND == ENTITY_COLUMNS:
            return Result(load=load, entities=tuple(map(Entity._make, rows)))
        return Result(load=load, rows=rows)

    def _one_each(self, found: object, count: int) -> Any:  # noqa: ANN401 - a list, or an array of any framework
        """Return what the function has found, if that is a list or an array with one for each item."""
        if not (hasattr(found, "__array__") or isinstance(found, list)):
            may = "a list with the rows of each paragraph, an array, or (one of these, load)"
            what = f"returned {short(found)} (a {type(found).__name__})"
            self._refuse(f"{what}; expected: None, a whole number, {may}")
        by_item: Any = found
        if len(by_item) != count:
            given = f"{format_count(len(by_item), 'result')} for {format_count(count, self.ITEM)}"
            self._refuse(f"returned {given}; expected: one for each")
        return by_item

    def _ragged(self, by_item: Sequence[object], arrays: int) -> Ragged:
        """Return arrays of any length; ``arrays``: how many the first item has."""
        if arrays != len(self.FOUND):
            given = format_count(arrays, "array")
            self._refuse(f"returned {given} for a paragraph, and COLUMNS has {', '.join(self.FOUND)}")
        try:
            return Ragged.of(map(self._arrays, by_item))
        except ValueError as error:
            self._refuse(f"returned {error}")

    def _rows(self, by_item: Sequence[object]) -> tuple[Row, ...]:
        """Return the rows of all items: each has a list of them, a single one, or ``None``."""
        several = [one if isinstance(one, list) else () if one is None else (one,) for one in by_item]
        return tuple((number, *self._values(row)) for number, some in enumerate(several) for row in some)

    def _arrays(self, found: object) -> Sequence[object]:
        """Return what the function has found for a paragraph as arrays, one for each column."""
        if isinstance(found, Mapping):
            return [found.get(name) for name in self.FOUND]
        return found if isinstance(found, tuple) else (found,)

    def _values(self, row: object) -> Sequence[object]:
        if self.FOUND == RESULT_COLUMN:
            return (row,)
        if isinstance(row, Mapping):
            if unknown := sorted(map(str, {*row} - {*self.FOUND})):
                what = f"returned a row with {', '.join(unknown)}, and COLUMNS has {', '.join(self.FOUND)}"
                self._refuse(what)
            return [row.get(name) for name in self.FOUND]
        values = row if isinstance(row, tuple | list) else (row,)
        if len(values) != len(self.FOUND):
            what = f"returned the row {short(row)}, and COLUMNS has {', '.join(self.FOUND)}"
            what += "; a list has rows, and an array is one of numpy" * isinstance(row, list)
            self._refuse(what)
        return values

    def _refuse(self, what: str) -> NoReturn:
        refuse(self.WORKLOAD, self.FUNCTION, what)

    def load_of(self, paragraphs: Sequence[str]) -> int:
        """Return the load of a call that the function gave none: of its batches, items x the longest."""
        flat = [item for row in self._lengths(paragraphs, self._model) for item in row]
        chunks = [flat[start : start + self._batch_size] for start in range(0, len(flat), self._batch_size)]
        return max((load_of_items(chunk, pads=self.PADS) for chunk in chunks), default=0)

    def attempted_load(self) -> int:
        """Return the load of the call that began last; 0 if none began."""
        return self.load_of(self._last)

    @classmethod
    def lengths(cls, paragraphs: Sequence[str], model: ModelRef | None) -> list[list[int]]:
        """Return the lengths that the file finds, a number or a list for each paragraph; else characters."""
        return cls._lengths(paragraphs, Path(model.path) if model else None)

    @classmethod
    def _lengths(cls, paragraphs: Sequence[str], model: Path | None) -> list[list[int]]:
        found = cls._found_lengths(list(paragraphs), model)
        return [[len(paragraph)] for paragraph in paragraphs] if found is None else found

    @classmethod
    def _found_lengths(cls, items: Sequence[Any], model: Path | None) -> list[list[int]] | None:
        """Return for each item the lengths that the file finds; ``None`` if it finds none."""
        if cls.LENGTHS is None:
            return None
        named = inspect.signature(cls.LENGTHS).parameters
        more = {"model": model} if "model" in named else {}
        return [[int(row)] if is_count(row) else list(row) for row in cls.LENGTHS(items, **more)]

    def effective(self) -> Mapping[str, Value | None]:
        """Return what the functions were called with, and the largest number of items in a call."""
        return {**self._effective, BATCH_SIZE: self._largest_call}

    def versions(self) -> Mapping[str, str]:
        """Return the versions of Python, of the file, and of the packages that it imports."""
        return {"python": platform.python_version(), **self.FILE.versions()}


def _split_load(answer: object) -> tuple[object, int]:
    """Return what the function has found, and the load that it gave with it, if it gave one."""
    if isinstance(answer, tuple) and len(answer) == 2 and is_count(answer[1]):
        return answer[0], int(answer[1])
    return answer, BY_LENGTHS


def short(value: object) -> str:
    """Return a value as a message of one line shows it."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:60]} ..."
