"""A cluster as its scheduler describes it, and the faults of a request there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from fnmatch import filter as filter_names
from fnmatch import fnmatchcase

from jobkit.core.frozen import frozen, keyed
from jobkit.core.shell import Completed
from jobkit.core.terminal import did_you_mean
from jobkit.core.units import format_count, format_memory, format_walltime
from jobkit.schedulers.types import Check, JobRequest

PRACTICE_ENV = 'eval "$(jobkit practice env)"'
PRACTICE_NEEDS = "a practice cluster needs in every shell:"
"""What a person checks if a scheduler does not answer; `PRACTICE_ENV` follows it."""
NOTHING_HOLDS = "nothing reserves or limits memory"


def gpu_counts(gpus: Mapping[str, int]) -> list[str]:
    """Return GPUs by type for a person: ``2 x v100``, or ``2 x GPU`` if the type is unknown."""
    return [f"{count} x {kind or 'GPU'}" for kind, count in gpus.items()]


@keyed
class Nodes:
    """Nodes of a queue that are alike."""

    number: int = 0  # their number; 0 if unknown
    names: str = ""  # their names, if the scheduler reports them
    cpus: int | None = None  # of one node; ``None`` if unknown
    memory_bytes: int | None = None  # of one node; ``None`` if unknown
    gpus: Mapping[str, int] | None = None  # of one node, by type

    def lacks(self, request: JobRequest) -> tuple[str, ...]:
        """Return the keys of `resources` that exceed such a node."""
        gpus = self.gpus
        most = request.gpus if gpus is None else max(gpus.values(), default=0)
        if gpus is not None and request.gpu_type:
            most = gpus.get(request.gpu_type, 0)
        pairs = (
            ("cpus", request.cpus, self.cpus),
            ("memory", request.memory_bytes, self.memory_bytes),
            ("gpus", request.gpus, most),
        )
        return tuple(key for key, asked, have in pairs if have is not None and asked > have)

    def __str__(self) -> str:
        parts = [format_count(self.cpus, "CPU")] if self.cpus is not None else []
        parts += [format_memory(self.memory_bytes)] if self.memory_bytes is not None else []
        parts += gpu_counts(self.gpus or {})
        who = self.names or (format_count(self.number, "node") if self.number else "nodes")
        return f"{who} {'has' if self.number == 1 else 'have'} {', '.join(parts)}"


@keyed
class Queue:
    name: str
    default: bool = False  # whether jobs without a queue go there
    walltime_s: float | None = None  # the longest walltime of a job; ``None`` for no limit
    # the most on one node, by type; an empty type if unknown
    gpus: Mapping[str, int] = field(default_factory=dict)
    nodes: int = 0  # their number
    cpus: int | None = None  # of its largest node; ``None`` if unknown
    memory_bytes: int | None = None  # of its largest node; ``None`` if unknown
    kinds: tuple[Nodes, ...] = ()  # its kinds of nodes; empty if unknown
    closed: str = ""  # why it accepts no job of this user; empty if it may
    down: str = ""  # why no node of it is up now; empty if one is, or it is not known
    only: str = ""  # whom it is for, if not for all; this user may be among them
    # accounts and QOS of the jobs that it starts, by the key of `resources`; after ``!`` of those that not
    charges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    environments: tuple[str, ...] = ()  # the parallel environments that it serves (Grid Engine)

    @property
    def whom(self) -> str:
        """All that limits whose jobs it starts, in words; empty if it is for all."""
        charges = (f"{key} {','.join(names)}" for key, names in self.charges.items())
        return "; ".join(filter(None, (self.only, *charges)))


@keyed
class Association:
    """An account that a user's jobs may be charged to."""

    account: str
    default: bool = False  # whether jobs that name no account have it
    above: tuple[str, ...] = ()  # its parent accounts: newer versions count what allows one of them
    default_qos: str = ""
    qos: tuple[str, ...] = ()  # all that its jobs may have


