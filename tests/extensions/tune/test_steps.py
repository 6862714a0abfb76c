"""The search over models of a machine: what it measures, what it answers, and at what cost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobkit.answers.objective import Bound, Finals, Objective
from jobkit.core.knobs import EVERY, EXACT, MPS, OFF, ON, ORDER, PADDED_CHARS, SHORTCUTS, WORKERS, Value
from jobkit.core.measurements import Metric
from jobkit.core.records import Outcome
from jobkit.core.units import GIB
from jobkit.extensions.tune.steps import (
    FINAL,
    MEMORY,
    SEARCH,
    Candidate,
    MeasuredCandidate,
    Search,
    TuneAnswer,
    TuneGoal,
    follow,
    whole,
)
from tests.support.machines import FAST, GOAL, LOOP, SIZES, Machine

NOW = replace(GOAL, most_repeats=9, looks=3, again=12)


def searched(goal: TuneGoal, machine: Machine) -> tuple[TuneAnswer, list[Candidate]]:
    """Search to the end; return the answer, and what was measured in order."""
    order: list[Candidate] = []

    def run(candidate: Candidate) -> MeasuredCandidate:
        assert candidate.key not in {one.key for one in order}
        order.append(candidate)
        return machine.run(candidate)

    answer = follow(Search(goal).steps(), run)
    assert isinstance(answer, TuneAnswer)
    return answer, order


def read_again(
    goal: TuneGoal, machine: Machine, ran: Sequence[Candidate], factor: float = 1.0
) -> TuneAnswer | Candidate:
    """Return the answer of a search that has ended, from its files, whose times may be off by a factor."""
    done = {one.key: machine.run(one) for one in ran}
    copied = {key: replace(one, held_s=max(one.work_s, one.held_s * factor)) for key, one in done.items()}
    return follow(Search(goal, tried=tuple(ran)).steps(), lambda one: copied.get(one.key))


def of_phase(order: Sequence[Candidate], *phases: str) -> list[Candidate]:
    return [one for one in order if one.phase in phases]


def loops(order: Sequence[Candidate]) -> int:
    """Return how often the plain loop ran."""
    return sum(one.params == LOOP for one in order)


def bounded(goal: TuneGoal = GOAL, **bounds: Bound) -> TuneGoal:
    return replace(goal, objective=Objective(bounds=bounds))


# -- what is measured


def test_memory_then_workers_then_the_other_values_then_the_finalists_in_turn() -> None:
    answer, order = searched(GOAL, Machine())
    assert [one.phase for one in order] == [MEMORY] * 4 + [SEARCH] * 8 + [FINAL] * 9
    assert [one.workers for one in order[4:8]] == [2, 4, 8, 16]
    assert [one.params[MPS] for one in order[8:12]] == [OFF, "auto", "auto", "auto"]
    parts = {one.workers: one.params[EVERY] for one in of_phase(order, SEARCH)}
    assert parts == {2: 8, 4: 8, 8: 4, 16: 2}, "fewer workers get less, but no less than one alone"
    assert [one.params for one in order[-9:]] == [LOOP, *answer.finalists] * 3
    assert answer.finalists[0] == GOAL.setting(16_000, 16, mps="auto")
    assert (answer.limit, "16 workers are 2.00 times as fast as 8" in answer.why) == ("cores", True)


@pytest.mark.parametrize(("goal", "combinations"), [(GOAL, 72), (FAST, 144)])
def test_it_keeps_to_what_it_announced(goal: TuneGoal, combinations: int) -> None:
    _, order = searched(goal, Machine())
    assert len({tuple(sorted(whole(one.params).items())) for one in order}) <= goal.most_settings
    assert goal.most_settings - len(SIZES) <= 12 + goal.shortcuts
    assert goal.combinations == combinations
    assert len(order) <= goal.most_points


def test_a_search_that_was_cut_short_goes_on_where_it_stood() -> None:
    machine, (answer, order) = Machine(), searched(GOAL, Machine())
    for cut in (0, 5, len(order) - 1, len(order)):
        done = {one.key: machine.run(one) for one in order[:cut]}
        expected = order[cut] if cut < len(order) else answer
        assert follow(Search(GOAL).steps(), lambda one, done=done: done.get(one.key)) == expected  # type: ignore[misc]


@pytest.mark.parametrize("budget_s", [60, 200, 300, 600, 3600])
@pytest.mark.parametrize(
    ("goal", "machine"),
    [
        (GOAL, Machine()),
        *((replace(FAST, looks=3, most_repeats=9), Machine(refuses=phases)) for phases in ((), (SEARCH,))),
    ],
    ids=["without", "with shortcuts", "refused"],
)
def test_the_answer_of_a_search_that_ended_does_not_depend_on_the_times_of_files(
    budget_s: int, goal: TuneGoal, machine: Machine
) -> None:
    goal = replace(goal, budget_s=budget_s)
    answer, order = searched(goal, machine)
    assert [read_again(goal, machine, order, factor) for factor in (0.0, 0.5, 3.0)] == [answer] * 3


MACHINES = st.builds(
    Machine,
    cores=st.sampled_from([1, 2, 4, 8, 16, 64]),
    shared=st.sampled_from([0.6, 0.8, 0.95, 1.0, 1.1]),
    best=st.sampled_from([2_000, 4_000, 16_000, 64_000, 200_000]),
    bytes_per_load=st.sampled_from([1_000, 10_000, 100_000, 400_000]),
    gpu_bytes=st.sampled_from([24 * GIB, 80 * GIB, 140 * GIB]),
    allows_mps=st.booleans(),
)


@settings(max_examples=40)
@given(MACHINES, st.sampled_from([1, 2, 3, 6, 12, 16]))
def test_its_answer_is_within_10_percent_of_the_best_of_all_settings(machine: Machine, workers: int) -> None:
    goal = replace(GOAL, workers=workers)
    grid = itertools.product(goal.sizes, [1, *goal.steps], [OFF, ON])
    rows = [goal.setting(size, workers, mps=mps) for size, workers, mps in grid]
    fits = [row for row in rows if machine.run(Candidate(row, FINAL)).outcome is Outcome.OK]
    answer, _ = searched(goal, machine)
    assert max(map(machine.speed, answer.finalists)) >= 0.9 * max(map(machine.speed, fits))


def test_without_a_gpu_nothing_is_said_of_mps() -> None:
    goal = replace(GOAL, mps=False, loop={**LOOP, "threads": 2}, workers=2)
    _, order = searched(goal, Machine())
    assert all(MPS not in one.params for one in order if one.phase != FINAL)


def test_an_order_that_the_text_does_not_decide_is_compared() -> None:
    goal = replace(NOW, order="text", other_order="sorted", padding={})
    answer, order = searched(goal, Machine())
    assert answer.finalists[0][ORDER] == "sorted"
    assert [one.params[ORDER] for one in of_phase(order, SEARCH)].count("sorted") in {1, 2}


def test_a_step_that_scatter_may_have_ended_is_measured_again() -> None:
    class Slow(Machine):
        """Its first measurement of 4 workers is far too slow."""

        def scatters(self, candidate: Candidate, /) -> float:
            first = (candidate.workers, candidate.repeat, candidate.phase) == (4, 1, SEARCH)
            return 0.51 if first else 1.0

    answer, order = searched(NOW, Slow())
    assert answer.finalists[0][WORKERS] == 16
    assert [one.repeat for one in of_phase(order, SEARCH) if one.workers == 4] == [1, 2]
    once, _ = searched(replace(NOW, again=0), Slow())
    assert once.finalists[0][WORKERS] in {2, 4}


# -- what ends it


def test_more_workers_than_memory_holds_are_not_tried() -> None:
    machine = Machine(gpu_bytes=24 * GIB, bytes_per_load=400_000)  # one worker takes 2.5, 7 or 25 GiB
    answer, order = searched(GOAL, machine)
    assert all(machine.run(one).outcome is Outcome.OK for one in order if one.phase != MEMORY)
    assert answer.limit in {"memory", "cores"}


def test_without_a_measurement_of_memory_no_number_of_workers_is_ruled_out() -> None:
    class Blind(Machine):
        def run(self, candidate: Candidate) -> MeasuredCandidate:
            done = super().run(candidate)
            assert done.record
            memory = replace(done.record.memory, context_bytes=None, process_peak_bytes=None)
            return replace(done, record=replace(done.record, needs=(), memory=memory))

    answer, order = searched(GOAL, Blind())
    assert (answer.limit, max(one.workers for one in order)) == ("cores", 16)


def test_a_limit_of_the_memory_is_kept() -> None:
    answer, order = searched(replace(GOAL, memory_bytes=8 * GIB), Machine(bytes_per_load=40_000))
    search = of_phase(order, SEARCH)
    held = [one.workers * (GIB + one.params[PADDED_CHARS] * 40_000) for one in search]  # type: ignore[operator]
    assert max(held) <= 8 * GIB
    assert [one.workers for one in search][:3] == [2, 4, 6]
    assert (answer.limit, "memory holds" in answer.why) == ("memory", True)


@pytest.mark.parametrize(
    ("changes", "limit"), [({"utilisation": 97.0}, "GPU"), ({"idle_share": 0.4}, "text"), ({}, "cores")]
)
def test_what_limits_a_search_that_more_workers_do_not_speed_up(changes: dict[str, Any], limit: str) -> None:
    answer, order = searched(GOAL, Machine(cores=4, **changes))
    assert answer.limit == limit
    assert max(one.workers for one in order) == 8


def test_a_point_that_runs_out_of_memory_ends_the_doubling() -> None:
    answer, order = searched(GOAL, Machine(fails={(WORKERS, 8): Outcome.GPU_OOM}))
    assert (answer.limit, answer.why) == ("memory", "8 workers ended as gpu_oom")
    assert max(one.workers for one in of_phase(order, FINAL)) == 4


def test_two_sizes_that_fail_end_the_search_and_one_does_not() -> None:
    answer, order = searched(GOAL, Machine(fails={(WORKERS, 1): Outcome.ENVIRONMENT}))
    assert (len(order), answer.finalists) == (2, ())
    assert answer.why == "one worker at padded_chars 16,000 ended as environment"
    answer, order = searched(GOAL, Machine(fails={(PADDED_CHARS, 4_000): Outcome.BUG}))
    assert [one.params[PADDED_CHARS] for one in of_phase(order, MEMORY)] == [*SIZES]
    assert answer.finalists[0] == GOAL.setting(16_000, 16, mps="auto")


def test_the_budget_ends_the_search_and_shortens_the_finals() -> None:
    answer, order = searched(replace(GOAL, budget_s=600), Machine(start_s=60.0))
    assert answer.limit == "time"
    assert answer.finalists
    assert len(of_phase(order, FINAL)) < 9
    assert order[-1].params[EVERY] > 1  # type: ignore[operator]


@pytest.mark.parametrize(
    ("ran", "goal", "machine"),
    [
        (1, GOAL, Machine(fails={(WORKERS, 1): Outcome.ENVIRONMENT})),
        (12, bounded(batch_p95=Bound(max=1e-9)), Machine()),
    ],
)
def test_a_search_that_an_earlier_version_ended_sooner_has_ended(
    ran: int, goal: TuneGoal, machine: Machine
) -> None:
    """It ended at its first failure, and without the plain loop if no setting kept the constraints."""
    answer = read_again(goal, machine, searched(goal, machine)[1][:ran])
    assert isinstance(answer, TuneAnswer)
    assert answer.finalists == ()


# -- repeats of the finals


@pytest.mark.parametrize(("noise", "repeats"), [(0.0, 3), (0.08, 6), (0.4, 8)])
def test_the_finalists_run_until_their_speeds_are_known(noise: float, repeats: int) -> None:
    goal, machine = replace(GOAL, most_repeats=8, share=0.1), Machine(noise=noise)
    answer, order = searched(goal, machine)
    assert loops(order) == repeats
    assert len(order) <= goal.most_points
    assert read_again(goal, machine, order) == answer
    with_looks = replace(goal, looks=3, again=12)
    assert loops(searched(with_looks, machine)[1]) == repeats, "that may take more points"


def test_the_budget_ends_the_repeats_whose_speeds_are_not_known() -> None:
    goal = replace(GOAL, most_repeats=100, share=0.01, budget_s=900)
    _, order = searched(goal, machine := Machine(noise=0.3))
    assert 3 <= loops(order) < 100
    assert sum(machine.run(one).held_s for one in order) <= goal.budget_s


def test_repeats_go_on_while_nothing_is_shown_and_end_at_twice_the_points() -> None:
    _, order = searched(NOW, Machine(cores=1, shared=0.5, noise=0.2, best=8_000))
    assert loops(order) in {6, 9}
    assert len(order) <= NOW.most_points
    assert loops(searched(NOW, Machine())[1]) == 3


# -- constraints, and other objectives


@dataclass(frozen=True, kw_only=True)
class Reporting(Machine):
    """A machine whose workload reports f1; ``None`` for a point that does not."""

    f1: Callable[[Candidate], float | None] = field(default=lambda _: None)

    def run(self, candidate: Candidate) -> MeasuredCandidate:
        result, value = super().run(candidate), self.f1(candidate)
        metrics = {} if value is None else {"f1": Metric(value=value)}
        return replace(result, record=replace(result.record, metrics=metrics) if result.record else None)


class WithoutItems(Machine):
    def run(self, candidate: Candidate) -> MeasuredCandidate:
        result = super().run(candidate)
        assert result.record
        assert result.record.summary
        every = candidate.params.get(EVERY, 1)
        assert isinstance(every, int)
        point = replace(result.record.point, every=every)
        summary = replace(result.record.summary, items=0, items_per_s=0.0)
        return replace(result, record=replace(result.record, point=point, summary=summary))


def by(metric: str, direction: str = "max", goal: TuneGoal = GOAL) -> TuneGoal:
    return replace(goal, objective=Objective(metric=metric, direction=direction))


def test_settings_over_a_constraint_are_not_finalists() -> None:
    answer, _ = searched(bounded(batch_p95=Bound(max=1e-9)), Machine())
    assert (answer.finalists, answer.why) == ((), "no setting keeps the constraints")
    limit = 1_000 * 500 / Machine().speed(GOAL.setting(16_000, 16, mps=ON)) + 0.01
    answer, _ = searched(bounded(joules_per_1000=Bound(max=limit)), Machine())
    assert [params[PADDED_CHARS] for params in answer.finalists] == [16_000]


@given(st.permutations(SIZES), st.sampled_from(["max", "min"]))
def test_the_finalists_are_the_best_by_the_objective_and_of_equal_ones_the_fastest(
    order: list[int], direction: str
) -> None:
    """The figure depends on the size alone, so all numbers of workers are equal."""
    value = {size: float(order.index(size)) for size in SIZES}
    machine = Reporting(f1=lambda one: value.get(one.params.get(PADDED_CHARS), 0.0))  # type: ignore[arg-type]
    answer, _ = searched(by("f1", direction), machine)
    assert answer.finalists[0][PADDED_CHARS] == order[-1 if direction == "max" else 0]
    assert answer.finalists[0][WORKERS] == 16


def test_points_without_the_metric_are_no_finalists() -> None:
    answer, _ = searched(by("f1"), Reporting(f1=lambda one: 0.9 if one.workers == 1 else None))
    assert [params[WORKERS] for params in answer.finalists] == [1, 1]
    answer, order = searched(by("f1"), Machine())
    assert (answer.finalists, {one.phase for one in order}) == ((), {MEMORY})
    assert "no point has the metric 'f1'" in answer.why


def test_without_items_the_time_of_the_work_leads_the_search() -> None:
    answer, _ = searched(GOAL, WithoutItems())
    assert "reports no items, so no setting has a speed" in answer.why
    answer, order = searched(by("work_s", "min"), WithoutItems())
    assert [one.workers for one in of_phase(order, SEARCH)][:4] == [2, 4, 8, 16]
    assert answer.finalists[0] == GOAL.setting(16_000, 16, mps="auto")


def falling(workers: int) -> Callable[[Candidate], float | None]:
    """Return an f1 that falls in the finals with this many workers or more."""
    return lambda one: 0.725 if one.phase == FINAL and one.workers >= workers else 0.95


F1 = bounded(NOW, f1=Bound(min=0.9))


def test_a_constraint_is_judged_on_the_repeats_of_the_finals() -> None:
    machine = Reporting(f1=falling(2))
    answer, order = searched(F1, machine)
    records = [record for one in of_phase(order, FINAL) if (record := machine.run(one).record)]
    kept = Finals(objective=F1.objective, loop=LOOP, looks=3, records=records)
    assert (len(answer.finalists), kept.kept, kept.winner) == (2, (), kept.plain)
    none, _ = searched(F1, Reporting(f1=falling(1)))
    assert (none.finalists, "f1 0.725 is under 0.9" in none.why) == ((), True)


def test_a_loop_that_fails_and_settings_that_break_a_constraint_leave_no_answer() -> None:
    class NoLoop(Reporting):
        def run(self, candidate: Candidate) -> MeasuredCandidate:
            done = super().run(candidate)
            return MeasuredCandidate(Outcome.BUG, None, 1.0) if candidate.params.get("batch_size") else done

    answer, _ = searched(F1, NoLoop(f1=lambda one: 0.95 if one.phase == MEMORY else 0.725))
    assert (answer.finalists, answer.why) == (
        (),
        "neither the plain loop nor another setting keeps the constraints: f1 0.725 is under 0.9",
    )
    alone, _ = searched(bounded(NOW, f1=Bound(min=0.99)), NoLoop(f1=falling(1)))
    assert "the plain loop did not succeed" in alone.why


# -- shortcuts


def words(order: Sequence[Candidate], *phases: str) -> list[Value | None]:
    """Return the value of the shortcuts of each point of some phases."""
    return [one.params.get(SHORTCUTS) for one in of_phase(order, *phases)]


def test_all_settings_but_the_plain_loop_have_shortcuts_and_the_best_is_tried_without() -> None:
    answer, order = searched(FAST, Machine())
    assert set(words(order, MEMORY)) == {EXACT}
    *search, last = of_phase(order, SEARCH)
    assert set(words(search, SEARCH)) == {EXACT}
    best = next(one for one in search if whole(one.params) == answer.finalists[0])
    assert last.params == {**best.params, SHORTCUTS: OFF}
    assert words(order, FINAL) == [OFF, EXACT, EXACT] * 3
    assert [params[SHORTCUTS] for params in answer.finalists] == [EXACT, EXACT]
    assert searched(FAST, Machine(exact=0.5))[0].finalists[0][SHORTCUTS] == OFF, "if they are slower"


def test_shortcuts_that_are_refused_at_first_are_never_tried_again() -> None:
    answer, order = searched(FAST, Machine(refuses=(MEMORY,)))
    first, *others = order
    assert (first.phase, first.params[SHORTCUTS]) == (MEMORY, EXACT)
    assert {one.params[SHORTCUTS] for one in others} == {OFF}
    plain, other = searched(GOAL, Machine())
    assert [whole(one.params) for one in others] == [{**whole(one.params), SHORTCUTS: OFF} for one in other]
    assert answer.finalists == tuple({**params, SHORTCUTS: OFF} for params in plain.finalists)
    assert (answer.limit, answer.why) == (plain.limit, plain.why)
    assert len(order) <= FAST.most_points


class Refusing(Machine):
    """Refuses shortcuts from the second size on."""

    def refuses_shortcuts(self, candidate: Candidate) -> bool:
        return candidate.params.get(SHORTCUTS) == EXACT and candidate.params[PADDED_CHARS] != SIZES[0]


def test_nor_if_they_are_refused_later() -> None:
    answer, order = searched(FAST, Refusing(exact=30.0))
    assert words(order, MEMORY) == [EXACT, EXACT, *[OFF] * len(SIZES)]
    assert set(words(order, SEARCH, FINAL)) == {OFF}
    assert {params[SHORTCUTS] for params in answer.finalists} == {OFF}
    assert answer.limit == "cores"
    answer, order = searched(replace(FAST, memory_bytes=8 * GIB), Refusing(bytes_per_load=40_000))
    assert [one.workers for one in of_phase(order, SEARCH)][:3] == [2, 4, 6], "by the memory without them"
    assert answer.limit == "memory"


def test_a_try_that_is_refused_and_fails_is_repeated_without() -> None:
    class Small(Machine):
        def run(self, candidate: Candidate) -> MeasuredCandidate:
            done = super().run(candidate)
            assert done.record
            if not self.refuses_shortcuts(candidate):
                return done
            failed = replace(done.record, outcome=Outcome.GPU_OOM, summary=None)
            return MeasuredCandidate(Outcome.GPU_OOM, failed, self.start_s)

    class Broken(Machine):
        """Fails at its first size, and only two sizes that fail end a search."""

        def run(self, candidate: Candidate) -> MeasuredCandidate:
            done = super().run(candidate)
            fails = candidate.params.get(PADDED_CHARS) == SIZES[0] and not self.refuses_shortcuts(candidate)
            return MeasuredCandidate(Outcome.BUG, None, self.start_s) if fails else done

    for machine in (Small(refuses=(MEMORY,)), Broken(refuses=(MEMORY,))):
        answer, order = searched(FAST, machine)
        assert words(order, MEMORY) == [EXACT, *[OFF] * len(SIZES)]
        assert answer.finalists


def test_more_workers_that_are_refused_end_the_doubling_with_that_reason() -> None:
    answer, order = searched(FAST, Machine(refuses=(SEARCH,)))
    assert of_phase(order, SEARCH)[0].workers == 2
    assert (answer.limit, answer.why) == ("failure", "2 workers ended as ok, without their shortcuts")
    assert {params[WORKERS] for params in answer.finalists} == {1}


def test_a_second_finalist_that_is_slower_beyond_doubt_is_not_measured() -> None:
    alone = replace(FAST, sizes=SIZES[1:2], loads=SIZES[1:2], workers=1)
    found = [searched(alone, Machine(exact=exact))[0].finalists for exact in (1.5, 1.6)]
    assert [len(finalists) for finalists in found] == [2, 1]
    assert {finalists[0][SHORTCUTS] for finalists in found} == {EXACT}
    machine = Reporting(f1=lambda one: 0.9 + 0.05 * (one.params.get(SHORTCUTS) == OFF))
    assert len(searched(by("f1", goal=alone), machine)[0].finalists) == 2, "another figure may differ less"


# -- the part of the text that the finals work on


def parts(order: Sequence[Candidate], loop: dict[str, Value]) -> tuple[Value, set[Value]]:
    """Return on which part of the text the plain loop worked, and the finalists."""
    final = of_phase(order, FINAL)
    [of_loop] = {one.params.get(EVERY, 1) for one in final if whole(one.params) == loop}
    return of_loop, {one.params.get(EVERY, 1) for one in final if whole(one.params) != loop}


@pytest.mark.parametrize(("budget_s", "expected"), [(300, (6, {1})), (500, (2, {1})), (600, (1, {1}))])
def test_the_plain_loop_gets_a_smaller_part_than_the_finalists_if_the_budget_is_short(
    budget_s: int, expected: tuple[Value, set[Value]]
) -> None:
    machine = Machine(exact=2.0)
    _, order = searched(replace(FAST, budget_s=budget_s), machine)
    assert parts(order, dict(FAST.loop)) == expected
    assert sum(machine.run(one).held_s for one in order) <= budget_s


@pytest.mark.parametrize(("budget_s", "start_s", "workers"), [(100, 5.0, 4), (856, 60.0, 1)])
def test_with_hardly_any_time_left_the_finalists_still_get_enough_for_a_speed(
    budget_s: int, start_s: float, workers: int
) -> None:
    _, order = searched(replace(FAST, budget_s=budget_s, workers=workers), Machine(start_s=start_s))
    assert parts(order, dict(FAST.loop))[1] == {FAST.memory_every}


def test_without_shortcuts_the_loop_and_the_finalists_work_on_the_same_part() -> None:
    _, order = searched(replace(GOAL, budget_s=400), Machine(start_s=10.0))
    of_loop, others = parts(order, LOOP)
    assert others == {of_loop}
