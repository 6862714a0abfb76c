"""Grid Engine: qsub, qstat, qacct, qdel.

Man pages of Son of Grid Engine 8.1.9: https://manpages.debian.org/bookworm/gridengine-common/
(qsub.1, qstat.1, qacct.1, sge_status.5, accounting.5, sge_conf.5). "Measured" is the same
version; the answers stand in tests/data/sge/.
"""

from __future__ import annotations

import getpass
import re
import shlex
from collections.abc import Mapping, Sequence

from jobkit.core.shell import Completed
from jobkit.schedulers.parsing import expand_tasks, task_ranges
from jobkit.schedulers.sge.accounting import accounting_argv
from jobkit.schedulers.sge.checks import submit_words
from jobkit.schedulers.types import Array, JobId, Queued, State

# sge_status(5): a state is a string of flags; the first flag of this table that it holds decides.
_FLAGS: Mapping[str, tuple[State, str]] = {
    "E": (State.ERROR, "in error: `qstat -j ID` says why, `qmod -cj ID` tries again"),
    "d": (State.ENDING, "being deleted"),
    "s": (State.RUNNING, "suspended"),
    "S": (State.RUNNING, "its queue is suspended"),
    "T": (State.RUNNING, "its queue is suspended by an alarm"),
    "r": (State.RUNNING, ""),
    "t": (State.RUNNING, ""),
    "h": (State.HELD, "held"),
    "q": (State.PENDING, ""),
    "z": (State.ENDING, ""),
}


def submit_argv(script: str, array: Array, after: Sequence[JobId] = ()) -> tuple[str, ...]:
    """Return the command that submits ``script`` as one array job; its header has the rest.

    ``-terse`` stands on the command line, not in the header: there it may be ignored. ``-hold_jid``
    waits for all tasks of an array, whatever became of them (qsub(1)).
    """
    waits = ("-hold_jid", ",".join(job.id for job in after)) if after else ()
    return ("qsub", "-terse", *waits, *submit_words(script, array))


BATCH_ONLY = frozenset(("-a", "-b", "-c", "-i", "-shell", "-sync"))
"""The options of qsub that qrsh does not have or that are about scripts: qsub(1)."""


def interactive_argv(options: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the command that starts bash on a node, at a terminal: qrsh(1).

    With a command qrsh makes no terminal unless ``-pty y`` says so, and without ``-now n`` it gives up
    if no node is free. ``s_rt`` is left out: its signal would end the shell.
    """
    kept = [_without_warning(option) for option in options if option[0] not in BATCH_ONLY]
    return ("qrsh", "-pty", "y", "-now", "n", "-cwd", *(word for option in kept for word in option), "bash")


def _without_warning(option: tuple[str, ...]) -> tuple[str, ...]:
    """Return an option without the soft limit of the walltime; nothing if that is all of it."""
    if option[0] != "-l":
        return option
    left = ",".join(word for word in ",".join(option[1:]).split(",") if not word.startswith("s_rt="))
    return ("-l", left) if left else ()


def limit_argv() -> tuple[str, ...]:
    """Return the command that prints the array limit."""
    return ("qconf", "-sconf")


def parse_limit(answer: str) -> int | None:
    """Return ``max_aj_tasks``; 0 is no limit (sge_conf(5)), and ``None`` here."""
    found = re.search(r"^max_aj_tasks\s+(\d+)", answer, re.MULTILINE)
    return (int(found[1]) or None) if found else None


def task_limit_error(answer: str, arrays: Sequence[Array]) -> str | None:
    """Return why the controller cannot hold these arrays, ``None`` if it can or has no limit.

    ``max_jobs`` is for all users and ``max_u_jobs`` for each; 0 is no limit, and an array counts
    as one job (sge_conf(5)). ``max_aj_instances`` only limits how many tasks run at a time.
    """
    known = {
        name: int(most) for name, most in re.findall(r"^(max_(?:u_)?jobs)\s+(\d+)", answer, re.MULTILINE)
    }
    below = [name for name, most in known.items() if 0 < most < len(arrays)]
    if not below:
        return None
    name = min(below, key=lambda name: known[name])
    points = sum(array.tasks for array in arrays)
    return f"{points:,} points are {len(arrays)} array jobs, but at most {known[name]} are allowed ({name})"


def header_path(path: str) -> str:
    """Return a path for a ``#$ -o`` line: a colon would name a host before it (qsub(1))."""
    return shlex.quote(f":{path}" if ":" in path else path)


def log_name(name: str, job: str, task: int) -> str:
    """Return the name of a task's log: qsub(1), ``-o`` with a folder."""
    return f"{name}.o{job}.{task}"


def search_argvs(name: str, since: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the commands that look for jobs by their name: all of one's own, and the name's accounting."""
    return queue_argv(()), accounting_argv((), since, name)


def throttle_argv(job: JobId, most: int) -> tuple[str, ...]:
    """Return the command that changes how many tasks run at a time: qalter(1), ``-tc``; 0 is no limit."""
    return ("qalter", "-tc", str(most), job.id)


def cancel_argv(job: JobId, tasks: tuple[int, ...] = ()) -> tuple[str, ...]:
    """Return the command that deletes a job, or only some of its tasks: ``12.7``, ``12.1-5 12.9``.

    qdel ends with 1 and ``denied: job "..." does not exist`` if nothing is left (measured). Its
    ``-t`` is documented for one range only (qdel(1)).
    """
    return ("qdel", *([f"{job.id}.{part}" for part in task_ranges(tasks)] or [job.id]))


def queue_argv(jobs: tuple[JobId, ...], users: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the one command that lists all jobs of their owners: with ids qstat shows no states.

    Without ``-g d``: pending tasks are then one row with all their ranges, never cut (measured
    with 200 tasks in 24 ranges).
    """
    return ("qstat", "-u", ",".join(users) or getpass.getuser(), "-xml")


def diagnostic_argvs(jobs: tuple[JobId, ...], name: str) -> tuple[tuple[str, ...], ...]:
    """Return the commands that show a person why a job waits, and how it ended."""
    ids = ",".join(job.id for job in jobs)
    return ("qstat", "-j", ids), accounting_argv(jobs, "", name)


def parse_queue(answer: Completed) -> tuple[Queued, ...] | None:
    """Return all array tasks of the owners in the queue, ``None`` if qstat did not answer.

    Running tasks stand in ``queue_info``, pending ones and those in error in ``job_info``. Tasks of
    other jobs are among them. A finished job is in no list: gone is not done.
    """
    from xml.etree import ElementTree as ET  # here, for a submission reads no XML

    try:
        rows = ET.fromstring(answer.stdout).iter("job_list") if answer.ok else None  # noqa: S314 - qstat's
    except ET.ParseError:
        return None
    if rows is None:
        return None
    return tuple(
        Queued(
            job_id=row.findtext("JB_job_number", "").strip(),
            task=task,
            state=state,
            reason=reason,
            name=row.findtext("JB_name", "").strip(),
            node=row.findtext("queue_name", "").strip().partition("@")[2],
            start_at=row.findtext("JAT_start_time", "").strip(),
        )
        for row in rows
        for state, reason in [_state(row.findtext("state", "").strip())]
        for task in expand_tasks(row.findtext("tasks", "").strip())
    )


def _state(flags: str) -> tuple[State, str]:
    """Return the state of a string of flags, and the reason with the flags as qstat shows them."""
    state, why = next(
        (meaning for flag, meaning in _FLAGS.items() if flag in flags), (State.UNKNOWN, "unknown")
    )
    return state, f"{flags}: {why}" if why else ""
