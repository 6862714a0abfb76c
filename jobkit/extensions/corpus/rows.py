"""Write the result of a shard: rows or vectors in parts, synced, counted, and with a manifest.

Standard library only, but for vectors: a part of them is an Arrow IPC file if pyarrow is installed, else an
npy file, of arrays of any length an npz file. Row N is of its paragraph N. docs/contracts.md has the schema.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

from jobkit.core.errors import JobkitError, name_file_in_errors
from jobkit.core.files import append_line, read_lines, read_tolerantly, write_atomically
from jobkit.core.frozen import frozen
from jobkit.core.json_codec import from_json, to_json
from jobkit.core.knobs import FP16, FP32
from jobkit.core.layout import (
    BATCHES_FILE,
    GONE_ROWS,
    PLAN_FILE,
    POINTS_FILE,
    TRY_PREFIX,
    try_folder,
    try_numbers,
)
from jobkit.core.paragraphs import GIVEN
from jobkit.core.records import Outcome, Point
from jobkit.extensions.corpus.plan import (
    MANIFEST_FILE,
    QUARANTINE_FILE,
    ROWS_FILE,
    Part,
    Quarantined,
    Rows,
    Shard,
    parse_type,
)
from jobkit.extensions.corpus.readers import Paragraph, given_offset
from jobkit.extensions.corpus.winners import digest
from jobkit.worker import process
from jobkit.worker.failure import TryFailed
from jobkit.worker.workloads.base import Bad, Output, Ragged, Row, text_order, type_of

OFFSETS = frozenset({"start", "end"})
"""Columns of offsets into the paragraph's text; a row has offsets into the document as given."""
_encode = json.JSONEncoder(ensure_ascii=False).encode
_TYPES = {str: "str", int: "int", float: "float", bool: "bool", type(None): "null"}


class RowsWriter:
    """Writes a part of rows, one JSON object a line in order.

    Until it is whole it has another name, which the job script does not copy home.
    """

    def __init__(self, folder: Path, number: int, columns: Sequence[str]) -> None:
        self._path = folder / f"part-{number:05d}.jsonl"
        self._part = folder / f"{self._path.name}.part"
        self._columns = tuple(columns)
        self._types: list[set[str]] = [set() for _ in columns]
        self._digest = hashlib.sha256()
        self._file = self._part.open("wb", buffering=2**18)
        self.rows = 0
        self.pieces: list[int] = []

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(" ".join(sorted(types)) for types in self._types)

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
        self.rows += 1
        self.pieces += [0] * (paragraph.piece + 1 - len(self.pieces))
        self.pieces[paragraph.piece] += len(line)

    def end(self, *, only: bool) -> tuple[str, int, str]:
        """Sync the part and give it its name; return that, its size and its SHA-256."""
        path = self._path.with_name(ROWS_FILE) if only else self._path
        with name_file_in_errors(path), self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._part.replace(path)
        return path.name, sum(self.pieces), self._digest.hexdigest()

    def discard(self) -> None:
        self._part.unlink(missing_ok=True)
        with suppress(OSError):  # the disk may be full
            self._file.close()


