"""The class that a spec names in a file of the user's, or the class made for the function that it names.

docs/workloads.md says what such a function takes and returns.
"""

from __future__ import annotations

import contextlib
import inspect
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Literal, cast

from jobkit.core.errors import JobkitError
from jobkit.core.knobs import BATCH_SIZE, RUN_KNOBS, SWITCH, Knob
from jobkit.worker.workloads.base import CHARACTERS, Workload
from jobkit.worker.workloads.function import (
    GIVEN,
    RESULT_COLUMN,
    Function,
    FunctionWorkload,
    is_count,
    refuse,
)
from jobkit.worker.workloads.pairs import PAIRS, QUERIES_FILE, PairsWorkload, read_queries
from jobkit.worker.workloads.user_file import UserFile, import_file


def class_in_file(
    workload: str,
    folder: str | None,
    staged: str | None = None,
    *,
    parsed: bool = False,
    queries: str | None = None,
) -> type[Workload]:
    """Return the class that a spec names in a file, or the class that runs the function that it names.

    ``workload``, ``folder``, ``staged``, ``parsed``: as for `import_file`.
    ``queries``: the path of the queries of pairs, if they are not ``staged``.
    """
    file, name = import_file(workload, folder, staged, parsed=parsed), workload.rpartition(":")[2]
    found = getattr(file.module, name, None)
    if isinstance(found, type):
        return cast("type[Workload]", found)
    if not inspect.isfunction(found):
        own = [other for other, value in vars(file.module).items() if _is_own(value, file)]
        functions = f": it has {', '.join(own)}" if own else ": it has no function"
        message = f"workload {workload!r}: {file.path} has no function {name!r}{functions}"
        raise JobkitError(message, hint="write ./FILE.py:FUNCTION with one of its functions")
    made = _class_of(workload, file, found)
    if issubclass(made, PairsWorkload):
        place = Path(staged, QUERIES_FILE) if staged else queries and Path(queries)
        if place:
            made.QUERIES = read_queries(place)
    return cast("type[Workload]", made)


def _is_own(value: object, file: UserFile) -> bool:
    return inspect.isfunction(value) and value.__module__ == file.module.__name__


def _class_of(workload: str, file: UserFile, function: Function) -> type[FunctionWorkload]:
    loader, measure = (
        value if _is_own(value := getattr(file.module, name, None), file) else None
        for name in ("load", "lengths")
    )
    taken = list(inspect.signature(function).parameters.values())
    if not taken or taken[0].kind not in {taken[0].POSITIONAL_ONLY, taken[0].POSITIONAL_OR_KEYWORD}:
        refuse(workload, function, "takes no paragraphs: its first parameter is the list of them")
    parameters = {parameter.name: (parameter, function) for parameter in taken[1:]}
    if loader:
        more = inspect.signature(loader).parameters
        parameters |= {name: (parameter, loader) for name, parameter in more.items()}
    columns = getattr(file.module, "COLUMNS", RESULT_COLUMN)
    columns = tuple(columns) if isinstance(columns, list) else columns
    pairs = taken[0].name == PAIRS
    members = {
        "WORKLOAD": workload,
        "FILE": file,
        "FUNCTION": staticmethod(function),
        "LOADER": staticmethod(loader) if loader else None,
        "LENGTHS": staticmethod(measure) if measure else None,
        "KNOBS": (BATCH_SIZE, *_knobs_of(workload, parameters)),
        "NEEDS_MODEL": "model" in parameters,
        "LOAD_UNIT": getattr(file.module, "LOAD_UNIT", CHARACTERS),
        "PADS": getattr(file.module, "PADS", True),
        "COLUMNS": ("query", *columns) if pairs and isinstance(columns, tuple) else columns,
        "FOUND": columns,
        "GC": getattr(file.module, "GC", True),
    }
    return type(function.__name__, (PairsWorkload if pairs else FunctionWorkload,), members)


def _knobs_of(workload: str, parameters: Mapping[str, tuple[inspect.Parameter, Function]]) -> Iterator[Knob]:
    """Yield the knobs among parameters, which stand with the function that takes them."""
    filled_in = {*GIVEN, *(knob.name for knob in RUN_KNOBS), BATCH_SIZE}
    for name, (parameter, owner) in parameters.items():
        if name not in filled_in and (knob := _knob(workload, parameter, owner)):
            yield knob


def _knob(workload: str, parameter: inspect.Parameter, owner: Function) -> Knob | None:
    """Return the knob that a parameter is; ``None`` if it is none and has a default."""
    if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
        return None
    default, hint = parameter.default, parameter.annotation
    with contextlib.suppress(Exception):  # an annotation may be any expression, and may fail
        alone = SimpleNamespace(__annotations__={parameter.name: hint})
        hint = typing.get_type_hints(alone, inspect.unwrap(owner).__globals__)[parameter.name]
    values = typing.get_args(hint) if typing.get_origin(hint) is Literal else ()
    words = tuple(values) if all(isinstance(value, str) for value in values) else ()
    if hint is bool or isinstance(default, bool):
        words = SWITCH
    if words or is_count(default) or (default is parameter.empty and hint is not str):
        return Knob(name=parameter.name, words=words)
    if default is parameter.empty:
        what = f"has the parameter {parameter.name} without a default, which is no knob"
        refuse(workload, owner, f"{what}: annotate its words, Literal['fast', 'exact']")
    return None
