"""The time of a search, and which candidates it leaves out for lack of it. Pure, standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from jobkit.extensions.tune.goal import TuneGoal
from jobkit.extensions.tune.measured import MEMORY, SEARCH, Candidate, Measured


@dataclass
class Budget:
    """The time that a search has left, and which candidates it leaves out for lack of it.

    A search runs again from its start for each candidate, and to read its answer after it has ended. Then
    `tried` decides what is left out, not the time: a copy of the run folder may have lost the times of files.
    """

    goal: TuneGoal
    measured: Measured
    tried: Sequence[Candidate] | None  # all candidates of a search that has ended; ``None`` while it goes on
    between: ClassVar[float] = 0.0  # the share of the budget for the time between points

    @property
    def has_ended(self) -> bool:
        return self.tried is not None

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
    A point gets a part of the text by the most work that it may do, a share of the budget.
    """

    between = 0.03
    search_part: ClassVar[float] = 0.012  # the work of a point of the search
    final_part: ClassVar[float] = 0.03  # of a repeat of a finalist
    loop_part: ClassVar[float] = 0.03  # of a repeat of the plain loop
    least_part: ClassVar[float] = 0.01  # the least of the plain loop, whose part is cut first

    def late(self, candidate: Candidate) -> bool:
        """Return whether the time left is needed for the fewest repeats."""
        if self.has_ended:
            return self.skips(candidate)
        last, result = self.measured.results[-1]
        stands = (last.phase, last.workers) == (candidate.phase, candidate.workers) != (MEMORY, 1)
        fresh_s, stood_s = self.measured.starts_s()
        next_s = (stood_s if stands else fresh_s) + max(result.work_s, self.search_part * self.goal.budget_s)
        return self.left_s < next_s + self._kept_s(candidate)

    def _kept_s(self, candidate: Candidate) -> float:
        """Return how much time is kept for the finals while a candidate is measured."""
        budget_s = self.goal.budget_s
        if self.goal.fills_gpu:
            probe_s, _ = self.measured.starts_s()  # of the small part of the plain loop
            return self.finals_s(self.loop_part * budget_s) + probe_s
        if candidate.phase == SEARCH and not self.measured.good(SEARCH):
            # without more workers all is in vain
            return self.finals_s(self.least_part * budget_s)
        return self.finals_s(self.loop_part * budget_s)

    def finals_s(self, loop_s: float) -> float:
        """Return how long the fewest repeats take, each with so much work of the plain loop."""
        fresh_s, stood_s = self.measured.starts_s()
        finalist_s = self.final_part * self.goal.budget_s
        if self.goal.fills_gpu:
            finalist_s = max(finalist_s, self.measured.results[-1][1].work_s)
        return 2 * fresh_s + self.goal.fewest * (stood_s + (loop_s + finalist_s))
