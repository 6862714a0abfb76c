"""Grid Engine: qsub, qstat, qacct, qdel. The names are those of `jobkit.schedulers.protocol.Scheduler`.

Man pages of Son of Grid Engine 8.1.9 (qsub.1, qstat.1, qacct.1, sge_status.5, accounting.5, sge_conf.5):
https://manpages.debian.org/bookworm/gridengine-common/. "Measured" is that version; the answers stand in
tests/data/sge/. Every attempt has an accounting record; the last one counts. Flags are those of
sge_status(5); qmod(1) clears an error, qrls(1) releases a hold.

``qsub -w v`` finds unknown queues, resources, projects and parallel environments, and too much of a
consumable, on an empty cluster (``-verify`` ends with 0 for a queue that does not exist; measured). It does
not always name the value to change, so qconf is asked as well.
"""

from __future__ import annotations

import calendar
import contextlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import chain

from jobkit.core.paths import user_name
from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.core.units import format_list, format_memory
from jobkit.schedulers import protocol, sge_lint, sge_survey
from jobkit.schedulers.parsing import bytes_of, expand_tasks, seconds_of, task_ranges
from jobkit.schedulers.sge_survey import shut_queues
from jobkit.schedulers.survey import no_such, queue_check
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

lint, parse_survey, survey_argvs = sge_lint.lint, sge_survey.parse_survey, sge_survey.survey_argvs


KEYS = frozenset(
    {"qname", "owner", "jobname", "jobnumber", "taskid", "start_time", "end_time", "granted_pe", "slots"}
    | {"failed", "exit_status", "ru_wallclock", "ru_maxrss", "cpu", "maxvmem", "category"}
    | {"hostname", "pe_taskid", "submit_cmd", "submit_cmd_line", "qsub_time", "project"}
)  # the lines of a record that are read: an accounting may have millions of them

# sge_status(5), "failed".
_LIMIT = 37
# Most of these tasks were never started. 30 is an exit status of 100, which puts the task in error (Eqw); if
# it has left the queue since, a user deleted it there, and no record reports that (measured).
_FAILED: Mapping[int, Outcome] = {
    **dict.fromkeys((*range(1, 12), 21, *range(26, 37), 38), Outcome.QUEUE_ERROR),
    **dict.fromkeys((18, 19), Outcome.NODE_FAIL),
}


