"""Submit again the points of a run that failed or are missing, and no other."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from jobkit.core.errors import ExitCode, JobkitError, file_error
from jobkit.core.files import exclusive_lock
from jobkit.core.layout import FOLLOW_SCRIPT, RUN_LOCK, SPEC_FILE
from jobkit.core.terminal import Say
from jobkit.core.units import format_count
from jobkit.launch import scheduler_calls
from jobkit.launch import submission as rounds
from jobkit.launch.job import Job, follow_job, ids
from jobkit.launch.scheduler_calls import (
    SubmissionUnconfirmed,
    reconcile_submission,
    refuse_stray_jobs,
)
from jobkit.launch.submission import Round
from jobkit.planning.job_script import render
from jobkit.planning.points import group_points
from jobkit.planning.prepare import shared_by
from jobkit.runs import journal
from jobkit.runs.driver_lock import elsewhere
from jobkit.runs.journal import GONE_AFTER, PURPOSES, Role, read_journal
from jobkit.runs.reader import read_status
from jobkit.runs.request import RetryGroup, allow_nodes, merge_overrides
from jobkit.runs.status import IN_QUEUE, PointState, RunStatus, first_task, followers
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import by_name, runs_here
from jobkit.schedulers.types import Array, JobId
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import SweepSpec, load_spec

CHANGEABLE = ("resources", "environment", "max_parallel", "pack", "policy")
"""Keys that `--set` may change: no point's own figures depend on them."""
NO_LOCK = (
    "this file system has no locks, so jobkit cannot see whether another jobkit changes this run now: "
    "run one command on it at a time, or work may be done twice"
)
PATIENCE_S = GONE_AFTER / timedelta(seconds=1) + 30.0
POLL_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    groups: tuple[RetryGroup, ...]  # the points, by how they run
    # jobs, including those that follow; none on this machine, because the points run at once there
    taken: tuple[Job, ...] = ()
    left: tuple[str, ...] = ()  # points that were wanted and stay as they are, and why, in sentences


def prepare_resume(run_dir: Path, overrides: Sequence[str]) -> SweepSpec:
    """Return the spec of a run, changed by the ``key=value`` of each ``--set``."""
    for override in overrides:
        key = override.partition("=")[0].strip()
        if key.partition(".")[0] not in CHANGEABLE:
            raise JobkitError(
                f"--set {override}: the results depend on {key}, which cannot change within a run",
                hint=f"resume takes {', '.join(CHANGEABLE)}; to change another key begin a new run",
            )
    return spec_of_run(run_dir, overrides)


def spec_of_run(run_dir: Path, overrides: Sequence[str] = ()) -> SweepSpec:
    """Return the spec of a run with what was given to all of it since, and now."""
    return load_spec(run_dir / SPEC_FILE, merge_overrides(read_journal(run_dir).given, tuple(overrides)))


@contextlib.contextmanager
def run_lock(run_dir: Path, say: Say) -> Iterator[None]:
    """Let one process at a time decide what runs again; if the file system has no locks, print a warning."""
    try:
        with exclusive_lock(
            run_dir / RUN_LOCK,
            lambda: say("another jobkit command is changing this run: waiting for it"),
            lambda: say(NO_LOCK),
        ):
            yield
    except BrokenPipeError:
        raise
    except OSError as error:
        owned = error.errno in {errno.EACCES, errno.EPERM}
        raise file_error(error, run_dir, hint="only its owner can change a run" if owned else "") from error


def read_settled(run_dir: Path, scheduler: Scheduler, say: Say, *, patience_s: float = 0) -> RunStatus:
    """Return a look at a run in which no point is between two states.

    A task that left the queue without a trace may still turn up, and one that was cancelled takes a while to
    end: they are given a minute. A scheduler that does not answer is asked again for ``patience_s``, which is
    0 if a person waits.
    """
    reconcile_submission(run_dir, say)
    begin, announced = time.monotonic(), False
    deadline = begin + PATIENCE_S
    while True:
        (run,) = read_status([run_dir])
        if run.silent:
            if time.monotonic() - begin < patience_s:
                time.sleep(POLL_S)
                continue
            refuse_silent(run, "what still runs is unknown")
        lines = undecided(run)
        if not lines or time.monotonic() > deadline:
            refuse_stray_jobs(run_dir, scheduler)
            return run
        if not announced:
            for line in lines:
                say(f"{line}: looking again for a minute")
            announced = True
        time.sleep(POLL_S)


def refuse_silent(run: RunStatus, so: str) -> None:
    """Refuse if a scheduler, or the machine of the points, does not answer; ``so`` is what that means."""
    if any(map(runs_here, run.silent)):
        machines = [job.job.cluster for job in run.submissions if runs_here(job.scheduler)]
        raise elsewhere(run.folder, machines[-1])
    if run.silent:
        message = f"{', '.join(run.silent)} does not answer, so {so}"
        raise JobkitError(message, hint="try again when it answers", exit_code=ExitCode.REFUSED)


def undecided(run: RunStatus) -> list[str]:
    ending = sum(point.state in IN_QUEUE and point.task in run.ending for point in run.points)
    numbers = {
        "left the queue without a trace": run.counts[PointState.UNSETTLED],
        "cancelled, and not over yet": ending,
    }
    lines = [f"{format_count(number, run.noun)} {words}" for words, number in numbers.items() if number]
    role = run.kind.awaited(run.folder)
    for job, queued in followers(run, role)[-1:] if role else ():
        if first_task(job) in run.ending:
            lines.append(f"the job that {PURPOSES[job.role]} was cancelled, and is not over yet")
        elif queued is None and not has_ended(run, job.role):
            lines.append(f"the job that {PURPOSES[job.role]} left the queue without a trace")
    return lines


