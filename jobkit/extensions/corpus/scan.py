"""Read a corpus once, in several processes: digests, pieces, and all that is bad."""

from __future__ import annotations

import math
import multiprocessing
import signal
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar, cast

from jobkit.core.errors import JobkitError
from jobkit.core.paragraphs import BOM, BadLineError, Fields, parse_line
from jobkit.core.shell import usable_cpus
from jobkit.core.terminal import shell_quote
from jobkit.extensions.corpus.plan import Bad, Corpus, Piece, Source
from jobkit.extensions.corpus.reading import generated_id
from jobkit.extensions.corpus.scan_part import id_hash, lines_of, scan_part, scan_parts, source_of
from jobkit.extensions.corpus.scan_text import PartResult, PieceRow, ScanPart
from jobkit.extensions.corpus.sources import JSONL, CorpusFiles, open_stream, skip

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_AT_ONCE = 2**22  # hashes that are sorted together
_BYTES = 8


class Ids:
    """Hashes of ids, part by part, on disk."""

    def __init__(self) -> None:
        self._file = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115 - closed by `close`
        self._numbers: list[int] = []

    def add(self, hashes: bytes | bytearray) -> None:
        self._file.write(hashes)
        self._numbers.append(len(hashes) // _BYTES)

    def repeated(self) -> set[bytes]:
        import numpy as np

        shares = sum(self._numbers) // _AT_ONCE + 1
        found: set[bytes] = set()
        for share in range(shares):
            hashes = np.sort(self._share(share, shares))
            again = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
            found.update(value.tobytes() for value in again)
        return found

    def _share(self, share: int, shares: int) -> NDArray[np.uint64]:
        import numpy as np

        self._file.seek(0)
        parts = [np.empty(0, np.uint64)]
        while block := self._file.read(_AT_ONCE * _BYTES):
            hashes = np.frombuffer(block, np.uint64)
            parts.append(hashes[hashes % np.uint64(shares) == share])
        return np.concatenate(parts)

    def parts_with(self, hashes: set[bytes]) -> Iterator[int]:
        """Yield the number of each part that has one of some hashes, from 0."""
        import numpy as np

        sought = np.frombuffer(b"".join(sorted(hashes)), np.uint64)
        self._file.seek(0)
        for number, size in enumerate(self._numbers):
            if np.isin(np.frombuffer(self._file.read(size * _BYTES), np.uint64), sought).any():
                yield number

    def close(self) -> None:
        self._file.close()


RANGE_BYTES = 2**25  # a file with more than two of these is read in ranges, by several processes
TASK_BYTES = 2**23
TASK_FILES = 256
MOST_PIECES = 200_000
_GROWTH = {"": 1, "gz": 4, "zst": 4}  # how text grows when it is decompressed, roughly


def piece_bytes(found: Sequence[Source]) -> int:
    """Return how many bytes a piece of a corpus should have.

    The pieces of a small corpus are paragraphs. 16 MiB have 4,000 pieces of 4 KiB, 1 GiB has 26,000 of 40
    KiB, and 100 GiB have 200,000 of half a MiB; a still larger corpus has larger pieces, not more.
    """
    size = sum(one.size_bytes * _GROWTH[one.compression] for one in found)
    small, large = 2**24, MOST_PIECES * 2**19
    if size < small:
        return size // 2**12
    return max(int(2**12 * (size / small) ** (math.log(2**7) / math.log(large / small))), size // MOST_PIECES)


def tasks(
    found: Sequence[Source], fields: Fields, left_out: frozenset[int] | set[int]
) -> Iterator[list[ScanPart]]:
    """Yield what a process reads at once: a range of a large file, or several small files."""
    target = piece_bytes(found)
    task: list[ScanPart] = []
    size = 0
    for number, one in enumerate(found):
        if number in left_out:
            continue
        part = ScanPart(source=number, file=one, target=target, fields=fields)
        if not one.compression and one.size_bytes > 2 * RANGE_BYTES:
            if task:
                yield task
            task, size = [], 0
            yield from ([each] for each in _ranges(part))
            continue
        task.append(part)
        size += one.size_bytes
        if len(task) == TASK_FILES or size > TASK_BYTES:
            yield task
            task, size = [], 0
    if task:
        yield task


def _ranges(whole: ScanPart) -> Iterator[ScanPart]:
    """Yield the digest of a large file and its ranges.

    One process computes the SHA-256 of the whole file, while others read the ranges: the file comes from the
    disk once, and then from memory.
    """
    size = whole.file.size_bytes
    yield replace(whole, digest=True)
    for start in range(0, size, RANGE_BYTES):
        yield replace(whole, start=start, stop=min(start + RANGE_BYTES, size))


MOST = 16  # processes: more would need more than 1 GiB of memory together, and few disks are faster
Task = TypeVar("Task")
Answer = TypeVar("Answer")


def cores() -> int:
    """Return how many processes may compute at the same time."""
    return min(MOST, usable_cpus())


def in_order(work: Callable[[Task], Answer], tasks: Iterable[Task], processes: int) -> Iterator[Answer]:
    """Yield the answers in the order of the tasks; one process alone is this one.

    ``work`` is a function of a module, imported in each process. Tasks are taken as processes become free, so
    there may be many.
    """
    if processes < 2:  # noqa: PLR2004 - this process alone
        yield from map(work, tasks)
        return
    with _Pool(work, processes) as pool:
        yield from pool.answers(iter(tasks))


class _Pool(Generic[Task, Answer]):
    """Processes with a pipe each: at the end of this process, the pipe's end ends them."""

    def __init__(self, work: Callable[[Task], Answer], number: int) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy the threads of others
        self._free: list[Connection] = []
        self._processes: dict[Connection, BaseProcess] = {}
        self._tasks: dict[Connection, int] = {}
        for _ in range(number):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(work, theirs), daemon=True)
            process.start()
            theirs.close()
            self._free.append(ours)
            self._processes[ours] = process

    def __enter__(self) -> _Pool[Task, Answer]:
        return self

    def __exit__(self, *_: object) -> None:
        for connection, process in self._processes.items():
            connection.close()
            process.terminate()
            process.join()

    def answers(self, tasks: Iterator[Task]) -> Iterator[Answer]:
        """Yield the answers in order; few tasks are ahead of the one that is waited for."""
        ready: dict[int, Answer] = {}
        next_task = next_answer = 0
        more = True
        while more or self._tasks or ready:
            while more and self._free and next_task - next_answer < 4 * len(self._processes):
                try:
                    task = next(tasks)
                except StopIteration:
                    more = False
                    break
                self._send(task, next_task)
                next_task += 1
            if next_answer in ready:
                yield ready.pop(next_answer)
                next_answer += 1
            elif self._tasks:
                self._collect(ready)

    def _send(self, task: Task, number: int) -> None:
        connection = self._free.pop()
        with suppress(OSError):  # a killed process is noticed when its answer is read
            connection.send(task)
        self._tasks[connection] = number

    def _collect(self, ready: dict[int, Answer]) -> None:
        for connection in wait(list(self._tasks)):
            assert isinstance(connection, Connection)  # noqa: S101 - for the type checker
            try:
                answer: Any = connection.recv()
            except (EOFError, OSError) as error:
                hint = (
                    "is there enough memory? dmesg shows what the kernel killed; then run the command again"
                )
                raise JobkitError("a process that read the corpus was killed", hint=hint) from error
            if isinstance(answer, BaseException):
                raise answer
            ready[self._tasks.pop(connection)] = answer
            self._free.append(connection)


def _serve(work: Callable[[Any], Any], connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one handles it
    with suppress(EOFError, OSError):
        while True:
            task = connection.recv()
            try:
                answer = work(task)
            except Exception as error:  # noqa: BLE001 - raised again where the answer is read
                answer = error
            connection.send(answer)


Read = tuple[ScanPart, PartResult]


def hashes_of(part: ScanPart, result: PartResult) -> bytes:
    """Return the hashes of the ids of a part; a text file's id is its name."""
    if part.file.kind == "jsonl":
        return bytes(result.ids)
    return b"" if part.digest or part.start else id_hash(part.file.name)


def lines_before(reads: Sequence[Read]) -> list[int]:
    """Return for each part how many lines of its file are before it."""
    found: list[int] = []
    source, lines = -1, 0
    for part, result in reads:
        lines = lines if part.source == source else 0
        source = part.source
        found.append(lines)
        lines += result.lines
    return found


def doubled(reads: Sequence[Read], ids: Ids, dropped: Container[int]) -> Iterator[tuple[int, int, str]]:
    """Yield the part, the line in it and the reason of each document whose id an earlier one has.

    ``reads`` are in corpus order, and `hashes_of` each is in ``ids``; ``dropped`` are the sources that are
    left out.
    """
    repeated, sources = ids.repeated(), _likened(reads)
    first: dict[str, str] = {}
    before = lines_before(reads)
    for number in sorted({*(ids.parts_with(repeated) if repeated else ()), *_parts_of(reads, sources)}):
        part, result = reads[number]
        if part.source in dropped:
            continue
        for line, name in _names(part, result, before[number]):
            if id_hash(name) not in repeated and source_of(name) not in sources:
                continue
            place = f"{part.file.name}:{before[number] + line}" if line else part.file.name
            if name in first:
                yield number, line, f"the id {name!r} is also that of {first[name]}"
            first.setdefault(name, place)


def _likened(reads: Sequence[Read]) -> set[str]:
    """Return the files with documents without an id whose ids others may have been given."""
    unnamed = {part.file.name for part, result in reads if result.unnamed}
    texts = (
        {source_of(part.file.name) for part, _ in reads if part.file.kind != "jsonl"} if unnamed else set()
    )
    return unnamed & texts.union(*(result.likened for _, result in reads))


def _parts_of(reads: Sequence[Read], sources: set[str]) -> Iterator[int]:
    """Yield the number of each part with an id that one without an id may have."""
    for number, (part, result) in enumerate(reads):
        unnamed = result.unnamed and part.file.name in sources
        if unnamed or not sources.isdisjoint(result.likened) or source_of(part.file.name) in sources:
            yield number


def _names(part: ScanPart, result: PartResult, before: int) -> Iterator[tuple[int, str]]:
    """Yield line and id of the documents of a part; ``before`` counts the lines of its file before it."""
    if part.file.kind != "jsonl":
        yield 0, part.file.name
        return
    fields = part.fields
    with open_stream(part.file.path, part.file.compression) as stream:
        skip(stream, result.start)
        place = result.start
        for number, line in enumerate(lines_of(stream), 1):
            if place >= result.end:
                return
            with suppress(BadLineError):  # it is reported, or blank
                name = parse_line(line.removeprefix(BOM) if place == 0 else line, fields).id
                yield number, generated_id(part.file.name, before + number) if name is None else name
            place += len(line)


MOST_BAD = 100_000  # bad places: with more, the files are no corpus
_SHOWN = 1_000


@dataclass(slots=True)
class Findings:
    # number of a file that is bad as a whole, to its line, if known, and the reason
    files: dict[int, tuple[int, str]] = field(default_factory=dict)
    # number of a part of JSONL, to its bad lines, from the part's first, and the reasons
    lines: dict[int, dict[int, str]] = field(default_factory=dict)
    _number: int = 0

    def add(self, number: int, part: ScanPart, bad: Iterable[tuple[int, str]], before: int = 0) -> None:
        """Add what is bad in a part; ``before`` counts the lines of the file before it."""
        for line, reason in bad:
            self._number += 1
            if part.file.kind == JSONL and line:
                self.lines.setdefault(number, {})[line] = reason
            else:
                self.files.setdefault(part.source, (line and before + line, reason))
        if self._number > MOST_BAD:
            hint = "are the files text, with these fields? see --text-field and --id-field"
            raise JobkitError(f"the corpus has more than {MOST_BAD:,} places that cannot be read", hint=hint)

    def add_names(self, found: Sequence[Source]) -> None:
        """Add each file that has the name of an earlier one: their documents would share ids."""
        first: dict[str, str] = {}
        for number, one in enumerate(found):
            if one.name in first:
                self.files[number] = (0, f"{first[one.name]} has the same name: name the folders above them")
            first.setdefault(one.name, one.path)

    def listed(self, found: Sequence[Source], reads: Sequence[Read]) -> list[tuple[int, Bad]]:
        """Return all that is bad, with the number of its file, in corpus order."""
        before = lines_before(reads)
        places = [(source, line, reason) for source, (line, reason) in self.files.items()]
        for number, lines in self.lines.items():
            source = reads[number][0].source
            if source not in self.files:
                places += [(source, before[number] + line, reason) for line, reason in lines.items()]
        return [
            (source, Bad(source=found[source].name, line=line, reason=reason))
            for source, line, reason in sorted(places)
        ]

    def parts_again(self, reads: Sequence[Read]) -> Iterator[tuple[int, ScanPart]]:
        """Yield each part with bad lines that were taken for good, which is to be read without them."""
        for number, lines in self.lines.items():
            part, result = reads[number]
            if part.source not in self.files and lines.keys() - {line for line, _ in result.bad}:
                yield number, replace(part, left_out=frozenset(lines))


def refusal(bad: Sequence[tuple[int, Bad]], found: Sequence[Source]) -> JobkitError:
    lines = [
        f"\n  {found[source].path}{f':{one.line}' if one.line else ''}: {one.reason}"
        for source, one in bad[:_SHOWN]
    ]
    more = f"\n  and {len(bad) - _SHOWN:,} more" if len(bad) > _SHOWN else ""
    places = "1 place" if len(bad) == 1 else f"{len(bad):,} places"
    latin = (found[source] for source, one in bad if one.reason.startswith("not UTF-8"))
    path = next((shell_quote(one.path) for one in latin if not one.compression), "")
    convert = f" (iconv -f latin1 -t utf-8 {path} > converted && mv converted {path})" if path else ""
    return JobkitError(
        f"the corpus cannot be read in {places}:{''.join(lines)}{more}",
        hint=f"fix them{convert}, or leave them out: --skip-bad",
    )


_ALONE_BYTES = 2**24  # a smaller corpus is read by this process: to start others takes longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    corpus: Corpus  # to be written as ``corpus.json``; what was bad is in its ``skipped``
    pieces: list[Piece]  # in corpus order


def scan(
    corpus: CorpusFiles,
    *,
    text_field: str = "text",
    id_field: str = "id",
    skip_bad: bool = False,
    processes: int | None = None,
    seen: Callable[[int], object] = lambda _: None,
) -> Scan:
    """Read a corpus, of `jobkit.extensions.corpus.sources.find_sources`, once, by default on all cores.

    ``skip_bad`` leaves out what cannot be read: a text file, an archive, or a line of JSONL. ``seen`` is
    called from time to time with the bytes of files that were read since the last call.
    """
    found, fields = corpus.files, Fields(text_field, id_field)
    size = sum(one.size_bytes for one in found)
    number = processes or (1 if size < _ALONE_BYTES else cores())
    findings = Findings()
    findings.add_names(found)
    with closing(Ids()) as ids:
        reads = _read(found, fields, findings, ids, number, seen)
        for place, line, reason in doubled(reads, ids, findings.files):
            findings.add(place, reads[place][0], [(line, reason)])
    listed = findings.listed(found, reads)
    if listed and not skip_bad:
        raise refusal(listed, found)
    again = list(findings.parts_again(reads))
    for (place, part), result in zip(
        again, in_order(scan_part, [part for _, part in again], number), strict=True
    ):
        reads[place] = (part, result)
    return _result(corpus, reads, findings, [bad for _, bad in listed], fields)


def _read(
    found: Sequence[Source],
    fields: Fields,
    findings: Findings,
    ids: Ids,
    processes: int,
    seen: Callable[[int], object],
) -> list[Read]:
    todo = list(tasks(found, fields, set(findings.files)))
    reads: list[Read] = []
    for task, results in zip(todo, in_order(scan_parts, todo, processes), strict=True):
        for part, result in zip(task, results, strict=True):
            ids.add(hashes_of(part, result))
            result.ids.clear()
            reads.append((part, result))
            seen(0 if part.digest else (part.stop or part.file.size_bytes) - part.start)
    for number, ((part, result), before) in enumerate(zip(reads, lines_before(reads), strict=True)):
        findings.add(number, part, result.bad, before)
    return reads


def _result(
    files: CorpusFiles,
    reads: Sequence[Read],
    findings: Findings,
    skipped: Sequence[Bad],
    fields: Fields,
) -> Scan:
    found = files.files
    kept = [number for number in range(len(found)) if number not in findings.files]
    left = [read for read in reads if read[0].source not in findings.files]
    digests = {part.source: result.sha256 for part, result in left if result.sha256}
    sources = tuple(replace(found[number], sha256=digests[number]) for number in kept)
    pieces = list(_pieces(left, {number: place for place, number in enumerate(kept)}))
    corpus = Corpus(
        sources=sources,
        text_field=fields.text,
        id_field=fields.id,
        skipped=tuple(skipped),
        unread=files.unread,
        documents=sum(source.kind != JSONL for source in sources)
        + sum(result.documents for _, result in left),
        paragraphs=sum(piece.paragraphs for piece in pieces),
        characters=sum(piece.characters for piece in pieces),
    )
    if not pieces:
        raise JobkitError("the corpus holds no paragraph", hint="see --corpus and --text-field")
    return Scan(corpus=corpus, pieces=pieces)


def _pieces(reads: Sequence[Read], places: dict[int, int]) -> Iterator[Piece]:
    """Yield the pieces of all parts; what counted from a part counts from its file."""
    source = -1
    lines = paragraphs = given = 0
    for part, result in reads:
        if part.source != source:
            source = part.source
            lines = paragraphs = given = 0
        # In JSONL a piece counts paragraphs and characters from its own document.
        base = (lines, 0, 0) if part.file.kind == JSONL else (0, paragraphs, given)
        for row in result.pieces:
            yield _piece(row, places[source], base)
        result.pieces.clear()
        lines += result.lines
        paragraphs += result.paragraphs
        given += result.given


def _piece(row: PieceRow, source: int, base: tuple[int, int, int]) -> Piece:
    return Piece(
        source=source,
        start=row.start,
        end=row.end,
        skip=row.skip,
        line=row.line and base[0] + row.line,
        first_paragraph=base[1] + row.first_paragraph,
        first_character=base[2] + row.first_character,
        paragraphs=row.paragraphs,
        characters=row.characters,
        longest=row.longest,
        sha256=row.sha256.hex(),
    )
