"""A part of vectors: row N is of its paragraph N. Needs numpy.

It is an Arrow IPC file if pyarrow is installed, else an npy file, of arrays of any length an npz file.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

from jobkit.core.errors import JobkitError, name_file_in_errors
from jobkit.core.knobs import FP16, FP32
from jobkit.core.records import Outcome
from jobkit.extensions.corpus.plan import ROWS_FILE, parse_type
from jobkit.extensions.corpus.winners import digest
from jobkit.worker.failure import TryFailed
from jobkit.worker.workloads.base import Ragged, type_of

Array = Any
"""An array of numpy, with a vector in each row; or `Ragged`."""
_NUMBERS = {FP32: "<f4", FP16: "<f2"}
_HEADER_BYTES = 128


def npy_header(rows: int, vectors: str) -> bytes:
    """Return the beginning of an npy file, of one length for any number of rows (numpy.lib.format)."""
    import numpy as np

    kind, shape = parse_type(vectors) or (FP32, (0,))
    number = np.dtype(_NUMBERS.get(kind, kind)).str
    text = repr({"descr": number, "fortran_order": False, "shape": (rows, *shape)})
    size = _HEADER_BYTES - 10
    return b"\x93NUMPY\x01\x00" + size.to_bytes(2, "little") + f"{text:<{size - 1}}\n".encode()


def as_vectors(found: Any, paragraphs: int, columns: Sequence[str]) -> Array:  # noqa: ANN401 - numpy or torch
    """Return what a call has found as an array of fp32 or fp16, with one vector for each paragraph."""
    import numpy as np

    if isinstance(found, Ragged):
        if len(found.columns) != len(columns):
            what = f"the workload returned arrays of {type_of(found)}, and COLUMNS has {', '.join(columns)}"
            raise TryFailed(Outcome.BUG, what)
        if found.lengths.min(initial=0) < 0 or {*map(len, found.columns)} != {found.lengths.sum()}:
            raise TryFailed(Outcome.BUG, "the workload returned arrays without lengths of all paragraphs")
        for name, column in zip(columns, found.columns, strict=True):
            if not (whole := np.isfinite(column)).all():
                raise JobkitError(f"column {name} has {column[~whole][0]}")
        return found
    vectors: Array = np.asarray(found)
    if vectors.dtype.kind != "f" or vectors.shape[:1] != (paragraphs,) or vectors.ndim < 2:
        shape = f"an array of {vectors.dtype} of shape {vectors.shape}"
        expected = f"numbers with a point, of shape ({paragraphs}, the numbers of a vector)"
        raise TryFailed(Outcome.BUG, f"the workload returned {shape}; expected: {expected}")
    if len(columns) != 1:
        raise TryFailed(Outcome.BUG, f"vectors are one column, and COLUMNS has {', '.join(columns)}")
    vectors = vectors if vectors.dtype == np.float16 else vectors.astype(np.float32, copy=False)
    if not (whole := np.isfinite(vectors)).all():
        flat, whole = vectors.reshape(paragraphs, -1), whole.reshape(paragraphs, -1)
        number = int(np.argmin(whole.all(axis=0)))
        wrong = flat[np.argmin(whole[:, number]), number]
        raise JobkitError(f"column {columns[0]} has {wrong} at number {number}, counted from 0")
    return vectors


def in_order(
    calls: Sequence[tuple[Sequence[int], Array]], places: range, bad: Sequence[int] = (), vectors: str = ""
) -> Array:
    """Return the vectors of a window of paragraphs in corpus order; those of ``bad`` ones are NaN.

    ``vectors`` is their type, if it is known. Of arrays of any length a ``bad`` paragraph has none.
    """
    import numpy as np

    types = [*dict.fromkeys(type_of(some) for _, some in calls)] if calls else [vectors]
    if len(types) > 1:
        raise TryFailed(Outcome.BUG, f"a call returned {', another '.join(types)}")
    first, paragraphs = places.start, len(places)
    if sorted([*bad, *(item for items, _ in calls for item in items)]) != [*places]:
        given = sum(len(items) for items, _ in calls)
        raise TryFailed(Outcome.BUG, f"there are {given:,} vectors for {paragraphs:,} paragraphs")
    kinds = [parse_type(word) or (FP32, (0,)) for word in types[0].split()]
    if "*" in types[0]:
        found = {item: one for items, some in calls for item, one in zip(items, some.split(), strict=True)}
        empty = [np.empty((0, *shape), _NUMBERS.get(kind, kind)) for kind, shape in kinds]
        return Ragged.of(map(found.get, places), empty)
    [(kind, shape)] = kinds
    whole = np.full((paragraphs, *shape), np.nan, _NUMBERS[kind])
    for items, some in calls:
        whole[np.asarray(items) - first] = some
    return whole


class VectorsWriter:
    """Writes a part of vectors, of ``vectors`` as their type.

    The link ``rows.jsonl`` names the only part of a shard.
    """

    def __init__(self, folder: Path, number: int, columns: Sequence[str], vectors: str) -> None:
        if importlib.util.find_spec("pyarrow") is not None:
            ending, self._append = "arrow", self._append_arrow
        elif "*" in vectors:
            ending, self._append = "npz", self._append_npz
        else:
            ending, self._append = "npy", self._append_npy
        self._path = folder / f"part-{number:05d}.{ending}"
        self._part = folder / f"{self._path.name}.part"
        self._columns = tuple(columns)
        self._type = vectors
        self.rows = 0
        self.pieces: list[int] = []
        self._open = ExitStack()
        self._file: Any = None  # or the writer of Arrow's batches

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(self._type.split())

    def write(self, vectors: Array) -> None:
        if type_of(vectors) != self._type:
            raise TryFailed(Outcome.BUG, f"a call returned {self._type}, another {type_of(vectors)}")
        self._append(vectors)
        self.rows += len(vectors)

    def _append_arrow(self, vectors: Array) -> None:
        batch = arrow_batch(dict(zip(self._columns, by_column(vectors), strict=True)))
        if not self.rows:
            import pyarrow as pa

            file = self._open.enter_context(pa.OSFile(str(self._part), "wb"))
            self._file = self._open.enter_context(pa.ipc.new_file(file, batch.schema))
        with name_file_in_errors(self._path):
            self._file.write_batch(batch)

    def _append_npz(self, vectors: Array) -> None:
        if not self.rows:
            self._file = self._open.enter_context(ZipFile(self._part, "w"))
        with name_file_in_errors(self._path):
            for at, column in enumerate((vectors.lengths, *vectors.columns)):
                write_npy(self._file, f"{self.rows}/{at}", len(column), type_of(column), [column])

    def _append_npy(self, vectors: Array) -> None:
        if not self.rows:
            self._file = self._open.enter_context(self._part.open("wb"))
            self._file.write(bytes(_HEADER_BYTES))
        with name_file_in_errors(self._path):
            self._file.write(vectors.data)

    def end(self, *, only: bool) -> tuple[str, int, str]:
        """Sync the part and give it its name; return that, its size and its SHA-256."""
        with name_file_in_errors(self._path):
            if self._path.suffix == ".npy":
                self._file.seek(0)
                self._file.write(npy_header(self.rows, self._type))
            self._open.close()
        size, sha256 = digest(self._part, sync=True)
        self._part.replace(self._path)
        if only:
            link = self._path.with_name(ROWS_FILE)
            link.unlink(missing_ok=True)
            link.symlink_to(self._path.name)
        return self._path.name, size, sha256

    def discard(self) -> None:
        with suppress(OSError):  # the disk may be full
            self._open.close()
        self._part.unlink(missing_ok=True)


def arrow_batch(columns: Mapping[str, Any]) -> Any:  # noqa: ANN401 - pyarrow is untyped
    """Return columns as a batch of Arrow; arrays of several dimensions are lists of a fixed size."""
    import numpy as np
    import pyarrow as pa

    def column(values: Any) -> Any:  # noqa: ANN401 - as above
        if isinstance(values, Ragged):
            ends = np.cumsum(np.maximum(values.lengths, 0))
            offsets = column(np.concatenate([[0], ends]).astype(np.int32))
            none = pa.array((values.lengths < 0).tolist())
            return pa.ListArray.from_arrays(offsets, column(values.columns[0]), mask=none)
        if not hasattr(values, "ndim"):
            return pa.array(values)
        flat = [None, pa.py_buffer(values)]  # ``pa.array`` would import pandas, which takes half a second
        found = pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, flat)
        for size in reversed(values.shape[1:]):
            found = pa.FixedSizeListArray.from_arrays(found, size)
        return found

    return pa.record_batch({name: column(values) for name, values in columns.items()})


def by_column(vectors: Array) -> list[Array]:
    """Return the vectors of each column."""
    if isinstance(vectors, Ragged):
        return [Ragged(vectors.lengths, (column,)) for column in vectors.columns]
    return [vectors]


def write_npy(archive: ZipFile, name: str, rows: int, vectors: str, arrays: Iterable[Array]) -> None:
    """Write arrays of a type, end to end, as a member of an npz file."""
    with archive.open(ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
        member.write(npy_header(rows, vectors))
        for array in arrays:
            member.write(array.data)


def read_vectors(path: Path, start: int, end: int) -> Iterator[Array]:
    """Yield the vectors from row ``start`` to ``end`` of a part, as views of its file."""
    import numpy as np

    if path.suffix == ".npy":
        yield np.asarray(np.load(path, mmap_mode="r")[start:end])
        return
    if path.suffix == ".npz":
        with np.load(path) as file:
            for first in (int(name[:-2]) for name in file.files if name.endswith("/0")):
                lengths = file[f"{first}/0"]
                low, high = max(start - first, 0), min(end - first, len(lengths))
                if low < high:
                    ends = np.cumsum([0, *np.maximum(lengths, 0)])
                    names = [name for name in file.files if name.startswith(f"{first}/")][1:]
                    columns = (file[name][ends[low] : ends[high]] for name in names)
                    yield Ragged(lengths[low:high], tuple(columns))
        return
    import pyarrow as pa

    def numbers(column: Any) -> Array:  # noqa: ANN401 - pyarrow is untyped
        shape = list[int]()
        while pa.types.is_fixed_size_list(column.type):
            shape.append(column.type.list_size)
            column = column.flatten()
        return column.to_numpy().reshape(-1, *shape)

    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all().slice(start, end - start)
    for batch in table.to_batches():
        first, *_ = batch.columns
        if pa.types.is_list(first.type):
            lengths = first.value_lengths().fill_null(-1).to_numpy()
            yield Ragged(lengths, tuple(numbers(column.flatten()) for column in batch.columns))
        else:
            yield numbers(first)


def kept(vectors: Array) -> Array:
    """Return the vectors without those of paragraphs in quarantine."""
    if isinstance(vectors, Ragged):
        return Ragged(vectors.lengths[vectors.lengths >= 0], vectors.columns)
    import numpy as np

    return vectors[~np.isnan(vectors.reshape(len(vectors), -1)[:, 0])]
