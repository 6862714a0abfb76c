"""A Grid Engine site: queues, resources by the names that the site gave them, environments.

Man pages: qconf(1), qstat(1), queue_conf(5), complex(5), sge_pe(5), sge_conf(5). "Measured" is Son of Grid
Engine 8.1.9; the answers stand in tests/data/sge/.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from jobkit.schedulers import survey
from jobkit.schedulers.parsing import bytes_of, seconds_of
from jobkit.schedulers.survey import Answers, Consumable, Nodes, Queue, Resource, Survey, text_of

QUEUE, WALLTIME = "queue", "h_rt"
QUEUES = ("qconf", "-sq", "*")
RESOURCES = ("qconf", "-sc")
INSTANCES = ("qstat", "-F")
CONTROLLER = "controller"
_ENVIRONMENT = "environment "

# qstat(1), -f: states in which a queue instance starts no job. a, an alarm, passes by itself.
_SHUT = {"u": "unreachable", "d": "disabled", "D": "disabled", "E": "in error", "s": "suspended"}
_SHUT |= {"S": "suspended", "C": "suspended", "c": "misconfigured", "o": "orphaned"}

_CONSUMABLE = {"YES": Consumable.SLOT, "Y": Consumable.SLOT, "JOB": Consumable.JOB, "J": Consumable.JOB}
_CONSUMABLE |= {"HOST": Consumable.JOB, "H": Consumable.JOB}
"""Univa's count once on each host of a job, which for a job of one host is once."""


def survey_argvs(answers: Answers) -> Mapping[str, tuple[str, ...]]:
    first = {CONTROLLER: ("qconf", "-sconf"), "version": ("qstat", "-help")}
    limits = text_of(answers, CONTROLLER)
    if limits is None:
        return first
    then = {
        "queues": QUEUES,
        "resources": RESOURCES,
        "instances": INSTANCES,
        # A job name that no job has: it shows whether qacct finds its file, and how fast
        "qacct": ("qacct", "-j", "jobkit-doctor-asks"),
        **({"projects": ("qconf", "-sprjl")} if _must_charge(limits) else {}),
    }
    known = queues(text_of(answers, "queues") or "")
    names = {name for queue in known.values() for name in queue.environments}
    one_node = re.compile(r"smp|shm|sh[a-z]*mem|thread|openmp|omp", re.IGNORECASE)  # what such a name says
    environments = sorted(names, key=lambda name: (not one_node.search(name), name))
    asked = {f"{_ENVIRONMENT}{name}": ("qconf", "-sp", name) for name in environments[:12]}
    return {**first, **then, **asked}


def parse_survey(answers: Answers) -> Survey:
    silent = survey.unanswered(answers)
    limits = text_of(answers, CONTROLLER) or ""
    queue_list, instance_list = text_of(answers, "queues"), text_of(answers, "instances")
    instances = None if instance_list is None else _instances(instance_list)
    version = re.search(r"\d[\w.]*", (text_of(answers, "version") or "").partition("\n")[0])  # SGE 8.1.9
    listed, projects = text_of(answers, "resources"), text_of(answers, "projects")
    known = tuple(_placed(resource, instances or ()) for resource in resources(listed or ""))
    gpus = gpu_resource(known)
    all_queues = tuple(_seen(queue, instances, gpus) for queue in queues(queue_list or "").values())
    rules = {
        name.removeprefix(_ENVIRONMENT): answer.stdout
        for name, answer in answers.items()
        if name.startswith(_ENVIRONMENT) and answer.ok
    }
    # all slots of a job on one host: sge_pe(5)
    one_node = r"^allocation_rule\s+\$pe_slots\b"
    return Survey(
        product="Grid Engine",
        queue_noun=QUEUE,
        walltime_noun=WALLTIME,
        version=version[0] if version else "",
        trouble=silent.get(CONTROLLER, ""),
        queues=None if queue_list is None else all_queues,
        limits=limits,
        keeping=_keeping(answers, limits),
        accounts=None if projects is None else tuple(projects.split()),
        must_charge=_must_charge(limits),
        resources=None if listed is None else known,
        gpus=gpus,
        memory=memory_resources(known),
        resource_option="-l",
        environment_option="-pe",
        one_node=tuple(name for name, text in rules.items() if re.search(one_node, text, re.MULTILINE)),
        sources={
            "queues": "qconf -sq, qstat -F",
            "resources": "qconf -sc",
            "environments": "qconf -spl",
            "accounts": "qconf -sprjl",
        },
        silent={name: message for name, message in silent.items() if name != "qacct"},
    )


