"""Slurm: sbatch, squeue, sacct, scancel. The names are those of `jobkit.schedulers.protocol.Scheduler`.

Man pages: https://slurm.schedmd.com/; the words are those of https://slurm.schedmd.com/job_reason_codes.html.
"Measured" is Slurm 22.05.8; the answers stand in tests/data/slurm/.

``sbatch --test-only`` finds most faults, but accepts a walltime that the partition forbids and an unknown
account or QOS (measured with ``EnforcePartLimits=NO`` and no ``AccountingStorageEnforce``: such a job waits
for ever or is charged to no account); and it does not name the wrong value. So sinfo and sacctmgr are asked
as well.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, partial

from jobkit.core.frozen import frozen
from jobkit.core.paths import user_name
from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.core.units import format_count, format_memory, format_walltime, moment
from jobkit.schedulers import protocol, slurm_lint, slurm_survey
from jobkit.schedulers.parsing import bytes_of, expand_tasks, number_of, seconds_of, task_ranges
from jobkit.schedulers.slurm_survey import NODES, PARTITION, partitions
from jobkit.schedulers.survey import Queue, asked_for, no_such, queue_check
from jobkit.schedulers.types import (
    Accounted,
    Array,
    Check,
    JobId,
    JobRequest,
    LogOutcomes,
    Queued,
    Remedy,
    SchedulerId,
    State,
)

lint, parse_survey, survey_argvs = slurm_lint.lint, slurm_survey.parse_survey, slurm_survey.survey_argvs


COLUMNS = (
    *("JobID", "State", "ExitCode", "ElapsedRaw", "MaxRSS", "ReqMem", "AllocCPUS", "NodeList", "Reason"),
    "JobName",
)  # the name is the last column, because it may contain a bar; `END` follows it
END, UNKNOWN = "End", "Unknown"
FORMAT = f"--format={','.join((*COLUMNS, END))},User,Submit"
STATUSES = ("squeue", "-h", "-r", "-t", "all", "-O", "ArrayJobID,ArrayTaskID,exit_code,EndTime")
"""Prints the wait status of each job that the controller still knows: slurm.conf(5), ``MinJobAge``."""
_SIGNALLED = 128  # added to a signal's number by a shell
_OWNER = r"(?:\|(?P<user>[^|]*)\|(?P<at>\d{4}[\dT:-]{15}))?"  # in no answer of an earlier jobkit
_NAME_END = re.compile(rf"(?P<name>.*?)(?:\|(?P<end>{UNKNOWN}|\d{{4}}[\dT:-]{{15}}){_OWNER})?")
_NAME_PARTITIONS = re.compile(rf"(?P<name>.*?)(?:\|(?P<partitions>[^|]*){_OWNER})?")
_TASK = re.compile(r"(?P<job>\d+)(?:_(?P<tasks>\d+|\[[^.|]*(?:\.\.\.[^.|]*)?))?(?:\.(?P<step>\w+))?")

# https://slurm.schedmd.com/sacct.html#SECTION_JOB-STATE-CODES: states that are an end. COMPLETED and FAILED
# carry the exit status of the script: the record or the exit file knows what it means.
END_STATES: Mapping[str, Outcome | None] = {
    **dict.fromkeys(("COMPLETED", "FAILED")),
    **dict.fromkeys(("BOOT_FAIL", "NODE_FAIL"), Outcome.NODE_FAIL),
    **dict.fromkeys(("CANCELLED", "REVOKED"), Outcome.CANCELLED),
    **dict.fromkeys(("DEADLINE", "TIMEOUT"), Outcome.TIMEOUT),
    "OUT_OF_MEMORY": Outcome.RAM_OOM,
    "PREEMPTED": Outcome.PREEMPTED,
}


def clusters(jobs: tuple[JobId, ...]) -> tuple[str, ...]:
    """Return the option that names the clusters of the jobs; none if all are on the default cluster."""
    names = sorted({job.cluster for job in jobs if job.cluster})
    return ("-M", ",".join(names)) if names else ()


def rows_of_tasks(text: str, columns: int) -> Iterator[tuple[str, str, str, list[str]]]:
    """Yield ``job id, tasks, step, other columns``; columns that jobkit 0.1 did not ask for are empty.

    A job that is no array, so another one under this number, is task 0.
    """
    for line in text.splitlines():
        name, *rest = line.strip().split("|", columns - 1)
        found = _TASK.fullmatch(name)
        if found and len(rest) >= 2:  # the shortest row has three columns
            missing = [""] * (columns - 1 - len(rest))
            yield found["job"], found["tasks"] or "0", found["step"] or "", [*rest, *missing]


def accounting_argv(
    jobs: tuple[JobId, ...], since: str, name: str, users: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Ask with ``-S`` because sacct otherwise begins at midnight (sacct(1), DEFAULT TIME WINDOW).

    ``-P`` because columns are cut otherwise; with the steps (no ``-X``), because they hold the memory; ``-D``
    because a task that was requeued has a row for each time it ran.
    """
    ids = ",".join(job.id for job in jobs)
    return ("sacct", "-n", "-P", "-D", *clusters(jobs), "-S", since, "-j", ids, FORMAT)


