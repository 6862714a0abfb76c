"""Join the rows of all shards in corpus order, each once; Parquet needs pyarrow, vectors need numpy."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
    JSONL,
    documents,
    left_out_lines,
    lines_of,
    numbered,
    open_stream,
    read_pieces,
)
from jobkit.extensions.corpus.vectors import Array, parse_type, read_vectors
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


@dataclass(frozen=True, slots=True)
class Coverage:
    extents: tuple[Extent, ...]  # in corpus order, those of consecutive pieces of one shard as one
    # pieces without a winner, each with the index of the shard that was last planned for it
    missing: tuple[tuple[int, Piece], ...]
    pieces: tuple[Piece, ...]  # all pieces of the corpus, in its order
    held: tuple[Piece, ...]  # those with a winner, in corpus order

    @property
    def open_shards(self) -> tuple[int, ...]:
        """The shards that are last planned for the missing pieces."""
        return tuple(sorted({index for index, _ in self.missing}))


def coverage(corpus: Corpus, shards: Iterable[Shard], winners: Mapping[int, Winner]) -> Coverage:
    """Return what the winners have of a corpus, whose number of paragraphs is known.

    ``shards`` are all lines of the plan, also those that a later plan replaced; ``winners`` are by shard
    index.
    """
    won: dict[tuple[int, int, int], Extent] = {}
    named = has_files(corpus)
    files = [source.name if named else "" for source in corpus.sources]
    planned: dict[tuple[int, int, int], tuple[int, Piece]] = {}
    for shard in shards:
        winner = winners.get(shard.index)
        for piece in shard.pieces:
            planned[_key(piece)] = (shard.index, piece)
        if winner:
            _add(won, shard, winner, files)
    _check_whole(corpus, (piece for _, piece in planned.values()))
    missing = tuple(planned[key] for key in sorted(planned.keys() - won.keys()))
    pieces = tuple(planned[key][1] for key in sorted(planned))
    held = tuple(planned[key][1] for key in sorted(won))
    return Coverage(_joined(won[key] for key in sorted(won)), missing, pieces, held)


def _key(piece: Piece) -> tuple[int, int, int]:
    return piece.source, piece.start, piece.skip


def has_files(corpus: Corpus) -> bool:
    """Return whether a file has several documents, so that the document does not name the file."""
    return any(source.kind == JSONL for source in corpus.sources)


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


def _check_whole(corpus: Corpus, pieces: Iterable[Piece]) -> None:
    """Refuse a plan that lacks a part of the corpus: a line is lost."""
    found = sum(piece.paragraphs for piece in pieces)
    if found != corpus.paragraphs:
        raise JobkitError(f"the plan has {found:,} paragraphs, the corpus {corpus.paragraphs:,}")


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
    for path in filter(None, (output, counts, places)):
        _refuse_input(path, corpus)
    _check_inputs(corpus.sources)
    _check_rows(run_dir, list(winners.values()))
    missing = read_pieces(corpus, tuple(piece for _, piece in covered.missing))
    tally = _Tally(Counter(paragraph.document for paragraph in missing))
    listed = _documents(corpus, covered.pieces)
    writers: dict[Path, Callable[[BinaryIO], None]]
    if vectors:
        groups = _vectors(run_dir, winners, covered.extents)
        keys = _keys(corpus, covered.held)
        held = sum(piece.paragraphs for piece in covered.held)
        if places:
            writers = {
                output: lambda part: formats.write_npy(part, groups, held, vectors),
                places: lambda part: formats.write_places(part, keys, named=named),
            }
        else:
            writers = {output: lambda part: formats.write_parquet(part, groups, keys, columns)}
        writers[counts] = lambda part: tally.write(part, listed, None)
    else:
        lines = _lines(run_dir, winners, covered.extents, named=named)
        again = _lines(run_dir, winners, covered.extents)
        writers = {
            output: lambda part: formats.write_rows(form, part, lines, columns, types),
            counts: lambda part: tally.write(part, listed, again),
        }
    _publish(writers)
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
    """Return the format of `jobkit apply`; if nobody named one, vectors become Parquet."""
    form = read_corpus(run_dir).format
    vectors = form == formats.DEFAULT_FORMAT and any(map(has_vectors, read_winners(run_dir).values()))
    return "parquet" if vectors else form


def _documents(corpus: Corpus, pieces: Iterable[Piece]) -> Iterator[tuple[str, int]]:
    """Yield each document of a corpus, even if it is empty, and the number of its paragraphs."""
    counts, left_out = Counter[int](), left_out_lines(corpus)
    for piece in pieces:
        counts[piece.source] += piece.paragraphs
    for number, source in enumerate(corpus.sources):
        if source.kind != JSONL:
            yield source.name, counts[number]
            continue
        with open_stream(source.path, source.compression) as stream:
            skipped = left_out.get(source.name, set())
            for name, text in documents(corpus, number, lines_of(stream), 1, skipped):
                yield name, sum(1 for _ in numbered(name, text, 0, 0))


class _Tally:
    """Counts the paragraphs and rows of each document, one document at a time."""

    def __init__(self, missing: Counter[str]) -> None:
        self.missing = missing
        self.documents = self.silent = 0

    def write(
        self, file: BinaryIO, documents: Iterable[tuple[str, int]], rows: Iterable[bytes] | None
    ) -> None:
        """Write a line for each document; documents and rows are both in corpus order.

        Without ``rows`` each paragraph that is not missing has one.
        """
        owners = (json.loads(row)["document"] for row in rows or ())
        owner = next(owners, None)
        for document, paragraphs in documents:
            own = 0 if rows is not None else paragraphs - self.missing[document]
            while owner == document:
                own, owner = own + 1, next(owners, None)
            self.documents, self.silent = self.documents + 1, self.silent + (not own)
            counts = {"document": document, "paragraphs": paragraphs, "rows": own}
            counts |= {"missing": self.missing[document]} if document in self.missing else {}
            file.write(json.dumps(counts, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
        if owner is not None:
            raise JobkitError(f"rows of document {owner!r} are not in corpus order")


def _covered(
    run_dir: Path, corpus: Corpus, void: Collection[int], *, allow_missing: bool
) -> tuple[dict[int, Winner], Coverage]:
    """Return the winners and their coverage, which must be whole unless ``allow_missing``."""

    def plan() -> Iterator[Shard]:
        return (shard for shard in read_plan(run_dir) if shard.index not in void)

    winners = {index: winner for index, winner in read_winners(run_dir).items() if index not in void}
    found = coverage(corpus, plan(), winners)
    if found.missing:
        points = [point for point in read_points(run_dir)[0] if point.index in found.open_shards]
        claimed = claim_all(run_dir, points)
        winners |= {point.index: claimed[point.index] for point in points if point.index in claimed}
        found = coverage(corpus, plan(), winners)
    if found.missing and not (winners and allow_missing):
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


def _refuse_input(output: Path, corpus: Corpus) -> None:
    if str(output.resolve()) in {str(Path(source.path).resolve()) for source in corpus.sources}:
        raise JobkitError(f"--output {output} is a file of the corpus", hint="name another file")


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


def _keys(corpus: Corpus, pieces: Iterable[Piece]) -> Iterator[formats.Key]:
    """Yield document, paragraph and file of each paragraph of pieces, which are in corpus order."""
    for number, group in groupby(pieces, key=lambda piece: piece.source):
        source = corpus.sources[number]
        if source.kind == JSONL:
            for one in read_pieces(corpus, tuple(group)):
                yield one.document, one.number, source.name
        else:
            for piece in group:
                numbers = range(piece.first_paragraph, piece.first_paragraph + piece.paragraphs)
                yield from zip(repeat(source.name), numbers, repeat(source.name))


def _publish(writers: Mapping[Path, Callable[[BinaryIO], None]]) -> None:
    """Write files under other names next to their places, sync them, and rename them once all are whole."""
    parts = {output: output.with_name(f".{output.name}.{uuid4().hex}.part") for output in writers}
    output = next(iter(writers))
    try:
        for output, write in writers.items():
            with parts[output].open("xb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
        for output, part in parts.items():
            part.replace(output)
    except OSError as error:
        raise file_error(error, output, hint="see --output") from error
    finally:
        for part in parts.values():
            with suppress(OSError):
                part.unlink(missing_ok=True)
