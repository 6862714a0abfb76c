"""One queue call and one accounting call for all runs, shared between watchers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from jobkit.core import files, shell
from jobkit.core.files import exclusive_lock
from jobkit.core.layout import ACCOUNTING_FILE
from jobkit.core.paths import cache_dir
from jobkit.core.shell import Completed
from jobkit.outcome.accounting import CHANGES, FOUND, GONE, Accounts
from jobkit.outcome.journal import Task
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import SCHEDULERS
from jobkit.schedulers.types import Accounted, JobId, Queued, State

FOLDER = "answers"


def cached_answer(argv: tuple[str, ...], ask: Callable[[], Completed], max_age_s: float) -> Completed:
    """Return a command's answer, the one that somebody got a moment ago where that is young enough.

    Two terminals that watch the same run then cost the controller one call, not two.

    Parameters
    ----------
    argv
        The command.
    ask
        Runs it.
    max_age_s
        How old an answer may be; 0 asks anew, always.
    """
    if max_age_s <= 0:
        return ask()
    path = cache_dir() / FOLDER / f"{_key(argv)}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with exclusive_lock(path.with_suffix(".lock"), lambda: None):
            return _young(path, argv, max_age_s) or _kept(path, ask())
    except OSError:  # no place to keep it: everybody asks for himself
        return ask()


def _key(argv: tuple[str, ...]) -> str:
    """Return a name for who is asked what: a home may be seen from two clusters, with the same job ids."""
    patterns = [scheduler.CLUSTER_VARIABLES for scheduler in SCHEDULERS.values()]
    cluster = {
        name: value for name, value in os.environ.items() if any(pattern.match(name) for pattern in patterns)
    }
    asked = [platform.node(), shutil.which(argv[0]), sorted(cluster.items()), argv]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def _young(path: Path, argv: tuple[str, ...], max_age_s: float) -> Completed | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        if 0 <= time.time() - path.stat().st_mtime < max_age_s:
            data = json.loads(path.read_text(encoding="utf-8"))
            return Completed(argv, int(data["status"]), str(data["stdout"]), str(data["stderr"]))
    return None


def _kept(path: Path, answer: Completed) -> Completed:
    data = {"status": answer.status, "stdout": answer.stdout, "stderr": answer.stderr}
    path.write_text(json.dumps(data), encoding="utf-8")
    return answer


TIMEOUT_S = 60.0
"""squeue gives a dead controller up after 18 s (measured, Slurm 22.05.8)."""


@dataclass(slots=True)
class QueryOptions:
    """How a scheduler is asked, and what could not be kept of what it said.

    Attributes
    ----------
    max_age_s
        An answer so young that somebody else got on this machine will do.
    unsaved
        Lines that could not be appended to a run's ``accounting.jsonl``: it may be somebody else's.
    """

    max_age_s: float = 0
    unsaved: dict[Path, list[str]] = field(default_factory=dict)


def ask_queue(
    scheduler: Scheduler,
    jobs: tuple[JobId, ...],
    runs: Path | Sequence[Path],
    asking: QueryOptions | None = None,
) -> tuple[Queued, ...] | None:
    """Return the tasks of these jobs that are still in the queue.

    Parameters
    ----------
    runs
        The run folders that the jobs are of, whose ``accounting.jsonl`` keeps the evidence.
    asking
        Gets what could not be kept there.

    Returns
    -------
    tuple of Queued, or None
        Empty where nothing is left; ``None`` where the queue did not answer: unknown, not gone.
    """
    if not jobs:
        return ()
    asking = asking or QueryOptions()
    argv = scheduler.queue_argv(jobs, _owners(runs))
    answer = cached_answer(argv, lambda: _run(scheduler, argv), asking.max_age_s)
    told = scheduler.parse_queue(answer)
    ids = {job.id for job in jobs}
    tasks = None if told is None else tuple(task for task in told if task.job_id in ids)
    if tasks is None or any(task.state is State.ERROR for task in tasks):
        _keep(runs, _said("queue", scheduler.NAME, answer), asking)
    return tasks


def ask_accounting(
    scheduler: Scheduler,
    jobs: tuple[JobId, ...],
    since: str,
    name: str,
    runs: Path | Sequence[Path],
    asking: QueryOptions | None = None,
) -> tuple[Accounted, ...] | None:
    """Return what the accounting knows of the tasks of these jobs.

    Parameters
    ----------
    since
        Local ISO time of the first submission, ``2026-01-02T03:04:05``.
    name
        The job name that the jobs share: the run id; empty for jobs of several runs.
    runs, asking
        As for `ask_queue`.

    Returns
    -------
    tuple of Accounted, or None
        A task that is missing is not known yet; ``None`` where the accounting did not answer.
    """
    argv = scheduler.accounting_argv(jobs, since, name, _owners(runs)) if jobs else ()
    if not argv:
        return ()
    asking = asking or QueryOptions()
    answer = cached_answer(argv, lambda: _run(scheduler, argv), asking.max_age_s)
    _keep(runs, _said("accounting", scheduler.NAME, answer), asking)
    told = scheduler.parse_accounting(answer)
    ids = {job.id for job in jobs}
    return None if told is None else tuple(task for task in told if task.job_id in ids)


def log_missing_tasks(
    scheduler: str, missed: AbstractSet[Task], known: Accounts, run: Path, asking: QueryOptions
) -> None:
    """Keep which tasks neither queue nor accounting knows, so that a later look can tell for how long.

    Parameters
    ----------
    missed
        The tasks, of this scheduler.
    known
        What the run knew before: what is gone for good, and what was missed last, need no further line.
    """
    before = known.missed.get(scheduler, frozenset())
    if missed == before and (missed <= known.gone.keys() or not known.due(scheduler, _now())):
        return
    words = sorted(f"{task.job_id}.{task.task}" for task in missed - before)
    words += sorted(f"{FOUND}{task.job_id}.{task.task}" for task in before - missed)
    said = {"kind": GONE, "scheduler": scheduler, "argv": [*CHANGES], "status": 0}
    said |= {"stdout": " ".join(words), "stderr": ""}
    _keep(run, said, asking, repeat=True)


def local_time(at: str) -> str:
    """Return a moment, UTC, as schedulers take it: local ISO time without a zone."""
    return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%dT%H:%M:%S")


def _owners(runs: Path | Sequence[Path]) -> tuple[str, ...]:
    """Return whose runs they are; nobody, that is oneself, where a folder's owner has no name here."""
    try:
        return tuple(sorted({run.owner() for run in ([runs] if isinstance(runs, Path) else runs)}))
    except (OSError, KeyError):
        return ()


