"""One job at the controller: check, submit, cancel, throttle; journalled, and retried while it is busy."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobkit.core import shell
from jobkit.core.errors import WOULD_REFUSE, ExitCode, JobkitError, file_error
from jobkit.core.terminal import shell_path
from jobkit.outcome import journal
from jobkit.outcome.journal import Role
from jobkit.schedulers.parsing import find_job_id, refusal
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import SCHEDULERS
from jobkit.schedulers.types import Array, JobId, Request

PAUSES_S = (0.5, 1.5, 4.0, 8.0)
"""Before the second try, the third, ...: longer and longer, as slurmctld's own clients wait."""


def run_while_busy(argv: Sequence[str], busy: re.Pattern[str], env: Mapping[str, str]) -> shell.Completed:
    """Return what a command answered, asked again for a while as long as the controller is busy.

    Parameters
    ----------
    argv
        The command.
    busy
        Words of an answer that mean: nothing was done, come again.
    env
        Its whole environment.
    """
    done = shell.run(argv, env=env)
    for pause_s in PAUSES_S:
        if done.ok or not busy.search(done.said):
            break
        time.sleep(pause_s)
        done = shell.run(argv, env=env)
    return done


MOST_SAID = 2000
"""Characters of an answer that are kept: qdel has a line for every task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A job that is about to be submitted.

    Attributes
    ----------
    script
        The name of its script in the run folder, or the path.
    array
        Its tasks.
    role
        What it is for. A job for anything but points starts once the arrays before it have ended.
    round
        In which round of its run.
    given
        What a person gave with it: ``key=value``.
    walltime_s
        Of each point; ``None`` for a job that is no array of points.
    behind
        Of an array of points: it starts once the array this many places before it has ended; 0 for at once.
    """

    script: str
    array: Array
    role: Role = Role.POINTS
    round: int = 1
    given: tuple[str, ...] = ()
    walltime_s: int | None = None
    behind: int = 0

    def waits_for(self, arrays: Sequence[JobId]) -> Sequence[JobId]:
        """Return those of the arrays before it that must end before it starts."""
        if self.role is Role.POINTS:
            return arrays[-self.behind :][:1] if self.behind else ()
        return arrays


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job that the scheduler accepted."""

    job: JobId
    array: Array
    role: Role


REFUSED = "; nothing was submitted\n  "
"""What stands between the head of a refusal and the scheduler's reasons."""


class SubmissionUnconfirmed(JobkitError):  # noqa: N818 - the name of what happened
    """A submission that the journal does not have: nothing may be undone or repeated."""


def check_submission(scheduler: Scheduler, request: Request, script: str, array: Array) -> tuple[str, ...]:
    """Ask the scheduler whether it would accept a submission; return its forecast, in its own words.

    Raises
    ------
    JobkitError
        With every refusal, exit code 3.
    """
    env = submission_environment()
    checks = scheduler.checks(script, array, request)
    answers = [(check, run_while_busy(check.argv, scheduler.BUSY_PATTERN, env)) for check in checks]
    texts = [check.refusal(answer) for check, answer in answers]
    refusals = list(dict.fromkeys(text for text in texts if text))
    if refusals:
        raise JobkitError(
            f"{scheduler.NAME} {WOULD_REFUSE}{REFUSED}" + "\n  ".join(refusals),
            hint="change `resources` in the spec (or --set resources.…), or the site file",
            exit_code=ExitCode.REFUSED,
        )
    return tuple(text for check, answer in answers if (text := check.outlook(answer)))


def submit_array(
    scheduler: Scheduler, run_dir: Path, planned: PlannedJob, after: Sequence[JobId] = ()
) -> Submitted:
    """Submit one array of a run, the intent journalled before and the answer after.

    Parameters
    ----------
    after
        It begins once these jobs have ended.

    Raises
    ------
    JobkitError
        Exit code 3 if the scheduler refuses.
    Unanswered
        The same if it may have taken the job all the same; exit code 5 if it has, and the
        journal cannot be written.
    """
    array = planned.array
    argv = scheduler.submit_argv(str(run_dir / planned.script), array, after)
    span = {
        "scheduler": scheduler.NAME,
        "first": array.first,
        "last": array.last,
        "offset": array.offset,
        "throttle": array.throttle,
        "role": planned.role,
        "round": planned.round,
        **({"list": array.listed} if array.listed else {}),
        **({"given": planned.given} if planned.given else {}),
        **({"walltime_s": planned.walltime_s} if planned.walltime_s else {}),
    }
    try:
        journal.note(run_dir, "submitting", argv=argv, **span)
    except OSError as error:
        raise _not_begun(error) from error
    done = run_while_busy(argv, scheduler.BUSY_PATTERN, submission_environment())
    try:
        job = _answer(scheduler, run_dir, done)
    except SubmissionUnconfirmed:
        raise  # the journal's intent stands without an answer: resume finds out
    except JobkitError:
        with contextlib.suppress(OSError):  # the intent stands without an answer: resume finds no job
            journal.note(run_dir, "refused", status=done.status, said=done.said, **span)
        raise
    try:
        journal.note(run_dir, "submitted", job_id=job.id, cluster=job.cluster, **span)
    except OSError as error:
        raise _not_journalled(error, scheduler, run_dir, job) from error
    return Submitted(job, array, planned.role)


