"""The queue, GPU, CPUs, memory and walltime that `jobkit init` chooses from a site. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobkit.core.units import GIB
from jobkit.schedulers.survey import Consumable, Queue, Survey
from jobkit.spec.site import Requests

WALLTIME_S = 600
CPUS = 2
MEMORY_BYTES = 8 * GIB
LEAST_MEMORY_BYTES = GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The resources of a first sweep.

    Attributes
    ----------
    queue, cpu_queue
        For work with and without a GPU; ``None`` if no known queue accepts jobs.
    gpus, gpu_type
        For one point; the type if the scheduler reports types.
    environment
        The parallel environment for several CPUs on one node.
    cpus, memory_bytes, walltime_s
        For one point.
    account
        If every job must name one.
    """

    queue: Queue | None
    cpu_queue: Queue | None
    gpus: int
    gpu_type: str | None
    environment: str | None
    cpus: int
    memory_bytes: int
    walltime_s: int
    account: str | None


def choose(survey: Survey, queue: str | None = None) -> Choice:
    """Return the resources of a first sweep.

    Parameters
    ----------
    queue
        The name of a queue that the site file has already.
    """
    known = [queue for queue in survey.queues or () if not queue.closed]
    settled = [candidate for candidate in known if candidate.name == queue]
    chosen = settled[0] if settled else gpu_queue(known) or cpu_queue(known)
    has_gpus = bool(chosen and chosen.gpus)
    environment = _environment(survey.one_node, chosen)
    per_slot = has_gpus and survey.gpus is not None and survey.gpus.counted is Consumable.SLOT
    one_cpu = per_slot or (survey.resources is not None and environment is None)
    return Choice(
        queue=chosen,
        cpu_queue=cpu_queue(known),
        gpus=int(has_gpus),
        gpu_type=_most_common(chosen) if chosen and has_gpus else None,
        environment=environment,
        cpus=1 if one_cpu else min(CPUS, (chosen.cpus if chosen else None) or CPUS),
        memory_bytes=_memory(chosen),
        walltime_s=int(min(WALLTIME_S, (chosen.walltime_s if chosen else None) or WALLTIME_S)),
        account=_account(survey),
    )


def spelt(choice: Choice, requests: Requests) -> Choice:
    """Return a choice without all that a site has no header line for: a spec with it would be refused."""
    names = Requests.model_fields
    has = {name: getattr(requests, name) is not None for name in names}
    return replace(
        choice,
        queue=choice.queue if has["queue"] else None,
        gpus=choice.gpus if has["gpus"] else 0,
        gpu_type=choice.gpu_type if has["gpu_type"] else None,
        cpus=choice.cpus if has["cpus"] else 1,
        account=choice.account if has["account"] else None,
    )


def gpu_queue(known: Sequence[Queue]) -> Queue | None:
    """Return the queue for work on a GPU: open to all, the default, named after GPUs, the largest."""
    return min((queue for queue in known if queue.gpus), key=_gpu_order, default=None)


def _gpu_order(queue: Queue) -> tuple[bool, bool, bool, int]:
    return (
        bool(queue.only),
        not queue.default,
        "gpu" not in queue.name.lower(),
        -max(queue.gpus.values()) * max(queue.nodes, 1),
    )


def cpu_queue(known: Sequence[Queue]) -> Queue | None:
    """Return the queue for work without a GPU: open to all, the default, not named after GPUs."""
    return min(known, key=_cpu_order, default=None)


def _cpu_order(queue: Queue) -> tuple[bool, bool, bool, bool]:
    return bool(queue.only), not queue.default, "gpu" in queue.name.lower(), bool(queue.gpus)


def _most_common(queue: Queue) -> str | None:
    """Return the most frequent GPU type of a node: points on different types cannot be compared."""
    kinds = {kind: count for kind, count in queue.gpus.items() if kind}
    return max(kinds, key=lambda kind: kinds[kind]) if kinds else None


def _environment(one_node: Sequence[str], queue: Queue | None) -> str | None:
    """Return the parallel environment of the queue whose slots are on one node; the plainest name."""
    fit = [name for name in one_node if queue is None or name in queue.environments]
    plain = re.compile(r"smp|shm|thread|openmp|omp", re.IGNORECASE)
    return min(fit, key=lambda name: (not plain.search(name), len(name), name), default=None)


def _memory(queue: Queue | None) -> int:
    """Return how much memory to ask for: 8 GiB, or the largest power of two that a node has."""
    most = queue.memory_bytes if queue else None
    size = MEMORY_BYTES
    while most is not None and size > max(most, LEAST_MEMORY_BYTES):
        size //= 2
    return size


def _account(survey: Survey) -> str | None:
    if not survey.must_charge:
        return None
    return survey.account or next(iter(survey.accounts or ()), None)