def status_argv(jobs: tuple[JobId, ...], accounts: Sequence[Accounted]) -> tuple[str, ...]:
    open_ = [task for task in accounts if task.ended and not task.outcome and task.exit_status is None]
    names = [f"{task.job_id}_{task.task}" for task in open_[:_MOST_RANGES]]
    return (*STATUSES, *clusters(jobs), "-j", ",".join(names)) if names else ()


def statuses(text: str) -> dict[tuple[str, str], int]:
    """Return the statuses in the answer to `STATUSES`, by the name of the job or task and its end."""
    found = re.findall(r"^(\d+) +(\d+|N/A) +(\d+) +(\S+) *$", text, re.MULTILINE)
    return {(f"{job}_{task}".removesuffix("_N/A"), end): int(status) >> 8 for job, task, status, end in found}


def with_status(row: dict[str, str], name: str, known: Mapping[tuple[str, str], int]) -> dict[str, str]:
    """Return a row of sacct with the job's own status, or both that it may have had.

    sacct prints a status of 128 and more less 128: 9 for 137, 73 for 201, 0 for 128 (measured).
    """
    status, _, signal = row["ExitCode"].partition(":")
    if row["State"] != "FAILED" or signal != "0" or not status.isdecimal() or int(status) >= _SIGNALLED:
        return row
    exact = known.get((name, row[END]))
    return {**row, "ExitCode": f"{status} or {int(status) + _SIGNALLED}" if exact is None else f"{exact}:0"}


def parse_accounting(answer: Completed) -> tuple[Accounted, ...] | None:
    """Return the tasks in the accounting, ``None`` if it did not answer.

    A missing task is not known *yet*: rows come up to 4.5 s late (measured). So is one that ended at an
    unknown time: what began and ended while slurmdbd was away is reported in two parts, and for 4 to 6 s is
    ``FAILED`` with status 0, whatever it ended with (measured). A requeued task has one account for each run,
    the oldest first.

    Tasks that have not begun share a row, ``12_[3-5]``; if they are cancelled it goes on naming those that
    began just before, so a task's own row, which comes some seconds later, counts more (measured).
    """
    if not answer.ok:
        return None
    found: dict[tuple[str, int], list[list[dict[str, str]]]] = {}  # its runs: a row, and those of its steps
    shared: dict[tuple[str, int], list[dict[str, str]]] = {}
    known = statuses(answer.stdout)
    for job, listed, step, (*others, last) in rows_of_tasks(answer.stdout, len(COLUMNS)):
        tail = _NAME_END.fullmatch(last)  # answers kept by an older jobkit do not have `END`
        name, end, user, at = tail.groups("") if tail else (last, "", "", "")
        row = dict(zip((*COLUMNS[1:], END, "User", "Submit"), (*others, name, end, user, at), strict=True))
        if not listed.isdecimal():
            shared |= {(job, task): [row] for task in expand_tasks(listed)}
            continue
        runs = found.setdefault((job, int(listed)), [])
        if not step:
            runs.append([with_status(row, f"{job}_{listed}", known)])
        elif runs:
            runs[-1].append(row)
    own = [_accounted(*key, *rows) for key, runs in found.items() for rows in runs]
    waited = [_accounted(*key, *rows, began=False) for key, rows in shared.items() if not found.get(key)]
    return (*own, *waited)


