"""scontrol: show config and partition; update, hold, release, requeue, ping."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.fakes.common.entry import Answer, Refused
from tests.fakes.common.model import PENDING, Job, Task
from tests.fakes.common.store import Store
from tests.fakes.common.text import captured, clock_words, numbers
from tests.fakes.slurm.options import Options, parse_anywhere
from tests.fakes.slurm.rows import clusters, listed
from tests.fakes.slurm.rules import stop
from tests.fakes.slurm.site import CPUS, GPUS, MAX_TIME_MIN, MEMORY_MB, NODES, PARTITIONS

SHORT = {"M": "clusters", "o": "oneliner", "a": "all"}
FLAGS = ("oneliner", "all")
VALUES = ("clusters", "cluster")
_PARTITION = """\
PartitionName={name}
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   AllocNodes=ALL Default={default} QoS=N/A
   DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO
   MaxNodes=UNLIMITED MaxTime={limit} MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED
   Nodes=n[1-2]
   PriorityJobFactor=1 PriorityTier={tier} RootOnly=NO ReqResv=NO OverSubscribe=NO
   OverTimeLimit=NONE PreemptMode={preempt}
   State=UP TotalCPUs={cpus} TotalNodes=2 SelectTypeParameters=NONE
   JobDefaults=(null)
   DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED
   TRES=cpu={cpus},mem={memory}M,node=2,billing={cpus},gres/gpu={gpus}

"""


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of scontrol."""
    asked = parse_anywhere("scontrol", arguments, VALUES, FLAGS, SHORT)
    words = asked.rest or [""]
    verb = words[0].lower()
    if verb == "ping":
        return Answer("Slurmctld(primary) at login is UP\n")
    if verb == "show":
        answer = _show(store, words[1:])
        return Answer(_in_lines(answer.out)) if "oneliner" in asked else answer
    if verb == "update":
        return _update(store, asked, words[1:])
    acts: dict[str, Callable[[Store, Job, Task], str]] = {
        "hold": _hold, "release": _release, "requeue": _requeue,
    }  # fmt: skip
    if verb not in acts:
        raise Refused(f"invalid keyword: {verb}\n")
    unknown = f"Invalid job id specified for job {words[1]}\n"
    more = "slurm_suspend error: Invalid job id specified\n" if verb != "requeue" else ""
    return _each(store, asked, words[1], acts[verb], unknown + more)


def _show(store: Store, words: list[str]) -> Answer:
    what, _, name = words[0].lower().partition("=")
    name = name or (words[1] if len(words) > 1 else "")
    if what == "config":
        return Answer(_config(store))
    if what in {"job", "jobid", "jobs"}:
        raise Refused("slurm_load_jobs error: Invalid job id specified\n")  # of no job it tells more
    if what.startswith("partition"):
        return Answer("".join(_partition(partition) for partition in PARTITIONS if name in {"", partition}))
    raise Refused(f"invalid entity: {words[0]} for keyword: show\n")


def _in_lines(text: str) -> str:
    """Return each record on a line of its own."""
    records = [" ".join(line.strip() for line in record.splitlines()) for record in text.split("\n\n")]
    return "".join(f"{record}\n" for record in records if record.strip())


def _config(store: Store) -> str:
    """Return what the real scontrol printed, with this cluster's own settings in it."""
    text = captured("slurm", "config")
    changed = {
        "ClusterName": store.settings["cluster"],
        "KillWait": f"{store.settings['kill_wait_s']:.0f} sec",
        "MaxArraySize": store.settings["max_array_size"],
        "MaxJobCount": store.settings["max_job_count"],
        "MinJobAge": f"{store.settings['min_job_age_s']:.0f} sec",
    }
    for key, value in changed.items():
        text = re.sub(rf"^({key}\s*= ).*", rf"\g<1>{value}", text, flags=re.MULTILINE)
    if store.fault("accounting_off"):
        text = re.sub(
            r"^(AccountingStorageType\s*= ).*", r"\g<1>accounting_storage/none", text, flags=re.MULTILINE
        )
    return text


def _partition(name: str) -> str:
    return _PARTITION.format(
        name=name,
        default="YES" if name == PARTITIONS[0] else "NO",
        tier=10 if name == "high" else 1,
        preempt="OFF" if name == "high" else "REQUEUE",
        limit=clock_words(60 * MAX_TIME_MIN, long=True),
        cpus=CPUS * len(NODES),
        memory=MEMORY_MB * len(NODES),
        gpus=GPUS * len(NODES),
    )


def _update(store: Store, asked: Options, words: list[str]) -> Answer:
    values = {key.lower(): value for key, _, value in (word.partition("=") for word in words)}
    if "jobid" not in values:
        raise Refused("No valid entity in update command\n")

    def act(store: Store, job: Job, task: Task) -> str:
        if task.over:  # not so one that never began (seen)
            return "Job has already finished" if task.single else "No error"
        if "arraytaskthrottle" in values:
            job.throttle = int(values["arraytaskthrottle"])
        if "starttime" in values:
            task.begin = store.clock()
        return "No error"

    return _each(store, asked, values["jobid"], act, f"Invalid job id specified for job {values['jobid']}\n")


def _each(
    store: Store,
    asked: Options,
    name: str,
    act: Callable[[Store, Job, Task], str],
    unknown: str,
) -> Answer:
    """Do something to every task that is named; where it cannot be done to all, say to which (seen)."""
    number, _, index = name.partition("_")
    names = clusters(store, "scontrol", asked.get("clusters", asked.get("cluster", "")))
    job = store.state.job(int(number)) if number.isdecimal() else None
    if job is None or job.cluster not in names:
        raise Refused(unknown)
    wanted = set(numbers(index.strip("[]"))) if index else {task.number for task in job.tasks}
    # One that was cancelled before it began is not known any more (seen).
    tasks = [task for task in job.tasks if task.number in wanted and not task.gone]
    if not tasks:
        raise Refused(f"{name}: Invalid job id specified\n")
    said: dict[str, list[Task]] = {}
    for task in tasks:
        said.setdefault(act(store, job, task), []).append(task)
    if set(said) == {"No error"}:
        return Answer()
    lines = [
        f"{job.id}_{listed([task.number for task in found])}: {words}\n" for words, found in said.items()
    ]
    return Answer("", "".join(lines), 1)


def _hold(store: Store, job: Job, task: Task) -> str:
    del store, job
    if task.over:
        return "Job has already finished"
    task.held = "admin"
    return "No error"


def _release(store: Store, job: Job, task: Task) -> str:
    del store, job
    if task.over:
        return "Job has already finished"
    task.held = ""
    return "No error"


def _requeue(store: Store, job: Job, task: Task) -> str:
    """Requeue a task; one that has ended runs again too, while the controller remembers it (seen)."""
    if task.live:
        stop(store, job, task, "requeued")
    elif task.over and task.runs:
        task.runs[-1].word = "REQUEUED"
        task.state, task.word, task.node = PENDING, "", ""
        task.restarts += 1
        task.submitted = store.clock()
        task.begin = task.submitted + store.settings["requeue_delay_s"]
    elif task.over:
        return "Job has already finished"
    return "No error"