# -- vectors

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

    types = dict.fromkeys([vectors] * (not calls) + [type_of(vectors) for _, vectors in calls])
    if len(types) > 1:
        raise TryFailed(Outcome.BUG, f"a call returned {', another '.join(types)}")
    first, paragraphs = places.start, len(places)
    if sorted([*bad, *(item for items, _ in calls for item in items)]) != [*places]:
        given = sum(len(items) for items, _ in calls)
        raise TryFailed(Outcome.BUG, f"there are {given:,} vectors for {paragraphs:,} paragraphs")
    kinds = [parse_type(word) or (FP32, (0,)) for word in next(iter(types)).split()]
    if "*" in next(iter(types)):
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
        arrow = importlib.util.find_spec("pyarrow") is not None
        ending = "arrow" if arrow else "npz" if "*" in vectors else "npy"
        self._path = folder / f"part-{number:05d}.{ending}"
        self._part = folder / f"{self._path.name}.part"
        self._columns, self._type, self.rows = tuple(columns), vectors, 0
        self.pieces: list[int] = []
        self._open = ExitStack()
        self._file: Any = None  # or the writer of Arrow's batches

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(self._type.split())

    def write(self, vectors: Array) -> None:
        if type_of(vectors) != self._type:
            raise TryFailed(Outcome.BUG, f"a call returned {self._type}, another {type_of(vectors)}")
        if self._path.suffix == ".npz":
            if not self.rows:
                self._file = self._open.enter_context(ZipFile(self._part, "w"))
            with name_file_in_errors(self._path):
                for at, column in enumerate((vectors.lengths, *vectors.columns)):
                    write_npy(self._file, f"{self.rows}/{at}", len(column), type_of(column), [column])
        elif self._path.suffix == ".npy":
            if not self.rows:
                self._file = self._open.enter_context(self._part.open("wb"))
                self._file.write(bytes(_HEADER_BYTES))
            with name_file_in_errors(self._path):
                self._file.write(vectors.data)
        else:
            batch = arrow_batch(dict(zip(self._columns, by_column(vectors), strict=True)))
            if not self.rows:
                import pyarrow as pa

                file = self._open.enter_context(pa.OSFile(str(self._part), "wb"))
                self._file = self._open.enter_context(pa.ipc.new_file(file, batch.schema))
            with name_file_in_errors(self._path):
                self._file.write_batch(batch)
        self.rows += len(vectors)

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


# -- parts, and what a later try adopts of them

PARTS_FILE = "parts.jsonl"


@frozen
class Finished:
    """A part that was finished before its shard was: a line of ``parts.jsonl`` in the folder of the try."""

    of: str  # what it is a part of: `identity`
    first: int  # how many paragraphs of the shard are before it
    part: Part
    types: tuple[str, ...]  # from here on as in `Rows`, of this part
    pieces: tuple[int, ...]
    quarantine: tuple[Quarantined, ...] = ()
    sha256: str = ""  # of the line before this key, which is the last; empty of an earlier version


_KEY = ', "sha256": '


def _read_finished(line: str, where: str) -> Finished:
    one = from_json(Finished, line, where=where)
    if one.sha256 not in {"", hashlib.sha256(line.rpartition(_KEY)[0].encode()).hexdigest()}:
        raise JobkitError(f"{where}: does not match its SHA-256")
    return one


def identity(run_dir: Path, index: int) -> str:
    """Return the SHA-256 of the lines with setting and plan of a shard: no version changes them."""
    point = next(line for number, line in read_lines(run_dir / POINTS_FILE) if number == index)
    shard = next(
        line for _, line in read_lines(run_dir / PLAN_FILE) if line.startswith(f'{{"index": {index},')
    )
    return hashlib.sha256(f"{point}{shard}".rstrip("\n").encode()).hexdigest()


def adopt(run_dir: Path, point: Point, try_number: int, shard: Shard, of: str) -> tuple[list[Finished], int]:
    """Return the whole parts that other tries left, without a gap, and how many tries worked and left none.

    The last paragraphs stay for this try. A part that is not adopted though it would fit is named in the log.
    What was in quarantine when a person ordered another try is not adopted.
    """
    numbers = [n for n in try_numbers(f"{run_dir}/results/{point.point_id}") if n != try_number]
    folders = {number: Path(try_folder(run_dir, point.point_id, number)) for number in numbers}
    ordered = max((n for n in numbers if (folders[n] / GONE_ROWS).is_file()), default=0)
    found, vain = dict[int, list[Finished]](), 0
    for number, folder in folders.items():
        lines, notes = read_tolerantly(folder / PARTS_FILE, _read_finished)
        vain += not lines and number < try_number and (folder / BATCHES_FILE).is_file()
        foreign = [one.part.file for one in lines if one.of != of]
        if foreign:
            notes = (*notes, f"{folder}: {', '.join(foreign)}: of another plan or setting, so not adopted")
        for note in notes:
            process.report(note)
        for one in lines:
            if one.of == of and not (one.quarantine and number <= ordered):
                part = replace(one.part, file=f"../{TRY_PREFIX}{number}/{one.part.file}")
                found.setdefault(one.first, []).append(replace(one, part=part))
    adopted, at = list[Finished](), 0
    folder = Path(try_folder(run_dir, point.point_id, try_number))
    while True:
        left = shard.paragraphs - at
        fitting = [one for one in found.get(at, ()) if 0 < one.part.paragraphs < left]
        fitting.sort(key=lambda one: one.part.paragraphs, reverse=True)
        best = next((one for one in fitting if _whole(folder, adopted, one)), None)
        if best is None:
            break
        adopted.append(replace(best, part=replace(best.part, number=len(adopted) + 1)))
        at += best.part.paragraphs
    if adopted:
        process.report(f"goes on after {len(adopted)} parts, {at:,} of {shard.paragraphs:,} paragraphs")
    return adopted, vain


