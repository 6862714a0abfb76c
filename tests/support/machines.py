"""Machines on which every setting has a speed and a need of memory, for searches without a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from jobkit.core.files import write_atomically
from jobkit.core.json_codec import to_json
from jobkit.core.knobs import EVERY, EXACT, MPS, OFF, ON, ORDER, PADDED, SHORTCUTS, WORKERS, Value, numbers
from jobkit.core.layout import TUNE_GOAL_FILE
from jobkit.core.measurements import Energy, MemoryReadings, Sampler, Share
from jobkit.core.records import Outcome
from jobkit.core.units import GIB
from jobkit.extensions.tune.goal import TuneGoal
from jobkit.extensions.tune.measured import Candidate, MeasuredCandidate
from jobkit.extensions.tune.search import first_point, propose_point
from jobkit.runs.search_loop import next_point
from tests.support.builders import GPU, need, point, record, summary, write_points, write_record

SIZES = (4_000, 16_000, 32_000, 64_000)
LOOP: dict[str, Value] = {ORDER: "text", "batch_size": 300, WORKERS: 1, MPS: OFF}
GOAL = TuneGoal(
    size_knob=PADDED,
    sizes=SIZES,
    loads=SIZES,
    order="sorted",
    padding={"text": 0.3, "sorted": 0.9},
    loop=LOOP,
    workers=16,
    cpus=1,
    limited_by="16 CPUs",
    mps=True,
    memory_every=8,
    search_every=2,
    budget_s=3600,
)
FAST = replace(GOAL, shortcuts=True, loop={**LOOP, SHORTCUTS: OFF})
"""Of a workload with shortcuts."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine on which every setting has a speed and a need of memory.

    Attributes
    ----------
    noise
        By which share of its speed every other repeat is faster or slower.
    cores
        Workers up to this number add as much as the first; those beyond nothing.
    shared
        How much of the speed of all workers is left without MPS.
    best
        The size with which it is fastest.
    exact
        How many times as fast it is with shortcuts.
    refuses
        The phases in which it does without them.
    among
        The memory of one of several workers, over that of one alone.
    bytes_per_load, gpu_bytes
        Of a batch, above the context; and of the GPU.
    """

    noise: float = 0.0
    cores: int = 64
    shared: float = 0.7
    best: int = 16_000
    bytes_per_load: int = 10_000
    gpu_bytes: int = 140 * GIB
    allows_mps: bool = True
    exact: float = 3.0
    refuses: tuple[str, ...] = ()
    utilisation: float = 40.0
    idle_share: float = 0.0
    start_s: float = 10.0
    items: int = 8_000
    among: float = 1.0
    fails: Mapping[tuple[str, Value], Outcome] = field(default_factory=dict)

    def speed(self, params: Mapping[str, Value]) -> float:
        workers, size = numbers(params)[WORKERS], numbers(params).get(PADDED, 2 * self.best)
        each = 200.0 / (1 + abs(size / self.best - 1) / 10)
        each *= 0.8 if params[ORDER] == "text" else 1.0
        each *= self.exact if params.get(SHORTCUTS) == EXACT else 1.0
        mps = self.allows_mps and params.get(MPS, OFF) != OFF
        return each * min(workers, self.cores) * (1.0 if workers == 1 or mps else self.shared)

    def scatters(self, candidate: Candidate, /) -> float:
        """Return by how much a measurement of the speed is off: 1 if it is not."""
        return 1 + self.noise if candidate.repeat % 2 == 0 else 1 - self.noise

    def refuses_shortcuts(self, candidate: Candidate) -> bool:
        """Return whether a point does without the shortcuts of its setting."""
        return candidate.params.get(SHORTCUTS) == EXACT and candidate.phase in self.refuses

    def fits(self, params: Mapping[str, Value]) -> bool:
        load, workers = numbers(params).get(PADDED, 10_000), numbers(params)[WORKERS]
        among = self.among if workers > 1 else 1.0
        return workers * among * (GIB + load * self.bytes_per_load) <= self.gpu_bytes

    def run(self, candidate: Candidate) -> MeasuredCandidate:
        params, workers = candidate.params, candidate.workers
        for (knob, value), outcome in self.fails.items():
            if params.get(knob) == value:
                return MeasuredCandidate(outcome, None, self.start_s)
        load, every = numbers(params).get(PADDED, 10_000), numbers(params).get(EVERY, 1)
        if not self.fits(params):
            return MeasuredCandidate(Outcome.GPU_OOM, None, self.start_s)
        refused = self.refuses_shortcuts(candidate)
        speed = self.speed({**params, SHORTCUTS: OFF} if refused else params) * self.scatters(candidate)
        work_s = self.items / every / speed
        held = point().at(params)
        told = replace(
            record(replace(held, params={"batch_size": 1})),
            point=held,
            summary=replace(summary(50, work_s, load), items=self.items // every, items_per_s=speed),
            needs=(need(load, load * self.bytes_per_load + candidate.repeat * 2**12),),
            gpu=replace(GPU, total_bytes=self.gpu_bytes),
            memory=MemoryReadings(
                context_bytes=GIB, device_idle_bytes=0, process_peak_bytes=GIB + load * self.bytes_per_load
            ),
            energy=Energy(span_s=work_s, counter_j=500 * work_s),
            sampler=Sampler(utilisation_mean_percent=self.utilisation),
            workers=tuple(Share(worker=k, idle_s=self.idle_share * work_s) for k in range(workers)),
            mps=ON if self.allows_mps and workers > 1 and params.get(MPS, OFF) != OFF else OFF,
            effective={SHORTCUTS: "off: another version"} if refused else {},
        )
        return MeasuredCandidate(Outcome.OK, told, self.start_s + work_s)


def search(folder: Path, machine: Machine, goal: TuneGoal = GOAL, *, most: int = 100) -> Path:
    """Return a run folder in which a machine was searched, for so many points at most."""
    run = write_points(folder / "tune-20260102-101530-3f9a", [first_point(point(params={}), goal)])
    write_atomically(run / TUNE_GOAL_FILE, to_json(goal))
    for _ in range(most):
        if not (of := next_point(run, propose_point)):
            break
        result = machine.run(Candidate(of.params, of.phase, of.repeat))
        if result.record:
            began = datetime.fromisoformat(result.record.started_at) + timedelta(hours=of.index)
            ended = (began + timedelta(seconds=result.held_s)).isoformat()
            write_record(run, replace(result.record, point=of, started_at=began.isoformat(), ended_at=ended))
    return run
