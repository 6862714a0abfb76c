"""``jobkit status``: how runs stand, and what to type next."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobkit.commands.shared import json_option
from jobkit.core import terminal

if TYPE_CHECKING:
    from jobkit.status.standing import RunStanding

WIDE = 120
MANY = 40
BESIDES = 16
"""Lines of a terminal that a run takes beside its points."""


@click.command(short_help="Say how runs stand, why points wait, and what to type next.")
@click.argument("words", nargs=-1, metavar="[RUN]... [POINT]...")
@click.option("--watch", is_flag=True, help="Look again and again until nothing is to come.")
@click.option(
    "--all", "whole", is_flag=True, help="List all points of a long run, also those that need nobody."
)
@json_option
def status(words: tuple[str, ...], watch: bool, whole: bool, as_json: bool) -> int:
    """Say how the runs in the folders RUN stand: a line a point, and below what to type next.

    Each point has its outcome, or why it waits, in plain words; how long it took or has been running,
    and how far it is. Of a run of more than 40 points those are listed that run, failed, or wait for a
    person; --all lists them all. Behind one RUN a POINT, by its number or its id, shows all its tries
    with all that speaks for their outcomes. Without RUN it is the latest run in runs/.

    \b
      jobkit status
      jobkit status runs/stanza-20260102-101530-3f9a
      jobkit status runs/stanza-20260102-101530-3f9a 7
      jobkit status runs/stanza-20260102-101530-3f9a --watch

    A scheduler is asked at most twice, however many runs and points: once what it holds, once what it
    remembers; and not at all where nothing is open. Nothing is submitted or changed.

    \b
    Exit status:
      0  every point is done (out of GPU memory is a result, not a failure)
      2  there is no such run or point
      4  some points failed, or wait for a person
      5  some points are still to come
    """
    from jobkit.status.which_run import resolve_words, runs_in

    what = resolve_words(words)
    here = [] if what.runs else runs_in(what.folder)
    runs = what.runs or tuple(here[:1])
    if watch:
        return _watch(runs, what.points, whole=whole, as_json=as_json)
    from jobkit.status import output
    from jobkit.status.reader import read_standings

    found = read_standings([run.absolute() for run in runs])
    if as_json:
        terminal.say(output.as_json(found, runs, what.points, here[1:]))
    else:
        shown = output.text(found, runs, what.points, width=_width(), most=_most(whole=whole))
        terminal.say(shown + output.others(here[1:]), nl=False)
    return max(one.exit_code for one in found)


def _watch(runs: Sequence[Path], points: Sequence[str], *, whole: bool, as_json: bool) -> int:
    from jobkit.status import output
    from jobkit.status.watch import Screen, watch

    def shown(found: Sequence[RunStanding]) -> str:
        if as_json:
            return f"{output.as_json(found, runs, points)}\n"
        most = _most(whole=whole, in_place=in_place)
        return output.text(found, runs, points, width=_width(), most=most)

    in_place = sys.stdout.isatty() and not as_json
    screen = Screen(_write, in_place=in_place, plain=as_json, note=_note)
    found = watch([run.absolute() for run in runs], shown, screen)
    return max(one.exit_code for one in found)


def _write(text: str) -> None:
    sys.stdout.write(text)  # made safe by the screen, whose cursor moves too
    sys.stdout.flush()


def _note(line: str) -> None:
    terminal.say(line, err=True)


def _most(*, whole: bool, in_place: bool = False) -> int:
    """Return how many points are listed: as many as there is room for where they are drawn in place."""
    if whole:
        return sys.maxsize
    return max(1, shutil.get_terminal_size().lines - BESIDES) if in_place else MANY


def _width() -> int:
    """Return the terminal's columns; where there is no terminal, COLUMNS or a page's width."""
    return max(40, shutil.get_terminal_size((WIDE, 24)).columns)
