"""The last phase of a search: the finalists next to the plain loop. Pure, standard library only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from jobkit.answers.objective import Finals
from jobkit.answers.setting import Mean, Setting, key_of
from jobkit.core import knobs
from jobkit.extensions.tune.goal import TuneGoal, part, whole
from jobkit.extensions.tune.measured import (
    FINAL,
    FINAL_PART,
    LEAST_PART,
    LOOP_PART,
    MEMORY,
    SEARCH,
    Budget,
    Candidate,
    Limit,
    Measured,
    MeasuredCandidate,
    ShortBudget,
    TuneAnswer,
    limit_of,
)

DOUBT = 0.45
"""A step is beyond doubt if the logarithm of its gain is farther than this from that of the least gain: 1.6
standard deviations of the ratio of speeds that scatter by 20 %."""
LONGER = 1.1
"""How many times as long as an earlier repeat the next one may take in a short search."""
LOOP_TIMES = 4.0
"""The assumed time of the plain loop's work over that of one worker with shortcuts."""
PROBE = 320
"""Paragraphs that show how long the plain loop of an encoder takes: 3 to 60 times as long as a worker."""

Params = Mapping[str, knobs.Value]


@dataclass
class FinalPhase:
    """The finals of a search with time for new processes at each setting."""

    goal: TuneGoal
    measured: Measured
    budget: Budget

    def ranked(self) -> list[Candidate]:
        """Return the settings of the search that keep the constraints, the best by the objective first."""
        objective, ranked = self.goal.objective, list[tuple[float, float, Candidate]]()
        for one, speed, repeats in self.measured.means():
            values = [value for result in repeats if (value := result.value(objective.figure)) is not None]
            records = tuple(result.record for result in repeats if result.record)
            if values and not objective.broken(Setting(points=records)):
                ranked.append((objective.rank(fmean(values)), speed, one))
        return [one for *_, one in sorted(ranked, key=lambda found: found[:2], reverse=True)]

    def answer(self, limit: Limit) -> TuneAnswer:
        """Measure the finalists, with fewer workers while all fail.

        ``limit``: what limits the search up to here.
        """
        ranked, budget = self.ranked(), self.budget
        number = self._number(ranked)
        chosen = [whole(one.params) for one in (self._tried() if budget.has_ended else ranked)]
        settings = list({key_of(setting): setting for setting in chosen}.values())
        while failed := self._run(settings[:number]):
            limit = limit_of(*failed)
            # what the search held may not hold on more of the text
            fewer = [one for one in settings if knobs.numbers(one)[knobs.WORKERS] < failed[0].workers]
            if not fewer or not (budget.has_ended or budget.left_s > 0):
                break
            settings = fewer
        finals = self._finals()
        if finals.winner is None:
            return TuneAnswer(why=_why_none(finals))
        return TuneAnswer(finalists=tuple(settings[:number]), limit=limit.name, why=limit.why)

    def _number(self, ranked: Sequence[Candidate]) -> int:
        """Return 1 if the best setting is faster beyond doubt, else 2, as in a search that has ended.

        If its first finalist failed, the next one may be there in its place.
        """
        firsts = map(self.measured.result_of, self._tried()[:1])
        replaced = any(first and not first.speed for first in firsts)
        if not self.goal.objective.by_speed or len(ranked) < 2 or (self.budget.has_ended and not replaced):
            return 2
        best, next_best = map(self.measured.speed, ranked[:2])
        return 1 if math.log(best / next_best) > DOUBT else 2

    def _tried(self) -> list[Candidate]:
        """Return the finalists of a search that has ended."""
        return [one for one in self.budget.tried or () if self._is_finalist(one)]

    def _is_finalist(self, candidate: Candidate) -> bool:
        return candidate.phase == FINAL and whole(candidate.params) != self.goal.loop

    def _run(self, finalists: Sequence[Params]) -> tuple[Candidate, MeasuredCandidate] | None:
        """Measure the plain loop and finalists as the budget allows, at least once; as `_failure`."""
        goal, budget = self.goal, self.budget
        if not finalists and budget.skips(Candidate(goal.loop, FINAL)):
            return None
        finals = [one.params for one in budget.known if one.phase == FINAL]
        parts = {key_of(whole(params)): knobs.numbers(params).get(knobs.EVERY, 1) for params in finals}
        of_loop, every = (1, 1) if budget.has_ended else self._parts(finalists)
        planned = [(goal.loop, of_loop), *((row, every) for row in finalists)]
        rows = [part(row, parts.get(key_of(row), own)) for row, own in planned]
        self._repeat(rows)
        return self._failure(rows)

    def _repeat(self, rows: Sequence[Params]) -> None:
        """Measure the plain loop and the finalists in turn.

        Every other time their order is reversed: neighbours that are alike share their processes, each has
        several processes, and what changes with time is the same for all.
        """
        goal, results = self.goal, self.measured.results
        for repeat in range(1, max(goal.repeats, goal.most_repeats) + 1):
            before = len(results)
            for params in rows if repeat % 2 else rows[::-1]:
                self.measured.measure(Candidate(params, FINAL, repeat))
            if self._failure(rows):
                return
            if goal.share:
                enough = repeat >= goal.repeats and all(map(self._is_known, rows))
            else:
                once = len(self.measured.means()) + 3 * goal.repeats  # each setting measured once
                enough = repeat % goal.repeats == 0 and self._finals().decided
                enough = enough or len(results) + len(rows) > 2 * once
            last_s = sum(result.held_s for _, result in results[before:])
            again = Candidate(rows[-1] if repeat % 2 else rows[0], FINAL, repeat + 1)
            if enough or self.budget.skips(again, late=self.budget.left_s < last_s):
                return

    def _failure(self, rows: Sequence[Params]) -> tuple[Candidate, MeasuredCandidate] | None:
        """Return the last finalist of these rows, with its result, if none succeeded."""
        results = self.measured.results
        ran = [(one, done) for one, done in results if one.params in rows and self._is_finalist(one)]
        return ran[-1] if ran and not any(result.speed for _, result in ran) else None

    def _finals(self) -> Finals:
        return self.goal.finals([result.record for _, result in self.measured.good(FINAL) if result.record])

    def _is_known(self, params: Params) -> bool:
        """Return whether the interval of the mean speed of a finalist is short enough, or it has no speed."""
        speeds = [result.speed for one, result in self.measured.good(FINAL) if one.params == params]
        if not speeds:
            return True
        mean = Mean.of(speeds)
        return mean.half_width is not None and mean.half_width < self.goal.share * mean.value

    def _parts(self, finalists: Sequence[Params]) -> tuple[int, int]:
        """Return the parts of the text on which the plain loop and the finalists work.

        Both work on all of it, unless the budget is too short.
        """
        goal, good, whole_s = self.goal, self.measured.good(MEMORY, SEARCH), self.measured.whole_s()
        finals_s, longest_s = sum(whole_s[key_of(row)] for row in finalists), max(whole_s.values())
        start_s = sum(result.held_s - result.work_s for _, result in good) / len(good)
        room_s = self.budget.left_s / goal.repeats - (1 + len(finalists)) * start_s
        if room_s <= 0:
            return goal.memory_every, goal.memory_every
        if not goal.cuts_loop:
            every = max(1, math.ceil((longest_s + finals_s) / room_s))
            return every, every
        # the least time of the plain loop's work in the finals, if the budget is too short for the whole
        # text
        loop_s = LOOP_TIMES * longest_s
        of_loop_s = min(loop_s, max(20.0, room_s - finals_s))
        every = max(1, math.ceil(finals_s / max(room_s - of_loop_s, room_s / 2)))
        return math.ceil(loop_s / of_loop_s), min(every, goal.memory_every)