def _whole(folder: Path, adopted: Sequence[Finished], one: Finished) -> bool:
    path, together = folder.parent / one.part.file.removeprefix("../"), joined([*adopted, one])
    try:
        reason = together.fault(one.first + one.part.paragraphs)
        if not reason and digest(path) == (one.part.size_bytes, one.part.sha256):
            return True
        reason = reason or "does not match its SHA-256"
    except OSError as error:
        reason = str(error.strerror)
    process.report(f"{path}: {reason}, so it is not adopted")
    return False


def joined(finished: Sequence[Finished]) -> Rows:
    """Return the manifest of a shard in these parts."""
    parts = tuple(one.part for one in finished)
    sha256 = hashlib.sha256("".join(f"{part.sha256}\n" for part in parts).encode()).hexdigest()
    words = zip_longest(*(one.types for one in finished), fillvalue="")
    return Rows(
        rows=sum(part.rows for part in parts),
        paragraphs=sum(part.paragraphs for part in parts),
        size_bytes=sum(part.size_bytes for part in parts),
        sha256=parts[0].sha256 if len(parts) == 1 else sha256,
        columns=parts[0].columns,
        types=tuple(" ".join(sorted({*" ".join(each).split()})) for each in words),
        pieces=tuple(map(sum, zip_longest(*(one.pieces for one in finished), fillvalue=0))),
        parts=parts,
    )


# -- all parts of a shard

PART_S = 10.0
"""A part is of so much work, so that a kill each minute leaves most of the minute."""
SHARE = 0.1
"""Of the time of a try: a later part is longer, so that a shard of hours has some dozens of files."""
FIRST_SPEED = 5000
"""Characters in a second, for the first window, if the plan does not know the speed."""