@keyed
class RequestedQueues:
    queues: tuple[Queue, ...]  # those that exist
    # fault of the first name that no queue has, with the nearest name; ``None`` if all exist
    unknown: RequestFault | None
    where: str  # the names of all, for a person: ``partition 'gpu'``

    @property
    def down(self) -> str:
        """Why no node of any of the queues is up now; empty if one is, or it is not known."""
        if not self.queues or not all(queue.down for queue in self.queues):
            return ""
        return f"no node of {self.where} is up: {'; '.join(dict.fromkeys(one.down for one in self.queues))}"

    @property
    def longest_s(self) -> float | None:
        """The longest walltime that any of them allows; ``None`` for no limit, or if none is known."""
        limits = [queue.walltime_s for queue in self.queues]
        return max((most for most in limits if most is not None), default=None) if all(limits) else None

    def walltime_fault(self, request: JobRequest, limit: str = "") -> RequestFault | None:
        """Return the fault of a walltime that no requested queue allows; ``limit`` is its name."""
        longest = self.longest_s
        if longest is None or longest >= request.walltime_s:
            return None
        named = f" ({limit})" if limit else ""
        each = f" ({request.pack} points a job, {format_walltime(request.walltime_s // request.pack)} each)"
        return RequestFault(
            f"walltime {format_walltime(request.walltime_s)}{each if request.pack > 1 else ''} "
            f"is longer than {self.where} allows{named}: at most {format_walltime(longest)}",
            f"{'pack, ' if request.pack > 1 else ''}resources.walltime or the queue",
        )

    def charge_faults(self, request: JobRequest, known: Sequence[Association]) -> list[RequestFault]:
        """Return the faults of account and QOS for which none of the queues starts the job."""
        account = request.account or next((one.account for one in known if one.default), "")
        of = next((one for one in known if one.account == account), Association(account=account))
        # The QOS of a job that names none, if its association names none (measured)
        has = {"account": (account, *of.above), "qos": (request.qos or of.default_qos or "normal",)}
        mine = {"account": {one.account for one in known}, "qos": {*of.qos}}
        faults = ([*_charge_faults(self.where, queue, has, mine)] for queue in self.queues)
        return min(faults, key=len, default=[])

    def never(self, request: JobRequest, limit: str = "") -> str:
        """Return why some of the named queues never start the job; empty if each may, or none does."""
        named = (request.queue or "").split(",")
        alone = [
            replace(self, queues=(queue,), where=queue.name) for queue in self.queues if queue.name in named
        ]
        faults = [
            each.walltime_fault(request, limit) or each.gpu_fault(request) or each.node_fault(request)
            for each in alone
        ]
        left_out = [fault.said for fault in faults if fault]
        return f"not in every queue: {'; '.join(left_out)}" if 0 < len(left_out) < len(alone) else ""

    def gpu_fault(self, request: JobRequest) -> RequestFault | None:
        if not request.gpus or not self.queues:
            return None
        where = self.where
        # Sorted, so that the largest number of a type is kept.
        offered = dict(sorted(pair for queue in self.queues for pair in queue.gpus.items()))
        if not offered:
            return RequestFault(
                f"{where} has no GPUs; requested: {request.gpus}", "resources.gpus or the queue"
            )
        if request.gpu_type and request.gpu_type not in offered:
            return no_such(f"GPU type in {where}", request.gpu_type, offered, "resources.gpu_type")
        most = offered[request.gpu_type] if request.gpu_type else max(offered.values())
        if request.gpus > most:
            return RequestFault(
                f"{where} has at most {format_count(most, 'GPU')} a node; requested: {request.gpus}",
                "resources.gpus",
            )
        return None

    def node_fault(self, request: JobRequest) -> RequestFault | None:
        """Return the fault of CPUs, memory and GPUs that no node of the queues has together."""
        kinds = [kind for queue in self.queues for kind in queue.kinds]
        lacking = [kind.lacks(request) for kind in kinds]
        if not kinds or () in lacking or self.gpu_fault(request):
            return None
        never = [key for key in _WANTED if all(key in keys for keys in lacking)]
        wanted = never or [key for key in _WANTED if any(key in keys for keys in lacking)]
        words = " and ".join(_WANTED[key](request) for key in wanted)
        names = list(dict.fromkeys(map(str, kinds)))
        have = "; ".join(names[:8]) + ("; ..." if len(names) > 8 else "")
        keys = " or ".join(f"resources.{key}" for key in wanted)
        return RequestFault(f"{self.where} has no node with {words}: {have}", f"{keys}, or the queue")


