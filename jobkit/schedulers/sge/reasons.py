"""Why a task waits on Grid Engine, and what a person can do about it.

Flags as in sge_status(5); qmod(1) clears an error, qrls(1) releases a hold.
"""

from __future__ import annotations

from jobkit.schedulers.parsing import task_ranges
from jobkit.schedulers.types import JobId, Queued, Remedy, State


def explain(task: Queued) -> str:
    """Return why a task waits: Grid Engine's flags and what they mean; empty for one that runs.

    Only ``qstat -j`` shows why a task is in error (measured).
    """
    flags, _, meaning = task.reason.partition(": ")
    words = {
        State.ERROR: f"could not be started, or its script ended with 100; qstat -j {task.job_id} says why",
        State.HELD: "held, by its owner or until another job ends",
        State.PENDING: "waits for a free slot, or its turn",
    }.get(task.state, meaning)
    return f"{flags}: {words}" if flags and words else words


def remedy(job: JobId, tasks: tuple[int, ...], task: Queued) -> Remedy | None:
    """Return what a person can do for tasks that wait alike; ``None`` if they need no person.

    Both commands take ``12.3-5`` for tasks of an array (sge_types(1), job_task_list; measured).
    """
    command = {State.ERROR: ("qmod", "-cj"), State.HELD: ("qrls",)}.get(task.state)
    if command is None:
        return None
    return Remedy(argv=(*command, *(f"{job.id}.{part}" for part in task_ranges(tasks))))
