"""The usage and the options of every command, as docs/commands.md shows them under its heading.

After a change to a command, or for a new heading: ``python -m tests.support.command_reference``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from jobkit import cli

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
BEGIN, END = "<!-- from the code -->\n", "<!-- to here -->\n"
BLOCK = re.compile(rf"\n{BEGIN}.*?{END}", re.DOTALL)
BRACKET = re.compile(r"\s*\[(default: )?([^\]]*)\]$")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command with the words that a user types."""
    context = click.Context(cli.app)
    for name in cli.COMMANDS:
        command = cli.app.get_command(context, name)
        assert command is not None
        yield f"jobkit {name}", command
        if isinstance(command, click.Group):
            yield from ((f"jobkit {name} {sub}", one) for sub, one in command.commands.items())


def reference(name: str, command: click.Command) -> str:
    """Return the usage of a command, and the table of its options."""
    context = click.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    lines = [BEGIN, "```text", usage, "```", ""]
    records = [
        record
        for parameter in command.params
        if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context))
    ]
    if records:
        lines += ["| option | help |", "|---|---|"]
        lines += [f"| `{_cell(option)}` | {_prose(meaning)} |" for option, meaning in records]
        lines.append("")
    return "\n" + "\n".join(lines).replace(BEGIN + "\n", BEGIN) + "\n" + END


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
    """Return the page with usage and options of each command, as they are now, under its heading."""
    text = BLOCK.sub("", text)
    for name, command in commands():
        before, heading, after = text.partition(f"# {name}\n")
        assert heading, f"{PAGE.name} has no heading {name!r}"
        text = before + heading + reference(name, command) + after
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