def _charge_faults(
    where: str, queue: Queue, has: Mapping[str, Sequence[str]], mine: Mapping[str, Collection[str]]
) -> Iterator[RequestFault]:
    for key, names in queue.charges.items():
        refused, named = names[0].startswith("!"), [name.removeprefix("!") for name in names]
        if has[key][0] not in named if refused else {*has[key]} & {*map(str.lower, named)}:
            continue
        rule, link = ("starts no job with", ", ") if refused else ("needs", " or ")
        needs = f"{rule} {key.upper() if key == 'qos' else key} {link.join(named)}"
        left = [name for name in named if name in mine[key] or not mine[key]]
        others = sorted({*mine[key]} - {*named}) if refused else left
        way = (
            f": --set resources.{key}={others[0]}" if others else ", for you have none of them, or the queue"
        )
        yield RequestFault(
            f"{where} {needs}, and the job has {has[key][0] or 'none'}: it never starts",
            f"resources.{key}{way}",
        )


_WANTED: Mapping[str, Callable[[JobRequest], str]] = {
    "cpus": lambda request: format_count(request.cpus, "CPU"),
    "memory": lambda request: f"{format_memory(request.memory_bytes)} of memory",
    "gpus": lambda request: format_count(request.gpus, f"{request.gpu_type or ''} GPU".strip()),
}


def asked_for(names: str | None, known: Iterable[Queue], noun: str) -> RequestedQueues:
    """Return the queues that a request names; ``noun`` is the scheduler's word for a queue.

    ``names`` have commas between them; each may hold ``*`` and ``?`` and end in ``@host``, as in Grid Engine
    (sge_types(1), wc_queue_list; a host alone means any queue). ``None`` for the default queue, or for any
    queue if there is no default.
    """
    known = tuple(known)
    default = ",".join(queue.name for queue in known if queue.default)
    words = [word.partition("@")[0] or "*" for word in (names or default or "*").split(",") if word]
    found = tuple(queue for queue in known if any(fnmatchcase(queue.name, word) for word in words))
    have = [queue.name for queue in known]
    unknown = (word for word in words if word != "*" and not filter_names(have, word))
    named = names or default
    return RequestedQueues(
        queues=found,
        unknown=next((no_such(noun, word, have, "the queue") for word in unknown), None),
        where=f"{noun} {named!r}" if named else f"any {noun}",
    )


def queue_check(
    argv: tuple[str, ...],
    read: Callable[[str], Mapping[str, Queue]],
    noun: str,
    *,
    limit: str = "",
    nodes: bool = False,
) -> Check:
    """Return the check that finds an unknown queue, and a walltime that none of the named queues allows.

    ``read`` reads the queues from the answer to ``argv``; ``nodes`` is whether it finds their nodes, too.
    """

    def refusal(request: JobRequest, answer: Completed) -> str | None:
        if not answer.ok:
            return None  # then the scheduler's own check and the submission find it
        asked = asked_for(request.queue, read(answer.stdout).values(), noun)
        if asked.unknown:
            return str(asked.unknown)
        faults = [asked.walltime_fault(request, limit)]
        faults += [asked.gpu_fault(request), asked.node_fault(request)] if nodes else []
        return "\n".join(map(str, filter(None, faults))) or None

    def outlook(request: JobRequest, answer: Completed) -> str:
        known = read(answer.stdout).values() if answer.ok else ()
        return asked_for(request.queue, known, noun).never(request, limit)

    return Check(argv, refusal, outlook)


