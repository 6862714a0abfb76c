"""Write the result of a shard: rows or vectors in parts, synced, counted, and with a manifest.

Standard library only. docs/contracts.md has the schema.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, cast

from jobkit.core.errors import JobkitError, name_file_in_errors
from jobkit.core.files import append_line, read_lines, read_tolerantly, write_atomically
from jobkit.core.frozen import frozen
from jobkit.core.json_codec import from_json, to_json
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
)
from jobkit.extensions.corpus.readers import Paragraph, given_offset
from jobkit.extensions.corpus.vectors import VectorsWriter, in_order
from jobkit.extensions.corpus.winners import digest
from jobkit.worker import process
from jobkit.worker.failure import TryFailed
from jobkit.worker.workloads.base import Bad, Output, Row, text_order, type_of

OFFSETS = frozenset({"start", "end"})
"""Columns of offsets into the paragraph's text; a row has offsets into the document as given."""
_encode = json.JSONEncoder(ensure_ascii=False).encode
_TYPES = {str: "str", int: "int", float: "float", bool: "bool", type(None): "null"}


class Line(NamedTuple):
    """A row as it is written."""

    order: tuple[Any, ...]  # by which it is sorted within a window
    piece: int  # of the shard
    types: tuple[str, ...]  # of each column
    text: bytes


class RowsWriter:
    """Writes a part of rows, one JSON object a line in order.

    Until it is whole it has another name, which the job script does not copy home.
    """

    def __init__(self, folder: Path, number: int, columns: Sequence[str]) -> None:
        self._path = folder / f"part-{number:05d}.jsonl"
        self._part = folder / f"{self._path.name}.part"
        self._types = {("",) * len(columns)}
        self._digest = hashlib.sha256()
        self._file = self._part.open("wb", buffering=2**18)
        self.rows = 0
        self.pieces: list[int] = []

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(" ".join(sorted({*types} - {""})) for types in zip(*self._types, strict=True))

    def write(self, lines: list[Line]) -> None:
        with name_file_in_errors(self._path):
            for line in sorted(lines, key=itemgetter(0)):
                self._file.write(line.text)
                self._digest.update(line.text)
                self._types.add(line.types)
                self.rows += 1
                self.pieces += [0] * (line.piece + 1 - len(self.pieces))
                self.pieces[line.piece] += len(line.text)

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
    found, vain = _left_by_others(run_dir, point, try_number, of)
    adopted = _chain(found, shard.paragraphs, Path(try_folder(run_dir, point.point_id, try_number)))
    if adopted:
        done = sum(one.part.paragraphs for one in adopted)
        process.report(f"goes on after {len(adopted)} parts, {done:,} of {shard.paragraphs:,} paragraphs")
    return adopted, vain


def _left_by_others(
    run_dir: Path, point: Point, try_number: int, of: str
) -> tuple[dict[int, list[Finished]], int]:
    """Return the parts of other tries by their first paragraph, and how many tries worked and left none."""
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
    return found, vain


