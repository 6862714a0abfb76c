"""The parts of a shard that tries leave, and what a later try adopts of them. Standard library only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from jobkit.core.files import read_tolerantly
from jobkit.core.json_codec import from_json, to_json
from jobkit.core.layout import BATCHES_FILE, TRY_PREFIX, try_folder, try_numbers
from jobkit.core.records import Point
from jobkit.extensions.corpus.plan import Part, Rows, Shard
from jobkit.extensions.corpus.winners import digest
from jobkit.worker import process

PARTS_FILE = "parts.jsonl"


@dataclass(frozen=True, slots=True)
class Finished:
    """A part that was finished before its shard was: a line of ``parts.jsonl`` in the folder of the try."""

    of: str  # what it is a part of: `identity`
    first: int  # how many paragraphs of the shard are before it
    part: Part
    types: tuple[str, ...]  # from here on as in `Rows`, of this part
    pieces: tuple[int, ...]


def identity(point: Point, shard: Shard) -> str:
    """Return the SHA-256 of a shard's plan and setting: text, model, files of the workload, and knobs."""
    return hashlib.sha256(f"{to_json(point)}\n{to_json(shard)}".encode()).hexdigest()


def adopt(run_dir: Path, point: Point, try_number: int, shard: Shard, of: str) -> tuple[list[Finished], int]:
    """Return the whole parts that other tries left, without a gap, and how many tries worked and left none.

    The last paragraphs stay for this try. A part that is not adopted though it would fit is named in the log.
    """
    numbers = [n for n in try_numbers(f"{run_dir}/results/{point.point_id}") if n != try_number]
    folders = {number: Path(try_folder(run_dir, point.point_id, number)) for number in numbers}
    found, vain = dict[int, list[Finished]](), 0
    for number, folder in folders.items():
        lines, notes = read_tolerantly(
            folder / PARTS_FILE, lambda line, where: from_json(Finished, line, where=where)
        )
        vain += not lines and number < try_number and (folder / BATCHES_FILE).is_file()
        foreign = [one.part.file for one in lines if one.of != of]
        if foreign:
            notes = (*notes, f"{folder}: {', '.join(foreign)}: of another plan or setting, so not adopted")
        for note in notes:
            process.report(note)
        for one in lines:
            if one.of == of:
                part = replace(one.part, file=f"../{TRY_PREFIX}{number}/{one.part.file}")
                found.setdefault(one.first, []).append(replace(one, part=part))
    adopted, at = list[Finished](), 0
    folder = Path(try_folder(run_dir, point.point_id, try_number))
    while True:
        left = shard.paragraphs - at
        fitting = [one for one in found.get(at, ()) if 0 < one.part.paragraphs < left]
        fitting.sort(key=lambda one: one.part.paragraphs, reverse=True)
        best = next((one for one in fitting if _whole(folder, one)), None)
        if best is None:
            break
        adopted.append(replace(best, part=replace(best.part, number=len(adopted) + 1)))
        at += best.part.paragraphs
    if adopted:
        process.report(f"goes on after {len(adopted)} parts, {at:,} of {shard.paragraphs:,} paragraphs")
    return adopted, vain


def _whole(folder: Path, one: Finished) -> bool:
    path = folder.parent / one.part.file.removeprefix("../")
    try:
        if digest(path) == (one.part.size_bytes, one.part.sha256):
            return True
        reason = "does not match its SHA-256"
    except OSError as error:
        reason = str(error.strerror)
    process.report(f"{path}: {reason}, so it is not adopted")
    return False


def joined(finished: Sequence[Finished]) -> Rows:
    """Return the manifest of a shard in these parts."""
    parts = tuple(one.part for one in finished)
    sha256 = hashlib.sha256("".join(f"{part.sha256}\n" for part in parts).encode()).hexdigest()
    words = zip(*(one.types for one in finished), strict=True)
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