def _accounted(
    job: str, task: int, row: Mapping[str, str], *steps: Mapping[str, str], began: bool = True
) -> Accounted:
    word, outcome, evidence = end_of(row, steps)
    ended = word in END_STATES and row[END] != UNKNOWN
    status, signal = (number_of(part) for part in row["ExitCode"].partition(":")[::2])
    if word in END_STATES and not ended:
        evidence = f"sacct: {row['State']}, but not yet when and how"
    return Accounted(
        job_id=job,
        task=task,
        ended=ended,
        outcome=outcome if ended else None,
        exit_status=int(_SIGNALLED + signal if signal else status) if ended and status is not None else None,
        evidence=evidence,
        name=row["JobName"],
        user=row["User"],
        submitted_at=moment(row["Submit"]),
        node="" if row["NodeList"] == "None assigned" else row["NodeList"],
        max_rss_bytes=max_rss_bytes(steps),
        elapsed_s=number_of(row["ElapsedRaw"]) if ended else None,
        ended_at=moment(row[END]) if ended else None,
        never_began=ended and not began,
    )


def max_rss_bytes(steps: Iterable[Mapping[str, str]]) -> int | None:
    return max(filter(None, (bytes_of(step["MaxRSS"]) for step in steps)), default=None)


def end_of(row: Mapping[str, str], steps: Sequence[Mapping[str, str]]) -> tuple[str, Outcome | None, str]:
    """Return the whole word of a job's state, why it ended if its rows show it, and what shows it.

    Only the step may report OUT_OF_MEMORY (autosubmit#382); with ``OverMemoryKill`` no row does: the task is
    FAILED with 0:9 and only MaxRSS above ReqMem shows it (measured). Before Slurm 21.08 ReqMem is ``4Gn`` per
    node or ``2Gc`` per CPU (sacct(1)).
    """
    word = row["State"].partition(" ")[0]  # "CANCELLED by 1234"
    if word.endswith("+"):  # as in ``OUT_OF_ME+``
        word = next((state for state in END_STATES if state.startswith(word[:-1])), word)
    outcome, evidence = END_STATES.get(word), f"sacct: {row['State']}, ExitCode {row['ExitCode']}"
    required, most = bytes_of(row["ReqMem"].rstrip("nc")), max_rss_bytes(steps)
    if required is not None and row["ReqMem"].endswith("c"):
        required *= int(number_of(row["AllocCPUS"]) or 1)
    over = row["ExitCode"].endswith(":9") and required is not None and (most or 0) > required
    if over or any(step["State"].startswith("OUT_OF_ME") for step in steps):
        if most is not None:  # first, because a table cuts the end of a line
            asked = row["ReqMem"] if required is None else format_memory(required)
            used = f"MaxRSS {format_memory(most)} of ReqMem {asked}"
            evidence = f"sacct: {used}, {row['State']}, ExitCode {row['ExitCode']}"
        return word, Outcome.RAM_OOM if word == "FAILED" else outcome, evidence
    if row["State"] == "FAILED" and row["ExitCode"] == "0:53":  # measured
        no_log = f"{evidence}: the node could not open the job's log, or its working folder"
        return word, Outcome.STAGE_OUT, no_log
    return word, outcome, evidence


def checks(script: str, array: Array, request: JobRequest) -> tuple[Check, ...]:
    """Return the checks; ``--test-only`` answers on stderr, good or bad, and uses up a job id (measured)."""
    span = f"--array={array.first}-{array.last}"
    tested = f'{shlex.join(slurm_survey.STATES)}; exec sbatch --test-only "$@"'
    trial = ("sh", "-c", tested, "sbatch", *array.option_words, span, script)
    charged = ("sh", "-c", f"scontrol -o show partition; {slurm_survey.ASSOCIATIONS}", user_name())
    asked = (
        queue_check(NODES, partitions, PARTITION, nodes=True),
        Check(trial, _test_refusal, _test_outlook),
        Check(charged, _charge_refusal),
        Check(("scontrol", "-o", "show", "reservation"), protocol.nothing, _before_maintenance),
    )
    qos = Check(("sacctmgr", "-n", "-P", "show", "qos", "format=Name"), _qos_refusal)
    return (*asked, qos) if request.qos else asked


