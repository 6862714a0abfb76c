"""``jobkit resume``: submit failed and missing points again."""

from __future__ import annotations

from pathlib import Path

import click

from jobkit.commands.shared import changed_run, set_option, shard_options, wait_option


@click.command(short_help="Rerun the points of a run that failed or are missing.")
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
@click.option("--replan", is_flag=True, help="For a corpus: cut the unfinished part into new shards.")
@shard_options
@click.option("--follow-up", is_flag=True, help="Apply only the policy; for the job that follows a sweep.")
@wait_option
def resume(
    run: Path,
    points: tuple[str, ...],
    only: tuple[str, ...],
    overrides: tuple[str, ...],
    machine_gone: str,
    replan: bool,
    shard_minutes: float | None,
    shards: int | None,
    max_parallel: int | None,
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

    With --replan, of a corpus: jobkit cancels what is open, waits until it has ended, and cuts what is not
    done into new shards. `--set scheduler=local` moves the rest to this machine.

    \b
      jobkit resume tagged --replan --shard-minutes 10
      jobkit resume tagged --replan --set scheduler=local

    \b
    Exit status:
      0  submitted, or there is nothing to run again
      2  no such point, or none that can run
      3  the scheduler refused, or does not answer; or points may still run on another machine
      5  submitted, but the journal could not be written: free space, then run the same command again
    If the points run here, or with --wait, the exit status is that of `jobkit collect`.
    """
    from jobkit.launch.resume import Asked, resumption_of
    from jobkit.runs.status import kind_of
    from jobkit.runs.which_run import changed_run_named, refuse_runs

    run = changed_run_named(run, "resume")
    refuse_runs(points)
    kind, resumption = kind_of(run), resumption_of(run)
    if follow_up:
        return resumption.follow_up(run.absolute())
    changes = (*points, *only, *overrides, machine_gone, replan, shard_minutes, shards, max_parallel)
    if any(changes) and kind.unplanned(run):
        raise click.UsageError(
            f"{run}: {kind.subject} is not planned yet: to change the order, "
            f"type its `jobkit {kind.command}` again"
        )
    if replan and (only or points):
        raise click.UsageError("--replan covers every shard that is not done: name no shards with --replan")
    if not replan and (shard_minutes or shards or max_parallel):
        raise click.UsageError("--shard-minutes, --shards and --max-parallel need --replan")
    more = (f"max_parallel={max_parallel}",) if max_parallel else ()
    asked = Asked(
        only=(*only, *points),
        overrides=(*overrides, *more),
        machine_gone=machine_gone,
        replan=replan,
        shard_minutes=shard_minutes,
        shards=shards,
        wait=wait,
    )
    code = resumption.resume(run.absolute(), asked)
    if code is not None:
        return code
    from jobkit.commands.collect import print_table

    return print_table(run)
