"""Slurm: sbatch, squeue, sacct, scancel; their man pages are at https://slurm.schedmd.com/.

"Measured" is Slurm 22.05.8; the answers stand in tests/data/slurm/.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from jobkit.core.shell import Completed
from jobkit.core.units import format_count
from jobkit.schedulers.parsing import expand_tasks, seconds_of, task_ranges
from jobkit.schedulers.slurm.accounting import END_STATES, FORMAT, clusters, rows_of_tasks
from jobkit.schedulers.types import Array, JobId, Queued, State

_QUEUE_COLUMNS = "%i|%T|%r|%N|%M|%S|%j"
"""Task, state, reason, nodes, time used, (expected) start, name: squeue(1), --format."""
_MOST_RANGES = 5_000
"""In one argument: Linux takes 128 KiB (execve(2)), and a range of a large array is 16 characters."""

# https://slurm.schedmd.com/squeue.html#SECTION_JOB-STATE-CODES; an end state is not in the queue.
_QUEUE_STATES = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED"), State.PENDING),
    **dict.fromkeys(("REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"), State.HELD),
    **dict.fromkeys(("RUNNING", "RESIZING", "SIGNALING", "SUSPENDED", "STOPPED"), State.RUNNING),
    **dict.fromkeys(("COMPLETING", "STAGE_OUT"), State.ENDING),
}

# https://slurm.schedmd.com/squeue.html#SECTION_JOB-REASON-CODES: reasons for which a pending
# task waits for a person, or for ever.
_WAITING = {
    **dict.fromkeys(("JobHeldUser", "JobHeldAdmin", "launch failed requeued held"), State.HELD),
    **dict.fromkeys(("BadConstraints", "DependencyNeverSatisfied", "PartitionTimeLimit"), State.ERROR),
    **dict.fromkeys(("InvalidAccount", "InvalidQOS"), State.ERROR),
}


def submit_argv(script: str, array: Array, after: Sequence[JobId] = ()) -> tuple[str, ...]:
    """Return the command that submits ``script`` as one array job; its header has the rest.

    ``afterany`` waits for all tasks of an array, whatever became of them (sbatch(1)).
    """
    waits = (f"--dependency=afterany:{':'.join(job.id for job in after)}",) if after else ()
    throttle = f"%{array.throttle}" if array.throttle else ""
    span = f"--array={array.first}-{array.last}{throttle}"
    return ("sbatch", "--parsable", *waits, *array.option_words, span, script, *array.words)


BATCH_ONLY = frozenset(
    ("--export-file", "--get-user-env", "--gid", "--ignore-pbs", "--no-requeue", "--requeue", "--uid")
)
"""The options of sbatch that srun does not have (their ``--help``, 22.05.8) and jobkit does not write."""


def interactive_argv(options: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the command that starts bash on a node, at a terminal: srun(1), ``--pty``."""
    kept = [option for option in options if option[0].partition("=")[0] not in BATCH_ONLY]
    return ("srun", "--pty", *(word for option in kept for word in option), "bash")


def limit_argv() -> tuple[str, ...]:
    """Return the command that prints the array limit."""
    return ("scontrol", "show", "config")


def parse_limit(answer: str) -> int | None:
    """Return the largest task index: ``MaxArraySize - 1``, or ``max_array_tasks`` if that is smaller.

    slurm.conf(5): ``MaxArraySize`` is one more than the largest index, and 0 (here: 0 too)
    turns arrays off; ``max_array_tasks`` in ``SchedulerParameters`` limits their number.
    """
    size = re.search(r"^MaxArraySize\s*=\s*(\d+)", answer, re.MULTILINE)
    number = re.search(r"^SchedulerParameters\s*=.*\bmax_array_tasks=(\d+)", answer, re.MULTILINE)
    limits = [max(int(size[1]) - 1, 0)] if size else []
    return min([*limits, *([int(number[1])] if number else [])], default=None)


