"""The queues of a cluster, and what is wrong with what is asked of them. A partition is a queue too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from jobkit.schedulers.base import Request
from jobkit.schedulers.text import Fault, as_walltime, no_such
from jobkit.units import format_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue, as far as the scheduler tells of it.

    Attributes
    ----------
    default
        Whether jobs go there that name no queue.
    walltime_s
        The longest that a job may ask for; ``None`` for no limit.
    gpus
        The largest number of GPUs on one node, by type; an empty type where none is told.
    nodes
        How many it has.
    cpus, memory_bytes
        Of its largest node; ``None`` where that is not told.
    closed
        Why it takes no job of this user; empty where nothing says so.
    only
        Whom it is for, where not for all; whether this user is one of them is not known.
    environments
        The parallel environments that it serves (Grid Engine).
    """

    name: str
    default: bool = False
    walltime_s: float | None = None
    gpus: Mapping[str, int] = field(default_factory=dict)
    nodes: int = 0
    cpus: int | None = None
    memory_bytes: int | None = None
    closed: str = ""
    only: str = ""
    environments: tuple[str, ...] = ()

    @property
    def gpus_a_node(self) -> int:
        """The largest number of GPUs on one node, of any type."""
        return max(self.gpus.values(), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The queues that a request names.

    Attributes
    ----------
    queues
        Those that there are.
    unknown
        The first name that no queue has; empty where all are known.
    where
        All of them, for a person: ``partition 'gpu'``.
    """

    queues: tuple[Queue, ...]
    unknown: str
    where: str


def asked_for(names: str | None, known: Iterable[Queue], noun: str) -> Asked:
    """Return the queues that a request names.

    Parameters
    ----------
    names
        With commas between them; each may hold ``*`` and ``?`` and end in ``@host``, as Grid Engine
        has it (sge_types(1), wc_queue_list; a host alone means any queue). ``None`` for the default
        queue, or where there is none for any.
    noun
        What the scheduler calls a queue.
    """
    known = tuple(known)
    default = ",".join(queue.name for queue in known if queue.default)
    words = [word.partition("@")[0] or "*" for word in (names or default or "*").split(",") if word]
    found = tuple(queue for queue in known if any(fnmatchcase(queue.name, word) for word in words))
    named = names or default
    return Asked(
        queues=found,
        unknown=next((word for word in words if word != "*" and not _matches(word, known)), ""),
        where=f"{noun} {named!r}" if named else f"any {noun}",
    )


def _matches(word: str, known: Iterable[Queue]) -> bool:
    return any(fnmatchcase(queue.name, word) for queue in known)


def unknown_fault(asked: Asked, known: Iterable[Queue], noun: str) -> Fault | None:
    """Return what is wrong with a name that no queue has, with the nearest one."""
    names = [queue.name for queue in known]
    return no_such(noun, asked.unknown, names, "the queue") if asked.unknown else None


def walltime_fault(request: Request, asked: Asked, limit: str = "") -> Fault | None:
    """Return what is wrong with a walltime that none of the queues asked for allows.

    Parameters
    ----------
    limit
        What the scheduler calls the limit.
    """
    limits = [queue.walltime_s for queue in asked.queues]
    if not limits or any(most is None or most >= request.walltime_s for most in limits):
        return None
    longest = max(most for most in limits if most is not None)
    named = f" ({limit})" if limit else ""
    each = f" ({request.pack} points a job, {as_walltime(request.walltime_s // request.pack)} each)"
    return Fault(
        f"walltime {as_walltime(request.walltime_s)}{each if request.pack > 1 else ''} "
        f"is longer than {asked.where} allows{named}: at most {as_walltime(longest)}",
        "pack, resources.walltime or the queue" if request.pack > 1 else "resources.walltime or the queue",
    )


def gpu_fault(request: Request, asked: Asked) -> Fault | None:
    """Return what is wrong with GPUs that none of the queues asked for has."""
    if not request.gpus or not asked.queues:
        return None
    where, offered = asked.where, offered_gpus(asked.queues)
    if not offered:
        return Fault(f"{where} has no GPUs; asked for: {request.gpus}", "resources.gpus or the queue")
    if request.gpu_type and request.gpu_type not in offered:
        return no_such(f"GPU type in {where}", request.gpu_type, offered, "resources.gpu_type")
    most = offered[request.gpu_type] if request.gpu_type else max(offered.values())
    if request.gpus > most:
        return Fault(
            f"{where} has at most {format_count(most, 'GPU')} a node; asked for: {request.gpus}",
            "resources.gpus",
        )
    return None


def offered_gpus(queues: Iterable[Queue]) -> dict[str, int]:
    """Return the largest number of GPUs on one node of these queues, by type."""
    offered: dict[str, int] = {}
    for queue in queues:
        for kind, count in queue.gpus.items():
            offered[kind] = max(count, offered.get(kind, 0))
    return offered
