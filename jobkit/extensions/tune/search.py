"""A search for the fastest setting: how far it is, its answer, and its next point.

``python -m jobkit.extensions.tune.search RUN`` prints the number of the next point to run, or nothing once
it has written ``setting.yaml``. All that it knows is in the run folder, so a search that was killed goes on
where it stood. Only jobkit and the standard library are imported: the node may have no more.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from jobkit.answers.loads import NONE, Loads, read_lengths
from jobkit.answers.objective import Finals
from jobkit.answers.setting import Ratio
from jobkit.answers.speed import Speed, ratio
from jobkit.core.files import write_atomically
from jobkit.core.knobs import BATCH_SIZE, EVERY, REFUSED, Value, numbers
from jobkit.core.layout import SETTING_FILE, TUNE_GOAL_FILE
from jobkit.core.records import Outcome, Point, Record
from jobkit.core.units import format_setting
from jobkit.extensions.tune.goal import TuneGoal, whole
from jobkit.extensions.tune.measured import (
    FINAL,
    MEMORY,
    OUT_OF_MEMORY,
    SEARCH,
    Candidate,
    MeasuredCandidate,
    TuneAnswer,
)
from jobkit.extensions.tune.steps import propose
from jobkit.runs import search_loop
from jobkit.runs.journal import Role
from jobkit.runs.results import read_run
from jobkit.runs.status import NextStep, PointResult, RunKind, RunStatus
from jobkit.runs.tries import task_s, timed

if TYPE_CHECKING:
    from jobkit.spec.sweep_spec import SweepSpec


@dataclass(frozen=True, kw_only=True)
class Tuning:
    folder: Path  # the run folder
    goal: TuneGoal
    results: tuple[tuple[Candidate, PointResult], ...]  # the points, each with its candidate
    next: Candidate | TuneAnswer  # what is to be measured next, or the answer
    # the share of text in the padding of the plain loop, on the part of the text that it worked on and on all
    # of it; ``None`` if that is all of it, or it does not pad
    padding: tuple[float, float] | None = None

    @classmethod
    def read(cls, run_dir: Path) -> Self:
        goal = search_loop.read_goal(TuneGoal, run_dir / TUNE_GOAL_FILE, "jobkit tune SPEC makes such a run")
        results, seen = list[tuple[Candidate, PointResult]](), Counter[tuple[object, ...]]()
        for result in read_run(run_dir).points:
            first = Candidate(result.point.params, result.point.phase)
            seen[first.key] += 1  # repeats of its setting in its phase
            results.append((replace(first, repeat=seen[first.key]), result))
        # Outcomes that another try would not change. A job that is cancelled while it activates its
        # environment may end as `environment`.
        final_outcomes = OUT_OF_MEMORY | {Outcome.OK, Outcome.BUG, Outcome.NO_GPU, Outcome.MODEL_MISSING}
        measured = {
            candidate.key: MeasuredCandidate(result.outcome, result.record, _held_s(result))
            for candidate, result in results
            # How often a point is run that ends without a result of its own
            if result.outcome in final_outcomes or len(result.tries) >= 3  # else it runs again
        }
        ended = (run_dir / SETTING_FILE).is_file()
        tried = tuple(candidate for candidate, _ in results)
        return cls(
            folder=run_dir,
            goal=goal,
            results=tuple(results),
            next=propose(goal, lambda candidate: measured.get(candidate.key), tried if ended else None),
            padding=_padding(run_dir, goal, tried) if ended else None,
        )

    @property
    def answer(self) -> TuneAnswer | None:
        return self.next if isinstance(self.next, TuneAnswer) else None

    @property
    def held_s(self) -> float:
        """The time that its points held their GPU, or their CPUs."""
        return sum(_held_s(result) for _, result in self.results)

    def point(self, candidate: Candidate) -> Point:
        """Return the point of a candidate: one that ran before, or a new one after all others."""
        before = [result.point for one, result in self.results if one.key == candidate.key]
        points = [result.point for _, result in self.results]
        return before[0] if before else _point(points[0], candidate, points)

    def records(self, *phases: str) -> list[Record]:
        """Return the records, with times, of the points of some phases that succeeded as they are set."""
        return [
            record
            for candidate, result in self.results
            if candidate.phase in phases and result.outcome is Outcome.OK
            if (record := timed(result.verdict)) and REFUSED not in record.params.values()
        ]

    @cached_property
    def finals(self) -> Finals:
        return self.goal.finals(self.records(FINAL), self.records(MEMORY, SEARCH, FINAL))

    @property
    def winner(self) -> Speed | None:
        """The answer, a finalist or the plain loop; ``None`` if there is none."""
        return self.finals.winner

    @property
    def is_loop(self) -> bool:
        return self.winner is not None and self.winner == self.finals.plain

    @property
    def setting(self) -> dict[str, Value]:
        """The winner's knobs, ``auto`` as it ran; empty if there is none."""
        if self.winner is None:
            return {}
        if self.is_loop:
            return whole(self.winner.params)
        found = dict(self.winner.params)
        decided = [record.decided for record in self.finals.winner_records]
        if decided and all(one == decided[0] for one in decided):
            found |= decided[0]
        names = self.goal.setting(self.goal.sizes[0], 1)
        return {knob: found[knob] for knob in names if knob in found}

    @property
    def better_words(self) -> str:
        """What an answer is to be: ``faster``, or ``better by f1``."""
        objective = self.goal.objective
        return "faster" if objective.by_speed else f"better by {objective.name}"

    @property
    def gain(self) -> Ratio | None:
        """The speed of the winner over the plain loop's; ``None`` if one is unknown, or the loop has won."""
        return None if self.is_loop else self.times

    @property
    def times(self) -> Ratio | None:
        """The speed of the best finalist over that of the plain loop; ``None`` if one has no speed."""
        best, loop = self.finals.best, self.finals.plain
        return ratio(best, loop, self.finals.probability) if best and loop else None


