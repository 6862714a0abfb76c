"""What a setting is chosen by: a figure, the best of its means, and its bounds; and what a search found.

A search chooses the settings that it measures, and one of them is its answer. An extension with such runs has
a hook ``search`` in `jobkit.core.extensions` that reads a run folder.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from jobkit.answers.setting import Difference, Mean, Ratio, Setting, key_of, settings_of
from jobkit.answers.speed import Speed, speeds_of
from jobkit.core.blocks import Block
from jobkit.core.errors import JobkitError
from jobkit.core.extensions import of_run
from jobkit.core.figures import DIGITS, MAX, SPEED, Figure, by_key, format_figure, units_of
from jobkit.core.frozen import frozen, keyed
from jobkit.core.knobs import EVERY, Value
from jobkit.core.records import Record
from jobkit.core.student import TWO_SIDED
from jobkit.core.terminal import printable, shell_path

KNOWN = 1.2
"""Times the ratio of two speeds: the upper end of an interval at which repeats end."""


@frozen
class Bound:
    """The least and the highest value of a figure that are accepted; ``None`` for no limit."""

    min: float | None = None
    max: float | None = None


@keyed
class Objective:
    metric: str = SPEED.key  # a key of `jobkit.core.figures.FIGURES`, or a figure of the workload
    direction: str = MAX  # ``max`` or ``min``
    bounds: dict[str, Bound] = field(default_factory=dict)  # by figure

    @classmethod
    def of(
        cls, metric: str, direction: str, ends: Mapping[str, tuple[float | None, float | None]]
    ) -> Objective:
        """Return the objective of a spec; ``ends`` are the least and the highest value by figure."""
        bounds = {name: Bound(*pair) for name, pair in ends.items()}
        return cls(metric=metric, direction=direction, bounds=bounds)

    @property
    def by_speed(self) -> bool:
        return (self.metric, self.direction) == (SPEED.key, MAX)

    @property
    def name(self) -> str:
        """The metric, safe to print."""
        return printable(self.metric)

    @property
    def figure(self) -> Figure:
        return by_key(self.metric)

    def rank(self, mean: float) -> float:
        """Return a number that is the higher, the better a mean is, without what only rounding adds."""
        rounded = float(f"{mean:.{DIGITS}g}")
        return rounded if self.direction == MAX else -rounded

    def broken(self, setting: Setting[Record]) -> str:
        """Return which bounds the means of a setting break, in words; empty if none."""
        found = []
        for name, bound in self.bounds.items():
            figure, named = by_key(name), printable(name)
            known, units = setting.mean(figure), units_of(setting.well, figure)
            if known is None:
                found += [] if figure.optional else [f"{named} is not known"]
                continue
            if len(units) > 1:
                found.append(f"{named} has several units: {', '.join(units)}")
                continue
            own = f"{named} {format_figure(known.value, units[0])}"
            if bound.min is not None and known.value < bound.min:
                found.append(f"{own} is under {format_figure(bound.min, units[0])}")
            elif bound.max is not None and known.value > bound.max:
                found.append(f"{own} is over {format_figure(bound.max, units[0])}")
        return "; ".join(found)


@frozen
class Comparison:
    # for the speed the ratio, else the difference of the two means
    apart: Difference
    # whether the interval shows the setting to be better or worse; ``None`` if it shows no difference
    better: bool | None


@dataclass(frozen=True)
class Finals:
    """The finalists of a search and the plain loop, and which of them is the answer."""

    objective: Objective
    loop: Mapping[str, Value]  # the knobs of the plain loop
    # how often, at most, the intervals are looked at: each has the confidence with which all together hold in
    # 95 % of searches (Bonferroni)
    looks: int
    records: Sequence[Record]  # of their points that succeeded
    started: Sequence[Record] = ()  # of all points of the search: the time of a start is known from them, too

    @cached_property
    def settings(self) -> Mapping[Hashable, Setting[Record]]:
        return settings_of(self.records)

    @cached_property
    def speeds(self) -> tuple[Speed, ...]:
        """The plain loop and the finalists that have the metric."""
        return tuple(speed for speed in speeds_of(self.records, self.started) if self.values(speed))

    @property
    def plain(self) -> Speed | None:
        return next((speed for speed in self.speeds if self._is_loop(speed)), None)

    @property
    def finalists(self) -> tuple[Speed, ...]:
        """The finalists, the best by the objective first; equal ones by speed."""
        others = (speed for speed in self.speeds if not self._is_loop(speed))
        rank = self.objective.rank
        return tuple(
            sorted(others, key=lambda one: (rank(Mean.of(self.values(one)).value), one.rate), reverse=True)
        )

    @property
    def kept(self) -> tuple[Speed, ...]:
        """The finalists whose means keep the constraints."""
        return tuple(speed for speed in self.finalists if not self.broken(speed))

    @property
    def best(self) -> Speed | None:
        """The best finalist that keeps the constraints, be it the answer or not; ``None`` if none does."""
        return next(iter(self.kept), None)

    @property
    def comparison(self) -> Comparison | None:
        """The best finalist that keeps the constraints against the plain loop; ``None`` if one is missing."""
        best, plain = self.best, self.plain
        return self.compared(best, plain) if best and plain else None

    @cached_property
    def winner(self) -> Speed | None:
        """The answer: a finalist if it is shown to be better than the plain loop, else the plain loop.

        A plain loop that breaks a constraint, or was not measured, is no answer and needs no comparison.
        """
        best, plain = self.best, self.plain
        if plain is None or self.broken(plain):
            return best
        return best if self.comparison and self.comparison.better else plain

    @property
    def winner_records(self) -> tuple[Record, ...]:
        return self.setting(self.winner).points if self.winner else ()

    @property
    def decided(self) -> bool:
        """Whether more repeats would not change the answer, and how much faster it is is known to `KNOWN`."""
        plain = self.plain
        if plain is None or not self.kept or self.broken(plain):
            return True
        if self.comparison is None or self.comparison.better is None:
            return False
        apart = self.comparison.apart
        return not isinstance(apart, Ratio) or apart.high is None or apart.high <= KNOWN * apart.mean

    @property
    def probability(self) -> float:
        """The probability of the quantile that ends each interval."""
        return 1 - (1 - TWO_SIDED) / self.looks

    def compared(self, first: Speed, other: Speed) -> Comparison:
        """Return how two of them compare. If all values are equal, the faster is the better."""
        if self.objective.by_speed:
            return _by_speed(first, other, self.probability)
        apart = Mean.of(self.values(first)).minus(Mean.of(self.values(other)), self.probability)
        if apart.low == apart.high == apart.mean == 0:
            return replace(_by_speed(first, other, self.probability), apart=apart)
        better = (apart.mean > 0) == (self.objective.direction == MAX) if apart.differs else None
        return Comparison(apart, better)

    def setting(self, speed: Speed) -> Setting[Record]:
        return self.settings[key_of(speed.params)]

    def values(self, speed: Speed) -> tuple[float, ...]:
        return self.setting(speed).values(self.objective.figure)

    def broken(self, speed: Speed) -> str:
        """Return which bounds its means break, in words; empty if none."""
        return self.objective.broken(self.setting(speed))

    def _is_loop(self, speed: Speed) -> bool:
        return {knob: value for knob, value in speed.params.items() if knob != EVERY} == self.loop


def _by_speed(first: Speed, other: Speed, probability: float) -> Comparison:
    """Compare by the speed of items, or without items by the time of whole runs."""
    rates = [one.rates or tuple(1 / work_s for work_s in one.works_s if work_s) for one in (first, other)]
    if not all(rates):
        return Comparison(Ratio(1.0, None, None), None)
    times = Mean.of(rates[0]).over(Mean.of(rates[1]), probability)
    return Comparison(times, times.mean > 1 if times.differs else None)


@keyed
class SearchRow:
    name: str  # in words
    means: Mapping[str, Mean]  # paragraphs a second, by phase, the first phase first; at least one

    @property
    def last(self) -> Mean:
        """The speed in its last phase, which has the most repeats."""
        return [*self.means.values()][-1]


@dataclass(frozen=True, kw_only=True)
class SearchAnswer:
    phases: Sequence[str]  # in order; the answer rests on the points of the last
    finals: Finals  # the points of that phase that succeeded, and the answer
    ended: bool
    title: str  # how much it measured
    setting: dict[str, Value]  # the knobs of the answer, ``auto`` as it ran; empty without one
    limit: str  # what limits the speed of the answer, and what may help; empty if that is unknown
    why: str  # what ended the search, in a sentence without a full stop; empty while it goes on
    sentence: str  # the answer, and what it is worth
    worth: Sequence[str]  # what the answer is worth, in sentences
    lines: Sequence[str]  # the worth of the answer, the next best setting, and what limits it
    table: Block  # all settings that it measured
    rows: Sequence[SearchRow]  # the settings that have a speed, the fastest first
    base: SearchRow | None  # the one that the others are compared with; ``None`` if it has no speed
    best: SearchRow | None  # the one that is the answer; ``None`` if it has no speed
    data: Mapping[str, object]  # the answer for a program

    def rank(self, phase: str | None) -> int:
        """Return which phase of the search it is, from 1; 0 for a point of another run."""
        return self.phases.index(phase) + 1 if phase in self.phases else 0

    def rests_on(self, phase: str | None) -> bool:
        return phase == self.phases[-1]

    def probability(self, phase: str | None) -> float:
        """Return the probability of the quantile that ends the intervals of a phase."""
        return self.finals.probability if self.rests_on(phase) else TWO_SIDED

    def named(self, record: Record) -> dict[str, Value]:
        """Return the setting of a record of the last phase as the answer names it: on the whole text."""
        if self.finals.winner and record.params == self.finals.winner.params:
            return self.setting
        return {knob: value for knob, value in record.decided.items() if knob != EVERY}

    def last_records(self, run: str) -> list[Record]:
        """Return the records of the last phase, each with its setting as the answer names it.

        Points of other phases worked on a part of the text, or ran once: no recommendation rests on them.
        """
        folder = shell_path(Path(run))
        if not self.ended:
            hint = f"jobkit status {folder} shows how far it is; jobkit resume {folder} goes on"
            raise JobkitError(f"{run}: the search has not ended, so it has no setting yet", hint=hint)
        if self.finals.winner is None:
            hint = f"what was tried: jobkit tune {folder}"
            raise JobkitError(f"{run}: the search found no setting: {self.why}", hint=hint)
        return [replace(one, point=replace(one.point, params=self.named(one))) for one in self.finals.records]

    @property
    def cautions(self) -> Sequence[str]:
        """What to beware of if the last phase worked on a part of the text, without a full stop."""
        every = max((record.point.every for record in self.finals.winner_records), default=1)
        paragraphs = f"the finals worked on one of every {every} paragraphs: "
        scaled = "time, energy and request are computed from them for the whole text"
        return (paragraphs + scaled,) if every > 1 else ()


def read_search(run: Path, objective: Objective | None = None) -> SearchAnswer | None:
    """Return what the search of a run found; ``None`` if it is none; ``objective`` replaces its own."""
    read = of_run(run).search()
    return read(run, objective) if read else None
