"""The plan of a corpus: its sources, and its pieces cut into shards of equal load. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from jobkit.core.errors import JobkitError, file_error
from jobkit.core.files import read_lines, read_text, write_atomically
from jobkit.core.json_codec import from_json, to_json
from jobkit.core.layout import CORPUS_FILE, ORDER_FILE, PLAN_FILE, POINTS_FILE

ROWS_FILE = "rows.jsonl"
MANIFEST_FILE = "rows.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file of the corpus.

    Attributes
    ----------
    path
        Absolute, as the nodes see it.
    name
        As the user gave it; a text file's document has this id.
    kind
        ``text`` or ``jsonl``.
    compression
        Empty, ``gz`` or ``zst``.
    size_bytes, mtime_ns, sha256
        Of the file as it is on disk; the last is empty until it is read.
    """

    path: str
    name: str
    kind: str
    compression: str = ""
    size_bytes: int
    mtime_ns: int
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bad:
    """A place in a source that cannot be read.

    Attributes
    ----------
    source
        Its name.
    line
        From 1; 0 for the whole file.
    reason
        In words.
    """

    source: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """What was read of a corpus: ``corpus.json``.

    Attributes
    ----------
    sources
        In corpus order.
    text_field, id_field
        Of JSONL documents.
    skipped
        The bad places that the user chose to leave out.
    unread
        The names of the files in its folders that jobkit does not read.
    documents, paragraphs, characters
        Of all that is not skipped.
    format
        In which `jobkit merge` writes the results, unless it is asked for another.
    """

    sources: tuple[Source, ...]
    text_field: str = "text"
    id_field: str = "id"
    skipped: tuple[Bad, ...] = ()
    unread: tuple[str, ...] = ()
    documents: int
    paragraphs: int
    characters: int
    format: str = "jsonl"

    def folders(self) -> list[str]:
        """Return the folders that hold all sources, also those to which links lead; none is in another."""
        held = {str(Path(source.path).parent) for source in self.sources}
        held |= {str(Path(source.path).resolve().parent) for source in self.sources}
        return sorted(one for one in held if not any(str(up) in held for up in Path(one).parents))


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Consecutive paragraphs of one source: the smallest part that a shard holds.

    Attributes
    ----------
    source
        Index into `Corpus.sources`.
    start, end
        The bytes, of the decompressed source, that hold the paragraphs: of a text file from the first byte
        of the first paragraph to the end of the last; of JSONL whole lines.
    skip
        Paragraphs of the first line (JSONL) that belong to an earlier piece.
    line
        Number of the first line of JSONL, from 1; 0 for a text file.
    first_paragraph, first_character
        Where in its document the first paragraph is, from 0.
    paragraphs, characters
        Its size.
    longest
        The characters of its longest paragraph.
    sha256
        Of the bytes from ``start`` to ``end``.
    """

    source: int
    start: int
    end: int
    skip: int = 0
    line: int = 0
    first_paragraph: int = 0
    first_character: int = 0
    paragraphs: int
    characters: int
    longest: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """What one point works through: a line of ``plan.jsonl``; line K is of point K.

    Attributes
    ----------
    index
        Of its point, from 1.
    pieces
        In corpus order.
    load
        The estimate by which shards are made equal: padded characters.
    expected_s, low_s, high_s
        How long the work takes, and the interval of 95 %; ``None`` if it is not known.
    slow_s
        Of 100 such shards, 99 take no longer.
    """

    index: int
    pieces: tuple[Piece, ...]
    load: int
    expected_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    slow_s: float | None = None

    @property
    def paragraphs(self) -> int:
        """How many it holds."""
        return sum(piece.paragraphs for piece in self.pieces)

    @property
    def longest(self) -> Piece:
        """The piece with its longest paragraph."""
        return max(self.pieces, key=lambda piece: piece.longest)

    @property
    def characters(self) -> int:
        """How many it holds."""
        return sum(piece.characters for piece in self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What a try wrote: ``rows.json``, next to its ``rows.jsonl``.

    Attributes
    ----------
    rows, size_bytes, sha256
        Of its ``rows.jsonl``.
    paragraphs
        Of the shard that it worked through, also those without a row.
    columns
        The names of the fields of a row, after ``document`` and ``paragraph``.
    types
        For each column the types of its values, as ``int``, ``str`` or ``int null``.
    pieces
        For each piece of the shard the bytes of its rows; zeros at the end are left out.
    """

    rows: int
    paragraphs: int
    size_bytes: int
    sha256: str
    columns: tuple[str, ...] = field(default=())
    types: tuple[str, ...] = field(default=())
    pieces: tuple[int, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The try whose rows count for a shard: ``winners/<point>.json``, linked once.

    Attributes
    ----------
    index
        Of the point.
    point_id
        Of the point.
    try_number
        Of the try.
    rows, paragraphs, size_bytes, sha256, columns, types, pieces
        As in `Rows`.
    """

    index: int
    point_id: str = ""
    try_number: int
    rows: int
    paragraphs: int
    size_bytes: int
    sha256: str
    columns: tuple[str, ...] = field(default=())
    types: tuple[str, ...] = field(default=())
    pieces: tuple[int, ...] = field(default=())


def write_plan(run: Path, corpus: Corpus, shards: Iterable[Shard]) -> None:
    """Write ``plan.jsonl`` and then ``corpus.json``, each atomically.

    Raises
    ------
    OSError
        With the name of the file.
    """
    write_atomically(run / PLAN_FILE, "".join(f"{to_json(shard)}\n" for shard in shards))
    write_atomically(run / CORPUS_FILE, to_json(corpus) + "\n")


def is_corpus_folder(path: Path) -> bool:
    """Return whether a run folder is one of ``jobkit apply``: it has a corpus in place of a text."""
    return any((path / name).is_file() for name in (CORPUS_FILE, ORDER_FILE))


def is_unplanned(path: Path) -> bool:
    """Return whether a run folder is of a corpus that a job is to plan: it has no points yet."""
    try:
        return (path / ORDER_FILE).is_file() and (path / POINTS_FILE).stat().st_size == 0
    except OSError:
        return False


def read_corpus(run: Path) -> Corpus:
    """Return what was read of the corpus.

    Raises
    ------
    JobkitError
        If there is none, or it is damaged.
    """
    path = run / CORPUS_FILE
    try:
        return from_json(Corpus, read_text(path), where=str(path))
    except OSError as error:
        raise file_error(error, path, hint="is this the folder of a `jobkit apply`?") from error


def read_plan(run: Path) -> Iterator[Shard]:
    """Yield every shard of the plan, also those that a later plan replaced.

    A line that was cut short is left out: so a plan ends that was killed before it came into force.

    Raises
    ------
    JobkitError
        If there is no plan.
    """
    path = run / PLAN_FILE
    try:
        for number, line in read_lines(path):
            with suppress(JobkitError):
                yield from_json(Shard, line, where=f"{path}:{number}")
    except OSError as error:
        raise file_error(error, path, hint="is this the folder of a `jobkit apply`?") from error


def read_planned(run: Path, index: int) -> Shard:
    """Return the shard of one point.

    Raises
    ------
    JobkitError
        If there is none, or it is damaged.
    """
    path = run / PLAN_FILE
    opening = f'{{"index": {index},'
    try:
        for number, line in read_lines(path):
            if line.startswith(opening):
                return from_json(Shard, line, where=f"{path}:{number}")
    except OSError as error:
        raise file_error(error, path, hint="is this the folder of a `jobkit apply`?") from error
    raise JobkitError(f"{path}: no shard {index}", hint="shards count from 1")


def cut(pieces: Sequence[Piece], loads: Sequence[float], number: int) -> list[list[Piece]]:
    """Return the pieces in shards of nearly equal load, each of consecutive ones.

    Parameters
    ----------
    pieces
        In corpus order; after a new plan there may be gaps between them.
    loads
        The estimated load of each piece.
    number
        How many shards; fewer are made if there are fewer pieces, see `cut_loads`.
    """
    bounds = cut_loads(loads, number)
    return [list(pieces[start:end]) for start, end in pairwise(bounds)]


def cut_loads(loads: Sequence[float], number: int) -> list[int]:
    """Return the bounds of the shards: shard ``k`` has the loads from ``bounds[k]`` to ``bounds[k + 1]``.

    A load that is larger than the share of a shard is a shard of its own, and the others are equal to each
    other; then there may be a few shards more or fewer.
    """
    share = _share(loads, number)
    bounds = [0]
    start = 0
    for place, load in enumerate(loads):
        if load > share:
            bounds += _even(loads, start, place, share)
            bounds.append(place + 1)
            start = place + 1
    return sorted({*bounds, *_even(loads, start, len(loads), share)})


def _share(loads: Sequence[float], number: int) -> float:
    """Return the load of a shard, if each load larger than that is a shard of its own."""
    total, left = sum(loads), max(1, number)
    share = total / left
    for load in sorted((load for load in loads if load > share), reverse=True):
        total, left = total - load, max(1, left - 1)
        share = total / left
    return share


def _even(loads: Sequence[float], start: int, end: int, share: float) -> list[int]:
    """Return the inner bounds and the end of some loads in as many equal shards as their share says."""
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
