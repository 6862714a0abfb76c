"""The plan of a corpus: its sources, and its pieces cut into shards of equal load. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from itertools import pairwise
from pathlib import Path

from jobkit.core.errors import JobkitError, file_error, lost_file
from jobkit.core.files import read_json, read_lines, write_atomically
from jobkit.core.frozen import frozen, keyed
from jobkit.core.json_codec import from_json, to_json
from jobkit.core.layout import CORPUS_FILE, ORDER_FILE, PLAN_FILE, POINTS_FILE
from jobkit.core.terminal import shell_path

ROWS_FILE = "rows.jsonl"
MANIFEST_FILE = "rows.json"
QUARANTINE_FILE = "quarantine.jsonl"


@frozen
class Columns:
    """Where a table has its documents."""

    text: str  # the name of a column
    id: str  # empty if none has ids
    text_at: int  # the number of the column, from 0
    id_at: int  # -1 if none has ids
    width: int  # how many columns there are
    delimiter: str = ""  # of CSV
    group_bytes: int = 0  # of the largest row group of Parquet, decompressed


@keyed
class Source:
    path: str  # absolute, as the nodes see it
    name: str  # as the user gave it; a text file's document has this id
    kind: str  # ``text``, ``jsonl``, ``csv``, ``parquet`` or ``arrow``
    compression: str = ""  # empty, ``gz``, ``zst``, ``bz2`` or ``xz``
    encoding: str = ""  # empty for UTF-8, and for a table that is not text
    columns: Columns | None = None  # of a table
    size_bytes: int  # on disk
    mtime_ns: int
    sha256: str = ""  # of the file on disk; empty until it is read


@keyed
class Bad:
    source: str  # its name
    line: int  # from 1; 0 for the whole file
    reason: str = field(compare=False)  # in words, which a later version may change


@keyed
class Corpus:
    """What was read of a corpus: ``corpus.json``."""

    sources: tuple[Source, ...]  # in corpus order
    text_field: str = "text"  # keys of JSONL documents
    id_field: str = "id"
    split: int = 0  # a longer paragraph is cut at the ends of sentences; 0 for none
    skipped: tuple[Bad, ...] = ()  # the bad places that the user chose to leave out
    unread: tuple[str, ...] = ()  # the names of the files in its folders that jobkit does not read
    documents: int  # numbers of all that is not skipped
    paragraphs: int
    characters: int
    empty: int = 0  # documents without a paragraph; 0 also of an earlier version
    format: str = "jsonl"  # in which `jobkit merge` writes the results, unless it is asked for another
    # what it was before it grew, without its sources, which are the first ``grown_from``
    before: Corpus | None = None
    grown_from: int = 0

    def folders(self) -> list[str]:
        """Return the folders that hold all sources, also the targets of links; none is in another."""
        held = {str(Path(source.path).parent) for source in self.sources}
        held |= {str(Path(source.path).resolve().parent) for source in self.sources}
        return sorted(one for one in held if not any(str(up) in held for up in Path(one).parents))


@keyed
class Piece:
    """Consecutive paragraphs of one source: the smallest part that a shard holds."""

    source: int  # index into `Corpus.sources`
    # byte of the source, decompressed and as UTF-8, at which its first paragraph or document begins; of
    # Parquet and Arrow the number of its first row, from 0
    start: int
    end: int  # byte behind its last paragraph or document, or the number of the row there
    skip: int = 0  # paragraphs of the first document that belong to an earlier piece
    line: int = 0  # number of the first line or row, from 1; 0 for a text file
    first_paragraph: int = 0  # in its document, from 0
    first_character: int = 0  # in its document, from 0
    paragraphs: int
    characters: int
    longest: int  # the characters of its longest paragraph
    sha256: str  # of the bytes from ``start`` to ``end``, or of the ids and texts of its rows

    @property
    def size_bytes(self) -> int:
        """About how much text it has: places of rows are not bytes, and pieces of a document share them."""
        # at most, as UTF-8
        return min(max(self.end - self.start, self.characters), 4 * self.characters)


@keyed
class Shard:
    """The work of one point: a line of ``plan.jsonl``; line K is of point K."""

    index: int  # of its point, from 1
    pieces: tuple[Piece, ...]  # in corpus order
    load: int  # the estimate by which shards are made equal: padded characters
    expected_s: float | None = None  # time of the work; ``None`` if unknown
    low_s: float | None = None  # 95 % interval
    high_s: float | None = None
    slow_s: float | None = None  # of 100 such shards, 99 take no longer

    @property
    def paragraphs(self) -> int:
        return sum(piece.paragraphs for piece in self.pieces)

    @property
    def longest(self) -> Piece:
        """The piece with its longest paragraph."""
        return max(self.pieces, key=lambda piece: piece.longest)

    @property
    def characters(self) -> int:
        return sum(piece.characters for piece in self.pieces)


@frozen
class Part:
    """Rows of consecutive paragraphs of a shard, in a file of its own; one try writes each part once."""

    number: int  # from 1, in corpus order
    # from the folder of the try: ``rows.jsonl``, ``part-00001.arrow``, ``../try-1/part-00001.jsonl``
    file: str
    paragraphs: int  # that it covers, also those without a row
    rows: int
    columns: tuple[str, ...]  # names after ``document`` and ``paragraph``
    size_bytes: int
    sha256: str


@keyed
class Quarantined:
    """A paragraph that no process can take: a line of ``quarantine.jsonl``, without its text."""

    document: str
    paragraph: int  # in the document, from 0
    start: int  # characters of the document as it was given
    end: int
    outcome: str  # of the paragraph alone
    message: str


@keyed
class Rows:
    """What a try has of a shard, with the parts that it adopted of other tries: ``rows.json``."""

    rows: int  # of all parts
    paragraphs: int  # of the shard that it worked through, also those without a row
    size_bytes: int  # of all parts
    sha256: str  # of the only part; of several, of their SHA-256, each with a line end
    columns: tuple[str, ...] = field(default=())  # names after ``document`` and ``paragraph``
    types: tuple[str, ...] = field(default=())  # of each column: ``int``, ``int null``, ``fp32[384]``
    # bytes of the rows of each piece of the shard, without the zeros at the end; none of vectors
    pieces: tuple[int, ...] = field(default=())
    parts: tuple[Part, ...] = field(default=())  # none of an earlier version: ``rows.jsonl`` is the only part
    quarantine: Part | None = field(default=None)  # the file of its quarantine, if it has any

    @property
    def quarantined(self) -> int:
        """The number of its paragraphs that are in quarantine."""
        return self.quarantine.paragraphs if self.quarantine else 0

    @property
    def kept(self) -> int:
        """The number of its rows without the vectors that stand for paragraphs in quarantine."""
        return self.rows - (self.quarantined if self.vectors else 0)

    @property
    def vectors(self) -> str:
        """The type of its vectors, ``fp32[384]``, or of each column of arrays; empty of rows."""
        return " ".join(self.types) if any("[" in words for words in self.types) else ""

    def fault(self, paragraphs: int) -> str:
        """Return why this is no result of so many paragraphs; empty if all numbers agree."""
        parts, types = parts_of(self), self.vectors
        sums = [sum(getattr(part, name) for part in parts) for name in ("paragraphs", "rows", "size_bytes")]
        if self.paragraphs != paragraphs:
            return f"{self.paragraphs:,} paragraphs where the plan has {paragraphs:,}"
        if sums != [self.paragraphs, self.rows, self.size_bytes]:
            return "other numbers than its parts"
        if not types and self.pieces and sum(self.pieces) != self.size_bytes:
            return "rows of no piece of its plan"
        each = len(types.split()) == len(self.columns) and all(one.rows == one.paragraphs for one in parts)
        return "" if each or not types else f"{self.rows:,} rows, {types}: not a vector of each paragraph"


@keyed
class Winner(Rows):
    """The try whose rows count for a shard: ``winners/<point>.json``, linked once."""

    index: int  # of the point
    point_id: str = ""  # of the point
    try_number: int  # of the try


def parts_of(rows: Rows) -> tuple[Part, ...]:
    """Return the parts of a result, also of one that an earlier version wrote."""
    whole = Part(1, ROWS_FILE, rows.paragraphs, rows.rows, rows.columns, rows.size_bytes, rows.sha256)
    return rows.parts or (whole,)


def files_of(rows: Rows) -> tuple[Part, ...]:
    """Return the files of a result: its parts, and that of its quarantine."""
    return (*parts_of(rows), *((rows.quarantine,) if rows.quarantine else ()))


def parse_type(word: str) -> tuple[str, tuple[int, ...]] | None:
    """Return number type and shape of a column of vectors, without any length; ``None`` for other columns."""
    kind, bracket, shape = word.removesuffix("]").partition("[")
    return (kind, tuple(int(size) for size in shape.split(",") if size.isdigit())) if bracket else None


def promised(shards: Sequence[Shard]) -> tuple[float | None, float | None, float | None]:
    """Return the time of shards together, and its interval; ``None`` if that of a shard is not known."""
    columns = zip(*((shard.expected_s, shard.low_s, shard.high_s) for shard in shards), strict=True)
    sums = [None if None in column else math.fsum(filter(None, column)) for column in columns]
    expected_s, low_s, high_s = sums or (0.0, 0.0, 0.0)
    return expected_s, low_s, high_s


def write_plan(run: Path, corpus: Corpus, shards: Iterable[Shard]) -> None:
    """Write ``plan.jsonl`` and then ``corpus.json``, each atomically."""
    write_atomically(run / PLAN_FILE, "".join(f"{to_json(shard)}\n" for shard in shards))
    write_corpus(run, corpus)


def write_corpus(run: Path, corpus: Corpus) -> None:
    write_atomically(run / CORPUS_FILE, to_json(corpus) + "\n")


def is_corpus_folder(path: Path) -> bool:
    """Return whether a run folder is one of ``jobkit apply``: it has a corpus in place of a text."""
    return any((path / name).is_file() for name in (CORPUS_FILE, PLAN_FILE, ORDER_FILE))


def refuse_sweep(path: Path) -> None:
    """Refuse to merge what is no run folder of ``jobkit apply``."""
    if not is_corpus_folder(path):
        message = f"{path}: not a run of jobkit apply, whose shards merge joins"
        raise JobkitError(message, hint=f"its table: jobkit collect {shell_path(path)}")


def is_unplanned(path: Path) -> bool:
    """Return whether a run folder is of a corpus that a job is to plan: it has no points yet."""
    try:
        return (path / ORDER_FILE).is_file() and (path / POINTS_FILE).stat().st_size == 0
    except OSError:
        return False


def is_planned(path: Path) -> bool:
    return is_corpus_folder(path) and not is_unplanned(path)


@contextmanager
def _in_corpus_folder(path: Path) -> Iterator[Path]:
    try:
        yield path
    except FileNotFoundError as error:
        raise lost_file(path, "without it nothing can be run or merged") from error
    except OSError as error:
        raise file_error(error, path) from error


def read_corpus(run: Path) -> Corpus:
    with _in_corpus_folder(run / CORPUS_FILE) as path:
        return read_json(Corpus, path)


def read_plan(run: Path) -> Iterator[Shard]:
    """Yield every shard of the plan, also those that a later plan replaced.

    A line that was cut short is left out: it ends a plan that was killed before it came into force.
    """
    with _in_corpus_folder(run / PLAN_FILE) as path:
        for number, line in read_lines(path):
            with suppress(JobkitError):
                yield from_json(Shard, line, where=f"{path}:{number}")


def read_planned(run: Path, index: int) -> Shard:
    with _in_corpus_folder(run / PLAN_FILE) as path:
        for number, line in read_lines(path):
            if line.startswith(f'{{"index": {index},'):
                return from_json(Shard, line, where=f"{path}:{number}")
    raise JobkitError(f"{path}: no shard {index}", hint="shards count from 1")


def cut(pieces: Sequence[Piece], loads: Sequence[float], number: int) -> list[list[Piece]]:
    """Return the pieces in shards of nearly equal load, each of consecutive ones; see `cut_loads`.

    The pieces are in corpus order; after a new plan there may be gaps between them. If there are fewer than
    ``number``, so are the shards.
    """
    bounds = cut_loads(loads, number)
    return [list(pieces[start:end]) for start, end in pairwise(bounds)]


def cut_loads(loads: Sequence[float], number: int) -> list[int]:
    """Return the bounds of the shards: shard ``k`` has the loads from ``bounds[k]`` to ``bounds[k + 1]``.

    A load that is larger than the share of a shard is a shard by itself, and the others are equal to each
    other; then there may be a few shards more or fewer.
    """
    total, left = sum(loads), max(1, number)
    share = total / left
    for load in sorted((load for load in loads if load > share), reverse=True):
        total, left = total - load, max(1, left - 1)
        share = total / left
    bounds = [0]
    start = 0
    for place, load in enumerate(loads):
        if load > share:
            bounds += _even(loads, start, place, share)
            bounds.append(place + 1)
            start = place + 1
    return sorted({*bounds, *_even(loads, start, len(loads), share)})


def _even(loads: Sequence[float], start: int, end: int, share: float) -> list[int]:
    """Return the inner bounds and the end of some loads in equal shards of about this share."""
    left = sum(loads[start:end])
    number = max(1, round(left / share)) if share else 1
    bounds: list[int] = []
    now = 0.0
    for place in range(start, end):
        load = loads[place]
        if now and len(bounds) < number - 1 and now + load / 2 > left / (number - len(bounds)):
            bounds.append(place)
            left, now = left - now, 0.0
        now += load
    return [*bounds, end]
