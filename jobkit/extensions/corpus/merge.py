"""Join the rows of all shards in corpus order, each once; Parquet needs pyarrow, vectors need numpy."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate, groupby, repeat
from pathlib import Path
from typing import BinaryIO, NamedTuple
from uuid import uuid4

from jobkit.core.errors import ExitCode, JobkitError, file_error
from jobkit.core.files import open_regular
from jobkit.core.layout import read_points, try_folder
from jobkit.core.terminal import shell_path
from jobkit.core.units import format_list
from jobkit.extensions.corpus import formats
from jobkit.extensions.corpus.plan import (
    ROWS_FILE,
    Corpus,
    Piece,
    Shard,
    Source,
    Winner,
    read_corpus,
    read_plan,
)
from jobkit.extensions.corpus.readers import (
    READERS,
    TEXT,
)
from jobkit.extensions.corpus.rows import Array, parse_type, read_vectors
from jobkit.extensions.corpus.winners import claim_all, digest, read_winners, winner_path


class Extent(NamedTuple):
    """The rows of one piece: bytes of the ``rows.jsonl`` of the winner of a shard, by its index.

    Of vectors, rows of its part. ``file`` is that of the documents; empty if no file of the corpus has
    several documents, and of vectors.
    """

    shard: int
    start: int
    end: int
    file: str = ""


class _Coverage(NamedTuple):
    extents: tuple[Extent, ...]  # in corpus order, those of consecutive pieces of one shard as one
    # all pieces in corpus order; one without a winner has the shard that was last planned for it, others 0
    pieces: tuple[tuple[Piece, int], ...]

    @property
    def open_shards(self) -> tuple[int, ...]:
        return tuple(sorted({index for _, index in self.pieces if index}))


def _coverage(corpus: Corpus, shards: Iterable[Shard], winners: Mapping[int, Winner]) -> _Coverage:
    """Return what the winners, by shard index, have of a corpus.

    ``shards`` are all lines of the plan, also those that a later plan replaced.
    """
    won: dict[tuple[int, int, int], Extent] = {}
    named = has_files(corpus)
    files = [source.name if named else "" for source in corpus.sources]
    planned: dict[tuple[int, int, int], tuple[Piece, int]] = {}
    for shard in shards:
        planned |= {_key(piece): (piece, shard.index) for piece in shard.pieces}
        if winner := winners.get(shard.index):
            _add(won, shard, winner, files)
    found = sum(piece.paragraphs for piece, _ in planned.values())
    if found != corpus.paragraphs:  # a line of the plan is lost
        raise JobkitError(f"the plan has {found:,} paragraphs, the corpus {corpus.paragraphs:,}")
    planned |= {key: (planned[key][0], 0) for key in won}
    return _Coverage(_joined(won[key] for key in sorted(won)), tuple(planned[key] for key in sorted(planned)))


def _key(piece: Piece) -> tuple[int, int, int]:
    return piece.source, piece.start, piece.skip


def has_files(corpus: Corpus) -> bool:
    """Return whether a file has several documents, so that the document does not name the file."""
    return any(source.kind != TEXT for source in corpus.sources)


def _add(won: dict[tuple[int, int, int], Extent], shard: Shard, winner: Winner, files: Sequence[str]) -> None:
    if winner.paragraphs != shard.paragraphs:
        numbers = f"{winner.paragraphs:,} paragraphs where the plan has {shard.paragraphs:,}"
        raise JobkitError(f"the result of shard {shard.index} has {numbers}")
    vectors = has_vectors(winner)
    ends = list(accumulate([piece.paragraphs for piece in shard.pieces] if vectors else winner.pieces))
    whole = winner.rows if vectors else winner.size_bytes
    ends += [whole] * (len(shard.pieces) - len(ends))
    if ends[-1:] != [whole]:
        raise JobkitError(f"the result of shard {shard.index} has rows of no piece of its plan")
    for piece, start, end in zip(shard.pieces, [0, *ends], ends, strict=False):
        key = _key(piece)
        if key in won:
            shards = f"shards {won[key].shard} and {shard.index}"
            raise JobkitError(f"{shards} both have results of the same part of the corpus")
        won[key] = Extent(shard.index, start, end, "" if vectors else files[piece.source])


def _joined(extents: Iterable[Extent]) -> tuple[Extent, ...]:
    """Join extents of a file of the corpus that follow each other in the rows of a shard."""
    joined: list[Extent] = []
    for extent in extents:
        last = joined[-1] if joined else None
        if last and (last.shard, last.end, last.file) == (extent.shard, extent.start, extent.file):
            joined[-1] = last._replace(end=extent.end)
        else:
            joined.append(extent)
    return tuple(joined)


_NAMED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    output: Path
    counts: Path  # the file with the counts of each document
    places: Path | None = None  # the file with document and paragraph of each row of an npy file
    vectors: str = ""  # their type, ``fp32[384]``, if the rows are vectors
    # numbers; paragraphs and documents also without a row
    shards: int
    rows: int
    paragraphs: int
    documents: int
    silent: int  # how many of the documents have no row
    missing: Counter[str]  # by document, how many of its paragraphs no shard has a result of


def merge(
    run_dir: Path,
    output: Path,
    form: str = "jsonl",
    *,
    void: Collection[int] = frozenset(),
    allow_missing: bool = False,
) -> Merged:
    """Write the rows of all shards to one file, in corpus order; all of it or nothing.

    Next to it, `counts_path` gets a line for each document: how many paragraphs and rows it has, and how many
    paragraphs are missing. An older output is replaced at the end. ``form`` is one of
    `jobkit.extensions.corpus.formats.FORMATS`. ``void`` are shards that do not count, even with a winner:
    others do their work. ``allow_missing`` writes the results that there are, if there are any.
    """
    corpus = read_corpus(run_dir)
    winners, covered = _covered(run_dir, corpus, void, allow_missing=allow_missing)
    columns, types = _columns(winners.values())
    vectors = next((word for word in set[str]().union(*types) if parse_type(word)), "")
    formats.check_format(form, columns, vectors=bool(vectors))
    if named := has_files(corpus) and formats.FILE not in columns:
        columns, types = (*columns, formats.FILE), (*types, {"str"})
    counts, places = counts_path(output), places_path(output, form)
    outputs = [path for path in (output, counts, places) if path]
    read = {Path(source.path).resolve() for source in corpus.sources}
    if written := next((path for path in outputs if path.resolve() in read), None):
        raise JobkitError(f"--output {written} is a file of the corpus", hint="name another file")
    _check_inputs(corpus.sources)
    _check_rows(run_dir, list(winners.values()))
    with _published(outputs) as (file, counted, *placed):
        tally = _Tally(counted, _documents(corpus, covered.pieces))
        if not vectors:
            lines = _lines(run_dir, winners, covered.extents, named=named)
            formats.write_rows(form, file, lines, columns, types)
            tally.write(json.loads(row)["document"] for row in _lines(run_dir, winners, covered.extents))
        else:
            groups, keys = _vectors(run_dir, winners, covered.extents), tally.keys()
            if placed:
                formats.write_npy(file, groups, sum(winner.rows for winner in winners.values()), vectors)
                formats.write_places(placed[0], keys, named=named)
            else:
                formats.write_parquet(file, groups, keys, columns)
            if next(keys, None):
                raise JobkitError("there are more paragraphs than vectors")
    return Merged(
        output=output,
        counts=counts,
        places=places,
        vectors=vectors,
        shards=len(winners),
        rows=sum(winner.rows for winner in winners.values()),
        paragraphs=corpus.paragraphs - tally.missing.total(),
        documents=tally.documents,
        silent=tally.silent,
        missing=tally.missing,
    )


def counts_path(output: Path) -> Path:
    """Return the file with the counts of each document: ``merged.documents.jsonl``."""
    return output.with_name(f"{output.stem}.documents.jsonl")


def places_path(output: Path, form: str) -> Path | None:
    """Return the file with document and paragraph of each row, ``merged.rows.tsv``; only npy has one."""
    return output.with_name(f"{output.stem}.rows.tsv") if form == "npy" else None


def default_format(run_dir: Path) -> str:
    """Return the format that `jobkit apply` was given; without one, Parquet for vectors."""
    form = read_corpus(run_dir).format
    vectors = form == formats.DEFAULT_FORMAT and any(map(has_vectors, read_winners(run_dir).values()))
    return "parquet" if vectors else form


class _Document(NamedTuple):
    name: str
    file: str
    paragraphs: int
    missing: int  # how many of its paragraphs no shard has a result of
    held: list[range]  # the numbers of the others


def _documents(corpus: Corpus, planned: Iterable[tuple[Piece, int]]) -> Iterator[_Document]:
    """Yield each document of a corpus, even if it is empty; a file of several documents is read once."""
    own = {number: [*group] for number, group in groupby(planned, key=lambda one: one[0].source)}
    for number, source in enumerate(corpus.sources):
        parts = ((piece.paragraphs, not index) for piece, index in own.get(number, ()))
        left, won = 0, False
        pieces = [piece for piece, _ in own.get(number, ())]
        for name, paragraphs in READERS[source.kind].documents(corpus, number, pieces):
            at, missing, held = 0, 0, list[range]()
            while at < paragraphs:
                if not left:
                    left, won = next(parts)
                here = min(left, paragraphs - at)
                if won:
                    held.append(range(at, at + here))
                else:
                    missing += here
                at, left = at + here, left - here
            yield _Document(name, source.name, paragraphs, missing, held)


class _Tally:
    """Writes a line for each document, in corpus order, and counts them."""

    def __init__(self, file: BinaryIO, documents: Iterator[_Document]) -> None:
        self._file, self._documents = file, documents
        self.missing = Counter[str]()
        self.documents = self.silent = 0

    def write(self, owners: Iterator[str]) -> None:
        """Count rows, given the document of each, which are in corpus order."""
        owner = next(owners, None)
        for document in self._documents:
            rows = 0
            while owner == document.name:
                rows, owner = rows + 1, next(owners, None)
            self._count(document, rows)
        if owner is not None:
            raise JobkitError(f"rows of document {owner!r} are not in corpus order")

    def keys(self) -> Iterator[formats.Key]:
        """Yield document, paragraph and file of each paragraph that has a result, and count it as a row."""
        for document in self._documents:
            self._count(document, document.paragraphs - document.missing)
            for numbers in document.held:
                yield from zip(repeat(document.name), numbers, repeat(document.file))

    def _count(self, document: _Document, rows: int) -> None:
        self.documents, self.silent = self.documents + 1, self.silent + (not rows)
        line = f'{{"document": {_quoted(document.name)}, "paragraphs": {document.paragraphs}, "rows": {rows}'
        if missing := document.missing:
            self.missing[document.name] += missing
            line += f', "missing": {missing}'
        self._file.write(f"{line}}}\n".encode("utf-8", "backslashreplace"))


_quoted = json.JSONEncoder(ensure_ascii=False).encode


def _covered(
    run_dir: Path, corpus: Corpus, void: Collection[int], *, allow_missing: bool
) -> tuple[dict[int, Winner], _Coverage]:
    """Return the winners and their coverage, which must be whole unless ``allow_missing``."""

    def plan() -> Iterator[Shard]:
        return (shard for shard in read_plan(run_dir) if shard.index not in void)

    winners = {index: winner for index, winner in read_winners(run_dir).items() if index not in void}
    found = _coverage(corpus, plan(), winners)
    if found.open_shards:
        points = [point for point in read_points(run_dir)[0] if point.index in found.open_shards]
        claimed = claim_all(run_dir, points)
        winners |= {point.index: claimed[point.index] for point in points if point.index in claimed}
        found = _coverage(corpus, plan(), winners)
    if found.open_shards and not (winners and allow_missing):
        names = {point.index: point.point_id for point in points}
        missing = [names.get(index, f"shard {index}") for index in found.open_shards]
        number = "1 shard has" if len(missing) == 1 else f"{len(missing):,} shards have"
        raise JobkitError(
            f"{number} no result yet: {format_list(missing, _NAMED)}",
            hint=_resume(run_dir),
            exit_code=ExitCode.TO_COME,
        )
    return winners, found


def _columns(winners: Iterable[Winner]) -> tuple[tuple[str, ...], tuple[set[str], ...]]:
    """Return the columns of all rows, and the types of the values in each."""
    columns: tuple[str, ...] | None = None
    types: list[set[str]] = []
    for winner in winners:
        if columns is None:
            columns, types = winner.columns, [set() for _ in winner.columns]
        if winner.columns != columns:
            both = f"{', '.join(columns)} and {', '.join(winner.columns)}"
            raise JobkitError(f"shards have different columns: {both}")
        for all_types, words in zip(types, winner.types, strict=True):
            all_types.update(words.split())
    if len(kinds := {word for words in types for word in words if parse_type(word)}) > 1:
        raise JobkitError(f"shards have vectors of different types: {format_list(sorted(kinds), _NAMED)}")
    return columns or (), tuple(types)


def _check_inputs(sources: Sequence[Source]) -> None:
    """Refuse a corpus that has changed since it was planned; name all changes at once."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        reasons = [reason for reason in threads.map(_changed, sources) if reason]
    if reasons:
        more = f"\n  and {len(reasons) - _NAMED:,} more" * (len(reasons) > _NAMED)
        raise JobkitError(
            "the corpus has changed since it was planned, so rows and offsets may not belong to it:"
            + "".join(f"\n  {reason}" for reason in reasons[:_NAMED])
            + more,
            hint="restore the files, or apply the changed corpus in a new folder",
        )