def queues(text: str) -> dict[str, Queue]:
    """Return the cluster's queues by name, from ``qconf -sq '*'``.

    A value may differ by host, ``00:10:00,[node1=24:00:00]`` (queue_conf(5)): the longest walltime counts.
    """
    known: dict[str, Queue] = {}
    for block in re.split(r"^qname\s+", _whole_lines(text), flags=re.MULTILINE)[1:]:
        name, _, rest = block.partition("\n")
        known[name.strip()] = _queue(name.strip(), _table(rest))
    return known


def _queue(name: str, row: Mapping[str, str]) -> Queue:
    walltime = row.get("h_rt", "INFINITY")
    found = [seconds_of(word) for word in re.split(r"[,\[\]=\s]+", walltime) if word[:1].isdigit()]
    known = [seconds for seconds in found if seconds is not None]
    lists = row.get("user_lists", "NONE"), row.get("projects", "NONE")
    only = [f"{word} {names}" for word, names in zip(("user lists", "projects"), lists, strict=True)]
    return Queue(
        name=name,
        walltime_s=None if "INFINITY" in walltime.upper() else max(known, default=None),
        closed="" if "BATCH" in row.get("qtype", "BATCH") else "it takes no batch jobs",
        only="; ".join(names for names in only if not names.endswith("NONE")),
        environments=tuple(_names(row.get("pe_list", "NONE"))),
    )


def _names(text: str) -> Iterator[str]:
    """Yield the names of a list that may differ by host: ``smp mpi,[@gpus=smp]`` (queue_conf(5))."""
    bare = re.sub(r"\[[^=\]]*=", " ", text)
    yield from dict.fromkeys(word for word in re.split(r"[\s,\[\]]+", bare) if word not in {"", "NONE"})


def _whole_lines(text: str) -> str:
    return re.sub(r"\\\n\s*", "", text)


def _table(text: str) -> dict[str, str]:
    rows = (line.split(maxsplit=1) for line in text.splitlines())
    return {row[0]: row[1].strip() for row in rows if len(row) > 1}


def resources(text: str) -> tuple[Resource, ...]:
    """Return the resources that a job may ask for, from ``qconf -sc`` (complex(5))."""
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return tuple(
        Resource(
            name=row[0],
            shortcut=row[1],
            kind=row[2].upper(),
            counted=_CONSUMABLE.get(row[5].upper(), Consumable.NOT),
            limit=row[0] in LIMITS,
            exclusive=row[2].upper() == "BOOL" and row[3].upper() == "EXCL",
        )
        for row in rows
        # The eight columns of a complex (complex(5))
        if len(row) >= 8 and row[4].upper() in {"YES", "Y", "FORCED", "F"}
    )


def gpu_resource(known: Iterable[Resource]) -> Resource | None:
    """Return the resource that counts GPUs: each site calls it otherwise (``ngpus``, ``gpu``, ...).

    It is a number with ``gpu``, ``cuda`` or ``coproc`` in its name; of several the one that is counted, that
    some queue has, and that has the plainest name.
    """

    def plainness(resource: Resource) -> tuple[bool, bool, int, str]:
        plain = ("ngpus", "gpu", "gpus", "ngpu", "num_gpu", "num_gpus", "n_gpu", "n_gpus")
        place = plain.index(resource.name.lower()) if resource.name.lower() in plain else len(plain)
        return resource.counted is Consumable.NOT, not resource.most, place, resource.name

    numbers = (resource for resource in known if resource.kind in {"INT", "DOUBLE", "RSMAP"})
    found = (resource for resource in numbers if re.search(r"gpu|cuda|coproc", resource.name, re.IGNORECASE))
    return min(found, key=plainness, default=None)


LIMITS = ("h_vmem", "s_vmem", "h_rss")
"""If nothing is counted: a limit on a job, before a node with that much free now, which reserves nothing."""


def memory_resources(known: Iterable[Resource]) -> tuple[Resource, ...]:
    """Return the resources that are memory, the best to ask by first: counted ones, then limits."""
    found = {resource.name: resource for resource in known if resource.kind == "MEMORY"}
    # What sites count memory by, most often first; the names are complex(5)'s and Univa's
    memory = ("h_vmem", "m_mem_free", "mem_free", "virtual_free", "h_rss", "s_vmem")
    of_some_sites = ("h_data", "memory", "rmem")
    here = (name for name in memory + of_some_sites if name in found)
    counted = (name for name in here if found[name].counted is not Consumable.NOT)
    names = dict.fromkeys((*counted, *LIMITS, *memory))
    return tuple(found[name] for name in names if name in found)


@dataclass(slots=True)
class _Instance:
    """A queue on a host: its slots, its state, and what it has left of each resource."""

    queue: str
    host: str
    slots: int
    state: str
    values: dict[str, str] = field(default_factory=dict)


