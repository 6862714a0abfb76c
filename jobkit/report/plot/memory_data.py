"""Memory against load, as data for a picture: what was measured, the line, its bound, the limit. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jobkit.answers.memory import TOO_SMALL, Memory
from jobkit.answers.memory_line import Estimate, Fit
from jobkit.answers.observations import NEED, RAM, measured_bytes
from jobkit.core.knobs import BATCH_SIZE, PADDED
from jobkit.core.records import Outcome, Record
from jobkit.core.units import format_bytes_gib
from jobkit.runs.trials import Trial
from jobkit.worker.workloads.base import SHIPPED, load_unit

Spot = tuple[float, float]
"""A load (in a file without records a batch size) and bytes."""

MEASURED, ALLOCATED, PREDICTED, VERIFIED, EXCEEDED = (
    "measured",
    "allocated_peak",
    "predicted",
    "verified",
    "exceeded",
)
"""The kinds of marks."""
WORDS = {BATCH_SIZE: "batch", PADDED: "budget"}
"""What the legend calls a value of a knob."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Points of one kind, with their name in the legend."""

    kind: str
    name: str
    spots: tuple[Spot, ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """Bytes at any load, with a name for the legend."""

    name: str
    at: Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Limit:
    """Bytes that must not be exceeded, with a name for the legend."""

    name: str
    size_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPanel:
    """Memory against load."""

    across: str  # `across`, `up`: what the axes show; ``up`` is in bytes here
    up: str
    marks: tuple[Marks, ...]  # what was measured, predicted and verified; kinds without a spot are left out
    # `line`, `bound`: the fitted line and its one-sided 95 % bound; ``None`` if there is none
    line: Curve | None = None
    bound: Curve | None = None
    limit: Limit | None = None  # what must not be exceeded; ``None`` if unknown
    reach: float | None = None  # the load at which the line meets the limit; ``None`` if one is missing
    notes: tuple[str, ...] = ()  # why there is no line, or what to beware of: sentences without a full stop

    def spots(self, *kinds: str) -> list[Spot]:
        """Return the spots of some kinds, of all where none is named."""
        return [spot for mark in self.marks if not kinds or mark.kind in kinds for spot in mark.spots]


def together(panels: Mapping[str, MemoryPanel]) -> MemoryPanel:
    """Return one panel of what was measured with several values of the other knobs, without a line.

    Each value has a line of its own, which ``jobkit recommend`` prints.
    """
    first = next(iter(panels.values()))
    marks = (
        replace(mark, name=f"{mark.name}, {words}")
        for words, panel in panels.items()
        for mark in panel.marks
        if mark.kind == MEASURED
    )
    note = "no line: another knob than batch_size varies; jobkit recommend fits a line for each of its values"
    return MemoryPanel(across=first.across, up=first.up, marks=tuple(marks), limit=first.limit, notes=(note,))


def memory_of_records(
    memory: Memory,
    tries: Sequence[Record],
    trials: Sequence[Trial] = (),
    gpu_memory_bytes: int | None = None,
) -> MemoryPanel:
    """Return the panel of a group of points of run folders.

    ``memory``: what the points show, as `jobkit.answers.memory.memory_by_setting` returns it.
    ``tries``: of points that tried a prediction. The line is without them: it is what they are held to.
    ``trials``: what was predicted for the tries before they ran.
    ``gpu_memory_bytes``: of the GPU to draw, the context included; by default what the tries had to stay
        within, else the GPU measured on.
    """
    workload = next((record.point.workload for record in memory.records), "")
    limit = _limit(memory, trials, gpu_memory_bytes)
    panel = MemoryPanel(
        across=f"load ({load_unit(workload)})" if workload in SHIPPED else "load",
        up="RAM" if memory.kind == RAM else "allocator memory",
        marks=_present([*_measured(memory), *_tried(memory.records, tries, limit)]),
        limit=limit,
    )
    if isinstance(memory.line, str):
        return replace(panel, notes=(f"no line: {memory.line}",))
    return _with_line(panel, memory, memory.line, trials)


def _limit(memory: Memory, trials: Sequence[Trial], gpu_memory_bytes: int | None) -> Limit | None:
    """Return what must not be exceeded; ``None`` if that is unknown, as on a CPU without trials."""
    if trials and (gpu_memory_bytes is None or memory.kind == RAM):
        size_bytes = min(trial.capacity_bytes for trial in trials)
        return Limit(f"limit {format_bytes_gib(size_bytes)}", size_bytes)
    if memory.limit_bytes is None or memory.kind == RAM:
        return None
    room = memory.allocator_bytes(memory.limit_bytes)
    less = "GPU less context" if memory.overhead_bytes else "GPU"
    return Limit(f"{less}, {format_bytes_gib(room)}", room)


def _present(marks: Iterable[Marks]) -> tuple[Marks, ...]:
    return tuple(mark for mark in marks if mark.spots)


def _measured(memory: Memory) -> list[Marks]:
    well = [record for record in memory.records if record.outcome is Outcome.OK]
    if memory.kind == NEED:
        needs = [need for record in well for need in record.needs]
        return [
            Marks(ALLOCATED, "allocated peak", tuple((need.load, need.allocated_bytes) for need in needs)),
            Marks(MEASURED, "need", tuple((need.load, need.passed_bytes) for need in needs)),
        ]

    def peaks(name: str) -> tuple[Spot, ...]:
        return _spots((_load(record), getattr(record.memory, name)) for record in well)

    if memory.kind == RAM:
        return [Marks(MEASURED, "RAM peak", peaks("ram_peak_bytes"))]
    return [
        Marks(ALLOCATED, "allocated peak", peaks("allocated_peak_bytes")),
        Marks(MEASURED, "reserved peak", peaks("reserved_peak_bytes")),
    ]


def _tried(measured: Sequence[Record], tries: Sequence[Record], limit: Limit | None) -> list[Marks]:
    """Return the results of the predictions, and the other points that ran out of memory."""
    well = [record for record in tries if record.outcome is Outcome.OK]
    failed = [
        record for record in (*measured, *tries) if record.outcome in {Outcome.GPU_OOM, Outcome.RAM_OOM}
    ]
    had = limit.size_bytes if limit else None
    verified = _spots((_load(record), measured_bytes(record)) for record in well)
    exceeded = _spots((_load(record), record.point.cap_bytes or had) for record in failed)
    return [
        Marks(VERIFIED, f"verified{_sizes(well)}", verified),
        Marks(EXCEEDED, f"out of memory{_sizes(failed)}", exceeded),
    ]


def _load(record: Record) -> int | None:
    return record.failed_load or (record.summary.load_max if record.summary else None)


def _spots(pairs: Iterable[tuple[float | None, float | None]]) -> tuple[Spot, ...]:
    return tuple((load, size_bytes) for load, size_bytes in pairs if load and size_bytes)


def _sizes(records: Sequence[Record]) -> str:
    for knob, word in WORDS.items():
        if known := {size for record in records if (size := record.point.numbers.get(knob))}:
            return f", {word} {', '.join(f'{size:,}' for size in sorted(known))}"
    return ""


def _with_line(panel: MemoryPanel, memory: Memory, fit: Fit, trials: Sequence[Trial]) -> MemoryPanel:
    slack = f"allocated line x {memory.slack:.2f} (slack)"
    predicted, notes = _predicted(memory, fit, panel.limit, trials)
    return replace(
        panel,
        marks=_present([*panel.marks, *predicted]),
        line=Curve("fitted line" if memory.slack == 1 else slack, fit.at),
        bound=Curve("95 % bound, one-sided", fit.upper),
        reach=fit.largest(panel.limit.size_bytes) if panel.limit else None,
        notes=notes,
    )


def _predicted(
    memory: Memory, fit: Fit, limit: Limit | None, trials: Sequence[Trial]
) -> tuple[list[Marks], tuple[str, ...]]:
    """Return what was predicted for the trials, else the largest safe batch and the weightiest doubt."""
    if trials:
        spots = tuple((trial.load, trial.expected_bytes) for trial in trials)
        return [Marks(PREDICTED, "predicted", spots)], ()
    prediction, loads = memory.largest, memory.loads
    if limit is None or prediction.reason:
        return [], ()
    if not prediction.safe_batch:
        return [], (TOO_SMALL[prediction.knob],)
    load = loads.load(prediction.safe_batch) if loads else prediction.safe_load
    whole = " (whole text)" if prediction.saturated else ""
    name = f"predicted, {WORDS[prediction.knob]} {prediction.safe_batch:,}{whole}"
    return [Marks(PREDICTED, name, ((load, fit.at(load)),))], prediction.doubts[:1]


def memory_of_file(guess: Estimate, peaks: Sequence[Spot], up: str) -> MemoryPanel:
    """Return the panel of a file without records: a straight line in the batch size, without an error bar.

    ``guess``: the line, and where it meets the memory of the GPU.
    ``peaks``: batch size and total peak of each run of the log.
    ``up``: which memory it is.
    """
    capacity, line, largest = guess.capacity_bytes, guess.line, guess.largest
    panel = MemoryPanel(
        across="batch size (the log has no load)",
        up=up,
        marks=_present([Marks(MEASURED, "peak in the log", tuple(peaks))]),
        limit=Limit(f"GPU {format_bytes_gib(capacity)}", capacity) if capacity else None,
    )
    if line is None:
        return replace(panel, notes=(f"no line: {guess.reason}",))
    straight, note = Curve("straight line", line.at), line.no_error_bar or "no error bar"
    panel = replace(panel, line=straight, notes=(note,))
    if largest is None:
        return panel
    at_limit = Marks(PREDICTED, f"meets the limit near batch {largest:,}", ((largest, line.at(largest)),))
    doubts = tuple(warning for warning in guess.warnings if warning != line.no_error_bar)
    return replace(panel, marks=(*panel.marks, at_limit), reach=float(largest), notes=(note, *doubts[:1]))
