"""Jobs that the journal does not know: the client died between a submission and its answer."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from jobkit.core import shell
from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.layout import DRIVER_LOCK, JOURNAL_FILE, read_points, run_id_of
from jobkit.core.terminal import Say, shell_path
from jobkit.outcome import journal
from jobkit.outcome.driver_lock import Life, elsewhere, is_held, last_driver, life
from jobkit.outcome.journal import STILL_AT_IT, read_journal
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import by_name, runs_here
from jobkit.schedulers.types import JobId
from jobkit.status.queue import TIMEOUT_S

SPAN = (
    *("scheduler", "first", "last", "offset", "throttle", "role", "round", "list", "given", "only"),
    "walltime_s",
)

LOST = "the client died before the scheduler took it: no job of this name is known"
BY_NAME = "by its name"
BY_LOCK = "by its intent and its lock"


class StrayJobs(JobkitError):  # noqa: N818 - the name of what was found
    """Jobs of a run in the queue, whose points the journal does not name."""


def reconcile_submission(run_dir: Path, say: Say) -> None:
    """Find the job of a submission that was never answered, by the run's name, and journal it.

    One submission at a time is under way, and every earlier job is journalled: so a job of the
    run's name with a number that the journal does not know is the one. Where there are several, the
    journal has lost lines: the one of most tasks is taken if all have ended, for none can run twice.

    Raises
    ------
    JobkitError
        Exit code 3 if the scheduler does not answer, the submission is only seconds old, or the
        journal does not have the job after it was written there.
    OSError
        If the journal cannot be written.
    """
    event = read_journal(run_dir).unanswered
    if event is None:
        return
    scheduler = by_name(str(event.get("scheduler")))
    span = {key: event[key] for key in SPAN if key in event}
    if scheduler.RUNS_HERE and event.get("job_id"):
        _adopt_driver(run_dir, event, span, say)
        return
    at, now = datetime.fromisoformat(str(event["at"])), datetime.now(UTC)
    if abs(now - at) < STILL_AT_IT:
        message, hint = f"{run_dir}: a submission is under way", "try again in half a minute"
        raise JobkitError(message, hint=hint, exit_code=ExitCode.REFUSED)
    # The clock was set back if the submission is in the future: its true time is unknown.
    since = at - timedelta(minutes=1) if at < now else now - timedelta(days=1)
    jobs = _by_name(scheduler, run_dir, since)
    if len(jobs) > 1:
        refuse_stray_jobs(run_dir, scheduler)
    if not jobs:
        journal.note(run_dir, "refused", status=None, said=LOST, **span)
        say("a submission was cut off before the scheduler took it")
        return
    job = jobs[-1]
    journal.note(run_dir, "submitted", job_id=job.id, cluster="", found=BY_NAME, **span)
    _read_back(run_dir, job)
    say(f"a submission was cut off; its job {job} was found by its name")


def _adopt_driver(run_dir: Path, event: Mapping[str, Any], span: Mapping[str, Any], say: Say) -> None:
    """Journal a driver here of which the journal has the intent alone, whether it lives or is dead."""
    job = _driver_of(event)
    lives = Life.DEAD if job.id in read_journal(run_dir).buried else life(run_dir, job)
    if lives is Life.UNKNOWN:
        raise elsewhere(run_dir, job.cluster)
    journal.note(run_dir, "submitted", job_id=job.id, cluster=job.cluster, found=BY_LOCK, **span)
    _read_back(run_dir, job)
    stands = "it runs" if lives is Life.ALIVE else "it has ended"
    say(f"the journal had lost process {job.id} on {job.cluster}: {stands}")


def _driver_of(event: Mapping[str, Any]) -> JobId:
    """Return the driver here of an intent."""
    return JobId(str(event["job_id"]), str(event.get("cluster") or ""))


def _read_back(run_dir: Path, job: JobId) -> None:
    """See that the journal has a job now: who does not would submit its points twice.

    Raises
    ------
    JobkitError
        If it does not.
    """
    if all(submission.job.id != job.id for submission in read_journal(run_dir).submissions):
        raise JobkitError(
            f"{run_dir / JOURNAL_FILE}: job {job} was written there, but cannot be read back",
            hint="nothing was submitted; look at the last lines of that file",
            exit_code=ExitCode.REFUSED,
        )


def refuse_stray_jobs(run_dir: Path, scheduler: Scheduler) -> None:
    """Refuse to submit while a job of the run is in the queue of which its points are not known.

    Raises
    ------
    Strays
        Exit code 3, for such a job.
    JobkitError
        Exit code 3 if the scheduler does not answer.
    """
    jobs = stray_jobs(run_dir, scheduler)
    if not jobs:
        return
    argv = " ".join(scheduler.cancel_argv(jobs[0]))
    raise StrayJobs(
        f"{scheduler.NAME} job {', '.join(map(str, jobs))} belongs to this run, but {run_dir / JOURNAL_FILE} "
        "does not record what it runs: a line of the journal is lost",
        hint=f"wait until that job has ended, or end it ({argv}); then run the same command again",
        exit_code=ExitCode.REFUSED,
    )


def stray_jobs(run_dir: Path, scheduler: Scheduler) -> list[JobId]:
    """Return the jobs of a run that the queue holds, or the driver that lives, unknown to the journal.

    Raises
    ------
    JobkitError
        Exit code 3 if the scheduler does not answer.
    """
    if not scheduler.RUNS_HERE:
        return _by_name(scheduler, run_dir)
    driver = last_driver(run_dir) if is_held(run_dir) else None
    known = {submission.job.id for submission in read_journal(run_dir).submissions}
    return [JobId(driver.job_id, driver.host)] if driver and driver.job_id not in known else []


def declare_machine_gone(run_dir: Path, machine: str) -> None:
    """Journal that a machine is gone, on which drivers of a run were started: they are dead.

    Raises
    ------
    JobkitError
        If none was, or one lives.
    """
    journal_ = read_journal(run_dir)
    jobs = [submission.job for submission in journal_.submissions if runs_here(submission.scheduler)]
    event = journal_.unanswered
    if event and runs_here(str(event.get("scheduler"))) and event.get("job_id"):
        jobs.append(_driver_of(event))
    there = [job for job in jobs if job.cluster == machine]
    if not there:
        names = ", ".join(sorted({job.cluster for job in jobs} - {""})) or "no machine"
        raise JobkitError(
            f"--machine-gone {machine}: this run was not started there",
            hint=f"it was started on {names}",
        )
    if any(life(run_dir, job) is Life.ALIVE for job in there):
        raise JobkitError(
            f"--machine-gone {machine}: a process there still works on this run: "
            f"{run_dir / DRIVER_LOCK} is locked",
            hint=f"jobkit cancel {shell_path(run_dir)} ends it if you run it on {machine}",
            exit_code=ExitCode.REFUSED,
        )
    journal.note(run_dir, "machine_gone", cluster=machine, job_ids=[job.id for job in there])


def _by_name(scheduler: Scheduler, run_dir: Path, since: datetime | None = None) -> list[JobId]:
    """Return the jobs of the run's name that the journal does not know, the one of most tasks last.

    Parameters
    ----------
    since
        Jobs that have ended count too, if they were submitted later than that; ``None`` for none.
    """
    name = run_id_of(run_dir, read_points(run_dir)[0]) or run_dir.name
    begin = (since or datetime.now(UTC)).astimezone()
    queue, accounting = scheduler.search_argvs(name, begin.strftime("%Y-%m-%dT%H:%M:%S"))
    if not queue:
        return []
    env = {**os.environ, **scheduler.ENVIRONMENT}
    queued = scheduler.parse_queue(shell.run(queue, env=env, timeout_s=TIMEOUT_S))
    if queued is None:
        cut_off = "and a submission of this run was cut off"
        so = cut_off if since else "so jobkit does not know which jobs of this run it has"
        hint = f"try again when {scheduler.TITLE} answers"
        raise JobkitError(f"{scheduler.NAME} does not answer, {so}", hint=hint, exit_code=ExitCode.REFUSED)
    answer = shell.run(accounting, env=env, timeout_s=TIMEOUT_S) if since else None
    ended = (scheduler.parse_accounting(answer) if answer else None) or ()
    tasks = {(row.job_id, row.task) for row in queued if row.name == name}
    tasks |= {(row.job_id, row.task) for row in ended if row.name == name}
    known = {submission.job.id for submission in read_journal(run_dir).submissions}
    sizes = Counter(job for job, _ in tasks if job not in known)
    return [JobId(job) for job in sorted(sizes, key=lambda job: (sizes[job], int(job)))]
