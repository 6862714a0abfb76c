"""Read where runs stand: their files, what the queue holds, and what the accounting reports."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobkit.core import files, shell
from jobkit.core.errors import JobkitError, UnknownError
from jobkit.core.files import exclusive_lock
from jobkit.core.json_codec import from_dict, from_json, to_json
from jobkit.core.layout import ACCOUNTING_FILE, POINTS_FILE
from jobkit.core.paths import cache_dir, user_name
from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.core.units import format_count, format_moment, moment
from jobkit.runs import journal
from jobkit.runs.journal import RETURNING, Accounts, JobTask, Role, SchedulerAnswer, Submission
from jobkit.runs.results import not_started, read_result, read_run
from jobkit.runs.status import (
    PointResult,
    PointStatus,
    RunStatus,
    kind_of,
    run_id_of,
    standing_of,
)
from jobkit.schedulers.local import WHOLE
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import SCHEDULERS, by_name, query_environment
from jobkit.schedulers.types import Accounted, JobId, Queued, SchedulerId, State

FOLDER = "answers"
SHUT_AGE_S = 60.0  # maximum age of the answer whether the cluster can start a job


def cached_answer(argv: tuple[str, ...], ask: Callable[[], Completed], max_age_s: float) -> Completed:
    """Return a command's answer, or the one that another process got within ``max_age_s``.

    Two terminals that watch the same run then cost the controller one call, not two.
    """
    if max_age_s <= 0:
        return ask()
    # Two clusters may share a home, and use the same job ids.
    patterns = [scheduler.CLUSTER_VARIABLES for scheduler in SCHEDULERS.values()]
    cluster = [pair for pair in os.environ.items() if any(pattern.fullmatch(pair[0]) for pattern in patterns)]
    identity = json.dumps([platform.node(), shutil.which(argv[0]), sorted(cluster), argv])
    path = cache_dir() / FOLDER / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with exclusive_lock(path.with_suffix(".lock"), lambda: None):
            with contextlib.suppress(OSError, ValueError, JobkitError):
                if 0 <= time.time() - path.stat().st_mtime < max_age_s:
                    return from_json(Completed, path.read_text(encoding="utf-8"), where=str(path))
            answer = ask()
            path.write_text(to_json(answer), encoding="utf-8")
            return answer
    except OSError:  # no place to keep it: every process asks for itself
        return ask()


IDENTITIES: dict[tuple[object, ...], SchedulerId] = {}  # by question and environment: `watch` asks once


def scheduler_id(scheduler: Scheduler) -> SchedulerId | None:
    """Return the cluster that this shell talks to, asked once a process; ``None`` if that is not known."""
    env, argv = query_environment(scheduler), scheduler.identity_argv()
    key = (argv, *sorted(env.items()))
    if argv and key not in IDENTITIES:
        if (answer := scheduler.parse_identity(shell.run(argv, env=env, timeout_s=TIMEOUT_S))) is None:
            return None
        chosen = {name: scheduler.CLUSTER_VARIABLES.fullmatch(name) for name in env}
        shown = {name: env[name] for name, at in chosen.items() if at and not at.groupdict().get("secret")}
        IDENTITIES[key] = replace(answer, user=user_name(), shell=shown)
    return IDENTITIES.get(key)


def not_here(there: SchedulerId, here: SchedulerId | None) -> JobkitError:
    """Return the error about jobs on another cluster, or perhaps another, with the way there as its hint."""
    message = "it is not known whether this shell talks to the cluster of this run"
    if there.is_at(here) is False and here:
        message = f"this run is on {there.name}; this shell talks to {here.name}"
    now = here.shell if here else {}
    ways = [f"export {name}={shlex.quote(at)}" for name, at in there.shell.items() if now.get(name) != at]
    ways += [f"unset {name}" for name in now if name not in there.shell]
    ways = ways or [f"load the module of {there.name}, or log in there ({', '.join(there.controllers)})"]
    hint = f"{'; '.join(ways)}; then the same command"
    return UnknownError(message, hint=hint)


TIMEOUT_S = 60.0  # squeue gives a dead controller up after 18 s (measured, Slurm 22.05.8)


@dataclass(slots=True)
class Query:
    """How the schedulers are asked, and what they answered."""

    max_age_s: float = 0  # how old an answer may be that another process on this machine got
    # by run folder, the oldest first; ``accounting.jsonl`` may belong to another user
    answers: dict[Path, list[SchedulerAnswer]] = field(default_factory=dict)


def ask_queue(
    scheduler: Scheduler, jobs: tuple[JobId, ...], runs: Sequence[Path], query: Query | None = None
) -> tuple[Queued, ...] | None:
    """Return the tasks of these jobs in the queue; ``None`` if it did not answer: unknown, not gone.

    ``accounting.jsonl`` of the run folders, and ``query``, get the answer if it is evidence.
    """
    if not jobs:
        return ()
    query = query or Query()
    answer = _ask("queue", scheduler, scheduler.queue_argv(jobs, _owners(runs)), query)
    parsed = scheduler.parse_queue(answer.completed)
    ids = {job.id for job in jobs}
    tasks = None if parsed is None else tuple(task for task in parsed if task.job_id in ids)
    if tasks is None or any(task.state is State.ERROR for task in tasks):
        _keep(runs, answer, query)
    # If no task has begun, the cluster may report why none can begin.
    waits = State.PENDING in {task.state for task in tasks or ()} <= {State.PENDING, State.HELD}
    argv = scheduler.shut_argv() if waits else ()
    shut = scheduler.shut_reason(_ask("shut", scheduler, argv, Query(SHUT_AGE_S)).completed) if argv else ""
    return tasks and tuple(
        replace(task, reason=f"qw: {shut}") if shut and task.state is State.PENDING else task
        for task in tasks
    )


def ask_accounting(
    scheduler: Scheduler,
    jobs: tuple[JobId, ...],
    since: str,
    name: str,
    runs: Sequence[Path],
    query: Query | None = None,
) -> tuple[Accounted, ...] | None:
    """Return what the accounting knows of the tasks of these jobs; ``None`` if it did not answer.

    A task that is missing is not known yet. ``since`` is local ISO time of the first submission,
    ``2026-01-02T03:04:05``; ``name`` the run id, empty for jobs of several runs; the rest as in `ask_queue`.
    """
    argv = scheduler.accounting_argv(jobs, since, name, _owners(runs)) if jobs else ()
    if not argv:
        return ()
    query = query or Query()
    answer = _ask("accounting", scheduler, argv, query)
    parsed = scheduler.parse_accounting(answer.completed)
    if more := scheduler.status_argv(jobs, parsed or ()):
        known = _ask("accounting", scheduler, more, query).completed
        if known.stdout:
            whole = replace(known, argv=(*argv, *more), stdout=f"{known.stdout}\n{answer.completed.stdout}")
            answer = replace(answer, completed=replace(whole, status=answer.completed.status))
            parsed = scheduler.parse_accounting(answer.completed)
    _keep(runs, answer, query)
    ids = {job.id for job in jobs}
    return None if parsed is None else tuple(task for task in parsed if task.job_id in ids)


def local_time(at: str) -> str:
    """Return a moment, UTC, as schedulers take it: local ISO time without a zone."""
    return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%dT%H:%M:%S")


def _owners(runs: Sequence[Path]) -> tuple[str, ...]:
    """Return the owners of the run folders; empty (the current user) if a uid has no name on this host."""
    try:
        return tuple(sorted({run.owner() for run in runs}))
    except (OSError, KeyError):
        return ()


def _ask(kind: str, scheduler: Scheduler, argv: tuple[str, ...], query: Query) -> SchedulerAnswer:
    def run() -> Completed:
        return shell.run(argv, env=query_environment(scheduler), timeout_s=TIMEOUT_S)

    return SchedulerAnswer(_now(), kind, scheduler.NAME, cached_answer(argv, run, query.max_age_s))


def _keep(runs: Sequence[Path], answer: SchedulerAnswer, query: Query, *, repeat: bool = False) -> None:
    """Append an answer, unless it repeats the last one: polling must not let the file grow."""
    for run in runs:
        last = None
        with contextlib.suppress(OSError, JobkitError):
            path = run / ACCOUNTING_FILE
            last = None if repeat else journal.parse_answer(files.last_line(path), str(path))
        if last is not None and replace(last, at=answer.at) == answer:
            query.answers.setdefault(run, []).append(last)
            continue
        query.answers.setdefault(run, []).append(answer)
        with contextlib.suppress(OSError):
            files.append_line(run / ACCOUNTING_FILE, answer.as_line())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


MAYBE = frozenset({Outcome.CANCELLED})
"""sacct reports it, for 5 s, of a task that began just before others that waited with it were cancelled
(measured: their common row still names it, and its own is not there yet)."""


@dataclass(slots=True)
class OpenRun:
    """A run while the schedulers are asked about it."""

    folder: Path
    results: dict[int, PointResult]  # by the point's index
    accounts: Accounts
    notes: list[str]
    open: set[JobTask] = field(default_factory=set)  # the scheduler may know more of them
    queued: dict[JobTask, Queued] = field(default_factory=dict)  # what the queue holds
    # the schedulers that did not answer, or that are of another cluster, and why
    silent: dict[str, JobkitError] = field(default_factory=dict)
    # jobs whose numbers other jobs have here: the scheduler and the id
    foreign: set[tuple[str, str]] = field(default_factory=set)

    @property
    def name(self) -> str:
        """The run id, which is the name of its jobs."""
        points = [result.point for result in self.results.values()]
        return run_id_of(self.folder, points) or self.folder.name

    def find_jobs(self, scheduler: str) -> dict[str, Submission]:
        """Return the jobs of a scheduler that have open tasks, by id."""
        ids = {task.job_id for task in self.open if task.scheduler == scheduler}
        jobs = (job for job in self.accounts.journal.submissions if job.scheduler == scheduler)
        return {job.job.id: job for job in jobs if job.job.id in ids}


def open_run(folder: Path) -> OpenRun:
    """Read a run folder, and find the tasks that the scheduler may know more of."""
    # Before the points are read, because a job may write them meanwhile.
    unplanned = kind_of(folder).unplanned(folder)
    read = read_run(folder)
    if not read.points and not unplanned:
        raise JobkitError(f"{folder}: not a run folder", hint="jobkit status lists the runs")
    results = {result.point.index: result for result in read.points}
    run = OpenRun(folder, results, read.accounts, list(read.notes))
    sweeps = (job for job in run.accounts.journal.submissions if job.role is Role.POINTS)
    sent = {index for sweep in sweeps for _, indices in sweep.tasks() for index in indices}
    if lost := sent - results.keys() - run.accounts.journal.replaced:
        missing = format_count(len(lost), "point")
        run.notes.append(f"{folder / POINTS_FILE}: {missing} of the journal not in it")
    run.open = {task for task, indices in _tasks(run) if _is_open(run, task, indices)}
    run.open |= {task for task, end in follower_ends(run).items() if not end}
    return run


def _tasks(run: OpenRun) -> Iterator[tuple[JobTask, tuple[int, ...]]]:
    """Yield the tasks with the points of each, trials that the job added itself included."""
    added: dict[JobTask, tuple[int, ...]] = {}
    for index in run.results.keys() - run.accounts.submitted.keys():
        if task := task_of(run, index):
            added[task] = (*added.get(task, ()), index)
    for submission in run.accounts.journal.submissions:
        for task, indices in submission.tasks():
            yield task, indices + added.get(task, ())


def task_of(run: OpenRun, index: int) -> JobTask | None:
    """Return the task that a point was last submitted as; for a further trial the task that added it."""
    if index in run.accounts.submitted:
        return run.accounts.submitted[index]
    finds = (job for job in run.accounts.journal.submissions if job.role in journal.SEARCHES)
    made = run.results[index].latest.task
    return made if any(made == task for find in finds for task, _ in find.tasks()) else None


def _is_open(run: OpenRun, task: JobTask, indices: tuple[int, ...]) -> bool:
    """Return whether the scheduler may know more of a task: no job that follows ends in a file."""
    accounts = run.accounts
    results = [run.results[index] for index in indices if index in run.results]
    if not results:
        return task not in accounts.ended | accounts.journal.cancelled.keys()
    over = any(account.ended and not account.never_began for account in accounts.runs.get(task, ()))
    if task not in accounts.gone and any(_unexplained(result, over=over) for result in results):
        return True
    unsure: frozenset[Outcome] = frozenset()  # outcomes that may not be the last of the task
    if task not in accounts.gone:
        waited = any(account.never_began for account in accounts.runs.get(task, ()))
        unsure = RETURNING | MAYBE if waited and task not in accounts.journal.cancelled else RETURNING
    latest = (result.latest for result in results if task_of(run, result.point.index) == task)
    return any(
        tried.outcome is None or (tried.provisional and not over) or tried.outcome in unsure
        for tried in latest
    )


def _unexplained(result: PointResult, *, over: bool = False) -> bool:
    """Return whether an earlier try of a point ended without an explanation, which the accounting may have.

    Its task ran again since, or the scheduler began it again; ``over``: the accounting has no more of it.
    """
    return any(
        tried.outcome is Outcome.LOST or (tried.provisional and not over and tried.task == result.latest.task)
        for tried in result.all_tries[1:]
        if tried.account is None
    )


def ask_about(scheduler: Scheduler, runs: Sequence[OpenRun], max_age_s: float) -> None:
    """Ask a scheduler about the open tasks of all runs, and add what it answers to the runs."""
    name = scheduler.NAME
    jobs = tuple(dict.fromkeys(job.job for run in runs for job in run.find_jobs(name).values()))
    if not jobs:
        return
    query = Query(max_age_s)
    waited = (job for run in runs for sent in run.find_jobs(name).values() for job in sent.waits)
    asked = tuple(dict.fromkeys((*jobs, *waited)))
    tasks = None if scheduler.RUNS_HERE else ask_queue(scheduler, asked, [run.folder for run in runs], query)
    recorded = any(job.scheduler_id for run in runs for job in run.find_jobs(name).values())
    here = scheduler_id(scheduler) if recorded and tasks is not None else None
    for run in runs:
        held = _drivers(run, name) if scheduler.RUNS_HERE else tasks
        if held is None:
            run.silent[name] = JobkitError(f"{name} does not answer")
        else:
            _take(run, name, held, here)
    missed = [run for run in runs if _missed(run, name)]
    accounts: tuple[Accounted, ...] | None = ()
    if missed:
        jobs = tuple(dict.fromkeys(job.job for run in missed for job in run.find_jobs(name).values()))
        since = local_time(min(job.at for run in missed for job in run.accounts.journal.submissions))
        of = missed[0].name if len(missed) == 1 else ""
        accounts = ask_accounting(scheduler, jobs, since, of, [run.folder for run in missed], query)
    for run in runs:
        sent = run.find_jobs(name)
        own = [one for one in accounts or () if (job := sent.get(one.job_id)) and job.owns(one, run.name)]
        _take_alive(run, name, own)
        _doubt(run, name, own, [one.job_id for one in accounts or ()], here)
        # Some login nodes can never ask the accounting.
        answered = any(one.kind == "accounting" and one.completed.ok for one in run.accounts.answers)
        if name not in run.silent and (accounts is not None or not answered):
            _note_missing(run, name, own, query)
        # The open points are judged again; their tries are read again, because a file may have come home.
        known = [*run.accounts.answers, *query.answers.get(run.folder, [])]
        run.accounts = journal.join_answers(run.accounts.journal, known, name=run.accounts.name)
        for index, result in run.results.items():
            latest = result.latest
            unsure = latest.outcome in {None, *RETURNING, *MAYBE} or latest.provisional
            if unsure or _unexplained(result):
                run.results[index] = read_result(run.folder, result.point, run.accounts, [])


def _drivers(run: OpenRun, scheduler: str) -> tuple[Queued, ...] | None:
    """Return the living drivers of a run; ``None`` if that is not known of one of them."""
    from jobkit.runs.driver_lock import Life, life  # here: few runs have a driver that may live

    buried = run.accounts.journal.buried
    jobs = (job.job for job in run.find_jobs(scheduler).values() if job.job.id not in buried)
    lives = {job.id: life(run.folder, job) for job in jobs}
    if Life.UNKNOWN in lives.values():
        return None
    alive = (job for job, state in lives.items() if state is Life.ALIVE)
    return tuple(Queued(job_id=job, task=WHOLE, state=State.RUNNING) for job in alive)


def _take(run: OpenRun, scheduler: str, tasks: Iterable[Queued], here: SchedulerId | None) -> None:
    """Add what the queue of the cluster ``here`` holds of a run; another job may have only got its number."""
    for sent in run.find_jobs(scheduler).values():
        if sent.scheduler_id and sent.scheduler_id.is_at(here) is False:
            run.silent[scheduler] = not_here(sent.scheduler_id, here)
            return
    jobs = {job.job.id: job for job in run.accounts.journal.submissions if job.scheduler == scheduler}
    waited = {job.id for sent in run.find_jobs(scheduler).values() for job in sent.waits} - jobs.keys()
    for queued in tasks:
        if queued.job_id in waited and queued.state is State.ERROR:
            why = SCHEDULERS[scheduler].explain(queued)
            run.notes.append(f"job {queued.job_id}, after which it begins, cannot end: {why}")
        if queued.job_id not in jobs:
            continue
        sent = jobs[queued.job_id]
        owned = sent.owns(queued, run.name)
        if owned is None or not (owned or sent.scheduler_id):
            run.silent[scheduler] = _another_job(scheduler, queued.job_id)
        elif not owned:
            run.foreign.add((scheduler, queued.job_id))
        elif queued.task:
            run.queued[JobTask(scheduler, queued.job_id, queued.task)] = queued
        else:  # a driver here holds all that are open
            held = (task for task in run.open if (task.scheduler, task.job_id) == (scheduler, queued.job_id))
            run.queued |= dict.fromkeys(held, queued)


def _another_job(scheduler: str, job: str) -> JobkitError:
    message = f"{scheduler} job {job} has another name, user or time than that of this run"
    return JobkitError(message, hint="log in to the cluster of the run; then the same command")


def _take_alive(run: OpenRun, scheduler: str, accounts: Iterable[Accounted]) -> None:
    """Add the tasks that the accounting alone lists as alive, unless jobkit has cancelled them.

    A task whose end slurmdbd has missed is alive to it forever: `jobkit cancel` is the way out.
    """
    last = {(account.job_id, account.task): account for account in accounts}
    for task in _missed(run, scheduler) - run.accounts.journal.cancelled.keys():
        account = last.get((task.job_id, task.task))
        # qacct's record of a run that is over and to be followed by another has a status
        if account and not account.ended and account.outcome is None and account.exit_status is None:
            state = State.RUNNING if account.node else State.PENDING
            why = f"the queue does not list it; {account.evidence}; if it no longer runs: jobkit cancel"
            run.queued[task] = Queued(
                job_id=task.job_id, task=task.task, state=state, node=account.node, reason=why, name=run.name
            )


def _doubt(
    run: OpenRun,
    scheduler: str,
    accounts: Iterable[Accounted],
    listed: Sequence[str],
    here: SchedulerId | None,
) -> None:
    """Take a scheduler as silent if a missed job, of which it knows no task, may be on another cluster.

    ``listed`` are the ids that its accounting has, as those of other jobs too.
    """
    jobs, missed = run.find_jobs(scheduler), {task.job_id for task in _missed(run, scheduler)}
    known = {account.job_id for account in accounts} | {
        task.job_id for task in run.queued if task.scheduler == scheduler
    }
    for job in missed - known:
        there = jobs[job].scheduler_id
        if there and there.is_at(here) is None:
            run.silent[scheduler] = not_here(there, here)
        elif there is None and job in listed:
            run.silent[scheduler] = _another_job(scheduler, job)


def _missed(run: OpenRun, scheduler: str) -> set[JobTask]:
    if scheduler in run.silent:
        return set()
    return {task for task in run.open if task.scheduler == scheduler and task not in run.queued}


def _note_missing(run: OpenRun, scheduler: str, accounts: Sequence[Accounted], query: Query) -> None:
    """Note the tasks that neither queue nor accounting knows; a task that is gone stays gone."""
    known = {
        JobTask(scheduler, account.job_id, account.task)
        for account in accounts
        if account.ended and account.outcome not in RETURNING and not account.never_began
    }
    gone = {task for task in run.accounts.gone if task.scheduler == scheduler and task not in run.open}
    missed, before = (_missed(run, scheduler) - known) | gone, run.accounts.missed.get(scheduler, frozenset())
    if missed == before and (missed <= run.accounts.gone.keys() or not run.accounts.due(scheduler, _now())):
        return
    words = sorted(f"{task.job_id}.{task.task}" for task in missed - before)
    words += sorted(f"{journal.FOUND}{task.job_id}.{task.task}" for task in before - missed)
    answer = SchedulerAnswer(
        _now(), journal.GONE, scheduler, Completed(journal.CHANGES, 0, " ".join(words), "")
    )
    _keep([run.folder], answer, query, repeat=True)


def follower_ends(run: OpenRun) -> dict[JobTask, str]:
    """Return how each job that waits for the points ended, in words; empty words if that is not known."""
    jobs = [job for job in run.accounts.journal.submissions if job.role is not Role.POINTS]
    last_find = next((job for job in reversed(jobs) if job.role in journal.SEARCHES), None)
    accounts = run.accounts
    ends: dict[JobTask, str] = {}
    for job in jobs:
        for task, _ in job.tasks():
            if task in accounts.ended and task not in accounts.gone:
                ends[task] = accounts.runs[task][-1].evidence or "the accounting does not report how"
            elif task in accounts.journal.cancelled:
                ends[task] = f"cancelled at {format_moment(accounts.journal.cancelled[task])}"
            elif task in accounts.gone:
                since = format_moment(accounts.gone[task])
                ends[task] = f"neither the queue nor the accounting has listed it since {since}"
            else:
                over = job is last_find and kind_of(run.folder).finished(run.folder)
                ends[task] = journal.LAST_WORDS[job.role] if over else ""
    return ends


def record_accounting(run: RunStatus) -> None:
    """Ask the accounting about all jobs of a run, once, and keep the answer in its folder."""
    for name in run.schedulers:
        jobs = tuple(submission.job for submission in run.submissions if submission.scheduler == name)
        since = local_time(min(submission.at for submission in run.submissions))
        ask_accounting(by_name(name), jobs, since, run.name, [run.folder])


def read_status(folders: Sequence[Path], *, ask: bool = True, max_age_s: float = 0) -> tuple[RunStatus, ...]:
    """Return where runs stand, without ``ask`` by files alone, else by answers of at most this age."""
    return status_of([open_run(folder) for folder in folders], ask=ask, max_age_s=max_age_s)


def status_of(runs: Sequence[OpenRun], *, ask: bool = True, max_age_s: float = 0) -> tuple[RunStatus, ...]:
    """Return where runs stand whose folders are read, as `read_status`."""
    if ask:
        asked = {task.scheduler for run in runs for task in run.open}
        for name in filter(asked.__contains__, SCHEDULERS):
            open_runs = [run for run in runs if any(task.scheduler == name for task in run.open)]
            ask_about(SCHEDULERS[name], open_runs, max_age_s)
    now = datetime.now(UTC)
    return tuple(_run_status(run, now) for run in runs)


def answered(run: RunStatus) -> Mapping[str, object]:
    """Return, as JSON takes it, what of a run's state no file of its folder has."""
    zoned = ((task, one, str(moment(one.start_at) or "")) for task, one in run.queued.items())
    return {
        "queued": [(astuple(task), replace(one, submitted_at=None, start_at=at)) for task, one, at in zoned],
        "silent": {name: (error.message, error.hint) for name, error in run.silent.items()},
        "foreign": [*run.foreign],
        "gone": [*run.gone],
    }


