"""A job script as schedulers read it, and the parts of a finding. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from functools import partial

from jobkit.core.frozen import frozen, keyed

IsFolder = Callable[[str], bool]
"""Returns whether a folder exists, seen from the folder of the submission; ``~`` is the home folder."""


class Effect(StrEnum):
    IGNORED = "ignored"  # without a message
    CHANGED = "changed"  # does something else than the line seems to ask, without a message
    LOST = "lost"  # accepts the job, which then dies or waits for ever, without a log
    REFUSED = "refused"  # the submit command refuses the script with a message


@frozen
class Rule:
    effect: Effect
    message: str  # what the scheduler does; words in braces are filled in
    hint: str  # what to write instead; words in braces are filled in


ignored, changed, lost, refused = (partial(Rule, effect) for effect in Effect)


@keyed
class LintFinding:
    """A line that the scheduler ignores or reads differently."""

    line: int  # its number, from 1
    text: str  # the line
    rule: str  # the name of its rule
    effect: Effect
    message: str  # of the rule, as is the hint, with the words in braces filled in
    hint: str


@frozen
class ScriptLine:
    number: int
    text: str  # without its line end
    header: bool  # whether it comes before the first command
    here: bool  # whether it is in a here-document, which is text for another program

    @property
    def comment(self) -> bool:
        """Whether it is a comment, or empty."""
        return not self.text.strip() or self.text.lstrip().startswith("#")


def finding(rules: Mapping[str, Rule], line: ScriptLine, rule: str, /, **values: object) -> LintFinding:
    """Return the finding of a rule in a line, the words in braces filled in."""
    known = rules[rule]
    return LintFinding(
        line=line.number,
        text=line.text,
        rule=rule,
        effect=known.effect,
        message=known.message.format_map(values),
        hint=known.hint.format_map(values),
    )


@frozen
class Script:
    lines: tuple[ScriptLine, ...]
    crlf: int = 0  # the number of the first line that ends in CRLF; 0 if none does
    is_folder: IsFolder | None = None  # ``None`` to check no folders


@frozen
class Option:
    """An option of a directive: its name without dashes, and its value or an empty text."""

    line: ScriptLine
    name: str
    value: str


def read_script(text: str, is_folder: IsFolder | None = None) -> Script:
    rows = text.split("\n")
    crlf = next((number for number, row in enumerate(rows, 1) if row.endswith("\r")), 0)
    rows = [row.removesuffix("\r") for row in rows]
    lines: list[ScriptLine] = []
    ends: list[str] = []
    header = True
    for number, row in enumerate(rows, 1):
        here = bool(ends)
        line = ScriptLine(number, row, header and (not row.strip() or row.lstrip().startswith("#")), here)
        header = line.header
        lines.append(line)
        if here and row.strip() == ends[0]:
            ends.pop(0)
        elif not here and not line.comment:
            # the operator of a here-document, bash(1); a here-string has three angles
            operator = r"<<-?\s*(?:'(?P<single>[^']+)'|\"(?P<double>[^\"]+)\"|\\?(?P<bare>[A-Za-z_]\w*))"
            operators = re.finditer(operator, row.replace("<<<", ""))
            marks = [found[found.lastgroup or 0] for found in operators]
            after = {row.strip() for row in rows[number:]} if marks else ()
            ends = [mark for mark in marks if mark in after]
    return Script(tuple(lines), crlf, is_folder)


def words(line: ScriptLine, mark: str) -> tuple[str, ...]:
    """Return the words of a directive without quotes and comment; none if a quote stays open."""
    try:
        return tuple(shlex.split(line.text.removeprefix(mark), comments=True))
    except ValueError:
        return ()


DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_DOUBLE, _SINGLE = "\u201c\u201d\u201e", "\u2018\u2019\u201a"
PLAIN = str.maketrans(dict.fromkeys(DASHES, "-") | dict.fromkeys(_DOUBLE, '"') | dict.fromkeys(_SINGLE, "'"))
QUOTE = re.compile(rf"[{_DOUBLE}]|(?<!\w)[{_SINGLE}]|[{_SINGLE}](?!\w)")
"""A typographic quote, but no apostrophe inside a word."""


def typographic(
    rules: Mapping[str, Rule], line: ScriptLine, mark: str, ranges: re.Pattern[str], long: str = "-"
) -> Iterator[LintFinding]:
    """Yield typographic quotes, and dashes before a word or in ``ranges``; ``long`` begins a long option."""
    text = line.text.removeprefix(mark).partition(" #")[0]
    seen = " ".join(re.sub(r"\s", "_", word) for word in words(line, mark))
    dash = rf"(?<!\S)-?[{DASHES}]+-?(?=([A-Za-z]*))"
    rule = "quotes" if QUOTE.search(text) else ""
    if re.search(dash, seen) or ranges.search(seen):
        text = re.sub(dash, lambda got: long if got[1][1:] else "-", text)
        text, rule = ranges.sub(lambda got: got[0].translate(PLAIN), text), "dash"
    plain = mark + QUOTE.sub(lambda got: got[0].translate(PLAIN), text)
    if rule:
        balanced = words(replace(line, text=plain), mark)
        yield finding(rules, line, rule, plain=plain if balanced else "plain hyphens and pairs of quotes")


def unitless_memory(
    rules: Mapping[str, Rule], requests: Iterable[tuple[ScriptLine, str, str]], suspicious: int
) -> Iterator[LintFinding]:
    """Yield the requests for memory, ``(line, name, value)``, without a unit and below a suspicious value."""
    for line, name, value in requests:
        if value.isdecimal() and 0 < int(value) < suspicious:
            yield finding(rules, line, "memory-unit", name=name, value=value)


def misplaced_line_end(rules: Mapping[str, Rule], script: Script) -> Iterator[LintFinding]:
    if script.crlf:
        yield finding(rules, script.lines[script.crlf - 1], "crlf")


def missing_folder(
    rules: Mapping[str, Rule], script: Script, line: ScriptLine, folder: str
) -> Iterator[LintFinding]:
    """Yield that a folder of a directive is known not to exist; the shell expands what the scheduler does."""
    if script.is_folder is not None and folder and not script.is_folder(folder):
        quoted = folder if re.fullmatch(r"[\w./$~+-]+", folder) else shlex.quote(folder)
        yield finding(rules, line, "folder", folder=folder, quoted=quoted)


def options_of(line: ScriptLine, mark: str) -> Iterator[tuple[str, ...]]:
    """Yield the options of a directive, each as its words; a number is no option: ``-p -100``."""
    option: tuple[str, ...] = ()
    for word in words(line, mark):
        if option and re.match(r"-\D", word):
            yield option
            option = ()
        option += (word,)
    if option:
        yield option


def traps(script: Script) -> dict[str, ScriptLine]:
    """Return the signals that a script traps, each with its first line."""
    found: dict[str, ScriptLine] = {}
    action, names = r"(?P<action>'[^']*'|\"[^\"]*\"|[\w:]+)", r"(?P<names>[A-Z0-9 ]+?)"
    command = re.compile(rf"\s*trap\s+(?:--\s+)?{action}\s+{names}\s*(?:[#;&|].*)?$")
    for line in script.lines:
        trap = None if line.here or line.comment else command.match(line.text)
        if trap and trap["action"] not in {"''", '""'}:
            for name in trap["names"].split():
                found.setdefault(signal_name(name), line)
    return found


def signal_name(word: str) -> str:
    """Return a signal's name in capitals, without SIG, from its name or number."""
    name = word.strip().upper().removeprefix("SIG")
    # The numbers of x86 and ARM, by signal(7)
    return {"1": "HUP", "2": "INT", "10": "USR1", "12": "USR2", "15": "TERM"}.get(name, name)
