"""One job at the controller: check, submit, cancel, throttle; and find one whose submission had no answer."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from jobkit.core import shell
from jobkit.core.errors import (
    WOULD_REFUSE,
    BusyError,
    ExitCode,
    JobkitError,
    RefusedError,
    UnknownError,
    file_error,
)
from jobkit.core.layout import DRIVER_LOCK, JOURNAL_FILE, after_file, read_points
from jobkit.core.terminal import Say, shell_path
from jobkit.launch.job import Job
from jobkit.runs import journal
from jobkit.runs.driver_lock import Life, elsewhere, is_held, last_driver, life
from jobkit.runs.journal import STILL_AT_IT, read_journal, recorded_id
from jobkit.runs.reader import TIMEOUT_S, not_here, scheduler_id
from jobkit.runs.status import run_id_of
from jobkit.schedulers.parsing import find_job_id, refusal
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import by_name, query_environment, runs_here, submission_environment
from jobkit.schedulers.types import Array, JobId, JobRequest

PAUSES_S = (0.5, 1.5, 4.0, 8.0)  # between tries: longer and longer, as slurmctld's own clients wait


def run_while_busy(argv: Sequence[str], busy: re.Pattern[str], env: Mapping[str, str]) -> shell.Completed:
    """Return what a command answered, asked again for a while as long as the controller is busy.

    ``busy`` matches answers that mean: nothing was done, come again. ``env`` is the whole environment.
    """
    done = shell.run(argv, env=env)
    for pause_s in PAUSES_S:
        if done.ok or not busy.search(done.said):
            break
        time.sleep(pause_s)
        done = shell.run(argv, env=env)
    return done


MOST_SAID = 2000  # characters of an answer that are kept: qdel has a line for every task


FORCED = ContextVar("FORCED", default=False)
"""Whether a person submits what jobkit, but not the scheduler's own check, expects never to start."""
REFUSED = "; nothing was submitted\n  "  # between the head of a refusal and the scheduler's reasons


class SubmissionUnconfirmed(UnknownError):  # noqa: N818 - the name of what happened
    """A submission that the journal does not have: nothing may be undone or repeated."""


def check_submission(scheduler: Scheduler, request: JobRequest, script: str, array: Array) -> tuple[str, ...]:
    """Ask the scheduler whether it would accept a submission; return its forecast, in its own words."""
    env = query_environment(scheduler)
    checks = scheduler.checks(script, array, request)
    answers = [(check, run_while_busy(check.argv, scheduler.BUSY_PATTERN, env)) for check in checks]
    refused = {text: check for check, answer in answers if (text := check.refusal(request, answer))}
    own = all(script not in check.argv for check in refused.values())
    if refused and own and FORCED.get():
        return tuple(f"submitted all the same (--force): {text}" for text in refused)
    forecast = tuple(text for check, answer in answers if (text := check.outlook(request, answer)))
    if refused:
        hint = "change `resources` in the spec (or --set resources.…), or the site file"
        raise RefusedError(
            f"{scheduler.NAME} {WOULD_REFUSE}{REFUSED}"
            + "\n  ".join("\n".join([*refused, *forecast]).splitlines()),
            hint=f"{hint}{'; if you know better: --force' if own else ''}",
        )
    return forecast


def submit_array(scheduler: Scheduler, run_dir: Path, job: Job, after: Sequence[JobId] = ()) -> Job:
    """Submit one array, after others; the journal gets the intent before and the answer after."""
    argv = scheduler.submit_argv(str(run_dir / job.script), job.array, after)
    here = scheduler_id(scheduler)
    span = {**job.journalled(scheduler.NAME), **({"scheduler_id": asdict(here)} if here else {})}
    try:
        journal.note(run_dir, "submitting", argv=argv, **span)
    except OSError as error:
        fault = file_error(error)
        fault.message += "; the job was not submitted"
        raise fault from error
    done = run_while_busy(argv, scheduler.BUSY_PATTERN, submission_environment())
    try:
        accepted = _answer(scheduler, run_dir, done)
    except SubmissionUnconfirmed:
        raise  # the journal's intent stands without an answer: resume finds out
    except JobkitError:
        with contextlib.suppress(OSError):  # the intent stands without an answer: resume finds no job
            journal.note(run_dir, "refused", status=done.status, said=done.said, **span)
        raise
    try:
        journal.note(run_dir, "submitted", job_id=accepted.id, cluster=accepted.cluster, **span)
    except OSError as error:
        raise _not_journalled(error, scheduler, run_dir, accepted) from error
    return replace(job, id=accepted)


