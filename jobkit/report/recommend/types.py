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
from jobkit.runs.request import Conditions
from jobkit.runs.results import Agreement
from jobkit.runs.trials import Trial
from jobkit.spec.site import Site
from jobkit.spec.sweep_spec import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class OfPrecision:
    """A setting of another precision than fp32, in a run that has fp32 too."""

    setting: str  # its knobs in words, as in `jobkit.answers.speed.Speed`
    # of the repeat that agrees least with fp32; ``None`` if one could not be compared
    agreement: Agreement | None
    accepted: bool  # whether it may be recommended

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

    ``speeds``: of the settings that succeeded.
    ``records``: of the points.
    ``agreements``: by the point's index.
    ``min_f1``: the least agreement that is accepted.
    """
    speeds, found = list(speeds), []
    if all(speed.params.get(PRECISION) != FP32 for speed in speeds):
        return ()
    for speed in speeds:
        if speed.params.get(PRECISION) == FP32:
            continue
        known = [
            agreements.get(record.point.index)
            for record in records
            if record.outcome is Outcome.OK and record.params == speed.params
        ]
        compared = [agreement for agreement in known if agreement]
        least = min(compared, key=lambda one: one.f1) if compared and len(compared) == len(known) else None
        accepted = least is not None and least.f1 >= min_f1
        found.append(OfPrecision(setting=speed.setting, agreement=least, accepted=accepted))
    return tuple(found)


def without_refused(speeds: Iterable[Speed], precisions: Iterable[OfPrecision]) -> tuple[Speed, ...]:
    """Return the settings that may be recommended."""
    refused = {precision.setting for precision in precisions if not precision.accepted}
    return tuple(speed for speed in speeds if speed.setting not in refused)


def lines(speeds: Sequence[Speed], chosen: Speed, precisions: Iterable[OfPrecision]) -> Iterator[str]:
    """Yield how the entities of the recommended setting agree with fp32, and what is faster and refused."""
    named = {precision.setting: precision for precision in precisions}
    if own := named.get(chosen.setting):
        yield f"Of this precision, {own.words}"
    faster = [
        speed
        for speed in speeds
        if speed.rate > chosen.rate and speed.setting in named and not named[speed.setting].accepted
    ]
    if faster and chosen.rate:
        best = max(faster, key=lambda speed: speed.rate)
        share, refused = 100 * (best.rate / chosen.rate - 1), named[best.setting]
        takes = f"; --min-f1 {format_f1(refused.agreement.f1)} takes it" if refused.agreement else ""
        yield f"Not taken: {best.setting}, {share:.0f} % faster, because {refused.words}{takes}"


def caution(chosen: Speed, records: Sequence[Record], precisions: Sequence[OfPrecision]) -> str:
    """Return a warning if the recommended precision was compared with nothing; else an empty string."""
    record = next((record for record in records if record.params == chosen.params), None)
    precision = record.precision if record else None
    if precision in {None, FP32} or any(own.setting == chosen.setting for own in precisions):
        return ""
    why = "no point with precision fp32 has succeeded"
    return f"{why}, so jobkit compared the entities of {precision} with nothing"


THROUGHPUT, SATURATION, MEMORY, SWEEP = "throughput", "saturation", "memory", "sweep"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """The data of a run folder."""

    run: str  # the folder, as named
    records: Sequence[Record]  # of the try that counts, of every point that has one
    batches: Mapping[str, Sequence[Batch]]  # by point id
    lengths: Lengths | None  # of the text; ``None`` if they are not known
    # of every try of every point: how long it ran; ``None`` if that is not known
    seconds: Sequence[float | None]
    resources: Resources | None  # what the spec asked for; ``None`` if sweep.yaml could not be read
    site: Site | None  # the site of the run; ``None`` if it is not to be had, or runs no scheduler
    plain_sites: Sequence[Site]  # the plain site of each scheduler
    to_come: int = 0  # `to_come`, `failed`: how many points have no result yet, or will have none
    failed: int = 0
    notes: tuple[str, ...] = ()  # what could not be read
    # the results of the predictions that this run has tested, in sentences without a full stop
    trials: tuple[str, ...] = ()
    tried: tuple[Trial, ...] = ()  # the same as data: the largest safe batch is below those that did not fit
    # the results of the user's predictions in other runs with this workload, model, GPU and versions
    ledger: str | None = None
    # by the point's index, if the run sweeps the precision: how its entities agree with those of fp32
    agreements: Mapping[int, Agreement] = field(default_factory=dict)
    # what a setting is chosen by, and what it must keep
    objective: Objective = field(default_factory=Objective)
    asked_bytes: int | None = None  # as in `jobkit.answers.memory.Memory`
    search: SearchAnswer | None = None  # if it is a search: what was found

    @property
    def measured(self) -> Sequence[Record]:
        """The records by which a setting is planned: of a search only those of its answer."""
        return self.search.winner_records if self.search else self.records


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendOptions:
    """What the user asks besides the run."""

    # to look at; ``None`` for those of `jobkit.answers.gpus.COMMON_GPUS`
    gpus: Sequence[GpuKind] | None = None
    # the corpus to estimate the time for; ``None`` for one pass of the measured text
    corpus: CorpusVolume | None = None
    margin: float = 0.0  # share of the memory to keep free besides what the bound keeps
    # the least agreement with the entities of fp32 that a precision must have to be recommended
    min_f1: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OnGpu:
    """What a GPU takes."""

    name: str  # `name`, `usable_bytes`, `link`: as in `jobkit.answers.gpus.GpuKind`
    usable_bytes: int
    link: str
    # whether the recommended setting stays within the bound; ``None`` if nothing is predicted
    fits: bool | None
    prediction: Prediction  # of the largest batch


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
    """What to ask the scheduler for, next to what was used."""

    gpus: int  # `gpus`, `gpu_type`, `cpus`, `memory_bytes`, `walltime_s`: to ask for
    gpu_type: str | None
    cpus: int
    memory_bytes: int
    walltime_s: int
    used_memory_bytes: int | None  # as in `jobkit.runs.request.held_by`
    lines: tuple[Lines, ...]  # for each scheduler


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
    """What was measured, on what."""

    run: str  # the folder
    workload: str  # `workload`, `text`, `model`, `stand_in`, `device`, `gpu`: as in the records
    text: str
    model: str | None
    stand_in: bool
    caveat: str
    device: str
    gpu: str | None
    points: int  # that succeeded
    paragraphs: int  # of the text
    # what of memory was measured: ``need``, ``allocated`` or ``ram`` (`jobkit.answers.observations`)
    kind: str
    capacity_bytes: int | None  # what the GPU has for a program; on a CPU the RAM that was asked for
    # what of it the allocators cannot have: the contexts, and what the GPU held before
    overhead_bytes: int | None
    workers: int = 1  # processes that shared the GPU, or the CPU


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobLargestBatch:
    """The largest batch for one value of the other knobs, given in words."""

    others: str
    largest: Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchChoice:
    """The batch size."""

    settings: tuple[Speed, ...]  # all that succeeded, the smallest first
    judged: Judgement  # the same, by the objective and the constraints of the spec
    # `recommended`, `fastest`: of these, less those whose precision is not accepted, and those that are
    # not allowed
    recommended: Speed
    fastest: Speed
    # how many times as fast as the recommended setting the fastest is; ``None`` if they are the same,
    # or have no speed
    times: Ratio | None
    # the values of the other knobs that the recommended setting has, in words; empty if none varies
    others: str
    largest: Prediction  # the largest with these, if it was measured
    # the same for each other value of the other knobs: each has a line of memory of its own
    lines: tuple[KnobLargestBatch, ...]
    # how far off the line without its largest point was there; ``None`` if unknown
    leave_largest_out: float | None
    # `THROUGHPUT`, `SATURATION`, `MEMORY` or `SWEEP`, which measured nothing larger; ``None`` if
    # nothing is predicted, or the objective is not the speed
    binds: str | None
    # how many workers the GPU holds with the recommended setting, by the bound; ``None`` if unknown
    most_workers: int | None = None
    # the allocator setting that ``largest`` and ``lines`` hold for, in words after a comma
    allocator: str = ""
    # for each setting of another precision than fp32, how its entities agree with those of fp32
    precisions: tuple[OfPrecision, ...] = ()
    # the same within the limit that the run was asked for; ``None`` without one
    asked: Prediction | None = None

    @property
    def answer(self) -> Prediction:
        """The largest batch that was asked for."""
        return self.asked or self.largest


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """All that ``jobkit recommend`` prints."""

    measured: MeasuredOn  # `measured`, `batch`, `cards`, `corpus`, `time`, `energy`, `cost`: the answers
    batch: BatchChoice
    beware: tuple[str, ...]  # sentences without a full stop
    cards: tuple[OnGpu, ...]
    corpus: CorpusVolume
    time: Duration
    energy: EnergyAnswer | None  # ``None`` if none was measured
    request: RequestAdvice | None  # ``None`` if the spec could not be read
    cost: SweepCost
    margin: float  # as asked for
    trials: tuple[str, ...]  # `trials`, `ledger`: as in `RunData`
    ledger: str | None
    conditions: Conditions | None  # under which the recommended setting was measured; ``None`` for a command
    search: SearchAnswer | None = None  # as in `RunData`