class RowsFile(Output):
    """The rows or vectors of a shard, window by window in corpus order, in parts.

    A part ends with a window and never changes. The manifest comes last: before it, the parts are of use only
    to another try.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._finished: list[Finished] = []
        self._writer: RowsWriter | VectorsWriter | None = None
        self._first = self._paragraphs = 0  # of the part: its first paragraph, and how many it covers
        self._whole = True  # whether what was written ends with a window
        self._bad: list[Quarantined] = []  # of the part
        # windows without rows at the beginning, as long as it is not known whether there are vectors
        self._held: list[Paragraph] = []
        self._of, self._left = "", 0
        self._part_s = PART_S
        self.window_characters = 0

    def go_on(self, shard: Shard, of: str, adopted: Sequence[Finished], vain: int) -> None:
        """Begin after the parts of earlier tries; end some as parts of ``of``, as `Finished` has it.

        ``vain`` earlier tries left no part, so the parts of this try are shorter.
        """
        self._finished, self._of = [*adopted], of
        self._left = shard.paragraphs - sum(one.part.paragraphs for one in adopted)
        self._part_s = PART_S / 4**vain
        speed = shard.characters / shard.expected_s if shard.expected_s else FIRST_SPEED
        self.window_characters = int(self._part_s * speed)

    def open(self, columns: Sequence[str]) -> None:
        self._columns, self._order = tuple(columns), text_order(columns)
        if len({*GIVEN, *columns}) < len(GIVEN) + len(columns):
            raise JobkitError(f"columns {', '.join(columns)}: each name once, and none of {', '.join(GIVEN)}")
        for was in {one.part.columns for one in self._finished} - {self._columns}:
            both = f"{', '.join(was)}, and the workload has {', '.join(columns)}"
            raise TryFailed(Outcome.ENVIRONMENT, f"the {PARTS_FILE} of earlier tries has the columns {both}")
        (self._folder / MANIFEST_FILE).unlink(missing_ok=True)  # of an earlier process
        self._opened_s = self._part_began_s = self._written_s = time.monotonic()

    def write(
        self, rows: list[Row], first: int, places: Sequence[Paragraph], bad: Sequence[Bad] = ()
    ) -> None:
        self._bad += [_quarantined(places[one[0] - first], one) for one in sorted(bad)]
        if not rows and bad and not (self._writer or self._finished):
            self._held += places
            return
        with process.signals_blocked():
            self._whole = False
            without = [*range(first - len(self._held), first), *(number for number, *_ in bad)]
            first, places, self._held = first - len(self._held), [*self._held, *places], []
            writer = self._writer or self._begin(rows, first)
            if isinstance(writer, RowsWriter):
                for number, *values in sorted(rows, key=self._order):
                    writer.write(places[number - first], values)
            else:
                window = range(first, first + len(places))
                writer.write(in_order(rows, window, without, " ".join(writer.types)))
            self._paragraphs, self._left = self._paragraphs + len(places), self._left - len(places)
            now_s, before_s = time.monotonic(), self._written_s
            due_s, self._written_s = max(self._part_s, SHARE * (now_s - self._opened_s)), now_s
            speed = sum(len(place.text) for place in places) / max(now_s - before_s, 1e-6)
            self.window_characters = int(due_s * speed)
            if self._left > 0 and now_s - self._part_began_s >= due_s / 2:
                self._leave_part()
            self._whole = True

    def _begin(self, rows: list[Row], first: int) -> RowsWriter | VectorsWriter:
        place = self._folder, len(self._finished) + 1, self._columns
        before = " ".join(self._finished[-1].types) if self._finished else ""
        if "[" in before or (rows and not isinstance(rows[0][0], int)):
            self._writer = VectorsWriter(*place, before if "[" in before else type_of(rows[0][1]))
        else:
            self._writer = RowsWriter(*place)
        self._first, self._paragraphs = first, 0
        return self._writer

    def _leave_part(self) -> None:
        """End the part before the shard is done, for another try."""
        line = to_json(self._end_part()).rpartition(_KEY)[0]
        sha256 = hashlib.sha256(line.encode()).hexdigest()
        append_line(self._folder / PARTS_FILE, f'{line}{_KEY}"{sha256}"}}')
        self._part_began_s = time.monotonic()

    def _end_part(self, *, last: bool = False) -> Finished:
        writer, number = self._writer or self._begin([], 0), len(self._finished) + 1
        self._paragraphs += len(self._held)
        file, size, sha256 = writer.end(only=last and number == 1)
        part = Part(number, file, self._paragraphs, writer.rows, self._columns, size, sha256)
        one = Finished(self._of, self._first, part, writer.types, tuple(writer.pieces), tuple(self._bad))
        self._writer, self._bad = None, []
        self._finished.append(one)
        return one

    def close(self, left: Sequence[Row], *, failed: bool) -> None:
        """End the last part and write the manifest; a try that failed leaves its whole windows as a part."""
        del left
        try:
            if not failed:
                self._end_part(last=True)
                rows = replace(joined(self._finished), quarantine=self._write_quarantine())
                write_atomically(self._folder / MANIFEST_FILE, to_json(rows) + "\n")
            elif self._writer and self._whole and self._of:
                with suppress(OSError):  # the disk may be full
                    self._leave_part()
        finally:
            if self._writer:
                self._writer.discard()
        if failed:
            self._write_quarantine()

    def _write_quarantine(self) -> Part | None:
        bad = [*(line for one in self._finished for line in one.quarantine), *self._bad]
        if not bad:
            return None
        path = self._folder / QUARANTINE_FILE
        write_atomically(path, "".join(f"{to_json(one)}\n" for one in bad))
        return Part(0, path.name, len(bad), 0, (), *digest(path, sync=True))


def _quarantined(paragraph: Paragraph, bad: Bad) -> Quarantined:
    return Quarantined(
        document=paragraph.document,
        paragraph=paragraph.number,
        start=given_offset(paragraph, 0),
        end=given_offset(paragraph, len(paragraph.text.removesuffix("\n"))),
        outcome=str(bad[1]),
        message=bad[2],
    )
