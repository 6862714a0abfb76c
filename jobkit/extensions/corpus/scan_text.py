"""A part of the corpus that one process reads, and the paragraphs of a text file in it, found with numpy."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from jobkit.core.paragraphs import BOM, Fields
from jobkit.extensions.corpus.plan import Source
from jobkit.extensions.corpus.sources import Stream

LONGEST_BYTES = 2**26  # the longest paragraph of a text file, and the longest line of a JSONL file


class PieceRow(NamedTuple):
    """A `jobkit.extensions.corpus.plan.Piece` of a part; places count from the part, the digest is bytes."""

    start: int
    end: int
    skip: int
    line: int
    first_paragraph: int
    first_character: int
    paragraphs: int
    characters: int
    longest: int
    sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPart:
    source: int  # its number among the files that were found
    file: Source  # as it was found
    # The range begins with the first paragraph (line of JSONL) after ``start`` and ends with the one that
    # contains ``stop``, which is ``None`` for a whole file.
    start: int = 0
    stop: int | None = None
    digest: bool = False  # whether to compute only the SHA-256 of the file
    target: int  # how many bytes a piece should have
    fields: Fields  # of JSONL
    left_out: frozenset[int] = frozenset()  # lines of JSONL, counted from the part's first, that are not read


@dataclass(slots=True, kw_only=True)
class PartResult:
    start: int = 0  # bytes of the range, up to ``end``
    end: int = 0
    sha256: str = ""  # of the file, if the part is all of it
    pieces: list[PieceRow] = field(default_factory=list)  # in order
    documents: int = 0  # counts; ``characters`` are those of paragraphs
    paragraphs: int = 0
    characters: int = 0
    given: int = 0  # the characters of a text file as given
    lines: int = 0  # how many
    # lines, from 1, and reasons; line 0 is the whole file
    bad: list[tuple[int, str]] = field(default_factory=list)
    ids: bytearray = field(default_factory=bytearray)  # A hash of 8 bytes for each document with an id
    unnamed: int = 0  # the number of documents without an id
    # files that ids look like, ``FILE:LINE``: documents without an id get such ids
    likened: set[str] = field(default_factory=set)


class BadPartError(Exception):
    """A part that cannot be read; ``line`` is in the part, from 1, or 0 for the whole file."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


def refuse_long(size: int, what: str) -> None:
    if size > LONGEST_BYTES:
        raise BadPartError(0, f"a {what} of more than {LONGEST_BYTES // 2**20} MiB")


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Places = NDArray[np.int64]
    Flags = NDArray[np.bool_]

TEXT_BLOCK_BYTES = 2**21
"""Bytes that are read at once: fewer cost calls of numpy, more cost memory and cache misses."""
WHITE_ASCII = (9, 10, 11, 12, 13, 28, 29, 30, 31, 32)  # white space of one byte, as ``str.strip`` knows it
WHITE_WIDE = (
    *(b"\xc2\x85", b"\xc2\xa0", b"\xe1\x9a\x80", b"\xe3\x80\x80", b"\xe2\x81\x9f"),
    *(b"\xe2\x80" + bytes([last]) for last in (*range(0x80, 0x8B), 0xA8, 0xA9, 0xAF)),
)
"""White space of two or three bytes: U+0085, U+00A0, U+1680, U+3000, U+205F, U+2000 to U+202F."""
_ROUNDS = 32  # white-space characters at the start of a line that numpy passes; more, one by one


def scan_text(stream: Stream, result: PartResult, *, first: bool, target: int) -> None:
    """Add the paragraphs of a stream, a text file or a range that begins at ``result.start``, to a result.

    The stream begins and ends between paragraphs. ``first``: it begins the file. ``target``: bytes that a
    piece should have.
    """
    place = result.start
    for data in blocks(stream):
        skip = len(BOM) if first and place == 0 and data.startswith(BOM) else 0
        _check(data, result, place)
        _add_pieces(data, result, place=place, skip=skip, target=target)
        place += len(data)
    result.end = place


def blocks(stream: Stream) -> Iterator[bytes]:
    rest = b""
    while True:
        asked = max(TEXT_BLOCK_BYTES, len(rest))
        more = _read_exactly(stream, asked)
        data = rest + more
        if len(more) < asked:  # the end
            if data:
                yield data
            return
        end = last_gap(data)
        if end:
            yield data[:end]
        rest = data[end:]
        refuse_long(len(rest), "paragraph")


