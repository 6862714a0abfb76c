"""The part of a shard that holds vectors: an Arrow IPC file if pyarrow is installed, else an npy file.

Row N is the vector of paragraph N of the shard: a part holds numbers only. docs/structure.md has its schema.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from jobkit.core.errors import name_file_in_errors
from jobkit.core.knobs import FP16, FP32
from jobkit.core.records import Outcome
from jobkit.extensions.corpus.plan import ROWS_FILE, Part, Rows
from jobkit.extensions.corpus.rows import write_manifest
from jobkit.extensions.corpus.winners import digest
from jobkit.worker.failure import TryFailed

Array = Any
"""An array of numpy, with a vector in each row."""
_TYPES = {FP32: "<f4", FP16: "<f2"}
_HEADER_BYTES = 128


def type_of(vectors: Array) -> str:
    """Return the type of a column of vectors: ``fp32[384]``."""
    return f"{FP16 if vectors.dtype.itemsize == 2 else FP32}[{vectors.shape[1]}]"  # noqa: PLR2004 - bytes


def parse_type(words: str) -> tuple[str, int] | None:
    """Return the number type and the width of a column of vectors; ``None`` for any other column."""
    kind, _, width = words.removesuffix("]").partition("[")
    return (kind, int(width)) if kind in _TYPES and width else None


def npy_header(rows: int, vectors: str) -> bytes:
    """Return the beginning of an npy file, of one length for any number of rows (numpy.lib.format)."""
    kind, width = parse_type(vectors) or (FP32, 0)
    text = repr({"descr": _TYPES[kind], "fortran_order": False, "shape": (rows, width)})
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


class VectorsWriter:
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

    def abandon(self) -> None:
        with suppress(OSError):  # the disk may be full
            self._open.close()
        self._part.unlink(missing_ok=True)


def arrow_batch(columns: Mapping[str, Any]) -> Any:  # noqa: ANN401 - pyarrow is untyped
    """Return columns as a batch of Arrow; arrays of two dimensions are lists of a fixed size."""
    import pyarrow as pa

    arrays = {
        name: pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
        if getattr(values, "ndim", 1) == 2  # noqa: PLR2004 - rows and columns
        else pa.array(values)
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
