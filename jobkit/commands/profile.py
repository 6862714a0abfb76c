"""``jobkit profile``: where the time of a point goes."""

from __future__ import annotations

from pathlib import Path

import click

from jobkit.commands.shared import changed_run, set_option
from jobkit.core.layout import PROFILE_FILES


@click.command(short_help="Rerun a point with a profiler, and print where its time goes.")
@changed_run
@click.argument("point", required=False)
@click.option(
    "--with",
    "profiler",
    type=click.Choice(list(PROFILE_FILES)),
    help="The profiler. Default: torch with device: cuda, else python.",
)
@click.option("--again", is_flag=True, help="Profile the point again, even if it has a profile.")
@set_option
@click.option("--wait", is_flag=True, help="Wait until the point has ended, then print its profile.")
def profile(
    run: Path, point: str | None, profiler: str | None, again: bool, overrides: tuple[str, ...], wait: bool
) -> int:
    """Run a point of the run folder RUN once more, with a profiler, and print where its time goes.

    POINT is a number or an id; without it jobkit profiles the fastest point. The result is a file for a
    viewer and the twenty largest costs as text, next to the record. On a cluster this is a job: type the
    same command again to see the result. A point that is profiled is slower, so it is a separate point,
    in no table, mean or recommendation.

    \b
      jobkit profile runs/stanza-20260102-101530-3f9a
      jobkit profile runs/stanza-20260102-101530-3f9a 3 --with python
      jobkit profile runs/stanza-20260102-101530-3f9a 3 --wait --set resources.walltime=1h

    \b
    Exit status:
      0  the profile was printed, or the job was submitted
      2  no such point, it has not succeeded, or the profiler is not installed
      3  the scheduler refused, or does not answer
      4  the point failed
      5  the profile is still to come
    """
    from jobkit.extensions.profile import rerun
    from jobkit.runs.which_run import changed_run_named, refuse_runs, refuse_unmeasured

    folder = changed_run_named(run, "profile").absolute()
    refuse_unmeasured(folder, "profile")
    refuse_runs((point,) if point else ())
    return rerun.profile(folder, point, profiler, overrides, again=again, wait=wait)