def _down(request: JobRequest, answer: Completed) -> str:
    return asked_for(request.queue, slurm_survey.states(answer.stdout).values(), PARTITION).down


def _test_refusal(request: JobRequest, answer: Completed) -> str | None:
    """Return why ``--test-only`` refuses; of nodes that are down it does, and sbatch does not (measured)."""
    if answer.ok or ("configuration is not available" in answer.said and _down(request, answer)):
        return None
    said = (line for line in answer.said.splitlines() if line.count("|") < 4)  # no row of `STATES`
    return "\n".join(["sbatch refuses the job:", *said]).replace("\n", " ", 1)


def _test_outlook(request: JobRequest, answer: Completed) -> str:
    """Return that no node is up, or when the job would start: ``sbatch: Job 5 to start at 2026-01-02T...``.

    Slurm counts every running job with its whole walltime, and knows no job that is yet to come.
    """
    if down := _down(request, answer):
        return f"{down}: jobs wait for one"
    found = re.search(r"to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", answer.said)
    start_varies = "earlier if jobs end before their walltime, later if others go first"
    return f"Slurm estimates a start at {found[1].replace('T', ' ')}: {start_varies}" if found else ""


def _before_maintenance(request: JobRequest, answer: Completed) -> str:
    """Return what walltime lets a job start before a reservation for maintenance that is to come."""
    now, said = datetime.now().astimezone(), []
    for name, row in slurm_survey.shown("Reservation", answer.stdout if answer.ok else "").items():
        start = moment(row.get("StartTime", ""))
        if "MAINT" not in row.get("Flags", "").split(",") or start is None or start <= now:
            continue
        left_s = (start - now).total_seconds() // 60 * 60
        if request.walltime_s > left_s > 0:
            nodes, below = format_count(int(row.get("NodeCnt", "0")), "node"), format_walltime(left_s)
            begins = f"{name}, maintenance of {nodes}, begins at {start:%Y-%m-%d %H:%M}"
            said.append(f"{begins}: only a walltime below {below} can start there before it")
    return "; ".join(said)


def _charge_refusal(request: JobRequest, answer: Completed) -> str | None:
    """Refuse an account that the user has not, and what the partition starts no job with."""
    known = slurm_survey.associations(answer.stdout) if answer.ok else ()
    if not known:
        return None  # as with accounting off
    names = [one.account for one in known]
    if request.account and request.account not in names:
        return str(no_such("account of yours", request.account, names, "resources.account"))
    queues = [
        slurm_survey.opened(Queue(name=name, default=row.get("Default") == "YES"), row)
        for name, row in slurm_survey.shown("Partition", answer.stdout).items()
    ]
    faults = asked_for(request.queue, queues, PARTITION).charge_faults(request, known)
    return "\n".join(map(str, faults)) or None


def _qos_refusal(request: JobRequest, answer: Completed) -> str | None:
    """Refuse a QOS that is not in the list; with accounting off there is none."""
    known, qos = answer.stdout.split() if answer.ok else [], request.qos or ""
    return str(no_such("QOS", qos, known, "resources.qos")) if known and qos not in known else None


_QUEUE_COLUMNS = "%i|%T|%r|%N|%M|%S|%j|%P|%u|%V"
"""Task, state, reason, nodes, time used, (expected) start, name, partitions, user, submission: squeue(1)."""
_MOST_RANGES = 5_000  # in one argument: Linux takes 128 KiB (execve(2)), and a range has up to 16 characters

# https://slurm.schedmd.com/squeue.html#SECTION_JOB-STATE-CODES; an end state is not in the queue.
_QUEUE_STATES = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "EXPEDITING", "REQUEUED", "REQUEUE_FED"), State.PENDING),
    **dict.fromkeys(("REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"), State.HELD),
    **dict.fromkeys(("RUNNING", "RESIZING", "SIGNALING", "SUSPENDED", "STOPPED"), State.RUNNING),
    **dict.fromkeys(("COMPLETING", "STAGE_OUT"), State.ENDING),
}


