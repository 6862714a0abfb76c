"""Ask the scheduler how the tasks of a run do: one queue call and one accounting call a cycle.

Never a call a task, and never in a tight loop: controllers limit and lock out clients that do
(squeue(1), sacct(1), PERFORMANCE). A call that fails is no news, ``None``, not an error: a controller
may be away for minutes, accounting for hours, while the jobs go on.

What the scheduler said is appended raw to ``accounting.jsonl``, so that it can be read again when the
scheduler has forgotten: every answer of the accounting that differs from the one before; of the queue
only what is evidence of trouble (a call that failed, a task in error), for the rest is old at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from jobkit.core import record_files, records, shell
from jobkit.outcome.accounts import CHANGES, FOUND, GONE, Accounts
from jobkit.outcome.submissions import Task
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.types import Accounted, JobId, Queued, State
from jobkit.status.recent import recently

TIMEOUT_S = 60.0
"""squeue gives a dead controller up after 18 s (measured, Slurm 22.05.8)."""


@dataclass(slots=True)
class Asking:
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
    asking: Asking | None = None,
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
    asking = asking or Asking()
    argv = scheduler.queue_argv(jobs, _owners(runs))
    answer = recently(argv, lambda: _run(scheduler, argv), asking.max_age_s)
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
    asking: Asking | None = None,
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
    asking = asking or Asking()
    answer = recently(argv, lambda: _run(scheduler, argv), asking.max_age_s)
    _keep(runs, _said("accounting", scheduler.NAME, answer), asking)
    told = scheduler.parse_accounting(answer)
    ids = {job.id for job in jobs}
    return None if told is None else tuple(task for task in told if task.job_id in ids)


def note_gone(scheduler: str, missed: AbstractSet[Task], known: Accounts, run: Path, asking: Asking) -> None:
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
    asking: Asking,
    *,
    repeat: bool = False,
) -> None:
    """Append an answer, unless the last one kept is the same: polling must not swell the file."""
    line = json.dumps({"at": _now(), **said}, ensure_ascii=False)
    for run in [runs] if isinstance(runs, Path) else runs:
        path = run / records.ACCOUNTING_FILE
        if not repeat and _last_said(path) == said:
            continue
        try:
            record_files.append_line(path, line)
        except OSError:
            asking.unsaved.setdefault(run, []).append(line)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _last_said(path: Path) -> dict[str, object] | None:
    """Return the last answer in the file without its time, ``None`` where there is none to read."""
    try:
        last = json.loads(record_files.last_line(path))
    except (OSError, ValueError):
        return None
    return {key: value for key, value in last.items() if key != "at"} if isinstance(last, dict) else None