def _read_exactly(stream: Stream, size: int) -> bytes:
    """Return so many bytes; fewer only at the end."""
    parts = []
    while size > 0 and (data := stream.read(size)):
        parts.append(data)
        size -= len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def last_gap(data: bytes) -> int:
    """Return the end of the last blank line that is whole; 0 if there is none."""
    begin = max(0, len(data) - 2**16)
    while True:  # mostly the last lines suffice
        ends, black = _lines(data[begin:], final=False)
        blank = (~black).nonzero()[0]
        if begin and blank.size and blank[0] == 0:
            blank = blank[1:]  # its beginning is not there
        if blank.size:
            return begin + int(ends[blank[-1]])
        if begin == 0:
            return 0
        begin = max(0, len(data) - (len(data) - begin) * 8)


def first_gap(data: bytes) -> int:
    """Return the end of the first whole blank line after the first line end; 0 if there is none."""
    ends, black = _lines(data, final=False)
    blank = (~black[1:]).nonzero()[0]
    return int(ends[1:][blank[0]]) if blank.size else 0


def _lines(data: bytes, *, final: bool) -> tuple[Places, Flags]:
    """Return the end of each line, and whether it has more than white space.

    ``final``: the file ends here, so the last line needs no line end.
    """
    import numpy as np

    array = np.frombuffer(data, np.uint8)
    ends = _line_ends(data, array, final=final)
    if final and (ends[-1] if ends.size else 0) < len(data):
        ends = np.append(ends, len(data))
    starts = np.concatenate(([0], ends[:-1])) if ends.size else ends
    return ends, _black(data, array, starts, ends)


def _line_ends(data: bytes, array: Bytes, *, final: bool) -> Places:
    import numpy as np

    feeds = array == 10  # noqa: PLR2004 - a newline
    if b"\r" in data:
        alone = array == 13  # noqa: PLR2004 - a carriage return
        alone[:-1] &= ~feeds[1:]
        alone[-1] &= final  # a newline may follow
        feeds |= alone
    return np.flatnonzero(feeds) + 1


def _black(data: bytes, array: Bytes, starts: Places, ends: Places) -> Flags:
    """Return which lines have more than white space, as ``str.strip`` judges."""
    import numpy as np

    black = np.ones(len(starts), np.bool_)
    if not len(starts):
        return black
    unsure = np.flatnonzero(_UNSURE.array()[array[starts]])
    places = starts[unsure]
    for _ in range(_ROUNDS):
        if not unsure.size:
            return black
        widths = _white(array, places)
        places = places + widths
        over = places >= ends[unsure]
        black[unsure[over]] = False
        more = (widths > 0) & ~over
        unsure, places = unsure[more], places[more]
    for line, place in zip(unsure.tolist(), places.tolist(), strict=True):
        black[line] = bool(data[place : ends[line]].decode(errors="replace").strip())
    return black


class _Table:
    """A table with a flag for each byte, made when it is first used."""

    def __init__(self, values: tuple[int, ...]) -> None:
        self._values = values
        self._array: Any = None

    def array(self) -> Flags:
        import numpy as np

        if self._array is None:
            self._array = np.zeros(256, np.bool_)
            self._array[list(self._values)] = True
        flags: Flags = self._array
        return flags


_WHITE = _Table(WHITE_ASCII)
_WIDE = _Table(tuple({char[0] for char in WHITE_WIDE}))
_UNSURE = _Table((*WHITE_ASCII, *{char[0] for char in WHITE_WIDE}))


def _white(array: Bytes, places: Places) -> Places:
    """Return how many bytes the white space at each place has: 0 for any other character."""
    import numpy as np

    firsts = array[places]
    widths = _WHITE.array()[firsts].astype(np.int64)
    wide = np.flatnonzero(_WIDE.array()[firsts])
    if wide.size:
        last = len(array) - 1
        seconds = array[np.minimum(places[wide] + 1, last)].astype(np.int64)
        thirds = array[np.minimum(places[wide] + 2, last)]
        pairs = firsts[wide].astype(np.int64) << 8 | seconds
        two = [int.from_bytes(char, "big") for char in WHITE_WIDE if len(char) == 2]  # noqa: PLR2004 - bytes
        three = [int.from_bytes(char, "big") for char in WHITE_WIDE if len(char) == 3]  # noqa: PLR2004
        widths[wide] = 2 * np.isin(pairs, two) + 3 * np.isin(pairs << 8 | thirds, three)
    return widths


