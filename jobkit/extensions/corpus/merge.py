"""Join the rows of all shards in corpus order, each once; Parquet needs pyarrow, vectors need numpy."""

from __future__ import annotations

import json
import os
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from glob import escape
from itertools import accumulate, groupby, pairwise, repeat
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from uuid import uuid4

from jobkit.core.errors import ExitCode, JobkitError, file_error
from jobkit.core.files import open_regular, try_lock
from jobkit.core.frozen import keyed
from jobkit.core.json_codec import to_json
from jobkit.core.layout import PROVENANCE_FILE
from jobkit.core.terminal import note, shell_path
from jobkit.core.units import first_lines, format_count, format_list
from jobkit.extensions.corpus import formats
from jobkit.extensions.corpus.plan import QUARANTINE_FILE, Piece, Quarantined, Shard, Source, Winner
from jobkit.extensions.corpus.readers import (
    READERS,
    TEXT,
    Paragraph,
    given_offset,
    read_pieces,
)
from jobkit.extensions.corpus.rows import OFFSETS
from jobkit.extensions.corpus.shards import format_bytes
from jobkit.extensions.corpus.standing import CorpusState, gone_words
from jobkit.extensions.corpus.vectors import Array, kept, read_vectors
from jobkit.extensions.corpus.winners import digest, part_files, read_quarantine
from jobkit.launch.local import ended_by_signals


@keyed
class Merged:
    outputs: Sequence[Path]  # one of each format
    counts: Path  # the file with the counts of each document
    places: Path | None  # the file with document and paragraph of each row of an npy or npz file
    vectors: str  # their type, ``fp32[384]``, if the rows are vectors; ``int64[*] fp32[*]`` of two columns
    # numbers; paragraphs and documents also without a row
    shards: int
    rows: int
    paragraphs: int
    documents: int
    silent: int  # how many of the documents have no row
    missing: Counter[str]  # by document, how many of its paragraphs no shard has a result of
    quarantine: Path | None  # the file with the paragraphs in quarantine, which have no rows
    quarantined: int


