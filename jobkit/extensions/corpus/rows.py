"""Write the rows of a shard: synced, counted, and with a manifest. Standard library only."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from jobkit.core.errors import JobkitError, name_file_in_errors
from jobkit.core.files import write_atomically
from jobkit.core.json_codec import to_json
from jobkit.core.paragraphs import GIVEN
from jobkit.extensions.corpus.plan import MANIFEST_FILE, ROWS_FILE, Part, Rows
from jobkit.extensions.corpus.readers import Paragraph, given_offset

OFFSETS = frozenset({"start", "end"})
"""Columns of offsets into the paragraph's text; a row has offsets into the document as given."""
_TYPES = {str: "str", int: "int", float: "float", bool: "bool", type(None): "null"}


class RowsWriter:
    """Writes ``rows.jsonl``, one JSON object a line in order, over the rows of an earlier process."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        if len({*GIVEN, *columns}) < len(GIVEN) + len(columns):
            raise JobkitError(f"columns {', '.join(columns)}: each name once, and none of {', '.join(GIVEN)}")
        self._path = path
        self._columns = tuple(columns)
        self._types: list[set[str]] = [set() for _ in columns]
        self._rows = 0
        self._digest = hashlib.sha256()
        self._pieces: list[int] = []
        (path.parent / MANIFEST_FILE).unlink(missing_ok=True)
        self._file = path.open("wb", buffering=2**18)

    def write(self, paragraph: Paragraph, values: Sequence[object]) -> None:
        row: dict[str, object] = {"document": paragraph.document, "paragraph": paragraph.number}
        for name, value, types in zip(self._columns, values, self._types, strict=True):
            types.add(_TYPES.get(type(value), "other"))
            offset = name in OFFSETS and isinstance(value, int)
            row[name] = given_offset(paragraph, value) if offset else value  # type: ignore[arg-type]  # an int
        line = json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        with name_file_in_errors(self._path):
            self._file.write(line)
        self._digest.update(line)
        self._rows += 1
        self._pieces += [0] * (paragraph.piece + 1 - len(self._pieces))
        self._pieces[paragraph.piece] += len(line)

    def close(self, paragraphs: int) -> Rows:
        """Sync the rows and write the manifest next to them; only then the shard is complete.

        ``paragraphs`` counts all that were worked through, also those without a row.
        """
        with name_file_in_errors(self._path), self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        size, sha256 = sum(self._pieces), self._digest.hexdigest()
        part = Part(1, ROWS_FILE, paragraphs, self._rows, self._columns, size, sha256)
        types = [" ".join(sorted(types)) for types in self._types]
        return write_manifest(self._path.parent, part, types, self._pieces)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file if `close` did not."""
        self._file.close()


def write_manifest(folder: Path, part: Part, types: Sequence[str], pieces: Sequence[int] = ()) -> Rows:
    """Write ``rows.json`` of a shard whose rows are one part."""
    rows = Rows(
        rows=part.rows,
        paragraphs=part.paragraphs,
        size_bytes=part.size_bytes,
        sha256=part.sha256,
        columns=part.columns,
        types=tuple(types),
        pieces=tuple(pieces),
        parts=(part,),
    )
    write_atomically(folder / MANIFEST_FILE, to_json(rows) + "\n")
    return rows
