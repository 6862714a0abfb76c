"""Which setting a search for the fastest one tries next, and why it ends. Pure, standard library only.

The order is that of dependence. The text alone decides order and sizes (`jobkit.extensions.tune.job`). One
worker at each size gives the line of memory. The number of workers is doubled while that helps. Two finalists
run next to the plain loop. What scatter may have decided is measured again.

A short search has time for few starts of processes, which take longer than the work: two sizes, the most
workers that memory holds (fewer only where these may be faster), and one finalist.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from jobkit.answers.memory import Memory, memory_of
from jobkit.answers.setting import key_of
from jobkit.core import knobs
from jobkit.core.figures import SPEED
from jobkit.extensions.tune.budget import Budget, ShortBudget
from jobkit.extensions.tune.finals import DOUBT, FinalPhase, ShortFinals
from jobkit.extensions.tune.goal import TuneGoal, without_shortcuts
from jobkit.extensions.tune.measured import (
    MEMORY,
    OUT_OF_MEMORY,
    SEARCH,
    Candidate,
    Limit,
    Measured,
    MeasuredCandidate,
    NoResultError,
    TuneAnswer,
)


def propose(
    goal: TuneGoal,
    result_of: Callable[[Candidate], MeasuredCandidate | None],
    tried: Sequence[Candidate] | None = None,
) -> Candidate | TuneAnswer:
    """Return the first candidate without a result, or the answer if every candidate has one.

    ``tried``: as in `Budget`.
    """
    measured = Measured(result_of)
    budget = Budget(goal, measured, tried)
    search = _Search(goal, measured, budget, FinalPhase(goal, measured, budget))
    if goal.short:
        short = ShortBudget(goal, measured, tried)
        search = _ShortSearch(goal, measured, short, ShortFinals(goal, measured, short))
    try:
        return search.answer()
    except NoResultError as end:
        following: Candidate = end.args[0]
        return following


@dataclass
class _Search:
    """A search with time for new processes at each setting.

    It runs from its start each time: a step takes what was measured, the goal and the budget, and the first
    candidate that a step needs and that has no result is what the search proposes.
    """

    goal: TuneGoal
    measured: Measured
    budget: Budget
    finals: FinalPhase
    among: ClassVar[float] = 1  # the assumed memory of one of several workers over the peak of one alone

    def answer(self) -> TuneAnswer:
        self._measure_memory()
        if why := self._failure():
            return TuneAnswer(why=why)
        limit = self._add_workers()
        self._compare()
        for candidate in self._best():  # scatter often favours the best of many
            self._again(candidate)
        return self.finals.answer(limit)

    def _best(self) -> list[Candidate]:
        """Return the settings that are measured again before the finalists are chosen."""
        return self.finals.ranked()[:3]

    def _again(self, *candidates: Candidate) -> None:
        """Measure settings again, if points and time are left for that."""
        results = self.measured.results
        searched = [one.params for one, _ in results if one.phase == SEARCH]
        again = [Candidate(one.params, SEARCH, 1 + searched.count(one.params)) for one in candidates]
        done = len(results) - len({key_of(one.params) for one, _ in results})
        if done + len(again) <= self.goal.again:
            self._try_in_time(*again)

    def _try_in_time(self, *candidates: Candidate) -> None:
        """Measure candidates, if there is time for all of them."""
        if not any(map(self.budget.late, candidates)):
            for one in candidates:
                self.measured.measure(one)

    def _setting(self, size: int, workers: int, every: int, mps: str = knobs.OFF) -> dict[str, knobs.Value]:
        params = self.goal.setting(size, workers, every=every, mps=mps)
        return without_shortcuts(params) if self.measured.refused else params

    def _size(self, candidate: Candidate) -> int:
        return knobs.numbers(candidate.params)[self.goal.size_knob]

    def _size_words(self, candidate: Candidate) -> str:
        return f"{self.goal.size_knob} {self._size(candidate):,}"

    # -- memory

    def _measure_memory(self) -> None:
        """Measure one worker at each size: memory, and where the doubling begins.

        If its shortcuts are refused, the search begins again without them.
        """
        for size in self.goal.sizes:
            candidate = Candidate(self._setting(size, 1, self.goal.memory_every), MEMORY)
            if not self._size_may_help(candidate) or self.budget.skips(candidate):
                return
            result = self.measured.measure(candidate)
            if result.refused:
                self._measure_memory()
                return
            failed = sum(not one.speed and not one.refused for _, one in self.measured.results)
            if result.outcome in OUT_OF_MEMORY or (failed > 1 and not self.measured.alone):
                return

    def _size_may_help(self, _: Candidate) -> bool:
        return True

    def _failure(self) -> str:
        """Return why no setting can be chosen, as one worker shows; empty if one can."""
        alone, objective = self.measured.alone, self.goal.objective
        if any(result.value(objective.figure) is not None for _, result in alone):
            return ""
        if alone and objective.metric != SPEED.key:
            return f"no point has the metric {objective.metric!r}, by which objective chooses"
        if alone:
            why = "the workload reports no items, so no setting has a speed"
            return f"{why}; objective may name another figure"
        if not self.measured.results:
            return "no setting was measured"
        candidate, result = self.measured.results[-1]
        message = f": {result.record.message}" if result.record and result.record.message else ""
        return f"one worker at {self._size_words(candidate)} ended as {result.outcome}{message}"

    @cached_property
    def _memory(self) -> Memory | str:
        """What one worker shows about memory, or why nothing."""
        return memory_of([result.record for _, result in self.measured.alone if result.record])

    def _most_workers(self, size: int) -> int:
        """Return how many workers memory holds at a size, by the bound of the line; all if it is unknown."""
        goal, memory = self.goal, self._memory
        if isinstance(memory, str):
            return goal.workers
        limits = (goal.memory_bytes, memory.limit_bytes)
        limit_bytes = min((limit for limit in limits if limit is not None), default=None)
        if limit_bytes is None:
            return goal.workers
        if not isinstance(memory.line, str):
            most = memory.most_workers(limit_bytes, goal.loads[goal.sizes.index(size)])
            return goal.workers if most is None else most
        alone = [result.record for one, result in self.measured.alone if self._size(one) == size]
        used = next(record.memory for record in alone if record)
        each = self.among * (used.process_peak_bytes or used.ram_peak_bytes or 0)
        return int(limit_bytes // each) if each else goal.workers

    # -- workers

    def _add_workers(self) -> Limit:
        """Add workers until that gains too little, or memory or CPUs end; return what limits them.

        All have the fastest size that memory holds for most workers.
        """
        goal, alone = self.goal, self.measured.alone
        held = [min(goal.workers, self._most_workers(self._size(one))) for one, _ in alone]
        most = max(held)
        usable = [row for row, workers in zip(alone, held, strict=True) if workers == most]
        fast = (1 - goal.gain) * max(result.speed for _, result in usable)
        base, result = next((one, result) for one, result in usable if result.speed >= fast)
        limit = _bottleneck(result, "one worker suffices")
        if goal.fills_gpu and limit.name == "GPU":
            return limit
        steps = sorted({min(workers, most) for workers in goal.steps if most > 1})
        if found := self._add_steps(steps, base):
            return found
        if most < goal.workers:
            return Limit("memory", f"memory holds {most} workers at {self._size_words(base)}")
        return Limit("cores", f"there is one worker: {goal.limited_by}")

    def _add_steps(self, steps: Sequence[int], last: Candidate) -> Limit | None:
        """Measure more workers than those of the last candidate, while each step gains enough."""
        goal, speed = self.goal, self.measured.speed
        for workers in steps:
            candidate = self._shared(self._size(last), workers)
            result = self._step(candidate)
            if isinstance(result, Limit):
                return result
            times = speed(candidate) / speed(last)
            if abs(math.log(times / (1 + goal.gain))) <= DOUBT:  # scatter may decide
                self._again(last, candidate)
            step = _times_as_fast(workers, speed(candidate), last.workers, speed(last))
            if speed(candidate) / speed(last) < 1 + goal.gain:
                return _bottleneck(result, step)
            if workers == goal.workers:
                return self._limit_of(step)
            last = candidate
        return None

    def _limit_of(self, step: str) -> Limit:
        """Return what limits a search whose last step, to all workers, still gained enough."""
        return Limit("cores", f"{step}, and there are no more workers: {self.goal.limited_by}")

    def _step(self, candidate: Candidate) -> MeasuredCandidate | Limit:
        """Return the result of a number of workers; what limits the search if it has no speed."""
        if self.budget.late(candidate):
            return Limit("time", "the budget ended before all numbers of workers were tried")
        result = self.measured.measure(candidate)
        return result if result.speed else result.failure(candidate.workers)

    def _shared(self, size: int, workers: int, mps: str = knobs.AUTO) -> Candidate:
        every = min(self.goal.memory_every, self._search_every(workers))
        return Candidate(self._setting(size, workers, every, mps if workers > 1 else knobs.OFF), SEARCH)

    def _search_every(self, workers: int) -> int:
        """Return of how many paragraphs a point of the search with these workers works on one, at most."""
        return self.goal.search_every * max(1, self.goal.workers // workers)

    # -- other values

    def _compare(self) -> None:
        """Vary the best setting: at other sizes, in another order, without MPS, without shortcuts."""
        measured = self.measured
        for candidate in measured.fastest()[:2]:  # one of them decides the number of workers
            self._again(candidate)
        self._compare_alike()
        ran = [(one.params, done.record.ran(knobs.MPS)) for one, done in measured.results if done.record]
        shared = next((one for one in measured.fastest() if one.workers > 1), None)
        if shared and (shared.params, knobs.ON) in ran:
            self._try_in_time(self._shared(self._size(shared), shared.workers, knobs.OFF))
        if self.goal.tries_without and not measured.refused:
            self._try_in_time(Candidate(without_shortcuts(measured.fastest()[0].params), SEARCH))

    def _compare_alike(self) -> None:
        """Vary what needs no new processes: size and order."""
        goal, measured = self.goal, self.measured
        fastest = measured.fastest()
        least = measured.speed(fastest[0]) / (1 + goal.gain)  # more workers do not add the gain of a step
        best = min((one for one in fastest if measured.speed(one) >= least), key=lambda one: one.workers)
        for size in dict.fromkeys(self._size(one) for one, _ in measured.alone):
            if size != self._size(best) and 1 < best.workers <= self._most_workers(size):
                mps = str(best.params.get(knobs.MPS, knobs.OFF))
                self._try_in_time(self._shared(size, best.workers, mps))
        if goal.other_order:
            best = measured.fastest()[0]
            self._try_in_time(Candidate({**best.params, knobs.ORDER: goal.other_order}, SEARCH))


class _ShortSearch(_Search):
    """A search with time for few starts of processes, which take longer than the work."""

    budget: ShortBudget
    # Of 16 workers on an H100 it is 1.12 and 1.37, by size, on a third of the text, and 1.68 on all of it
    # (tune-short.tar.xz). A search whose workers run out of memory tries fewer, also in the finals; a larger
    # figure would leave out workers that memory holds.
    among = 1.25

    def _best(self) -> list[Candidate]:
        best = super()._best()  # those that need no new processes
        return [one for one in best if (one.phase, one.workers) == (SEARCH, best[0].workers)]

    def _size_may_help(self, candidate: Candidate) -> bool:
        """Two sizes are enough, unless one worker may fill the GPU: then while each is much faster."""
        speeds = [result.speed for _, result in self.measured.alone]
        if not speeds:
            return True
        much_faster = 1.2  # times the speed at the sizes before
        grows = self.goal.fills_gpu and speeds[-1] >= much_faster * max(speeds[:-1], default=0.0)
        return (len(speeds) == 1 or grows) and not self.budget.late(candidate)

    def _search_every(self, workers: int) -> int:
        alone_s = min(result.whole_s for _, result in self.measured.alone)
        most = math.ceil(alone_s / workers / (self.budget.search_part * self.goal.budget_s))
        return min(super()._search_every(workers), most)

    def _compare(self) -> None:
        self._compare_alike()

    def _add_steps(self, steps: Sequence[int], last: Candidate) -> Limit | None:
        """Measure the most workers, and fewer while these may be faster: each adds at most what one has.

        If one worker may fill the GPU, workers are doubled as in a long search.
        """
        goal, alone = self.goal, self.measured.speed(last)
        if goal.fills_gpu:
            return super()._add_steps(steps, last)
        limit, found = None, list[tuple[int, MeasuredCandidate]]()
        for workers in reversed(steps):
            fastest = max((result.speed for _, result in found), default=0.0) / (1 + goal.gain)
            if workers * alone < fastest:
                return limit
            result = self._step(self._shared(self._size(last), workers))
            if isinstance(result, Limit):
                limit = result
                if limit.name == "memory":
                    continue
                return limit
            if result.speed < fastest:
                return limit
            if found:
                more, slower = found[-1]
                step = _times_as_fast(more, slower.speed, workers, result.speed)
                limit = _bottleneck(slower, step)
            elif workers == goal.workers:
                step = _times_as_fast(workers, result.speed, 1, alone)
                gains = result.speed >= (1 + goal.gain) * alone
                limit = self._limit_of(step) if gains else _bottleneck(result, step)
            found.append((workers, result))
        return limit


def _times_as_fast(workers: int, speed: float, fewer: int, before: float) -> str:
    """Return how workers compare with fewer; the table may have these speeds in means of several phases."""
    times = f"{workers} workers are {speed / before:.2f} times as fast as {fewer}"
    return f"{times} ({speed:,.1f} and {before:,.1f} paragraphs/s)"


def _bottleneck(result: MeasuredCandidate, step: str) -> Limit:
    """Return what limits a setting that more workers do not speed up, and the evidence for it."""
    full_percent = 90.0  # the mean use of a GPU from which it is called full
    idle_share = 0.15  # of the work, idle on average, from which the text is called too short for the workers
    record = result.record
    used = record.sampler.utilisation_mean_percent if record and record.sampler else None
    if record and record.gpu and used is not None and used >= full_percent:
        return Limit("GPU", f"{step}: the GPU is {used:.0f} % busy")
    idle = [share.idle_s for share in record.workers] if record else []
    if idle and result.work_s and sum(idle) / len(idle) > idle_share * result.work_s:
        return Limit("text", f"{step}: the text has too few calls for so many workers")
    return Limit("cores", f"{step}, and neither a full GPU nor idle workers explain it")