def _changed(source: Source) -> str:
    try:
        size = os.stat(source.path).st_size  # noqa: PTH116 - 100,000 Path objects cost time
        if size != source.size_bytes:
            return f"{source.path}: {size:,} bytes instead of {source.size_bytes:,}"
        if digest(Path(source.path))[1] != source.sha256:
            return f"{source.path}: different content (SHA-256)"
    except OSError as error:
        return f"{source.path}: {error.strerror}"
    return ""


def _rows_of(run_dir: Path, winner: Winner) -> Path:
    file = winner.parts[0].file if winner.parts else ROWS_FILE
    return Path(try_folder(run_dir, winner.point_id, winner.try_number), file)


def has_vectors(winner: Winner) -> bool:
    return any(parse_type(words) for words in winner.types)


def _check_rows(run_dir: Path, winners: Sequence[Winner]) -> None:
    def right(winner: Winner) -> bool:
        return digest(_rows_of(run_dir, winner)) == (winner.size_bytes, winner.sha256)

    try:
        with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
            whole = list(threads.map(right, winners))
    except OSError as error:
        raise file_error(error, hint="the rows of a shard are gone: copy them back") from error
    damaged = [winner for winner, good in zip(winners, whole, strict=True) if not good]
    if damaged:
        paths = [str(_rows_of(run_dir, winner)) for winner in damaged]
        first = shell_path(winner_path(run_dir, damaged[0].point_id).with_suffix(""))
        raise JobkitError(
            f"rows do not match their SHA-256: {format_list(paths, _NAMED)}",
            hint=f"copy them back; or run the shard again: rm -r {first}.*, then {_resume(run_dir)}",
        )


