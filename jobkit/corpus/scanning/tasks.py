"""Cut a corpus into the parts that processes read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from jobkit.corpus.scanning.parts import Part
from jobkit.corpus.sources import Found

RANGE_BYTES = 2**25
"""An uncompressed file with more than two of these is read in ranges, by several processes."""
TASK_BYTES = 2**23
TASK_FILES = 256
MOST_PIECES = 200_000
_GROWTH = {"": 1, "gz": 4, "zst": 4}
"""What text grows by when it is decompressed, roughly."""


def piece_bytes(found: Sequence[Found]) -> int:
    """Return how many bytes a piece of a corpus should have.

    Those of a small corpus are paragraphs. 16 MiB have 4,000 pieces of 4 KiB, 1 GiB has 26,000 of 40 KiB, and
    100 GiB have 200,000 of half a MiB: more and larger ones, as a larger corpus has more and larger shards.
    A still larger corpus has larger pieces, not more.
    """
    size = sum(one.size_bytes * _GROWTH[one.compression] for one in found)
    small, large = 2**24, MOST_PIECES * 2**19
    if size < small:
        return size // 2**12
    return max(int(2**12 * (size / small) ** (math.log(2**7) / math.log(large / small))), size // MOST_PIECES)


def tasks(
    found: Sequence[Found], fields: tuple[str, str], left_out: frozenset[int] | set[int]
) -> Iterator[list[Part]]:
    """Yield what a process reads at once: a range of a large file, or several small files.

    Parameters
    ----------
    found
        The files.
    fields
        The names of text and id of a JSONL document.
    left_out
        Numbers of files that are not read.
    """
    target = piece_bytes(found)
    task: list[Part] = []
    size = 0
    for number, one in enumerate(found):
        if number in left_out:
            continue
        if not one.compression and one.size_bytes > 2 * RANGE_BYTES:
            if task:
                yield task
            task, size = [], 0
            yield from ([part] for part in _ranges(number, one, fields, target))
            continue
        task.append(_part(number, one, fields, target))
        size += one.size_bytes
        if len(task) == TASK_FILES or size > TASK_BYTES:
            yield task
            task, size = [], 0
    if task:
        yield task


def _part(number: int, one: Found, fields: tuple[str, str], target: int) -> Part:
    return Part(
        source=number,
        path=one.path,
        name=one.name,
        kind=one.kind,
        compression=one.compression,
        size_bytes=one.size_bytes,
        target=target,
        text_field=fields[0],
        id_field=fields[1],
    )


def _ranges(number: int, one: Found, fields: tuple[str, str], target: int) -> Iterator[Part]:
    """Yield the digest of a large file and its ranges.

    One process computes the SHA-256 of the file, which goes from its beginning to its end, while others
    read the ranges: from the disk the file comes once, and then from memory.
    """
    whole = _part(number, one, fields, target)
    yield replace(whole, digest=True)
    for start in range(0, one.size_bytes, RANGE_BYTES):
        yield replace(whole, start=start, stop=min(start + RANGE_BYTES, one.size_bytes))
