"""Read a YAML file against a pydantic model and report every error by file:line:column.

PyYAML speaks YAML 1.1, where ``24:00:00`` is 86400 and ``on`` is a bool; the loader here leaves
both as text, for a walltime is written with colons and no one means a bool by ``no``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from yaml.constructor import ConstructorError

from jobkit.core.errors import HIDDEN, InvalidSpecError, NotFoundError, hide_secrets
from jobkit.core.files import MOST_BYTES, read_bytes
from jobkit.core.knobs import RENAMED
from jobkit.core.paths import shipped_folder
from jobkit.core.terminal import shell_quote, suggest, suggest_key

Loc = tuple[int | str, ...]
M = TypeVar("M", bound=BaseModel)


# libyaml's parser and emitter where PyYAML has them: ten times as fast as those in Python.
_SafeLoader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SafeDumper: type[yaml.SafeDumper] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Loader(_SafeLoader):  # type: ignore[valid-type,misc]  # one of two classes
    """PyYAML's safe loader with YAML 1.2's idea of a number and of a bool."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - PyYAML's own signature
        """Return the value of a node; a value that its tag does not allow is a fault with its place."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, TypeError, ArithmeticError) as error:
            said = f"{str(node.value)[:40]!r} is no {_tag_of(node)}"
            raise ConstructorError(None, None, said, node.start_mark) from error


def _tag_of(node: yaml.Node) -> str:
    return str(node.tag).replace("tag:yaml.org,2002:", "!!")


def _no_such_tag(_loader: _Loader, node: yaml.Node) -> None:
    raise ConstructorError(None, None, f"{_tag_of(node)} is not used here", node.start_mark)


MOST_REPEATED = 10_000
"""Values that aliases repeat: nested aliases stand for any number of values, and each is checked."""

_Loader.yaml_constructors = {
    f"tag:yaml.org,2002:{tag}": yaml.SafeLoader.yaml_constructors[f"tag:yaml.org,2002:{tag}"]
    for tag in ("null", "bool", "int", "float", "str", "seq", "map")
} | {None: _no_such_tag}


_PLAIN = {
    "tag:yaml.org,2002:bool": (r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    "tag:yaml.org,2002:int": (r"^[-+]?(?:0|[1-9][0-9]*)$", "-+0123456789"),
    "tag:yaml.org,2002:float": (
        r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$",
        "-+.0123456789",
    ),
}
_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] not in _PLAIN and not pair[0].endswith(":timestamp")]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, (_pattern, _first) in _PLAIN.items():
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), list(_first))


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One thing wrong in a file: sorts by place."""

    line: int
    column: int
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(slots=True)
class YamlDocument:
    """A YAML file, read: its data, and where each key stands.

    Attributes
    ----------
    path
        As the user wrote it.
    data
        The mapping that the file holds, with the overrides in it.
    overrides
        The keys given by ``--set``, and how they were written.
    """

    path: str
    node: yaml.Node | None
    data: dict[str, Any]
    overrides: dict[Loc, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def part(self, key: str) -> dict[str, Any]:
        """Return the mapping of a key; an empty one if it has none."""
        value = self.data.get(key)
        return value if isinstance(value, dict) else {}

    def add(self, loc: Loc, what: str, *, on_key: bool = False) -> None:
        """Add a fault at the deepest part of ``loc`` that stands in the file."""
        self.faults.append(self._fault(loc, what, on_key=on_key))

    def _fault(self, loc: Loc, what: str, *, on_key: bool) -> Fault:
        for length in range(len(loc), 0, -1):
            if loc[:length] in self.overrides:
                return Fault(0, 0, f"--set {self.overrides[loc[:length]]}", what)
        if loc and self.node and not _stands_in(self.node, loc):  # a part of the key that --set has
            for given, shown in self.overrides.items():
                if given[: len(loc)] == loc:
                    return Fault(0, 0, f"--set {shown}", what)
        mark = _locate(self.node, loc, on_key=on_key) if self.node else None
        return self.fault_at(mark, what) if mark else Fault(1, 1, f"{self.path}:1:1", what)

    def fault_at(self, mark: yaml.Mark, what: str) -> Fault:
        """Return a fault at a place of the file."""
        line, column = mark.line + 1, mark.column + 1
        return Fault(line, column, f"{self.path}:{line}:{column}", what)


def read_document(
    path: Path,
    overrides: Sequence[str] = (),
    model: type[BaseModel] = BaseModel,
    text: str | None = None,
) -> YamlDocument:
    """Read a YAML mapping and put ``key=value`` overrides into it.

    Parameters
    ----------
    path
        The file.
    overrides
        Each ``dotted.key=value``; the value is YAML.
    model
        Has the keys of which a message may show the value that an override gives them.
    text
        What the file would hold, if there is none.

    Raises
    ------
    JobkitError
        If the file cannot be read or is no YAML mapping.
    """
    try:
        text = read_bytes(path, MOST_BYTES, typed=True).decode() if text is None else text
        node, data = _composed(text)
    except OSError as error:
        raise NotFoundError(f"{path}: {error.strerror}", hint=_how_to_get(path)) from error
    except UnicodeDecodeError as error:
        raise InvalidSpecError(f"{path}: not UTF-8 at byte {error.start}", hint="save it as UTF-8") from error
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        at = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        message = f"{path}{at}: not YAML: {getattr(error, 'problem', None) or error}"
        raise InvalidSpecError(message, hint="fix the YAML there") from error
    if not isinstance(node, yaml.MappingNode):
        raise InvalidSpecError(f"{path}:1:1: not a mapping of keys to values", hint="see jobkit help spec")
    document = YamlDocument(str(path), node, data)
    try:
        document.faults += [document.fault_at(mark, what) for mark, what in _odd(node)]
    except RecursionError as error:
        raise InvalidSpecError(
            f"{path}: an alias stands inside its own anchor", hint="write the value out"
        ) from error
    for override in overrides:
        _override(document, override, model)
    if any(NUL in fault.what for fault in document.faults):
        raise_faults(document, "write it without \\0")  # at once: a check may open a file of that name
    return document


def _how_to_get(path: Path) -> str:
    """Return the hint for a file that cannot be read: if jobkit ships that sweep, the command to copy it."""
    shipped = shipped_folder("sweeps") / path.name
    if path.exists():
        return "name a YAML file"
    if path.suffix != ".yaml" or not shipped.is_file():
        return "name a YAML file that exists"
    folder = "" if path.parent == Path() else f"mkdir -p {shell_quote(path.parent)} && "
    return f"jobkit ships this file; to copy it: {folder}cp {shell_quote(shipped)} {shell_quote(path)}"


def _composed(text: str) -> tuple[yaml.Node | None, Any]:
    """Return a text's node, which knows its places, and its data, parsed once for both."""
    inside: list[tuple[str | None, int]] = []  # the anchor of each open collection, and the values before it
    sizes: dict[str | None, int] = {}  # how many values each anchor stands for
    values = repeated = 0
    most_depth = 100
    for event in yaml.parse(text, Loader=_Loader):  # libyaml composes by recursion, without a limit
        values += isinstance(event, yaml.CollectionStartEvent | yaml.ScalarEvent)
        if isinstance(event, yaml.CollectionStartEvent):
            inside.append((event.anchor, values - 1))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = inside.pop()
            sizes[anchor] = values - before
        elif isinstance(event, yaml.AliasEvent):
            values += sizes.get(event.anchor, 1)
            repeated += sizes.get(event.anchor, 1)
        if len(inside) > most_depth or repeated > MOST_REPEATED:
            what = f"aliases repeat more than {MOST_REPEATED:,} values"
            what = f"nested more than {most_depth} deep" if len(inside) > most_depth else what
            raise ConstructorError(None, None, what, event.start_mark)  # type: ignore[arg-type]  # libyaml's mark
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        return node, loader.construct_document(node) if node else None
    finally:
        loader.dispose()


def validated(document: YamlDocument, model: type[M]) -> M | None:
    """Return the document as the model, or ``None`` with the faults added to the document."""
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        for found in error.errors():
            what = _words(found["type"], found["msg"], found["input"], found["loc"], model)
            document.add(found["loc"], what, on_key=found["type"] in {"extra_forbidden", "missing"})
    return None


def raise_faults(document: YamlDocument, what: str, *, nested: bool = False) -> None:
    """Raise all faults of the document at once.

    Parameters
    ----------
    document
        What was read.
    what
        The hint: what to type or read next.
    nested
        Whether another file names this one: the message about that file counts the errors.

    Raises
    ------
    JobkitError
        With one line for each error, in the order of the file.
    """
    if not document.faults:
        return
    of_keys = {(fault.where, fault.what.partition(": ")[0]): fault for fault in reversed(document.faults)}
    lines = [str(fault).replace("\n", "\n  ") for fault in sorted(of_keys.values())]
    count = f"{len(lines)} error{'s' * (len(lines) > 1)}"
    head = f"{document.path} has errors" if nested else f"{document.path}: {count}; nothing was submitted"
    raise InvalidSpecError("\n".join([head, *(f"  {line}" for line in lines)]), hint=what)


def sound(document: YamlDocument, data: M | None, what: str, *, nested: bool = False) -> M:
    """Return the data of a document, as `validated` read it; raise its faults, as `raise_faults`."""
    raise_faults(document, what, nested=nested)
    assert data is not None  # noqa: S101 - it would have a fault; this is for the type checker
    return data


NUL = "a NUL character, which no file name, variable or line of a script can hold"


def _pairs(node: yaml.Node) -> dict[str, tuple[yaml.Node, yaml.Node]]:
    pairs = [(key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
    return {RENAMED.get(str(key.value), str(key.value)): (key, value) for key, value in pairs}


def _odd(node: yaml.Node) -> Iterator[tuple[yaml.Mark, str]]:
    """Yield keys that are given twice and texts with a NUL character, each with its place."""
    if isinstance(node, yaml.ScalarNode) and "\0" in node.value:
        yield node.start_mark, NUL
    children = node.value if isinstance(node, yaml.SequenceNode) else ()
    seen: dict[str, int] = {}
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        line = key.start_mark.line + 1
        if str(key.value) in seen:
            yield key.start_mark, f"{key.value}: given twice, first on line {seen[str(key.value)]}"
        seen.setdefault(str(key.value), line)
        children = (*children, key, value)
    for child in children:
        yield from _odd(child)


def _locate(node: yaml.Node, loc: Loc, *, on_key: bool) -> Any:  # noqa: ANN401 - PyYAML's marks are untyped
    """Return the mark of the deepest node that loc reaches; parts that name no node are skipped."""
    mark = node.start_mark
    for part in loc:
        if isinstance(node, yaml.MappingNode) and str(part) in (pairs := _pairs(node)):
            key, node = pairs[str(part)]
            mark = key.start_mark if on_key or not node.start_mark else node.start_mark
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            mark = node.start_mark
    return mark


def _stands_in(node: yaml.Node, loc: Loc) -> bool:
    """Return whether a key stands in the file."""
    for part in loc:
        pairs = _pairs(node) if isinstance(node, yaml.MappingNode) else {}
        if str(part) not in pairs:
            return False
        _, node = pairs[str(part)]
    return True


def _override(document: YamlDocument, override: str, model: type[BaseModel]) -> None:
    """Put one ``dotted.key=value`` into the data, or add the fault."""
    dotted, equals, text = override.partition("=")
    loc: Loc = tuple(dotted.strip().split("."))
    shown = hide_override(override, model)
    # Characters of an override in a message
    most_shown = 120
    shown = shown if len(shown) <= most_shown else f"{shown[:most_shown]}..."
    here = Fault(0, 0, f"--set {shown}", "not key=value, for instance resources.cpus=4")
    if not equals or not all(loc):
        document.faults.append(here)
        return
    try:
        node, value = _composed(text)
        document.faults += [Fault(0, 0, here.where, what) for _, what in (_odd(node) if node else ())]
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        said = getattr(error, "problem", None) or "it cannot be read"
        document.faults.append(Fault(0, 0, here.where, f"the value is not YAML: {said}"))
        return
    target: Any = document.data
    for part in loc[:-1]:
        if not isinstance(target.get(str(part)), dict):
            target[str(part)] = {}
        target = target[str(part)]
    target[str(loc[-1])] = value
    document.overrides[loc] = shown


def _words(kind: str, message: str, value: object, loc: Loc, model: type[BaseModel]) -> str:
    """Return a fault of pydantic's in words that name the key, the value and the nearest key."""
    names = [part for part in loc if isinstance(part, int) or not part.startswith(("function-", "[key]"))]
    key = ".".join(str(part) for part in names)
    shown = HIDDEN if _is_hidden(loc) or isinstance(value, dict) else repr(value)
    if kind == "extra_forbidden":
        keys = list(_part(model, loc[:-1]).model_fields)
        other = suggest_key(names, getattr(model, "MEANT", {}), keys)
        return f"{key}: no such key{other or suggest(str(loc[-1]), keys)}"
    if kind == "missing":
        return f"{key}: required, not given"
    if kind in {"model_type", "dict_type"}:
        nouns = getattr(_part(model, loc), "KEYS", "keys")  # knobs, in the sweep
        return f"{key}: {shown}: should be a mapping of {nouns} to values"
    said = message.removeprefix("Value error, ").removeprefix("Input ")
    return f"{key}: {shown}: {said[:1].lower()}{said[1:]}"


def _is_hidden(loc: Sequence[int | str]) -> bool:
    return [*loc[:1]] == ["environment"] and (len(loc) == 1 or loc[1] in {"variables", "setup"})


def hide_override(override: str, model: type[BaseModel]) -> str:
    """Return ``key=value`` of a ``--set`` as it may be shown: an unknown key may be a mistyped one."""
    key, equals, value = override.partition("=")
    loc = key.strip().split(".")
    shown = hide_secrets(value) if _is_key(model, loc) and not _is_hidden(loc) else HIDDEN
    return f"{key}={shown}" if equals else re.sub(r"(?s)(?<=[^\w.-]).+", HIDDEN, key)


def _is_key(model: type[BaseModel], loc: Loc | list[str]) -> bool:
    """Return whether a model has a key, or a mapping for keys that a person names."""
    for number, part in enumerate(loc, 1):
        if str(part) not in model.model_fields:
            return model.model_config.get("extra") == "allow"
        below = _part(model, (part,))
        if below is model:
            return number == len(loc) or get_origin(model.model_fields[str(part)].annotation) is dict
        model = below
    return True


def _part(model: type[BaseModel], loc: Loc) -> type[BaseModel]:
    """Return the part of a model that ``loc`` stands in, in lists of parts and optional parts too."""
    for part in loc:
        annotation = model.model_fields[str(part)].annotation if str(part) in model.model_fields else None
        kinds = (kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type))
        model = next((kind for kind in kinds if issubclass(kind, BaseModel)), model)
    return model


def as_yaml(data: Mapping[str, Any]) -> str:
    """Return a mapping as YAML that this module reads back to the same data."""
    return yaml.dump(
        dict(data), Dumper=_SafeDumper, sort_keys=False, allow_unicode=True, default_flow_style=False
    )