def _not_begun(error: OSError) -> JobkitError:
    """Return that a job was not submitted, for the intent could not be journalled."""
    fault = file_error(error)
    fault.message += "; the job was not submitted"
    return fault


def _not_journalled(error: OSError, scheduler: Scheduler, run_dir: Path, job: JobId) -> SubmissionUnconfirmed:
    """Return that a job was submitted, and the journal does not have it."""
    fault = file_error(error)
    run = shell_path(run_dir)
    return SubmissionUnconfirmed(
        f"{scheduler.NAME} accepted job {job}, but the journal could not be written: {fault.message}",
        hint=f"{fault.hint.partition(',')[0] or 'make it writable'}, then jobkit resume {run}: it finds the "
        "job by its name and submits what is missing",
        exit_code=ExitCode.TO_COME,
    )


def _answer(scheduler: Scheduler, run_dir: Path, done: shell.Completed) -> JobId:
    """Return the job that was taken."""
    unsure = done.ok or done.status == shell.NO_ANSWER or scheduler.UNCONFIRMED_PATTERN.search(done.said)
    try:
        shell.check(done, f"{scheduler.NAME} refused the sweep", hint="see the scheduler's message above")
        return find_job_id(done.stdout, scheduler.JOB_ID_PATTERNS, done.argv[0])
    except JobkitError as error:
        error.exit_code = ExitCode.REFUSED
        if not unsure:
            raise
        command = f"jobkit resume {shell_path(run_dir)} finds it by its name, or submits it again"
        raise SubmissionUnconfirmed(
            f"{error.message}\n  so it is not known whether {scheduler.NAME} took the job",
            hint=f"in half a minute, {command}",
            exit_code=ExitCode.REFUSED,
        ) from error


def cancel(scheduler: Scheduler, run_dir: Path, jobs: Sequence[JobId]) -> None:
    """Cancel jobs of a run, and note each with the scheduler's message."""
    for job in jobs:
        _change(scheduler, run_dir, job, "cancelled", scheduler.cancel_argv(job))


def cancel_tasks(
    scheduler: Scheduler, run_dir: Path, job: JobId, tasks: Sequence[int], *, whole: bool
) -> str | None:
    """Cancel tasks of a job by one command; return what the scheduler refused, in its words.

    Parameters
    ----------
    tasks
        Those that had not ended: the journal records that they were cancelled.
    whole
        Whether these are the last tasks of the job: then the job is named as a whole.
    """
    argv = scheduler.cancel_argv(job, () if whole else tuple(tasks))
    return _change(scheduler, run_dir, job, "cancelled", argv, tasks=list(tasks))


def throttle(scheduler: Scheduler, run_dir: Path, job: JobId, most: int) -> str | None:
    """Limit how many tasks of a job run at a time, 0 for no limit; return what was refused."""
    argv = scheduler.throttle_argv(job, most)
    return _change(scheduler, run_dir, job, "throttled", argv, throttle=most)


def _change(
    scheduler: Scheduler, run_dir: Path, job: JobId, event: str, argv: Sequence[str], **fields: object
) -> str | None:
    """Change a job, and note the scheduler's message."""
    done = run_while_busy(argv, scheduler.BUSY_PATTERN, submission_environment())
    refused = refusal(done, scheduler.OVER_PATTERN)
    fields |= {"job_id": job.id, "cluster": job.cluster, "status": done.status, "said": done.said[:MOST_SAID]}
    try:
        journal.note(run_dir, event, **fields, refused=refused or "")
    except OSError as error:  # it is done: the scheduler knows, and tells every later look
        sys.stderr.write(
            f"job {job} was {event}, but the journal could not record it: {file_error(error).message}\n"
        )
    return refused


def submission_environment() -> Mapping[str, str]:
    """Return this environment without the variables that would change a submission."""
    leaking = [scheduler.LEAKING_VARIABLES for scheduler in SCHEDULERS.values()]
    return {
        name: value
        for name, value in os.environ.items()
        if not any(pattern.match(name) for pattern in leaking)
    }
