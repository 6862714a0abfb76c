"""The answer of ``jobkit recommend`` and what it is made from, as data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jobkit.answers.gpus import GpuKind
from jobkit.answers.loads import Lengths
from jobkit.answers.memory import Prediction
from jobkit.answers.objective import Objective
from jobkit.answers.search_answer import SearchAnswer
from jobkit.answers.setting import Ratio
from jobkit.answers.speed import CorpusVolume, Duration, Speed
from jobkit.core.knobs import FP32, PRECISION
from jobkit.core.records import Batch, Outcome, Record
from jobkit.core.units import format_count, format_f1
from jobkit.report.recommend.energy import EnergyAnswer
from jobkit.report.recommend.objective import Judgement
from jobkit.runs.conditions import Conditions
from jobkit.runs.results import Agreement
from jobkit.runs.trials import Trial
from jobkit.spec.site import Site
from jobkit.spec.sweep_spec import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class OfPrecision:
    """A setting of another precision than fp32, in a run that has fp32 too.

    Attributes
    ----------
    setting
        Its knobs in words, as in `jobkit.answers.speed.Speed`.
    agreement
        Of the repeat that agrees least with fp32; ``None`` if one could not be compared.
    accepted
        Whether it may be recommended.
    """

    setting: str
    agreement: Agreement | None
    accepted: bool

    @property
    def words(self) -> str:
        """How its entities agree with those of fp32."""
        if self.agreement is None:
            return "its entities could not be compared with those of fp32"
        if not self.agreement.differ:
            return f"the entities are those of fp32, {self.agreement.entities:,} in all"
        differ = format_count(self.agreement.differ, "entity", "entities")
        return f"{differ} of it or of fp32 are not in the other (F1 {format_f1(self.agreement.f1)})"


def of_precisions(
    speeds: Iterable[Speed], records: Sequence[Record], agreements: Mapping[int, Agreement], min_f1: float
) -> tuple[OfPrecision, ...]:
    """Return the settings of other precisions than fp32; none if fp32 did not succeed.

    Parameters
    ----------
    speeds
        Of the settings that succeeded.
    records
        Of the points.
    agreements
        By the point's index.
    min_f1
        The least agreement that is accepted.
    """
    words = {speed.params.get(PRECISION) for speed in speeds}
    if FP32 not in words:
        return ()
    return tuple(
        _of(speed, _least([agreements.get(index) for index in _indices(speed, records)]), min_f1)
        for speed in speeds
        if speed.params.get(PRECISION) != FP32
    )


def _of(speed: Speed, least: Agreement | None, min_f1: float) -> OfPrecision:
    accepted = least is not None and least.f1 >= min_f1
    return OfPrecision(setting=speed.setting, agreement=least, accepted=accepted)


def _indices(speed: Speed, records: Iterable[Record]) -> list[int]:
    return [
        record.point.index
        for record in records
        if record.outcome is Outcome.OK and record.params == speed.params
    ]


def _least(agreements: Iterable[Agreement | None]) -> Agreement | None:
    """Return the agreement with the least F1; ``None`` if one is missing."""
    known = [(agreement.f1, agreement) if agreement else (-1.0, None) for agreement in agreements]
    return min(known, key=lambda pair: pair[0], default=(0.0, None))[1]


def without_refused(speeds: Iterable[Speed], precisions: Iterable[OfPrecision]) -> tuple[Speed, ...]:
    """Return the settings that may be recommended."""
    refused = {precision.setting for precision in precisions if not precision.accepted}
    return tuple(speed for speed in speeds if speed.setting not in refused)


def lines(speeds: Sequence[Speed], chosen: Speed, precisions: Iterable[OfPrecision]) -> Iterator[str]:
    """Yield how the entities of the recommended setting agree with fp32, and what is faster and refused."""
    named = {precision.setting: precision for precision in precisions}
    if own := named.get(chosen.setting):
        yield f"Of this precision, {own.words}"
    allowed = without_refused(speeds, named.values())
    faster = [speed for speed in speeds if speed not in allowed and speed.rate > chosen.rate]
    if faster and chosen.rate:
        best = max(faster, key=lambda speed: speed.rate)
        share = 100 * (best.rate / chosen.rate - 1)
        refused = named[best.setting]
        yield f"Not taken: {best.setting}, {share:.0f} % faster, because {refused.words}{_accept(refused)}"


def _accept(refused: OfPrecision) -> str:
    return f"; --min-f1 {format_f1(refused.agreement.f1)} takes it" if refused.agreement else ""


def caution(chosen: Speed, records: Sequence[Record], precisions: Sequence[OfPrecision]) -> str:
    """Return a warning if the recommended precision was compared with nothing; else an empty string."""
    record = next((record for record in records if record.params == chosen.params), None)
    precision = record.precision if record else None
    if precision in {None, FP32} or any(own.setting == chosen.setting for own in precisions):
        return ""
    why = "no point with precision fp32 has succeeded"
    return f"{why}, so the entities of {precision} were compared with nothing"


THROUGHPUT, SATURATION, MEMORY, SWEEP = "throughput", "saturation", "memory", "sweep"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """The data of a run folder.

    Attributes
    ----------
    run
        The folder, as named.
    records
        Of the try that counts, of every point that has one.
    batches
        By point id.
    lengths
        Of the text; ``None`` if they are not known.
    seconds
        Of every try of every point: how long it ran; ``None`` if that is not known.
    resources
        What the spec asked for; ``None`` if sweep.yaml could not be read.
    site
        The site of the run; ``None`` if it is not to be had, or runs no scheduler.
    plain_sites
        The plain site of each scheduler.
    to_come, failed
        How many points have no result yet, or will have none.
    notes
        What could not be read.
    trials
        The results of the predictions that this run has tested, in sentences without a full stop.
    tried
        The same as data: the largest safe batch is below those that did not fit.
    ledger
        The results of the user's predictions in other runs with this workload, model, GPU and versions.
    agreements
        By the point's index, if the run sweeps the precision: how its entities agree with those of fp32.
    objective
        What a setting is chosen by, and what it must keep.
    search
        If it is a search: what was found.
    """

    run: str
    records: Sequence[Record]
    batches: Mapping[str, Sequence[Batch]]
    lengths: Lengths | None
    seconds: Sequence[float | None]
    resources: Resources | None
    site: Site | None
    plain_sites: Sequence[Site]
    to_come: int = 0
    failed: int = 0
    notes: tuple[str, ...] = ()
    trials: tuple[str, ...] = ()
    tried: tuple[Trial, ...] = ()
    ledger: str | None = None
    agreements: Mapping[int, Agreement] = field(default_factory=dict)
    objective: Objective = field(default_factory=Objective)
    search: SearchAnswer | None = None

    @property
    def measured(self) -> Sequence[Record]:
        """The records by which a setting is planned: of a search only those of its answer."""
        return self.search.winner_records if self.search else self.records


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendOptions:
    """What the user asks besides the run.

    Attributes
    ----------
    gpus
        To look at; ``None`` for those of `jobkit.answers.gpus.COMMON_GPUS`.
    corpus
        The corpus to estimate the time for; ``None`` for one pass of the measured text.
    margin
        Share of the memory to keep free besides what the bound keeps.
    min_f1
        The least agreement with the entities of fp32 that a precision must have to be recommended.
    """

    gpus: Sequence[GpuKind] | None = None
    corpus: CorpusVolume | None = None
    margin: float = 0.0
    min_f1: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OnGpu:
    """What a GPU takes.

    Attributes
    ----------
    name, usable_bytes, link
        As in `jobkit.answers.gpus.GpuKind`.
    fits
        Whether the recommended setting stays within the bound; ``None`` if nothing is predicted.
    prediction
        Of the largest batch.
    """

    name: str
    usable_bytes: int
    link: str
    fits: bool | None
    prediction: Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Header lines for one scheduler's site, with their prefix, or the ``reason`` why there are none.

    ``own`` is whether it is the site of the run; else it is the scheduler's plain one, and the
    names of queues, accounts and GPU types are left out.
    """

    scheduler: str
    site: str
    own: bool
    lines: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAdvice:
    """What to ask the scheduler for, next to what was used.

    Attributes
    ----------
    gpus, gpu_type, cpus, memory_bytes, walltime_s
        To ask for.
    used_memory_bytes
        As in `jobkit.runs.request.held_by`.
    lines
        For each scheduler.
    """

    gpus: int
    gpu_type: str | None
    cpus: int
    memory_bytes: int
    walltime_s: int
    used_memory_bytes: int | None
    lines: tuple[Lines, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCost:
    """What the sweep itself took: seconds of the GPU, or on a CPU of the CPUs, over all its tries.

    ``unknown`` is how many of the tries left no times.
    """

    seconds: float
    tries: int
    unknown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOn:
    """What was measured, on what.

    Attributes
    ----------
    run
        The folder.
    workload, text, model, stand_in, device, gpu
        As in the records.
    points
        That succeeded.
    paragraphs
        Of the text.
    kind
        What of memory was measured: ``need``, ``allocated`` or ``ram`` (`jobkit.answers.observations`).
    capacity_bytes
        What the GPU has for a program; on a CPU the RAM that was asked for.
    overhead_bytes
        What of it the allocators cannot have: the contexts, and what the GPU held before.
    workers
        Processes that shared the GPU, or the CPU.
    """

    run: str
    workload: str
    text: str
    model: str | None
    stand_in: bool
    caveat: str
    device: str
    gpu: str | None
    points: int
    paragraphs: int
    kind: str
    capacity_bytes: int | None
    overhead_bytes: int | None
    workers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobLargestBatch:
    """The largest batch for one value of the other knobs, given in words."""

    others: str
    largest: Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchChoice:
    """The batch size.

    Attributes
    ----------
    settings
        All that succeeded, the smallest first.
    judged
        The same, by the objective and the constraints of the spec.
    recommended, fastest
        Of these, less those whose precision is not accepted, and those that are not allowed.
    times
        How many times as fast as the recommended setting the fastest is; ``None`` if they are the same, or
        have no speed.
    others
        The values of the other knobs that the recommended setting has, in words; empty if none varies.
    largest
        The largest with these, if it was measured.
    lines
        The same for each other value of the other knobs: each has a line of memory of its own.
    leave_largest_out
        How far off the line without its largest point was there; ``None`` if unknown.
    binds
        `THROUGHPUT`, `SATURATION`, `MEMORY` or `SWEEP`, which measured nothing larger; ``None``
        if nothing is predicted, or the objective is not the speed.
    most_workers
        How many workers the GPU holds with the recommended setting, by the bound; ``None`` if unknown.
    allocator
        The allocator setting that ``largest`` and ``lines`` hold for, in words after a comma.
    precisions
        For each setting of another precision than fp32, how its entities agree with those of fp32.
    """

    settings: tuple[Speed, ...]
    judged: Judgement
    recommended: Speed
    fastest: Speed
    times: Ratio | None
    others: str
    largest: Prediction
    lines: tuple[KnobLargestBatch, ...]
    leave_largest_out: float | None
    binds: str | None
    most_workers: int | None = None
    allocator: str = ""
    precisions: tuple[OfPrecision, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """All that ``jobkit recommend`` prints.

    Attributes
    ----------
    measured, batch, cards, corpus, time, energy, cost
        The answers.
    beware
        Sentences without a full stop.
    request
        ``None`` if the spec could not be read.
    energy
        ``None`` if none was measured.
    margin
        As asked for.
    trials, ledger
        As in `RunData`.
    conditions
        Under which the recommended setting was measured; ``None`` for a command.
    search
        As in `RunData`.
    """

    measured: MeasuredOn
    batch: BatchChoice
    beware: tuple[str, ...]
    cards: tuple[OnGpu, ...]
    corpus: CorpusVolume
    time: Duration
    energy: EnergyAnswer | None
    request: RequestAdvice | None
    cost: SweepCost
    margin: float
    trials: tuple[str, ...]
    ledger: str | None
    conditions: Conditions | None
    search: SearchAnswer | None = None