def _run(scheduler: Scheduler, argv: tuple[str, ...]) -> shell.Completed:
    return shell.run(argv, env={**os.environ, **scheduler.ENVIRONMENT}, timeout_s=TIMEOUT_S)


def _said(kind: str, scheduler: str, answer: shell.Completed) -> dict[str, object]:
    return {
        "kind": kind,
        "scheduler": scheduler,
        "argv": list(answer.argv),
        "status": answer.status,
        "stdout": answer.stdout,
        "stderr": answer.stderr,
    }


def _keep(
    runs: Path | Sequence[Path],
    said: Mapping[str, object],
    asking: QueryOptions,
    *,
    repeat: bool = False,
) -> None:
    """Append an answer, unless the last one kept is the same: polling must not swell the file."""
    line = json.dumps({"at": _now(), **said}, ensure_ascii=False)
    for run in [runs] if isinstance(runs, Path) else runs:
        path = run / ACCOUNTING_FILE
        if not repeat and _last_said(path) == said:
            continue
        try:
            files.append_line(path, line)
        except OSError:
            asking.unsaved.setdefault(run, []).append(line)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _last_said(path: Path) -> dict[str, object] | None:
    """Return the last answer in the file without its time, ``None`` where there is none to read."""
    try:
        last = json.loads(files.last_line(path))
    except (OSError, ValueError):
        return None
    return {key: value for key, value in last.items() if key != "at"} if isinstance(last, dict) else None
