"""A plain function of the user's as a workload: ``./tagger.py:tag``. Standard library only.

docs/workloads.md says what such a function takes and returns.
"""

from __future__ import annotations

import inspect
import numbers
import platform
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn, cast

from jobkit.core.errors import JobkitError
from jobkit.core.knobs import BATCH_SIZE, RUN_KNOBS, Knob, Value
from jobkit.core.records import ModelRef
from jobkit.core.units import format_count
from jobkit.run.workloads.base import BY_LENGTHS, ENTITY_COLUMNS, Entity, Result, Workload
from jobkit.run.workloads.count import DEFAULT_BATCH_SIZE
from jobkit.run.workloads.source_file import UserFile, function_name, import_file

GIVEN = ("model", "device", "threads", "loaded")
"""Parameters that jobkit fills in; ``loaded`` is what ``load()`` has returned."""
RESULT_COLUMN = ("result",)
"""The only column of a function whose file has no ``COLUMNS``."""
RETURNS = "None, a whole number, a list with the rows of each paragraph, or (one of these, load)"
HINT = "jobkit help workloads, under 'A function', has what it may take and return"
_RUN_KNOBS = frozenset(knob.name for knob in RUN_KNOBS)

Function = Callable[..., Any]


def class_in_file(workload: str, folder: str | None, staged: str | None = None) -> type[Workload]:
    """Return the class that a spec names in a file, or the class that runs the function that it names.

    Parameters
    ----------
    workload, folder, staged
        As for `import_file`.

    Raises
    ------
    JobkitError
        If the file cannot be imported, has no such name, or the function cannot be called by jobkit.
    """
    file, name = import_file(workload, folder, staged), function_name(workload)
    found = getattr(file.module, name, None)
    if isinstance(found, type):
        return cast("type[Workload]", found)
    if not inspect.isfunction(found):
        own = [other for other, value in vars(file.module).items() if _is_own(value, file)]
        functions = f": it has {', '.join(own)}" if own else ": it has no function"
        message = f"workload {workload!r}: {file.path} has no function {name!r}{functions}"
        raise JobkitError(message, hint="write ./FILE.py:FUNCTION with one of its functions")
    return _class_of(workload, file, found)


def _is_own(value: object, file: UserFile) -> bool:
    return inspect.isfunction(value) and value.__module__ == file.module.__name__


def _class_of(workload: str, file: UserFile, function: Function) -> type[Workload]:
    loader, measure = (
        value if _is_own(value := getattr(file.module, name, None), file) else None
        for name in ("load", "lengths")
    )
    taken = list(inspect.signature(function).parameters.values())
    if not taken or taken[0].kind not in {taken[0].POSITIONAL_ONLY, taken[0].POSITIONAL_OR_KEYWORD}:
        _refuse(workload, function, "takes no paragraphs: its first parameter is the list of them")
    parameters = {parameter.name: (parameter, function) for parameter in taken[1:]}
    if loader:
        more = inspect.signature(loader).parameters
        parameters |= {name: (parameter, loader) for name, parameter in more.items()}
    own = [pair for name, pair in parameters.items() if name not in {*GIVEN, *_RUN_KNOBS, BATCH_SIZE}]
    knobs = [knob for parameter, owner in own if (knob := _knob(workload, parameter, owner))]
    members = {
        "WORKLOAD": workload,
        "FILE": file,
        "FUNCTION": staticmethod(function),
        "LOADER": staticmethod(loader) if loader else None,
        "LENGTHS": staticmethod(measure) if measure else None,
        "KNOBS": (BATCH_SIZE, *knobs),
        "NEEDS_MODEL": "model" in parameters,
        "COLUMNS": _columns(file),
        "GC": getattr(file.module, "GC", True),
    }
    return cast("type[Workload]", type(function.__name__, (FunctionWorkload,), members))


def _columns(file: UserFile) -> object:
    columns = getattr(file.module, "COLUMNS", RESULT_COLUMN)
    return tuple(columns) if isinstance(columns, list) else columns


