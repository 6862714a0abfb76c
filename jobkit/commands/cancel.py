"""``jobkit cancel``: cancel the queued and running jobs of a run."""

from __future__ import annotations

from pathlib import Path

import click

from jobkit.commands.shared import changed_run


@click.command(short_help="Cancel the queued and running jobs of a run.")
@changed_run
@click.argument("points", nargs=-1, metavar="[POINT]...")
@click.option(
    "--except",
    "kept",
    multiple=True,
    metavar="POINT",
    help="Cancel all points but this one, given by number or id; may be repeated.",
)
def cancel(run: Path, points: tuple[str, ...], kept: tuple[str, ...]) -> int:
    """Cancel the points of the run folder RUN that have not ended, or only the POINTs given.

    POINT is the number or the id of a point. A running point stops and copies its results home; a
    point that has ended does not change. Without POINT, jobkit also cancels the jobs that wait for
    the sweep, so that no job of the run remains. It runs one command per job, for any number of points.

    \b
      jobkit cancel runs/stanza-20260102-101530-3f9a
      jobkit cancel runs/stanza-20260102-101530-3f9a 7 batch_size-300-r2
      jobkit cancel runs/stanza-20260102-101530-3f9a --except batch_size-50-r1

    jobkit resume runs cancelled points again. Points that share a job can only be cancelled together,
    and a run on this machine only as a whole.

    \b
    Exit status:
      0  cancelled, or there was nothing left to cancel
      2  no such point, or a point that cannot be cancelled alone
      3  the scheduler refused, or does not answer
    """
    if points and kept:
        raise click.UsageError("name the POINTs to cancel, or those to keep with --except, not both")
    from jobkit.launch.cancel import cancel as cancel_points
    from jobkit.runs.which_run import changed_run_named, refuse_runs

    folder = changed_run_named(run, "cancel").absolute()
    refuse_runs((*points, *kept))
    return cancel_points(folder, points, kept)