@frozen
class _Reason:
    """What a reason means: the task waits, is held, or never starts as it is (an error)."""

    state: State
    words: str
    key: str = ""  # in `resources` of the spec: what to change if it never starts
    admin: bool = False  # whether only an administrator releases it
    of_partition: bool = False  # another of the requested partitions may start the job (measured)


_waits, _held, _never = (partial(_Reason, state) for state in (State.PENDING, State.HELD, State.ERROR))
_refused = partial(_never, of_partition=True)
_LIMITS = {
    f"{limit}{part}{of}": _refused(f"requests {noun} {words}", noun.lower() if part else "")
    for limit, of, words in (
        ("qosmax", ".*per(job|node)", "above the limit of the QOS"),
        ("qosmin", "", "below the minimum of the QOS"),
        ("assocmax", ".*per(job|node)", "above the limit of the account"),
    )
    for part, noun in (
        *(("(wall|.*minutes)", "walltime"), ("cpu", "CPUs"), ("mem", "memory"), ("gres", "GPUs")),
        ("", "resources"),
    )
}
_REASONS: Mapping[str, _Reason] = {
    "jobhelduser": _held("held by its owner"),
    "jobheldadmin": _held("held by an administrator", admin=True),
    "jobholdmaxrequeue|launchfailurelimit": _held("held, because it was requeued too often", admin=True),
    "jobrequeuedin": _held("held when it was requeued"),
    "launchfailedrequeuedheld": _held("its launch failed, so Slurm holds it"),
    "userenv": _held("its login shell did not answer in time, so Slurm holds it"),
    "reservationdeleted|reservation.*wasdeleted": _held("held, because its reservation is gone"),
    "burstbuffer(resources|stagein)": _waits("waits for its burst buffer"),
    "burstbuffer": _held("held, because its burst buffer failed", admin=True),
    "badconstraints": _never("no node has what it requests", "constraint"),
    "constraints": _waits("no node has what it requests at the moment"),
    "dependencyneversatisfied": _never("its dependency can never be satisfied"),
    "invalidaccount": _never("the account is not known", "account"),
    "accountnotallowed|jobsaccountnot": _refused("the partition does not allow the account", "account"),
    "invalidqos": _never("the QOS is not known", "qos"),
    "qosnotallowed|jobsqosnot": _refused("the partition does not allow the QOS", "qos"),
    "uid.*notingroup": _refused("the partition does not allow any group of its owner", "queue"),
    "partitiontimelimit": _refused("the walltime is longer than the partition allows", "walltime"),
    "partitionnodelimit": _waits("the partition has fewer nodes than requested, or some of them are down"),
    "partitionconfig": _refused("the partition does not allow it", "queue"),
    "maxmemperlimit": _refused("requests more memory than is allowed", "memory"),
    "reservation(.*is)?invalid": _never("its reservation is not valid", "reservation"),
    "licenserequest.*nolongervalid": _never("a licence that it requests is gone", "options"),
    **_LIMITS,
    "resources": _waits("what it needs is in use"),
    "priority": _waits("other jobs are ahead of it"),
    "jobarraytasklimit": _waits("the limit of tasks at a time is reached"),
    "dependency": _waits("waits for another job to end"),
    "begintime": _waits("not before a set time, as after a requeue"),
    "joblaunchfailure": _waits("its launch failed"),
    "partitiondown": _waits("the partition is down"),
    "partitioninactive": _waits("the partition starts no jobs now"),
    "reqnodenotavailreservedformaintenance": _waits(
        "its nodes are reserved for maintenance, and a shorter walltime may start before that: "
        "scontrol show reservation"
    ),
    "reqnodenotavail|nodesrequired": _waits("the nodes that it could run on are down, drained or reserved"),
    "nodedown|frontenddown": _waits("the nodes that it could run on are down"),
    "maxpoweredupnodes|power": _waits("the limit of nodes with power is reached"),
    "reservation": _waits("waits for its reservation"),
    "licenses": _waits("waits for a licence"),
    "qos": _waits("a limit of the QOS is reached"),
    "assoc|accountingpolicy|max.*per(account|user)": _waits("a limit of the account is reached"),
    "suspended|stopped": _waits("stopped on its node until the scheduler or an administrator resumes it"),
    "cleaning": _waits("its last run is being cleaned up"),
    "prolog": _waits("its node is being made ready"),
    "mpiportsbusy|nvidiaimex": _waits("what connects its nodes is in use"),
    "scheddefer": _waits("Slurm looks at it later"),
    "systemfailure": _waits("Slurm itself failed on it"),
    "fedjoblock": _waits("waits for the other clusters to answer"),
}
"""By the beginning without spaces, underscores and capitals; the first match counts.

src/common/job_state_reason.c and slurmctld's ``state_desc``, 17.11 to 26.11. The owner releases what is held
with the reason ``WAIT_HELD_USER`` or ``WAIT_RESV_DELETED`` (src/slurmctld/job_mgr.c).
"""


