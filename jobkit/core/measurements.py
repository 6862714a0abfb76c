"""What one try measured, as its record holds it: memory by instrument, the card, the sampler, the batches.

Standard library only, as in `records`: bytes and seconds; a value that could not be had is ``None``, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Where the memory went, by instrument.

    Attributes
    ----------
    context_bytes
        The CUDA context with the kernels loaded by the warm-up: what NVML sees of the process
        beyond what torch has reserved.
    weights_bytes
        torch allocated after the model was loaded, before the first batch.
    activations_bytes
        torch's allocated peak above the weights.
    other_bytes
        NVML's process peak less the three above: allocator slack, kernels, workspaces.
    allocated_peak_bytes, reserved_peak_bytes
        torch's, over all batches.
    process_peak_bytes, device_peak_bytes, device_idle_bytes
        NVML's, as sampled; ``device_idle_bytes`` before this process opened the card.
    rss_peak_bytes
        Largest sampled sum of the resident memory of the worker and its children.
    maxrss_bytes
        The kernel's own high-water mark of the worker (``ru_maxrss``).
    rss_before_bytes, rss_model_bytes
        Resident memory before and after the model was loaded.
    cgroup_peak_bytes
        cgroup v2 ``memory.peak`` of the job, where there is one.
    disagreement
        A sentence where two instruments contradict each other, else empty.
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
    rss_peak_bytes: int | None = None
    maxrss_bytes: int | None = None
    rss_before_bytes: int | None = None
    rss_model_bytes: int | None = None
    cgroup_peak_bytes: int | None = None
    disagreement: str = ""

    @property
    def ram_peak_bytes(self) -> int | None:
        """The most resident memory of the worker, by the instrument that measured most."""
        known = [size for size in (self.maxrss_bytes, self.rss_peak_bytes) if size is not None]
        return max(known, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """How little memory one of the heaviest batches passes with.

    All figures are torch's allocator's: the CUDA context comes on top.

    Attributes
    ----------
    load
        Of the batch.
    allocated_bytes, reserved_bytes
        torch's peaks of the batch by itself, from an empty cache.
    passed_bytes, failed_bytes
        The smallest cap that sufficed, and the largest that did not: the need lies between.
        Where no cap was tried they are the reserved bytes, and the allocated less one.
    tries
        How often the batch was run.
    seconds
        What that took.
    """

    load: int
    allocated_bytes: int
    reserved_bytes: int
    passed_bytes: int
    failed_bytes: int
    tries: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """The card that the try ran on.

    Attributes
    ----------
    uuid
        NVML's, of the MIG instance where there is one.
    total_bytes
        What the card holds.
    driver, cuda
        Versions.
    foreign_processes
        Other processes seen on the card when the try began; ``None`` where NVML does not tell.
    """

    name: str
    uuid: str
    total_bytes: int | None = None
    driver: str | None = None
    cuda: str | None = None
    foreign_processes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """How well the sampler process did.

    Attributes
    ----------
    period_s
        The mean time between two samples that was achieved.
    samples
        How many.
    memory_query
        ``v2`` or ``v1``: which NVML memory call answered (v1 counts the driver's reserve as used).
    utilisation_mean_percent, power_mean_w, power_max_w
        Of the card, once a second, over the batches.
    """

    period_s: float | None = None
    samples: int = 0
    memory_query: str | None = None
    utilisation_mean_percent: float | None = None
    power_mean_w: float | None = None
    power_max_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The batches in figures.

    Attributes
    ----------
    items_total, batches_total
        How much there was to do: less than ``items`` says how far a cut try came.
    items, sentences, characters, batches
        How much was done.
    work_s
        The sum of the batches' seconds: no loading, no warm-up, no writing.
    items_per_s
        ``items / work_s``.
    batch_mean_s, batch_p50_s, batch_p95_s
        Of the batches' seconds; mean over what ran, partial batches too.
    padding_efficiency
        characters of the paragraphs over characters padded to, at most 1.
    load_max
        The largest load of a batch.
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