def _resume(run_dir: Path) -> str:
    return f"jobkit resume {shell_path(run_dir)}"


def _lines(
    run_dir: Path, winners: Mapping[int, Winner], extents: Iterable[Extent], *, named: bool = False
) -> Iterator[bytes]:
    """Yield the rows of extents, line by line; if ``named``, each with the file of its document."""
    for index, start, end, name in extents:
        tail = f', "file": {json.dumps(name, ensure_ascii=False)}}}\n'.encode("utf-8", "backslashreplace")
        path = _rows_of(run_dir, winners[index])
        with os.fdopen(open_regular(path), "rb") as file:
            file.seek(start)
            left = end - start
            while left > 0 and (line := file.readline()):
                left -= len(line)
                yield line.removesuffix(b"}\n") + tail if named else line
        if left:
            raise JobkitError(f"{path}: changed while it was merged")


def _vectors(
    run_dir: Path, winners: Mapping[int, Winner], extents: Iterable[Extent]
) -> Iterator[Sequence[Array]]:
    """Yield the vectors of extents in groups, of which none has vectors of two shards."""
    for index, start, end, _ in extents:
        path = _rows_of(run_dir, winners[index])
        for at in range(start, end, formats.GROUP_ROWS):
            yield [*read_vectors(path, at, min(at + formats.GROUP_ROWS, end))]


@contextmanager
def _published(outputs: Sequence[Path]) -> Iterator[Sequence[BinaryIO]]:
    """Open files under other names next to their places; sync and rename them once all are whole."""
    parts = [output.with_name(f".{output.name}.{uuid4().hex}.part") for output in outputs]
    try:
        with ExitStack() as stack:
            files = [stack.enter_context(part.open("xb")) for part in parts]
            yield files
            for file in files:
                file.flush()
                os.fsync(file.fileno())
        for output, part in zip(outputs, parts, strict=True):
            part.replace(output)
    except OSError as error:
        raise file_error(error, outputs[0], hint="see --output") from error
    finally:
        for part in parts:
            with suppress(OSError):
                part.unlink(missing_ok=True)
