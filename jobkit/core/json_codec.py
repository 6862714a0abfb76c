"""Dataclasses to JSON and back, for the login node and the compute node: standard library only."""

from __future__ import annotations

import functools
import json
import math
import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

from jobkit.core.errors import JobkitError

SCHEMA = 2
"""The version of points and records. In 1 a point had one process, and values of knobs were whole numbers."""


T = TypeVar("T")


def to_json(value: object) -> str:
    """Return a dataclass as one line of JSON; bytes of a file name that are not UTF-8 are escaped."""
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"not a dataclass: {value!r}")
    text = json.dumps(value, ensure_ascii=False, default=fields_of)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def fields_of(value: Any) -> dict[str, Any]:  # noqa: ANN401 - json.dumps hands over anything
    """Return a dataclass as a dict for json.dumps, without the deep copy of `dataclasses.asdict`."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def parse_json(text: str, where: str) -> Any:  # noqa: ANN401 - JSON is Any
    """Return JSON; not NaN, nor a number that is too large to compute with."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise JobkitError(f"{where}: not JSON: nested too deep") from None
    except ValueError as error:
        raise JobkitError(f"{where}: not JSON: {error}") from error


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _whole(text: str) -> int:
    return int(text) if len(text) <= 300 else _refuse(text)  # a float has no more


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is no number that was measured")


_DECODER = json.JSONDecoder(parse_float=_finite, parse_int=_whole, parse_constant=_refuse)


def from_json(kind: type[T], text: str, *, where: str) -> T:
    """Read a dataclass back from JSON.

    ``kind``: ``Point``, ``Batch``, ``Record``, ...
    ``text``: one JSON object. Keys that this version does not know are ignored.
    ``where``: ``file`` or ``file:line``, for the message.
    """
    return from_dict(kind, parse_json(text, where), where=where)


def from_dict(kind: type[T], data: object, *, where: str) -> T:
    if not isinstance(data, dict):
        raise JobkitError(f"{where}: not a {kind.__name__}: {str(data)[:40]!r}")
    schema = data.get("schema", SCHEMA)
    if not isinstance(schema, int) or schema > SCHEMA:
        raise JobkitError(
            f"{where}: schema {schema!r} is newer than this jobkit's {SCHEMA}",
            hint="read it with the jobkit that wrote it, or a newer one",
        )
    values = {}
    for name, right, read in _readers(kind):  # type: ignore[arg-type]  # mypy takes a type[T] for unhashable
        if name in data:
            value = data[name]
            values[name] = value if type(value) in right else read(value, where)
    try:
        return kind(**values)
    except TypeError as error:
        absent = [field for field in fields(kind) if field.name not in values]  # type: ignore[arg-type]  # the same
        missing = [
            field.name for field in absent if field.default is MISSING and field.default_factory is MISSING
        ]
        raise JobkitError(f"{where}: not a {kind.__name__}: lacks {', '.join(missing)}") from error


Reader = Callable[[Any, str], Any]
"""Takes a JSON value and its ``file:line``; returns the value of the field."""


@functools.cache
def _readers(kind: type) -> tuple[tuple[str, frozenset[type], Reader], ...]:
    """Return name, plain types and reader of each field, once per class: 10,000 records are read in 1 s."""
    readers = []
    for name, hint in typing.get_type_hints(kind).items():
        allowed = set(hint.__args__) if isinstance(hint, types.UnionType) else {hint}
        plain = {
            one for one in allowed if one in {int, str, bool, float, types.NoneType} or is_dataclass(one)
        }
        readers.append((name, frozenset(plain | ({int} if float in plain else set())), _reader(hint)))
    return tuple(readers)


def _reader(hint: Any) -> Reader:  # noqa: ANN401 - a type hint is Any
    if isinstance(hint, types.UnionType):
        inner = _reader(next(arg for arg in hint.__args__ if arg is not types.NoneType))
        return lambda value, where: None if value is None else inner(value, where)
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda value, where: from_dict(hint, value, where=where)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return functools.partial(_read_enum, hint)
    plain = typing.get_origin(hint) or hint
    if plain is tuple:
        item = _reader(hint.__args__[0])
        return lambda value, where: tuple(item(one, where) for one in _read_plain((list,), value, where))
    if plain is dict:
        item, mapping = _reader(hint.__args__[1]), (dict,)
        return lambda value, where: {
            name: item(one, where) for name, one in _read_plain(mapping, value, where).items()
        }
    return functools.partial(_read_plain, (int, float) if plain is float else (plain,))


def _read_enum(hint: type[StrEnum], value: str, where: str) -> StrEnum:
    try:
        return hint(value)
    except ValueError as error:
        raise JobkitError(f"{where}: {value!r} is no {hint.__name__}") from error


def _read_plain(expected: tuple[type, ...], value: Any, where: str) -> Any:  # noqa: ANN401 - JSON is Any
    if isinstance(value, expected):
        return value
    raise JobkitError(f"{where}: {value!r} where {expected[-1].__name__} is expected")
