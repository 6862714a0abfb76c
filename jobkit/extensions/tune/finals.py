"""The last phase of a search. Pure, standard library only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from jobkit.answers.objective import Finals
from jobkit.answers.setting import Key, Mean, Setting, key_of
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
        ranked = self.ranked()
        wanted, choice = self._finalists_wanted(ranked), self._choice(ranked)
        tried = self.budget.tried
        if not choice and tried is not None and not any(map(self._is_loop, tried)):
            return TuneAnswer(why=_why_none(self._finals()))
        settings = self._in_parts(choice[:wanted])
        while failed := self._repeat(settings):
            limit = self.measured.measure(failed).failure(failed.workers)
            # what succeeded in the search may fail on more of the text
            fewer = [one for one in choice if knobs.numbers(one)[knobs.WORKERS] < failed.workers]
            in_time = self.budget.has_ended or self.budget.left_s > 0
            # ends without a setting of fewer workers or time for it, or if a later repeat succeeded after all
            if not fewer or not in_time or not self._failed(settings):
                break
            choice, settings = fewer, self._in_parts(fewer[:wanted])
        finals = self._finals()
        if finals.winner is None:
            return TuneAnswer(why=_why_none(finals))
        return TuneAnswer(finalists=tuple(choice[:wanted]), limit=limit.name, why=limit.why)

    def _finalists_wanted(self, ranked: Sequence[Candidate]) -> int:
        """Return 1 if the best setting is faster beyond doubt, else 2.

        A search that has ended shows its finalists, so 2 has all of them; but if the first failed, the next
        one may be there in its place.
        """
        if not self.goal.objective.by_speed or len(ranked) < 2:
            return 2
        if self.budget.has_ended and not self._first_failed():
            return 2
        best, next_best = map(self.measured.speed, ranked[:2])
        return 1 if math.log(best / next_best) > DOUBT else 2

    def _choice(self, ranked: Sequence[Candidate]) -> list[Params]:
        """Return what to take finalists from, the best first: of a search that has ended its finalists."""
        chosen = [whole(one.params) for one in (self._tried() if self.budget.has_ended else ranked)]
        return list({key_of(setting): setting for setting in chosen}.values())

    def _tried(self) -> list[Candidate]:
        """Return the finalists of a search that has ended."""
        return [one for one in self.budget.tried or () if self._is_finalist(one)]

    def _first_failed(self) -> bool:
        """Return whether the first finalist of a search that has ended has a result without a speed."""
        firsts = [self.measured.result_of(one) for one in self._tried()[:1]]
        return any(first and not first.speed for first in firsts)

    def _is_loop(self, candidate: Candidate) -> bool:
        return candidate.phase == FINAL and whole(candidate.params) == self.goal.loop

    def _is_finalist(self, candidate: Candidate) -> bool:
        return candidate.phase == FINAL and whole(candidate.params) != self.goal.loop

    def _in_parts(self, finalists: Sequence[Params]) -> list[Params]:
        """Return the plain loop and finalists, each on its part of the text, in all repeats the same."""
        earlier, loop = self._parts_of_earlier(), self.goal.loop
        of_loop, every = (1, 1) if self.budget.has_ended else self._parts(finalists)
        planned = [(loop, of_loop), *((setting, every) for setting in finalists)]
        return [part(setting, earlier.get(key_of(setting), own)) for setting, own in planned]

    def _parts_of_earlier(self) -> dict[Key, int]:
        """Return the part of the text of each setting that had a point in the finals."""
        tried = self.budget.tried
        known = [one for one, _ in self.measured.results] if tried is None else tried
        finals = [one.params for one in known if one.phase == FINAL]
        return {key_of(whole(params)): knobs.numbers(params).get(knobs.EVERY, 1) for params in finals}

    def _repeat(self, settings: Sequence[Params]) -> Candidate | None:
        """Measure the plain loop and the finalists in turn, while one succeeds; return as `_failed`.

        Every other time their order is reversed: neighbours that are alike share their processes, each has
        several processes, and what changes with time is the same for all.
        """
        budget, results = self.budget, self.measured.results
        for repeat in range(1, max(self.goal.repeats, self.goal.most_repeats) + 1):
            before = len(results)
            in_turn = settings if repeat % 2 else settings[::-1]
            for params in in_turn:
                self.measured.measure(Candidate(params, FINAL, repeat))
            if failed := self._failed(settings):
                return failed
            last_s = sum(result.held_s for _, result in results[before:])
            again = Candidate(in_turn[-1], FINAL, repeat + 1)
            if self._enough(repeat, settings) or budget.skips(again, late=budget.left_s < last_s):
                break
        return None

    def _enough(self, repeat: int, settings: Sequence[Params]) -> bool:
        """Return whether so many repeats show what the goal asks for, or no more points are allowed."""
        goal = self.goal
        if goal.share:
            return repeat >= goal.repeats and all(map(self._is_known, settings))
        if repeat % goal.repeats == 0 and self._finals().decided:
            return True
        in_finals = 3  # the plain loop and two finalists
        once = len(self.measured.means()) + in_finals * goal.repeats  # each setting measured once
        most_points = 2 * once  # as `TuneGoal.most_points` says
        return len(self.measured.results) + len(settings) > most_points

    def _failed(self, settings: Sequence[Params]) -> Candidate | None:
        """Return the last finalist of these settings if none succeeded."""
        ran = [one for one, _ in self.measured.results if one.params in settings and self._is_finalist(one)]
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
        finals_s, longest_s = sum(whole_s[key_of(one)] for one in finalists), max(whole_s.values())
        start_s = sum(result.held_s - result.work_s for _, result in good) / len(good)
        room_s = self.budget.left_s / goal.repeats - (1 + len(finalists)) * start_s
        if room_s <= 0:
            return goal.memory_every, goal.memory_every
        if not goal.cuts_loop:
            every = max(1, math.ceil((longest_s + finals_s) / room_s))
            return every, every
        least_loop_s = 20.0  # of the plain loop's work, if the budget is too short for the whole text
        loop_s = LOOP_TIMES * longest_s
        of_loop_s = min(loop_s, max(least_loop_s, room_s - finals_s))
        every = max(1, math.ceil(finals_s / max(room_s - of_loop_s, room_s / 2)))
        return math.ceil(loop_s / of_loop_s), min(every, goal.memory_every)


@dataclass
class ShortFinals(FinalPhase):
    """The finals of a search with time for few starts of processes: their repeats end by time alone."""

    budget: ShortBudget

    def _finalists_wanted(self, _: Sequence[Candidate]) -> int:
        return 1 if self.goal.objective.by_speed else 2

    def _repeat(self, settings: Sequence[Params]) -> Candidate | None:
        """Measure the first settings, whose processes may stand, then the last often, then the first again.

        So each start serves several repeats, and what changes with time is not in one of them alone. Repeats
        end by time alone; what is left after that is the last setting's.
        """
        goal = self.goal
        if not goal.fills_gpu:  # those of the finalist may stand, else those of the probe of the plain loop
            settings = settings[::-1]
        *first, last = [[Candidate(one, FINAL, n + 1) for n in range(goal.most_repeats)] for one in settings]
        once, again = [repeats[0] for repeats in first], [repeats[1:] for repeats in reversed(first)]
        often, rest = last[: 2 * goal.repeats], last[2 * goal.repeats :]

        once_s = sum([self.measured.measure(one).held_s for one in once])
        if failed := self._failed(settings):
            return failed
        fresh_s, _ = self.measured.starts_s()
        again_s = len(first) * fresh_s + (goal.repeats - 1) * once_s
        failed = self._repeat_in_time(settings, often, kept_s=again_s)
        for repeats in again:
            failed = self._repeat_in_time(settings, repeats, kept_s=0.0) or failed
        return self._repeat_in_time(settings, rest, kept_s=fresh_s) or failed  # in new processes

    def _repeat_in_time(
        self, settings: Sequence[Params], repeats: Sequence[Candidate], *, kept_s: float
    ) -> Candidate | None:
        """Measure the fewest repeats of one of the settings, more while that leaves ``kept_s`` for others."""
        for one in repeats:
            finals = [(final.params, done) for final, done in self.measured.results if final.phase == FINAL]
            held_s = [done.held_s for params, done in finals if params == one.params]
            late = one.repeat > self.goal.fewest and self.budget.left_s < kept_s + LONGER * min(held_s)
            if self.budget.skips(one, late=late):
                break
            self.measured.measure(one)
            if failed := self._failed(settings):
                return failed
        return None

    def _parts(self, finalists: Sequence[Params]) -> tuple[int, int]:
        """Return the parts for the shares of the budget that the loop and a finalist have.

        By another objective than speed both work on the same part.
        """
        goal, budget, whole_s = self.goal, self.budget, self.measured.whole_s()
        finals_s, least_s = [whole_s[key_of(one)] for one in finalists], budget.finals_s(0.0)
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
