"""How a run stands: ``jobkit status`` and ``logs``."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobkit.commands import shared
from jobkit.core import terminal
from jobkit.core.errors import ExitCode, JobkitError, file_error
from jobkit.runs import which_run

if TYPE_CHECKING:
    from jobkit.runs.status import RunStatus

MAX_LISTED = 30
"""Points of a run that are listed without --all."""


@click.command(short_help="Show the state of every point, why points wait, and what to type next.")
@click.argument("words", nargs=-1, metavar="[RUN]... [POINT]...")
@click.option("--watch", is_flag=True, help="Repeat until every point has ended.")
@click.option(
    "--list", "listed", is_flag=True, help="List all your runs, the latest first, wherever they are."
)
@click.option("--all", "whole", is_flag=True, help="List all points of a long run, or with --list all runs.")
@shared.json_option
def status(words: tuple[str, ...], watch: bool, listed: bool, whole: bool, as_json: bool) -> int:
    """Show the state of the run folders RUN: one line for each point, then what to type next.

    Each line has the point's outcome or the reason why it waits, its running time and its progress. Of
    a run with more than 30 points jobkit prints a line for each state; --all lists every point. After one
    RUN, a POINT, given by number or id, shows all its tries with the
    evidence for each outcome. Without RUN, jobkit shows your latest run, wherever it is. A number that is
    no point of it may be that of a job, of jobkit or not: its state, and why it waits.

    --list prints a line for each run, from every folder: its name, which every command takes as RUN,
    its age and its state.

    \b
      jobkit status
      jobkit status --list
      jobkit status runs/stanza-20260102-101530-3f9a
      jobkit status runs/stanza-20260102-101530-3f9a 7
      jobkit status runs/stanza-20260102-101530-3f9a --watch

    jobkit asks the scheduler at most three times for any number of runs and points: the queue, which
    cluster it is, and the accounting; and not at all if all points have ended. It submits nothing.

    \b
    Exit status:
      0  every point is done (out of GPU memory is a result, not a failure)
      2  there is no such run or point
      4  some points failed, or need your attention
      5  some points are still to come
    """
    from jobkit.runs import status_text
    from jobkit.runs.reader import read_status

    if listed:
        if words or watch:
            raise click.UsageError("--list lists all runs: name no RUN with it, and no --watch")
        every = status_text.read_list(sys.maxsize if whole else MAX_LISTED)
        width = terminal.page_width()
        terminal.say(terminal.as_json(every) if as_json else status_text.list_text(every, width), nl=as_json)
        return 0
    if which_run.names_job(words) and (job := status_text.job_text(words[0])) is not None:
        if job:
            terminal.say(job)
            return ExitCode.TO_COME
        terminal.note(f"no job of the number {words[0]} is in the queue")
    what = which_run.resolve_words(words)
    here = which_run.known_runs() if not words else []
    here = here or ([] if what.runs else which_run.runs_in(what.folder))
    runs = what.runs or tuple(here[:1])
    for run in runs:
        which_run.refuse_copy(run, "status")
    folders = [run.absolute() for run in runs]
    closings = [_settled(folder) for folder in folders]
    in_place = watch and sys.stdout.isatty() and not as_json

    def shown(standings: Sequence[RunStatus], others: Sequence[Path] = ()) -> str:
        # A run takes 16 lines of a terminal in addition to its points
        free = max(1, shutil.get_terminal_size().lines - 16) if in_place else MAX_LISTED
        most = sys.maxsize if whole else min(free, MAX_LISTED)
        if as_json:
            return f"{status_text.as_json(standings, runs, what.points, others)}\n"
        listed = status_text.text(standings, runs, what.points, width=terminal.page_width(), most=most)
        return listed + status_text.others(others)

    if watch:
        from jobkit.runs.watch import Screen
        from jobkit.runs.watch import watch as follow

        standings = follow(
            folders, shown, Screen(_write, in_place=in_place, plain=as_json, note=terminal.note)
        )
        closings = [_settled(folder) for folder in folders]
    else:
        standings = read_status(folders)
        terminal.say(shown(standings, here[1:]), nl=False)
    if not as_json:
        for closing in filter(None, closings):
            terminal.say(f"\n{closing}")
    return max(standing.exit_code for standing in standings)


def _settled(folder: Path) -> str:
    """Return the closing line of a run that is done, once what its jobs could not do is done for them."""
    from jobkit.runs.on_end import tell
    from jobkit.runs.status import kind_of

    try:
        closing = kind_of(folder).settle(folder)
    except OSError as error:
        terminal.note(f"jobkit: {file_error(error, folder).message}")
    except JobkitError as error:
        terminal.note(f"jobkit: {error}")
    else:
        tell(folder)
        return closing
    return ""


def _write(text: str) -> None:
    sys.stdout.write(text)  # made safe by the screen, whose cursor moves too
    sys.stdout.flush()


@click.command(short_help="Print the log of a point, or follow it.")
@click.argument("words", nargs=-1, required=True, metavar="[RUN] POINT")
@click.option(
    "-f",
    "--follow",
    "following",
    is_flag=True,
    help="Follow the log until the point has ended; wait for it to begin.",
)
@click.option("--err", is_flag=True, help="Print only from the first line that looks like an error.")
@click.option(
    "--try",
    "number",
    type=click.IntRange(min=1),
    metavar="N",
    help="The number of the try. Default: the latest.",
)
def logs(words: tuple[str, ...], following: bool, err: bool, number: int | None) -> int:
    """Print the log of POINT, given by number or id, of the run folder RUN, by default the latest.

    An id may be shortened if no other id begins like it. The log goes to standard output with its
    colours; other control characters are printed as text. The name of the log goes to standard
    error. A point that ran several times has one log for each job; if the scheduler restarts a task
    by itself, the task appends to the same log. Points that share a job share its log.

    Job scripts write standard output and standard error into one file, and the lines are not marked.
    So --err prints from the first line that looks like an error: a traceback, or a message of the
    job script, the shell or the scheduler.

    \b
      jobkit logs 7
      jobkit logs runs/stanza-20260102-101530-3f9a 7
      jobkit logs runs/stanza-20260102-101530-3f9a batch_size-300-r2 --err
      jobkit logs runs/stanza-20260102-101530-3f9a 7 -f

    \b
    Exit status:
      0    printed
      2    no such point or try, or it has no log
      5    no log yet: the point waits, or was not submitted
      130  Ctrl-C during -f; the job goes on
    """
    from jobkit.runs.logs import ErrorFilter, find_log, print_log, show

    run, point = which_run.run_and_point(words)
    which_run.refuse_runs([point])
    log = find_log(run, point, number)
    printing = print_log if following else show
    printing(run, log, ErrorFilter(faults=err), sys.stdout.buffer, terminal.note)
    return 0
