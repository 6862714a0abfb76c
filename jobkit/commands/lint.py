"""``jobkit lint``: list the lines of a job script that a scheduler would silently ignore."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from jobkit.commands.shared import json_option
from jobkit.core import terminal
from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.files import MOST_BYTES, read_bytes

STDIN = "-"


@click.command("lint", short_help="List what a scheduler would silently ignore in a job script.")
@click.argument("scripts", nargs=-1, required=True, metavar="SCRIPT...")
@json_option
def lint(scripts: tuple[str, ...], as_json: bool) -> int:
    """List what Slurm or Grid Engine would ignore or misread in the job script SCRIPT.

    Schedulers accept a job script with a misspelt directive, or with a directive after the first
    command, and ignore it without a message: the job then runs with too little memory or on the wrong
    node, or dies without a log. jobkit submits nothing and needs no scheduler; the directives show which
    scheduler a script is for. SCRIPT - is standard input.

    \b
      jobkit lint job.sh
      jobkit lint *.sh
      jobkit lint job.sh --json
      jobkit lint - <job.sh

    jobkit looks for log folders from the working directory, as if you submitted from here.
    Every rule, and how it was measured: jobkit help lint.

    \b
    Exit status:
      0  no findings
      2  findings, or a script that cannot be read
    """
    from jobkit.schedulers.lint import lint as lint_script
    from jobkit.schedulers.lint import summary
    from jobkit.schedulers.registry import SCHEDULERS

    titles = " or ".join(scheduler.TITLE for scheduler in SCHEDULERS.values() if scheduler.DIRECTIVE)
    results = [lint_script(_read(script), _name(script), is_folder) for script in scripts]
    if as_json:
        terminal.say(terminal.as_json({"scripts": [result.as_json() for result in results]}, indent=2))
    else:
        for line in (line for result in results for line in result.lines()):
            terminal.say(line)
        for result in results:
            if not result.found:
                terminal.say(f"{result.name}: has no directive of {titles}", err=True)
        terminal.say(summary(results), err=True)
    return ExitCode.USAGE if any(result.findings for result in results) else ExitCode.DONE


def _name(script: str) -> str:
    return "standard input" if script == STDIN else script


def _read(script: str) -> str:
    """Return the text of a script; bytes that are not UTF-8 become question marks."""
    try:
        piped, path = script == STDIN, Path(script)
        raw = sys.stdin.buffer.read(MOST_BYTES + 1) if piped else read_bytes(path, MOST_BYTES, typed=True)
    except OSError as error:
        hint = "name a job script, or - for standard input"
        raise JobkitError(f"{script}: cannot be read: {error.strerror}", hint=hint) from error
    if len(raw) > MOST_BYTES:
        raise JobkitError(f"{_name(script)}: more than {MOST_BYTES // 2**20} MiB", hint="name a job script")
    if b"\0" in raw:
        raise JobkitError(
            f"{_name(script)}: not a script: the file contains a zero byte", hint="name a text file"
        )
    return raw.decode("utf-8", "replace")


def is_folder(path: str) -> bool:
    """Return whether a path is a folder, relative to the working directory."""
    filled = os.path.expandvars(path) if "$" in path else path
    return Path(filled).expanduser().is_dir()
