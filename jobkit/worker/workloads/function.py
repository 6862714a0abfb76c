"""A plain function of the user's as a workload: ``./tagger.py:tag``.

docs/workloads.md says what such a function takes and returns.

The user's file travels with the run, so its code is read from the copy in the folder of the inputs. Its
errors and its ``__file__`` name the original, which is the file that the user can open.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import os
import platform
import re
import shlex
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from numbers import Integral
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, Literal, NoReturn, cast

from jobkit.core.errors import JobkitError, file_error
from jobkit.core.files import MOST_BYTES, read_bytes
from jobkit.core.frozen import frozen
from jobkit.core.knobs import BATCH_SIZE, RUN_KNOBS, SWITCH, TRUE, Knob, Value, declared
from jobkit.core.records import FileRef, ModelRef
from jobkit.core.terminal import did_you_mean
from jobkit.core.units import format_count
from jobkit.worker.paragraphs import load_of
from jobkit.worker.workloads.base import (
    BY_LENGTHS,
    CHARACTERS,
    DEFAULT_BATCH_SIZE,
    ENTITY_COLUMNS,
    Entity,
    Ragged,
    Result,
    Workload,
    not_imported,
)

_FORM = re.compile(r"(?P<file>.+\.py):(?P<name>\w+)")


def names_file(workload: str) -> bool:
    """Return whether a spec's ``workload`` names a file and a function of it."""
    return _FORM.fullmatch(workload) is not None


def source_path(workload: str, folder: str | None) -> str:
    """Return the absolute path of the file.

    ``workload``: as in a spec.
    ``folder``: the spec's folder.
    """
    found = _FORM.fullmatch(workload)
    if found is None:
        raise ValueError(workload)
    return os.path.abspath(os.path.join(folder or "", os.path.expanduser(found["file"])))  # noqa: PTH100, PTH111, PTH118 - without `..`, and links as they are


def file_ref(workload: str, folder: str | None) -> FileRef:
    """Return the file with its digest."""
    path = source_path(workload, folder)
    data = _read(workload, Path(path), path)
    name, sha256 = os.path.basename(path), hashlib.sha256(data).hexdigest()  # noqa: PTH119 - a string
    return FileRef(path=path, name=name, sha256=sha256, size_bytes=len(data))


@frozen
class UserFile:
    """A file of the user's that was imported."""

    module: ModuleType
    path: str  # of the original, absolute
    sha256: str
    imports: tuple[str, ...]  # the top-level packages that it imports anywhere, the standard library aside

    def versions(self) -> dict[str, str]:
        """Return what is known of the version of the file, and of the packages that it has imported."""
        found = {name: getattr(sys.modules.get(name), "__version__", None) for name in self.imports}
        versions = {name: version for name, version in found.items() if isinstance(version, str)}
        return {os.path.basename(self.path): self.sha256[:12], **versions}  # noqa: PTH119 - a string


_IMPORTED: dict[tuple[str, str], UserFile] = {}


