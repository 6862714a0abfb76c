"""``jobkit logs``: what a point printed."""

from __future__ import annotations

import sys

import click

from jobkit.core import terminal


@click.command(short_help="Print what a point of a run has printed.")
@click.argument("words", nargs=-1, required=True, metavar="[RUN] POINT")
@click.option(
    "-f", "--follow", "following", is_flag=True, help="Go on until the point has ended; wait if need be."
)
@click.option("--err", is_flag=True, help="Only from the first line on that tells of an error.")
@click.option(
    "--try", "number", type=click.IntRange(min=1), metavar="N", help="That try; by default the latest."
)
def logs(words: tuple[str, ...], following: bool, err: bool, number: int | None) -> int:
    """Print the log of POINT, by its number or its id, of the run folder RUN, by default the latest.

    An id may be shortened if no other id begins like it. The log goes to standard output: colours
    are kept, other control characters are printed as text. Its name goes to standard error. A
    point that ran several times has a log for each job that ran it: a task that the scheduler began
    again by itself goes on in the same one. Points that share a job share its log.

    Scripts write standard output and errors into one file, and no line says which it was. So --err
    prints from the first line on that looks like an error to the end: a traceback, a message of the
    job script, of the shell, or of the scheduler.

    \b
      jobkit logs 7
      jobkit logs runs/stanza-20260102-101530-3f9a 7
      jobkit logs runs/stanza-20260102-101530-3f9a batch_size-300-r2 --err
      jobkit logs runs/stanza-20260102-101530-3f9a 7 -f

    \b
    Exit status:
      0    printed
      2    no such point or try, or it has no log
      5    its log is still to come: it waits, or was not submitted
      130  Ctrl-C during -f; the job goes on
    """
    from jobkit.outcome.logs import find_log
    from jobkit.status.follow_log import ErrorFilter, print_log, show
    from jobkit.status.which_run import refuse_runs, run_and_point

    run, point = run_and_point(words)
    refuse_runs([point])
    log = find_log(run, point, number)
    errors, out = ErrorFilter(faults=err), sys.stdout.buffer
    if following:
        print_log(run, log, errors, out, say)
    else:
        show(run, log, errors, out, say)
    return 0


def say(line: str) -> None:
    """Tell a person something."""
    terminal.say(line, err=True)
