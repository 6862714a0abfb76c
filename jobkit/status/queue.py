"""One queue call and one accounting call for all runs, shared between watchers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from jobkit.core import files, shell
from jobkit.core.errors import JobkitError
from jobkit.core.files import exclusive_lock
from jobkit.core.json_codec import from_json, to_json
from jobkit.core.layout import ACCOUNTING_FILE
from jobkit.core.paths import cache_dir
from jobkit.core.shell import Completed
from jobkit.outcome.accounting import CHANGES, FOUND, GONE, Accounts, Answer, parse_answer
from jobkit.outcome.journal import Task
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import SCHEDULERS
from jobkit.schedulers.types import Accounted, JobId, Queued, State

FOLDER = "answers"


def cached_answer(argv: tuple[str, ...], ask: Callable[[], Completed], max_age_s: float) -> Completed:
    """Return a command's answer, or the one that another process got if that is young enough.

    Two terminals that watch the same run then cost the controller one call, not two.

    Parameters
    ----------
    argv
        The command.
    ask
        Runs it.
    max_age_s
        How old an answer may be; 0 always runs the command.
    """
    if max_age_s <= 0:
        return ask()
    path = cache_dir() / FOLDER / f"{_key(argv)}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with exclusive_lock(path.with_suffix(".lock"), lambda: None):
            return _young(path, max_age_s) or _kept(path, ask())
    except OSError:  # no place to keep it: every process asks for itself
        return ask()


def _key(argv: tuple[str, ...]) -> str:
    """Return a name for a command on a cluster: two clusters may share a home, and use the same job ids."""
    patterns = [scheduler.CLUSTER_VARIABLES for scheduler in SCHEDULERS.values()]
    cluster = {
        name: value for name, value in os.environ.items() if any(pattern.match(name) for pattern in patterns)
    }
    identity = [platform.node(), shutil.which(argv[0]), sorted(cluster.items()), argv]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]


def _young(path: Path, max_age_s: float) -> Completed | None:
    with contextlib.suppress(OSError, ValueError, JobkitError):
        if 0 <= time.time() - path.stat().st_mtime < max_age_s:
            return from_json(Completed, path.read_text(encoding="utf-8"), where=str(path))
    return None


def _kept(path: Path, answer: Completed) -> Completed:
    path.write_text(to_json(answer), encoding="utf-8")
    return answer


TIMEOUT_S = 60.0
"""squeue gives a dead controller up after 18 s (measured, Slurm 22.05.8)."""


@dataclass(slots=True)
class Query:
    """How the schedulers are asked, and what they answered.

    Attributes
    ----------
    max_age_s
        How old an answer may be that another process on this machine got.
    answers
        By run folder, the oldest first. They are kept here because ``accounting.jsonl`` may belong to
        another user, and so that it need not be read again.
    """

    max_age_s: float = 0
    answers: dict[Path, list[Answer]] = field(default_factory=dict)


def ask_queue(
    scheduler: Scheduler, jobs: tuple[JobId, ...], runs: Sequence[Path], query: Query | None = None
) -> tuple[Queued, ...] | None:
    """Return the tasks of these jobs that are still in the queue.

    Parameters
    ----------
    runs
        The run folders of the jobs, whose ``accounting.jsonl`` keeps the evidence.
    query
        Gets the answer if it is evidence.

    Returns
    -------
    tuple of Queued, or None
        Empty if nothing is left; ``None`` if the queue did not answer: unknown, not gone.
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
    return tasks and _with_shut(scheduler, tasks)


SHUT_AGE_S = 60.0
"""How old the answer may be whether the cluster can start a job."""


