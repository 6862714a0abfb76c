"""Slurm: sbatch, squeue, sacct, scancel; their man pages are at https://slurm.schedmd.com/.

"Measured" is Slurm 22.05.8; the answers stand in tests/data/slurm/.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jobkit.records import Outcome
from jobkit.schedulers.base import Accounted, Array, JobId, Queued, State
from jobkit.schedulers.slurm_checks import OWN_OPTIONS, checks
from jobkit.schedulers.slurm_reasons import explain, remedy
from jobkit.schedulers.slurm_survey import COMMANDS, parse_survey, survey_argvs
from jobkit.schedulers.text import bytes_of, expand_tasks, find_job_id, refused, seconds_of, task_ranges
from jobkit.shell import Completed

__all__ = [
    "BUSY",
    "COMMANDS",
    "ENVIRONMENT",
    "HANDS_ON",
    "NAME",
    "OWN_OPTIONS",
    "PROGRAMS",
    "UNSURE",
    "accounting_argv",
    "cancel_argv",
    "checks",
    "explain",
    "limit_argv",
    "log_name",
    "parse_accounting",
    "parse_limit",
    "parse_queue",
    "parse_submit",
    "parse_survey",
    "person_argvs",
    "queue_argv",
    "refusal",
    "remedy",
    "search_argvs",
    "submit_argv",
    "survey_argvs",
    "throttle_argv",
    "too_many",
]

NAME = "slurm"
PROGRAMS: tuple[str, ...] = ("sbatch",)
HANDS_ON = True
"""sbatch(1), ``--export``: all, unless told."""
ENVIRONMENT: Mapping[str, str] = {"SLURM_BITSTR_LEN": "0"}
"""Without it lists of array tasks are cut to 64 bytes (squeue(1), sacct(1))."""

BUSY = re.compile(r"Rate limit exceeded|Resource temporarily unavailable")
"""See `jobkit.schedulers.base.Scheduler`; slurm.conf(5), ``rl_enable`` (since 23.02)."""
UNSURE = re.compile(
    r"Socket timed out|Zero Bytes were transmitted|Message (receive|send) failure|Connection reset"
)
"""See `jobkit.schedulers.base.Scheduler`: sbatch had sent the job, and then heard no more."""

_SUBMITTED = (
    r"(?P<id>\d+)(?:;(?P<cluster>\S+))?",
    r".*?Submitted batch job (?P<id>\d+)(?: on cluster (?P<cluster>\S+))?",
)
_COLUMNS = (
    *("JobID", "State", "ExitCode", "ElapsedRaw", "MaxRSS", "ReqMem", "AllocCPUS", "NodeList", "Reason"),
    "JobName",
)
_FEWEST = 3
"""Columns of the shortest row that is one."""
_QUEUE_COLUMNS = "%i|%T|%r|%N|%M|%S|%j"
"""Task, state, reason, nodes, time used, (expected) start, name: squeue(1), --format."""
_MOST_RANGES = 5_000
"""In one argument: Linux takes 128 KiB (execve(2)), and a range of a large array is 16 characters."""
_OVER = re.compile(
    r": No error$|already finished|already completing or completed|Invalid job id specified|expired"
)
"""scontrol says for each task what became of it, with status 1 where one has ended (measured)."""
_TASK = re.compile(r"(?P<job>\d+)_(?P<tasks>\d+|\[[^.|]*(?:\.\.\.[^.|]*)?)(?:\.(?P<step>\w+))?")

# https://slurm.schedmd.com/squeue.html#SECTION_JOB-STATE-CODES; an end state is not in the queue.
_QUEUE_STATES = {
    "PENDING": State.PENDING,
    "CONFIGURING": State.PENDING,
    "REQUEUED": State.PENDING,
    "REQUEUE_FED": State.PENDING,
    "REQUEUE_HOLD": State.HELD,
    "RESV_DEL_HOLD": State.HELD,
    "SPECIAL_EXIT": State.HELD,
    "RUNNING": State.RUNNING,
    "RESIZING": State.RUNNING,
    "SIGNALING": State.RUNNING,
    "SUSPENDED": State.RUNNING,
    "STOPPED": State.RUNNING,
    "COMPLETING": State.ENDING,
    "STAGE_OUT": State.ENDING,
}

# https://slurm.schedmd.com/squeue.html#SECTION_JOB-REASON-CODES: reasons for which a pending
# task waits for a person, or for ever.
_WAITING = {
    "JobHeldUser": State.HELD,
    "JobHeldAdmin": State.HELD,
    "launch failed requeued held": State.HELD,
    "BadConstraints": State.ERROR,
    "DependencyNeverSatisfied": State.ERROR,
    "InvalidAccount": State.ERROR,
    "InvalidQOS": State.ERROR,
    "PartitionTimeLimit": State.ERROR,
}

# https://slurm.schedmd.com/sacct.html#SECTION_JOB-STATE-CODES: states that are an end. COMPLETED
# and FAILED carry the exit status of the script: the record or the exit file knows what it means.
_END_STATES: Mapping[str, Outcome | None] = {
    "BOOT_FAIL": Outcome.NODE_FAIL,
    "CANCELLED": Outcome.CANCELLED,
    "COMPLETED": None,
    "DEADLINE": Outcome.TIMEOUT,
    "FAILED": None,
    "NODE_FAIL": Outcome.NODE_FAIL,
    "OUT_OF_MEMORY": Outcome.RAM_OOM,
    "PREEMPTED": Outcome.PREEMPTED,
    "REVOKED": Outcome.CANCELLED,
    "TIMEOUT": Outcome.TIMEOUT,
}


def submit_argv(script: str, array: Array, after: Sequence[JobId] = ()) -> tuple[str, ...]:
    """Return the command that submits ``script`` as one array job; its header says the rest.

    ``afterany`` waits for all tasks of an array, whatever became of them (sbatch(1)).
    """
    waits = (f"--dependency=afterany:{':'.join(job.id for job in after)}",) if after else ()
    throttle = f"%{array.throttle}" if array.throttle else ""
    span = f"--array={array.first}-{array.last}{throttle}"
    return (PROGRAMS[0], "--parsable", *waits, span, script, *array.words)


def parse_submit(answer: str) -> JobId:
    """Return the job id: ``123``, ``123;cluster``, ``Submitted batch job 123 on cluster c``.

    Raises
    ------
    JobkitError
        Where there is none.
    """
    return find_job_id(answer, _SUBMITTED, PROGRAMS[0])


def limit_argv() -> tuple[str, ...]:
    """Return the command that tells the array limit."""
    return ("scontrol", "show", "config")


def parse_limit(answer: str) -> int | None:
    """Return the largest task index: ``MaxArraySize - 1``, or ``max_array_tasks`` where smaller.

    slurm.conf(5): ``MaxArraySize`` is one more than the largest index, and 0 (here: 0 too)
    turns arrays off; ``max_array_tasks`` in ``SchedulerParameters`` limits their number.
    """
    size = re.search(r"^MaxArraySize\s*=\s*(\d+)", answer, re.MULTILINE)
    number = re.search(r"^SchedulerParameters\s*=.*\bmax_array_tasks=(\d+)", answer, re.MULTILINE)
    limits = [max(int(size[1]) - 1, 0)] if size else []
    return min([*limits, *([int(number[1])] if number else [])], default=None)


def too_many(answer: str, arrays: Sequence[Array]) -> str | None:
    """Return why the controller cannot hold so many tasks, ``None`` where it can or does not say.

    slurm.conf(5), ``MaxJobCount``: the most jobs that slurmctld holds at a time, and each task of
    an array counts as one. sbatch would not say so: it tries again and again.
    """
    found = re.search(r"^MaxJobCount\s*=\s*(\d+)", answer, re.MULTILINE)
    points = sum(array.tasks for array in arrays)
    if not found or points <= int(found[1]):
        return None
    return f"{points:,} points, but the controller holds at most {int(found[1]):,} jobs (MaxJobCount)"


def log_name(name: str, job: str, task: int) -> str:  # noqa: ARG001 - the header says %A_%a.out
    """Return the name of a task's log: what templates/slurm.sh.j2 asks for."""
    return f"{job}_{task}.out"


