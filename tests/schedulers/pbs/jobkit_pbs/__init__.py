"""OpenPBS and PBS Professional, as a package that is not jobkit's. See docs/adding-a-scheduler.md.

Facts without another source are of OpenPBS's man pages (doc/man1) and sources at commit cd7ab5e, April 2026.
A job is always an array, so that each id is ``12[].server`` and each task ``12[3].server``.
"""
# ruff: noqa: ARG001 - the names are the Protocol's

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.schedulers import protocol
from jobkit.schedulers.parsing import bytes_of, refusal, seconds_of, task_ranges
from jobkit.schedulers.survey import Answers, Survey, text_of, unanswered
from jobkit.schedulers.types import Accounted, Array, JobId, LogOutcomes, Queued, State

NAME, TITLE, DIRECTIVE, JOB_VARIABLE = "pbs", "PBS", "#PBS", "PBS_JOBID"
PROGRAMS: tuple[str, ...] = ("qsub", "pbs_rstat")  # Torque and Grid Engine have a qsub, too
COMMANDS: tuple[str, ...] = ("qsub", "qstat", "qdel", "qalter")
RUNS_HERE = EXPORTS_ENVIRONMENT = CHARGES_PAGE_CACHE = False
MAILS_EACH_TASK = NAMES_GPUS = False  # qsub(1B), -m: only with j; only with the hook for cgroups
RESERVED_OPTIONS: Mapping[str, str] = {
    "-J": "change sweep or max_parallel",
    "-N": "change name",
    **dict.fromkeys(("-o", "-e", "-j", "-k"), "logs are in the run folder, which --runs-dir puts elsewhere"),
    **dict.fromkeys(("-S", "-r", "-C", "-I", "-v"), "leave it out"),
}
FORBIDDEN_PATH_CHARS = "\\'\"$,:^"  # a colon follows a host name; ^array_index^ is replaced
ENVIRONMENT: Mapping[str, str] = {}
CLUSTER_VARIABLES = re.compile("PBS_(DEFAULT|SERVER|CONF_FILE)")
LEAKING_VARIABLES = re.compile("PBS_DPREFIX|JOBKIT_WORDS")
ASKING_VARIABLES: Mapping[str, str] = {}
RECORDED_VARIABLES: tuple[str, ...] = ("PBS_QUEUE", "NCPUS")
BUSY_PATTERN = re.compile("cannot connect to server|Connection refused")
UNCONFIRMED_PATTERN = re.compile("End of File|Premature end of message")
JOB_ID_PATTERNS: tuple[str, ...] = (r"(?P<id>\d+\[\]\.\S+)",)
OVER_PATTERN = re.compile("Unknown Job Id|Job has finished|invalid for finished array subjob")
LOG_OUTCOMES: LogOutcomes = (
    (re.compile("=>> PBS: job killed: walltime .* exceeded limit"), Outcome.TIMEOUT),
    (re.compile("=>> PBS: job killed: v?mem .* exceeded limit"), Outcome.RAM_OOM),
)
LOG_FAULT = re.compile("=>> PBS: ")
wait_argv = status_argv = identity_argv = checks = resource_names = shut_argv = protocol.no_command
parse_identity = task_limit_error = lint = remedy = protocol.nothing
shut_reason, slots, header_path = protocol.no_reason, protocol.one_slot, protocol.quoted_path


def submit_argv(script: str, array: Array, after: Sequence[JobId] = ()) -> tuple[str, ...]:
    """Submit; qsub refuses ``-J 7-7``, but ``7-8:2`` is the array of task 7 (chk_Jrange.c)."""
    ends = f"{array.first}-{array.last}" if array.tasks > 1 else f"{array.first}-{array.first + 1}:2"
    throttle = f"%{array.throttle}" if array.throttle else ""
    waits = ("-W", "depend=afterany:" + ":".join(job.id for job in after)) if after else ()
    words = ("-v", f"JOBKIT_WORDS={':'.join(array.words)}") if array.words else ()
    return ("qsub", *array.option_words, "-J", ends + throttle, *waits, *words, script)


def limit_argv() -> tuple[str, ...]:
    return ("qstat", "-B", "-f")


def parse_limit(answer: str) -> int | None:
    """Return max_array_size, which counts tasks; 10,000 if the server does not name it (array_func.c)."""
    found = re.search(r"^\s+max_array_size = (\d+)", answer, re.MULTILINE)
    return int(found[1]) if found else 10_000 if "Server: " in answer else None


def log_name(name: str, job: str, task: int) -> str:
    """Return the name of a log: qsub(1B), -o with a folder. PBS may bring it home after the task's end."""
    return job.replace("[]", f"[{task}]") + ".OU"