def merge(
    run_dir: Path,
    output: Path,
    *forms: str,
    with_text: bool = False,
    all_text: bool = False,
    context: int | None = None,
    allow_missing: bool = False,
    allow_quarantine: bool = False,
) -> Merged:
    """Write the rows of all shards to one file of each format, in corpus order; all of it or nothing.

    The files are `formats.output_paths`. Next to them, `formats.counts_path` gets a line for each document:
    how many paragraphs and rows it has, and how many paragraphs are missing. Older files are replaced at the
    end. ``with_text`` adds the text of its paragraph to each row, unless that is more than ten times the
    corpus; ``all_text`` however much it is. ``context`` adds so many characters around each entity.
    ``allow_missing`` writes the results that there are, if there are any, ``allow_quarantine`` those of the
    other paragraphs.
    """
    standing = CorpusState(run_dir)
    if standing.shards.keys() - standing.winners.keys():
        standing.settle()
    _leave_out(standing, standing.gone(), allow_missing=allow_missing)
    _refuse_quarantine(standing, allowed=allow_quarantine)
    corpus, winners = standing.corpus, list(standing.winners.values())
    own = _columns(winners)
    vectors = next((winner.vectors for winner in winners), "")
    outputs = formats.output_paths(output, forms or (formats.DEFAULT_FORMAT,))
    for form in outputs:
        formats.check_format(form, own, vectors=vectors)
    named = formats.FILE not in own and any(source.kind != TEXT for source in corpus.sources)
    wishes = {formats.FILE: named, formats.CONTEXT: context is not None, formats.TEXT: with_text or all_text}
    added = [name for name, wanted in wishes.items() if wanted]
    if twice := [name for name in added if name in own]:
        raise JobkitError(f"the rows have a column {twice[0]} already", hint="merge without adding it")
    if winners and formats.CONTEXT in added and not own.keys() >= OFFSETS:
        raise JobkitError("--context: the results have no start and end", hint="use --with-text")
    columns = {"document": {"str"}, "paragraph": {"int"}, **own, **{name: {"str"} for name in added}}
    counts = formats.counts_path(next(iter(outputs.values())))
    arrays = next((path for form, path in outputs.items() if form in {"npy", "npz"}), None)
    places = formats.places_path(arrays) if arrays else None
    paths = [*outputs.values(), counts, *([places] if places else [])]
    read = {Path(source.path).resolve() for source in corpus.sources}
    if written := next((path for path in paths if path.resolve() in read), None):
        raise JobkitError(f"--output {written} is a file of the corpus", hint="name another file")
    results = _Results(standing, added, context)  # refuses a plan with overlaps and gaps before all is read
    _check_inputs(corpus.sources)
    if damaged := standing.gone(read=True):
        _leave_out(standing, damaged, allow_missing=allow_missing)
        results, winners = _Results(standing, added, context), list(standing.winners.values())
    if with_text and not all_text and not vectors:
        results.refuse_much_text()
    quarantined = sum(winner.quarantined for winner in winners)
    quarantine = formats.quarantine_path(next(iter(outputs.values())))
    with ended_by_signals(), _published([*paths, *([quarantine] if quarantined else [])]) as files:
        write = _write_vectors if vectors else _write_rows
        tally = write(results, list(outputs), files[: len(paths)], columns)
        rows = sum(winner.kept for winner in winners)
        for file in files[len(paths) :]:
            file.writelines(f"{to_json(one)}\n".encode() for one in tally.bad)
        if tally.rows != rows:
            raise JobkitError(f"the shards have {tally.rows:,} rows, and by winners/ {rows:,}")
        if len(tally.bad) != quarantined:
            raise JobkitError(f"{QUARANTINE_FILE} has {len(tally.bad):,} paragraphs of {quarantined:,}")
    if not quarantined:
        quarantine.unlink(missing_ok=True)  # of an earlier merge
    _let_read(run_dir, [*paths, quarantine])
    return Merged(
        outputs=tuple(outputs.values()),
        counts=counts,
        places=places,
        vectors=vectors,
        shards=len(winners),
        rows=rows,
        paragraphs=corpus.paragraphs - tally.missing.total() - quarantined,
        documents=tally.documents,
        silent=tally.silent,
        missing=tally.missing,
        quarantine=quarantine if quarantined else None,
        quarantined=quarantined,
    )


def _let_read(run_dir: Path, results: Sequence[Path]) -> None:
    """Let others enter the folder of these results as the umask permits, and read nothing else in it."""
    read = results[0].stat().st_mode & 0o044
    new = (read | read >> 2) & ~run_dir.stat().st_mode
    if not new or results[0].parent.absolute() != run_dir:
        return
    with suppress(OSError):  # another user's file, or a disk without modes: the folder stays closed
        for path in run_dir.iterdir():
            if path.name not in {PROVENANCE_FILE, *(one.name for one in results)} and not path.is_symlink():
                path.chmod(path.stat().st_mode & ~new)
        run_dir.chmod(run_dir.stat().st_mode | new)


def _write_rows(
    results: _Results, forms: Sequence[str], files: Sequence[BinaryIO], columns: formats.Columns
) -> _Tally:
    """Write rows in each format, and then the counts of the documents."""
    for form, file in zip(forms, files, strict=False):
        formats.ROW_FORMATS[form](file, _noted(f"writing {form}", results.lines(), results.rows), columns)
    tally = _Tally(files[len(forms)])
    for _ in tally.each(results.documents(), (json.loads(row)["document"] for row in results.bare())):
        pass
    return tally


