"""What `jobkit resume` does: decide, submit or run here, and say so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.records import Point
from jobkit.core.terminal import shell_path, shell_quote
from jobkit.core.units import format_size, format_walltime
from jobkit.outcome.journal import Role
from jobkit.planning.resolve import warn_again
from jobkit.schedulers.registry import by_name, runs_here
from jobkit.spec.sweep_spec import SweepSpec
from jobkit.status.retry import Group
from jobkit.status.standing import RunStanding, count_by_state, read_standings
from jobkit.submit import local
from jobkit.submit.guards import refuse_moved_run
from jobkit.submit.launch import say, stay
from jobkit.submit.recover import bury
from jobkit.submit.resubmit import (
    Resumed,
    alone,
    between,
    make_round,
    note_left,
    prepare_resume,
    resume,
    settled,
    wanted,
)
from jobkit.submit.rounds import write_round

JOB_PATIENCE_S = 300.0
"""How long the job that follows waits for a controller that is away, of its ten minutes."""


def run_again(
    run_dir: Path,
    only: Sequence[str],
    overrides: Sequence[str],
    *,
    machine_gone: str = "",
    wait: bool = False,
) -> int | None:
    """Submit, or run here, the points that failed or are missing; return the exit code.

    It is ``None`` if they have ended: they ran here, or were waited for.

    Parameters
    ----------
    run_dir
        The run folder, absolute.
    only, overrides
        As `jobkit.status.retry.select_points` and `jobkit.submit.resubmit.prepare_resume`.
    machine_gone
        A machine on which points of the run were started, and of which a person says that it is gone.
    wait
        Whether to wait for points that were submitted.

    Raises
    ------
    JobkitError
        Where a word names no point that could run, a key may not change, or the scheduler refuses;
        as `jobkit.submit.guards.refuse_moved_run`.
    """
    refuse_moved_run(run_dir)
    spec = prepare_resume(run_dir, overrides)
    with alone(run_dir, say):
        if machine_gone:
            bury(run_dir, machine_gone)
        seen = settled(run_dir, by_name(spec.scheduler), say)
        say(f"{run_dir.name}: {count_by_state(seen)}")
        again = wanted(seen, spec, only, tuple(overrides))
        for line in between(seen):
            say(f"{line}: not run again now; once that is over, type this again")
        if not again:
            say("nothing to run again")
            return ExitCode.TO_COME if between(seen) else 0
        for group in again:
            say(f"again: {described(group, run_dir)}")
        warn_again(say, spec, _points(seen, again), "or name another Python: --set environment.venv=FOLDER")
        if runs_here(spec.scheduler):
            return _here(run_dir, seen, again)
        done = resume(run_dir, spec, seen, again, say)
    _report(done, spec.scheduler)
    if len(done.groups) < len(again) or not wait:
        say(f"  progress     jobkit status {shell_path(run_dir)}")
        return ExitCode.REFUSED if len(done.groups) < len(again) else 0
    return stay(run_dir, _points(seen, again), spec.policy, seen)


def _report(done: Resumed, scheduler: str) -> None:
    """Print what was submitted, and what was left out."""
    for submission in done.taken:
        waits = "" if submission.role is Role.POINTS else " waits for it and runs again what the policy says"
        say(f"submitted: {scheduler} job {submission.job}{waits}")
    for line in done.left:
        say(line)


def _points(seen: RunStanding, again: Sequence[Group]) -> list[Point]:
    indices = {index for group in again for index in group.points}
    return [point.point for point in seen.points if point.point.index in indices]


def run_follow_up(run_dir: Path) -> int:
    """Do what the policy says, from the job that follows a sweep, or after one here; return the exit code.

    Where the node may not submit, or the scheduler refuses, it is journalled what is left to do.
    """
    spec = prepare_resume(run_dir, ())
    if runs_here(spec.scheduler):
        return _follow_here(run_dir, spec)
    with alone(run_dir, say):
        try:
            seen = settled(run_dir, by_name(spec.scheduler), say, patience_s=JOB_PATIENCE_S)
        except JobkitError as error:
            note_left(run_dir, error.message, ())
            say(f"{error}")
            return 0
        say(f"{run_dir.name}: {count_by_state(seen)}")
        again = wanted(seen, spec, ("failed",), strictly=True)
        for group in again:
            say(f"again: {described(group, run_dir)}")
        if not again:
            return 0
        try:
            done = resume(run_dir, spec, seen, again, say)
        except JobkitError as error:
            note_left(run_dir, error.message, again)
            say(f"{error}\nit is left to a person: jobkit resume {shell_quote(run_dir)}")
            return 0
        if left := [group for group in again if group not in done.groups]:
            note_left(run_dir, "; ".join(done.left), left)
    for line in done.left:
        say(line)
    return 0


def _follow_here(run_dir: Path, spec: SweepSpec) -> int:
    """Run again what the policy says, as often as it says; return 130 where it was interrupted."""
    while spec.policy.follow_up:
        (seen,) = read_standings([run_dir])
        again = wanted(seen, spec, ("failed",), strictly=True)
        if not again:
            break
        for group in again:
            say(f"again: {described(group, run_dir)}")
        code = _here(run_dir, seen, again)
        if code is not None:
            return code
    return 0


def described(group: Group, run_dir: Path) -> str:
    """Return a group in words: how many points, and what they get beyond the run's own spec."""
    asked, before = group.spec.resources, prepare_resume(run_dir, ()).resources
    what = [one for one in group.given if not one.startswith(("resources.memory=", "resources.walltime="))]
    what = [f"with {', '.join(what)}"] if what else []
    if asked.memory != before.memory:
        what.append(f"with {format_size(asked.memory)} of memory")
    if asked.walltime != before.walltime:
        what.append(f"with {format_walltime(asked.walltime)} of walltime")
    if group.change.exclude:
        what.append(f"not on {', '.join(group.change.exclude)}")
    points = f"{len(group.points)} point{'s' if len(group.points) > 1 else ''}"
    return f"{points}{', ' if what else ''}{' and '.join(what)}"


def _here(run_dir: Path, seen: RunStanding, again: Sequence[Group]) -> int | None:
    """Run the groups on this machine, one after the other; return an exit code where it ends early."""
    from jobkit.status import (
        progress_bars,  # brings rich, which a submission that returns at once does not need
    )

    try:
        with local.as_driver(run_dir) as job_id:
            for group in again:
                round_ = make_round(run_dir, seen, group)
                write_round(run_dir, round_)
                leg = local.LocalRound(group.points, group.spec, round_.number, group.given)
                with progress_bars.Progress(run_dir, _points(seen, [group]), seen) as progress:
                    local.drive(run_dir, progress.tick, job_id, leg)
    except KeyboardInterrupt:
        say(f"interrupted; what was measured is in {run_dir}")
        return ExitCode.INTERRUPTED
    return None