def _not_journalled(error: OSError, scheduler: Scheduler, run_dir: Path, job: JobId) -> SubmissionUnconfirmed:
    fault = file_error(error)
    run = shell_path(run_dir)
    return SubmissionUnconfirmed(
        f"{scheduler.NAME} accepted job {job}, but the journal could not be written: {fault.message}",
        hint=f"{fault.hint.partition(',')[0] or 'make it writable'}, then jobkit resume {run}: it finds the "
        "job by its name and submits what is missing",
        exit_code=ExitCode.TO_COME,
    )


def _answer(scheduler: Scheduler, run_dir: Path, done: shell.Completed) -> JobId:
    unsure = done.ok or done.status == shell.NO_ANSWER or scheduler.UNCONFIRMED_PATTERN.search(done.said)
    try:
        shell.check(done, f"{scheduler.NAME} refused the sweep", hint="see the scheduler's message above")
        return find_job_id(done.stdout, scheduler.JOB_ID_PATTERNS, done.argv[0])
    except JobkitError as error:
        error.exit_code = ExitCode.REFUSED
        if not unsure:
            raise
        command = f"jobkit resume {shell_path(run_dir)} finds the job by its name, or submits it again"
        raise SubmissionUnconfirmed(
            f"{error.message}\n  so it is not known whether {scheduler.NAME} took the job",
            hint=f"in half a minute, {command}",
        ) from error


def cancel(scheduler: Scheduler, run_dir: Path, jobs: Sequence[JobId]) -> None:
    for job in jobs:
        _change(scheduler, run_dir, job, "cancelled", scheduler.cancel_argv(job))


def cancel_tasks(
    scheduler: Scheduler, run_dir: Path, job: JobId, tasks: Sequence[int], *, whole: bool
) -> str | None:
    """Cancel tasks of a job by one command; return what the scheduler refused, in its words.

    The journal records that these tasks were cancelled, so none of them may have ended. ``whole``: they are
    the last of the job, which is then named as a whole.
    """
    argv = scheduler.cancel_argv(job, () if whole else tuple(tasks))
    return _change(scheduler, run_dir, job, "cancelled", argv, tasks=list(tasks))


def share(most: int, tasks: Sequence[int]) -> list[int]:
    """Return how many tasks of each array may run at a time, by the number of its tasks; 0 for any number.

    Each may run at least one; if there are too many arrays for that, some must wait for others.
    """
    shares = [1] * len(tasks)
    for _ in range(min(most, sum(tasks)) - len(tasks)):
        shares[max(range(len(tasks)), key=lambda place: tasks[place] / shares[place])] += 1
    more = max(0, most - sum(tasks)) // max(1, len(tasks))
    return [each + more if most else 0 for each in shares]


def throttle(scheduler: Scheduler, run_dir: Path, most: int, arrays: Mapping[JobId, int]) -> list[str]:
    """Limit how many tasks of these arrays work at a time, 0 for no limit; return what was refused."""
    refusals = []
    for job, each in zip(arrays, share(most, [*arrays.values()]), strict=True):
        argv = scheduler.throttle_argv(job, each)
        if refused := _change(scheduler, run_dir, job, "throttled", argv, throttle=each, most=most):
            refusals.append(f"{scheduler.NAME} did not change job {job}: {refused}")
    return refusals


def hold_again(scheduler: Scheduler, run_dir: Path) -> None:
    """Let jobs of other runs that begin after this one wait for all its jobs, also for those of a retry."""
    own = read_journal(run_dir)
    for folder in filter(Path.is_dir, map(Path, own.awaited)):
        for sent in read_journal(folder).submissions:
            after = dict.fromkeys([*sent.waits, *(one.job for one in own.submissions)])
            argv = scheduler.wait_argv(sent.job, [*after]) if sent.scheduler == scheduler.NAME else ()
            if sent.waits and argv and not (folder / after_file(sent.round, "txt")).exists():
                _change(scheduler, folder, sent.job, "waits", argv)