def _with_shut(scheduler: Scheduler, tasks: tuple[Queued, ...]) -> tuple[Queued, ...]:
    """Return tasks of which none has begun with the reason why none can begin, if that is so."""
    waits = State.PENDING in {task.state for task in tasks} <= {State.PENDING, State.HELD}
    argv = scheduler.shut_argv() if waits else ()
    why = scheduler.shut_reason(_ask("shut", scheduler, argv, Query(SHUT_AGE_S)).completed) if argv else ""
    return tuple(
        replace(task, reason=f"qw: {why}") if why and task.state is State.PENDING else task for task in tasks
    )


def ask_accounting(
    scheduler: Scheduler,
    jobs: tuple[JobId, ...],
    since: str,
    name: str,
    runs: Sequence[Path],
    query: Query | None = None,
) -> tuple[Accounted, ...] | None:
    """Return what the accounting knows of the tasks of these jobs.

    Parameters
    ----------
    since
        Local ISO time of the first submission, ``2026-01-02T03:04:05``.
    name
        The job name that the jobs share: the run id; empty for jobs of several runs.
    runs, query
        As for `ask_queue`.

    Returns
    -------
    tuple of Accounted, or None
        A task that is missing is not known yet; ``None`` if the accounting did not answer.
    """
    argv = scheduler.accounting_argv(jobs, since, name, _owners(runs)) if jobs else ()
    if not argv:
        return ()
    query = query or Query()
    answer = _ask("accounting", scheduler, argv, query)
    _keep(runs, answer, query)
    parsed = scheduler.parse_accounting(answer.completed)
    ids = {job.id for job in jobs}
    return None if parsed is None else tuple(task for task in parsed if task.job_id in ids)


def log_missing_tasks(
    scheduler: str, missed: AbstractSet[Task], known: Accounts, run: Path, query: Query
) -> None:
    """Note which tasks neither queue nor accounting knows, so that it is known later for how long.

    Parameters
    ----------
    missed
        The tasks, of this scheduler.
    known
        What the run knew before: tasks that are gone, and those of the last line, need no further line.
    """
    before = known.missed.get(scheduler, frozenset())
    if missed == before and (missed <= known.gone.keys() or not known.due(scheduler, _now())):
        return
    words = sorted(f"{task.job_id}.{task.task}" for task in missed - before)
    words += sorted(f"{FOUND}{task.job_id}.{task.task}" for task in before - missed)
    answer = Answer(_now(), GONE, scheduler, Completed(CHANGES, 0, " ".join(words), ""))
    _keep([run], answer, query, repeat=True)


def local_time(at: str) -> str:
    """Return a moment, UTC, as schedulers take it: local ISO time without a zone."""
    return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%dT%H:%M:%S")


def _owners(runs: Sequence[Path]) -> tuple[str, ...]:
    """Return the owners of the run folders; empty (the current user) if a uid has no name on this host."""
    try:
        return tuple(sorted({run.owner() for run in runs}))
    except (OSError, KeyError):
        return ()


def _ask(kind: str, scheduler: Scheduler, argv: tuple[str, ...], query: Query) -> Answer:
    def run() -> Completed:
        return shell.run(argv, env={**os.environ, **scheduler.ENVIRONMENT}, timeout_s=TIMEOUT_S)

    return Answer(_now(), kind, scheduler.NAME, cached_answer(argv, run, query.max_age_s))


def _keep(runs: Sequence[Path], answer: Answer, query: Query, *, repeat: bool = False) -> None:
    """Append an answer, unless the last one is the same: polling must not let the file grow."""
    for run in runs:
        last = None if repeat else _last_answer(run / ACCOUNTING_FILE)
        if last is not None and replace(last, at=answer.at) == answer:
            query.answers.setdefault(run, []).append(last)
            continue
        query.answers.setdefault(run, []).append(answer)
        with contextlib.suppress(OSError):
            files.append_line(run / ACCOUNTING_FILE, answer.as_line())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _last_answer(path: Path) -> Answer | None:
    """Return the last answer in the file; ``None`` if there is none to read."""
    try:
        return parse_answer(files.last_line(path), str(path))
    except (OSError, JobkitError):
        return None
