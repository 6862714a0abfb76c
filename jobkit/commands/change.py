"""What changes a run: ``jobkit resume``, ``cancel``, ``verify`` and ``profile``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from jobkit.commands import shared
from jobkit.core.layout import PROFILE_FILES
from jobkit.core.units import parse_size
from jobkit.runs.which_run import changed_run_named, refuse_runs, refuse_unmeasured


@click.command(short_help="Rerun the points of a run that failed or are missing.")
@shared.changed_run
@click.argument("points", nargs=-1, metavar="[POINT]...")
@click.option(
    "--only",
    "only",
    multiple=True,
    metavar="failed|cancelled|missing|OUTCOME",
    help="Only these points, or points with this OUTCOME, such as timeout; may be repeated. "
    "Default without POINT: failed, cancelled and missing.",
)
@shared.set_option
@shared.after_option
@click.option(
    "--machine-gone",
    metavar="NAME",
    default="",
    help="For a run without a scheduler: the machine or container NAME that ran it no longer exists.",
)
@click.option(
    "--rows-gone", is_flag=True, help="For a corpus: run the shards again whose rows are gone or damaged."
)
@click.option(
    "--quarantine",
    is_flag=True,
    help="For a corpus: try the paragraphs in quarantine again.",
)
@click.option("--replan", is_flag=True, help="For a corpus: cut the unfinished part into new shards.")
@shared.shard_options
@shared.ceiling_option
@shared.force_option
@click.option("--follow-up", is_flag=True, help="Apply only the policy; for the job that follows a sweep.")
@shared.wait_option
def resume(
    run: Path,
    points: tuple[str, ...],
    only: tuple[str, ...],
    max_parallel: int | None,
    follow_up: bool,
    wait: bool,
    **given: Any,  # noqa: ANN401 - the fields of `Asked`
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

    With --rows-gone, of a corpus: shards also run again whose rows were removed after they were done, as by
    a purge of scratch. If the old rows come back, they count for nothing.

    With --quarantine, of a corpus: shards also run again whose workload could not take a paragraph, from
    the part with the first such paragraph on.

    \b
      jobkit resume tagged --rows-gone
      jobkit resume tagged --quarantine --set resources.memory=32GiB
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
    from jobkit.runs.on_end import tell
    from jobkit.runs.status import kind_of

    run = changed_run_named(run, "resume")
    refuse_runs(points)
    kind, resumption = kind_of(run), resumption_of(run)
    if follow_up:  # a person has submitted the run, perhaps with --force
        shared.force(click.get_current_context())
        ended = resumption.follow_up(run.absolute())
        tell(run.absolute(), following=True)
        return ended
    if any((*points, *only, max_parallel, *given.values())) and kind.unplanned(run):
        raise click.UsageError(
            f"{run}: {kind.subject} is not planned yet: to change the order, "
            f"type its `jobkit {kind.command}` again"
        )
    given["overrides"] += shared.most_at_once(max_parallel)
    asked = Asked(only=(*only, *points), wait=wait, **given)
    if asked.replan and asked.only:
        raise click.UsageError("--replan covers every shard that is not done: name no shards with --replan")
    if not asked.replan and (asked.shard_minutes or asked.shards or max_parallel):
        raise click.UsageError("--shard-minutes, --shards and --max-parallel need --replan")
    code = resumption.resume(run.absolute(), asked)
    if code is not None:
        return code
    from jobkit.commands.results import print_table

    return print_table(run)


@click.command(short_help="Cancel the queued and running jobs of a run.")
@shared.changed_run
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

    folder = changed_run_named(run, "cancel").absolute()
    refuse_runs((*points, *kept))
    return cancel_points(folder, points, kept)


@click.command(short_help="Run the largest batch that a run predicts, and compare.")
@shared.changed_run
@shared.gpu_memory_option(
    "The memory that the batch must fit: a size such as 16GiB, or device. Default: the memory in the spec.",
)
@shared.stand_in_option
def verify(run: Path, gpu_memory: str | None, stand_in: bool) -> int:
    """Run the largest batch that the run folder RUN predicts, and compare it with the prediction.

    It is the largest batch_size, or the largest padded if the sweep has that knob. With `find_max`
    in the spec, a sweep does this by itself. jobkit fits the line, runs the largest batch whose bound fits
    as a separate point with the same request, and if that batch fails, a smaller one, three at most. On a
    cluster this is a job; without a scheduler it runs here. The prediction and the measured need go into
    the run folder (trials.jsonl).

    \b
      jobkit verify runs/stanza-20260102-101530-3f9a
      jobkit verify runs/stanza-20260102-101530-3f9a --gpu-memory 16GiB

    If the run has measured that batch already, jobkit prints its need and runs nothing. No figure of the
    sweep changes: a trial tests memory, and its speed is not used.

    --gpu-memory is the memory that the batch must fit: a size, or `device` for the whole GPU. With a
    size, jobkit caps PyTorch's allocator, and the CUDA context comes on top; this tests a prediction for
    a smaller GPU on a larger one. On a CPU there is no cap, and the memory of the process must stay
    below the size.

    If the run measured a stand-in, or random weights, on a text that is not jobkit's own `sample`, jobkit
    refuses, with the command that fetches the real model, unless --stand-in permits it.

    \b
    Exit status:
      0  the batch fits, was measured already, or the job was submitted
      2  the model is not the real one: nothing was run
      4  no batch that was tried fits, or none could be tried
      5  a job already tries that batch: nothing more is submitted
    """
    from jobkit.launch import resume as change

    size_bytes = None if gpu_memory in {None, "device"} else parse_size(str(gpu_memory))
    folder = changed_run_named(run, "verify").absolute()
    refuse_unmeasured(folder, "verify")
    return change.verify(folder, memory=size_bytes or gpu_memory, stand_in=stand_in)


@click.command(short_help="Rerun a point with a profiler, and print where its time goes.")
@shared.changed_run
@click.argument("point", required=False)
@click.option(
    "--with",
    "profiler",
    type=click.Choice(list(PROFILE_FILES)),
    help="The profiler. Default: torch with device: cuda, else python.",
)
@click.option("--again", is_flag=True, help="Profile the point again, even if it has a profile.")
@shared.set_option
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

    folder = changed_run_named(run, "profile").absolute()
    refuse_unmeasured(folder, "profile")
    refuse_runs((point,) if point else ())
    return rerun.profile(folder, point, profiler, overrides, again=again, wait=wait)
