"""Find the text that a spec names, check that a job could read it, and know the lengths of its items."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from decimal import Decimal
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from jobkit.answers.loads import PUNCTUATION, Lengths, loads_of, once_each
from jobkit.core import extensions
from jobkit.core.errors import JobkitError
from jobkit.core.extras import EXTRAS
from jobkit.core.files import read_bytes, write_atomically
from jobkit.core.paragraphs import JSONL_ENDINGS, LFS_HINT, LFS_POINTER, LFS_REASON, split_paragraphs
from jobkit.core.paths import CACHE_VARIABLE, cache_dir, cache_write_errors, make_folder, share_with_group
from jobkit.core.records import ModelRef, Record, TextRef
from jobkit.core.terminal import Say, shell_quote
from jobkit.core.units import format_count
from jobkit.planning.models import NOT_BUILT
from jobkit.planning.sample import PARAGRAPHS, generator_version, sample_path, sample_text, write_sample
from jobkit.planning.workload_traits import JobPython, Traits, run_in_child, traits
from jobkit.worker.paragraphs import read_paragraphs, split_sentences
from jobkit.worker.workloads import own
from jobkit.worker.workloads.base import CHARACTERS, EXTRA_OF, SHIPPED, missing_framework

if TYPE_CHECKING:
    from jobkit.answers.speed import CorpusVolume

SAMPLE = re.compile(r"sample(?::([1-9]\d{0,3}))?", re.ASCII)
"""``sample``, or ``sample:300`` for a sample of 300 paragraphs."""
MOST_PARAGRAPHS = 9999
KEY_HINT = "`text` may be a path, an http(s) address, or `sample`"


def find_text(
    name: str, *, base: Path, cache: Path, write: bool = True, number: int | None = None, seed: int = 0
) -> TextRef:
    """Return the text that a spec names.

    ``name``: ``sample`` for the built-in text, ``sample:300`` for 300 paragraphs; a path, relative to
    ``base`` (the folder of the spec) or else to the working folder; or an http(s) address, downloaded once.
    ``cache``: the sample and downloads are in its ``texts/``.
    ``write``: whether the cache may be written: otherwise the sample is described as it would be, and an
    address must have been downloaded before. A text out of a corpus is written all the same.
    ``number``: how many paragraphs are drawn, with ``seed``; ``None`` for all.
    """
    texts = cache / "texts"
    if number and name.partition(":")[0] == "sample":
        hint = f"the built-in text in {number:,} paragraphs: text: sample:{number}"
        raise JobkitError(f"text_sample: means nothing to text: {name}", hint=hint)
    if match := SAMPLE.fullmatch(name):
        return _sample(texts, name, int(match[1] or PARAGRAPHS), write=write)
    if not name.strip():
        raise JobkitError("no text is named", hint=f"{KEY_HINT}; without the key the text is `sample`")
    if name.startswith("sample:"):
        raise JobkitError(
            f"text {name!r}: the built-in text has 1 to {MOST_PARAGRAPHS:,} paragraphs",
            hint="for instance sample:300; to name a file, type a path with a slash: ./sample:300",
        )
    path = _downloaded(name, texts, write=write) if "://" in name else text_on_disk(name, base)
    return _drawn_text(path, name, texts, number, seed) or _checked(path, name)


def _drawn_text(path: Path, name: str, texts: Path, number: int | None, seed: int) -> TextRef | None:
    """Return the text of a corpus that an extension reads, of which the cache keeps a copy."""
    for offer in extensions.each(lambda one: one.text):
        if not (made := offer(path, number, seed)):
            continue
        key, read = made
        note = texts / f"drawn-{key}.sha256"
        data = _kept(texts, note)
        if data is None:
            data = read().encode()
            digest = hashlib.sha256(data).hexdigest()
            with cache_write_errors(texts):
                make_folder(texts)
                for file, content in ((texts / f"drawn-{digest[:12]}.txt", data), (note, f"{digest}\n")):
                    write_atomically(file, content)
                    share_with_group(file)
        words = f": {number:,} drawn, seed {seed}" if number else ""
        digest = hashlib.sha256(data).hexdigest()
        return _ref(texts / f"drawn-{digest[:12]}.txt", data, name + words)
    return None


def is_sample(text: TextRef) -> bool:
    """Return whether a text is the built-in one, of any number of paragraphs."""
    return bool(SAMPLE.fullmatch(text.name))


def longer_text(text: TextRef, paragraphs: int, has: int) -> str:
    """Return the option that gives the same spec a text of so many paragraphs, with what FILE stands for.

    ``has``: how many the text has; fewer than were drawn are all of its corpus.
    """
    if is_sample(text) and paragraphs <= MOST_PARAGRAPHS:
        return f"--set text=sample:{paragraphs}"
    asked = re.search(r": ([\d,]+) drawn, seed ", text.name)
    more = asked and int(asked[1].replace(",", "")) <= has
    return f"--set text_sample={paragraphs}" if more else f"--set text=FILE   # of {paragraphs:,} paragraphs"


def is_sample_file(path: Path, cache: Path) -> bool:
    """Return whether a file is the built-in text, of any number of paragraphs, as the cache has it."""
    notes = (cache / "texts").glob(f"sample-*-of-{generator_version()}.sha256")
    try:
        digests = {note.read_text(encoding="ascii").strip() for note in notes}
        # more than the longest built-in text has, so that a large corpus is not read
        small = path.stat().st_size <= 1 << 22
        return small and hashlib.sha256(read_bytes(path)).hexdigest() in digests
    except (OSError, ValueError):
        return False


def _sample(texts: Path, name: str, paragraphs: int, *, write: bool) -> TextRef:
    """Return the sample text, generated only if the cache does not have it.

    A dry run, too, writes to a cache that exists; otherwise it would generate the text each time.
    """
    note = texts / f"sample-{paragraphs}-of-{generator_version()}.sha256"
    data = _kept(texts, note)
    if data is None:
        data = sample_text(paragraphs).encode()
        with contextlib.nullcontext() if write else contextlib.suppress(JobkitError):
            if write or texts.parent.is_dir():
                write_sample(texts, paragraphs)
                with cache_write_errors(texts):
                    write_atomically(note, hashlib.sha256(data).hexdigest() + "\n")
                    share_with_group(note)
    return _ref(sample_path(texts, data.decode()), data, name)


def _kept(texts: Path, note: Path) -> bytes | None:
    """Return the text whose checksum a note holds; ``None`` if it is missing or has changed."""
    try:
        digest = note.read_text(encoding="ascii").strip()
        data = (texts / f"{note.name.partition('-')[0]}-{digest[:12]}.txt").read_bytes()
    except (OSError, ValueError):
        return None
    return data if hashlib.sha256(data).hexdigest() == digest else None


def _ref(path: Path, data: bytes, name: str) -> TextRef:
    digest = hashlib.sha256(data).hexdigest()
    return TextRef(path=str(path.absolute()), sha256=digest, size_bytes=len(data), name=name)


def text_on_disk(name: str, base: Path) -> Path:
    if name.startswith("on:"):
        hint = "jobkit --on HOST reads it there; a command on the cluster itself needs the path without on:"
        raise JobkitError(f"text {name!r} is on a cluster, and this command is not", hint=hint)
    given = Path(os.path.expanduser(name))  # noqa: PTH111 - a Path forgets the ./ of ./~
    places = [base / given, Path.cwd() / given]  # an absolute path stays what it is
    for place in places:
        if place.exists():
            return place.resolve()
    looked = " nor ".join(dict.fromkeys(str(place.absolute()) for place in places))
    hint = KEY_HINT
    for place in places:  # a file there may have a name like it
        if close := difflib.get_close_matches(given.name, _files_in(place.parent), 1, 0.6):
            folder = "" if given.parent == Path() else f"{given.parent}/"
            hint = f"did you mean {folder}{close[0]}?"
            break
    raise JobkitError(f"text {name!r}: there is no {looked}", hint=hint)


def _files_in(folder: Path) -> list[str]:
    """Return the names of the files in a folder, for a hint; empty if it cannot be read."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        # How many names of a folder are searched for one like a name that does not exist
        shown = (entry for entry in islice(entries, 10_000) if not entry.name.startswith("."))
        return [entry.name for entry in shown if entry.is_file()]
    return []


