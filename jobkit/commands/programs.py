"""For programs: ``jobkit emit`` takes the figures of one, ``jobkit schema`` is for an editor."""

from __future__ import annotations

import json
import os

import click

from jobkit.core import terminal
from jobkit.core.errors import JobkitError
from jobkit.core.terminal import say
from jobkit.worker.measure import figures
from jobkit.worker.measure.emit import emit as append

NUMBERS = ("items", "seconds", "load", "worker", "value")


@click.command(short_help="Report figures of a running program to jobkit, from a shell.")
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
def emit(pairs: tuple[str, ...]) -> None:
    """Append a line to the file JOBKIT_METRICS, from which jobkit reads a program's own figures.

    \b
      jobkit emit items=32 seconds=0.41 load=30112        a batch
      jobkit emit metric=f1 value=0.91 unit=1             a figure of the whole run

    A program that is Python calls jobkit.emit(items=32, seconds=0.41) instead. If the program does not run
    under jobkit, nothing is written.
    """
    line = dict(map(_pair, pairs))
    try:
        figures.parse(json.dumps(line))
    except JobkitError as error:
        hint = "a batch has items and seconds; a figure has metric and value"
        raise JobkitError(f"{' '.join(pairs)}: {error.message}", hint=hint) from error
    if not os.environ.get(figures.VARIABLE):
        say(f"{figures.VARIABLE} is not set, so nothing is written", err=True)
        return
    append(**line)


def _pair(text: str) -> tuple[str, object]:
    """Return a key and its value: a number where the key has one."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise JobkitError(f"{text!r} is not KEY=VALUE", hint="for instance items=32")
    if key not in NUMBERS:
        return key, value
    try:
        return key, float(value) if not value.lstrip("+-").isdecimal() else int(value)
    except ValueError as error:
        raise JobkitError(f"{text!r}: should be a number", hint="for instance items=32") from error


@click.command("schema", short_help="Print the JSON schema of specs.")
def schema() -> int:
    """Print the JSON schema of specs, with which an editor checks and completes a spec.

    \b
      jobkit schema > jobkit.schema.json

    Then write this as the first line of a spec in the same folder:

    \b
      # yaml-language-server: $schema=jobkit.schema.json
    """
    from jobkit.spec.sweep_spec import schema_text

    terminal.say(schema_text(), nl=False)
    return 0
