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
from datetime import UTC, datetime
from pathlib import Path

from jobkit import records, shell
from jobkit.schedulers.base import Accounted, JobId, Queued, Scheduler, State

TIMEOUT_S = 60.0
"""squeue gives a dead controller up after 18 s (measured, Slurm 22.05.8)."""


def ask_queue(scheduler: Scheduler, jobs: tuple[JobId, ...], run: Path) -> tuple[Queued, ...] | None:
    """Return the tasks of these jobs that are still in the queue.

    Parameters
    ----------
    run
        The run folder, whose ``accounting.jsonl`` keeps the evidence.

    Returns
    -------
    tuple of Queued, or None
        Empty where nothing is left; ``None`` where the queue did not answer: unknown, not gone.
    """
    if not jobs:
        return ()
    answer = _run(scheduler, scheduler.queue_argv(jobs))
    told = scheduler.parse_queue(answer)
    ids = {job.id for job in jobs}
    tasks = None if told is None else tuple(task for task in told if task.job_id in ids)
    if tasks is None or any(task.state is State.ERROR for task in tasks):
        _keep(run, "queue", scheduler.NAME, answer)
    return tasks


def ask_accounting(
    scheduler: Scheduler, jobs: tuple[JobId, ...], since: str, name: str, run: Path
) -> tuple[Accounted, ...] | None:
    """Return what the accounting knows of the tasks of these jobs.

    Parameters
    ----------
    since
        Local ISO time of the first submission, ``2026-01-02T03:04:05``.
    name
        The job name that the jobs share: the run id.
    run
        The run folder, whose ``accounting.jsonl`` keeps the answer.

    Returns
    -------
    tuple of Accounted, or None
        A task that is missing is not known yet; ``None`` where the accounting did not answer.
    """
    argv = scheduler.accounting_argv(jobs, since, name) if jobs else ()
    if not argv:
        return ()
    answer = _run(scheduler, argv)
    _keep(run, "accounting", scheduler.NAME, answer)
    told = scheduler.parse_accounting(answer)
    ids = {job.id for job in jobs}
    return None if told is None else tuple(task for task in told if task.job_id in ids)


def _run(scheduler: Scheduler, argv: tuple[str, ...]) -> shell.Completed:
    return shell.run(argv, env={**os.environ, **scheduler.ENVIRONMENT}, timeout_s=TIMEOUT_S)


def _keep(run: Path, kind: str, scheduler: str, answer: shell.Completed) -> None:
    """Append an answer, unless the last one kept is the same: polling must not swell the file."""
    said = {
        "kind": kind,
        "scheduler": scheduler,
        "argv": list(answer.argv),
        "status": answer.status,
        "stdout": answer.stdout,
        "stderr": answer.stderr,
    }
    path = run / records.ACCOUNTING_FILE
    if _last_said(path) == said:
        return
    now = datetime.now(UTC).isoformat(timespec="seconds")
    records.append_line(path, json.dumps({"at": now, **said}, ensure_ascii=False))


def _last_said(path: Path) -> dict[str, object] | None:
    """Return the last answer in the file without its time, ``None`` where there is none to read."""
    try:
        lines = [line for _, line in records.read_lines(path)]
        last = json.loads(lines[-1])
    except (OSError, IndexError, ValueError):
        return None
    return {key: value for key, value in last.items() if key != "at"} if isinstance(last, dict) else None
