"""What a search for a setting is to find, and what the text alone decided. Pure, standard library only."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import field
from typing import Any

from jobkit.answers.objective import Finals, Objective
from jobkit.core import knobs
from jobkit.core.frozen import keyed
from jobkit.core.records import Record

CALLS_A_WORKER = 8
"""With fewer calls for each worker, the last calls leave too many workers without work."""
MAX_WORK_UNIT = 300
"""The most paragraphs of a call."""
MEASURED_S = 3.0
"""The work of a point below which chance may decide more than the setting does."""


def switches_of(names: Container[str], *, on_gpu: bool) -> Mapping[str, Any]:
    """Return which switches a search tries, as the fields of a goal, of a workload with these knobs."""
    return {knobs.MPS: on_gpu, knobs.SHORTCUTS: knobs.SHORTCUTS in names}


def plain_loop(batch_size: int, threads: int | None, switches: Mapping[str, Any]) -> dict[str, knobs.Value]:
    """Return what people run before they tune: one worker, text order, a fixed batch size, no switch on."""
    own: dict[str, knobs.Value] = {knobs.ORDER: "text", knobs.BATCH_SIZE: batch_size, knobs.WORKERS: 1}
    if switches[knobs.MPS]:
        own[knobs.MPS] = knobs.OFF
    if threads:
        own[knobs.THREADS] = threads
    return without_shortcuts(own) if switches[knobs.SHORTCUTS] else own


@keyed
class TuneGoal:
    """The file ``tune.json``: what the search is to find, and what the text alone decided."""

    # ``padded`` or ``batch_size``, its values in ascending order, and the largest load of each
    size_knob: str
    sizes: tuple[int, ...]
    loads: tuple[int, ...]
    order: str  # the order of paragraphs and sentences
    # characters over padded characters at the middle size, by the orders that were compared
    padding: Mapping[str, float] = field(default_factory=dict)
    loop: Mapping[str, knobs.Value]  # the knobs of the plain loop: one worker, text order, a fixed batch size
    workers: int  # the most workers, and the CPUs of each
    cpus: int
    limited_by: str  # why there are not more workers: a key of the spec, or the number of CPUs
    mps: bool  # whether workers may share a GPU through MPS
    # whether the workload has shortcuts: all settings but the plain loop use them, unless they are refused
    shortcuts: bool = False
    # whether one worker with shortcuts may fill the GPU: it has all CPUs, and more workers must share them
    fills_gpu: bool = False
    # whether the budget is too short to try all that may be faster: it decides the number of steps and parts
    short: bool = False
    # the part of the text on which the points of these phases work; for the search that with the most workers
    memory_every: int = 1
    search_every: int = 1
    # repeats of each finalist and of the plain loop: those that run in any case, if the budget allows, and
    # the most
    repeats: int = 3
    most_repeats: int = 0
    # half the 95 % interval of the mean speed, as a share of the mean, at which repeats end; 0 for repeats
    # that end once a finalist is shown to be better, or worse, than the plain loop
    share: float = 0.0
    looks: int = 1  # as in `jobkit.answers.objective.Finals`
    # the most points of the search that are measured again, because scatter may have decided a step
    again: int = 0
    # the order that is compared with ``order`` at the best setting; empty if the text decides it
    other_order: str = ""
    gain: float = 0.05  # the share by which twice as many workers must be faster, else the search ends
    budget_s: float  # the time that the search may take
    memory_bytes: int | None = None  # memory of the GPU, or on a CPU of the job; ``None`` for all of the GPU
    # what the finalists are chosen by, and the constraints of the spec
    objective: Objective = field(default_factory=Objective)

    def __post_init__(self) -> None:
        """Take the name of the knob in an earlier version as that of today."""
        object.__setattr__(self, "size_knob", knobs.RENAMED.get(self.size_knob, self.size_knob))

    def setting(self, size: int, workers: int, *, every: int = 1, **words: str) -> dict[str, knobs.Value]:
        """Return the knobs of a setting; ``words`` are the knobs whose values are words."""
        own: dict[str, knobs.Value] = {knobs.ORDER: self.order, self.size_knob: size, knobs.WORKERS: workers}
        if self.mps:
            own[knobs.MPS] = knobs.OFF
        if self.shortcuts:
            own[knobs.SHORTCUTS] = knobs.EXACT
        if self.fills_gpu:
            own[knobs.THREADS] = max(1, self.workers * self.cpus // workers)
        return part(own | {knob: word for knob, word in words.items() if knob in own}, every)

    @property
    def on_gpu(self) -> bool:
        """Whether it is the GPU that the settings share: then ``mps`` may be on."""
        return self.mps

    @property
    def tries_without(self) -> bool:
        """Whether the best setting is compared without its shortcuts, unless the search is short."""
        return self.shortcuts and not self.fills_gpu

    @property
    def simpler(self) -> list[str]:
        """What the best setting is compared without, unless the search is short."""
        return ["MPS"] * self.mps + ["shortcuts"] * self.tries_without

    @property
    def cuts_loop(self) -> bool:
        """Whether the part of the plain loop is cut first, which is so much slower than what has shortcuts.

        Its speed does not depend on how long it works.
        """
        return self.shortcuts and self.objective.by_speed

    @property
    def fewest(self) -> int:
        """The repeats that a short search runs in any case; three have 0.28 times the interval of two.

        A third one of 16 taggers, which take long to start, leaves too little time for the search.
        """
        return 3 if self.fills_gpu else 2

    def finals(self, records: Sequence[Record], started: Sequence[Record] = ()) -> Finals:
        return Finals(self.objective, self.loop, self.looks, records, started)

    @property
    def steps(self) -> list[int]:
        """The numbers of workers that are tried: doubled, and the most."""
        doubled = (2**power for power in range(1, self.workers.bit_length()))
        return sorted({*doubled, self.workers} - {1})

    @property
    def wanted(self) -> int:
        """The paragraphs of a text that has enough calls for the most workers."""
        return MAX_WORK_UNIT * CALLS_A_WORKER * self.workers

    @property
    def combinations(self) -> int:
        orders = 2 if self.padding or self.other_order else 1
        return (1 + self.shortcuts) * orders * len(self.sizes) * (1 + (1 + self.mps) * len(self.steps))

    @property
    def most_settings(self) -> int:
        sizes = 2 * len(self.sizes) - 1 if self.workers > 1 else len(self.sizes)
        without = 0 if self.short else bool(self.steps) * self.mps + self.tries_without
        return 1 + sizes + len(self.steps) + bool(self.other_order) + without

    @property
    def most_points(self) -> int:
        """The most points without retries; if repeats end early, at most twice those measured only once."""
        once = self.most_settings - 1 + 3 * self.repeats
        most = self.most_settings - 1 + self.again + 3 * max(self.repeats, self.most_repeats)
        return most if self.share else min(2 * once, most)


def part(params: Mapping[str, knobs.Value], every: int) -> dict[str, knobs.Value]:
    """Return a setting on one of every so many paragraphs."""
    return {**whole(params), **({knobs.EVERY: every} if every > 1 else {})}


def whole(params: Mapping[str, knobs.Value]) -> dict[str, knobs.Value]:
    """Return a setting on the whole text."""
    return {knob: value for knob, value in params.items() if knob != knobs.EVERY}


def without_shortcuts(params: Mapping[str, knobs.Value]) -> dict[str, knobs.Value]:
    return {**params, knobs.SHORTCUTS: knobs.OFF}
