"""Which setting a search for the fastest one tries next, and why it ends. Pure, standard library only.

The order is that of dependence. The text alone decides order and sizes (`jobkit.extensions.tune.job`). One
worker at each size gives the line of memory. The number of workers is doubled while that helps. Two finalists
run next to the plain loop. What scatter may have decided is measured again.

A short search has time for few starts of processes, which take longer than the work: two sizes, the most
workers that memory holds (fewer only where these may be faster), and one finalist.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import ClassVar, NamedTuple

from jobkit.answers.memory import Memory, memory_of
from jobkit.answers.objective import Finals
from jobkit.answers.setting import Key, Mean, Setting, key_of
from jobkit.core import knobs
from jobkit.core.figures import SPEED, WORK, pace
from jobkit.core.frozen import frozen, keyed
from jobkit.core.records import Outcome, Record
from jobkit.extensions.tune.goal import TuneGoal, part, whole

MEMORY, SEARCH, FINAL = "memory", "search", "final"
PHASES = (MEMORY, SEARCH, FINAL)
"""The values of `Point.phase`."""
OUT_OF_MEMORY = frozenset({Outcome.GPU_OOM, Outcome.RAM_OOM})
DOUBT = 0.45
"""A step is beyond doubt if the logarithm of its gain is farther than this from that of the least gain: 1.6
standard deviations of the ratio of speeds that scatter by 20 %."""
SEARCH_PART, FINAL_PART, LOOP_PART, LEAST_PART = 0.012, 0.03, 0.03, 0.01
"""The most work of a point in a short search, as a share of the budget, by which it gets a part of the text;
the last is the least of the plain loop, whose part is cut first."""
LONGER = 1.1
"""How many times as long as an earlier repeat the next one may take in a short search."""
LOOP_TIMES = 4.0
"""The assumed time of the plain loop's work over that of one worker with shortcuts."""
PROBE = 320
"""Paragraphs that show how long the plain loop of an encoder takes: 3 to 60 times as long as a worker."""


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
        return self.record is not None and self.record.params.get(knobs.SHORTCUTS) == knobs.REFUSED

    @property
    def speed(self) -> float:
        """Paragraphs a second, or without items texts a second; 0 if it did not succeed as it is set."""
        return pace(self.record) if self.record and self.outcome is Outcome.OK and not self.refused else 0.0

    @property
    def work_s(self) -> float:
        summary = self.record.summary if self.record and self.outcome is Outcome.OK else None
        return summary.work_s if summary else 0.0

    @property
    def start_s(self) -> float:
        """The time besides the work that another try of its kind takes: the first of a run imports."""
        check = self.record.check if self.record else None
        once_s = check.seconds if check and not check.reused else 0.0
        once_s += (self.record.import_s or 0.0) if self.record else 0.0
        return max(0.0, self.held_s - self.work_s - once_s)


@keyed
class TuneAnswer:
    # the settings measured on the whole text, the fastest in the search first; empty if none could be chosen
    finalists: tuple[Mapping[str, knobs.Value], ...] = ()
    # what keeps the search from a faster setting: ``cores``, ``GPU``, ``memory``, ``text`` or ``time``
    limit: str = ""
    why: str  # the limit in a sentence without a full stop; without finalists why there are none


def propose(
    goal: TuneGoal,
    result_of: Callable[[Candidate], MeasuredCandidate | None],
    tried: tuple[Candidate, ...] | None = None,
) -> Candidate | TuneAnswer:
    """Return the first candidate without a result, or the answer if every candidate has one.

    ``tried``: as in `_Search`.
    """
    kind = _Search
    if goal.short:
        kind = _EncoderSearch if goal.fills_gpu else _WorkersSearch
    try:
        return kind(goal, result_of, tried).answer()
    except _NoResultError as end:
        following: Candidate = end.args[0]
        return following


class _NoResultError(Exception):
    """Ends a search at the candidate that is to be measured next, its argument."""


class _Alone(NamedTuple):
    """One worker at a size, and how many memory holds there."""

    candidate: Candidate
    result: MeasuredCandidate
    held: int


