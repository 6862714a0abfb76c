"""Write the result of a shard: rows or vectors, synced, counted, and with a manifest.

Standard library only, but for vectors: a part of them is an Arrow IPC file if pyarrow is installed, else an
npy file. Row N is the vector of paragraph N of the shard. docs/contracts.md has the schema.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

from jobkit.core.errors import JobkitError, name_file_in_errors
from jobkit.core.files import write_atomically
from jobkit.core.json_codec import to_json
from jobkit.core.knobs import FP16, FP32
from jobkit.core.paragraphs import GIVEN
from jobkit.core.records import Outcome
from jobkit.extensions.corpus.plan import MANIFEST_FILE, ROWS_FILE, Part, Rows
from jobkit.extensions.corpus.readers import Paragraph, given_offset
from jobkit.extensions.corpus.winners import digest
from jobkit.worker.failure import TryFailed
from jobkit.worker.workloads.base import Row, text_order

OFFSETS = frozenset({"start", "end"})
"""Columns of offsets into the paragraph's text; a row has offsets into the document as given."""
_encode = json.JSONEncoder(ensure_ascii=False).encode
_TYPES = {str: "str", int: "int", float: "float", bool: "bool", type(None): "null"}


class RowsWriter(AbstractContextManager["RowsWriter"]):
    """Writes ``rows.jsonl``, one JSON object a line in order, over the rows of an earlier process.

    Until it is whole it has another name, which the job script does not copy home.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        if len({*GIVEN, *columns}) < len(GIVEN) + len(columns):
            raise JobkitError(f"columns {', '.join(columns)}: each name once, and none of {', '.join(GIVEN)}")
        self._path, self._part = path, path.with_name(f"{path.name}.part")
        self._columns = tuple(columns)
        self._types: list[set[str]] = [set() for _ in columns]
        self._rows = 0
        self._digest = hashlib.sha256()
        self._pieces: list[int] = []
        (path.parent / MANIFEST_FILE).unlink(missing_ok=True)
        self._file = self._part.open("wb", buffering=2**18)

    def write(self, paragraph: Paragraph, values: Sequence[object]) -> None:
        row: dict[str, object] = {"document": paragraph.document, "paragraph": paragraph.number}
        for name, value, types in zip(self._columns, values, self._types, strict=True):
            types.add(_TYPES.get(type(value), "other"))
            offset = name in OFFSETS and isinstance(value, int)
            row[name] = given_offset(paragraph, value) if offset else value  # type: ignore[arg-type]  # an int
        line = _encode(row).encode("utf-8", "backslashreplace") + b"\n"
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
            self._part.replace(self._path)
        size, sha256 = sum(self._pieces), self._digest.hexdigest()
        part = Part(1, ROWS_FILE, paragraphs, self._rows, self._columns, size, sha256)
        types = [" ".join(sorted(types)) for types in self._types]
        return write_manifest(self._path.parent, part, types, self._pieces)

    def __exit__(self, *_: object) -> None:
        """Remove the file, unless `close` has given it its name."""
        self._part.unlink(missing_ok=True)
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


# -- vectors

Array = Any
"""An array of numpy, with a vector in each row."""
_NUMBERS = {FP32: "<f4", FP16: "<f2"}
_HEADER_BYTES = 128


def type_of(vectors: Array) -> str:
    """Return the type of a column of vectors: ``fp32[384]``."""
    return f"{FP16 if vectors.dtype.itemsize == 2 else FP32}[{vectors.shape[1]}]"  # noqa: PLR2004 - bytes


def parse_type(words: str) -> tuple[str, int] | None:
    """Return the number type and the width of a column of vectors; ``None`` for any other column."""
    kind, _, width = words.removesuffix("]").partition("[")
    return (kind, int(width)) if kind in _NUMBERS and width else None


def npy_header(rows: int, vectors: str) -> bytes:
    """Return the beginning of an npy file, of one length for any number of rows (numpy.lib.format)."""
    kind, width = parse_type(vectors) or (FP32, 0)
    text = repr({"descr": _NUMBERS[kind], "fortran_order": False, "shape": (rows, width)})
    size = _HEADER_BYTES - 10
    return b"\x93NUMPY\x01\x00" + size.to_bytes(2, "little") + f"{text:<{size - 1}}\n".encode()


def as_vectors(found: Any, paragraphs: int, columns: Sequence[str]) -> Array:  # noqa: ANN401 - numpy or torch
    """Return what a call has found as an array of fp32 or fp16, with one vector for each paragraph."""
    import numpy as np

    vectors: Array = np.asarray(found)
    if vectors.dtype.kind != "f" or vectors.shape[:1] != (paragraphs,) or vectors.ndim != 2:  # noqa: PLR2004
        shape = f"an array of {vectors.dtype} of shape {vectors.shape}"
        expected = f"numbers with a point, of shape ({paragraphs}, the numbers of a vector)"
        raise TryFailed(Outcome.BUG, f"the workload returned {shape}; expected: {expected}")
    if len(columns) != 1:
        raise TryFailed(Outcome.BUG, f"vectors are one column, and COLUMNS has {', '.join(columns)}")
    return vectors if vectors.dtype == np.float16 else vectors.astype(np.float32, copy=False)


def in_order(calls: Sequence[tuple[Sequence[int], Array]], first: int) -> Array:
    """Return the vectors of a window, whose first paragraph is number ``first``, in corpus order."""
    import numpy as np

    whole = np.empty((sum(len(items) for items, _ in calls), calls[0][1].shape[1]), calls[0][1].dtype)
    for items, vectors in calls:
        if type_of(vectors) != type_of(whole):
            raise TryFailed(Outcome.BUG, f"a call returned {type_of(whole)}, another {type_of(vectors)}")
        whole[np.asarray(items) - first] = vectors
    return whole


class VectorsWriter(AbstractContextManager["VectorsWriter"]):
    """Writes the only part of a shard of vectors, over the part of an earlier process.

    ``rows.jsonl`` is a link to the part: what claims a shard reads that name.
    """

    def __init__(self, folder: Path, columns: Sequence[str]) -> None:
        arrow = importlib.util.find_spec("pyarrow") is not None
        self._path = folder / f"part-00001.{'arrow' if arrow else 'npy'}"
        self._part = folder / f"{self._path.name}.part"
        self._columns, self._type, self._rows = tuple(columns), "", 0
        self._open = ExitStack()
        self._file: Any = None  # or the writer of Arrow's batches

    def write(self, vectors: Array) -> None:
        if not self._rows:
            self._begin(vectors)
        elif type_of(vectors) != self._type:
            raise TryFailed(Outcome.BUG, f"a call returned {self._type}, another {type_of(vectors)}")
        self._rows += len(vectors)
        with name_file_in_errors(self._path):
            if self._path.suffix == ".npy":
                self._file.write(vectors.data)
            else:
                self._file.write_batch(arrow_batch({self._columns[0]: vectors}))

    def _begin(self, vectors: Array) -> None:
        self._type = type_of(vectors)
        if self._path.suffix == ".npy":
            self._file = self._open.enter_context(self._part.open("wb"))
            self._file.write(bytes(_HEADER_BYTES))
            return
        import pyarrow as pa

        schema = arrow_batch({self._columns[0]: vectors[:0]}).schema
        file = self._open.enter_context(pa.OSFile(str(self._part), "wb"))
        self._file = self._open.enter_context(pa.ipc.new_file(file, schema))

    def close(self, paragraphs: int) -> Rows:
        """End the part, sync it, give it its name, and write the manifest."""
        with name_file_in_errors(self._path):
            if self._path.suffix == ".npy":
                self._file.seek(0)
                self._file.write(npy_header(self._rows, self._type))
            self._open.close()
        size, sha256 = digest(self._part, sync=True)
        self._part.replace(self._path)
        link = self._path.with_name(ROWS_FILE)
        link.unlink(missing_ok=True)
        link.symlink_to(self._path.name)
        part = Part(1, self._path.name, paragraphs, self._rows, self._columns, size, sha256)
        return write_manifest(self._path.parent, part, (self._type,))

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # the disk may be full
            self._open.close()
        self._part.unlink(missing_ok=True)


def arrow_batch(columns: Mapping[str, Any]) -> Any:  # noqa: ANN401 - pyarrow is untyped
    """Return columns as a batch of Arrow; arrays of two dimensions are lists of a fixed size."""
    import pyarrow as pa

    def vectors(values: Array) -> Any:  # noqa: ANN401 - as above
        flat = [None, pa.py_buffer(values)]  # ``pa.array`` would import pandas, which takes half a second
        kind = pa.from_numpy_dtype(values.dtype)
        return pa.FixedSizeListArray.from_arrays(
            pa.Array.from_buffers(kind, values.size, flat), values.shape[1]
        )

    arrays = {
        name: vectors(values) if getattr(values, "ndim", 1) == 2 else pa.array(values)  # noqa: PLR2004
        for name, values in columns.items()
    }
    return pa.record_batch(arrays)


def read_vectors(path: Path, start: int, end: int) -> Iterator[Array]:
    """Yield the vectors from row ``start`` to ``end`` of a part, as views of its file."""
    import numpy as np

    if path.suffix == ".npy":
        yield np.asarray(np.load(path, mmap_mode="r")[start:end])
        return
    import pyarrow as pa

    column = pa.ipc.open_file(pa.memory_map(str(path))).read_all().column(0)
    for chunk in column.slice(start, end - start).chunks:
        yield chunk.flatten().to_numpy().reshape(len(chunk), -1)


class RowsFile:
    """The only part of a shard, window by window in corpus order: rows, or vectors; whole, or not there."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._paragraphs, self._open = folder, 0, ExitStack()

    def open(self, columns: Sequence[str]) -> None:
        self._columns, self._order = columns, text_order(columns)
        self._writer: RowsWriter | VectorsWriter
        self._writer = self._open.enter_context(RowsWriter(self._folder / ROWS_FILE, columns))

    def write(self, rows: list[Row], first: int, places: Sequence[Paragraph]) -> None:
        if rows and not isinstance(rows[0][0], int) and isinstance(self._writer, RowsWriter):
            self._writer = self._open.enter_context(VectorsWriter(self._folder, self._columns))
        if isinstance(self._writer, RowsWriter):
            for number, *values in sorted(rows, key=self._order):
                self._writer.write(places[number - first], values)
        elif rows:
            self._writer.write(in_order(rows, first))
        self._paragraphs += len(places)

    def close(self, left: Sequence[Row], *, failed: bool) -> None:
        """Sync the file and write its manifest; of a try that failed, remove it."""
        del left
        with self._open:
            if not failed:
                self._writer.close(self._paragraphs)