def _write_vectors(
    results: _Results, forms: Sequence[str], files: Sequence[BinaryIO], columns: formats.Columns
) -> _Tally:
    """Write vectors in each format, and with the first the counts of the documents."""
    counts, *table = files[len(forms) :]
    tally = _Tally(counts)
    for number, (form, file) in enumerate(zip(forms, files, strict=False)):
        documents = results.documents() if number else tally.each(results.documents())
        keys = _noted(f"writing {form}", results.keys(documents), results.rows)
        formats.VECTOR_FORMATS[form]([file, *table], results.vectors, keys, [*columns])
        if next(keys, None):
            raise JobkitError("there are more paragraphs than vectors")
    return tally


def _noted(does: str, items: Iterable[Any], rows: int) -> Iterator[Any]:
    """Yield an item for each row; every ten seconds report how many of the rows these are."""
    last = time.monotonic()
    for number, item in enumerate(items, 1):
        yield item
        if (now := time.monotonic()) - last > 10.0:
            note(f"{does}: {number:,} of {rows:,} rows")
            last = now


def _leave_out(standing: CorpusState, gone: Sequence[Winner], *, allow_missing: bool) -> None:
    """Refuse shards that have no result, or whose rows are gone; if permitted, leave them out."""
    missing = [point.point_id for point in standing.points if point.index not in standing.winners]
    left = {index: winner for index, winner in standing.winners.items() if winner not in gone}
    if (missing or gone) and not (allow_missing and left):
        number = "1 shard has" if len(missing) == 1 else f"{len(missing):,} shards have"
        why = [f"{number} no result yet: {format_list(missing, 10)}"] if missing else []
        resume = f"jobkit resume {shell_path(standing.folder)}"
        if gone:
            why.append(gone_words([winner.point_id for winner in gone]))
            resume = f"copy them back; or, to run these shards again: {resume} --rows-gone"
        raise JobkitError("; ".join(why), hint=resume, exit_code=ExitCode.TO_COME)
    standing.winners = left


def _refuse_quarantine(standing: CorpusState, *, allowed: bool) -> None:
    number = sum(winner.quarantined for winner in standing.winners.values())
    if number and not allowed:
        typed = shell_path(standing.folder)
        raise JobkitError(
            f"{format_count(number, 'paragraph')} in quarantine: the workload cannot take them, as "
            f"{QUARANTINE_FILE} of each shard says",
            hint=f"jobkit merge {typed} --allow-quarantine merges the others, and names these; to try these "
            f"again: jobkit resume {typed} --quarantine --set resources.memory=32GiB",
            exit_code=ExitCode.TO_COME,
        )


def default_format(run_dir: Path) -> str:
    """Return the format that `jobkit apply` was given; without one, Parquet for vectors."""
    standing = CorpusState(run_dir)
    form = standing.corpus.format
    vectors = form == formats.DEFAULT_FORMAT and any(one.vectors for one in standing.winners.values())
    return "parquet" if vectors else form


def _columns(winners: Sequence[Winner]) -> dict[str, set[str]]:
    """Return the columns of the workload, and the types of the values in each."""
    anew = "correct the workload, and apply the corpus in a new folder"
    for one in winners[1:]:
        first, both = winners[0], f"shards {winners[0].point_id} and {one.point_id} have"
        if one.columns != first.columns:
            columns = f"{', '.join(first.columns)} and {', '.join(one.columns)}"
            raise JobkitError(f"{both} different columns: {columns}", hint=anew)
        if one.vectors != first.vectors:
            types = f"{first.vectors or 'none'}, {one.vectors or 'none'}"
            raise JobkitError(f"{both} vectors of different types: {types}", hint=anew)
    return {
        name: {word for winner in winners for word in winner.types[at].split()}
        for at, name in enumerate(winners[0].columns if winners else ())
    }


# -- which rows, in corpus order


class Extent(NamedTuple):
    """The rows of consecutive pieces in the result of a shard: its bytes from start to end; of vectors, rows.

    ``file`` is that of their documents; empty if the rows do not name it.
    """

    shard: int
    start: int
    end: int
    file: str


class _Document(NamedTuple):
    name: str
    file: str
    paragraphs: int
    missing: int  # how many of its paragraphs no shard has a result of
    held: list[range]  # the numbers of the others
    bad: Sequence[Quarantined]  # those in quarantine, of which there is no row