def accounting_argv(
    jobs: tuple[JobId, ...], since: str, name: str, users: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Ask by the name that all arrays share.

    qacct takes one ``-j``: of ``-j 1,2`` it answers the 1 with status 0; for a name it answers every job that
    had it (measured). It accepts one owner (qacct(1), ``-o``), so for several names or owners jobkit asks
    about all jobs since then, of the owner or of all users. ``-b`` is the time of the start: a start that
    failed has none, and only the name finds its record (measured).
    """
    if name:
        return ("qacct", "-j", name)
    start = datetime.fromisoformat(since).strftime("%Y%m%d%H%M")
    owners = users or (user_name(),)
    return ("qacct", *(("-o", owners[0]) if len(owners) == 1 else ()), "-b", start, "-j")


def parse_accounting(answer: Completed) -> tuple[Accounted, ...] | None:
    """Return the tasks in the accounting; ``job name ... not found`` (status 1) is an answer: nothing yet.

    Records come up to ``accounting_flush_time`` late (15 s by default, sge_conf(5)). A task that was deleted
    while it waited never has one (measured); a task that ran again has one for each run, the oldest first.
    """
    if not answer.ok:
        return () if re.search(r"error: .* not found", answer.said) else None
    return tuple(
        _accounted(record)
        for record in records(answer.stdout.splitlines())
        if record.get("taskid", "").isdigit() and record.get("jobnumber", "").isdigit()
    )


def records(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Yield the records one by one: lines of ``key  value`` between rows of ``=``."""
    record: dict[str, str] = {}
    for line in chain(lines, ("====",)):
        if line.startswith("====") and "jobnumber" in record:
            yield record
            record = {}
        elif not line.startswith("="):
            key, _, value = line.partition(" ")
            if key in KEYS:
                record[key] = " ".join(value.split())


def _accounted(record: Mapping[str, str]) -> Accounted:
    ended, outcome, evidence = end_of(record)
    return Accounted(
        job_id=record["jobnumber"],
        task=int(record["taskid"]),
        ended=ended,
        outcome=outcome,
        exit_status=_number(record.get("exit_status")),
        evidence=evidence,
        name=record.get("jobname", ""),
        user=record.get("owner", ""),
        submitted_at=moment(record.get("qsub_time", "")),
        node=record.get("hostname", ""),
        max_rss_bytes=max_rss_bytes(record),
        elapsed_s=elapsed_s(record),
        ended_at=moment(record.get("end_time", "")),
    )


def max_rss_bytes(record: Mapping[str, str]) -> int | None:
    """Return the memory of a process: KiB, printed as bytes (293.883KB for 300,000,000 bytes, measured)."""
    return (bytes_of(record.get("ru_maxrss", "")) or 0) * 1024 or None


def end_of(record: Mapping[str, str]) -> tuple[bool, Outcome | None, str]:
    """Return whether a job has ended for good, why if the record shows it, and the words that show it."""
    failed = _number(record.get("failed"))
    status = _number(record.get("exit_status"))
    ended = failed not in {24, 25}  # with these the task will run again: sge_status(5), "failed"
    outcome, why = _outcome(record, failed, status) if ended else (None, "")
    words = f"qacct: failed {record.get('failed', '?')}, exit_status {record.get('exit_status', '?')}"
    return ended, outcome, f"{words}; {why}" if why else words


def _outcome(record: Mapping[str, str], failed: int | None, status: int | None) -> tuple[Outcome | None, str]:
    """Return why the task ended, if the record shows it, and the figures that show it.

    137 is a SIGKILL by qdel, by h_rt or by h_vmem alike, and "the reason is only in the messages file"
    (accounting(5)): so the figures are compared with the limits. A qdel looks like a ``kill -9`` (both
    ``failed 100``, measured), so neither is called cancelled.
    """
    if shown := _FAILED.get(failed or 0):
        return shown, ""
    # Univa's and Altair's codes above 38, such as ``44 : execd enforced h_rt limit``
    if enforced := re.search(r"enforced [hs]_(?:(rt)|data|rss|vmem) limit", record.get("failed", "")):
        return (Outcome.TIMEOUT if enforced[1] else Outcome.RAM_OOM), ""
    if status != 128 + 9 and failed != _LIMIT:
        return None, ""
    asked = requested(record)
    used_s, limit_s = elapsed_s(record), seconds_of(asked.get("h_rt", ""))
    if used_s is not None and limit_s is not None and used_s >= limit_s:
        return Outcome.TIMEOUT, f"ran {used_s:g} s of h_rt {limit_s:g} s"
    used, limit = bytes_of(record.get("maxvmem", "")), bytes_of(asked.get("h_vmem", ""))
    slots = _number(record.get("slots")) or 1  # h_vmem is a slot's (consumable YES, complex(5))
    if used is not None and limit is not None and used >= limit * slots:
        of = f"h_vmem {format_memory(limit)}{f' x {slots} slots' if slots > 1 else ''}"
        return Outcome.RAM_OOM, f"maxvmem {format_memory(used)} of {of}"
    return (Outcome.TIMEOUT, "") if failed == _LIMIT else (None, "")


def requested(record: Mapping[str, str]) -> dict[str, str]:
    """Return the resources of a job's category, ``-q x -l h_rt=60,h_vmem=2G`` (accounting(5)).

    Univa's qacct prints the command line in its place, and the Open Cluster Scheduler's with another key,
    without the header lines of the script.
    """
    keys = ("category", "submit_cmd", "submit_cmd_line")
    words = next(filter(None, map(record.get, keys)), None) or ""
    found = re.findall(r"(?:^|\s)-l\s+(\S+)", re.sub(r"-soft\s.*?(?=\s-hard|$)", "", words))
    return dict(re.findall(r"([^,=]+)=([^,]*)", ",".join(found)))


def _number(text: str | None) -> int | None:
    found = re.match(r"\d+", text or "")
    return int(found[0]) if found else None


def elapsed_s(record: Mapping[str, str]) -> float | None:
    """Return the wall time; ru_wallclock may be 0 if ``failed`` is not (accounting(5))."""
    wall = seconds_of(record.get("ru_wallclock", ""))
    if wall:
        return wall
    begin, end = (moment(record.get(key, "")) for key in ("start_time", "end_time"))
    return (end - begin).total_seconds() if begin and end else wall


_MONTHS = {name: f"{month:02}" for month, name in enumerate(calendar.month_abbr)}


def moment(text: str) -> datetime | None:
    """Return a time of qacct; ``None`` for ``-/-`` and any other text."""
    # Sun's are ``Thu Nov 26 00:29:25 2026``, the Open Cluster Scheduler's ISO 8601, Univa's neither
    if len(words := text.split()) == 5:
        text = f"{words[4]}-{_MONTHS.get(words[1])}-{words[2]:0>2}T{words[3]}"
    with contextlib.suppress(ValueError, OverflowError):
        return datetime.fromisoformat(text).astimezone()
    for form in ("%m/%d/%Y %H:%M:%S.%f", "%m/%d/%Y %H:%M:%S"):
        with contextlib.suppress(ValueError, OverflowError):
            return datetime.strptime(text, form).astimezone()
    return None


def resource_names(directives: Sequence[str]) -> tuple[str, ...]:
    """Return the resources that header lines request by name: ``-l h_vmem=8G,ngpus=1`` (qsub(1))."""
    lists = re.findall(r"(?:^|\s)-l\s+(\S+)", "\n".join(directives))
    return tuple(word.partition("=")[0] for words in lists for word in words.split(","))


def slots(directives: Sequence[str], cpus: int) -> int:
    """Return how many slots a job takes: one without a parallel environment (qsub(1), ``-pe``)."""
    return cpus if any("-pe " in line for line in directives) else 1


def submit_words(script: str, array: Array) -> tuple[str, ...]:
    """Return what follows the options of qsub: the array, its throttle, the script and its offset."""
    throttle = ("-tc", str(array.throttle)) if array.throttle else ()
    return (*array.option_words, "-t", f"{array.first}-{array.last}", *throttle, script, *array.words)


def checks(script: str, array: Array, request: JobRequest) -> tuple[Check, ...]:
    """Return the checks before a submission; ``-w v`` uses up a job id."""
    del request
    return (
        queue_check(sge_survey.QUEUES, sge_survey.queues, sge_survey.QUEUE, limit=sge_survey.WALLTIME),
        Check(sge_survey.RESOURCES, _resource_refusal),
        Check(sge_survey.INSTANCES, _slots_refusal),
        Check(("qsub", "-w", "v", *OVER_DEFAULTS, *submit_words(script, array)), _verify_refusal),
    )


def _slots_refusal(request: JobRequest, answer: Completed) -> str | None:
    """Refuse more slots than a host of the queues has, and the exclusion of all hosts.

    ``-w v`` does not report what there is, and accepts any exclusion next to a load value. Memory is no
    reason: ``h_vmem`` is a limit, not space on the host.
    """
    asked = sge_survey.queues_on_hosts(answer.stdout if answer.ok else "", request.queue)
    hosts = [kind.names for queue in asked.queues for kind in queue.kinds]
    if hosts and all(any(fnmatchcase(host, word) for word in request.exclude) for host in hosts):
        return (
            f"{asked.where} has no host but {', '.join(hosts)}, which is excluded (change resources.exclude)"
        )
    fault = asked.node_fault(replace(request, cpus=request.slots, gpus=0))
    return str(fault) if fault else None


def _resource_refusal(request: JobRequest, answer: Completed) -> str | None:
    rows = [line.split() for line in answer.stdout.splitlines() if not line.startswith("#")]
    known = {name for row in rows for name in row[:2]}  # the name and its shortcut (complex(5))
    if not answer.ok or not known:
        return None
    unknown = [name for name in request.resources if name not in known]
    key = "the site file or resources.options"
    return "\n".join(str(no_such("resource", name, known, key)) for name in unknown) or None


def _verify_refusal(request: JobRequest, answer: Completed) -> str | None:
    """Read ``qsub -w v``: it prints success on stdout and refusals on stderr (measured).

    It ignores load values (qsub(1)): for a load value such as ``mem_free`` it reports that no queue is
    suitable, whatever else is requested (measured). It still refuses unknown names. It assumes that all
    queues are empty (qsub(1)), but not of an exclusive resource: while any job runs on a host, it refuses
    that host, and says nothing of the rest of the request (8.1.9, measured).
    """
    # of the standard load values (complex(5)) those that jobs ask for
    load_values = frozenset(
        f"{what}_{how}" for what in ("mem", "virtual", "swap") for how in ("free", "total", "used")
    )
    if answer.ok or ("no suitable queues" in answer.said and not load_values.isdisjoint(request.resources)):
        return None
    if re.search(r"because exclusive resource \(\S+\) is already in use", answer.said):
        return None
    said = [line for line in answer.said.splitlines() if line.strip() != "Exiting."]
    return "qsub refuses the job: " + "\n".join(said).removeprefix("Unable to run job: ")


# sge_status(5): a state is a string of flags; the first flag of this table that it holds decides. N and P are
# Univa's and Altair's: qmod(1), -p, which stops a job until the other job has ended.
_FLAGS: Mapping[str, tuple[State, str]] = {
    "E": (State.ERROR, "could not be started, or its script ended with 100; qstat -j {job} shows why"),
    "d": (State.ENDING, "being deleted"),
    **dict.fromkeys("NP", (State.RUNNING, "preempted: suspended until its resources are free again")),
    "s": (State.RUNNING, "suspended"),
    "S": (State.RUNNING, "its queue is suspended"),
    "T": (State.RUNNING, "its queue is suspended by an alarm"),
    "r": (State.RUNNING, ""),
    "t": (State.RUNNING, ""),
    "h": (
        State.HELD,
        "held by its owner, by an operator (who types qrls -h os {job}), or until another job ends",
    ),
    "q": (State.PENDING, ""),
    "z": (State.ENDING, ""),
}


OVER_DEFAULTS = ("-b", "n", "-now", "n")
"""Over lines of a sge_request file (sge_request(5)): with ``-b y`` qsub reads no header of the script."""


def submit_argv(script: str, array: Array, after: Sequence[JobId] = ()) -> tuple[str, ...]:
    """Submit; ``-terse`` may be ignored in a header, and ``-hold_jid`` waits for all tasks (qsub(1))."""
    waits = ("-hold_jid", ",".join(job.id for job in after)) if after else ()
    return ("qsub", "-terse", *OVER_DEFAULTS, *waits, *submit_words(script, array))


def wait_argv(job: JobId, after: Sequence[JobId]) -> tuple[str, ...]:
    return ("qalter", "-hold_jid", ",".join(one.id for one in after), job.id)


def identity_argv() -> tuple[str, ...]:
    """Return the command that prints the cell's folder as the shell names it, and the hosts of its master.

    act_qmaster names the master, and shadow_masters those that take over: sge_qmaster(8), sge_shadowd(8).
    """
    show = 'echo "$cell"; cat "$cell/common/act_qmaster" && { cat "$cell/common/shadow_masters"; true; }'
    return ("sh", "-c", f'cell="${{SGE_ROOT%/}}/${{SGE_CELL:-default}}"; {show}')


def parse_identity(answer: Completed) -> SchedulerId | None:
    cell, *hosts = answer.stdout.splitlines() if answer.ok else [""]
    at = tuple(dict.fromkeys(host.strip() for host in hosts if host.strip()))
    return SchedulerId(name=cell, controllers=at) if at else None


def limit_argv() -> tuple[str, ...]:
    return ("qconf", "-sconf")


def parse_limit(answer: str) -> int | None:
    """Return ``max_aj_tasks``; 0 is no limit (sge_conf(5)), and ``None`` here."""
    found = re.search(r"^max_aj_tasks\s+(\d+)", answer, re.MULTILINE)
    return (int(found[1]) or None) if found else None


def task_limit_error(answer: str, arrays: Sequence[Array]) -> str | None:
    """Return why the controller cannot hold these arrays, ``None`` if it can or has no limit.

    ``max_jobs`` is for all users, ``max_u_jobs`` for each; 0 is no limit, and an array counts as one job
    (sge_conf(5)). ``max_aj_instances`` only limits how many tasks run at a time.
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
    return queue_argv(()), accounting_argv((), since, name)


def throttle_argv(job: JobId, most: int) -> tuple[str, ...]:
    """Return the command that changes the throttle: qalter(1), ``-tc``; 0 is no limit."""
    return ("qalter", "-tc", str(most), job.id)


def cancel_argv(job: JobId, tasks: tuple[int, ...] = ()) -> tuple[str, ...]:
    """Return the command that deletes a job, or only some of its tasks: ``12.7``, ``12.1-5 12.9``.

    qdel ends with 1 and ``denied: job "..." does not exist`` if nothing is left (measured). Its ``-t`` is
    documented for one range only (qdel(1)).
    """
    return ("qdel", *([f"{job.id}.{part}" for part in task_ranges(tasks)] or [job.id]))


def queue_argv(jobs: tuple[JobId, ...], users: tuple[str, ...] = ()) -> tuple[str, ...]:
    """List all jobs of their owners: with ids qstat shows no states.

    Without ``-g d``, so that pending tasks are one row with all their ranges, never cut (measured with 200
    tasks in 24 ranges). ``-s`` replaces that of a sge_qstat file (sge_qstat(5)), without ``z``, ended jobs.
    """
    return ("qstat", "-s", "prs", "-u", ",".join(users) or user_name(), "-xml")


def diagnostic_argvs(jobs: tuple[JobId, ...], name: str) -> tuple[tuple[str, ...], ...]:
    ids = ",".join(job.id for job in jobs)
    return ("qstat", "-j", ids), accounting_argv(jobs, "", name)


def parse_queue(answer: Completed) -> tuple[Queued, ...] | None:
    """Return all array tasks of the owners in the queue, ``None`` if qstat did not answer.

    Running tasks stand in ``queue_info``, pending ones and those in error in ``job_info``, also of other
    jobs. A finished job is in no list: gone is not done.
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
            job_id=job,
            task=task,
            state=state,
            reason=reason,
            name=row.findtext("JB_name", "").strip(),
            user=row.findtext("JB_owner", "").strip(),
            submitted_at=moment(row.findtext("JB_submission_time", start).strip()),
            node=row.findtext("queue_name", "").strip().partition("@")[2],
            start_at=start,
            suspended=state is State.RUNNING and bool(reason),
        )
        for row in rows
        for job in [row.findtext("JB_job_number", "").strip()]
        for start in [row.findtext("JAT_start_time", "").strip()]
        for state, reason in [_state(row.findtext("state", "").strip(), job)]
        for task in expand_tasks(row.findtext("tasks", "").strip() or "0")  # a job that is no array
    )