def search_argvs(name: str, since: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the commands that look for jobs by their name: in the queue, and in the accounting."""
    queue = ("squeue", "-r", "-h", "-o", _QUEUE_COLUMNS, "--name", name)
    return queue, ("sacct", "-n", "-P", "-D", "-S", since, "--name", name, f"--format={','.join(_COLUMNS)}")


def throttle_argv(job: JobId, most: int) -> tuple[str, ...]:
    """Return the command that changes how many tasks run at a time: scontrol(1), ``ArrayTaskThrottle``."""
    return ("scontrol", *_clusters((job,)), "update", f"JobId={job.id}", f"ArrayTaskThrottle={most}")


def cancel_argv(job: JobId, tasks: tuple[int, ...] = ()) -> tuple[str, ...]:
    """Return the command that cancels a job, or only some of its tasks: ``12_7``, ``12_[1-5,9]``.

    scancel is silent, with status 0, about a job or task that it does not know (measured).
    """
    ranges = task_ranges(tasks)
    parts = [",".join(ranges[start : start + _MOST_RANGES]) for start in range(0, len(ranges), _MOST_RANGES)]
    words = [f"{job.id}_{part}" if part.isdecimal() else f"{job.id}_[{part}]" for part in parts]
    return ("scancel", *_clusters((job,)), *(words or [job.id]))


def refusal(answer: Completed) -> str | None:
    """Return what was refused of a cancellation or a throttle; ``None`` also where all is over."""
    return refused(answer, _OVER)


def queue_argv(jobs: tuple[JobId, ...], users: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the one command that lists what the queue still holds, a task a line (``-r``)."""
    del users  # squeue finds jobs by their ids
    ids = ",".join(job.id for job in jobs)
    return ("squeue", "-r", "-h", "-o", _QUEUE_COLUMNS, *_clusters(jobs), "-j", ids)


def _clusters(jobs: tuple[JobId, ...]) -> tuple[str, ...]:
    names = sorted({job.cluster for job in jobs if job.cluster})
    return ("-M", ",".join(names)) if names else ()


def parse_queue(answer: Completed) -> tuple[Queued, ...] | None:
    """Return the tasks still in the queue, ``None`` where the answer is no answer.

    squeue ends with 1 and ``Invalid job id specified`` where it is asked for one job and has
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
        for job, listed, _, (word, reason, node, elapsed, start, name) in _rows(answer.stdout, 7)
        if (state := _queue_state(word, reason)) is not None
        for task in expand_tasks(listed)
    )


def _queue_state(word: str, reason: str) -> State | None:
    if word in _END_STATES:
        return None
    state = _QUEUE_STATES.get(word, State.UNKNOWN)
    return _WAITING.get(reason, state) if state is State.PENDING else state


def _rows(text: str, columns: int) -> Iterator[tuple[str, str, str, list[str]]]:
    """Yield ``job id, tasks, step, the other columns`` of the rows about array tasks.

    The columns that an answer of jobkit 0.1 lacks, kept in old run folders, are empty.
    """
    for line in text.splitlines():
        name, *rest = line.strip().split("|", columns - 1)
        found = _TASK.fullmatch(name)
        if found and len(rest) >= _FEWEST - 1:
            missing = [""] * (columns - 1 - len(rest))
            yield found["job"], found["tasks"], found["step"] or "", [*rest, *missing]


def accounting_argv(
    jobs: tuple[JobId, ...], since: str, name: str, users: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the one command that asks the accounting.

    ``-S`` because sacct otherwise begins at midnight (sacct(1), DEFAULT TIME WINDOW), ``-P``
    because columns are cut otherwise; with the steps (no ``-X``), for they hold the memory; with
    ``-D``, for a task that was requeued has a row for each time it ran.
    """
    del name, users  # sacct finds jobs by their ids
    ids = ",".join(job.id for job in jobs)
    columns = ",".join(_COLUMNS)
    return ("sacct", "-n", "-P", "-D", *_clusters(jobs), "-S", since, "-j", ids, f"--format={columns}")


def person_argvs(jobs: tuple[JobId, ...], name: str) -> tuple[tuple[str, ...], ...]:
    """Return the commands that tell a person what became of jobs: the queue's and the accounting's."""
    del name  # both find jobs by their ids; with them sacct looks back without end
    ids = ",".join(job.id for job in jobs)
    return ("squeue", *_clusters(jobs), "-j", ids), ("sacct", *_clusters(jobs), "-j", ids)


@dataclass(slots=True)
class _Rows:
    """What sacct says of one task: its own row, and of its steps what matters here."""

    own: dict[str, str]
    max_rss_bytes: int | None = None
    out_of_memory: bool = False

    def add_step(self, row: Mapping[str, str]) -> None:
        rss = bytes_of(row["MaxRSS"])
        self.max_rss_bytes = max(filter(None, (rss, self.max_rss_bytes)), default=None)
        self.out_of_memory = self.out_of_memory or row["State"].startswith("OUT_OF_ME")


def parse_accounting(answer: Completed) -> tuple[Accounted, ...] | None:
    """Return what is known of the tasks, ``None`` where the accounting did not answer.

    A task that is missing is not known *yet*: rows come up to 4.5 s late (measured). Of a task
    that was requeued there is one account for each time it ran, the oldest first.

    Tasks that have not begun share a row, ``12_[3-5]``, and where they are cancelled it goes on
    naming those that began just before: a row of a task's own counts more (measured). It comes some
    seconds later.
    """
    if not answer.ok:
        return None
    found: dict[tuple[str, int], list[_Rows]] = {}
    shared: dict[tuple[str, int], _Rows] = {}
    for job, listed, step, rest in _rows(answer.stdout, len(_COLUMNS)):
        row = dict(zip(_COLUMNS[1:], rest, strict=True))
        if not listed.isdecimal():
            shared |= {(job, task): _Rows(own=row) for task in expand_tasks(listed)}
            continue
        runs = found.setdefault((job, int(listed)), [])
        if not step:
            runs.append(_Rows(own=row))
        elif runs:
            runs[-1].add_step(row)
    own = [_accounted(job, task, rows) for (job, task), runs in found.items() for rows in runs]
    waited = [_accounted(*key, rows, began=False) for key, rows in shared.items() if not found.get(key)]
    return (*own, *waited)


def _accounted(job: str, task: int, rows: _Rows, *, began: bool = True) -> Accounted:
    row = rows.own
    word = _whole_word(row["State"].partition(" ")[0])  # "CANCELLED by 1234"
    ended = word in _END_STATES
    status, _, signal = row["ExitCode"].partition(":")
    over = _over_memory(rows)
    evidence = f"sacct: {row['State']}, ExitCode {row['ExitCode']}"
    if _no_log(row):
        evidence += ": the node could not open the job's log, or its working folder"
    if over:
        evidence += f", MaxRSS {rows.max_rss_bytes} bytes of ReqMem {row['ReqMem']}"
    return Accounted(
        job_id=job,
        task=task,
        ended=ended,
        outcome=_outcome(word, row, over=over),
        exit_status=(128 + int(signal) if signal.strip("0") else int(status)) if ended and status else None,
        evidence=evidence,
        name=row["JobName"],
        node="" if row["NodeList"] == "None assigned" else row["NodeList"],
        max_rss_bytes=rows.max_rss_bytes,
        elapsed_s=float(row["ElapsedRaw"]) if ended and row["ElapsedRaw"] else None,
        never_began=ended and not began,
    )


def _outcome(word: str, row: Mapping[str, str], *, over: bool) -> Outcome | None:
    if word == "FAILED" and over:
        return Outcome.RAM_OOM
    return Outcome.STAGE_OUT if _no_log(row) else _END_STATES.get(word)


def _no_log(row: Mapping[str, str]) -> bool:
    """Tell whether a job could not be started for its log or its folder: FAILED with 0:53 (measured)."""
    return row["State"] == "FAILED" and row["ExitCode"] == "0:53"


def _whole_word(word: str) -> str:
    """Return the end state that ``OUT_OF_ME+`` is the beginning of; other words as they are."""
    if not word.endswith("+"):
        return word
    return next((state for state in _END_STATES if state.startswith(word[:-1])), word)


def _over_memory(rows: _Rows) -> bool:
    """Tell whether a failed task was killed for its memory.

    Only the step may say OUT_OF_MEMORY (autosubmit#382); with ``OverMemoryKill`` no row does:
    the task is FAILED with 0:9 and only MaxRSS above ReqMem tells (measured).
    """
    required = _required_bytes(rows.own)
    killed = rows.own["ExitCode"].endswith(":9")
    over = required is not None and (rows.max_rss_bytes or 0) > required
    return rows.out_of_memory or (killed and over)


def _required_bytes(row: Mapping[str, str]) -> int | None:
    """Return ReqMem in bytes: before Slurm 21.08 ``4Gn`` is per node, ``2Gc`` per CPU (sacct(1))."""
    size = bytes_of(row["ReqMem"].rstrip("nc"))
    if size is None or not row["ReqMem"].endswith("c"):
        return size
    return size * int(row["AllocCPUS"] or 1)
