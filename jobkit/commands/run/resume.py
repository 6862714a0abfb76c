"""``jobkit resume``: run again what failed or is missing."""

from __future__ import annotations

from pathlib import Path

import click

from jobkit.commands.shared import changed_run, set_option, wait_option


@click.command(short_help="Run again the points that failed or are missing.")
@changed_run
@click.argument("points", nargs=-1, metavar="[POINT]...")
@click.option(
    "--only",
    "only",
    multiple=True,
    metavar="failed|cancelled|missing|OUTCOME",
    help="Only these points, or points with this OUTCOME, such as timeout; may be repeated. "
    "Default, if no POINT is named: failed, cancelled and missing.",
)
@set_option
@click.option(
    "--machine-gone",
    metavar="NAME",
    default="",
    help="For a run without a scheduler: the machine or container NAME that ran it is gone for good.",
)
@click.option("--follow-up", is_flag=True, help="Do only what the policy says: for the job that follows.")
@wait_option
def resume(
    run: Path,
    points: tuple[str, ...],
    only: tuple[str, ...],
    overrides: tuple[str, ...],
    machine_gone: str,
    follow_up: bool,
    wait: bool,
) -> int:
    """Submit the points of the run folder RUN that failed, were cancelled or are missing, and no other.

    With POINTs, numbers or ids, it submits only those. A point that is done (out of GPU memory is a
    result) is never run again, and one that is in the queue or running is not submitted twice: the
    scheduler is asked first. Every try keeps its own folder. The policy of the spec
    applies: more memory after ram_oom, more time after timeout, another node after node_fail;
    `--set` overrides it. On a cluster jobkit submits one array job of just those points;
    without a scheduler they run here.

    \b
      jobkit resume runs/stanza-20260102-101530-3f9a
      jobkit resume runs/stanza-20260102-101530-3f9a --only failed
      jobkit resume runs/stanza-20260102-101530-3f9a --only timeout --only node_fail
      jobkit resume runs/stanza-20260102-101530-3f9a 7 batch_size-300-r2
      jobkit resume runs/stanza-20260102-101530-3f9a --set resources.memory=16GiB

    \b
    Exit status:
      0  submitted, or there is nothing to run again
      2  a word names no point that could run
      3  the scheduler refused, or does not answer; or points may still run on another machine
      5  submitted, but the journal could not be written: free space, then run the same command again
    If the points run here, or with --wait, it is the exit status of `jobkit collect`.
    """
    from jobkit.status.which_run import refuse_runs, run_named
    from jobkit.submit.resume import run_again, run_follow_up

    run = run_named(run)
    refuse_runs(points)
    if follow_up:
        return run_follow_up(run.absolute())
    again = (*only, *points)
    code = run_again(run.absolute(), again, overrides, machine_gone=machine_gone, wait=wait)
    if code is not None:
        return code
    from jobkit.commands.results.collect import collect

    result: int = collect.main(args=["--", str(run)], prog_name="jobkit collect", standalone_mode=False)
    return result