Answers = Mapping[str, Completed]  # by the name of the question


class Consumable(StrEnum):
    """How the scheduler accounts for a resource (``consumable`` in complex(5)): not, per slot, per job."""

    NOT = "not"
    SLOT = "slot"
    JOB = "job"


@keyed
class Resource:
    """A resource that jobs request by a name that the site gave it."""

    name: str
    shortcut: str = ""
    kind: str = ""  # its type in the scheduler's words: ``INT``, ``MEMORY``
    counted: Consumable = Consumable.NOT  # see `Consumable`
    limit: bool = False  # whether it limits the memory of a job, also if it is not counted: for each slot
    exclusive: bool = False  # whether it gives a job the host to itself (complex(5), relation ``EXCL``)
    # by queue, the most that a node has left now; only if the scheduler reports it
    most: Mapping[str, float] = field(default_factory=dict)

    @property
    def holds_nothing(self) -> bool:
        """Whether a request only chooses a node, and neither reserves nor limits anything."""
        return not self.limit and self.counted is Consumable.NOT


@keyed
class AccountingStatus:
    works: bool | None = None  # ``None`` if unknown
    said: str = ""  # the status in plain words


@keyed
class Survey:
    """A site as its scheduler describes it; ``None`` stands for unknown."""

    product: str  # such as ``Slurm``
    version: str = ""  # such as ``22.05.8``
    queue_noun: str = "queue"  # its word for a queue
    walltime_noun: str = ""  # its word for the longest walltime of a queue
    trouble: str = ""  # why the controller does not answer; empty if it does
    cluster: str = ""  # the site's own name for itself; empty if it has none
    queues: tuple[Queue, ...] | None = None  # all queues
    limits: str = ""  # the scheduler's limits, as `Scheduler.parse_limit` reads them
    keeping: AccountingStatus = AccountingStatus()
    accounts: tuple[str, ...] | None = None  # of the user
    associations: tuple[Association, ...] | None = None  # the same with their QOS (Slurm)
    account: str = ""  # the user's default account
    must_charge: bool = False  # whether a job that names no account, or a wrong one, is refused
    resources: tuple[Resource, ...] | None = None  # the resources that jobs request by name (Grid Engine)
    gpus: Resource | None = None  # the resource that counts GPUs
    memory: tuple[Resource, ...] = ()  # the resources that are memory; the best one to request comes first
    resource_option: str = ""  # option of a header line that requests a resource by name
    environment_option: str = ""  # option of a header line that requests a parallel environment by name
    one_node: tuple[str, ...] = ()  # the parallel environments whose slots are all on one node
    # commands that list ``queues``, ``resources``, ``environments`` and ``accounts``, for a person
    sources: Mapping[str, str] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)  # messages of unanswered questions


def unanswered(answers: Answers) -> dict[str, str]:
    return {name: answer.said for name, answer in answers.items() if not answer.ok}


def text_of(answers: Answers, name: str) -> str | None:
    """Return the answer to a question, ``None`` if it was not asked or failed."""
    answer = answers.get(name)
    return answer.stdout if answer is not None and answer.ok else None


@frozen
class RequestFault:
    """A fault of a request, and the key to change; its text has both."""

    said: str
    key: str

    def __str__(self) -> str:
        return f"{self.said} (change {self.key})"


def no_such(kind: str, name: str, known: Iterable[str], key: str) -> RequestFault:
    """Return the fault of a name that the cluster does not have, with the nearest name that it has."""
    names = sorted(set(known))
    listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    meant = did_you_mean(name, names)
    return RequestFault(
        f"the cluster has no {kind} {name!r} (it has: {listed or 'none'}){f'; {meant}' if meant else ''}", key
    )