def _checked(path: Path, name: str) -> TextRef:
    """Return a text after it was read whole, as a job will read it."""
    try:
        # every point reads the text of a sweep whole; a corpus may be larger
        data = read_bytes(path, 1 << 32)
    except OSError as error:
        raise JobkitError(f"text {path}: {error.strerror}", hint=KEY_HINT) from error
    if not data:
        raise JobkitError(f"text {path}: is empty", hint=KEY_HINT)
    if data.startswith(LFS_POINTER):
        raise JobkitError(f"text {path}: {LFS_REASON}", hint=LFS_HINT)
    if b"\0" in data:
        at = data.index(b"\0")
        raise JobkitError(f"text {path}: is binary (a NUL at byte {at})", hint="name a plain UTF-8 text")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        new = path.with_name(f"{path.stem}.utf8{path.suffix}")
        convert = f"iconv -f latin1 -t utf-8 {shell_quote(path)} > {shell_quote(new)}"
        hint = f"convert the text first, for instance: {convert}"
        raise JobkitError(f"text {path}: not UTF-8 at byte {error.start}", hint=hint) from error
    if not split_paragraphs(text):
        raise JobkitError(f"text {path}: holds no paragraph, only white space", hint=KEY_HINT)
    return _ref(path, data, name)


def _downloaded(address: str, texts: Path, *, write: bool) -> Path:
    if not address.lower().startswith(("http://", "https://")):
        raise JobkitError(f"text {address}: jobkit reads no such address", hint=KEY_HINT)
    path = texts / f"url-{hashlib.sha256(address.encode()).hexdigest()[:12]}.txt"
    if path.exists():
        return path
    if not write:
        command = f"curl -L --create-dirs -o {shlex.quote(str(path))} {shlex.quote(address)}"
        raise JobkitError(
            f"text {address}: is not downloaded yet",
            hint=f"the sweep itself fetches the text; for a dry run: {command}",
        )
    from http.client import HTTPException, InvalidURL  # imported here, because few texts are fetched
    from urllib.error import HTTPError, URLError

    with cache_write_errors(texts):
        make_folder(texts)
        part = Path(tempfile.mktemp(dir=texts, prefix=path.stem, suffix=".part"))  # noqa: S306 - made by "xb"
        stream = part.open("xb")  # and not by tempfile, whose files are for their owner alone
    with stream:
        try:
            _fetch(address, stream)
        except (OSError, ValueError, HTTPException) as error:
            part.unlink()
            reason = error.reason if type(error) is URLError else str(error)
            reason = "not an address" if isinstance(error, InvalidURL) else reason  # its words have the query
            if isinstance(error, HTTPError):
                error.close()  # it holds the connection
            hint = "fetch the text where there is a network and name the file"
            raise JobkitError(
                f"text {address}: could not be downloaded: {reason}",
                hint=f"{hint}: curl -LO {shlex.quote(address)}",
            ) from error
    share_with_group(part)
    part.replace(path)
    return path


