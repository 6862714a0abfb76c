"""Check, write the run folder, submit the sweep and what follows it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobkit.core import files, json_codec
from jobkit.core.errors import ExitCode, JobkitError, file_error
from jobkit.core.files import folder_lock
from jobkit.core.layout import (
    ACCOUNTING_FILE,
    JOURNAL_FILE,
    LENGTHS_FILE,
    POINTS_FILE,
    RESULTS_FOLDER,
    SEARCH_GOAL_FILE,
    SPEC_FILE,
)
from jobkit.core.paths import ledger_path
from jobkit.core.terminal import Say
from jobkit.outcome.journal import Role
from jobkit.outcome.trials import SearchGoal
from jobkit.planning.prepare import Prepared
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import by_name
from jobkit.schedulers.types import ONE_TASK, JobId
from jobkit.spec.fields import DEVICE
from jobkit.spec.sweep_spec import SweepSpec
from jobkit.submit.controller import JobPurpose, SubmissionUnconfirmed, Submitted, cancel, submit_array
from jobkit.submit.rounds import Round, ask_round, following, jobs_of, plan_arrays, submit_round, write_round

FIND_SCRIPT = "find.sh"
"""The job that follows a sweep and runs the batch that was predicted."""
FOLLOW_SCRIPT = "follow.sh"
"""The job that follows a sweep and runs again what the policy says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a scheduler took.

    Attributes
    ----------
    jobs
        The arrays, and the jobs that follow them.
    refused
        Why there is no job that follows up, where it was refused; else empty.
    """

    jobs: tuple[Submitted, ...]
    refused: str = ""


def first_round(prepared: Prepared) -> Round:
    """Return the sweep as a round."""
    return Round(
        number=1,
        script=prepared.script,
        points=[point.index for point in prepared.points],
        pack=prepared.spec.pack,
        max_parallel=prepared.spec.max_parallel,
        request=prepared.request,
    )


Check = Callable[[], None]
"""Raises where a run is not to be written."""


def write_run(prepared: Prepared, check: Check = lambda: None) -> None:
    """Write the run folder: spec, points, scripts, lengths where known, and empty folders.

    Parameters
    ----------
    check
        Asked while no other process begins a run in the same place.

    Raises
    ------
    JobkitError
        Where it cannot be written.
    """
    run_dir = prepared.run_dir
    try:
        run_dir.parent.mkdir(parents=True, exist_ok=True)
        with folder_lock(run_dir.parent):
            check()
            _write(prepared, run_dir)
    except OSError as error:
        raise file_error(error, run_dir, hint="choose another place with --runs-dir") from error


def _write(prepared: Prepared, run_dir: Path) -> None:
    for folder in (run_dir / "logs", run_dir / RESULTS_FOLDER):
        folder.mkdir(parents=True)
    files.write_atomically(run_dir / SPEC_FILE, prepared.spec.as_yaml())
    lines = "".join(json_codec.to_json(point) + "\n" for point in prepared.points)
    files.write_atomically(run_dir / POINTS_FILE, lines)
    write_round(run_dir, first_round(prepared))
    if prepared.find_script is not None:
        want(prepared.spec, run_dir, prepared.find_script)
    if prepared.follow_script is not None:
        files.write_atomically(run_dir / FOLLOW_SCRIPT, prepared.follow_script)
    if prepared.lengths is not None:
        files.write_atomically(run_dir / LENGTHS_FILE, prepared.lengths.to_json() + "\n")
    for name in (JOURNAL_FILE, ACCOUNTING_FILE):
        (run_dir / name).touch()


def submit(prepared: Prepared, say: Say = lambda _: None, check: Check = lambda: None) -> Taken:
    """Write the run folder and submit the sweep, one array job per array limit, and what follows.

    Parameters
    ----------
    prepared
        The sweep.
    say
        Told what the scheduler lets one expect, before it is submitted.
    check
        As for `write_run`.

    Raises
    ------
    JobkitError
        Exit code 3 where the scheduler refuses. Where a check refuses, no run folder is left;
        where a later array is refused, the earlier ones are cancelled and the journal says so.
    """
    scheduler, run_dir = by_name(prepared.spec.scheduler), prepared.run_dir
    round_ = first_round(prepared)
    arrays = plan_arrays(scheduler, round_)
    write_run(prepared, check)
    try:
        for line in ask_round(scheduler, run_dir, round_, arrays):
            say(line)
    except JobkitError:
        shutil.rmtree(run_dir)
        raise
    taken = submit_round(scheduler, run_dir, round_, arrays)
    jobs = jobs_of(taken)
    found = _find(prepared, scheduler, jobs) if prepared.find_script is not None else ()
    followed, refused = follow_up(scheduler, run_dir, 1, jobs) if prepared.follow_script else ((), "")
    return Taken(jobs=(*taken, *found, *followed), refused=refused)


def _find(prepared: Prepared, scheduler: Scheduler, jobs: Sequence[JobId]) -> tuple[Submitted, ...]:
    """Submit the job that finds the largest batch; where that is refused the sweep is cancelled."""
    try:
        return (submit_search(prepared.run_dir, scheduler, len(prepared.points), jobs),)
    except SubmissionUnconfirmed:
        raise  # it may have been taken: resume finds out
    except JobkitError:
        cancel(scheduler, prepared.run_dir, jobs)
        raise


def submit_search(run_dir: Path, scheduler: Scheduler, points: int, after: Sequence[JobId] = ()) -> Submitted:
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
    script = str(run_dir / FIND_SCRIPT)
    return submit_array(scheduler, run_dir, script, following(points), after, JobPurpose(Role.FIND))


def follow_up(
    scheduler: Scheduler, run_dir: Path, round_: int, after: Sequence[JobId]
) -> tuple[tuple[Submitted, ...], str]:
    """Submit ``follow.sh`` as a job that begins once a round has ended.

    Returns
    -------
    tuple of Submitted, and str
        Nothing and the reason where it is refused: the sweep runs without it.
    """
    script = str(run_dir / FOLLOW_SCRIPT)
    try:
        one = submit_array(scheduler, run_dir, script, ONE_TASK, after, JobPurpose(Role.FOLLOW, round_))
    except JobkitError as error:
        if error.exit_code == ExitCode.TO_COME:
            raise
        return (), error.message
    return (one,), ""


def wanted(spec: SweepSpec, after: int) -> SearchGoal:
    """Return what is to be found, after so many trials."""
    memory = spec.find_max.memory if spec.find_max else DEVICE
    return SearchGoal(
        memory_bytes=memory if isinstance(memory, int) else None,
        ram_bytes=spec.resources.memory,
        ledger=str(ledger_path()),
        after=after,
    )


def want(spec: SweepSpec, run_dir: Path, script: str, *, after: int = 0) -> None:
    """Write what is to be found, and the job that finds it."""
    files.write_atomically(run_dir / SEARCH_GOAL_FILE, json_codec.to_json(wanted(spec, after)) + "\n")
    files.write_atomically(run_dir / FIND_SCRIPT, script)