@cache
def _meaning(reason: str) -> _Reason:
    """Return what a reason means; an unknown one is a wait without words."""
    plain = re.sub(r"[\W_]+", "", reason).lower()
    return next((known for start, known in _REASONS.items() if re.match(start, plain)), _waits(""))


def submit_argv(script: str, array: Array, after: Sequence[JobId] = ()) -> tuple[str, ...]:
    """Submit; ``afterany`` waits for all tasks of an array, with any outcome (sbatch(1))."""
    waits = (f"--dependency={_dependency(after)}",) if after else ()
    throttle = f"%{array.throttle}" if array.throttle else ""
    span = f"--array={array.first}-{array.last}{throttle}"
    return ("sbatch", "--parsable", *waits, *array.option_words, span, script, *array.words)


def _dependency(after: Sequence[JobId]) -> str:
    """Return the value of ``--dependency``: ``afterok:12,13`` means ``afterok:12,afterany:13`` (measured)."""
    ids = {word: ":".join(job.id for job in after if job.well is (word == "ok")) for word in ("any", "ok")}
    return ",".join(f"after{word}:{listed}" for word, listed in ids.items() if listed)


def wait_argv(job: JobId, after: Sequence[JobId]) -> tuple[str, ...]:
    return ("scontrol", *clusters((job,)), "update", f"JobId={job.id}", f"Dependency={_dependency(after)}")


def limit_argv() -> tuple[str, ...]:
    return ("scontrol", "show", "config")


identity_argv = limit_argv


def parse_identity(answer: Completed) -> SchedulerId | None:
    """Return ``ClusterName`` and each controller with its port; before 18.08 they are ``ControlMachine``."""
    lines = [line.partition("=") for line in answer.stdout.splitlines() if answer.ok]
    config = {key.strip(): text.strip() for key, _, text in lines}
    keys = r"SlurmctldHost\[\d+\]|ControlMachine|BackupController"
    hosts = [text.partition("(")[0] for key, text in config.items() if re.fullmatch(keys, key)]
    name, port = config.get("ClusterName", ""), config.get("SlurmctldPort", "")
    at = tuple(f"{host}:{port}" for host in hosts if host)
    return SchedulerId(name=name, controllers=at) if name else None


def parse_limit(answer: str) -> int | None:
    """Return the largest task index: ``MaxArraySize - 1``, or ``max_array_tasks`` if that is smaller.

    slurm.conf(5): ``MaxArraySize`` is one more than the largest index, and 0 (here: 0 too) turns arrays off;
    ``max_array_tasks`` in ``SchedulerParameters`` limits their number.
    """
    size = re.search(r"^MaxArraySize\s*=\s*(\d+)", answer, re.MULTILINE)
    number = re.search(r"^SchedulerParameters\s*=.*\bmax_array_tasks=(\d+)", answer, re.MULTILINE)
    limits = [max(int(size[1]) - 1, 0)] if size else []
    return min([*limits, *([int(number[1])] if number else [])], default=None)