@dataclass
class ShortFinals(FinalPhase):
    """The finals of a search with time for few starts of processes: their repeats end by time alone."""

    budget: ShortBudget

    def _number(self, _: Sequence[Candidate]) -> int:
        return 1 if self.goal.objective.by_speed else 2

    def _repeat(self, rows: Sequence[Params]) -> None:
        """Measure the first rows, whose processes may stand, then the last often, then the first again.

        So each start serves several repeats, and what changes with time is not in one of them alone. Repeats
        end by time alone; what is left after that is the last row's.
        """
        goal = self.goal
        if not goal.fills_gpu:  # those of the finalist may stand, else those of the probe of the plain loop
            rows = rows[::-1]
        *first, last = [[Candidate(row, FINAL, n + 1) for n in range(goal.most_repeats)] for row in rows]
        held_s = [self.measured.measure(repeats[0]).held_s for repeats in first]
        if self._failure(rows):
            return
        fresh_s, _ = self.measured.starts_s()
        often = 2 * goal.repeats
        self._more(rows, last[:often], len(first) * fresh_s + (goal.repeats - 1) * sum(held_s))
        for repeats in reversed(first):
            self._more(rows, repeats[1:], 0.0)
        self._more(rows, last[often:], fresh_s)  # in new processes

    def _more(self, rows: Sequence[Params], candidates: Sequence[Candidate], kept_s: float) -> None:
        """Measure the fewest repeats of one of the rows, more while that leaves ``kept_s`` for others."""
        for one in candidates:
            finals = [(row.params, done) for row, done in self.measured.results if row.phase == FINAL]
            held_s = [done.held_s for params, done in finals if params == one.params]
            late = one.repeat > self.goal.fewest and self.budget.left_s < kept_s + LONGER * min(held_s)
            if self.budget.skips(one, late=late):
                return
            self.measured.measure(one)
            if self._failure(rows):
                return

    def _parts(self, finalists: Sequence[Params]) -> tuple[int, int]:
        """Return the parts for the shares of the budget that the loop and a finalist have.

        By another objective than speed both work on the same part.
        """
        goal, budget_s, whole_s = self.goal, self.goal.budget_s, self.measured.whole_s()
        finals_s, least_s = [whole_s[key_of(row)] for row in finalists], self.budget.finals_s(0.0)
        items = max(result.speed * result.whole_s for _, result in self.measured.good(MEMORY))
        loop_s = LOOP_TIMES * max(whole_s.values())
        if goal.fills_gpu:
            probe = Candidate(part(goal.loop, max(1, round(items / PROBE))), SEARCH)
            loop_s = self.measured.measure(probe).whole_s or loop_s
        room_s = (self.budget.left_s / LONGER - least_s) / goal.fewest
        batch_s = loop_s * min(1.0, knobs.numbers(goal.loop)[knobs.BATCH_SIZE] / items)
        most_s = min(max(LOOP_PART * budget_s, batch_s), room_s)  # a batch, if there is time for one
        of_loop = math.ceil(loop_s / max(LEAST_PART * budget_s, most_s))
        every = math.ceil(max(finals_s, default=1.0) / (FINAL_PART * budget_s))
        return of_loop, min(every, goal.memory_every) if goal.objective.by_speed else of_loop


def _why_none(finals: Finals) -> str:
    if reason := next(filter(None, map(finals.broken, finals.speeds)), ""):
        return f"neither the plain loop nor another setting keeps the constraints: {reason}"
    return "the plain loop did not succeed, and no other setting keeps the constraints"
