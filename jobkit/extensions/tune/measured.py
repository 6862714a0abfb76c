"""What a search proposes, what it has measured so far, and how much time it has left.

Pure, standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import ClassVar, NamedTuple

from jobkit.answers.setting import Key, key_of
from jobkit.core import knobs
from jobkit.core.figures import WORK, Figure, pace
from jobkit.core.frozen import frozen, keyed
from jobkit.core.records import Outcome, Record
from jobkit.extensions.tune.goal import TuneGoal, whole

MEMORY, SEARCH, FINAL = "memory", "search", "final"
PHASES = (MEMORY, SEARCH, FINAL)
"""The values of `Point.phase`."""
OUT_OF_MEMORY = frozenset({Outcome.GPU_OOM, Outcome.RAM_OOM})
SEARCH_PART, FINAL_PART, LOOP_PART, LEAST_PART = 0.012, 0.03, 0.03, 0.01
"""The most work of a point in a short search, as a share of the budget, by which it gets a part of the text;
the last is the least of the plain loop, whose part is cut first."""


@frozen
class Candidate:
    params: Mapping[str, knobs.Value]
    phase: str
    repeat: int = 1

    @property
    def key(self) -> tuple[object, ...]:
        return self.phase, self.repeat, key_of(self.params)

    @property
    def workers(self) -> int:
        return knobs.numbers(self.params)[knobs.WORKERS]


@frozen
class MeasuredCandidate:
    outcome: Outcome | None
    record: Record | None
    held_s: float  # how long all tries together held the GPU, or the CPUs

    @property
    def refused(self) -> bool:
        """Whether it ran without the shortcuts of its setting."""
        return self.record is not None and knobs.REFUSED in self.record.params.values()

    @property
    def speed(self) -> float:
        """Paragraphs a second, or without items texts a second; 0 if it did not succeed as it is set."""
        return pace(self.record) if self.record and self.outcome is Outcome.OK and not self.refused else 0.0

    @property
    def work_s(self) -> float:
        summary = self.record.summary if self.record and self.outcome is Outcome.OK else None
        return summary.work_s if summary else 0.0

    @property
    def whole_s(self) -> float:
        """How long the whole text takes, by the work on a part of it."""
        return self.work_s * self.record.point.every if self.record else 0.0

    @property
    def start_s(self) -> float:
        """The time besides the work that another try of its kind takes: the first of a run imports."""
        once_s = 0.0
        if self.record:
            check, once_s = self.record.check, self.record.import_s or 0.0
            once_s += check.seconds if check and not check.reused else 0.0
        return max(0.0, self.held_s - self.work_s - once_s)

    def value(self, figure: Figure) -> float | None:
        """Return a figure of the point; the time of the work is scaled to the whole text."""
        value = self.record.value(figure) if self.record else None
        return value * self.record.point.every if self.record and value and figure is WORK else value


class Limit(NamedTuple):
    """What keeps a search from a faster setting."""

    name: str  # ``cores``, ``GPU``, ``memory``, ``text``, ``time`` or ``failure``
    why: str  # in a sentence without a full stop


def limit_of(candidate: Candidate, result: MeasuredCandidate) -> Limit:
    """Return what a candidate that failed shows."""
    name = "memory" if result.outcome in OUT_OF_MEMORY else "failure"
    without = ", without their shortcuts" if result.refused else ""
    return Limit(name, f"{candidate.workers} workers ended as {result.outcome}{without}")


@keyed
class TuneAnswer:
    # the settings measured on the whole text, the fastest in the search first; empty if none could be chosen
    finalists: tuple[Mapping[str, knobs.Value], ...] = ()
    limit: str = ""  # the name of a `Limit`
    why: str  # why that is the limit; without finalists why there are none


class NoResultError(Exception):
    """Ends a search at the candidate that is to be measured next, its argument."""


@dataclass
class Measured:
    """All results that a search has asked for, in the order in which it did."""

    result_of: Callable[[Candidate], MeasuredCandidate | None]
    results: list[tuple[Candidate, MeasuredCandidate]] = field(default_factory=list)

    def measure(self, candidate: Candidate) -> MeasuredCandidate:
        """Return the result of a candidate; without one the search ends here, with `NoResultError`."""
        for one, result in self.results:
            if one.key == candidate.key:  # the plain loop, next to a finalist that failed
                return result
        if (measured := self.result_of(candidate)) is None:
            raise NoResultError(candidate)
        self.results.append((candidate, measured))
        return measured

    @property
    def refused(self) -> bool:
        """Whether one worker was refused its shortcuts: all settings then do without them."""
        return any(result.refused for one, result in self.results if one.phase == MEMORY)

    def good(self, *phases: str) -> list[tuple[Candidate, MeasuredCandidate]]:
        """Return the results that have a speed; those with shortcuts only while these are not refused."""
        without = knobs.EXACT if self.refused else knobs.REFUSED
        return [
            (one, result)
            for one, result in self.results
            if result.speed and one.phase in phases and without not in one.params.values()
        ]

    def means(self) -> list[tuple[Candidate, float, list[MeasuredCandidate]]]:
        """Return each setting of the search with its mean speed and its repeats."""
        groups: dict[Key, tuple[Candidate, list[MeasuredCandidate]]] = {}
        for one, result in self.good(MEMORY, SEARCH):
            groups.setdefault(key_of(one.params), (one, []))[1].append(result)
        return [(one, fmean(result.speed for result in repeats), repeats) for one, repeats in groups.values()]

    def fastest(self) -> list[Candidate]:
        return [one for one, *_ in sorted(self.means(), key=lambda row: row[1], reverse=True)]

    def speed(self, candidate: Candidate) -> float:
        """Return the mean speed of a setting; 0 if it has none."""
        return next((speed for one, speed, _ in self.means() if one.params == candidate.params), 0.0)

    def whole_s(self) -> dict[Key, float]:
        """Return how long each setting takes for the whole text."""
        return {key_of(whole(one.params)): result.whole_s for one, result in self.good(MEMORY, SEARCH)}

    def starts_s(self) -> tuple[float, float]:
        """Return how long a try takes to start, and one whose processes stand."""
        fresh, stood = list[float](), list[float]()
        for _, one in self.results:
            (stood if one.record and one.record.standing else fresh).append(one.start_s)
        # the assumed start of a try whose processes stand, over that of another
        return fmean(fresh), fmean(stood) if stood else 0.25 * fmean(fresh)


@dataclass
class Budget:
    goal: TuneGoal
    measured: Measured
    # all candidates of a search that has ended: they show what the budget decided; ``None`` while it goes on.
    # The times of files cannot show it, because a copy of the run folder loses them.
    tried: Sequence[Candidate] | None
    between: ClassVar[float] = 0.0  # the share of the budget for the time between points

    @property
    def has_ended(self) -> bool:
        return self.tried is not None

    @property
    def known(self) -> Sequence[Candidate]:
        """All candidates that were measured, or of a search that goes on those up to now."""
        return [one for one, _ in self.measured.results] if self.tried is None else self.tried

    @property
    def left_s(self) -> float:
        held_s = sum(result.held_s for _, result in self.measured.results)
        return self.goal.budget_s * (1 - self.between) - held_s

    def skips(self, candidate: Candidate, *, late: bool = False) -> bool:
        """Return whether to leave a candidate out: it is late, or a search that has ended did not try it."""
        return late if self.tried is None else candidate.key not in {one.key for one in self.tried}

    def late(self, candidate: Candidate) -> bool:
        """Return whether the time left, of which the finalists need half, is too short."""
        return self.skips(candidate, late=self.left_s < 0.5 * self.goal.budget_s)


class ShortBudget(Budget):
    """The budget of a search with time for few starts of processes.

    It keeps time for the repeats of the finals, which end by time alone, and for what passes between points.
    """

    between = 0.03

    def late(self, candidate: Candidate) -> bool:
        """Return whether the time left is needed for the fewest repeats."""
        if self.has_ended:
            return self.skips(candidate)
        last, result = self.measured.results[-1]
        stands = (last.phase, last.workers) == (candidate.phase, candidate.workers) != (MEMORY, 1)
        fresh_s, stood_s = self.measured.starts_s()
        next_s = (stood_s if stands else fresh_s) + max(result.work_s, SEARCH_PART * self.goal.budget_s)
        return self.left_s < next_s + self._kept_s(candidate)

    def _kept_s(self, candidate: Candidate) -> float:
        """Return how much time is kept for the finals while a candidate is measured."""
        goal = self.goal
        if goal.fills_gpu:
            probe_s, _ = self.measured.starts_s()  # of the small part of the plain loop
            return self.finals_s(LOOP_PART * goal.budget_s) + probe_s
        first = candidate.phase == SEARCH and not self.measured.good(SEARCH)
        # without more workers all is in vain
        return self.finals_s((LEAST_PART if first else LOOP_PART) * goal.budget_s)

    def finals_s(self, loop_s: float) -> float:
        """Return how long the fewest repeats take, each with so much work of the plain loop."""
        fresh_s, stood_s = self.measured.starts_s()
        finalist_s = FINAL_PART * self.goal.budget_s
        if self.goal.fills_gpu:
            finalist_s = max(finalist_s, self.measured.results[-1][1].work_s)
        return 2 * fresh_s + self.goal.fewest * (stood_s + (loop_s + finalist_s))
