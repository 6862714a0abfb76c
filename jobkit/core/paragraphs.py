"""What a paragraph of a text is, and a document of JSONL. Standard library only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from jobkit.core.units import format_list

GIVEN = ("document", "paragraph")
"""The fields of a row that say where it is from; the workload's columns follow."""

_PARAGRAPH = re.compile(r"(?:^[^\S\n]*+\S[^\n]*+\n?+)++", re.MULTILINE)
r"""Lines with more than white space. ``\s`` and ``str.strip`` know the same white space."""


def split_paragraphs(text: str) -> list[str]:
    r"""Return the paragraphs of a text with ``\n`` line ends.

    A line with more than white space belongs to the paragraph and keeps its newline and its
    indentation; a line of only white space ends the paragraph.
    """
    return _PARAGRAPH.findall(text)


def spans(text: str) -> Iterator[tuple[int, int]]:
    r"""Return the start and the end of each paragraph of a text with ``\n`` line ends."""
    return (found.span() for found in _PARAGRAPH.finditer(text))


JSONL_ENDINGS = (".jsonl", ".ndjson")


class Fields(NamedTuple):
    text: str = "text"
    id: str = "id"


class Document(NamedTuple):
    """A line of JSONL: its id, ``None`` if it is missing or empty, and its text as given."""

    id: str | None
    text: str


BOM = b"\xef\xbb\xbf"
"""The mark of UTF-8 with which a file may begin."""
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""With which a file begins that git-lfs has left in the place of a large one."""
LFS_REASON, LFS_HINT = "a git-lfs pointer in place of the file", "git lfs pull"


class BadLineError(ValueError):
    """A line that is no document; the text of the error is the reason."""


def parse_line(line: bytes, fields: Fields) -> Document:
    data = _load(line)
    if not isinstance(data, dict):
        raise BadLineError("not a JSON object")
    if fields.text not in data:
        raise BadLineError(f"no field {fields.text!r}: it has {format_list(list(data), 12)}")
    text, name = data[fields.text], data.get(fields.id)
    if not isinstance(text, str):
        raise BadLineError(f"the field {fields.text!r} is not text")
    if name is not None and (isinstance(name, bool) or not isinstance(name, str | int)):
        raise BadLineError(f"the field {fields.id!r} is neither text nor a whole number")
    if b"\\" in line:  # it may hold half of a surrogate pair, which no UTF-8 file can hold
        try:
            f"{text}{name}".encode()
        except UnicodeEncodeError as error:
            half = ord(error.object[error.start])
            raise BadLineError(f"half of a surrogate pair: \\u{half:04x}") from error
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
