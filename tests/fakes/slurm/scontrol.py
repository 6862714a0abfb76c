"""scontrol: show config, show partition in lines, and ping."""

from __future__ import annotations

import re

from tests.fakes.common.entry import Answer, Refused
from tests.fakes.common.store import Store
from tests.fakes.common.text import captured, clock_words
from tests.fakes.slurm.options import parse_anywhere
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
    if words == ["ping"]:
        return Answer("Slurmctld(primary) at login is UP\n")
    if words == ["show", "config"]:
        return Answer(_config(store))
    if words == ["show", "partition"]:
        return Answer(_in_lines("".join(map(_partition, PARTITIONS))))
    raise Refused(f"the fake has no scontrol {words}\n")


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