def status_of_copy(folder: Path, answer: Mapping[str, Any]) -> RunStatus:
    """Return where a run stands of which the folder is a copy, by what was `answered` where the run is."""
    run = open_run(folder)
    run.queued = {JobTask(*task): from_dict(Queued, one, where=str(folder)) for task, one in answer["queued"]}
    run.silent = {
        name: UnknownError(message, hint=hint) for name, (message, hint) in answer["silent"].items()
    }
    run.foreign = {(scheduler, job) for scheduler, job in answer["foreign"]}
    (state,) = status_of([run], ask=False)
    vars(state)["gone"] = answer["gone"]  # the rows are there alone
    return state


def _run_status(run: OpenRun, now: datetime) -> RunStatus:
    done = run.accounts.journal
    tasks = {index: task_of(run, index) for index in run.results}
    points = []
    for index, result in run.results.items():
        task = tasks[index]
        queued = run.queued.get(task) if task else None
        begun = {tried.task for tried in result.all_tries}
        gone = (earlier for earlier in run.accounts.earlier.get(index, ()) if earlier not in begun)
        point = PointStatus(
            point=result.point,
            all_tries=result.all_tries,
            batches=result.batches,
            standing=standing_of(result, task, queued, run.accounts),
            task=task,
            queued=queued,
            vanished=tuple(not_started(result.point, run.accounts, earlier) for earlier in gone),
            silent=run.silent[task.scheduler].message if task and task.scheduler in run.silent else "",
            now=now,
        )
        points.append(point)
    return RunStatus(
        folder=run.folder,
        points=tuple(points),
        submissions=done.submissions,
        queued=run.queued,
        ended=run.accounts.ended | (done.cancelled.keys() - run.queued.keys()),
        ends={task: end for task, end in follower_ends(run).items() if end and task not in run.queued},
        ending=frozenset(done.cancelled.keys() & run.queued.keys()),
        silent=run.silent,
        foreign=frozenset(run.foreign),
        unanswered=done.unanswered,
        left=done.left,
        notes=tuple(run.notes),
        mine=os.access(run.folder, os.W_OK),
        now=now,
    )
