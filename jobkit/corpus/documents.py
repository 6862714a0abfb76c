"""A line of JSONL as a document. Standard library only."""

from __future__ import annotations

import json
from typing import NamedTuple


class Fields(NamedTuple):
    """The names of the fields of a document."""

    text: str = "text"
    id: str = "id"


class Document(NamedTuple):
    """A line of JSONL: its id (``None`` if it has none, or an empty one) and its text as given."""

    id: str | None
    text: str


BOM = b"\xef\xbb\xbf"
"""The mark of UTF-8 with which a file may begin."""


def generated_id(source: str, line: int) -> str:
    """Return the id of a document that has none."""
    return f"{source}:{line}"


class BadLineError(ValueError):
    """A line that is no document; its text is the reason."""


def parse_line(line: bytes, fields: Fields) -> Document:
    """Return the document of a line.

    Raises
    ------
    BadLineError
        If it is not UTF-8, not JSON, not an object, or its text or id is not text.
    """
    data = _load(line)
    if not isinstance(data, dict):
        raise BadLineError("not a JSON object")
    if fields.text not in data:
        raise BadLineError(f"no field {fields.text!r}")
    text, name = data[fields.text], data.get(fields.id)
    if not isinstance(text, str):
        raise BadLineError(f"the field {fields.text!r} is not text")
    if name is not None and (isinstance(name, bool) or not isinstance(name, str | int)):
        raise BadLineError(f"the field {fields.id!r} is neither text nor a whole number")
    if b"\\" in line:
        _check_surrogates(text if name is None else f"{text}{name}")
    return Document(None if name in {None, ""} else str(name), text)


def _load(line: bytes) -> object:
    try:
        return json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise BadLineError(f"not UTF-8 at byte {error.start} of the line") from error
    except ValueError as error:
        raise BadLineError(f"not JSON: {error}") from error
    except RecursionError:
        raise BadLineError("not JSON: nested too deep") from None


def _check_surrogates(text: str) -> None:
    r"""Refuse half of a surrogate pair (``"\ud800"``): no UTF-8 file can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = text[error.start]
        raise BadLineError(f"half of a surrogate pair: \\u{ord(half):04x}") from error
