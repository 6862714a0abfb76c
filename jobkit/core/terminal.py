"""Text for a person at a terminal: wrapped, made safe, quoted for a shell, "did you mean"."""

from __future__ import annotations

import codecs
import csv
import difflib
import html
import io
import json
import re
import shlex
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self, TextIO

from jobkit.core.json_codec import fields_of

SCHEDULER_WORDS: Mapping[str, str] = {
    word: key
    for key, words in {
        "resources.queue": "partition p q",
        "resources.walltime": "time t h_rt s_rt timelimit time_limit runtime",
        "resources.memory": "mem mem_per_node mem_per_cpu ram h_vmem s_vmem vmem mem_free virtual_free h_rss",
        "resources.cpus": "cpu cpus_per_task c ntasks n ntasks_per_node pe slots smp ncpus cores threads",
        "resources.gpus": "gpu gres ngpus gpus_per_node gpus_per_task G",
        "resources.account": "project A P",
        "resources.mail": "email mail_user mail_type M m",
        "resources.constraint": "feature features C",
        "resources.exclude": "exclude_nodes x",
        "resources.reservation": "ar",
        "resources.exclusive": "whole_node excl oversubscribe",
        "name": "job_name jobname J N",
        "max_parallel": "tc throttle parallel concurrency",
        "sweep": "array a",
        "environment": "module export v V env",
        "a point runs on one node": "nodes nnodes",
        "a header line of your own goes into resources.options": "nodelist w",
        "logs lie in the run folder: see jobkit sweep --runs-dir": "output error o e log logs",
    }.items()
    for word in words.split()
}
"""Words of sbatch, qsub and users, each with jobkit's key for it or with advice."""

Say = Callable[[str], None]


def did_you_mean(word: str, words: Sequence[str], least: float = 0.5) -> str:
    """Return ``did you mean 'x'?`` for the closest word; empty if none is as close as ``least`` (0 to 1)."""
    close = difflib.get_close_matches(word, words, 1, least)
    return f"did you mean {close[0]!r}?" if close else ""


def suggest(word: str, words: Sequence[str]) -> str:
    """Return ``; did you mean 'x'?`` for the closest word, else the list to choose from."""
    return f"; {did_you_mean(word, words) or 'one of: ' + ', '.join(words)}"


def suggest_key(names: Sequence[int | str], words: Mapping[str, str], keys: Sequence[str] = ()) -> str:
    """Return ``; did you mean 'resources.queue'?`` for another program's word; empty if it is not one.

    ``names``: the key as written, after the keys that it is nested in: ``resources``, ``--partition``.
    ``words``: maps a word to a dotted key or to a sentence.
    ``keys``: the keys of the section of the word; these are named by their last part.
    """
    word = str(names[-1]).lstrip("-").replace("-", "_")
    found = words.get(word) or words.get(word.lower(), "")
    if not found or " " in found:
        return f"; {found}" if found else ""
    under, _, key = found.rpartition(".")
    if key in keys:
        return f"; did you mean {key!r}?"
    return f"; did you mean {found!r}{'' if under else ', at the top'}?"


def relative_path(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def shell_quote(path: Path | str) -> str:
    """Return a path as one word of a shell command, quoted if needed, never read as an option."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def shell_path(path: Path) -> str:
    """Return a path as a word of a command that the user types in the working directory."""
    return shell_quote(relative_path(path))


LEAST, PAGE = 40, 120
"""The narrowest width that text is wrapped to, and the width if there is no terminal."""
_COLOUR = re.compile(r"(\x1b\[[0-9;:]*m)")


class NoWrap(str):
    """A line that is never wrapped: a command or a header line to copy, perhaps after a few words."""

    __slots__ = ("code", "words")

    code: str  # the part to copy
    words: str  # the words before the code, with the blanks between

    def __new__(cls, code: str, words: str = "") -> Self:
        line = super().__new__(cls, words + code)
        line.code, line.words = code, words
        return line


def page_width() -> int:
    """Return the columns of the terminal; without a terminal COLUMNS, else those of a page."""
    return max(LEAST, shutil.get_terminal_size((PAGE, 24)).columns)


def terminal_width() -> int | None:
    """Return the columns of the terminal; ``None`` if standard output is not one."""
    return page_width() if sys.stdout.isatty() else None


def display_width(text: str) -> int:
    """Return how many columns of a terminal a text takes: wide characters take two, accents none."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(char) in "WF" else not unicodedata.combining(char) for char in text
    )


def say(text: str, *, err: bool = False, nl: bool = True, colours: bool = False) -> None:
    """Print a text, safe for a terminal: the one way by which commands print.

    ``colours``: whether it holds colours of jobkit's own, with all else in it made safe before.
    """
    stream = sys.stderr if err else sys.stdout
    shown = for_terminal(text, colours=colours)
    stream.write((shown if stream.isatty() else _COLOUR.sub("", shown)) + "\n" * nl)
    stream.flush()


def accept_any_text(stream: TextIO) -> None:
    """Let a stream write plain characters for those that its encoding lacks, whoever prints."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors=_PLAINLY)


_PLAINLY = "jobkit.plainly"


def _plainly(error: UnicodeError) -> tuple[str, int]:
    """Return plain characters for those that an encoding lacks; an escape if none are known."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    usual = {"─": "-", "±": "+-", "“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "—": "-", "→": "->"}  # noqa: RUF001
    known = (usual.get(char) or unicodedata.normalize("NFKD", char) for char in lacking)
    plain = (text.encode("ascii", "ignore").decode() for text in known)
    return "".join(text or _spelling(char) for text, char in zip(plain, lacking, strict=True)), error.end