def _knob(workload: str, parameter: inspect.Parameter, owner: Function) -> Knob | None:
    """Return the knob that a parameter is; ``None`` if it is none and has a default."""
    if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
        return None
    words = _words(parameter, owner)
    default = parameter.default
    if words or _is_count(default) or (default is parameter.empty and not _is_text(parameter, owner)):
        return Knob(name=parameter.name, words=words)
    if default is parameter.empty:
        what = f"has the parameter {parameter.name} without a default, which is no knob"
        _refuse(workload, owner, f"{what}: annotate its words, Literal['fast', 'exact']")
    return None


def _hint_of(parameter: inspect.Parameter, owner: Function) -> object:
    try:
        return typing.get_type_hints(owner).get(parameter.name)
    except Exception:  # noqa: BLE001 - an annotation may be any expression, and may fail
        return parameter.annotation


def _words(parameter: inspect.Parameter, owner: Function) -> tuple[str, ...]:
    hint = _hint_of(parameter, owner)
    values = typing.get_args(hint) if typing.get_origin(hint) is Literal else ()
    return tuple(values) if all(isinstance(value, str) for value in values) else ()


def _is_text(parameter: inspect.Parameter, owner: Function) -> bool:
    return _hint_of(parameter, owner) is str


def _is_count(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _place(function: Function) -> str:
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def _refuse(workload: str, function: Function, what: str) -> NoReturn:
    raise JobkitError(f"workload {workload!r} ({_place(function)}): {function.__name__}() {what}", hint=HINT)


class FunctionWorkload:
    """A workload whose calls are calls of a function; each function has a sub-class of its own.

    Attributes
    ----------
    LOADER, LENGTHS
        ``load`` and ``lengths`` next to the function; ``None`` if the file has none.
    """

    WORKLOAD: ClassVar[str]
    FILE: ClassVar[UserFile]
    FUNCTION: ClassVar[Function]
    LOADER: ClassVar[Function | None] = None
    LENGTHS: ClassVar[Function | None] = None
    KNOBS: ClassVar[tuple[Knob | str, ...]]
    NEEDS_MODEL: ClassVar[bool]
    COLUMNS: ClassVar[tuple[str, ...]]
    GC: ClassVar[bool] = True

    def __init__(self) -> None:
        self._batch_size = DEFAULT_BATCH_SIZE
        self._arguments: dict[str, Any] = {}
        self._effective: dict[str, Value | None] = {}
        self._last: Sequence[str] = ()
        self._largest_call: int | None = None

    def load(self, model: Path | None, device: str, params: Mapping[str, Value], threads: int) -> None:
        """Call ``load`` of the file, if it has one."""
        size = params.get(BATCH_SIZE) or self._default_batch_size()
        self._batch_size = int(size)
        values = {"threads": threads, **params, BATCH_SIZE: size, "model": model, "device": device}
        taken: dict[str, Any] = {}
        if self.LOADER:
            taken = self._taken(self.LOADER, values)
            values["loaded"] = self.LOADER(**taken)
        self._arguments = self._taken(self.FUNCTION, values)
        self._effective = {
            name: value
            for name, value in {**taken, **self._arguments}.items()
            if isinstance(value, int | str) and name not in {*GIVEN, BATCH_SIZE}
        }

    def _default_batch_size(self) -> int:
        parameter = inspect.signature(self.FUNCTION).parameters.get(BATCH_SIZE)
        return parameter.default if parameter and _is_count(parameter.default) else DEFAULT_BATCH_SIZE

    def _taken(self, function: Function, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that a function takes by name, with the defaults of its knobs."""
        parameters = list(inspect.signature(function).parameters.values())
        taken: dict[str, Any] = {}
        for parameter in parameters[function is self.FUNCTION :]:
            if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
                continue
            if parameter.name in values:
                taken[parameter.name] = values[parameter.name]
            elif parameter.default is not parameter.empty:
                taken[parameter.name] = parameter.default
            else:
                what = f"needs {parameter.name}, which the sweep does not set; sweep it, or give it a default"
                _refuse(self.WORKLOAD, function, what)
        return taken

    def items_per_call(self) -> int:
        """Return the batch size, in paragraphs."""
        return self._batch_size

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Call the function."""
        self._last = paragraphs
        self._largest_call = max(self._largest_call or 0, len(paragraphs))
        answer = self.FUNCTION(list(paragraphs), **self._arguments)
        return self._result(answer, len(paragraphs))

    def _result(self, answer: object, count: int) -> Result:
        found, load = answer, BY_LENGTHS
        if isinstance(answer, tuple) and len(answer) == 2 and _is_count(answer[1]):  # noqa: PLR2004 - a pair
            found, load = answer[0], int(answer[1])
        if found is None:
            return Result(load=load)
        if _is_count(found) and cast("int", found) >= 0:
            return Result(load=load, tokens=int(cast("int", found)))
        if not isinstance(found, list):
            self._refuse_answer(found)
        if len(found) != count:
            given = f"{format_count(len(found), 'result')} for {format_count(count, 'paragraph')}"
            _refuse(self.WORKLOAD, self.FUNCTION, f"returned {given}; expected: one for each")
        rows = tuple((number, *self._values(row)) for number, one in enumerate(found) for row in _rows(one))
        if self.COLUMNS == ENTITY_COLUMNS:
            return Result(load=load, entities=tuple(map(Entity._make, rows)))
        return Result(load=load, rows=rows)

    def _values(self, row: object) -> Sequence[object]:
        """Return the values of a row in the order of the columns."""
        if self.COLUMNS == RESULT_COLUMN:
            return (row,)
        if isinstance(row, Mapping):
            if unknown := sorted(map(str, {*row} - {*self.COLUMNS})):
                what = f"returned a row with {', '.join(unknown)}, and COLUMNS has {', '.join(self.COLUMNS)}"
                _refuse(self.WORKLOAD, self.FUNCTION, what)
            return [row.get(name) for name in self.COLUMNS]
        values = row if isinstance(row, tuple | list) else (row,)
        if len(values) != len(self.COLUMNS):
            what = f"returned the row {_short(row)}, and COLUMNS has {', '.join(self.COLUMNS)}"
            _refuse(self.WORKLOAD, self.FUNCTION, what)
        return values

    def _refuse_answer(self, answer: object) -> NoReturn:
        kind = type(answer).__name__
        what = f"returned {_short(answer)} (a {kind}); expected: {RETURNS}"
        _refuse(self.WORKLOAD, self.FUNCTION, what)

    def load_of(self, paragraphs: Sequence[str]) -> int:
        """Return the load of a call that the function gave none: of its batches, items x the longest."""
        flat = [item for row in self.lengths(paragraphs, None) for item in row]
        chunks = [flat[start : start + self._batch_size] for start in range(0, len(flat), self._batch_size)]
        return max((len(chunk) * max(chunk) for chunk in chunks), default=0)

    def attempted_load(self) -> int:
        """Return the load of the call that began last; 0 if none began."""
        return self.load_of(self._last)

    @classmethod
    def lengths(cls, paragraphs: Sequence[str], model: ModelRef | None) -> list[list[int]]:
        """Return the lengths that the file finds, a number or a list for each paragraph; else characters."""
        if cls.LENGTHS is None:
            return [[len(paragraph)] for paragraph in paragraphs]
        named = inspect.signature(cls.LENGTHS).parameters
        more = {"model": Path(model.path) if model else None} if "model" in named else {}
        found = list(cls.LENGTHS(list(paragraphs), **more))
        return [[int(row)] if _is_count(row) else list(row) for row in found]

    def effective(self) -> Mapping[str, Value | None]:
        """Return what the functions were called with, and the largest number of paragraphs in a call."""
        return {**self._effective, BATCH_SIZE: self._largest_call}

    def versions(self) -> Mapping[str, str]:
        """Return the versions of Python, of the file, and of the packages that it has imported."""
        return {"python": platform.python_version(), **self.FILE.versions()}


def _rows(one: object) -> Sequence[object]:
    """Return the rows of one paragraph: a list has several, everything else but ``None`` is one."""
    if one is None:
        return ()
    return one if isinstance(one, list) else (one,)


def _short(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:60]} ..."  # noqa: PLR2004 - one line of a message
