"""The measurements of one try: memory by instrument, the GPU, the sampler, the batches.

Standard library only. Bytes and seconds; a value that could not be read is ``None``, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from jobkit.core.frozen import keyed

T = TypeVar("T", int, float)


def largest(values: Iterable[T | None]) -> T | None:
    """Return the largest value that is known; ``None`` if none is."""
    return max((value for value in values if value is not None), default=None)


def total(values: Iterable[T | None]) -> T | None:
    """Return the sum; ``None`` if a value is unknown."""
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


BASELINE_SLACK_BYTES = 16 * 2**20
"""Less than this above the baseline of a GPU is no memory of an earlier try: a CUDA context is larger."""


@keyed
class ShortcutCheck:
    """The process that compared shortcuts with the ordinary way: one for all tries of a run on a node.

    Attributes
    ----------
    seconds
        From its start to its end.
    gpu_peak_bytes
        The most that torch's allocator had of the GPU; ``None`` on a CPU.
    rss_peak_bytes
        The kernel's high-water mark of its resident memory.
    found
        How much the results differ, in the words of the workload; empty if it has none.
    refused
        Why the shortcuts were switched off; empty if they were not.
    reused
        Whether an earlier try of the run on this node had it.
    """

    seconds: float
    gpu_peak_bytes: int | None = None
    rss_peak_bytes: int | None = None
    found: str = ""
    refused: str = ""
    reused: bool = False


@keyed
class MemoryReadings:
    """Memory by instrument. Of several workers a figure of one process is the largest of any worker.

    Attributes
    ----------
    context_bytes
        The CUDA context with the kernels loaded by the warm-up: what NVML sees of the process
        beyond what torch has reserved.
    weights_bytes
        Allocated by torch after the model was loaded, before the first batch.
    activations_bytes
        torch's allocated peak above the weights.
    other_bytes
        NVML's process peak less the three above, of all workers: allocator slack, kernels, workspaces.
    allocated_peak_bytes, reserved_peak_bytes
        Peaks of torch's allocator over all batches.
    process_peak_bytes, device_peak_bytes, device_idle_bytes
        Sampled from NVML; ``device_idle_bytes`` before a worker opened the GPU. The sum over all workers,
        and over all GPUs of the point.
    device_baseline_bytes
        The least ``device_idle_bytes`` that a try of the run has seen on these GPUs so far.
    rss_peak_bytes
        Largest sampled sum of the resident memory of the worker and its children, or of the supervisor,
        its workers and theirs.
    maxrss_bytes
        The kernel's high-water mark of the worker (``ru_maxrss``).
    rss_before_bytes, rss_model_bytes
        Resident memory before and after the model was loaded.
    cgroup_peak_bytes
        cgroup v2 ``memory.peak`` of the job, if there is one.
    disagreement
        A sentence if two instruments contradict each other, else empty.
    """

    context_bytes: int | None = None
    weights_bytes: int | None = None
    activations_bytes: int | None = None
    other_bytes: int | None = None
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    process_peak_bytes: int | None = None
    device_peak_bytes: int | None = None
    device_idle_bytes: int | None = None
    device_baseline_bytes: int | None = None
    rss_peak_bytes: int | None = None
    maxrss_bytes: int | None = None
    rss_before_bytes: int | None = None
    rss_model_bytes: int | None = None
    cgroup_peak_bytes: int | None = None
    disagreement: str = ""

    @property
    def left_bytes(self) -> int | None:
        """What was in use above the baseline when the try began; ``None`` if it is little or unknown."""
        if self.device_idle_bytes is None or self.device_baseline_bytes is None:
            return None
        left = self.device_idle_bytes - self.device_baseline_bytes
        return left if left > BASELINE_SLACK_BYTES else None

    @property
    def ram_peak_bytes(self) -> int | None:
        """The most resident memory of the worker, by the instrument that measured most."""
        return largest((self.maxrss_bytes, self.rss_peak_bytes))


@keyed
class Need:
    """The smallest memory with which a heavy batch passes.

    All figures are of torch's allocator; the CUDA context comes on top.

    Attributes
    ----------
    load
        The load of the batch.
    allocated_bytes, reserved_bytes
        torch's peaks of the batch alone, from an empty cache.
    passed_bytes, failed_bytes
        The smallest cap that sufficed and the largest that failed: the need is between them.
        Without a search they are the reserved bytes, and the allocated bytes less one.
    tries
        How often the batch ran.
    seconds
        The time that these runs took.
    """

    load: int
    allocated_bytes: int
    reserved_bytes: int
    passed_bytes: int
    failed_bytes: int
    tries: int
    seconds: float


@keyed
class Gpu:
    """The GPU that the try ran on; of several the first that has the least memory.

    Attributes
    ----------
    uuid
        NVML's UUID of the GPU or MIG instance.
    total_bytes
        Memory of the GPU.
    driver, cuda
        Versions.
    foreign_processes
        Number of other processes on the GPU when the try began, of several GPUs the largest; ``None`` if
        NVML does not report it.
    """

    name: str
    uuid: str
    total_bytes: int | None = None
    driver: str | None = None
    cuda: str | None = None
    foreign_processes: int | None = None


@keyed
class Sampler:
    """What the sampler process achieved.

    Attributes
    ----------
    period_s
        Mean time between two samples.
    samples
        Number of samples.
    memory_query
        ``v2`` or ``v1``: the NVML memory call that answered (v1 counts the driver's reserve as used).
    utilisation_mean_percent
        Of the GPU, sampled over the batches once a second; of several GPUs the mean.
    """

    period_s: float | None = None
    samples: int = 0
    memory_query: str | None = None
    utilisation_mean_percent: float | None = None


NOT_ATTRIBUTABLE = "not attributable"


@keyed
class Energy:
    """Energy of all GPUs of the try over the work: from before the first batch to after the last.

    Attributes
    ----------
    span_s
        Seconds between the readings.
    counter_j
        Joules by NVML's energy counter; ``None`` if a GPU has none, as before Volta.
    idle_w
        Power before a process opened the GPUs; ``None`` if it was not measured.
    idle_s
        Seconds over which the idle power was measured; of several GPUs the shortest.
    attribution
        ``not attributable`` if a GPU was in MIG mode, or another process or point used it. Records of earlier
        versions also have ``own`` and ``unknown``.
    """

    span_s: float
    counter_j: float | None = None
    idle_w: float | None = None
    idle_s: float | None = None
    attribution: str = ""

    @property
    def joules(self) -> float | None:
        """The energy of this try; ``None`` if it is not known, or not attributable."""
        return None if self.attribution == NOT_ATTRIBUTABLE else self.counter_j

    @property
    def power_mean_w(self) -> float | None:
        """The mean power over the span, of all that used the GPUs."""
        return self.counter_j / self.span_s if self.counter_j is not None and self.span_s > 0 else None

    @property
    def net_joules(self) -> float | None:
        """The energy above idle; ``None`` if idle was not measured, or was not idle: more than the work."""
        if self.joules is None or self.idle_w is None:
            return None
        above = self.joules - self.idle_w * self.span_s
        return above if above > 0 else None


@keyed
class Share:
    """What one of several worker processes did.

    Attributes
    ----------
    worker
        Its number, from 0.
    gpu_uuid
        The GPU that it worked on; ``None`` on a CPU.
    items, batches
        Its part of the work.
    work_s
        The sum of its batches' seconds.
    idle_s
        From its last batch to the last batch of all: nothing was left in the queue for it.
    load_s
        Seconds to load the model.
    context_bytes, weights_bytes, allocated_peak_bytes, reserved_peak_bytes, maxrss_bytes
        As in `MemoryReadings`, of this process. NVML cannot always tell processes apart: then the context is
        an equal part of what the processes of a GPU hold beyond torch's reserve.
    """

    worker: int
    gpu_uuid: str | None = None
    items: int = 0
    batches: int = 0
    work_s: float = 0.0
    idle_s: float = 0.0
    load_s: float | None = None
    context_bytes: int | None = None
    weights_bytes: int | None = None
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    maxrss_bytes: int | None = None


@keyed
class Summary:
    """Totals and means over the batches.

    Attributes
    ----------
    items_total, batches_total
        The whole try; ``items`` below ``items_total`` shows how far a try came that was cut short.
    items, sentences, characters, batches
        The work done.
    work_s
        The sum of the batches' seconds: no loading, no warm-up, no writing. With several workers, from
        the beginning of the first batch to the end of the last.
    items_per_s
        ``items / work_s``.
    batch_mean_s, batch_p50_s, batch_p95_s
        Of the batches' seconds, over all batches that ran, the last and smaller batch too.
    padding_efficiency
        Characters of the paragraphs divided by characters after padding, at most 1.
    load_max
        The largest load of a batch.
    rows, rows_sum
        The number of rows in columns of the workload's own, and the sum of their CRC-32; ``None`` of entities
        and in records of earlier versions.
    """

    items_total: int
    batches_total: int
    items: int
    sentences: int | None
    characters: int
    batches: int
    work_s: float
    items_per_s: float | None
    batch_mean_s: float | None
    batch_p50_s: float | None
    batch_p95_s: float | None
    padding_efficiency: float | None
    load_max: int | None
    rows: int | None = None
    rows_sum: int | None = None


@keyed
class Metric:
    """A figure that the workload itself reports for a try, such as ``f1``.

    Attributes
    ----------
    value
        A finite number.
    unit
        As the workload writes it; ``1``, or empty, if it has none.
    """

    value: float
    unit: str = ""