def _change(
    scheduler: Scheduler, run_dir: Path, job: JobId, event: str, argv: Sequence[str], **fields: object
) -> str | None:
    """Change a job, and journal the scheduler's message."""
    done = run_while_busy(argv, scheduler.BUSY_PATTERN, query_environment(scheduler))
    refused = refusal(done, scheduler.OVER_PATTERN)
    fields |= {"job_id": job.id, "cluster": job.cluster, "status": done.status, "said": done.said[:MOST_SAID]}
    try:
        journal.note(run_dir, event, **fields, refused=refused or "")
    except OSError as error:  # it is done: the scheduler knows, and tells every later look
        sys.stderr.write(
            f"job {job} was {event}, but the journal could not record it: {file_error(error).message}\n"
        )
    return refused


class StrayJobs(BusyError):  # noqa: N818 - the name of what was found
    """Jobs of a run in the queue, whose points the journal does not name."""


def reconcile_submission(run_dir: Path, say: Say) -> None:
    """Find the job of a submission that was never answered, by the run's name, and journal it.

    One submission at a time is under way, and every earlier job is journalled: so a job of the run's name
    with a number that the journal does not know is the one. If there are several, the journal has lost lines:
    the one of most tasks is taken if all have ended, because none can run twice.
    """
    refuse_elsewhere(run_dir)
    event = read_journal(run_dir).unanswered
    if event is None:
        return
    scheduler = by_name(str(event.get("scheduler")))
    of_span = (
        *("scheduler", "first", "last", "offset", "throttle", "role", "round", "list", "given", "only"),
        *("walltime_s", "memory_bytes", "scheduler_id", "after", "waits"),
    )
    span = {key: event[key] for key in of_span if key in event}
    if scheduler.RUNS_HERE and event.get("job_id"):
        _adopt_driver(run_dir, event, span, say)
        return
    at, now = datetime.fromisoformat(str(event["at"])), datetime.now(UTC)
    if abs(now - at) < STILL_AT_IT:
        message, hint = f"{run_dir}: a submission is under way", "try again in half a minute"
        raise BusyError(message, hint=hint)
    # The clock was set back if the submission is in the future: its true time is unknown.
    since = at - timedelta(minutes=1) if at < now else now - timedelta(days=1)
    jobs = _by_name(scheduler, run_dir, since)
    if len(jobs) > 1:
        refuse_stray_jobs(run_dir, scheduler)
    there = recorded_id(event)
    if there and not jobs and not there.is_at(here := scheduler_id(scheduler)):
        raise not_here(there, here)
    lost = "the client died before the scheduler took it: no job of this name is known"
    if not jobs:
        journal.note(run_dir, "refused", status=None, said=lost, **span)
        say("a submission was cut off before the scheduler took it")
        return
    job = jobs[-1]
    journal.note(run_dir, "submitted", job_id=job.id, cluster="", found="by its name", **span)
    _read_back(run_dir, job)
    say(f"a submission was cut off; its job {job} was found by its name")


def refuse_elsewhere(run_dir: Path) -> None:
    """Refuse to change a run with a job on another cluster than this shell talks to, ended or not."""
    done = read_journal(run_dir)
    places = [(sent.scheduler, sent.scheduler_id) for sent in done.submissions]
    if done.unanswered:
        places.append((str(done.unanswered.get("scheduler")), recorded_id(done.unanswered)))
    for name, there in places:
        if there and there.is_at(here := scheduler_id(by_name(name))) is False:
            raise not_here(there, here)


def _adopt_driver(run_dir: Path, event: Mapping[str, Any], span: Mapping[str, Any], say: Say) -> None:
    """Journal a driver here, alive or dead, whose intent alone is in the journal."""
    job = _driver_of(event)
    lives = Life.DEAD if job.id in read_journal(run_dir).buried else life(run_dir, job)
    if lives is Life.UNKNOWN:
        raise elsewhere(run_dir, job.cluster)
    journal.note(
        run_dir, "submitted", job_id=job.id, cluster=job.cluster, found="by its intent and its lock", **span
    )
    _read_back(run_dir, job)
    stands = "it runs" if lives is Life.ALIVE else "it has ended"
    say(f"the journal had lost process {job.id} on {job.cluster}: {stands}")