def _state(flags: str, job: str) -> tuple[State, str]:
    """Return the state of a string of flags, and the reason with the flags as qstat shows them."""
    state, why = next(
        (meaning for flag, meaning in _FLAGS.items() if flag in flags), (State.UNKNOWN, "unknown")
    )
    return state, f"{flags}: {why.format(job=job)}" if why else ""


def shut_argv() -> tuple[str, ...]:
    """Return the command that lists the queue instances with their states (qstat(1), -f)."""
    return ("qstat", "-f")


def shut_reason(answer: Completed) -> str:
    """Return which queues start no job, and what clears the error; nothing if none is in error.

    An instance in error stays so until an administrator clears it (qmod(1), -cq), and ``qstat`` lists its
    jobs like any that wait (measured: a prolog that fails).
    """
    queues = shut_queues(answer.stdout if answer.ok else "")
    names = [name for shut in queues.values() for name, why in shut.items() if "in error" in why]
    if not names:
        return ""
    most = 3
    closed = format_list(list(dict.fromkeys(name.partition("@")[0] for name in names)), most)
    clear = shlex.join(["qmod", "-cq", *names]) if len(names) <= most else "qmod -cq '*'"
    none = (
        "no queue starts a job" if all(queues.values()) else f"waits for a free slot; {closed} starts no job"
    )
    return f"{none} until an administrator types: {clear}"


