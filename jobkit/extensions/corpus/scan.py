"""Find the files of a corpus, and read each once: digests, pieces, and all that is bad."""

from __future__ import annotations

import codecs
import math
import os
import re
import signal
import stat
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import IO, TypeVar

from jobkit.answers.speed import CorpusVolume
from jobkit.core.errors import InvalidSpecError, JobkitError, file_error
from jobkit.core.frozen import frozen, keyed
from jobkit.core.paragraphs import LFS_HINT, LFS_REASON, Fields
from jobkit.core.shell import usable_cpus
from jobkit.core.terminal import shell_path, shell_quote
from jobkit.core.units import MOST_NAMED, format_count, format_list
from jobkit.extensions.corpus.plan import Bad, Corpus, Piece, Source
from jobkit.extensions.corpus.readers import (
    COMPRESSIONS,
    JSONL,
    PACKED,
    READ,
    READERS,
    TEXT,
    ScanPart,
    id_hash,
    is_json_lines,
    kind_of,
    may_be_json,
    scan_parts,
    source_of,
)
from jobkit.extensions.corpus.streams import AUTO, BrokenError, encoding_of
from jobkit.extensions.corpus.tables import FILE_ROW, PARQUET, STATE_FILES, Wanted, guessed, saved_files
from jobkit.planning.texts import SAMPLE, find_text


@frozen
class CorpusFiles:
    """The files of a corpus, and the names of those in its folders that are not read."""

    files: list[Source]
    unread: tuple[str, ...]


def find_sources(paths: Sequence[str]) -> CorpusFiles:
    """Return the files of a corpus, in the order of the paths, below a folder by name.

    Below a folder, at any depth, these are the files that end as `READ` says, in small or capital letters,
    without hidden files and links to folders.
    """
    if not paths:
        raise JobkitError(
            "no corpus", hint=f"--corpus PATH...: files or folders of them. jobkit reads {READ}"
        )
    found: list[Source] = []
    unread: list[str] = []
    for path in paths:
        found += _below(path, unread)
    seen: dict[str, str] = {}
    for one in found:
        if one.path in seen:
            raise JobkitError(f"--corpus: {one.path} is given twice, as {seen[one.path]} and {one.name}")
        seen[one.path] = one.name
    return CorpusFiles(found, tuple(sorted(map(_printable, unread), key=lambda name: "/." in name)))


def _below(path: str, unread: list[str]) -> list[Source]:
    if path in frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}):
        raise JobkitError(
            f"--corpus {path}: jobkit cannot read standard input a second time after a failure",
            hint="write the corpus to a file first: cat > corpus.txt",
        )
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - the path as it was given, also with a slash at its end
        if stat.S_ISDIR(mode):
            return _in_folder(path, unread)
        if stat.S_ISREG(mode) and file_kind(path)[0]:
            return [source_at(path, path)]
        if stat.S_ISREG(mode):
            raise JobkitError(f"--corpus {path}: not read: jobkit reads {READ}", hint=_way(Path(path)))
    except OSError as error:
        raise file_error(error, path, hint="see --corpus") from error
    raise JobkitError(
        f"--corpus {path}: neither a file nor a folder: jobkit reads a corpus more than once",
        hint="write the corpus to a file first",
    )


def _way(path: Path) -> str:
    """Return how a file that is not read can become one that is."""
    if re.search(r"\.(tar(\.\w+)?|t[bgx]z2?)$", path.name.lower()):
        return f"unpack it and name the folder: mkdir unpacked && tar -xf {shell_path(path)} -C unpacked"
    stem, ending = (path.stem, path.suffix) if path.suffix.lower() in COMPRESSIONS else (path.name, "")
    if stem.lower().endswith(".json"):
        return "not a JSON object a line: write JSONL, a document a line: jq -c '.[]' makes it of an array"
    link = f"ln -s {shell_quote(path.name)} {shell_path(path.with_name(f'{stem}.txt{ending}'))}"
    return f"for plain text: {link}; else write JSONL, a document a line, with its text in the field `text`"


def _in_folder(folder: str, unread: list[str]) -> list[Source]:
    name, path, names = Path(folder).resolve().name, folder.rstrip("/"), [*_names(Path(folder), "")]
    found = [source_at(f"{path}/{inside}", f"{name}/{inside}") for inside, is_read in names if is_read]
    left = [f"{name}/{inside}" for inside, is_read in names if not is_read]
    if not found:
        message = f"--corpus {folder}: a folder without a file that is read: {format_list(left)}"
        raise JobkitError(message.removesuffix(": "), hint=f"jobkit reads {READ}")
    unread += left
    return found