@dataclass
class _Search:
    """A search with time for new processes at each setting.

    It runs from its start each time, and looks up each result: `_NoResultError` is its yield.
    """

    goal: TuneGoal
    result_of: Callable[[Candidate], MeasuredCandidate | None]
    # all candidates of a search that has ended: they show what the budget decided; ``None`` while it goes on.
    # The times of files cannot show it, because a copy of the run folder loses them.
    tried: tuple[Candidate, ...] | None = None
    results: list[tuple[Candidate, MeasuredCandidate]] = field(default_factory=list)
    memory: Memory | str = ""  # what one worker shows about memory, or why nothing
    limit: str = ""  # as in `TuneAnswer`
    why: str = ""
    shortcuts: str = knobs.EXACT  # the value for the settings that are tried
    between: ClassVar[float] = 0.0  # the share of the budget for the time between points
    among: ClassVar[float] = 1  # the assumed memory of one of several workers over the peak of one alone

    def answer(self) -> TuneAnswer:
        self._measure_memory()
        if why := self._failure():
            return TuneAnswer(why=why)
        self.memory = memory_of([result.record for _, result in self._good(MEMORY) if result.record])
        self._add_workers()
        self._compare()
        for candidate in self._best():  # scatter often favours the best of many
            self._again(candidate)
        finalists = self._prove_or_fewer(*self._choose())
        finals = self._finals()
        if finals.winner is None:
            return TuneAnswer(why=_why_none(finals))
        return TuneAnswer(finalists=tuple(finalists), limit=self.limit, why=self.why)

    @property
    def _has_ended(self) -> bool:
        return self.tried is not None

    def _limited(self, limit: str, why: str) -> None:
        """Note what limits the search, in place of what did before."""
        self.limit, self.why = limit, why

    def _try(self, candidate: Candidate) -> MeasuredCandidate:
        for one, result in self.results:
            if one.key == candidate.key:  # the plain loop, next to a finalist that failed
                return result
        if (measured := self.result_of(candidate)) is None:
            raise _NoResultError(candidate)
        self.results.append((candidate, measured))
        return measured

    def _skips(self, candidate: Candidate, *, late: bool = False) -> bool:
        """Return whether to leave a candidate out: it is late, or a search that has ended did not try it."""
        return candidate.key not in {one.key for one in self.tried or ()} if self._has_ended else late

    def _best(self) -> list[Candidate]:
        """Return the settings that are measured again before the finalists are chosen."""
        return self._ranked()[:3]

    def _number_of_finalists(self, ranked: Sequence[Candidate]) -> int:
        """Return 1 if the best setting is faster beyond doubt, else 2, as in a search that has ended.

        If its first finalist failed, the next one may be there in its place.
        """
        firsts = map(self.result_of, self._finalists(self.tried or ())[:1])
        replaced = any(first and not first.speed for first in firsts)
        if not self.goal.objective.by_speed or len(ranked) < 2 or (self._has_ended and not replaced):
            return 2
        return 1 if math.log(self._speed(ranked[0]) / self._speed(ranked[1])) > DOUBT else 2

    def _finalists(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        return [one for one in candidates if one.phase == FINAL and whole(one.params) != self.goal.loop]

    # -- memory

    def _measure_memory(self) -> None:
        """Measure one worker at each size: memory, and where the doubling begins.

        If its shortcuts are refused, the search begins again without them.
        """
        goal = self.goal
        for size in goal.sizes:
            params = goal.setting(size, 1, every=goal.memory_every, shortcuts=self.shortcuts)
            candidate = Candidate(params, MEMORY)
            if not self._size_may_help(candidate) or self._skips(candidate):
                return
            result = self._try(candidate)
            if result.refused:
                self.shortcuts = knobs.OFF
                self._measure_memory()
                return
            failed = sum(not one.speed and not one.refused for _, one in self.results)
            if result.outcome in OUT_OF_MEMORY or (failed > 1 and not self._good(MEMORY)):
                return

    def _size_may_help(self, _: Candidate) -> bool:
        return True

    def _failure(self) -> str:
        """Return why no setting can be chosen, as one worker shows; empty if one can."""
        alone, metric = self._good(MEMORY), self.goal.objective.metric
        if any(self._value(result) is not None for _, result in alone):
            return ""
        if alone and metric == SPEED.key:
            return (
                "the workload reports no items, so no setting has a speed; objective may name another figure"
            )
        if alone:
            return f"no point has the metric {metric!r}, by which objective chooses"
        if not self.results:
            return "no setting was measured"
        candidate, result = self.results[-1]
        message = f": {result.record.message}" if result.record and result.record.message else ""
        size = f"{self.goal.size_knob} {self._size(candidate):,}"
        return f"one worker at {size} ended as {result.outcome}{message}"

    def _good(self, *phases: str) -> list[tuple[Candidate, MeasuredCandidate]]:
        """Return the results that have a speed; those with shortcuts only while these are not refused."""
        without = knobs.EXACT if self.shortcuts == knobs.OFF else knobs.REFUSED
        return [
            (one, result)
            for one, result in self.results
            if result.speed and one.phase in phases and one.params.get(knobs.SHORTCUTS) != without
        ]

    def _means(self) -> list[tuple[Candidate, float, list[MeasuredCandidate]]]:
        """Return each setting of the search with its mean speed and its repeats."""
        groups: dict[Key, tuple[Candidate, list[MeasuredCandidate]]] = {}
        for one, result in self._good(MEMORY, SEARCH):
            groups.setdefault(key_of(one.params), (one, []))[1].append(result)
        return [(one, fmean(result.speed for result in repeats), repeats) for one, repeats in groups.values()]

    def _speed(self, candidate: Candidate) -> float:
        """Return the mean speed of a setting; 0 if it has none."""
        return next((speed for one, speed, _ in self._means() if one.params == candidate.params), 0.0)

    def _again(self, *candidates: Candidate) -> bool:
        """Measure settings again; return whether points and time were left for that."""
        searched = [one.params for one, _ in self.results if one.phase == SEARCH]
        again = [Candidate(one.params, SEARCH, 1 + searched.count(one.params)) for one in candidates]
        done = len(self.results) - len({key_of(one.params) for one, _ in self.results})
        if done + len(again) > self.goal.again or any(map(self._late, again)):
            return False
        for one in again:
            self._try(one)
        return True

    def _most_workers(self, size: int) -> int:
        """Return how many workers memory holds at a size, by the bound of the line; all if it is unknown."""
        goal, memory = self.goal, self.memory
        limits = [] if isinstance(memory, str) else [goal.memory_bytes, memory.limit_bytes]
        limit_bytes = min((limit for limit in limits if limit is not None), default=None)
        if isinstance(memory, str) or limit_bytes is None:
            return goal.workers
        if not isinstance(memory.line, str):
            most = memory.most_workers(limit_bytes, goal.loads[goal.sizes.index(size)])
            return goal.workers if most is None else most
        alone = (result.record for one, result in self._good(MEMORY) if self._size(one) == size)
        memories = (record.memory for record in alone if record)
        peak = next((one.process_peak_bytes or one.ram_peak_bytes for one in memories), None)
        each = self.among * (peak or 0)
        return int(limit_bytes // each) if each else goal.workers

    def _size(self, candidate: Candidate) -> int:
        return knobs.numbers(candidate.params)[self.goal.size_knob]

    # -- workers

    def _add_workers(self) -> None:
        """Double the workers until that gains too little, or memory or CPUs end.

        All have the fastest size that memory holds for most workers.
        """
        goal, base = self.goal, self._base()
        self._limited("cores", f"there is one worker: {goal.limited_by}")
        limit, why = _bottleneck(base.result, "one worker suffices")
        if goal.fills_gpu and limit == "GPU":
            self._limited(limit, why)
            return
        steps = [*dict.fromkeys(min(workers, base.held) for workers in goal.steps if base.held > 1)]
        if base.held < goal.workers:
            size = f"{goal.size_knob} {self._size(base.candidate):,}"
            self._limited("memory", f"memory holds {base.held} workers at {size}")
        self._add_steps(steps, base.candidate)

    def _base(self) -> _Alone:
        goal, good = self.goal, self._good(MEMORY)
        alone = [_Alone(one, result, self._most_workers(self._size(one))) for one, result in good]
        enough = min(goal.workers, max(row.held for row in alone))
        usable = [row for row in alone if row.held >= enough]
        fast = (1 - goal.gain) * max(row.result.speed for row in usable)
        return next(row for row in usable if row.result.speed >= fast)

    def _add_steps(self, steps: Sequence[int], last: Candidate) -> None:
        """Measure more workers than those of the last candidate, while each step gains enough."""
        goal = self.goal
        for workers in steps:
            candidate = Candidate(self._shared(self._size(last), workers), SEARCH)
            result = self._step(candidate)
            if not result:
                return
            times = self._times(candidate, last)
            step = _times_as_fast(workers, self._speed(candidate), last.workers, self._speed(last))
            if times < 1 + goal.gain:
                self._limited(*_bottleneck(result, step))
                return
            if workers == goal.workers:
                self._limited("cores", f"{step}, and there are no more workers: {goal.limited_by}")
            last = candidate

    def _step(self, candidate: Candidate) -> MeasuredCandidate | None:
        """Return the result of a number of workers; ``None``, with the limit, if it has no speed."""
        if self._late(candidate):
            self._limited("time", "the budget ended before all numbers of workers were tried")
            return None
        result = self._try(candidate)
        if result.speed:
            return result
        self._fails(candidate, result)
        return None

    def _fails(self, candidate: Candidate, result: MeasuredCandidate) -> None:
        limit = "memory" if result.outcome in OUT_OF_MEMORY else "failure"
        without = ", without their shortcuts" if result.refused else ""
        self._limited(limit, f"{candidate.workers} workers ended as {result.outcome}{without}")

    def _times(self, candidate: Candidate, before: Candidate) -> float:
        """Return the speed of a step over that of the setting before.

        If scatter may have decided whether the doubling ends there, the two are measured again.
        """
        times = self._speed(candidate) / self._speed(before)
        if abs(math.log(times / (1 + self.goal.gain))) <= DOUBT and self._again(before, candidate):
            times = self._speed(candidate) / self._speed(before)
        return times

    def _shared(self, size: int, workers: int, mps: str = knobs.AUTO) -> dict[str, knobs.Value]:
        goal = self.goal
        every = min(goal.memory_every, self._search_every(workers))
        words = {knobs.MPS: mps if workers > 1 else knobs.OFF, knobs.SHORTCUTS: self.shortcuts}
        return goal.setting(size, workers, every=every, **words)

    def _search_every(self, workers: int) -> int:
        """Return of how many paragraphs a point of the search with these workers works on one, at most."""
        return self.goal.search_every * max(1, self.goal.workers // workers)

    def _late(self, candidate: Candidate) -> bool:
        """Return whether the time left, of which the finalists need half, is too short."""
        return self._skips(candidate, late=self._left_s() < 0.5 * self.goal.budget_s)

    # -- other values

    def _compare(self) -> None:
        """Vary the best setting: at other sizes, in another order, without MPS, without shortcuts."""
        goal = self.goal
        for candidate in self._fastest()[:2]:  # one of them decides the number of workers
            self._again(candidate)
        self._compare_alike()
        shared = next((one for one in self._fastest() if one.workers > 1), None)
        if shared and any(
            one.params == shared.params
            and result.record is not None
            and result.record.ran(knobs.MPS) == knobs.ON
            for one, result in self.results
        ):
            params = self._shared(self._size(shared), shared.workers, mps=knobs.OFF)
            self._try_in_time(Candidate(params, SEARCH))
        if goal.shortcuts and self.shortcuts == knobs.EXACT and not goal.fills_gpu:
            best = self._fastest()[0]
            self._try_in_time(Candidate({**best.params, knobs.SHORTCUTS: knobs.OFF}, SEARCH))

    def _compare_alike(self) -> None:
        """Vary what needs no new processes: size and order."""
        goal, fastest = self.goal, self._fastest()
        least = self._speed(fastest[0]) / (1 + goal.gain)  # more workers do not add the gain of a step
        best = min((one for one in fastest if self._speed(one) >= least), key=lambda one: one.workers)
        sizes = dict.fromkeys(self._size(one) for one, _ in self._good(MEMORY)) if best.workers > 1 else {}
        for size in [size for size in sizes if size != self._size(best)]:
            if best.workers <= self._most_workers(size):
                mps = str(best.params.get(knobs.MPS, knobs.OFF))
                self._try_in_time(Candidate(self._shared(size, best.workers, mps=mps), SEARCH))
        if goal.other_order:
            best = self._fastest()[0]
            self._try_in_time(Candidate({**best.params, knobs.ORDER: goal.other_order}, SEARCH))

    def _fastest(self) -> list[Candidate]:
        return [one for one, *_ in sorted(self._means(), key=lambda row: row[1], reverse=True)]

    def _try_in_time(self, candidate: Candidate) -> None:
        if not self._late(candidate):
            self._try(candidate)

    # -- finalists

    def _choose(self) -> tuple[list[dict[str, knobs.Value]], int]:
        """Return the settings that may be finalists, the best first, and how many of them run."""
        ranked = self._ranked()
        number = self._number_of_finalists(ranked)
        if self._has_ended:
            ranked = self._finalists(self.tried or ())
        settings = [whole(one.params) for one in ranked]
        return list({key_of(setting): setting for setting in settings}.values()), number

    def _prove_or_fewer(
        self, settings: Sequence[Mapping[str, knobs.Value]], number: int
    ) -> Sequence[Mapping[str, knobs.Value]]:
        """Measure finalists, with fewer workers while all fail; return those that ran last."""
        failed = self._prove(settings[:number])
        if failed and (self._has_ended or self._left_s() > 0):
            # what the search held may not hold on more of the text
            fewer = [one for one in settings if knobs.numbers(one)[knobs.WORKERS] < failed.workers]
            if fewer:
                return self._prove_or_fewer(fewer, number)
        return settings[:number]

    def _ranked(self) -> list[Candidate]:
        """Return the settings of the search that keep the constraints, the best by the objective first."""
        objective, ranked = self.goal.objective, list[tuple[float, float, Candidate]]()
        for one, speed, repeats in self._means():
            values = [value for result in repeats if (value := self._value(result)) is not None]
            records = tuple(result.record for result in repeats if result.record)
            if values and not objective.broken(Setting(points=records)):
                ranked.append((objective.rank(fmean(values)), speed, one))
        return [one for *_, one in sorted(ranked, key=lambda found: found[:2], reverse=True)]

    def _value(self, result: MeasuredCandidate) -> float | None:
        """Return the metric of a point; the time of the work is scaled to the whole text."""
        record, figure = result.record, self.goal.objective.figure
        value = record.value(figure) if record else None
        return value * record.point.every if record and value is not None and figure is WORK else value

    def _prove(self, finalists: Sequence[Mapping[str, knobs.Value]]) -> Candidate | None:
        """Measure the plain loop and finalists as the budget allows, at least once; as `_failed_final`."""
        goal = self.goal
        if not finalists and self._skips(Candidate(goal.loop, FINAL)):
            return None
        known = self.tried or () if self._has_ended else [one for one, _ in self.results]
        finals = [one.params for one in known if one.phase == FINAL]
        parts = {key_of(whole(params)): knobs.numbers(params).get(knobs.EVERY, 1) for params in finals}
        of_loop, every = (1, 1) if self._has_ended else self._final_parts(finalists)
        planned = [(goal.loop, of_loop), *((row, every) for row in finalists)]
        rows = [part(row, parts.get(key_of(row), own)) for row, own in planned]
        self._repeat_finals(rows)
        return self._failed_final(rows)

    def _repeat_finals(self, rows: Sequence[Mapping[str, knobs.Value]]) -> None:
        """Measure the plain loop and the finalists in turn.

        Every other time their order is reversed: neighbours that are alike share their processes, each has
        several processes, and what changes with time is the same for all.
        """
        goal = self.goal
        for repeat in range(1, max(goal.repeats, goal.most_repeats) + 1):
            before = len(self.results)
            for params in rows if repeat % 2 else rows[::-1]:
                self._try(Candidate(params, FINAL, repeat))
            if self._failed_final(rows):
                return
            if goal.share:
                enough = repeat >= goal.repeats and all(map(self._is_known, rows))
            else:
                once = len(self._means()) + 3 * goal.repeats  # each setting measured once
                enough = repeat % goal.repeats == 0 and self._finals().decided
                enough = enough or len(self.results) + len(rows) > 2 * once
            last_s = sum(result.held_s for _, result in self.results[before:])
            again = Candidate(rows[-1] if repeat % 2 else rows[0], FINAL, repeat + 1)
            if enough or self._skips(again, late=self._left_s() < last_s):
                return

    def _failed_final(self, rows: Sequence[Mapping[str, knobs.Value]]) -> Candidate | None:
        """Return the last finalist of these rows if none succeeded, and note why as the search's limit."""
        ran = self._finalists(one for one, _ in self.results if one.params in rows)
        finals = [(one, result) for one, result in self.results if one in ran]
        if not finals or any(result.speed for _, result in finals):
            return None
        self._fails(*finals[-1])
        return finals[-1][0]

    def _finals(self) -> Finals:
        return self.goal.finals([result.record for _, result in self._good(FINAL) if result.record])

    def _is_known(self, params: Mapping[str, knobs.Value]) -> bool:
        """Return whether the interval of the mean speed of a finalist is short enough, or it has no speed."""
        speeds = [result.speed for one, result in self._good(FINAL) if one.params == params]
        half = Mean.of(speeds).half_width if speeds else None
        return not speeds or (half is not None and half < self.goal.share * Mean.of(speeds).value)

    def _final_parts(self, finalists: Sequence[Mapping[str, knobs.Value]]) -> tuple[int, int]:
        """Return the parts of the text on which the plain loop and the finalists work.

        Both work on all of it, unless the budget is too short. With shortcuts the loop is so much slower that
        its part is cut first: its speed does not depend on how long it works.
        """
        goal, good, whole_s = self.goal, self._good(MEMORY, SEARCH), self._whole_s()
        finals_s, longest_s = sum(whole_s[key_of(row)] for row in finalists), max(whole_s.values())
        start_s = sum(result.held_s - result.work_s for _, result in good) / len(good)
        room_s = self._left_s() / goal.repeats - (1 + len(finalists)) * start_s
        if room_s <= 0:
            return goal.memory_every, goal.memory_every
        if not (goal.shortcuts and goal.objective.by_speed):
            every = max(1, math.ceil((longest_s + finals_s) / room_s))
            return every, every
        # the least time of the plain loop's work in the finals, if the budget is too short for the whole
        # text
        loop_s = LOOP_TIMES * longest_s
        of_loop_s = min(loop_s, max(20.0, room_s - finals_s))
        every = max(1, math.ceil(finals_s / max(room_s - of_loop_s, room_s / 2)))
        return math.ceil(loop_s / of_loop_s), min(every, goal.memory_every)

    def _whole_s(self) -> dict[Key, float]:
        """Return how long each setting takes for the whole text."""
        good = self._good(MEMORY, SEARCH)
        return {key_of(whole(one.params)): _scaled_s(one, result) for one, result in good}

    def _left_s(self) -> float:
        return self.goal.budget_s * (1 - self.between) - sum(result.held_s for _, result in self.results)


class _ShortSearch(_Search):
    """A search with time for few starts of processes, which take longer than the work.

    It keeps time for the repeats of the finals, which end by time alone, and for what passes between points.
    A subclass has what depends on whether one worker may fill the GPU.
    """

    between = 0.03
    # Of 16 workers on an H100 it is 1.12 and 1.37, by size, on a third of the text, and 1.68 on all of it
    # (tune-short.tar.xz). A search whose workers run out of memory tries fewer, also in the finals; a larger
    # figure would leave out workers that memory holds.
    among = 1.25

    def _best(self) -> list[Candidate]:
        best = super()._best()  # those that need no new processes
        return [one for one in best if (one.phase, one.workers) == (SEARCH, best[0].workers)]

    def _number_of_finalists(self, _: Sequence[Candidate]) -> int:
        return 1 if self.goal.objective.by_speed else 2

    def _size_may_help(self, candidate: Candidate) -> bool:
        speeds = [result.speed for _, result in self._good(MEMORY)]
        return not speeds or (self._needs_size(speeds) and not self._late(candidate))

    def _needs_size(self, speeds: Sequence[float]) -> bool:
        """Return whether to try another size after those with these speeds: two are enough."""
        return len(speeds) == 1

    def _search_every(self, workers: int) -> int:
        alone_s = min(_scaled_s(one, result) for one, result in self._good(MEMORY))
        most = math.ceil(alone_s / workers / (SEARCH_PART * self.goal.budget_s))
        return min(super()._search_every(workers), most)

    def _compare(self) -> None:
        self._compare_alike()

    def _late(self, candidate: Candidate) -> bool:
        """Return whether the time left is needed for the fewest repeats."""
        goal = self.goal
        if self._has_ended:
            return self._skips(candidate)
        last, result = self.results[-1]
        stands = (last.phase, last.workers) == (candidate.phase, candidate.workers) != (MEMORY, 1)
        fresh_s, stood_s = self._starts_s()
        next_s = (stood_s if stands else fresh_s) + max(result.work_s, SEARCH_PART * goal.budget_s)
        return self._left_s() < next_s + self._kept_s(candidate)

    def _kept_s(self, _: Candidate) -> float:
        """Return how much time is kept for the finals while a candidate is measured."""
        return self._finals_s(LOOP_PART * self.goal.budget_s)

    def _starts_s(self) -> tuple[float, float]:
        """Return how long a try takes to start, and one whose processes stand."""
        fresh, stood = list[float](), list[float]()
        for _, one in self.results:
            (stood if one.record and one.record.standing else fresh).append(one.start_s)
        # the assumed start of a try whose processes stand, over that of another
        return fmean(fresh), fmean(stood) if stood else 0.25 * fmean(fresh)

    def _finals_s(self, loop_s: float) -> float:
        """Return how long the fewest repeats take, each with so much work of the plain loop."""
        fresh_s, stood_s = self._starts_s()
        work_s = loop_s + self._finalist_s()
        return 2 * fresh_s + self.goal.fewest * (stood_s + work_s)

    def _finalist_s(self) -> float:
        """Return how long a finalist works at least."""
        return FINAL_PART * self.goal.budget_s

    def _repeat_finals(self, rows: Sequence[Mapping[str, knobs.Value]]) -> None:
        """Measure the first rows, whose processes may stand, then the last often, then the first again.

        So each start serves several repeats, and what changes with time is not in one of them alone. Repeats
        end by time alone; what is left after that is the last row's.
        """
        *first, last = [[Candidate(row, FINAL, n + 1) for n in range(self.goal.most_repeats)] for row in rows]
        held_s = [self._try(repeats[0]).held_s for repeats in first]
        if self._failed_final(rows):
            return
        fresh_s, _ = self._starts_s()
        often = 2 * self.goal.repeats
        self._repeat(rows, last[:often], len(first) * fresh_s + (self.goal.repeats - 1) * sum(held_s))
        for repeats in reversed(first):
            self._repeat(rows, repeats[1:], 0.0)
        self._repeat(rows, last[often:], fresh_s)  # in new processes

    def _repeat(
        self, rows: Sequence[Mapping[str, knobs.Value]], candidates: Sequence[Candidate], kept_s: float
    ) -> None:
        """Measure the fewest repeats of one of the rows, more while that leaves ``kept_s`` for others."""
        for one in candidates:
            alike = (one.phase, one.params)
            held_s = [done.held_s for other, done in self.results if (other.phase, other.params) == alike]
            late = one.repeat > self.goal.fewest and self._left_s() < kept_s + LONGER * min(held_s)
            if self._skips(one, late=late):
                return
            self._try(one)
            if self._failed_final(rows):
                return

    def _final_parts(self, finalists: Sequence[Mapping[str, knobs.Value]]) -> tuple[int, int]:
        """Return the parts for the shares of the budget that the loop and a finalist have.

        By another objective than speed both work on the same part.
        """
        goal, budget_s, whole_s = self.goal, self.goal.budget_s, self._whole_s()
        finals_s, least_s = [whole_s[key_of(row)] for row in finalists], self._finals_s(0.0)
        items = max(result.speed * _scaled_s(one, result) for one, result in self._good(MEMORY))
        loop_s = self._loop_s(items)
        room_s = (self._left_s() / LONGER - least_s) / goal.fewest
        batch_s = loop_s * min(1.0, knobs.numbers(goal.loop)[knobs.BATCH_SIZE] / items)
        most_s = min(max(LOOP_PART * budget_s, batch_s), room_s)  # a batch, if there is time for one
        of_loop = math.ceil(loop_s / max(LEAST_PART * budget_s, most_s))
        every = math.ceil(max(finals_s, default=1.0) / (FINAL_PART * budget_s))
        return of_loop, min(every, goal.memory_every) if goal.objective.by_speed else of_loop

    def _loop_s(self, _: float) -> float:
        """Return how long the plain loop takes for a text of so many items."""
        return LOOP_TIMES * max(self._whole_s().values())


class _WorkersSearch(_ShortSearch):
    """A short search whose speed comes from many workers."""

    def _add_steps(self, steps: Sequence[int], last: Candidate) -> None:
        """Measure the most workers, and fewer while these may be faster: each adds at most what one has."""
        goal, alone, found = self.goal, self._speed(last), list[tuple[int, MeasuredCandidate]]()
        for workers in reversed(steps):
            fastest = max((result.speed for _, result in found), default=0.0) / (1 + goal.gain)
            if workers * alone < fastest:
                return
            candidate = Candidate(self._shared(self._size(last), workers), SEARCH)
            result = self._step(candidate)
            if not result and self.limit == "memory":
                continue
            if not result or result.speed < fastest:
                return
            if found:
                more, slower = found[-1]
                step = _times_as_fast(more, slower.speed, workers, result.speed)
                self._limited(*_bottleneck(slower, step))
            elif workers == goal.workers:
                step = _times_as_fast(workers, result.speed, 1, alone)
                self._limited("cores", f"{step}, and there are no more workers: {goal.limited_by}")
                if result.speed < (1 + goal.gain) * alone:
                    self._limited(*_bottleneck(result, step))
            found.append((workers, result))

    def _kept_s(self, candidate: Candidate) -> float:
        if candidate.phase == SEARCH and not self._good(SEARCH):  # without more workers all is in vain
            return self._finals_s(LEAST_PART * self.goal.budget_s)
        return super()._kept_s(candidate)

    def _repeat_finals(self, rows: Sequence[Mapping[str, knobs.Value]]) -> None:
        super()._repeat_finals(rows[::-1])  # the finalist's processes may stand


class _EncoderSearch(_ShortSearch):
    """A short search in which one worker may fill the GPU, so that workers are doubled as in a long one."""

    def _needs_size(self, speeds: Sequence[float]) -> bool:
        return super()._needs_size(speeds) or speeds[-1] >= 1.2 * max(speeds[:-1])

    def _kept_s(self, candidate: Candidate) -> float:
        return super()._kept_s(candidate) + self._starts_s()[0]  # of the small part of the plain loop

    def _finalist_s(self) -> float:
        return max(super()._finalist_s(), self.results[-1][1].work_s)

    def _loop_s(self, items: float) -> float:
        """Return that time as a small part of the text shows it, if it can."""
        assumed_s = super()._loop_s(items)
        probe = Candidate(part(self.goal.loop, max(1, round(items / PROBE))), SEARCH)
        return _scaled_s(probe, self._try(probe)) or assumed_s


def _why_none(finals: Finals) -> str:
    if reason := next(filter(None, map(finals.broken, finals.speeds)), ""):
        return f"neither the plain loop nor another setting keeps the constraints: {reason}"
    return "the plain loop did not succeed, and no other setting keeps the constraints"


def _scaled_s(candidate: Candidate, result: MeasuredCandidate) -> float:
    """Return how long the whole text takes, by the work of a point on its part."""
    return result.work_s * knobs.numbers(candidate.params).get(knobs.EVERY, 1)


def _times_as_fast(workers: int, speed: float, fewer: int, before: float) -> str:
    """Return how workers compare with fewer; the table may have these speeds in means of several phases."""
    times = f"{workers} workers are {speed / before:.2f} times as fast as {fewer}"
    return f"{times} ({speed:,.1f} and {before:,.1f} paragraphs/s)"


def _bottleneck(result: MeasuredCandidate, step: str) -> tuple[str, str]:
    """Return what limits a setting that more workers do not speed up, and the evidence for it."""
    record = result.record
    used = record.sampler.utilisation_mean_percent if record and record.sampler else None
    # the mean use of a GPU from which it is called full
    if record and record.gpu and used is not None and used >= 90.0:
        return "GPU", f"{step}: the GPU is {used:.0f} % busy"
    idle = [share.idle_s for share in record.workers] if record else []
    # the share of the work that a worker is idle on average from which the text is called too short
    if idle and result.work_s and sum(idle) / len(idle) > 0.15 * result.work_s:
        return "text", f"{step}: the text has too few calls for so many workers"
    return "cores", f"{step}, and neither a full GPU nor idle workers explain it"
