"""``jobkit throttle``: change how many points of a run may run at the same time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from jobkit.commands.shared import changed_run


class _Number(click.IntRange):
    """A number; the error for a second run says so."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401 - click's own
        from jobkit.runs.which_run import refuse_runs

        refuse_runs([str(value)])
        number: int = super().convert(value, param, ctx)
        return number


@click.command(short_help="Change how many points of a run may run at the same time.")
@changed_run
@click.argument("most", metavar="N", type=_Number(min=0))
def throttle(run: Path, most: int) -> int:
    """Let at most N points of the run folder RUN run at the same time; 0 means no limit.

    N is instead of max_parallel, also for points that run again. Running points are not stopped: if more
    than N run, the next one begins once enough have ended. If the run has several array jobs, they share
    N, and each may run at least one.

    \b
      jobkit throttle runs/stanza-20260102-101530-3f9a 2
      jobkit throttle runs/stanza-20260102-101530-3f9a 0

    \b
    Exit status:
      0  changed
      2  nothing of the run is in the queue, or it runs on this machine
      3  the scheduler refused, or does not answer
    """
    from jobkit.launch.cancel import throttle as change
    from jobkit.runs.which_run import changed_run_named

    return change(changed_run_named(run, "throttle").absolute(), most)
