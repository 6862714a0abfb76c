"""The part of docs/commands.md that lists every command: its purpose, usage and options, from the code.

After a change to a command: ``python -m tests.support.command_reference``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from jobkit import cli
from jobkit.core.command_list import LISTED

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
BEGIN, END = "<!-- from the code -->\n", "<!-- to here -->\n"
BLOCK = re.compile(rf"{BEGIN}.*?{END}", re.DOTALL)
BRACKET = re.compile(r"\s*\[(default: )?([^\]]*)\]$")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
SEVERAL = 3
"""An option with the same help in so many commands is explained once."""
Option = tuple[str, str]
"""An option as click prints it, and its help."""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command with the words that a user types."""
    context = click.Context(cli.app)
    for name in LISTED:
        command = cli.app.get_command(context, name)
        assert command is not None
        yield f"jobkit {name}", command
        if isinstance(command, click.Group):
            yield from ((f"jobkit {name} {sub}", one) for sub, one in command.commands.items())


def options(name: str, command: click.Command) -> list[Option]:
    """Return the options of a command."""
    context = click.Context(command, info_name=name)
    found = [one for one in command.params if isinstance(one, click.Option)]
    return [record for one in found if (record := one.get_help_record(context))]


def shared() -> list[Option]:
    """Return the options that several commands have, with the same help."""
    counts = Counter(option for name, command in commands() for option in options(name, command))
    return [option for option, number in counts.items() if number >= SEVERAL]


def reference() -> str:
    """Return the sections of all commands, and of the options that several have."""
    known = shared()
    sections = ["## Options of several commands\n", _table(known)]
    sections += [part for name, command in commands() for part in _section(name, command, known)]
    return "\n".join([BEGIN, *sections, END])


def _section(name: str, command: click.Command, known: list[Option]) -> Iterator[str]:
    found = options(name, command)
    context = click.Context(command, info_name=name)
    yield f"{'#' * len(name.split())} {name}\n"
    yield f"{_purpose(command)}\n"
    yield f"`{' '.join([name, *command.collect_usage_pieces(context)])}`\n"
    if own := [option for option in found if option not in known]:
        yield _table(own)
    if others := [OPTION.findall(option)[0] for option, meaning in found if (option, meaning) in known]:
        yield f"Also {', '.join(f'`{option}`' for option in others)}.\n"


def _purpose(command: click.Command) -> str:
    """Return the first paragraph of a command's help."""
    first = (command.help or "").split("\n\n", maxsplit=1)[0]
    return " ".join(first.split())


def _table(found: list[Option]) -> str:
    rows = [f"| `{_cell(option)}` | {_prose(meaning)} |" for option, meaning in found]
    return "\n".join(["| option | help |", "|---|---|", *rows, ""])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _prose(text: str) -> str:
    """Return a help text with its options as code; what click adds in brackets becomes a sentence."""
    words = BRACKET.sub(lambda found: _sentence(found[1] or "", found[2]), _cell(text))
    return OPTION.sub(r"`\g<0>`", words)


def _sentence(default: str, rest: str) -> str:
    if rest == "required":
        return " Required."
    return f" Default: {rest}." if default else f" `{rest}`."


def page(text: str) -> str:
    """Return the page with all commands and options as they are now."""
    return BLOCK.sub(lambda _: reference(), text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
