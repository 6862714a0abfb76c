"""Check, write the run folder, journal, submit; cancel what a refusal leaves half done."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobkit import journal, records, shell
from jobkit.errors import JobkitError
from jobkit.lengths import LENGTHS_FILE
from jobkit.places import ledger_path
from jobkit.prepare import Prepared
from jobkit.schedulers.base import Array, JobId, Scheduler
from jobkit.schedulers.registry import by_name
from jobkit.spec import SweepSpec
from jobkit.trials import WANTED_FILE, Wanted
from jobkit.values import DEVICE

REFUSED = 3
FIND_SCRIPT = "find.sh"
"""Beside ``job.sh``: the job that follows a sweep and runs the batch that was predicted."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """An array that the scheduler took; ``follows`` where it waits for the sweep to end."""

    job: JobId
    array: Array
    follows: bool = False


def write_run(prepared: Prepared) -> None:
    """Write the run folder: spec, points, script, lengths where known, and empty folders.

    Raises
    ------
    JobkitError
        Where it cannot be written.
    """
    run_dir = prepared.run_dir
    try:
        for folder in (run_dir / "logs", run_dir / "results"):
            folder.mkdir(parents=True)
        records.write_atomically(run_dir / "sweep.yaml", prepared.spec.as_yaml())
        lines = "".join(records.to_json(point) + "\n" for point in prepared.points)
        records.write_atomically(run_dir / records.POINTS_FILE, lines)
        records.write_atomically(run_dir / "job.sh", prepared.script)
        if prepared.find_script is not None:
            want(prepared.spec, run_dir, prepared.find_script)
        if prepared.lengths is not None:
            records.write_atomically(run_dir / LENGTHS_FILE, prepared.lengths.to_json() + "\n")
        for name in (records.JOURNAL_FILE, records.ACCOUNTING_FILE):
            (run_dir / name).touch()
    except OSError as error:
        raise JobkitError(
            f"run folder {run_dir}: {error.strerror}", hint="choose another place with --runs-dir"
        ) from error


def submit(prepared: Prepared) -> tuple[Submitted, ...]:
    """Write the run folder and submit the sweep, one array job per array limit.

    Raises
    ------
    JobkitError
        Exit code 3 where the scheduler refuses. Where a check refuses, no run folder is left;
        where a later array is refused, the earlier ones are cancelled and the journal says so.
    """
    scheduler = by_name(prepared.spec.scheduler)
    limits = ask_limits(scheduler)
    arrays = arrays_within(scheduler, limits, len(prepared.points), prepared.spec.max_parallel)
    write_run(prepared)
    script = str(prepared.run_dir / "job.sh")
    try:
        ask(scheduler, prepared, script, arrays[0])
    except JobkitError:
        shutil.rmtree(prepared.run_dir)
        raise
    taken: list[Submitted] = []
    for array in arrays:
        try:
            taken.append(Submitted(submit_array(scheduler, prepared.run_dir, script, array), array))
        except JobkitError:
            cancel(scheduler, prepared.run_dir, [one.job for one in taken])
            raise
    if prepared.find_script is not None:
        taken.append(_follow(prepared.run_dir, scheduler, len(prepared.points), taken))
    return tuple(taken)


def _follow(run_dir: Path, scheduler: Scheduler, points: int, taken: Sequence[Submitted]) -> Submitted:
    """Submit the job that waits for the sweep; where that is refused the sweep is cancelled."""
    try:
        return follow(run_dir, scheduler, points, [one.job for one in taken])
    except JobkitError:
        cancel(scheduler, run_dir, [one.job for one in taken])
        raise


def follow(run_dir: Path, scheduler: Scheduler, points: int, after: Sequence[JobId] = ()) -> Submitted:
    """Submit ``find.sh`` as a job that begins once others have ended.

    Parameters
    ----------
    points
        How many points the run has: the first that it adds comes behind them.

    Raises
    ------
    JobkitError
        Exit code 3, where the scheduler refuses.
    """
    array = following(points)
    job = submit_array(scheduler, run_dir, str(run_dir / FIND_SCRIPT), array, after)
    return Submitted(job, array, follows=True)


def following(points: int) -> Array:
    """Return the job that follows a sweep, as an array: its task is the first point that it adds."""
    return Array(first=1, last=1, offset=points, throttle=None)


def want(spec: SweepSpec, run_dir: Path, script: str, *, after: int = 0) -> None:
    """Write what is to be found, and the job that finds it."""
    memory = spec.find_max.memory if spec.find_max else DEVICE
    wanted = Wanted(
        memory_bytes=memory if isinstance(memory, int) else None,
        ram_bytes=spec.resources.memory,
        ledger=str(ledger_path()),
        after=after,
    )
    records.write_atomically(run_dir / WANTED_FILE, records.to_json(wanted) + "\n")
    records.write_atomically(run_dir / FIND_SCRIPT, script)


def ask_limits(scheduler: Scheduler) -> str:
    """Return what the controller says of its limits; nothing where it has none.

    Raises
    ------
    JobkitError
        Exit code 3 where it does not answer.
    """
    argv = scheduler.limit_argv()
    if not argv:
        return ""
    done = shell.run(argv, env=clean_environment())
    return shell.check(done, "the scheduler does not answer", hint="is this a submit host?").stdout


def arrays_within(
    scheduler: Scheduler, limits: str, points: int, max_parallel: int | None
) -> tuple[Array, ...]:
    """Return the arrays of a sweep, within the limits that the controller told.

    Raises
    ------
    JobkitError
        Exit code 3 where it takes no arrays, or cannot hold so many points.
    """
    limit = scheduler.parse_limit(limits)
    if limit == 0:
        message = f"{scheduler.NAME} takes no array jobs here: its array limit is 0"
        raise JobkitError(message, hint="ask the cluster's support about array jobs", exit_code=REFUSED)
    arrays = chunks(points, limit, max_parallel)
    if refusal := scheduler.too_many(limits, arrays):
        hint = "split the sweep into several specs, or lower `repeats`"
        raise JobkitError(f"{refusal}; nothing was submitted", hint=hint, exit_code=REFUSED)
    return arrays


def chunks(points: int, limit: int | None, max_parallel: int | None) -> tuple[Array, ...]:
    """Return the arrays that cover points 1 to ``points``.

    The limit is on the task *index*, so each array starts at 1 and its points are offset. The
    throttle is divided, for the arrays run beside each other.
    """
    size = min(points, limit) if limit else points
    starts = range(0, points, size)
    throttle = max(1, max_parallel // len(starts)) if max_parallel else None
    return tuple(
        Array(first=1, last=min(size, points - start), offset=start, throttle=throttle) for start in starts
    )


def ask(scheduler: Scheduler, prepared: Prepared, script: str, array: Array) -> None:
    """Ask the scheduler what it would say.

    Raises
    ------
    JobkitError
        With every refusal, exit code 3.
    """
    env = clean_environment()
    asked = scheduler.checks(script, array, prepared.request)
    found = [one.refusal(shell.run(one.argv, env=env)) for one in asked]
    refusals = list(dict.fromkeys(text for text in found if text))
    if refusals:
        raise JobkitError(
            "\n  ".join([f"{scheduler.NAME} would refuse this sweep; nothing was submitted", *refusals]),
            hint="change `resources` in the spec (or --set resources.…), or the site file",
            exit_code=REFUSED,
        )


def submit_array(
    scheduler: Scheduler, run_dir: Path, script: str, array: Array, after: Sequence[JobId] = ()
) -> JobId:
    """Submit one array of a run, the intent journalled before and the answer after.

    Raises
    ------
    JobkitError
        Exit code 3, where the scheduler refuses or prints no job id.
    """
    argv = scheduler.submit_argv(script, array, after)
    span = {"first": array.first, "last": array.last, "offset": array.offset, "throttle": array.throttle}
    journal.note(run_dir, "submitting", scheduler=scheduler.NAME, argv=argv, **span)
    done = shell.run(argv, env=clean_environment())
    try:
        shell.check(done, f"{scheduler.NAME} refused the sweep", hint="its own words stand above")
        job = scheduler.parse_submit(done.stdout)
    except JobkitError as error:
        journal.note(run_dir, "refused", scheduler=scheduler.NAME, status=done.status, said=done.said, **span)
        error.exit_code = REFUSED
        raise
    journal.note(run_dir, "submitted", scheduler=scheduler.NAME, job_id=job.id, cluster=job.cluster, **span)
    return job


def cancel(scheduler: Scheduler, run_dir: Path, jobs: Sequence[JobId]) -> None:
    """Cancel jobs of a run, and note each with what the scheduler said."""
    for job in jobs:
        done = shell.run(scheduler.cancel_argv(job))
        journal.note(
            run_dir, "cancelled", job_id=job.id, cluster=job.cluster, status=done.status, said=done.said
        )


def clean_environment() -> Mapping[str, str]:
    """Return this environment without what would change a submission behind its back.

    ``SBATCH_*`` are options in disguise (sbatch(1), input environment variables), and the
    ``SLURM_*`` of a surrounding job leak into the new one; ``SLURM_CONF`` and its like stay.
    """
    kept = {"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT"}
    return {
        name: value
        for name, value in os.environ.items()
        if name in kept or not name.startswith(("SBATCH_", "SLURM_"))
    }
