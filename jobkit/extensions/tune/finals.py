"""The last phase of a search. Pure, standard library only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from jobkit.answers.objective import Finals
from jobkit.answers.setting import Mean, Setting, key_of
from jobkit.core import knobs
from jobkit.extensions.tune.budget import Budget, ShortBudget
from jobkit.extensions.tune.goal import TuneGoal, part, whole
from jobkit.extensions.tune.measured import FINAL, MEMORY, SEARCH, Candidate, Limit, Measured, TuneAnswer

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
        rows = self._rows(settings[:number])
        while rows and (failed := self._repeat(rows)):
            limit = self.measured.measure(failed).failure(failed.workers)
            # what the search held may not hold on more of the text
            fewer = [one for one in settings if knobs.numbers(one)[knobs.WORKERS] < failed.workers]
            if not fewer or not self._failed(rows) or not (budget.has_ended or budget.left_s > 0):
                break
            settings, rows = fewer, self._rows(fewer[:number])
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

    def _rows(self, finalists: Sequence[Params]) -> Sequence[Params]:
        """Return the plain loop and finalists, each on its part of the text; empty if none is to run."""
        goal, budget = self.goal, self.budget
        if not finalists and budget.skips(Candidate(goal.loop, FINAL)):
            return []
        known = [one for one, _ in self.measured.results] if budget.tried is None else budget.tried
        finals = [one.params for one in known if one.phase == FINAL]
        parts = {key_of(whole(params)): knobs.numbers(params).get(knobs.EVERY, 1) for params in finals}
        of_loop, every = (1, 1) if budget.has_ended else self._parts(finalists)
        planned = [(goal.loop, of_loop), *((row, every) for row in finalists)]
        return [part(row, parts.get(key_of(row), own)) for row, own in planned]

    def _repeat(self, rows: Sequence[Params]) -> Candidate | None:
        """Measure the plain loop and the finalists in turn, while one succeeds; return as `_failed`.

        Every other time their order is reversed: neighbours that are alike share their processes, each has
        several processes, and what changes with time is the same for all.
        """
        goal, results = self.goal, self.measured.results
        for repeat in range(1, max(goal.repeats, goal.most_repeats) + 1):
            before = len(results)
            for params in rows if repeat % 2 else rows[::-1]:
                self.measured.measure(Candidate(params, FINAL, repeat))
            if failed := self._failed(rows):
                return failed
            if goal.share:
                enough = repeat >= goal.repeats and all(map(self._is_known, rows))
            else:
                once = len(self.measured.means()) + 3 * goal.repeats  # each setting measured once
                decided = repeat % goal.repeats == 0 and self._finals().decided
                enough = decided or len(results) + len(rows) > 2 * once
            last_s = sum(result.held_s for _, result in results[before:])
            again = Candidate(rows[-1] if repeat % 2 else rows[0], FINAL, repeat + 1)
            if enough or self.budget.skips(again, late=self.budget.left_s < last_s):
                break
        return None

    def _failed(self, rows: Sequence[Params]) -> Candidate | None:
        """Return the last finalist of these rows if none succeeded."""
        ran = [one for one, _ in self.measured.results if one.params in rows and self._is_finalist(one)]
        return ran[-1] if ran and not any(self.measured.measure(one).speed for one in ran) else None

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
        # the least time of the plain loop's work in the finals, if the budget is too short for the whole text
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

    def _repeat(self, rows: Sequence[Params]) -> Candidate | None:
        """Measure the first rows, whose processes may stand, then the last often, then the first again.

        So each start serves several repeats, and what changes with time is not in one of them alone. Repeats
        end by time alone; what is left after that is the last row's.
        """
        goal = self.goal
        if not goal.fills_gpu:  # those of the finalist may stand, else those of the probe of the plain loop
            rows = rows[::-1]
        *first, last = [[Candidate(row, FINAL, n + 1) for n in range(goal.most_repeats)] for row in rows]
        held_s = [self.measured.measure(repeats[0]).held_s for repeats in first]
        if failed := self._failed(rows):
            return failed
        fresh_s, _ = self.measured.starts_s()
        often = 2 * goal.repeats
        failed = self._more(rows, last[:often], len(first) * fresh_s + (goal.repeats - 1) * sum(held_s))
        for repeats in reversed(first):
            failed = self._more(rows, repeats[1:], 0.0) or failed
        return self._more(rows, last[often:], fresh_s) or failed  # in new processes

    def _more(self, rows: Sequence[Params], repeats: Sequence[Candidate], kept_s: float) -> Candidate | None:
        """Measure the fewest repeats of one of the rows, more while that leaves ``kept_s`` for others."""
        for one in repeats:
            finals = [(row.params, done) for row, done in self.measured.results if row.phase == FINAL]
            held_s = [done.held_s for params, done in finals if params == one.params]
            late = one.repeat > self.goal.fewest and self.budget.left_s < kept_s + LONGER * min(held_s)
            if self.budget.skips(one, late=late):
                break
            self.measured.measure(one)
            if failed := self._failed(rows):
                return failed
        return None

    def _parts(self, finalists: Sequence[Params]) -> tuple[int, int]:
        """Return the parts for the shares of the budget that the loop and a finalist have.

        By another objective than speed both work on the same part.
        """
        goal, budget, whole_s = self.goal, self.budget, self.measured.whole_s()
        finals_s, least_s = [whole_s[key_of(row)] for row in finalists], budget.finals_s(0.0)
        items = max(result.speed * result.whole_s for _, result in self.measured.alone)
        loop_s = LOOP_TIMES * max(whole_s.values())
        if goal.fills_gpu:
            probe = Candidate(part(goal.loop, max(1, round(items / PROBE))), SEARCH)
            loop_s = self.measured.measure(probe).whole_s or loop_s
        room_s = (budget.left_s / LONGER - least_s) / goal.fewest
        batch_s = loop_s * min(1.0, knobs.numbers(goal.loop)[knobs.BATCH_SIZE] / items)
        # a batch, if there is time for one
        most_s = min(max(budget.loop_part * goal.budget_s, batch_s), room_s)
        of_loop = math.ceil(loop_s / max(budget.least_part * goal.budget_s, most_s))
        every = math.ceil(max(finals_s, default=1.0) / (budget.final_part * goal.budget_s))
        return of_loop, min(every, goal.memory_every) if goal.objective.by_speed else of_loop


def _why_none(finals: Finals) -> str:
    if reason := next(filter(None, map(finals.broken, finals.speeds)), ""):
        return f"neither the plain loop nor another setting keeps the constraints: {reason}"
    return "the plain loop did not succeed, and no other setting keeps the constraints"