def _driver_of(event: Mapping[str, Any]) -> JobId:
    return JobId(str(event["job_id"]), str(event.get("cluster") or ""))


def _read_back(run_dir: Path, job: JobId) -> None:
    """Check that the journal has a job now: otherwise its points would be submitted twice."""
    if all(submission.job.id != job.id for submission in read_journal(run_dir).submissions):
        raise RefusedError(
            f"{run_dir / JOURNAL_FILE}: jobkit wrote job {job} there, but cannot read it back",
            hint="nothing was submitted; look at the last lines of that file",
        )


def refuse_stray_jobs(run_dir: Path, scheduler: Scheduler) -> None:
    """Refuse to submit while a job of the run with unknown points is in the queue."""
    jobs = stray_jobs(run_dir, scheduler)
    if not jobs:
        return
    argv = " ".join(scheduler.cancel_argv(jobs[0]))
    raise StrayJobs(
        f"{scheduler.NAME} job {', '.join(map(str, jobs))} belongs to this run, but {run_dir / JOURNAL_FILE} "
        "does not record what it runs: a line of the journal is lost",
        hint=f"wait until that job has ended, or end it ({argv}); then run the same command again",
    )


def stray_jobs(run_dir: Path, scheduler: Scheduler) -> list[JobId]:
    """Return the jobs of a run that the queue holds, or the driver that lives, unknown to the journal."""
    if not scheduler.RUNS_HERE:
        return _by_name(scheduler, run_dir)
    driver = last_driver(run_dir) if is_held(run_dir) else None
    known = {submission.job.id for submission in read_journal(run_dir).submissions}
    return [JobId(driver.job_id, driver.host)] if driver and driver.job_id not in known else []


def declare_machine_gone(run_dir: Path, machine: str) -> None:
    """Journal that a machine is gone, so that drivers of a run that were started there are dead."""
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
        raise BusyError(
            f"--machine-gone {machine}: a process there still works on this run: "
            f"{run_dir / DRIVER_LOCK} is locked",
            hint=f"jobkit cancel {shell_path(run_dir)} ends it if you run it on {machine}",
        )
    journal.note(run_dir, "machine_gone", cluster=machine, job_ids=[job.id for job in there])


def _by_name(scheduler: Scheduler, run_dir: Path, since: datetime | None = None) -> list[JobId]:
    """Return the jobs of the run's name that the journal does not know, the one of most tasks last.

    Jobs that have ended count if they were submitted later than ``since``; ``None`` for none.
    """
    name = run_id_of(run_dir, read_points(run_dir)[0]) or run_dir.name
    begin = (since or datetime.now(UTC)).astimezone()
    queue, accounting = scheduler.search_argvs(name, begin.strftime("%Y-%m-%dT%H:%M:%S"))
    if not queue:
        return []
    env = query_environment(scheduler)
    queued = scheduler.parse_queue(shell.run(queue, env=env, timeout_s=TIMEOUT_S))
    if queued is None:
        cut_off = "and a submission of this run was cut off"
        so = cut_off if since else "so jobkit does not know which jobs of this run it has"
        hint = f"try again when {scheduler.TITLE} answers"
        raise UnknownError(f"{scheduler.NAME} does not answer, {so}", hint=hint)
    answer = shell.run(accounting, env=env, timeout_s=TIMEOUT_S) if since else None
    ended = (scheduler.parse_accounting(answer) if answer else None) or ()
    tasks = {(row.job_id, row.task) for row in queued if row.name == name}
    tasks |= {(row.job_id, row.task) for row in ended if row.name == name}
    known = {submission.job.id for submission in read_journal(run_dir).submissions}
    sizes = Counter(job for job, _ in tasks if job not in known)
    return [JobId(job) for job in sorted(sizes, key=lambda job: (sizes[job], int(job)))]
