"""``jobkit cancel``: take back what of a run is in the queue or running."""

from __future__ import annotations

from pathlib import Path

import click

from jobkit.commands.shared import changed_run


@click.command(short_help="Take back what of a run is in the queue or running.")
@changed_run
@click.argument("points", nargs=-1, metavar="[POINT]...")
@click.option(
    "--except",
    "kept",
    multiple=True,
    metavar="POINT",
    help="All points but this one, by its number or its id. As often as you like.",
)
def cancel(run: Path, points: tuple[str, ...], kept: tuple[str, ...]) -> int:
    """Cancel the points of the run folder RUN that have not ended, or only the POINTs named.

    A point is named by its number or its id. One that runs ends, and brings home what it has; one
    that has ended is left alone. Without POINT the jobs that wait for the sweep are cancelled too,
    so nothing of the run is left. There is one command a job, however many points it runs.

    \b
      jobkit cancel runs/stanza-20260102-101530-3f9a
      jobkit cancel runs/stanza-20260102-101530-3f9a 7 batch_size-300-r2
      jobkit cancel runs/stanza-20260102-101530-3f9a --except batch_size-50-r1

    Cancelled points run again with jobkit resume. Points that share a job are cancelled together or
    not at all, and a run on this machine only as a whole.

    \b
    Exit status:
      0  cancelled, or there was nothing left to cancel
      2  a word names no point, or a point that cannot be cancelled alone
      3  the scheduler refused, or does not answer
    """
    if points and kept:
        raise click.UsageError("name the POINTs to cancel, or those to keep with --except, not both")
    from jobkit.status.which_run import refuse_runs, run_named
    from jobkit.submit.cancel import cancel as take_back

    folder = run_named(run).absolute()
    refuse_runs((*points, *kept))
    return take_back(folder, points, kept)