def _fetch(address: str, into: IO[bytes]) -> None:
    from urllib.request import Request, urlopen

    request = Request(address, headers={"User-Agent": "jobkit"})  # noqa: S310 - http(s) was checked
    with urlopen(request, timeout=60) as answer:  # noqa: S310 - the same
        expected = answer.headers.get("Content-Length")
        shutil.copyfileobj(answer, into, 1 << 20)
        into.flush()
    if expected is not None and into.tell() != int(expected):
        raise OSError(f"{into.tell()} of {expected} bytes came")


def paragraphs_of(text: TextRef) -> list[str]:
    """Return the paragraphs of a text; the sample need not be on disk."""
    sample = SAMPLE.fullmatch(text.name)
    if sample and not Path(text.path).exists():
        return split_paragraphs(sample_text(int(sample[1] or PARAGRAPHS)))
    return read_paragraphs(Path(text.path))


def one_paragraph(text: TextRef) -> str:
    """Return what to do about a text of one paragraph, which gives a batch nothing to hold; else empty."""
    if len(paragraphs_of(text)) > 1:
        return ""
    path = Path(text.path)
    if path.name.startswith("drawn-"):
        return f"text {text.name} is one paragraph, so every batch is alike: name more text"
    lines = f"sed G {shell_quote(path)} > {shell_quote(path.with_name(f'{path.stem}.lines.txt'))}"
    return (
        f"text {text.name} is one paragraph, so every batch is alike: blank lines separate paragraphs. "
        f"If a line is a document: {lines}; or name a JSONL file (.jsonl), a document a line"
    )