def _instances(text: str) -> list[_Instance]:
    """Return the queue instances of ``qstat -F``, each with its resources.

    ``hc:ngpus=2``: scope (global, host or queue), kind (load, fixed or consumable), and what is left
    (qstat(1), -F).
    """
    found: list[_Instance] = []
    for line in text.splitlines():
        if head := re.match(r"(\S+)@(\S+)\s+\S+\s+\d+/\d+/(\d+)\s+\S+\s+\S+\s*(\S*)$", line):
            found.append(_Instance(head[1], head[2], int(head[3]), head[4]))
        elif found and (value := re.match(r"\s+[ghq][a-zA-Z]:([^=\s]+)=(\S+)", line)):
            found[-1].values[value[1]] = value[2]
    return found


def shut_queues(text: str) -> dict[str, dict[str, str]]:
    """Return the instances of each queue of ``qstat -f`` that start no job, with the reason."""
    queues: dict[str, dict[str, str]] = {}
    for one in _instances(text):
        why = ", ".join(dict.fromkeys(_SHUT[flag] for flag in one.state if flag in _SHUT))
        queues.setdefault(one.queue, {})[f"{one.queue}@{one.host}"] = why
    return {queue: why if all(why.values()) else {} for queue, why in queues.items()}


def _placed(resource: Resource, instances: Iterable[_Instance]) -> Resource:
    """Return a resource with the queues that have it, and the most that a node has left."""
    left = ((instance.queue, bytes_of(instance.values.get(resource.name, ""))) for instance in instances)
    most = sorted((queue, number) for queue, number in left if number is not None)
    return replace(resource, most=dict(most))  # the largest of a queue is its last


def _seen(queue: Queue, instances: Iterable[_Instance] | None, gpus: Resource | None) -> Queue:
    if instances is None:
        return queue
    own = [instance for instance in instances if instance.queue == queue.name]
    if not own:
        return replace(queue, closed="it has no hosts")
    shut = [next((word for flag, word in _SHUT.items() if flag in instance.state), "") for instance in own]
    free = int(gpus.most.get(queue.name, 0)) if gpus else 0
    kinds = tuple(map(_node, own))
    return replace(
        queue,
        nodes=len(own),
        cpus=max(instance.slots for instance in own),
        memory_bytes=max(filter(None, (kind.memory_bytes for kind in kinds)), default=None),
        kinds=kinds,
        gpus={"": free} if free else {},
        closed=queue.closed or ("" if "" in shut else f"all of it is {' or '.join(sorted(set(shut)))}"),
    )


def _node(instance: _Instance) -> Nodes:
    memory = bytes_of(instance.values.get("mem_total", ""))
    return Nodes(number=1, names=instance.host, cpus=instance.slots, memory_bytes=memory)


def queues_on_hosts(text: str, names: str | None) -> survey.RequestedQueues:
    """Return the queues of ``qstat -F`` that a request names, as one queue: its hosts with their slots.

    A parallel job may take the slots of several queues on one host (measured, 8.1.9).
    """
    instances = _instances(text)
    asked = survey.asked_for(
        names, [Queue(name=name) for name in {instance.queue for instance in instances}], QUEUE
    )
    slots: dict[str, int] = {}
    for instance in instances:
        if any(queue.name == instance.queue for queue in asked.queues):
            slots[instance.host] = slots.get(instance.host, 0) + instance.slots
    kinds = tuple(Nodes(number=1, names=host, cpus=cpus) for host, cpus in slots.items())
    return replace(asked, queues=(Queue(name=asked.where, kinds=kinds),))


def _must_charge(limits: str) -> bool:
    return bool(re.search(r"^enforce_project\s+true\b", limits, re.MULTILINE | re.IGNORECASE))


def _keeping(answers: Answers, limits: str) -> survey.AccountingStatus:
    """Return whether accounting is on, and whether qacct can read it.

    qacct reads a file, whole (qacct(1)); for an unknown job it prints ``not found``, status 1 (measured).
    """
    if re.search(r"^reporting_params\s.*\baccounting=false\b", _whole_lines(limits), re.MULTILINE):
        return survey.AccountingStatus(works=False, said="off (reporting_params has accounting=false)")
    qacct = answers.get("qacct")
    if qacct is None:
        return survey.AccountingStatus(said="not asked")
    if qacct.ok or "not found" in qacct.said:
        return survey.AccountingStatus(works=True, said="on (qacct answers)")
    if "no jobs running since startup" in qacct.said:
        return survey.AccountingStatus(said="no job has ended here yet, so there is no accounting file")
    return survey.AccountingStatus(works=False, said=f"does not answer: {qacct.said.strip() or 'no message'}")
