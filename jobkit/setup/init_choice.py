"""What `jobkit init` takes of what a site has, and why: queue, GPU, CPUs, memory, walltime. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jobkit.core.units import GIB
from jobkit.schedulers.survey import Consumable, Queue, Survey

WALLTIME_S = 600
CPUS = 2
MEMORY_BYTES = 8 * GIB
LEAST_MEMORY_BYTES = GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a first sweep would ask for.

    Attributes
    ----------
    queue, cpu_queue
        For work with and without a GPU; ``None`` where no queue is known that takes jobs.
    gpus, gpu_type
        For one point; the type where the scheduler tells types.
    environment
        The parallel environment for several CPUs on one node.
    cpus, memory_bytes, walltime_s
        For one point.
    account
        Where every job must name one.
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
    """Return what a first sweep would ask for.

    Parameters
    ----------
    queue
        The name of a queue that is settled already.
    """
    known = [queue for queue in survey.queues or () if not queue.closed]
    settled = [one for one in known if one.name == queue]
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


def gpu_queue(known: Sequence[Queue]) -> Queue | None:
    """Return the queue for work on a GPU: one for all, the default, one that is called so, the largest."""
    return min((one for one in known if one.gpus), key=_gpu_order, default=None)


def _gpu_order(one: Queue) -> tuple[bool, bool, bool, int]:
    return (
        bool(one.only),
        not one.default,
        "gpu" not in one.name.lower(),
        -max(one.gpus.values()) * max(one.nodes, 1),
    )


def cpu_queue(known: Sequence[Queue]) -> Queue | None:
    """Return the queue for work without a GPU: one for all, the default, one not called after GPUs."""
    return min(known, key=_cpu_order, default=None)


def _cpu_order(one: Queue) -> tuple[bool, bool, bool, bool]:
    return bool(one.only), not one.default, "gpu" in one.name.lower(), bool(one.gpus)


def _most_common(queue: Queue) -> str | None:
    """Return the type that a node has most of; points on cards of several types cannot be compared."""
    kinds = {kind: count for kind, count in queue.gpus.items() if kind}
    return max(kinds, key=lambda kind: kinds[kind]) if kinds else None


def _environment(one_node: Sequence[str], queue: Queue | None) -> str | None:
    """Return the parallel environment of the queue whose slots are on one node; the plainest name."""
    fit = [name for name in one_node if queue is None or name in queue.environments]
    plain = re.compile(r"smp|shm|thread|openmp|omp", re.IGNORECASE)
    return min(fit, key=lambda name: (not plain.search(name), len(name), name), default=None)


def _memory(queue: Queue | None) -> int:
    """Return how much to ask for: 8 GiB, or the power of two that a node has."""
    most = queue.memory_bytes if queue else None
    size = MEMORY_BYTES
    while most is not None and size > max(most, LEAST_MEMORY_BYTES):
        size //= 2
    return size


def _account(survey: Survey) -> str | None:
    if not survey.must_charge:
        return None
    return survey.account or next(iter(survey.accounts or ()), None)