def _padding(run_dir: Path, goal: TuneGoal, ran: Sequence[Candidate]) -> tuple[float, float] | None:
    loops = (one for one in ran if one.phase == FINAL and whole(one.params) == goal.loop)
    part = next((numbers(one.params).get(EVERY, 1) for one in loops), 1)
    lengths = read_lengths(run_dir) if part > 1 else None
    if lengths is None or not lengths.pads or lengths.source == NONE:
        return None
    size = numbers(goal.loop)[BATCH_SIZE]
    of_part, of_all = (Loads(some).chunks(size).efficiency for some in (lengths.every(part), lengths))
    return of_part, of_all


def _held_s(result: PointResult) -> float:
    return sum(task_s(replace(tried, account=None)) or 0.0 for tried in result.tries)


def first_point(template: Point, goal: TuneGoal) -> Point:
    first = propose(goal, lambda _: None)
    if not isinstance(first, Candidate):
        raise TypeError(first)  # without results there is no answer
    return _point(template, first, [])


def _point(template: Point, candidate: Candidate, before: Sequence[Point]) -> Point:
    """Return a candidate as a point after those that there are; it shares the rest with a template."""
    repeat = 1 + sum(point.params == candidate.params for point in before)
    name = "-".join([*(f"{knob}-{value}" for knob, value in candidate.params.items()), f"r{repeat}"])
    return replace(
        replace(template, every=1).at(candidate.params),
        index=len(before) + 1,
        point_id=name,
        repeat=repeat,
        phase=candidate.phase,
    )


def spec_lines(tuning: Tuning) -> list[str]:
    params, goal = tuning.setting, tuning.goal
    knob = BATCH_SIZE if tuning.is_loop else goal.size_knob
    size = params.pop(knob)
    point = next(result.point for _, result in tuning.results)
    unit = [f"work_unit: {point.work_unit}"] if knob != BATCH_SIZE else []
    keys = [f"{name}: {value}" for name, value in params.items()]
    return [*keys, *unit, "resources:", f"  cpus: {goal.cpus}", "sweep:", f"  {knob}: [{size}]"]


class TuneRun(RunKind):
    """A run whose points are chosen by the results of earlier points."""

    command = "tune"
    new_run = "jobkit tune SPEC"

    def looks(self, run: RunStatus, typed: str) -> Iterator[NextStep]:
        yield f"jobkit tune {typed}", "the answer, or how far the search is"
        yield from super().looks(run, typed)

    def finished(self, folder: Path) -> bool:
        return (folder / SETTING_FILE).is_file()

    def search_s(self, spec: SweepSpec) -> float:
        return super().search_s(spec) + spec.tune.budget

    def awaited(self, folder: Path) -> Role | None:
        return None if self.finished(folder) else Role.TUNE


TUNE = TuneRun()


def propose_point(run_dir: Path) -> Point | None:
    """Return the next point; ``None`` once ``setting.yaml`` is there. A point without a result runs again.

    That file is the winner as a part of a spec, or a comment why there is none.
    """
    if (run_dir / SETTING_FILE).is_file():
        return None
    tuning = Tuning.read(run_dir)
    if isinstance(tuning.next, Candidate):
        return tuning.point(tuning.next)
    if tuning.winner is None:
        text = f"# jobkit tune found no setting in {run_dir.name}: {tuning.next.why}\n"
    else:
        times = f": {tuning.gain.mean:.1f} times the plain loop" if tuning.gain else ""
        head = f"# Found by jobkit tune in {run_dir.name}{times}."
        if tuning.is_loop:
            head = f"# The plain loop: in {run_dir.name} no setting is shown to be {tuning.better_words}."
        text = "".join(f"{line}\n" for line in [head, *spec_lines(tuning)])
    write_atomically(run_dir / SETTING_FILE, text)
    return None


def main() -> int:
    def notes(_: Path, point: Point | None) -> Iterator[str]:
        if point:
            yield f"point {point.index}, {point.phase}: {format_setting(point.params)}"

    return search_loop.main("tune", propose_point, notes)


if __name__ == "__main__":
    sys.exit(main())
