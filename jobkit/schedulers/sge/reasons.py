"""Why a task waits on Grid Engine, and what a person can do about it.

Flags as in sge_status(5); qmod(1) clears an error, qrls(1) releases a hold.
"""

from __future__ import annotations

import shlex

from jobkit.core.shell import Completed
from jobkit.core.units import format_list
from jobkit.schedulers.parsing import task_ranges
from jobkit.schedulers.sge.survey import shut_queues
from jobkit.schedulers.types import JobId, Queued, Remedy, State

_MOST = 3


def shut_argv() -> tuple[str, ...]:
    """Return the command that lists the queue instances with their states (qstat(1), -f)."""
    return ("qstat", "-f")


def shut_reason(answer: Completed) -> str:
    """Return which queues start no job, and what clears the error; nothing if none is in error.

    An instance in error stays so until an administrator clears it (qmod(1), -cq), and ``qstat`` lists its
    jobs like any that wait (measured, 8.1.9: a prolog that fails).
    """
    queues = shut_queues(answer.stdout if answer.ok else "")
    names = [name for shut in queues.values() for name, why in shut.items() if "in error" in why]
    if not names:
        return ""
    closed = format_list(list(dict.fromkeys(name.partition("@")[0] for name in names)), _MOST)
    clear = shlex.join(["qmod", "-cq", *names]) if len(names) <= _MOST else "qmod -cq '*'"
    none = (
        "no queue starts a job" if all(queues.values()) else f"waits for a free slot; {closed} starts no job"
    )
    return f"{none} until an administrator types: {clear}"


def explain(task: Queued) -> str:
    """Return why a task waits: Grid Engine's flags and what they mean; empty for one that runs.

    Only ``qstat -j`` shows why a task is in error (measured).
    """
    flags, _, meaning = task.reason.partition(": ")
    words = {
        State.ERROR: f"could not be started, or its script ended with 100; qstat -j {task.job_id} says why",
        State.HELD: "held, by its owner or until another job ends",
        State.PENDING: meaning or "waits for a free slot, or its turn",
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