def cached_lengths(workload: str, text: TextRef, model: ModelRef | None, cache: Path) -> Lengths | None:
    """Return what `text_lengths` found earlier; ``None`` if it was never called for this text."""
    path = _kept_at(workload, text, model, cache)
    try:
        return Lengths.from_json(path.read_text(encoding="utf-8"), where=str(path)) if path else None
    except (OSError, UnicodeDecodeError, JobkitError):
        return None  # missing, or damaged: it is made again


def text_lengths(  # noqa: PLR0913 - each says what the lengths depend on
    workload: str,
    text: TextRef,
    model: ModelRef | None,
    *,
    cache: Path,
    say: Say,
    or_estimate: bool = False,
    folder: str | None = None,
    python: JobPython = JobPython(),  # noqa: B008 - it is immutable
    queries: str | None = None,
) -> Lengths:
    """Return the lengths of a text's items, in the unit in which the workload's framework pads.

    A workload that does not report them has none (`Lengths.unknown`). If they need a model that is not there
    yet, or is not given, they are estimated; with ``or_estimate`` also if a shipped workload cannot find
    them. The cache keeps those that a shipped workload's model finds. ``queries``: the
    path of those of pairs.
    """
    known = traits(workload, folder, None, python)
    if not known.reports_lengths:
        return Lengths.unknown(len(paragraphs_of(text)))
    if known.needs_model and (model is None or model.fingerprint == NOT_BUILT):
        return estimated_lengths(paragraphs_of(text), known)
    if kept := cached_lengths(workload, text, model, cache):
        return kept
    try:
        rows = _asked(workload, folder, text, model, say, python, queries)
    except JobkitError as error:
        if not or_estimate or workload not in SHIPPED:
            raise
        say(f"{error.message}; jobkit estimates the lengths from punctuation")
        return estimated_lengths(paragraphs_of(text), known)
    lengths = Lengths(paragraphs=tuple(once_each(rows)), unit=known.unit, pads=known.pads)
    if path := _kept_at(workload, text, model, cache):
        try:
            make_folder(path.parent)
            write_atomically(path, lengths.to_json() + "\n")
            share_with_group(path)
        except OSError as error:
            where = f"{path.parent}: {error.strerror}"
            say(f"jobkit could not keep the lengths in {where} ({CACHE_VARIABLE} names another place)")
    return lengths


def estimated_lengths(paragraphs: Sequence[str], known: Traits | None = None) -> Lengths:
    """Return estimated lengths: each sentence, by punctuation, has its tokens, a blank each, and one more.

    If the workload counts tokens, each paragraph has its words and punctuation marks, and two more.
    """
    tokens_of = re.compile(r"\w+|[^\w\s]").findall
    if known and known.unit != CHARACTERS:
        tokens = tuple((len(tokens_of(paragraph)) + 2,) for paragraph in paragraphs)
        return Lengths(paragraphs=tokens, source=PUNCTUATION, unit=known.unit, pads=known.pads)
    sentences = (map(tokens_of, split_sentences(paragraph)) for paragraph in paragraphs)
    rows = (tuple(1 + sum(len(token) + 1 for token in tokens) for tokens in row) for row in sentences)
    return Lengths(paragraphs=tuple(rows), source=PUNCTUATION)