def has_ended(run: RunStatus, role: Role) -> bool:
    """Return whether the last job of a role is known to have ended."""
    return all(first_task(submission) in run.ended for submission, _ in followers(run, role)[-1:])


def resume(run_dir: Path, spec: SweepSpec, run: RunStatus, again: Sequence[RetryGroup], say: Say) -> Resumed:
    """Submit groups of points, one round each, and a job that follows them."""
    scheduler = by_name(spec.scheduler)
    taken: list[Job] = []
    done: list[RetryGroup] = []
    left: list[str] = []
    arrays = run.arrays_in_queue(held=False)
    for group in again:
        try:
            taken += _submit(scheduler, run_dir, run, group, arrays, say)
        except SubmissionUnconfirmed:
            raise  # one more intent in the journal would hide this one
        except JobkitError as error:
            if not taken and group is again[-1]:
                raise
            left.append(f"{format_count(len(group.points), run.noun)} not submitted: {error.message}")
            continue
        done.append(group)
    if taken and (run_dir / FOLLOW_SCRIPT).is_file() and spec.policy.follow_up:
        job = follow_job(read_journal(run_dir).rounds)
        taken += rounds.submit_jobs(scheduler, run_dir, [job], ids(taken))
    return Resumed(groups=tuple(done), taken=tuple(taken), left=tuple(left))


def fill_slots(scheduler: Scheduler, run_dir: Path, run: RunStatus, spec: SweepSpec, say: Say) -> None:
    """Let the queued arrays use the part of ``max_parallel`` that ended ones have left."""
    arrays, most = run.arrays_in_queue(held=False), spec.max_parallel
    if most and 0 < len(arrays) <= most:
        for line in scheduler_calls.throttle(scheduler, run_dir, most, arrays):
            say(line)


def _submit(
    scheduler: Scheduler,
    run_dir: Path,
    run: RunStatus,
    group: RetryGroup,
    arrays: dict[JobId, int],
    say: Say,
) -> tuple[Job, ...]:
    """Submit a group of points, if need be to the nodes that the policy avoids.

    ``arrays`` share ``max_parallel``, each with its number of tasks: the group's arrays take a part, and are
    added.
    """
    round_ = make_round(run_dir, run, group)
    own = most = round_.max_parallel
    after = [min(arrays, key=lambda job: arrays[job])] if most and len(arrays) >= most else []
    if after:
        own = 1
    elif most:
        own = scheduler_calls.share(most, [*arrays.values(), sum(map(len, round_.tasks))])[-1]
    round_ = replace(round_, max_parallel=own)
    planned = rounds.plan_arrays(scheduler, round_)
    try:
        _write(scheduler, run_dir, round_, planned, say)
    except JobkitError:
        if not group.change.exclude:
            raise
        wider = make_round(run_dir, run, allow_nodes(group, spec_of_run(run_dir, group.given)))
        round_ = replace(wider, max_parallel=own)
        _write(scheduler, run_dir, round_, planned, say)
        nodes = ", ".join(group.change.exclude)
        say(f"only {nodes} matches the request, so the {run.noun}s may run there again")
    submitted = rounds.submit_jobs(scheduler, run_dir, rounds.round_jobs(round_, planned), after=after)
    others, number = list(arrays), format_count(len(group.points), run.noun)
    arrays |= {job.id: job.array.tasks for job in submitted[-(own or len(submitted)) :] if job.id}
    if after:
        del arrays[after[0]]
        say(f"max_parallel is {most}: {number} will begin when job {after[0]} has ended")
    elif most and others:
        names = ", ".join(map(str, others))
        say(
            f"max_parallel is {most}: {number} may begin next to job {names}, at most {own} at a time; "
            "until running tasks end, more may run in all"
        )
        for line in scheduler_calls.throttle(scheduler, run_dir, most, arrays):
            say(line)
    return submitted


def _write(scheduler: Scheduler, run_dir: Path, round_: Round, arrays: Sequence[Array], say: Say) -> None:
    """Write the files of a round; if a check refuses it, delete them."""
    written = rounds.write_round(run_dir, round_)
    try:
        for line in rounds.check_round(scheduler, round_, str(written[0]), arrays):
            say(line)
    except JobkitError:
        for path in written:
            path.unlink()
        raise


def make_round(run_dir: Path, run: RunStatus, group: RetryGroup) -> Round:
    spec = shared_by(group.spec, len(group.points))
    number = max(1, read_journal(run_dir).rounds) + 1  # job.sh is never written again
    site = load_site(spec.site, spec.scheduler)
    points = [one.point for one in run.points if one.point.index in group.points]
    places = run.kind.places(run_dir) if spec.environment.container else ()
    return Round(
        number=number,
        script=render(spec, site, points[0], run_dir, round_=number, places=places),
        groups=group_points(spec, site, points),
        pack=spec.pack,
        max_parallel=spec.max_parallel,
        given=group.given,
    )


def note_left(run_dir: Path, why: str, again: Sequence[RetryGroup]) -> None:
    """Journal which points a node failed to resubmit; `jobkit status` reports them."""
    points = [index for group in again for index in group.points]
    journal.note(run_dir, "left", points=points, why=why)
