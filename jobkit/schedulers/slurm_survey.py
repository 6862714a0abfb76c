"""A Slurm site: its partitions, limits and accounts, and whether it keeps account of jobs.

Man pages: sinfo(1), scontrol(1), sacct(1), sacctmgr(1), slurm.conf(5), gres.conf(5). "Measured" is Slurm
22.05.8; the answers stand in tests/data/slurm/.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from jobkit.core.paths import user_name
from jobkit.schedulers.parsing import bytes_of, seconds_of
from jobkit.schedulers.survey import (
    AccountingStatus,
    Answers,
    Association,
    Nodes,
    Queue,
    Survey,
    text_of,
    unanswered,
)

PARTITION = "partition"
# -a: hidden partitions too; -e: a line for each kind of node. %P name, %l MaxTime, %G GRES, %a up or
# down, %D nodes of this kind, %c CPUs and %m MiB of one of them (sinfo(1)).
NODES = ("sinfo", "-a", "-e", "-h", "-o", "%P|%l|%G|%a|%D|%c|%m")
# %T state, %N names, %E why (sinfo(1)).
STATES = ("sinfo", "-a", "-h", "-o", "%P|%D|%T|%N|%E")

CONTROLLER, CONFIG = "controller", "config"


def survey_argvs(answers: Answers) -> Mapping[str, tuple[str, ...]]:
    """Ask ``scontrol ping`` first: it reports a dead controller at once, ``sinfo`` after 9 s (measured)."""
    first = {CONTROLLER: ("scontrol", "ping"), "version": ("sinfo", "--version")}
    if CONTROLLER not in answers or not answers[CONTROLLER].ok:
        return first
    return {
        **first,
        CONFIG: ("scontrol", "show", "config"),
        "nodes": NODES,
        "states": STATES,
        # Without -a: those that this user may see (scontrol(1)).
        "partitions": ("scontrol", "-o", "show", "partition"),
        "sacct": ("sacct", "-n", "-P", "-X", "-S", "now"),
        "accounts": ("sh", "-c", ASSOCIATIONS, user_name()),
    }


ASSOCIATIONS = (
    'sacctmgr -n -P show user "$0" withassoc format=DefaultAccount,Account,DefaultQOS,QOS && '
    "{ sacctmgr -n -P show assoc where user= format=Account,ParentName,User; true; }"
)
"""Prints the accounts of the user ``$0``, then the parent of each account there is."""


def associations(text: str) -> tuple[Association, ...]:
    """Return what `ASSOCIATIONS` prints, each account once."""
    rows = [line.strip().split("|") for line in text.splitlines()]
    parents = {row[0]: row[1] for row in rows if len(row) == 3}

    def above(account: str) -> Iterator[str]:
        seen = {account}
        while (account := parents.get(account, "")) and account not in seen:
            seen.add(account)
            yield account

    charged = {row[1]: [*row, "", ""] for row in rows if len(row) in {2, 4} and row[1]}
    return tuple(
        Association(
            account=name,
            default=name == row[0],
            above=tuple(above(name)),
            default_qos=row[2],
            qos=tuple(filter(None, row[3].split(","))),
        )
        for name, row in charged.items()
    )


def parse_survey(answers: Answers) -> Survey:
    silent = unanswered(answers)
    nodes, now = text_of(answers, "nodes"), states(text_of(answers, "states") or "")
    known = {
        name: replace(one, down=now.get(name, one).down) for name, one in partitions(nodes or "").items()
    }
    if (access := text_of(answers, "partitions")) is not None:
        rows = shown("Partition", access)
        known = {name: opened(queue, rows.get(name)) for name, queue in known.items()}
    limits = text_of(answers, CONFIG) or ""
    pairs = (line.partition("=") for line in limits.splitlines())
    config = {name.strip(): value.strip() for name, sign, value in pairs if sign}
    accounts = text_of(answers, "accounts")
    charged = None if accounts is None else associations(accounts)
    return Survey(
        product="Slurm",
        queue_noun=PARTITION,
        walltime_noun="MaxTime",
        version=(text_of(answers, "version") or "").rpartition(" ")[2].strip(),  # slurm 23.11.4
        trouble=silent.get(CONTROLLER, ""),
        cluster=config.get("ClusterName", ""),
        queues=None if nodes is None else tuple(known.values()),
        limits=limits,
        keeping=_keeping(answers, config),
        accounts=None if charged is None else tuple(one.account for one in charged),
        associations=charged,
        account=next((one.account for one in charged or () if one.default), ""),
        must_charge="associations" in config.get("AccountingStorageEnforce", ""),
        sources={"queues": "sinfo, scontrol show partition", "accounts": "sacctmgr show user"},
        silent=silent,
    )


def partitions(text: str) -> dict[str, Queue]:
    """Return the partitions by name, by the largest node of each, from what ``sinfo`` prints of `NODES`."""
    known: dict[str, Queue] = {}
    for line in text.splitlines():
        if line.count("|") == NODES[-1].count("|"):
            queue = _row(*line.strip().split("|"))
            known[queue.name] = _joined(known[queue.name], queue) if queue.name in known else queue
    return known


def states(text: str) -> dict[str, Queue]:
    """Return the partitions by name, with why no node is up, from what ``sinfo`` prints of `STATES`."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, number, state, nodes, why = (*line.strip().split("|", 4), "", "", "", "")[:5]
        if number.isdigit():
            # it starts no job; with ``*`` it does not respond (sinfo(1), NODE STATE CODES)
            down = re.fullmatch(r"(down|drain|fail|error|future|inval|unknown).*|.*\*", state)
            words = f"{nodes} {state}{f': {why}' * (why != 'none')}" if down else ""
            found.setdefault(name, []).append(words)
    queues = (
        Queue(
            name=name.removesuffix("*"), default=name.endswith("*"), down="; ".join(why) if all(why) else ""
        )
        for name, why in found.items()
    )
    return {queue.name: queue for queue in queues}