def task_limit_error(answer: str, arrays: Sequence[Array]) -> str | None:
    """Return why the controller cannot hold these tasks, ``None`` if it can or has no limit.

    slurm.conf(5), ``MaxJobCount``: the most jobs that slurmctld holds, a task of an array counts as one.
    sbatch does not report it: it tries again and again.
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
    queue = ("squeue", "-r", "-h", "-o", _QUEUE_COLUMNS, "--name", name)
    return queue, ("sacct", "-n", "-P", "-D", "-S", since, "--name", name, FORMAT)


def throttle_argv(job: JobId, most: int) -> tuple[str, ...]:
    """Return the command that changes the throttle: scontrol(1), ``ArrayTaskThrottle``."""
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
    """Return the command that lists the tasks in the queue, one a line (``-r``)."""
    ids = ",".join(job.id for job in jobs)
    return ("squeue", "-r", "-h", "-o", _QUEUE_COLUMNS, *clusters(jobs), "-j", ids)


def parse_queue(answer: Completed) -> tuple[Queued, ...] | None:
    """Return the tasks in the queue, ``None`` if squeue did not answer.

    squeue ends with 1 and ``Invalid job id specified`` if it is asked for one job and has forgotten it
    (``MinJobAge`` after its end): nothing is left. Of several ids it drops unknown ones without a word
    (measured). The name may contain a bar.
    """
    if not answer.ok:
        return () if "Invalid job id specified" in answer.said else None
    tasks: list[Queued] = []
    for job, listed, _, (word, reason, node, elapsed, start, last) in rows_of_tasks(answer.stdout, 7):
        if word in END_STATES:
            continue
        tail = _NAME_PARTITIONS.fullmatch(last)
        name, partitions, user, at = tail.groups("") if tail else (last, "", "", "")
        state, known = _QUEUE_STATES.get(word, State.UNKNOWN), _meaning(reason)
        elsewhere = known.of_partition and "," in partitions
        if state in {State.PENDING, State.HELD} and known.state is not State.PENDING and not elsewhere:
            state = known.state
        suspended = word in {"SUSPENDED", "STOPPED"}
        # If another job or a person must act first, squeue may show an old begin (measured).
        no_begin = state in {State.HELD, State.ERROR} or known is _REASONS["dependency"]
        tasks += [
            Queued(
                job_id=job,
                task=task,
                state=state,
                reason=word if suspended else "" if reason == "None" else reason,
                suspended=suspended,
                name=name,
                user=user,
                submitted_at=moment(at),
                node=node,
                elapsed_s=None if state is State.PENDING else seconds_of(elapsed),
                start_at="" if start == "N/A" or no_begin else start,
            )
            for task in expand_tasks(listed)
        ]
    return tuple(tasks)


def diagnostic_argvs(jobs: tuple[JobId, ...], name: str) -> tuple[tuple[str, ...], ...]:
    ids = ",".join(job.id for job in jobs)
    return ("squeue", *clusters(jobs), "-j", ids), ("sacct", *clusters(jobs), "-j", ids)


def explain(task: Queued) -> str:
    """Return Slurm's reason and its meaning; empty without a reason."""
    words = _meaning(task.reason).words
    return f"{task.reason}: {words}" if words else task.reason


def remedy(job: JobId, tasks: tuple[int, ...], task: Queued) -> Remedy | None:
    """Return what a person can do for waiting tasks: scontrol takes ``12_[3,7-9]`` (measured)."""
    known = _meaning(task.reason)
    if task.state is not State.HELD:
        key = known.key and f"resources.{known.key}"
        allowed = re.search(r"\ballows ([\w.-]+) not ", task.reason)  # as in ``(nlp allows gpuq not normal)``
        return Remedy(key=key, value=allowed[1] if allowed else "") if task.state is State.ERROR else None
    named = ",".join(task_ranges(tasks))
    target = f"{job.id}_{named}" if named.isdecimal() else f"{job.id}_[{named}]" if named else job.id
    argv = ("scontrol", *clusters((job,)), "release", target)
    return Remedy(admin_argv=argv) if known.admin else Remedy(argv=argv)