def _chain(found: Mapping[int, list[Finished]], paragraphs: int, folder: Path) -> list[Finished]:
    """Return parts without a gap from the first paragraph on: of each place the longest that is whole."""
    adopted, at = list[Finished](), 0
    while True:
        fitting = [one for one in found.get(at, ()) if 0 < one.part.paragraphs < paragraphs - at]
        fitting.sort(key=lambda one: one.part.paragraphs, reverse=True)
        best = next((one for one in fitting if _whole(folder, adopted, one)), None)
        if best is None:
            return adopted
        adopted.append(replace(best, part=replace(best.part, number=len(adopted) + 1)))
        at += best.part.paragraphs


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
        self._columns: tuple[str, ...] = ()
        self._finished: list[Finished] = []
        self._writer: RowsWriter | VectorsWriter | None = None
        # of the part: its first paragraph, and how many it covers
        self._first = 0
        self._paragraphs = 0
        self._whole = True  # whether what was written ends with a window
        self._seen_types: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._bad: list[Quarantined] = []  # of the part
        # windows without rows at the beginning, as long as it is not known whether there are vectors
        self._held: list[Paragraph] = []
        self._of = ""
        self._left = 0  # paragraphs
        self._part_s = PART_S
        self._opened_s = self._part_began_s = self._written_s = 0.0
        self.window_characters = 0

    def go_on(self, shard: Shard, of: str, adopted: Sequence[Finished], vain: int) -> None:
        """Begin after the parts of earlier tries; end some as parts of ``of``, as `Finished` has it.

        ``vain`` earlier tries left no part, so the parts of this try are shorter.
        """
        self._finished = [*adopted]
        self._of = of
        self._left = shard.paragraphs - sum(one.part.paragraphs for one in adopted)
        self._part_s = PART_S / 4**vain
        speed = shard.characters / shard.expected_s if shard.expected_s else FIRST_SPEED
        self.window_characters = int(self._part_s * speed)

    def open(self, columns: Sequence[str]) -> None:
        self._columns = tuple(columns)
        if len({*GIVEN, *columns}) < len(GIVEN) + len(columns):
            raise JobkitError(f"columns {', '.join(columns)}: each name once, and none of {', '.join(GIVEN)}")
        for was in {one.part.columns for one in self._finished} - {self._columns}:
            both = f"{', '.join(was)}, and the workload has {', '.join(columns)}"
            raise TryFailed(Outcome.ENVIRONMENT, f"the {PARTS_FILE} of earlier tries has the columns {both}")
        (self._folder / MANIFEST_FILE).unlink(missing_ok=True)  # of an earlier process
        self._opened_s = self._part_began_s = self._written_s = time.monotonic()

    def encode(self, rows: Sequence[Row], first: int, places: Sequence[Paragraph]) -> Sequence[Row]:
        if not rows or not isinstance(rows[0][0], int):  # vectors
            return rows
        order = text_order(self._columns)
        return [self._line(places[row[0] - first], row, order(row)) for row in rows]

    def _line(self, paragraph: Paragraph, row: Row, order: tuple[Any, ...]) -> Line:
        found = {"document": paragraph.document, "paragraph": paragraph.number}
        found |= zip(self._columns, row[1:], strict=True)
        for name in OFFSETS.intersection(self._columns):
            if isinstance(at := found[name], int):
                found[name] = given_offset(paragraph, at)
        types = tuple(_TYPES.get(type(value), "other") for value in row[1:])
        types = self._seen_types.setdefault(types, types)  # one tuple for all rows: they wait in memory
        text = _encode(found).encode("utf-8", "backslashreplace") + b"\n"
        return Line(order, paragraph.piece, types, text)

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
            first -= len(self._held)
            places = [*self._held, *places]
            self._held = []
            self._write_rows(rows, first, places, without)
            due_s = self._pace(places)
            if self._left > 0 and self._written_s - self._part_began_s >= due_s / 2:
                self._leave_part()
            self._whole = True

    def _write_rows(
        self, rows: list[Row], first: int, places: Sequence[Paragraph], without: Sequence[int]
    ) -> None:
        writer = self._writer or self._begin(rows, first)
        if isinstance(writer, RowsWriter):
            writer.write(cast("list[Line]", rows))
        else:
            window = range(first, first + len(places))
            writer.write(in_order(rows, window, without, " ".join(writer.types)))
        self._paragraphs += len(places)
        self._left -= len(places)

    def _pace(self, places: Sequence[Paragraph]) -> float:
        """Let the next window be a part at the speed of this one; return the seconds of a part."""
        now_s = time.monotonic()
        due_s = max(self._part_s, SHARE * (now_s - self._opened_s))
        speed = sum(len(place.text) for place in places) / max(now_s - self._written_s, 1e-6)
        self.window_characters = int(due_s * speed)
        self._written_s = now_s
        return due_s

    def _begin(self, rows: list[Row], first: int) -> RowsWriter | VectorsWriter:
        place = self._folder, len(self._finished) + 1, self._columns
        before = " ".join(self._finished[-1].types) if self._finished else ""
        if "[" in before or (rows and not isinstance(rows[0], Line)):
            self._writer = VectorsWriter(*place, before if "[" in before else type_of(rows[0][1]))
        else:
            self._writer = RowsWriter(*place)
        self._first = first
        self._paragraphs = 0
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
        self._writer = None
        self._bad = []
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