def import_file(
    workload: str, folder: str | None, staged: str | None = None, *, parsed: bool = False
) -> UserFile:
    """Return the file, imported once a process.

    ``workload``, ``folder``: as for `source_path`. Python looks in the file's own folder for what it imports,
        after the installed packages.
    ``staged``: the folder with the copy that belongs to the run; by default the original is read.
    ``parsed``: run none of its code: what is defined has no body, and what is no literal is missing.
    """
    path = source_path(workload, folder)
    home, base = os.path.split(path)
    data = _read(workload, Path(staged, base) if staged else Path(path), path)
    sha256 = hashlib.sha256(data).hexdigest()
    if known := _IMPORTED.get((path, sha256)):
        return known
    if home not in sys.path:
        sys.path.append(home)
    # so that ``spacy.py`` hides no package
    module = ModuleType(f"_jobkit_file_{base.removesuffix('.py')}_{len(_IMPORTED)}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # dataclasses look there
    try:
        code, flags = (_outline(ast.parse(data)), annotations.compiler_flag) if parsed else (data, 0)
        exec(compile(code, path, "exec", flags, dont_inherit=True), module.__dict__)  # noqa: S102 - the user's code is to run
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        del sys.modules[module.__name__]
        hint = f"{sys.executable} {shlex.quote(path)} shows the whole error"
        raise not_imported(workload, home, error, hint) from error
    _IMPORTED[path, sha256] = UserFile(module, path, sha256, _imports(data))
    return _IMPORTED[path, sha256]


def _outline(tree: ast.Module | ast.ClassDef) -> Any:  # noqa: ANN401 - as it came
    """Return code with the same names and signatures, and with no expression but literals."""
    kept: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            node.bases, node.keywords, node.decorator_list = [], [], []
            kept.append(_outline(node))
        elif isinstance(node, ast.FunctionDef):
            node.body, node.decorator_list = [ast.Pass()], []
            for defaults in (node.args.defaults, node.args.kw_defaults):
                defaults[:] = [one if _is_literal(one) else ast.Constant(None) for one in defaults]  # type: ignore[misc]  # of keywords some are None
            kept.append(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            kept += [node] if _is_literal(node.value) else []
        elif isinstance(node, ast.Import | ast.ImportFrom) and "typing" in ast.unparse(node).split():
            kept.append(node)
    tree.body = kept or [ast.Pass()]
    return ast.fix_missing_locations(tree)


def _is_literal(node: ast.expr | None) -> bool:
    try:
        ast.literal_eval(node or "None")
    except (ValueError, TypeError):
        return False
    return True


def _imports(data: bytes) -> tuple[str, ...]:
    nodes = [*ast.walk(ast.parse(data))]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return tuple(sorted({name.partition(".")[0] for name in names} - sys.stdlib_module_names))


def _read(workload: str, path: Path, original: str) -> bytes:
    try:
        return read_bytes(path, MOST_BYTES)
    except FileNotFoundError:
        near = did_you_mean(path.name, [other.name for other in sorted(path.parent.glob("*.py"))])
        message = f"workload {workload!r}: there is no file {original}{near and f'; {near}'}"
        raise JobkitError(message, hint="the path is relative to the folder of the spec") from None
    except OSError as error:
        raise file_error(error, path) from error


GIVEN = ("model", "device", "threads", "loaded")
"""Parameters that jobkit fills in; ``loaded`` is what ``load()`` has returned."""
RESULT_COLUMN = ("result",)
"""The only column of a function whose file has no ``COLUMNS``."""
HINT = "jobkit help workloads, under 'A function', has what it may take and return"

Function = Callable[..., Any]


PAIRS = "pairs"
"""The first parameter of a function that takes pairs: each query of the spec with each paragraph."""
QUERY = "query"
QUERIES_FILE = "queries.txt"
"""What the file of the queries is called next to the user's file, in the folder of the inputs."""


def read_queries(path: Path) -> tuple[str, ...]:
    """Return the queries of a file, one a line."""
    hint = "`queries` names a text of UTF-8 with a query a line, from the folder of the spec"
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise JobkitError(f"queries {path}: {error.strerror}", hint=hint) from error
    except UnicodeDecodeError as error:
        raise JobkitError(f"queries {path}: not UTF-8 at byte {error.start}", hint=hint) from error
    if queries := tuple(filter(None, map(str.strip, lines))):
        return queries
    raise JobkitError(f"queries {path}: holds no query", hint=hint)


def queries_of(files: Iterable[FileRef]) -> str | None:
    """Return the path of the queries among the files of a workload."""
    return next((file.path for file in files if file.name == QUERIES_FILE), None)


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
    if made.PAIRS and (place := os.path.join(staged, QUERIES_FILE) if staged else queries):  # noqa: PTH118 - as above
        made.QUERIES = read_queries(Path(place))
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
        _refuse(workload, function, "takes no paragraphs: its first parameter is the list of them")
    parameters = {parameter.name: (parameter, function) for parameter in taken[1:]}
    if loader:
        more = inspect.signature(loader).parameters
        parameters |= {name: (parameter, loader) for name, parameter in more.items()}
    filled_in = {*GIVEN, *(knob.name for knob in RUN_KNOBS), BATCH_SIZE}
    own = [pair for name, pair in parameters.items() if name not in filled_in]
    knobs = [knob for parameter, owner in own if (knob := _knob(workload, parameter, owner))]
    columns = getattr(file.module, "COLUMNS", RESULT_COLUMN)
    columns = tuple(columns) if isinstance(columns, list) else columns
    pairs = taken[0].name == PAIRS
    members = {
        "WORKLOAD": workload,
        "FILE": file,
        "FUNCTION": staticmethod(function),
        "LOADER": staticmethod(loader) if loader else None,
        "LENGTHS": staticmethod(measure) if measure else None,
        "KNOBS": (BATCH_SIZE, *knobs),
        "NEEDS_MODEL": "model" in parameters,
        "LOAD_UNIT": getattr(file.module, "LOAD_UNIT", CHARACTERS),
        "PADS": getattr(file.module, "PADS", True),
        "COLUMNS": (QUERY, *columns) if pairs and isinstance(columns, tuple) else columns,
        "FOUND": columns,
        "PAIRS": pairs,
        "GC": getattr(file.module, "GC", True),
    }
    return type(function.__name__, (FunctionWorkload,), members)


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
    if words or _is_count(default) or (default is parameter.empty and hint is not str):
        return Knob(name=parameter.name, words=words)
    if default is parameter.empty:
        what = f"has the parameter {parameter.name} without a default, which is no knob"
        _refuse(workload, owner, f"{what}: annotate its words, Literal['fast', 'exact']")
    return None


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _refuse(workload: str, function: Function, what: str) -> NoReturn:
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
    PAIRS: ClassVar[bool]
    QUERIES: ClassVar[tuple[str, ...]] = ()
    PADS: ClassVar[bool]
    GC: ClassVar[bool] = True

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
        default = taken_size.default if taken_size and _is_count(taken_size.default) else DEFAULT_BATCH_SIZE
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
                _refuse(self.WORKLOAD, function, what)
        return taken

    def items_per_call(self) -> int:
        """Return the batch size, in paragraphs; of pairs, a call has so many batches as queries."""
        return self._batch_size

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Call the function; with pairs, once for each batch of them."""
        self._last = paragraphs
        if not self.PAIRS:
            return self._called(list(paragraphs))
        pairs, rows = self._pairs(paragraphs), list[tuple[Any, ...]]()
        starts = range(0, len(pairs), self._batch_size)
        results = [self._called(pairs[start : start + self._batch_size]) for start in starts]
        for start, result in zip(starts, results, strict=True):
            if result.vectors is not None:
                _refuse(self.WORKLOAD, self.FUNCTION, "returned arrays; expected of pairs: rows, or numbers")
            for number, *values in result.entities or result.rows or ():
                paragraph, query = divmod(start + number, len(self.QUERIES))
                rows.append((paragraph, self.QUERIES[query], *values))
        tokens = [result.tokens for result in results if result.tokens is not None]
        load = max(result.load for result in results)
        return Result(rows=tuple(rows), load=load, tokens=sum(tokens) if tokens else None)

    @classmethod
    def _pairs(cls, paragraphs: Sequence[str]) -> list[tuple[str, str]]:
        if not cls.QUERIES:
            raise JobkitError(
                f"workload {cls.WORKLOAD!r} takes pairs, and there are no queries",
                hint="name a file with a query a line in a spec, `queries: FILE`, and name the spec",
            )
        return [(query, paragraph) for paragraph in paragraphs for query in cls.QUERIES]

    def _called(self, items: list[str] | list[tuple[str, str]]) -> Result:
        self._largest_call = max(self._largest_call or 0, len(items))
        return self._result(self.FUNCTION(items, **self._arguments), len(items))

    def _result(self, answer: object, count: int) -> Result:
        found, load = answer, BY_LENGTHS
        if isinstance(answer, tuple) and len(answer) == 2 and _is_count(answer[1]):
            found, load = answer[0], int(answer[1])
        if found is None:
            return Result(load=load)
        if _is_count(found) and cast("int", found) >= 0:
            return Result(load=load, tokens=int(cast("int", found)))
        is_array = hasattr(found, "__array__")
        if not (is_array or isinstance(found, list)):
            may = "a list with the rows of each paragraph, an array, or (one of these, load)"
            what = (
                f"returned {short(found)} (a {type(found).__name__}); expected: None, a whole number, {may}"
            )
            _refuse(self.WORKLOAD, self.FUNCTION, what)
        found = cast("list[object]", found)
        if len(found) != count:
            noun = "pair" if self.PAIRS else "paragraph"
            given = f"{format_count(len(found), 'result')} for {format_count(count, noun)}"
            _refuse(self.WORKLOAD, self.FUNCTION, f"returned {given}; expected: one for each")
        if is_array and getattr(found, "ndim", 2) > 1:
            return Result(load=load, vectors=found)
        if is_array:  # a number for each paragraph
            found = cast("Any", found).tolist()
        first = self._arrays(next((one for one in found if one is not None), None))
        if any(getattr(one, "ndim", 0) for one in first):
            if len(first) != len(self.FOUND):
                given = format_count(len(first), "array")
                what = f"returned {given} for a paragraph, and COLUMNS has {', '.join(self.FOUND)}"
                _refuse(self.WORKLOAD, self.FUNCTION, what)
            try:
                return Result(load=load, vectors=Ragged.of(map(self._arrays, found)))
            except ValueError as error:
                _refuse(self.WORKLOAD, self.FUNCTION, f"returned {error}")
        several = [one if isinstance(one, list) else () if one is None else (one,) for one in found]
        rows = tuple((number, *self._values(row)) for number, some in enumerate(several) for row in some)
        if self.FOUND == ENTITY_COLUMNS:
            return Result(load=load, entities=tuple(map(Entity._make, rows)))
        return Result(load=load, rows=rows)

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
                _refuse(self.WORKLOAD, self.FUNCTION, what)
            return [row.get(name) for name in self.FOUND]
        values = row if isinstance(row, tuple | list) else (row,)
        if len(values) != len(self.FOUND):
            what = f"returned the row {short(row)}, and COLUMNS has {', '.join(self.FOUND)}"
            what += "; a list has rows, and an array is one of numpy" * isinstance(row, list)
            _refuse(self.WORKLOAD, self.FUNCTION, what)
        return values

    def load_of(self, paragraphs: Sequence[str]) -> int:
        """Return the load of a call that the function gave none: of its batches, items x the longest."""
        flat = [item for row in self._lengths(paragraphs, self._model) for item in row]
        chunks = [flat[start : start + self._batch_size] for start in range(0, len(flat), self._batch_size)]
        return max((load_of(chunk, pads=self.PADS) for chunk in chunks), default=0)

    def attempted_load(self) -> int:
        """Return the load of the call that began last; 0 if none began."""
        return self.load_of(self._last)

    @classmethod
    def lengths(cls, paragraphs: Sequence[str], model: ModelRef | None) -> list[list[int]]:
        """Return the lengths that the file finds, a number or a list for each paragraph; else characters."""
        return cls._lengths(paragraphs, Path(model.path) if model else None)

    @classmethod
    def _lengths(cls, paragraphs: Sequence[str], model: Path | None) -> list[list[int]]:
        items: list[Any] = cls._pairs(paragraphs) if cls.PAIRS else list(paragraphs)
        if cls.LENGTHS is None:
            rows = [[sum(map(len, item)) if cls.PAIRS else len(item)] for item in items]
        else:
            named = inspect.signature(cls.LENGTHS).parameters
            more = {"model": model} if "model" in named else {}
            rows = [[int(row)] if _is_count(row) else list(row) for row in cls.LENGTHS(items, **more)]
        each = len(cls.QUERIES) or 1
        return [[*chain.from_iterable(rows[at : at + each])] for at in range(0, len(rows), each)]

    def effective(self) -> Mapping[str, Value | None]:
        """Return what the functions were called with, and the largest number of paragraphs in a call."""
        return {**self._effective, BATCH_SIZE: self._largest_call}

    def versions(self) -> Mapping[str, str]:
        """Return the versions of Python, of the file, of the queries, and of the packages that it imports."""
        queries = hashlib.sha256("\n".join(self.QUERIES).encode()).hexdigest()[:12]
        named = {"queries": queries} if self.QUERIES else {}
        return {"python": platform.python_version(), **self.FILE.versions(), **named}


def short(value: object) -> str:
    """Return a value as a message of one line shows it."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:60]} ..."