class _Results:
    """The results of a corpus in corpus order, and the paragraphs and documents that they belong to.

    ``added`` are the columns that a merge adds to those of the workload; ``context`` as in `merge`.
    """

    def __init__(self, standing: CorpusState, added: Collection[str], context: int | None) -> None:
        self._folder, self._corpus, self._winners = standing.folder, standing.corpus, standing.winners
        self._named, self._with_text, self._context = formats.FILE in added, formats.TEXT in added, context
        self.rows = sum(winner.kept for winner in self._winners.values())
        planned, won = dict[tuple[int, int, int], Piece](), dict[tuple[int, int, int], Extent]()
        for shard in standing.shards.values():
            winner = standing.winners.get(shard.index)
            ends = _ends(self._folder, shard, winner) if winner else [0] * len(shard.pieces)
            for piece, start, end in zip(shard.pieces, [0, *ends], ends, strict=False):
                place = piece.source, piece.start, piece.skip
                planned[place] = piece
                if winner and place in won:
                    shards = f"shards {won[place].shard} and {shard.index}"
                    raise JobkitError(f"{shards} both have results of the same part of the corpus")
                if winner:
                    file = self._corpus.sources[piece.source].name
                    named = self._named and not winner.vectors
                    won[place] = Extent(shard.index, start, end, file if named else "")
        self._bad = defaultdict[str, dict[int, Quarantined]](dict)
        for winner in standing.winners.values():
            for one in read_quarantine(self._folder, winner):
                self._bad[one.document][one.paragraph] = one
        found = sum(piece.paragraphs for piece in planned.values())
        if found != self._corpus.paragraphs:  # a line of the plan is lost
            raise JobkitError(f"the plan has {found:,} paragraphs, the corpus {self._corpus.paragraphs:,}")
        # All pieces, and whether there is a result of them.
        self._pieces = [(planned[place], place in won) for place in sorted(planned)]
        self._extents: list[Extent] = []
        for place in sorted(won):
            extent, last = won[place], self._extents[-1] if self._extents else None
            if last and (last.shard, last.end, last.file) == (extent.shard, extent.start, extent.file):
                self._extents[-1] = last._replace(end=extent.end)
            else:
                self._extents.append(extent)

    def _sections(self) -> Iterator[tuple[Path, int, int, str]]:
        """Yield each file that has rows of an extent, where they begin and end in it, and whose they are."""
        for extent in self._extents:
            winner, before = self._winners[extent.shard], 0
            for path, part in part_files(self._folder, winner):
                size = part.rows if winner.vectors else part.size_bytes
                start, end = max(extent.start - before, 0), min(extent.end - before, size)
                if start < end:
                    yield path, start, end, extent.file
                before += size

    def bare(self, *, named: bool = False) -> Iterator[bytes]:
        """Yield the rows line by line; if ``named``, each with the file of its document."""
        for path, start, end, name in self._sections():
            tail = _cell(formats.FILE, name) + b"}\n"
            with os.fdopen(open_regular(path), "rb") as file:
                file.seek(start)
                left = end - start
                while left > 0 and (line := file.readline()):
                    left -= len(line)
                    yield line.removesuffix(b"}\n") + tail if named else line
            if left:
                raise JobkitError(f"{path}: changed while it was merged")

    def lines(self) -> Iterator[bytes]:
        """Yield the rows line by line, each with the columns that a merge adds."""
        if not self._with_text and self._context is None:
            yield from self.bare(named=self._named)
            return
        for line, row, paragraph in self._located():
            tail = b""
            if self._context is not None:
                tail = _cell(formats.CONTEXT, _around(paragraph, row["start"], row["end"], self._context))
            if self._with_text:
                tail += _cell(formats.TEXT, paragraph.text.removesuffix("\n"))
            yield line.removesuffix(b"}\n") + tail + b"}\n"

    def _located(self) -> Iterator[tuple[bytes, dict[str, Any], Paragraph]]:
        """Yield the line of each row, the row, and the paragraph that it is of."""
        paragraphs = self._paragraphs()
        here = next(paragraphs)
        for line in self.bare(named=self._named):
            row = json.loads(line)
            while (here.document, here.number) != (row["document"], row["paragraph"]):
                here = next(paragraphs)
            yield line, row, here

    def refuse_much_text(self) -> None:
        """Refuse to write the text of its paragraph in each row if that is a multiple of the corpus."""
        rows = _noted("counting the text", self._located(), self.rows)
        number = sum(len(paragraph.text) for _, _, paragraph in rows)
        # times the corpus: more copies of its text are written only if a person wants them all
        if number > 10 * self._corpus.characters:
            times = number // max(1, self._corpus.characters)
            raise JobkitError(
                f"--with-text writes {format_bytes(number)} of text, {times:,} times the corpus: each "
                f"paragraph once for each of its rows, of which there are {self.rows:,}",
                hint="--context 100 adds 100 characters before and behind each entity; or --with-text=all",
            )

    def _paragraphs(self) -> Iterator[Paragraph]:
        """Yield the paragraphs that have a result; more are asked for only by rows in another order."""
        yield from read_pieces(self._corpus, tuple(piece for piece, won in self._pieces if won))
        raise JobkitError("rows are not in corpus order")

    def vectors(self) -> Iterator[Sequence[Array]]:
        """Yield the vectors in groups, of which none has vectors of two shards or much memory."""
        size_bytes = sum(winner.size_bytes for winner in self._winners.values())
        most = max(1, min(formats.GROUP_ROWS, formats.GROUP_BYTES * self.rows // max(1, size_bytes)))
        for path, start, end, _ in self._sections():
            for at in range(start, end, most):
                some = read_vectors(path, at, min(at + most, end))
                yield [one for one in (map(kept, some) if self._bad else some) if len(one)]

    def keys(self, documents: Iterable[_Document]) -> Iterator[formats.Key]:
        """Yield what stands next to each vector, in their order."""
        some = (one for one in self._paragraphs() if one.number not in self._bad.get(one.document, ()))
        texts = [(one.text.removesuffix("\n") for one in some)] if self._with_text else []
        for document in documents:
            files = [repeat(document.file)] if self._named else []
            for numbers in document.held:
                yield from zip(repeat(document.name), numbers, *files, *texts)

    def documents(self) -> Iterator[_Document]:
        """Yield each document of a corpus, even if it is empty; a file of several is read once."""
        own = {number: [*group] for number, group in groupby(self._pieces, key=lambda one: one[0].source)}
        for number, source in enumerate(self._corpus.sources):
            parts = ((piece.paragraphs, won) for piece, won in own.get(number, ()))
            left, won = 0, False
            pieces = [piece for piece, _ in own.get(number, ())]
            for name, paragraphs in READERS[source.kind].documents(self._corpus, number, pieces):
                at, missing, held = 0, 0, list[range]()
                bad = self._bad.get(name, {})
                while at < paragraphs:
                    if not left:
                        left, won = next(parts)
                    here = min(left, paragraphs - at)
                    if won:
                        edges = [at - 1, *sorted(n for n in bad if at <= n < at + here), at + here]
                        held += [range(one + 1, two) for one, two in pairwise(edges) if one + 1 < two]
                    else:
                        missing += here
                    at, left = at + here, left - here
                yield _Document(name, source.name, paragraphs, missing, held, [bad[n] for n in sorted(bad)])


def _ends(run_dir: Path, shard: Shard, winner: Winner) -> list[int]:
    """Return where the rows of each piece of a shard end."""
    vectors = winner.vectors
    ends = list(accumulate([piece.paragraphs for piece in shard.pieces] if vectors else winner.pieces))
    ends += [winner.rows if vectors else winner.size_bytes] * (len(shard.pieces) - len(ends))
    if fault := winner.fault(shard.paragraphs):
        again = f"run the shard again: jobkit resume {shell_path(run_dir)} --rows-gone"
        raise JobkitError(f"the result of shard {shard.index} has {fault}", hint=again)
    return ends


class _Tally:
    """Writes a line for each document, in corpus order, and counts them."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.missing = file, Counter[str]()
        self.documents = self.silent = self.rows = 0
        self.bad: list[Quarantined] = []

    def each(
        self, documents: Iterable[_Document], owners: Iterator[str] | None = None
    ) -> Iterator[_Document]:
        """Yield the documents once they are counted.

        ``owners``: the document of each row, in corpus order; without it each paragraph with a result has a
        row, as of vectors.
        """
        owner = next(owners, None) if owners else None
        for document in documents:
            rows = 0 if owners else document.paragraphs - document.missing - len(document.bad)
            self.bad += document.bad
            while owners and owner == document.name:
                rows, owner = rows + 1, next(owners, None)
            self.documents, self.silent = self.documents + 1, self.silent + (not rows)
            self.rows += rows
            line = f'{{"document": {_quoted(document.name)}, "paragraphs": {document.paragraphs}'
            line += f', "rows": {rows}'
            if missing := document.missing:
                self.missing[document.name] += missing
                line += f', "missing": {missing}'
            if document.bad:
                line += f', "quarantined": {len(document.bad)}'
            self._file.write(f"{line}}}\n".encode("utf-8", "backslashreplace"))
            yield document
        if owner is not None:
            raise JobkitError(f"rows of document {owner!r} are not in corpus order")


_quoted = json.JSONEncoder(ensure_ascii=False).encode


def _cell(name: str, value: str | None) -> bytes:
    """Return one more column of a row, without the bracket that ends it."""
    return f', "{name}": {_quoted(value)}'.encode("utf-8", "backslashreplace")


def _around(paragraph: Paragraph, start: object, end: object, most: int) -> str | None:
    """Return an entity with at most ``most`` characters on each side, cut at a space if there is one.

    ``start`` and ``end`` are offsets into its document as given; ``None`` if they are no numbers.
    """
    if not isinstance(start, int) or not isinstance(end, int):
        return None
    text, offset_of = paragraph.text.removesuffix("\n"), partial(given_offset, paragraph)
    begin, stop = (bisect_left(range(len(text)), offset, key=offset_of) for offset in (start, end))
    low, high, spaces = max(0, begin - most), min(len(text), stop + most), text.replace("\n", " ")
    if low:
        low = spaces.find(" ", low - 1, begin) + 1 or low
    if high < len(text) and (space := spaces.rfind(" ", stop, high + 1)) >= 0:
        high = space
    return text[low:high]


# -- what is checked before, and how the files are written


def _check_inputs(sources: Sequence[Source]) -> None:
    """Refuse a corpus that has changed since it was planned; name all changes at once."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        reasons = [reason for reason in threads.map(_changed, sources) if reason]
    if reasons:
        head = "the corpus has changed since it was planned, so rows and offsets may not belong to it:"
        raise JobkitError(
            "\n  ".join([head, *first_lines(reasons, 10)]),
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


@contextmanager
def _published(outputs: Sequence[Path]) -> Iterator[Sequence[BinaryIO]]:
    """Open files under other names next to their places; sync and rename them once all are whole.

    Such files of a merge that was killed are removed: their merge no longer holds their lock.
    """
    for output in outputs:
        for old in output.parent.glob(f".{escape(output.name)}.{'[0-9a-f]' * 32}.part"):
            with suppress(OSError), old.open("r+b") as left:
                if try_lock(left.fileno()):
                    old.unlink()
    parts = [output.with_name(f".{output.name}.{uuid4().hex}.part") for output in outputs]
    try:
        with ExitStack() as stack:
            files = [stack.enter_context(part.open("xb")) for part in parts]
            for file in files:
                try_lock(file.fileno())
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