def explain(task: Queued) -> str:
    """Return the flags and their meaning; only ``qstat -j`` shows why a task is in error (measured)."""
    return task.reason or ("waits for a free slot, or its turn" if task.state is State.PENDING else "")


def remedy(job: JobId, tasks: tuple[int, ...], task: Queued) -> Remedy | None:
    """Return what a person can do for waiting tasks, ``12.3-5`` (sge_types(1), job_task_list; measured)."""
    command = {State.ERROR: ("qmod", "-cj"), State.HELD: ("qrls",)}.get(task.state)
    if command is None:
        return None
    return Remedy(argv=(*command, *([f"{job.id}.{part}" for part in task_ranges(tasks)] or [job.id])))


NAME, TITLE, DIRECTIVE = "sge", "Grid Engine", "#$"
PROGRAMS: tuple[str, ...] = ("qsub", "qconf")  # ``qsub`` alone may be PBS's
COMMANDS: tuple[str, ...] = ("qsub", "qstat", "qacct", "qdel", "qconf", "qalter")
RUNS_HERE = False
EXPORTS_ENVIRONMENT = False  # qsub(1): only with ``-V``
CHARGES_PAGE_CACHE = NAMES_GPUS = False
MAILS_EACH_TASK = True  # measured
RESERVED_OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(("-t", "-tc"), "change sweep or max_parallel"),
    "-N": "change name",
    **dict.fromkeys(
        ("-o", "-e", "-j", "-cwd", "-wd"), "logs are in the run folder, which --runs-dir puts elsewhere"
    ),
    "-notify": "change warning_s in a site file for an earlier warning",
    **dict.fromkeys(("-S", "-r", "-terse"), "leave it out"),
}
FORBIDDEN_PATH_CHARS = "\\'\"$,"  # qsub drops quotes and expands ``$``: the job gets no log (measured)
ENVIRONMENT: Mapping[str, str] = {"SGE_SINGLE_LINE": "1"}  # qconf prints each value on one line (qconf(1))
CLUSTER_VARIABLES = re.compile(r"SGE_(ROOT|CELL|QMASTER_PORT|EXECD_PORT|CLUSTER_NAME)")
LEAKING_VARIABLES = protocol.NEVER
ASKING_VARIABLES: Mapping[str, str] = {}
JOB_VARIABLE = "JOB_ID"
RECORDED_VARIABLES: tuple[str, ...] = ("QUEUE", "NSLOTS")
BUSY_PATTERN = re.compile(
    r"Connection refused|got send error|gdi request rejected|denied: .* currently overloaded"
)  # nothing was sent
UNCONFIRMED_PATTERN = re.compile(r"failed receiving gdi request|got read error|timeout")
"""qsub had sent the job and got no answer."""
JOB_ID_PATTERNS: tuple[str, ...] = (
    r"(?P<id>\d+)(?:\.\d+-\d+:\d+)?",
    r".*?Your job(?:-array)? (?P<id>\d+)\b.*",
)
OVER_PATTERN = re.compile(
    r"job \"?\d+\"?( task \"\d+\")? (does not exist|is already in deletion)|has (registered|deleted)"
)  # qdel prints a line for each task, with status 1 if one has ended (measured)
LOG_OUTCOMES: LogOutcomes = ()
LOG_FAULT = protocol.NEVER
status_argv = protocol.no_command