def _names(folder: Path, before: str) -> Iterator[tuple[str, bool]]:
    """Yield the names below a folder, each folder's in order, and whether jobkit reads the file."""
    with os.scandir(folder) as entries:
        inside = sorted(entries, key=lambda entry: os.fsencode(entry.name))
    saved = saved_files(folder, {entry.name for entry in inside})
    for entry in inside:
        if saved is not None and entry.name in STATE_FILES:
            continue
        hidden, is_folder = entry.name.startswith("."), entry.is_dir(follow_symlinks=False)
        if is_folder and not hidden:
            yield from _names(folder / entry.name, f"{before}{entry.name}/")
        else:
            wanted = not hidden and (saved is None or entry.name in saved)
            is_read = wanted and os.path.isfile(entry.path) and bool(file_kind(entry.path, inside=True)[0])  # noqa: PTH113 - quick
            yield f"{before}{entry.name}{'/' * is_folder}", is_read


def _printable(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def file_kind(path: str, *, inside: bool = False) -> tuple[str, str]:
    """Return the kind and the compression of a file by its name, else by its first bytes.

    ``inside``: in a folder a ``.json`` that is not compressed is no part of a corpus.
    """
    kind, compression = kind_of(path)
    if kind or not may_be_json(path, compression) or (inside and not compression):
        return kind, compression
    size = os.stat(path).st_size  # noqa: PTH116 - as below
    source = Source(path=path, name=path, kind=JSONL, compression=compression, size_bytes=size, mtime_ns=0)
    return JSONL if is_json_lines(source) else "", compression


def source_at(path: str, name: str) -> Source:
    status = os.stat(path)  # noqa: PTH116 - 100,000 Path objects cost time
    kind, compression = file_kind(path)
    return Source(
        path=os.path.abspath(path),  # noqa: PTH100 - the same
        name=_printable(name),
        kind=kind,
        compression=compression,
        size_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
    )


# -- reading

RANGE_BYTES = 2**25  # a file with more than two of these is read in ranges, by several processes


def grown_bytes(found: Iterable[Source]) -> int:
    """Return about how many bytes of text files have."""
    # how text grows when it is decompressed, roughly
    growth = {
        "gz": 4,
        "zst": 4,
        "bz2": 4,
        "xz": 5,
        PARQUET: 2,
    }
    return sum(one.size_bytes * growth.get(one.compression or one.kind, 1) for one in found)


def piece_bytes(found: Sequence[Source]) -> int:
    """Return how many bytes a piece of a corpus should have.

    The pieces of a small corpus are paragraphs. 16 MiB have 4,000 pieces of 4 KiB, 1 GiB has 26,000 of 40
    KiB, and 100 GiB have 200,000 of half a MiB; a still larger corpus has larger pieces, not more.
    """
    size = grown_bytes(found)
    most_pieces, small = 200_000, 2**24
    large = most_pieces * 2**19
    if size < small:
        return size // 2**12
    return max(int(2**12 * (size / small) ** (math.log(2**7) / math.log(large / small))), size // most_pieces)


_BYTES = 8


class Ids:
    """Hashes of ids, part by part, in a file of its own."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._numbers: list[int] = []

    def add(self, hashes: bytes | bytearray) -> None:
        self._file.write(hashes)
        self._numbers.append(len(hashes) // _BYTES)

    def repeated(self) -> set[bytes]:
        import numpy as np

        at_once = 2**22  # hashes that are sorted together
        shares = sum(self._numbers) // at_once + 1
        found: set[bytes] = set()
        for share in range(shares):
            self._file.seek(0)
            parts = [np.empty(0, np.uint64)]
            while block := self._file.read(at_once * _BYTES):
                hashes = np.frombuffer(block, np.uint64)
                parts.append(hashes[hashes % np.uint64(shares) == share])
            values, numbers = np.unique(np.concatenate(parts), return_counts=True)
            found.update(value.tobytes() for value in values[numbers > 1])
        return found

    def parts_with(self, hashes: set[bytes]) -> Iterator[int]:
        """Yield the number of each part that has one of some hashes, from 0."""
        import numpy as np

        sought = np.frombuffer(b"".join(sorted(hashes)), np.uint64)
        self._file.seek(0)
        for number, size in enumerate(self._numbers):
            if np.isin(np.frombuffer(self._file.read(size * _BYTES), np.uint64), sought).any():
                yield number


# -- processes

Task = TypeVar("Task")
Answer = TypeVar("Answer")


def in_order(
    work: Callable[[Task], Answer], tasks: Iterable[Task], processes: int
) -> Generator[Answer, None, None]:
    """Yield the answers in the order of the tasks; one process alone is this one.

    ``work`` is a function of a module, imported in each process. Few tasks are ahead of the answer that is
    waited for, so there may be many.
    """
    if processes < 2:
        yield from map(work, tasks)
        return
    from concurrent.futures import ProcessPoolExecutor, process  # here: a small corpus needs no processes
    from multiprocessing import active_children, get_context

    context = get_context("spawn")  # a fork would copy the threads of others
    pool, tasks = ProcessPoolExecutor(processes, context, initializer=_end_with_parent), iter(tasks)
    try:
        ahead = deque(pool.submit(work, task) for task in islice(tasks, 4 * processes))
        while ahead:
            yield ahead.popleft().result()
            ahead.extend(pool.submit(work, task) for task in islice(tasks, 1))
    except process.BrokenProcessPool as error:
        hint = "is there enough memory? dmesg shows what the kernel killed; then run the command again"
        raise JobkitError("a process that read the corpus was killed", hint=hint) from error
    except BaseException:
        for child in active_children():  # no one waits for an archive that takes minutes
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """Leave Ctrl-C to the process that started this one, and end when it ends, however it was killed."""
    from multiprocessing import parent_process

    def watch() -> None:
        if parent := parent_process():
            parent.join()
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()


# -- the whole corpus

MOST_BAD = 100_000  # bad places: with more, the files are no corpus
_SHOWN = 20


@keyed
class Scan:
    corpus: Corpus  # to be written as ``corpus.json``; what was bad is in its ``skipped``
    pieces: list[Piece]  # in corpus order


def scan(
    corpus: CorpusFiles,
    *,
    text_field: str = "",
    id_field: str = "",
    encoding: str = "",
    split: int = 0,
    skip_bad: bool = False,
    processes: int | None = None,
    before: Corpus | None = None,
) -> Scan:
    """Read a corpus, of `find_sources`, once, by default on all cores.

    ``text_field`` and ``id_field`` have a name a line: of plain names a file has the first that is there,
    ``FILE=NAME`` is for some files. ``before``: what is known of the first files, which keep their fields.
    If ids of a guessed column are not unique, the corpus is read a second time, and they count for nothing.
    ``skip_bad`` leaves out what cannot be read: a text file, an archive, or a line of JSONL. ``encoding`` is
    that of all text files, or `AUTO`.
    """
    if encoding:
        encoding = known_encoding(encoding)
        files = [replace(one, encoding=encoding) if one.kind in PACKED else one for one in corpus.files]
        corpus = replace(corpus, files=files)
    size = sum(one.size_bytes for one in corpus.files)
    # a smaller corpus is read by this process: to start others takes longer
    # processes: more would need more than 1 GiB of memory together, and few disks are faster
    number = processes or (1 if size < 2**24 else min(16, usable_cpus()))
    usual = Fields(before.text_field, before.id_field) if before else Fields()
    planned = {
        one.name: Fields(one.columns.text, one.columns.id) if one.columns else usual
        for one in (before.sources if before else ())
    }
    text, texts = _names_of(corpus.files, text_field, {name: one.text for name, one in planned.items()})
    known = {name: one.id or FILE_ROW for name, one in planned.items()}
    name, names = _names_of(corpus.files, id_field, known)
    fields = Fields(text or "text", "" if name == FILE_ROW else name or "id")
    wanted = [*map(Wanted, texts, names)]
    for _ in range(2):
        reading = _Reading(corpus.files, fields, wanted, number, split)
        with tempfile.TemporaryFile() as file:
            ids = Ids(file)
            reading.read(ids)
            guesses = {} if reading.find_doubled(ids) else reading.guesses()
        if not guesses:
            break
        wanted = [guesses.get(place, one) for place, one in enumerate(wanted)]
    bad = reading.bad()
    if bad and not skip_bad:
        raise _refusal(bad, corpus.files)
    reading.read_again()
    return reading.result(corpus.unread, [one for _, one in bad])


def _names_of(
    found: Sequence[Source], asked: str, planned: Mapping[str, str]
) -> tuple[str, list[tuple[str, ...]]]:
    """Return the only plain name of a field, if there is one, and of each file the names of its field."""
    own: dict[str, list[str]] = {}
    for word in asked.splitlines():
        pattern, _, name = word.rpartition("=")
        meant = [one.path for one in found if pattern and _means(pattern, one)]
        for path in meant or [""]:
            own.setdefault(path, []).append(name if meant else word)
    plain = own.get("", [])
    known = ([planned[one.name]] if one.name in planned else [] for one in found)
    names = [tuple(own.get(one.path) or plain or was) for one, was in zip(found, known, strict=True)]
    return plain[0] if len(plain) == 1 else "", names


def _means(pattern: str, file: Source) -> bool:
    """Return whether ``FILE`` of ``FILE=NAME`` is a file: its name, its path, the end of it, or a pattern."""
    ends = (file.name, file.path, os.path.basename(file.path))  # noqa: PTH119 - as in `source_at`
    return pattern in ends or any(fnmatchcase(end, pattern) for end in ends)


class _Reading:
    """A corpus while it is read: its parts in corpus order, and what is bad in them."""

    def __init__(
        self, found: Sequence[Source], fields: Fields, wanted: Sequence[Wanted], processes: int, split: int
    ) -> None:
        self.found = found
        self.fields, self.wanted, self.split = fields, wanted, split
        self.processes = processes
        self.parts: list[ScanPart] = []
        self._bad_files: dict[int, tuple[int, str]] = {}  # by number of the file: a line, if known, and why
        self._bad_lines: dict[int, dict[int, str]] = {}  # by number of the part: its bad lines, and why
        self._number_bad = 0
        first: dict[str, str] = {}
        for number, one in enumerate(found):
            if one.name in first:  # their documents would share ids
                reason = f"{first[one.name]} has the same name: name the folders above them"
                self._bad_files[number] = (0, reason)
            first.setdefault(one.name, one.path)

    def read(self, ids: Ids) -> None:
        last: ScanPart | None = None
        for parts in in_order(scan_parts, list(self._tasks()), self.processes):
            for part in parts:
                part.before = last.before + last.lines if last and last.source == part.source else 0
                last = part
                ids.add(part.ids)
                part.ids.clear()
                self.parts.append(part)
                self._add(len(self.parts) - 1, part.bad)

    def _tasks(self) -> Iterator[list[ScanPart]]:
        """Yield what a process reads at once: a range of a large file, or several small files.

        One process computes the SHA-256 of a large file, while others read its ranges: the file comes from
        the disk once, and then from memory.
        """
        target = piece_bytes(self.found)
        task: list[ScanPart] = []
        size = 0
        for number, one in enumerate(self.found):
            if number in self._bad_files:
                continue
            part = ScanPart(source=number, file=one, target=target, fields=self.fields, split=self.split)
            part.wanted = self.wanted[number]
            ranges = READERS[one.kind].ranges and not one.compression and not one.encoding
            large = ranges and one.size_bytes > 2 * RANGE_BYTES
            if task and (large or len(task) == 256 or size > 2**23):
                yield task
                task, size = [], 0
            if large:
                yield [replace(part, digest=True)]
                for start in range(0, one.size_bytes, RANGE_BYTES):
                    yield [replace(part, start=start, stop=min(start + RANGE_BYTES, one.size_bytes))]
            else:
                task.append(part)
                size += one.size_bytes
        if task:
            yield task

    def _add(self, number: int, bad: Iterable[tuple[int, str]]) -> None:
        """Note what is bad in a part, by its lines."""
        part = self.parts[number]
        for line, reason in bad:
            self._number_bad += 1
            if part.file.kind != TEXT and line:
                self._bad_lines.setdefault(number, {})[line] = reason
            else:
                self._bad_files.setdefault(part.source, (line and part.before + line, reason))
        if self._number_bad > MOST_BAD:
            raise _refusal(self.bad(), self.found, more=True)

    def guesses(self) -> dict[int, Wanted]:
        """Return of each file whose ids are of a guessed column the names without it."""
        return {
            part.source: Wanted(self.wanted[part.source].text, (FILE_ROW,))
            for part in self.parts
            if part.file.columns and guessed(part.file.columns) and not self.wanted[part.source].id
        }

    def find_doubled(self, ids: Ids) -> bool:
        """Note each document whose id an earlier one has; documents without an id get generated ones.

        Return whether all were noted: if columns are guessed, the first ends it.
        """
        is_guess = bool(self.guesses())
        unnamed = {part.file.name for part in self.parts if part.unnamed}
        likened = unnamed & set().union(*(part.likened for part in self.parts))
        repeated = ids.repeated()
        sought = set(ids.parts_with(repeated) if repeated else ())
        for number, part in enumerate(self.parts):
            if (part.unnamed and part.file.name in likened) or not likened.isdisjoint(part.likened):
                sought.add(number)
        first: dict[str, str] = {}
        for number in sorted(sought):
            part = self.parts[number]
            if part.source in self._bad_files:
                continue
            for line, name in READERS[part.file.kind].names(part):
                if id_hash(name) not in repeated and source_of(name) not in likened:
                    continue
                if name in first:
                    if is_guess:
                        return False
                    columns = part.file.columns
                    field = (columns.id if columns else self.fields.id) if line else ""
                    of = f" ({field})" if field else ""
                    self._add(number, [(line, f"the id {name!r}{of} is also that of {first[name]}")])
                place = f"{part.file.name}:{part.before + line}" if line else part.file.name
                first.setdefault(name, place)
        return True

    def bad(self) -> list[tuple[int, Bad]]:
        """Return all that is bad, with the number of its file, in corpus order."""
        places = [(source, line, reason) for source, (line, reason) in self._bad_files.items()]
        for number, lines in self._bad_lines.items():
            part = self.parts[number]
            if part.source not in self._bad_files:
                places += [(part.source, part.before + line, reason) for line, reason in lines.items()]
        return [
            (source, Bad(source=self.found[source].name, line=line, reason=reason))
            for source, line, reason in sorted(places)
        ]

    def read_again(self) -> None:
        """Read each part with bad lines that were taken for good once more, without them."""
        again = [
            number
            for number, lines in self._bad_lines.items()
            if self.parts[number].source not in self._bad_files
            and lines.keys() - {line for line, _ in self.parts[number].bad}
        ]
        tasks = [[replace(self.parts[n], left_out=frozenset(self._bad_lines[n]))] for n in again]
        for number, (part,) in zip(again, in_order(scan_parts, tasks, self.processes), strict=True):
            self.parts[number] = part

    def result(self, unread: tuple[str, ...], skipped: Sequence[Bad]) -> Scan:
        kept = [number for number in range(len(self.found)) if number not in self._bad_files]
        places = {number: place for place, number in enumerate(kept)}
        parts = [part for part in self.parts if part.source in places]
        digests = {part.source: part.sha256 for part in parts if part.sha256}
        files = {part.source: part.file for part in parts if not part.digest}
        pieces = list(_pieces(parts, places))
        texts = {places[part.source] for part in parts if part.file.kind == TEXT}
        if not pieces:
            raise JobkitError("the corpus holds no paragraph", hint="see --corpus and --text-field")
        corpus = Corpus(
            sources=tuple(replace(files[number], sha256=digests[number]) for number in kept),
            text_field=self.fields.text,
            id_field=self.fields.id,
            split=self.split,
            skipped=tuple(skipped),
            unread=unread,
            documents=sum(part.documents for part in parts),
            paragraphs=sum(piece.paragraphs for piece in pieces),
            characters=sum(piece.characters for piece in pieces),
            empty=sum(part.empty for part in parts) + len(texts - {piece.source for piece in pieces}),
        )
        return Scan(corpus=corpus, pieces=pieces)


def _pieces(parts: Iterable[ScanPart], places: dict[int, int]) -> Iterator[Piece]:
    """Yield the pieces of all parts; what counted from a part counts from its file."""
    source = -1
    lines = paragraphs = given = 0
    for part in parts:
        if part.source != source:
            source = part.source
            lines = paragraphs = given = 0
        for piece in part.pieces:
            yield replace(
                piece,
                source=places[source],
                line=piece.line and lines + piece.line,
                first_paragraph=paragraphs + piece.first_paragraph,
                first_character=given + piece.first_character,
            )
        part.pieces.clear()
        lines += part.lines
        paragraphs += part.paragraphs
        given += part.given


_WAYS = {
    LFS_REASON: f"{LFS_HINT} fetches them",
    "no field": "name the field: --text-field NAME, or of some files --text-field FILE=NAME",
    "the id": f"take FILE:ROW in place of these ids: --id {FILE_ROW}",
}
_WAYS["no column"] = _WAYS["no field"]
"""By the beginning of a reason what to type."""


def _refusal(bad: Sequence[tuple[int, Bad]], found: Sequence[Source], *, more: bool = False) -> JobkitError:
    """Return the error of all that is bad, by file and kind, else by kind; ``more``: there is still more."""
    groups = dict[tuple[str, ...], list[tuple[int, Bad]]]()
    for by_file in (True, False):
        groups.clear()
        for source, one in bad:
            # what differs in reasons of one kind is left out
            kind = re.sub(r"(the id).*|\d+|: .*", r"\1", one.reason, flags=re.DOTALL)
            groups.setdefault((kind, *[one.source] * by_file), []).append((source, one))
        if len(groups) <= _SHOWN:
            break
    lines, encodings = list[str](), dict[int, str]()
    for (source, one), *others in islice(groups.values(), _SHOWN):
        reason = one.reason
        if reason.startswith("not UTF-8") and found[source].kind in PACKED:
            if source not in encodings and len(encodings) < MOST_NAMED:
                encodings[source] = ""
                with suppress(BrokenError, OSError):
                    encodings[source] = encoding_of(found[source])
            reason += f", it seems to be {encodings[source]}" if encodings.get(source) else ""
        files = len({place for place, _ in others} - {source})
        where = f" in {format_count(files, 'other file')} too" if files else ""
        reason += f" (and {format_count(len(others), 'more such place')}{where})" if others else ""
        lines.append(f"\n  {found[source].path}{f':{one.line}' if one.line else ''}: {reason}")
    ways = [way for begin, way in _WAYS.items() if any(key[0].startswith(begin) for key in groups)]
    if known := next(filter(None, encodings.values()), ""):
        ways.append(f"read them with --encoding {known} (auto: each by itself)")
    ways = [
        "fix them",
        *dict.fromkeys(ways),
        *([] if more else ["leave them out: --skip-bad (in Python skip_bad=True)"]),
    ]
    number = f"more than {MOST_BAD:,} places" if more else format_count(len(bad), "place")
    return InvalidSpecError(
        f"the corpus cannot be read in {number}:"
        f"{''.join(lines)}{f'{chr(10)}  and {len(groups) - _SHOWN:,} kinds more' * (len(groups) > _SHOWN)}",
        hint="; or ".join(ways),
    )


def known_encoding(name: str) -> str:
    """Return the name of an encoding as Python knows it; empty for UTF-8."""
    try:
        if name == AUTO:
            return name
        found = codecs.lookup(name).name
        codecs.getincrementaldecoder(name)().decode(b"").encode()
    except (LookupError, AttributeError, TypeError, ValueError) as error:
        hint = "for example latin-1, cp1252, utf-16 or shift_jis; or auto"
        raise JobkitError(f"--encoding {name}: no encoding of text", hint=hint) from error
    return "" if found == "utf-8" else found


# -- what other commands ask


def volume(texts: Sequence[str], *, skip_bad: bool) -> CorpusVolume | None:
    """Return the size of all that ``jobkit apply`` would read; ``None`` if it may be a plain text."""
    text, *more = texts
    plain = kind_of(text) == (TEXT, "") and not Path(text).is_dir()
    if not more and (not Path(text).exists() or (plain and not skip_bad)):
        return None
    try:
        read = scan(find_sources(texts), skip_bad=skip_bad).corpus
    except JobkitError as error:
        if not any(option in error.hint for option in ("--text-field", "--encoding", "--id")):
            raise
        planned = f"jobkit apply RUN --corpus {' '.join(map(shell_quote, texts))} --out DIR --dry-run"
        hint = f"{error.hint}. {planned} has these options, and the time"
        raise JobkitError(error.message, hint=hint) from error
    name = text if not more else f"{text} and {format_count(len(more), 'more path')}"
    if bad := [*dict.fromkeys(one.source for one in read.skipped)]:
        name += f", without what cannot be read in {format_list(bad)}"
    return CorpusVolume(name=name, paragraphs=read.paragraphs, characters=read.characters)


def corpus_path(word: str, cache: Path) -> str:
    """Return the path of a corpus; ``sample`` names the shipped text, unless a file has that name."""
    if Path(word).exists() or not SAMPLE.fullmatch(word):
        return os.path.expanduser(word)  # noqa: PTH111 - it leaves the ~ of an unknown user as it is
    return find_text(word, base=Path(), cache=cache).path