def _row(name: str, max_time: str, gres: str, state: str, *node: str) -> Queue:
    nodes, cpus, mebibytes = node
    days, dash, rest = max_time.rpartition("-")
    if dash:  # sinfo leaves parts out, as in 2-00 and 1-00:00 (sbatch(1), --time)
        max_time = f"{days}-{rest}{':00' * (2 - rest.count(':'))}"
    # gpu:v100:2(S:0-1), gpu:2, gpu:a100_3g.20gb:4 (gres.conf(5)); sorted, so that the largest counts
    counts = re.findall(r"\bgpu(?::([^:,(\s]+))?:(\d+)", gres)
    gpus = dict(sorted((kind, int(count)) for kind, count in counts))
    kind = Nodes(
        number=int(nodes) if nodes.isdigit() else 0,
        cpus=int(cpus) if cpus.isdigit() else None,
        memory_bytes=bytes_of(f"{mebibytes}M"),
        gpus=gpus,
    )
    return Queue(
        name=name.removesuffix("*"),
        default=name.endswith("*"),
        walltime_s=seconds_of(max_time),
        gpus=gpus,
        nodes=kind.number,
        cpus=kind.cpus,
        memory_bytes=kind.memory_bytes,
        kinds=(kind,) if kind.number else (),
        closed="" if state == "up" else f"it is {state}",
    )


def _joined(first: Queue, other: Queue) -> Queue:
    return replace(
        first,
        gpus=dict(sorted([*first.gpus.items(), *other.gpus.items()])),
        nodes=first.nodes + other.nodes,
        kinds=(*first.kinds, *other.kinds),
        cpus=max(filter(None, (first.cpus, other.cpus)), default=None),
        memory_bytes=max(filter(None, (first.memory_bytes, other.memory_bytes)), default=None),
    )


def shown(kind: str, text: str) -> dict[str, dict[str, str]]:
    """Return by name the columns of each partition, or what else ``scontrol -o show`` printed."""
    rows = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in text.splitlines()]
    return {row[f"{kind}Name"]: row for row in rows if f"{kind}Name" in row}


def opened(queue: Queue, row: Mapping[str, str] | None) -> Queue:
    """Return a partition with why it takes no jobs, and whom it is for (scontrol(1), slurm.conf(5))."""
    if row is None:
        return replace(queue, closed=queue.closed or "it is hidden from you")
    if row.get("RootOnly") == "YES":
        return replace(queue, closed="only root may use it")
    groups, charges = row.get("AllowGroups", "ALL"), dict[str, tuple[str, ...]]()
    for key, word in (("account", "Accounts"), ("qos", "Qos")):
        denied = [f"!{name}" for name in row.get(f"Deny{word}", "").split(",") if name]
        allowed = row.get(f"Allow{word}", "ALL").split(",")
        if denied or allowed != ["ALL"]:
            charges[key] = tuple(denied or allowed)
    return replace(queue, only="" if groups == "ALL" else f"groups {groups}", charges=charges)


def _keeping(answers: Answers, config: Mapping[str, str]) -> AccountingStatus:
    """Return whether accounting is on and answers.

    ``accounting_storage/none`` keeps nothing (slurm.conf(5)); with a slurmdbd that is down sacct ends with 1
    at once, and jobs go on (measured).
    """
    if config.get("AccountingStorageType", "").endswith("/none"):
        return AccountingStatus(works=False, said="off (AccountingStorageType is accounting_storage/none)")
    sacct = answers.get("sacct")
    if sacct is None:
        return AccountingStatus(said="not asked")
    if not sacct.ok:
        last = (sacct.said or "no message").splitlines()[-1]
        return AccountingStatus(works=False, said=f"does not answer: {last}")
    return AccountingStatus(works=True, said="on (sacct answers)")
