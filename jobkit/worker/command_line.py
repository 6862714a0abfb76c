"""The words of a command: placeholders, variables, argument list. Pure.

A value is put into a word once and never read again, so braces, quotes and ``$(...)`` in it stay as they are.
For a shell a placeholder becomes the expansion of a variable, which the shell does not parse.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from jobkit.core.files import read_bytes
from jobkit.core.knobs import GPUS, THREADS, TRUE, WORKERS
from jobkit.core.records import Command
from jobkit.core.terminal import suggest

TEXT, MODEL, OUTPUT, SCRATCH, POINT = RESERVED = ("text", "model", "output", "scratch", "point")
COUNTS = (WORKERS, THREADS, GPUS)
"""Keys of a spec that are placeholders too, whether or not they are swept."""
SHELL = ("/bin/bash", "-o", "pipefail", "-c")

_TOKEN = re.compile(r"\{\{|\}\}|\{(?P<name>[A-Za-z_]\w*)\}|\{(?P<flag>--?[A-Za-z][\w-]*)\}|[{}]", re.ASCII)
"""``{name}`` is the value of a knob, ``{--flag}`` the word ``--flag`` if the knob of this name is true."""


def variable(name: str) -> str:
    """Return the environment variable of a knob or a reserved word: ``JOBKIT_BATCH_SIZE``."""
    return "JOBKIT_" + re.sub(r"\W", "_", name, flags=re.ASCII).upper()


def placeholders(template: str) -> list[str]:
    return [name for match in _TOKEN.finditer(template) if (name := _name(match))]


def switches(template: str) -> list[str]:
    return [_name(match) for match in _TOKEN.finditer(template) if match["flag"]]


def _name(match: re.Match[str]) -> str:
    """Return the name in a placeholder, ``use_fast`` for ``{--use-fast}``; empty for a brace."""
    return match["name"] or (match["flag"] or "").lstrip("-").replace("-", "_")


def argv(command: Command, values: Mapping[str, str]) -> list[str]:
    """Return the argument list of a command. A shell gets the values of placeholders as variables only."""
    if command.shell:
        return [*SHELL, shell_text(command.template)]

    def filled(match: re.Match[str]) -> str:
        if match["flag"]:
            return match["flag"] if values.get(_name(match)) == TRUE else ""
        return values[match["name"]] if match["name"] else match.group()[0]

    words = ((word, _TOKEN.sub(filled, word)) for word in shlex.split(command.template))
    return [word for template, word in words if word or not switches(template)]


def shell_text(template: str) -> str:
    """Return the text for a shell, with each placeholder as the expansion of its variable.

    The quotes around a placeholder decide how the expansion is written: in each case it is one word.
    """
    plain = re.compile(rf"\\.|['\"]|{_TOKEN.pattern}", re.ASCII | re.DOTALL)
    in_single_quotes = re.compile(rf"'|{_TOKEN.pattern}", re.ASCII)  # there a backslash means nothing
    parts, quote, place = [], "", 0
    while match := (in_single_quotes if quote == "'" else plain).search(template, place):
        parts.append(template[place : match.start()])
        token, place = match.group(), match.end()
        if token in {"'", '"'}:
            quote = token if not quote else "" if token == quote else quote
        elif name := _name(match):
            value = f"${{{variable(name)}}}"
            if match["flag"]:  # a word of its own, or none
                value = f'$([ "{value}" != {TRUE} ] || printf %s {match["flag"]})'
            token = {"": value if match["flag"] else f'"{value}"', '"': value, "'": f"'\"{value}\"'"}[quote]
        elif not token.startswith("\\"):
            token = token[0]
        parts.append(token)
    return "".join([*parts, template[place:]])


def paths(template: str) -> list[str]:
    """Return the words that begin with a slash, or have one after ``=``: they are not staged."""
    words = (word.rpartition("=")[2] for word in split(template))
    return list(dict.fromkeys(word for word in words if word.startswith("/")))


def split(template: str) -> list[str]:
    """Return the words of a template; the parts of a shell text that is no list of words."""
    try:
        return shlex.split(template)
    except ValueError:
        return template.split()


def faults(command: Command, knobs: Iterable[str], sources: Iterable[Path] = ()) -> Iterator[tuple[str, str]]:
    """Yield the faults of a command, each with its knob, else with an empty word.

    Variables may be named in the staged files ``sources``.
    """
    knobs = list(knobs)
    yield from ((what, "") for what in _syntax(command))
    known = [*knobs, *RESERVED, *COUNTS]
    used = placeholders(command.template)
    for match in _TOKEN.finditer(command.template):
        possible = knobs if match["flag"] else known
        if (name := _name(match)) and name not in possible:
            instead = suggest(name, possible)
            yield f"{match.group()}: no such knob in the sweep{instead}; a brace is written {{{{", ""
    others = ("metrics", "grace", "parent", "config", "cache", "ledger", "record", "job", "task")
    seen: dict[str, str] = {}
    for knob in knobs:
        if knob.lower() in {*RESERVED, *others}:
            yield f"{knob}: jobkit uses this name itself; give the knob another", knob
        elif other := seen.get(variable(knob)):
            yield f"{knob}: has the variable {variable(knob)}, as {other} has", knob
        elif knob not in used and not _named(knob, command, sources):
            place = f"{{{knob}}} in the command, or {{--{knob.replace('_', '-')}}} if it is a switch"
            what = f"{knob}: has no place: write {place}, or use {variable(knob)}"
            yield f"{what} in it or in one of its files", knob
        seen.setdefault(variable(knob), knob)


def _syntax(command: Command) -> Iterator[str]:
    if not command.template.strip():
        yield "is empty"
    for match in _TOKEN.finditer(command.template):
        if match.group() in {"{", "}"}:
            near = command.template[match.start() :][:20]
            yield f"{near!r}: a brace that is no placeholder is written twice: {match.group() * 2}"
            return
    if not command.shell:
        try:
            shlex.split(command.template)
        except ValueError as error:
            yield f"cannot be split into words: {str(error).lower()}"


def _named(name: str, command: Command, sources: Iterable[Path]) -> bool:
    named = re.compile(rb"(?<![A-Za-z0-9_])%s(?![A-Za-z0-9_])" % variable(name).encode())
    texts = itertools.chain([command.template.encode()], map(read_bytes, sources))
    return any(map(named.search, texts))


def needs(name: str, command: Command, sources: Iterable[Path]) -> bool:
    return name in placeholders(command.template) or _named(name, command, sources)