def _check(data: bytes, result: PartResult, place: int) -> None:
    if data.isascii():
        return
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = result.lines + len(_lines(data[: error.start], final=False)[0]) + 1
        raise BadPartError(line, f"not UTF-8 at byte {place + error.start}") from error


def _add_pieces(data: bytes, result: PartResult, *, place: int, skip: int, target: int) -> None:
    import numpy as np

    body = data[skip:] if skip else data
    ends, black = _lines(body, final=True)
    result.lines += len(ends)
    edges = np.flatnonzero(np.diff(black, prepend=False, append=False))
    lines = np.concatenate(([0], ends))
    bounds = lines[edges]
    counts, before, total = _counts(body, bounds)
    skipped = 1 if skip else 0
    if bounds.size:
        refuse_long(int((bounds[1::2] - bounds[::2]).max()), "paragraph")
        result.pieces += _pieces(
            memoryview(body),
            bounds.tolist(),
            counts,
            target=target,
            base=(place + skip, result.paragraphs, result.given + skipped),
            before=before,
        )
    result.paragraphs += len(counts)
    result.characters += int(counts.sum())
    result.given += total + skipped


def _counts(data: bytes, bounds: Places) -> tuple[Places, Places, int]:
    """Return the characters of each paragraph, those of the file before it, and those of the block."""
    import numpy as np

    spans = np.diff(np.concatenate(([0], bounds, [len(data)])))
    less = np.zeros(len(spans), np.int64)
    if not data.isascii():
        less = _sums(np.frombuffer(data, np.int8) < -64, bounds)  # noqa: PLR2004 - bytes 0x80 to 0xBF
    given = spans - less
    before = np.cumsum(given)[:-1:2]
    counts = given[1::2].copy()
    if b"\r" in data:
        array = np.frombuffer(data, np.uint8)
        pairs = np.zeros(len(data), np.bool_)
        pairs[:-1] = (array[:-1] == 13) & (array[1:] == 10)  # noqa: PLR2004 - a carriage return, a newline
        counts -= _sums(pairs, bounds)[1::2]
    return counts, before, int(given.sum())


def _sums(flags: Flags, bounds: Places) -> Places:
    """Return how many flags are set before the first bound, between each two, and after the last."""
    import numpy as np

    if not bounds.size:
        return np.array([np.count_nonzero(flags)])
    inner = bounds[bounds < len(flags)]
    sums = np.add.reduceat(flags, inner, dtype=np.int32)  # twice as fast as with int64
    after = np.zeros(len(bounds) - len(inner), np.int64)
    return np.concatenate(([np.count_nonzero(flags[: bounds[0]])], sums, after))


def _pieces(
    data: memoryview,
    bounds: list[int],
    counts: Places,
    *,
    target: int,
    base: tuple[int, int, int],
    before: Places,
) -> Iterator[PieceRow]:
    """Yield pieces of about ``target`` bytes.

    ``bounds`` are the start and the end of each paragraph, in turn; ``counts`` and ``before`` its characters,
    and those before it in the block as given; ``base`` the bytes, paragraphs and characters of the part
    before the block.
    """
    import numpy as np

    starts, ends = bounds[::2], bounds[1::2]
    cuts = [0]
    while cuts[-1] < len(starts):
        cuts.append(max(cuts[-1] + 1, bisect_right(ends, starts[cuts[-1]] + target)))
    longest = np.maximum.reduceat(counts, cuts[:-1]).tolist()
    sums = np.add.reduceat(counts, cuts[:-1]).tolist()
    givens = before[cuts[:-1]].tolist()
    for number, (first, last) in enumerate(pairwise(cuts)):
        start, end = starts[first], ends[last - 1]
        yield PieceRow(
            start=base[0] + start,
            end=base[0] + end,
            skip=0,
            line=0,
            first_paragraph=base[1] + first,
            first_character=base[2] + givens[number],
            paragraphs=last - first,
            characters=sums[number],
            longest=longest[number],
            sha256=hashlib.sha256(data[start:end]).digest(),
        )