NAME, TITLE, DIRECTIVE = "slurm", "Slurm", "#SBATCH"
PROGRAMS: tuple[str, ...] = ("sbatch",)
COMMANDS: tuple[str, ...] = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo", "sacctmgr")
RUNS_HERE = False
EXPORTS_ENVIRONMENT = True  # sbatch(1), ``--export``: all by default
CHARGES_PAGE_CACHE = NAMES_GPUS = True
MAILS_EACH_TASK = False  # without ARRAY_TASKS in --mail-type (sbatch(1))
RESERVED_OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(("--array", "-a"), "change sweep or max_parallel"),
    **dict.fromkeys(("--job-name", "-J"), "change name"),
    **dict.fromkeys(
        ("--output", "-o", "--error", "-e", "--open-mode"),
        "logs are in the run folder, which --runs-dir puts elsewhere",
    ),
    "--signal": "change warning_s in a site file",
    **dict.fromkeys(("--parsable", "--wrap"), "leave it out"),
}
FORBIDDEN_PATH_CHARS = "\\"  # sbatch expands no ``%`` after a backslash: the job gets no log (measured)
ENVIRONMENT: Mapping[str, str] = {"SLURM_BITSTR_LEN": "0"}
"""Without it lists are cut to 64 bytes (squeue(1), sacct(1))."""
CLUSTER_VARIABLES = re.compile(r"SLURM_(CONF|CLUSTERS|(?P<secret>JWT))")
ASKING_VARIABLES: Mapping[str, str] = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_PARTITION": "queue",
    "SBATCH_QOS": "qos",
}  # sbatch(1), input environment variables
LEAKING_VARIABLES = re.compile(r"SBATCH_|SLURM_(?!(CONF|CLUSTERS|JWT)$)")
"""``SBATCH_*`` are options (sbatch(1), input environment variables), ``SLURM_*`` a surrounding job's."""
JOB_VARIABLE = "SLURM_JOB_ID"
RECORDED_VARIABLES: tuple[str, ...] = ("SLURM_JOB_PARTITION", "SLURM_JOB_NODELIST", "SLURM_CPUS_PER_TASK")
BUSY_PATTERN = re.compile(r"Rate limit exceeded|Resource temporarily unavailable")
"""slurm.conf(5), ``rl_enable`` (since 23.02)."""
UNCONFIRMED_PATTERN = re.compile(
    r"Socket timed out|Zero Bytes were transmitted|Message (receive|send) failure|Connection reset"
)  # sbatch had sent the job and got no answer
JOB_ID_PATTERNS: tuple[str, ...] = (
    r"(?P<id>\d+)(?:;(?P<cluster>\S+))?",
    r".*?Submitted batch job (?P<id>\d+)(?: on cluster (?P<cluster>\S+))?",
)
OVER_PATTERN = re.compile(
    r": No error$|already finished|already completing or completed|Invalid job id specified|expired"
)  # scontrol prints a line for each task, with status 1 if one has ended (measured)
LOG_OUTCOMES: LogOutcomes = (
    (re.compile(r"slurmstepd.*CANCELLED AT \S+ DUE TO TIME LIMIT"), Outcome.TIMEOUT),
    (re.compile(r"slurmstepd.*CANCELLED AT \S+ DUE TO PREEMPTION"), Outcome.PREEMPTED),
    (re.compile(r"slurmstepd.*CANCELLED AT \S+ DUE TO NODE FAILURE"), Outcome.NODE_FAIL),
    (re.compile(r"slurmstepd.*CANCELLED AT \S+ DUE TO JOB REQUEUE"), Outcome.CANCELLED),
    (re.compile(r"(?i)detected \d+ oom[-_ ]kill event|killed by the cgroup out-of-memory"), Outcome.RAM_OOM),
    (re.compile(r"slurmstepd.*[Ee]xceeded (job|step)?\s*memory limit"), Outcome.RAM_OOM),
    (re.compile(r"slurmstepd.*CANCELLED AT \S+"), Outcome.CANCELLED),
)  # src/slurmd/slurmstepd/req.c; seen with 22.05.8
LOG_FAULT = re.compile(r"slurmstepd\S*: |srun: ")
resource_names = protocol.no_command
slots = protocol.one_slot
shut_argv = protocol.no_command
shut_reason = protocol.no_reason