codecs.register_error(_PLAINLY, _plainly)


def note(line: str) -> None:
    say(line, err=True)


def next_line(command: str, does: str = "") -> str:
    """Return the last line of what a command prints: the complete command to type next, and why."""
    return f"next: {command}{does and f'   # {does}'}"


def note_next(command: str, does: str = "") -> None:
    note(next_line(command, does))


def wrap_lines(lines: Iterable[str], width: int | None = None) -> list[str]:
    """Return lines safe for a terminal; what is longer than the width goes on below, indented."""
    wrapped: list[str] = []
    for line in lines:
        safe = printable(line)
        if width is None or len(safe) <= width or isinstance(line, NoWrap):
            wrapped.append(safe)
        else:
            indent = " " * (len(safe) - len(safe.lstrip()) + 2)
            wrapped += wrap(safe, width, below=indent)
    return wrapped


def wrap(text: str, width: int, *, first: str = "", below: str = "") -> list[str]:
    """Return a text in lines of at most a width, each after ``first`` or ``below``; no word is cut."""
    wrapped = textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=below,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrapped or [first]


def printable(text: str) -> str:
    """Return a text with its control characters spelt out: a terminal would obey them."""
    return _spelt(text, "")


def for_terminal(text: str, *, colours: bool = False) -> str:
    """Spell out the control characters in a text, except newlines, tabs and, if wanted, colours."""
    if not colours:
        return _spelt(text, "\n\t")
    pieces = enumerate(_COLOUR.split(text))
    return "".join(piece if number % 2 else _spelt(piece, "\n\t") for number, piece in pieces)


DELIMITERS = {"csv": ",", "tsv": "\t"}


def for_csv(cell: str) -> str:
    """Return a cell of a table that a spreadsheet shows and does not compute: a formula gets a quote."""
    safe = printable(cell)
    formula = safe.startswith(tuple("=+-@＝＋－＠"))  # noqa: RUF001 - Excel takes the wide ones too
    return f"'{safe}" if formula and not _is_number(safe) else safe


def for_markdown(line: str) -> str:
    """Return a line that Markdown shows as it is: no link, no HTML, no cell or heading of its own."""
    # what Markdown makes a link by itself
    link = r"(?i)((?:\b[a-z][a-z0-9+.-]*://|\bwww\.|\bmailto:)[^\s`|]*|[\w.+-]+@[\w-]+\.[\w.-]+)"
    pieces = re.split(link, printable(line))
    for number, text in enumerate(pieces):
        safe = re.sub(r"[\\`*\[\]|~$]", r"\\\g<0>", text)
        safe = re.sub(r"^\s*(?=[#+=-])|^\s*\d+(?=[.)](?:\s|\Z))", r"\g<0>\\", safe)
        pieces[number] = f"`{text}`" if number % 2 else html.escape(safe, quote=False)
    return "".join(pieces)


def as_json(data: object, *, indent: int | None = None) -> str:
    """Return JSON in which a dataclass is an object of its fields."""
    text = json.dumps(data, ensure_ascii=False, indent=indent, allow_nan=False, default=fields_of)
    return "\n".join(
        line if line.isprintable() else "".join(map(_escaped, line)) for line in text.split("\n")
    )


def as_csv(rows: Iterable[Iterable[object]], delimiter: str = ",") -> str:
    """Return CSV in which no text is a formula."""
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter, lineterminator="\n").writerows(
        [for_csv(cell) if isinstance(cell, str) else cell for cell in row] for row in rows
    )
    return stream.getvalue()


class LogSanitizer:
    """Makes a log safe for a terminal piece by piece, as it grows.

    Colours, newlines and tabs stay; a carriage return begins a new line; other control characters and bytes
    that are not UTF-8 are spelt out.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._held = ""

    def through(self, data: bytes, *, last: bool = False) -> bytes:
        """Return the next piece; a sequence that may go on waits for the next, unless this is the last."""
        text = self._held + self._decoder.decode(data, last)
        # the end of a piece may be the beginning of a colour or of a line end
        half = None if last else re.search(r"(\x1b(\[[0-9;:]{0,30})?|\r)?\Z", text)
        cut = half.start() if half else len(text)
        self._held = text[cut:]
        lines = text[:cut].replace("\r\n", "\n").replace("\r", "\n")
        return for_terminal(lines, colours=True).encode()


def _spelt(text: str, kept: str) -> str:
    if text.translate(dict.fromkeys(map(ord, kept))).isprintable():  # a long text in a tenth of the time
        return text
    return "".join(char if char in kept or not _is_control(char) else _spelling(char) for char in text)


def _is_control(char: str) -> bool:
    category = unicodedata.category(char)
    return category.startswith("C") or category in {"Zl", "Zp"}


def _spelling(char: str) -> str:
    return char.encode("unicode_escape").decode()


def _escaped(char: str) -> str:
    """Return a character of JSON as JSON: only strings can hold a control character."""
    if not _is_control(char):
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