def _asked(
    workload: str,
    folder: str | None,
    text: TextRef,
    model: ModelRef | None,
    say: Say,
    python: JobPython,
    queries: str | None,
) -> list[list[int]]:
    """Return what the workload finds; a child process asks a framework or the user's code."""
    if workload in SHIPPED and model is None:
        return own.lengths(workload, None, paragraphs_of(text), None, say=say)
    if lacking := missing_framework(workload):
        raise lacking
    name, given, its = "jobkit.planning.texts:find_lengths", cast("object", asdict(text)), JobPython()
    if python.activation and workload not in SHIPPED:  # that Python may lack what this module imports
        name, given, its = f"{own.__name__}:lengths", paragraphs_of(text), python
    asked = (name, workload, folder, given, asdict(model) if model else None, queries)
    rows: list[list[int]] = run_in_child(*asked, say=say, what="finding the lengths of the text", python=its)
    return rows


def find_lengths(
    workload: str,
    folder: str | None,
    text: Mapping[str, Any],
    model: Mapping[str, Any] | None,
    queries: str | None,
    *,
    say: Say,
) -> list[list[int]]:
    """Return the lengths of a text, which a child process reads itself, by the fields of both references."""
    paragraphs = paragraphs_of(TextRef(**text))
    if model:
        count = format_count(len(paragraphs), "paragraph")
        say(f"finding the lengths of {count} by the model's tokenizer, once")
    return own.lengths(workload, folder, paragraphs, model, queries, say=say)


def _kept_at(workload: str, text: TextRef, model: ModelRef | None, cache: Path) -> Path | None:
    """Return the file that keeps lengths; ``None`` if they are quick to find, or the code may change."""
    if workload not in SHIPPED or model is None or missing_framework(workload):
        return None
    framework, _ = EXTRAS[EXTRA_OF[workload]]
    jsonl = ["jsonl"] if text.path.lower().endswith(JSONL_ENDINGS) else []
    prompt = [] if model.prompt is None else [repr(model.prompt)]
    known = [workload, text.sha256, *jsonl, model.fingerprint, *prompt]
    parts = [*known, *map(metadata.version, ("jobkit", framework))]
    return cache / "lengths" / f"{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:16]}.json"


# -- the text of `jobkit recommend --corpus`


def read_corpora(texts: Sequence[str], records: Sequence[Record], *, skip_bad: bool = False) -> CorpusVolume:
    """Return the user's corpus: files and folders that an extension can read, else as `read_corpus`."""
    found = (read(texts, skip_bad=skip_bad) for read in extensions.each(lambda one: one.volume))
    return next(filter(None, found), None) or read_corpus(texts[0], records)


def read_corpus(text: str, records: Sequence[Record]) -> CorpusVolume:
    """Return the user's corpus: a number of paragraphs, or a file; ``records`` may tell its lengths."""
    from jobkit.answers.speed import CorpusVolume  # here: a dry run begins sooner

    most_counted = 10**12
    numbers = "2000000, 2,000,000, 2_000_000 or 2e6"
    # a number as people and programs write it; one out of range is refused as a number, not as a file
    number = re.fullmatch(r"-?(\d+|\d{1,3}([,_]\d{3})+)(\.\d+)?([eE][+]?\d{1,3})?", text, re.ASCII)
    if number and not Path(text).exists():
        count = Decimal(text.replace(",", "").replace("_", ""))
        in_range = 1 <= count <= most_counted
        why = "" if in_range else f"is not between 1 and {most_counted:,} paragraphs"
        why = "is not a whole number" if not why and count % 1 else why
        if why:
            raise JobkitError(f"--corpus {text} {why}", hint=f"for instance {numbers}; or name a file")
        return CorpusVolume(paragraphs=int(count))
    try:
        ref = find_text(text, base=Path(), cache=cache_dir(), write=False)
    except JobkitError as error:
        hint = f"a number of paragraphs ({numbers}), a text that is here, or sample"
        hint = error.hint if Path(text).exists() else hint
        if text.startswith(("http://", "https://")):
            hint = f"fetch the text first, and name the file: curl -LO {shlex.quote(text)}"
        raise JobkitError(f"--corpus {text}: {error.message}", hint=hint) from error
    paragraphs = paragraphs_of(ref)
    point = records[0].point if records else None
    lengths = cached_lengths(point.workload, ref, point.model, cache_dir()) if point else None
    return CorpusVolume(
        name=ref.name,
        paragraphs=len(paragraphs),
        characters=sum(map(len, paragraphs)),
        loads=loads_of(lengths, [replace(record.point, every=1) for record in records]),
    )
