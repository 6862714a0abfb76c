"""``jobkit resume``: submit failed and missing points again."""

from __future__ import annotations

from pathlib import Path

import click

from jobkit.commands.shared import changed_run, set_option, wait_option


@click.command(short_help="Submit the points again that failed or are missing.")
@changed_run
@click.argument("points", nargs=-1, metavar="[POINT]...")
@click.option(
    "--only",
    "only",
    multiple=True,
    metavar="failed|cancelled|missing|OUTCOME",
    help="Only these points, or points with this OUTCOME, such as timeout; may be repeated. "
    "Default without POINT: failed, cancelled and missing.",
)
@set_option
@click.option(
    "--machine-gone",
    metavar="NAME",
    default="",
    help="For a run without a scheduler: the machine or container NAME that ran it no longer exists.",
)
@click.option("--follow-up", is_flag=True, help="Apply only the policy; for the job that follows a sweep.")
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
    """Submit again the points of the run folder RUN that failed, were cancelled or are missing.

    With POINTs, given by number or id, jobkit submits only those. It never runs a point again that is
    done (out of GPU memory is a result). It asks the scheduler first and submits no point that is
    already queued or running. Every try has its own folder. The policy of the spec applies: more
    memory after ram_oom, more time after timeout, another node after node_fail; `--set` overrides
    it. On a cluster jobkit submits one array job of these points; without a scheduler they run here.

    \b
      jobkit resume runs/stanza-20260102-101530-3f9a
      jobkit resume runs/stanza-20260102-101530-3f9a --only failed
      jobkit resume runs/stanza-20260102-101530-3f9a --only timeout --only node_fail
      jobkit resume runs/stanza-20260102-101530-3f9a 7 batch_size-300-r2
      jobkit resume runs/stanza-20260102-101530-3f9a --set resources.memory=16GiB

    \b
    Exit status:
      0  submitted, or there is nothing to run again
      2  no such point, or none that can run
      3  the scheduler refused, or does not answer; or points may still run on another machine
      5  submitted, but the journal could not be written: free space, then run the same command again
    If the points run here, or with --wait, the exit status is that of `jobkit collect`.
    """
    from jobkit.status.which_run import refuse_runs, run_named
    from jobkit.submit.resume import run_again, run_follow_up

    run = run_named(run)
    refuse_runs(points)
    if follow_up:
        return run_follow_up(run.absolute())
    again = (*only, *points)
    code = run_again(run.absolute(), again, overrides, machine_gone=machine_gone, wait=wait)
    from jobkit.commands.results.collect import print_table

    return print_table(run) if code is None else code
