"""Why a task waits on Grid Engine, and what a person can do about it.

Flags as in sge_status(5); qmod(1) clears an error, qrls(1) releases a hold.
"""

from __future__ import annotations

import shlex

from jobkit.core.shell import Completed
from jobkit.core.units import format_list
from jobkit.schedulers.parsing import task_ranges
from jobkit.schedulers.sge.survey import shut_instances
from jobkit.schedulers.types import JobId, Queued, Remedy, State

_MOST = 3


def shut_argv() -> tuple[str, ...]:
    """Return the command that lists the queue instances with their states (qstat(1), -f)."""
    return ("qstat", "-f")


def shut_reason(answer: Completed) -> str:
    """Return which queue instances are in error, if no instance of the cluster starts a job; else nothing.

    An instance in error stays so until an administrator clears it (qmod(1), -cq), and the queue lists its
    jobs like any that wait (measured, 8.1.9).
    """
    shut = shut_instances(answer.stdout if answer.ok else "")
    names = [name for name, why in (shut or {}).items() if "in error" in why]
    if not names:
        return ""
    others = len(shut or {}) - len(names)
    more = f", and the other {others} cannot start a job" if others else ""
    queues = shlex.join(["qmod", "-cq", *names]) if len(names) <= _MOST else "qmod -cq '*'"
    listed = format_list(names, _MOST)
    return f"no queue can start a job: {listed} in error{more}; an administrator clears it: {queues}"


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