def task_limit_error(answer: str, arrays: Sequence[Array]) -> str | None:
    """Return why the controller cannot hold these tasks, ``None`` if it can or has no limit.

    slurm.conf(5), ``MaxJobCount``: the most jobs that slurmctld holds at a time, and each task of
    an array counts as one. sbatch does not report it: it tries again and again.
    """
    found = re.search(r"^MaxJobCount\s*=\s*(\d+)", answer, re.MULTILINE)
    points = sum(array.tasks for array in arrays)
    if not found or points <= int(found[1]):
        return None
    most = format_count(int(found[1]), "job")
    return f"{format_count(points, 'point')}, but the controller holds at most {most} (MaxJobCount)"


def header_path(path: str) -> str:
    """Return a path for an ``#SBATCH`` line: ``%`` doubled (sbatch(1), filename pattern), quoted."""
    return shlex.quote(path.replace("%", "%%"))


def log_name(name: str, job: str, task: int) -> str:
    """Return the name of a task's log: what templates/slurm.sh.j2 asks for."""
    return f"{job}_{task}.out"


def search_argvs(name: str, since: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the commands that look for jobs by their name: in the queue, and in the accounting."""
    queue = ("squeue", "-r", "-h", "-o", _QUEUE_COLUMNS, "--name", name)
    return queue, ("sacct", "-n", "-P", "-D", "-S", since, "--name", name, FORMAT)


def throttle_argv(job: JobId, most: int) -> tuple[str, ...]:
    """Return the command that changes how many tasks run at a time: scontrol(1), ``ArrayTaskThrottle``."""
    return ("scontrol", *clusters((job,)), "update", f"JobId={job.id}", f"ArrayTaskThrottle={most}")


def cancel_argv(job: JobId, tasks: tuple[int, ...] = ()) -> tuple[str, ...]:
    """Return the command that cancels a job, or only some of its tasks: ``12_7``, ``12_[1-5,9]``.

    scancel is silent, with status 0, about a job or task that it does not know (measured).
    """
    ranges = task_ranges(tasks)
    parts = [",".join(ranges[start : start + _MOST_RANGES]) for start in range(0, len(ranges), _MOST_RANGES)]
    words = [f"{job.id}_{part}" if part.isdecimal() else f"{job.id}_[{part}]" for part in parts]
    return ("scancel", *clusters((job,)), *(words or [job.id]))


def queue_argv(jobs: tuple[JobId, ...], users: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the one command that lists the tasks in the queue, one a line (``-r``)."""
    ids = ",".join(job.id for job in jobs)
    return ("squeue", "-r", "-h", "-o", _QUEUE_COLUMNS, *clusters(jobs), "-j", ids)


def parse_queue(answer: Completed) -> tuple[Queued, ...] | None:
    """Return the tasks in the queue, ``None`` if squeue did not answer.

    squeue ends with 1 and ``Invalid job id specified`` if it is asked for one job and has
    forgotten it (``MinJobAge`` after its end): nothing is left. Of several ids it drops those
    it does not know without a word (measured).
    """
    if not answer.ok:
        return () if "Invalid job id specified" in answer.said else None
    return tuple(
        Queued(
            job_id=job,
            task=task,
            state=state,
            reason="" if reason == "None" else reason,
            name=name,
            node=node,
            elapsed_s=None if state is State.PENDING else seconds_of(elapsed),
            start_at="" if start == "N/A" else start,
        )
        for job, listed, _, (word, reason, node, elapsed, start, name) in rows_of_tasks(answer.stdout, 7)
        if (state := _queue_state(word, reason)) is not None
        for task in expand_tasks(listed)
    )


def _queue_state(word: str, reason: str) -> State | None:
    if word in END_STATES:
        return None
    state = _QUEUE_STATES.get(word, State.UNKNOWN)
    return _WAITING.get(reason, state) if state is State.PENDING else state


def diagnostic_argvs(jobs: tuple[JobId, ...], name: str) -> tuple[tuple[str, ...], ...]:
    """Return the commands that show a person jobs in the queue and in the accounting."""
    ids = ",".join(job.id for job in jobs)
    return ("squeue", *clusters(jobs), "-j", ids), ("sacct", *clusters(jobs), "-j", ids)
