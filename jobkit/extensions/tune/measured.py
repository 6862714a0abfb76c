"""What a search proposes, what it has measured so far, and its answer. Pure, standard library only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

from jobkit.answers.setting import Key, key_of
from jobkit.core import knobs
from jobkit.core.figures import WORK, Figure, pace
from jobkit.core.frozen import frozen, keyed
from jobkit.core.records import Outcome, Record
from jobkit.extensions.tune.goal import whole

MEMORY, SEARCH, FINAL = "memory", "search", "final"
PHASES = (MEMORY, SEARCH, FINAL)
"""The values of `Point.phase`."""
OUT_OF_MEMORY = frozenset({Outcome.GPU_OOM, Outcome.RAM_OOM})


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
        if not self.record:
            return None
        value = self.record.value(figure)
        return value * self.record.point.every if value and figure is WORK else value

    def failure(self, workers: int) -> Limit:
        """Return what limits a search in which it is the failure of so many workers."""
        name = "memory" if self.outcome in OUT_OF_MEMORY else "failure"
        without = ", without their shortcuts" if self.refused else ""
        return Limit(name, f"{workers} workers ended as {self.outcome}{without}")


class Limit(NamedTuple):
    """What keeps a search from a faster setting."""

    name: str  # ``cores``, ``GPU``, ``memory``, ``text``, ``time`` or ``failure``
    why: str  # in a sentence without a full stop


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

    @property
    def alone(self) -> list[tuple[Candidate, MeasuredCandidate]]:
        """One worker at each size."""
        return self.good(MEMORY)

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
