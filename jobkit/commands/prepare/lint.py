"""``jobkit lint``: what a scheduler would silently ignore of a job script."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobkit.commands.shared import json_option
from jobkit.core import terminal
from jobkit.core.errors import JobkitError

if TYPE_CHECKING:
    from jobkit.schedulers.lint import Linted

FOUND = 2
"""The exit code of findings."""
STDIN = "-"


@click.command("lint", short_help="Say what a scheduler would silently ignore of a job script.")
@click.argument("scripts", nargs=-1, required=True, metavar="SCRIPT...")
@json_option
def lint(scripts: tuple[str, ...], as_json: bool) -> int:
    """Say what Slurm or Grid Engine would ignore of the job script SCRIPT, or take for something else.

    Schedulers take a job script with a misspelt directive, or with one after the first command, and
    do without what it asks for; nobody hears of it until the job runs with too little memory, on
    the wrong node, or dies without a log. Nothing is submitted and no scheduler is needed. Which
    scheduler a script is for is told from its directives; - is standard input.

    \b
      jobkit lint job.sh
      jobkit lint *.sh
      jobkit lint job.sh --json
      jobkit lint - <job.sh

    Log folders are looked for from the folder that you are in, as if you submitted from here.
    Every rule, and how it was measured: jobkit help lint.

    \b
    Exit status:
      0  nothing found
      2  something found, or a script that cannot be read
    """
    from jobkit.schedulers.lint import lint as look
    from jobkit.schedulers.lint import summary
    from jobkit.schedulers.registry import SCHEDULERS

    titles = " or ".join(scheduler.TITLE for scheduler in SCHEDULERS.values() if scheduler.DIRECTIVE)
    looked = [look(_read(script), _name(script), _is_folder) for script in scripts]
    if as_json:
        _print_json(looked)
    else:
        for line in (line for one in looked for line in one.lines()):
            terminal.say(line)
        for one in looked:
            if not one.found:
                terminal.say(f"{one.name}: has no directive of {titles}", err=True)
        terminal.say(summary(looked), err=True)
    return FOUND if any(one.findings for one in looked) else 0


def _print_json(looked: list[Linted]) -> None:
    terminal.say(terminal.as_json({"scripts": [one.as_json() for one in looked]}, indent=2))


def _name(script: str) -> str:
    return "standard input" if script == STDIN else script


def _read(script: str) -> str:
    """Return a script's text; bytes that are no UTF-8 stand as question marks."""
    try:
        raw = sys.stdin.buffer.read() if script == STDIN else Path(script).read_bytes()
    except OSError as error:
        hint = "name a job script, or - for standard input"
        raise JobkitError(f"{script}: cannot be read: {error.strerror}", hint=hint) from error
    if b"\0" in raw:
        raise JobkitError(
            f"{_name(script)}: not a script: there is a zero byte in it", hint="name a text file"
        )
    return raw.decode("utf-8", "replace")


def _is_folder(path: str) -> bool:
    """Tell whether a path is a folder, as seen from here."""
    filled = os.path.expandvars(path) if "$" in path else path
    return Path(filled).expanduser().is_dir()
