"""``jobkit logs``: what a point printed."""

from __future__ import annotations

import sys

import click

from jobkit.core.terminal import note


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
    from jobkit.runs.which_run import refuse_runs, run_and_point

    run, point = run_and_point(words)
    refuse_runs([point])
    log = find_log(run, point, number)
    error_filter, out = ErrorFilter(faults=err), sys.stdout.buffer
    if following:
        print_log(run, log, error_filter, out, note)
    else:
        show(run, log, error_filter, out, note)
    return 0