def search_argvs(name: str, since: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return queue_argv(()), accounting_argv((), since, name)


def throttle_argv(job: JobId, most: int) -> tuple[str, ...]:
    return ("qalter", f"-Wmax_run_subjobs={most}", job.id)


def cancel_argv(job: JobId, tasks: tuple[int, ...] = ()) -> tuple[str, ...]:
    return ("qdel", *([job.id.replace("[]", f"[{part}]") for part in task_ranges(tasks)] or [job.id]))


def queue_argv(jobs: tuple[JobId, ...], users: tuple[str, ...] = ()) -> tuple[str, ...]:
    """List the tasks in plain text: with several ids ``-F json`` may print one job (openpbs#2672)."""
    return ("qstat", "-t", "-f", *(job.id for job in jobs))


def accounting_argv(
    jobs: tuple[JobId, ...], since: str, name: str, users: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Ask the history, which the server keeps if job_history_enable is True."""
    return ("qstat", "-x", *queue_argv(jobs, users)[1:])


def _tasks(answer: Completed) -> list[tuple[str, int, str, dict[str, str]]] | None:
    """Return job, task, state and attributes: a long value goes on in a line that a tab begins."""
    if refusal(replace(answer, stdout=""), OVER_PATTERN):
        return None
    records = re.split(
        r"^Job Id: (\d+)\[(\d+)\](\.\S+)$", answer.stdout.replace("\n\t", ""), flags=re.MULTILINE
    )
    found = []
    for number, task, server, text in zip(*(records[place::4] for place in (1, 2, 3, 4)), strict=True):
        one = dict(re.findall(r"^ +(\S+) = (.*)$", text, re.MULTILINE))
        found.append((f"{number}[]{server}", int(task), one.get("job_state", ""), one))
    return found


def _shared(one: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": one.get("Job_Name", ""),
        "user": one.get("Job_Owner", "").partition("@")[0],
        "submitted_at": _moment(one.get("ctime", "")),
        "node": one.get("exec_host", "").partition("/")[0],
        "elapsed_s": seconds_of(one.get("resources_used.walltime", "")),
    }


# pbs_job_attributes(7B), job_state
STATES: Mapping[str, State] = {
    **dict.fromkeys("BRSU", State.RUNNING),
    **dict.fromkeys("QTW", State.PENDING),
    "H": State.HELD,
    "E": State.ENDING,
}
ENDED = ("F", "X", "M")


def parse_queue(answer: Completed) -> tuple[Queued, ...] | None:
    if (tasks := _tasks(answer)) is None:
        return None
    return tuple(
        Queued(
            job_id=job,
            task=task,
            state=STATES.get(state, State.UNKNOWN),
            reason=one.get("comment", ""),
            suspended=state in ("S", "U"),
            **_shared(one),
        )
        for job, task, state, one in tasks
        if state not in ENDED
    )


def _moment(text: str) -> datetime | None:
    with contextlib.suppress(ValueError):
        return datetime.strptime(text, "%a %b %d %H:%M:%S %Y").astimezone()
    return None


# job.h, JOB_EXEC_KILL_...: what PBS itself killed; other negative numbers are starts that failed
KILLED = {-29: Outcome.TIMEOUT, -27: Outcome.RAM_OOM, -26: Outcome.RAM_OOM}


def _outcome(one: Mapping[str, str], status: int | None) -> Outcome | None:
    if one.get("substate") == "91":  # JOB_SUBSTATE_TERMINATED: somebody deleted it
        return Outcome.CANCELLED
    if status is not None and status < 0:
        return KILLED.get(status, Outcome.QUEUE_ERROR)
    used, limit = (seconds_of(one.get(f"{of}.walltime", "")) for of in ("resources_used", "Resource_List"))
    over = status is not None and status > 256 and used and limit and used >= limit
    return Outcome.TIMEOUT if over else None


def parse_accounting(answer: Completed) -> tuple[Accounted, ...] | None:
    """Return how tasks ended; a signal is 256 more than its number, and 128 more for jobkit."""
    if (tasks := _tasks(answer)) is None:
        return None
    return tuple(
        Accounted(
            job_id=job,
            task=task,
            ended=True,
            outcome=_outcome(one, status),
            exit_status=status - 128 if status and status > 256 else status,
            evidence=f"qstat: Exit_status {status}; {one.get('comment', '')}".rstrip("; "),
            max_rss_bytes=bytes_of(one.get("resources_used.mem", "").upper()),
            never_began="stime" not in one and status is None,
            **_shared(one),
        )
        for job, task, state, one in tasks
        if state in ENDED
        for status in [int(one["Exit_status"]) if "Exit_status" in one else None]
    )


def explain(task: Queued) -> str:
    return task.reason


def diagnostic_argvs(jobs: tuple[JobId, ...], name: str) -> tuple[tuple[str, ...], ...]:
    return queue_argv(jobs), accounting_argv(jobs, "", name)


def survey_argvs(answers: Answers) -> Mapping[str, tuple[str, ...]]:
    return {"server": limit_argv()}


def parse_survey(answers: Answers) -> Survey:
    return Survey(product=TITLE, limits=text_of(answers, "server") or "", silent=unanswered(answers))
