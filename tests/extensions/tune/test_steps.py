"""The search over models of a machine: what it measures, what it answers, and at what cost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobkit.answers.memory import Memory
from jobkit.answers.objective import Bound, Finals, Objective
from jobkit.answers.observations import NEED
from jobkit.core.knobs import EVERY, EXACT, MPS, OFF, ON, PADDED_CHARS, SHORTCUTS, WORKERS, Value
from jobkit.core.measurements import Metric
from jobkit.core.records import Outcome
from jobkit.core.units import GIB
from jobkit.extensions.tune.steps import (
    DOUBT,
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


def found(goal: TuneGoal, machine: Machine) -> float:
    """Return the speed of the fastest finalist."""
    answer, _ = searched(goal, machine)
    return max(machine.speed(params) for params in answer.finalists)


def of_grid(goal: TuneGoal, machine: Machine) -> float:
    """Return the highest speed of all settings that fit."""
    grid = itertools.product(goal.sizes, [1, *goal.steps], [OFF, ON] if goal.mps else [OFF])
    rows = [goal.setting(size, workers, mps=mps) for size, workers, mps in grid]
    return max(machine.speed(row) for row in rows if machine.run(Candidate(row, FINAL)).outcome is Outcome.OK)


def test_memory_then_workers_then_the_other_values_then_the_finalists_in_turn() -> None:
    answer, order = searched(GOAL, Machine())
    assert [one.phase for one in order] == [MEMORY] * 4 + [SEARCH] * 8 + [FINAL] * 9
    assert [one.workers for one in order[4:8]] == [2, 4, 8, 16]
    assert [one.params[MPS] for one in order[8:12]] == [OFF, "auto", "auto", "auto"]
    finals = [one.params for one in order[-9:]]
    assert finals == [LOOP, *answer.finalists] * 3
    assert answer.finalists[0] == GOAL.setting(16_000, 16, mps="auto")
    assert (answer.limit, "16 workers are 2.00 times as fast as 8" in answer.why) == ("cores", True)


def test_fewer_workers_get_less_of_the_text_but_no_less_than_one_worker_alone() -> None:
    _, order = searched(GOAL, Machine())
    parts = {one.workers: one.params[EVERY] for one in order if one.phase == SEARCH}
    assert parts == {2: 8, 4: 8, 8: 4, 16: 2}


def test_a_search_that_was_cut_short_goes_on_where_it_stood() -> None:
    machine, (answer, order) = Machine(), searched(GOAL, Machine())
    for cut in (0, 5, len(order) - 1):
        done = {one.key: machine.run(one) for one in order[:cut]}
        assert follow(Search(GOAL).steps(), lambda one, done=done: done.get(one.key)) == order[cut]  # type: ignore[misc]
    done = {one.key: machine.run(one) for one in order}
    assert follow(Search(GOAL).steps(), lambda one: done.get(one.key)) == answer


@pytest.mark.parametrize("budget_s", [60, 200, 400, 600, 1200, 3600])
def test_the_answer_of_a_search_that_ended_does_not_depend_on_the_times_of_files(budget_s: int) -> None:
    goal, machine = replace(GOAL, budget_s=budget_s), Machine()
    answer, order = searched(goal, machine)
    done = {one.key: machine.run(one) for one in order}
    for factor in (0.0, 0.5, 3.0):
        copied = {key: replace(one, held_s=max(one.work_s, one.held_s * factor)) for key, one in done.items()}
        again = Search(goal, tried=tuple(order)).steps()
        assert follow(again, _result_in(copied)) == answer


def _result_in(
    done: dict[tuple[object, ...], MeasuredCandidate],
) -> Callable[[Candidate], MeasuredCandidate | None]:
    return lambda one: done.get(one.key)


def test_it_keeps_to_what_it_announced() -> None:
    _, order = searched(GOAL, Machine())
    settings_ = {tuple(sorted(whole(one.params).items())) for one in order}
    assert len(settings_) <= GOAL.most_settings
    assert GOAL.most_settings - len(SIZES) <= 12
    assert GOAL.combinations == 72
    assert len(order) <= GOAL.most_points


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
    assert found(goal, machine) >= 0.9 * of_grid(goal, machine)


def test_more_workers_than_memory_holds_are_not_tried() -> None:
    machine = Machine(gpu_bytes=24 * GIB, bytes_per_load=400_000)  # one worker takes 2.5, 7 or 25 GiB
    answer, order = searched(GOAL, machine)
    assert all(machine.run(one).outcome is Outcome.OK for one in order if one.phase != MEMORY)
    assert answer.limit in {"memory", "cores"}


def test_without_a_measurement_of_memory_no_number_of_workers_is_ruled_out() -> None:
    nothing = Memory(kind=NEED, line="no line", load_by_batch={})
    for memory in ("no point has succeeded yet", nothing):
        assert Search(GOAL, memory=memory).most_workers(4_000) is None


def test_a_limit_of_the_memory_is_kept() -> None:
    goal = replace(GOAL, memory_bytes=8 * GIB)
    machine = Machine(bytes_per_load=40_000)
    answer, order = searched(goal, machine)
    held = [one.workers * (GIB + one.params[PADDED_CHARS] * 40_000) for one in order if one.phase == SEARCH]  # type: ignore[operator]
    assert max(held) <= 8 * GIB
    assert [one.workers for one in order if one.phase == SEARCH][:3] == [2, 4, 6]
    assert (answer.limit, "memory holds" in answer.why) == ("memory", True)


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"utilisation": 97.0}, "GPU"),
        ({"idle_share": 0.4}, "text"),
        ({}, "cores"),
    ],
)
def test_what_limits_a_search_that_more_workers_do_not_speed_up(changes: dict[str, Any], limit: str) -> None:
    answer, order = searched(GOAL, Machine(cores=4, **changes))
    assert answer.limit == limit
    assert max(one.workers for one in order) == 8


def test_a_point_that_runs_out_of_memory_ends_the_doubling() -> None:
    answer, order = searched(GOAL, Machine(fails={(WORKERS, 8): Outcome.GPU_OOM}))
    assert (answer.limit, answer.why) == ("memory", "8 workers ended as gpu_oom")
    assert max(one.workers for one in order if one.phase == FINAL) == 4


def test_two_sizes_that_fail_end_the_search() -> None:
    answer, order = searched(GOAL, Machine(fails={(WORKERS, 1): Outcome.ENVIRONMENT}))
    assert (len(order), answer.finalists) == (2, ())
    assert answer.why == "one worker at padded_chars 16,000 ended as environment"


def test_a_first_size_that_fails_leaves_the_others() -> None:
    answer, order = searched(GOAL, Machine(fails={(PADDED_CHARS, 4_000): Outcome.BUG}))
    assert [one.params[PADDED_CHARS] for one in order if one.phase == MEMORY] == [*SIZES]
    assert answer.finalists[0] == GOAL.setting(16_000, 16, mps="auto")


def test_the_budget_ends_the_search_and_shortens_the_finals() -> None:
    slow = Machine(start_s=60.0)
    goal = replace(GOAL, budget_s=600)
    answer, order = searched(goal, slow)
    assert answer.limit == "time"
    assert answer.finalists
    assert sum(one.phase == FINAL for one in order) < 9
    assert order[-1].params[EVERY] > 1  # type: ignore[operator]


def finals(order: Sequence[Candidate]) -> int:
    """Return how often the plain loop ran."""
    return sum(one.params == LOOP for one in order)


@pytest.mark.parametrize(("noise", "repeats"), [(0.0, 3), (0.05, 4), (0.08, 6), (0.4, 8)])
def test_the_finalists_run_until_their_speeds_are_known(noise: float, repeats: int) -> None:
    goal, machine = replace(GOAL, most_repeats=8, share=0.1), Machine(noise=noise)
    answer, order = searched(goal, machine)
    assert finals(order) == repeats
    assert len(order) <= goal.most_points
    done = {one.key: machine.run(one) for one in order}
    assert follow(Search(goal, tried=tuple(order)).steps(), _result_in(done)) == answer


def test_the_budget_ends_the_repeats_whose_speeds_are_not_known() -> None:
    goal = replace(GOAL, most_repeats=100, share=0.01, budget_s=900)
    _, order = searched(goal, machine := Machine(noise=0.3))
    assert 3 <= finals(order) < 100
    assert sum(machine.run(one).held_s for one in order) <= goal.budget_s


def test_settings_over_the_constraint_on_a_batch_are_not_finalists() -> None:
    told = searched(GOAL, Machine())[0]
    assert told.finalists
    never = replace(GOAL, objective=Objective(bounds={"batch_p95": Bound(max=1e-9)}))
    answer, _ = searched(never, Machine())
    assert (answer.finalists, answer.why) == ((), "no setting keeps the constraints")


def test_a_setting_that_takes_too_much_energy_is_no_finalist() -> None:
    limit = 1_000 * 500 / Machine().speed(GOAL.setting(16_000, 16, mps=ON)) + 0.01
    answer, _ = searched(
        replace(GOAL, objective=Objective(bounds={"joules_per_1000": Bound(max=limit)})), Machine()
    )
    assert [params[PADDED_CHARS] for params in answer.finalists] == [16_000]


def test_without_a_gpu_nothing_is_said_of_mps() -> None:
    goal = replace(GOAL, mps=False, loop={**LOOP, "threads": 2}, workers=2)
    _, order = searched(goal, Machine())
    assert all(MPS not in one.params for one in order if one.phase != FINAL)


def reporting(
    machine: Machine, of: Callable[[Candidate], float | None]
) -> Callable[[Candidate], MeasuredCandidate]:
    """Return a machine whose workload reports f1; ``None`` for a point that does not."""

    def run(candidate: Candidate) -> MeasuredCandidate:
        result, value = machine.run(candidate), of(candidate)
        metrics = {} if value is None else {"f1": Metric(value=value)}
        return replace(result, record=replace(result.record, metrics=metrics) if result.record else None)

    return run


def answered(
    goal: TuneGoal, run: Callable[[Candidate], MeasuredCandidate]
) -> tuple[TuneAnswer, list[Candidate]]:
    order: list[Candidate] = []

    def measured(candidate: Candidate) -> MeasuredCandidate:
        order.append(candidate)
        return run(candidate)

    answer = follow(Search(goal).steps(), measured)
    assert isinstance(answer, TuneAnswer)
    return answer, order


BY_F1 = replace(GOAL, objective=Objective(metric="f1", direction="max"))


@given(st.permutations(SIZES), st.sampled_from(["max", "min"]))
def test_the_finalists_are_the_best_by_the_objective_and_of_equal_ones_the_fastest(
    order: list[int], direction: str
) -> None:
    """The figure depends on the size alone, so all numbers of workers are equal."""
    goal = replace(GOAL, objective=Objective(metric="f1", direction=direction))
    value = {size: float(order.index(size)) for size in SIZES}
    answer, _ = answered(goal, reporting(Machine(), lambda one: value.get(one.params.get(PADDED_CHARS), 0.0)))  # type: ignore[arg-type]
    best = order[-1] if direction == "max" else order[0]
    assert {params[PADDED_CHARS] for params in answer.finalists[:1]} == {best}
    assert answer.finalists[0][WORKERS] == 16


def test_a_search_ends_at_once_if_no_point_has_the_metric() -> None:
    answer, order = answered(BY_F1, Machine().run)
    assert (answer.finalists, {one.phase for one in order}) == ((), {MEMORY})
    assert "no point has the metric 'f1'" in answer.why


def test_points_without_the_metric_are_no_finalists() -> None:
    def value(candidate: Candidate) -> float | None:
        return 0.9 if candidate.workers == 1 else None

    answer, _ = answered(BY_F1, reporting(Machine(), value))
    assert [params[WORKERS] for params in answer.finalists] == [1, 1]


def without_items(machine: Machine) -> Callable[[Candidate], MeasuredCandidate]:
    def run(candidate: Candidate) -> MeasuredCandidate:
        result = machine.run(candidate)
        assert result.record
        assert result.record.summary
        every = candidate.params.get(EVERY, 1)
        assert isinstance(every, int)
        return replace(
            result,
            record=replace(
                result.record,
                point=replace(result.record.point, every=every),
                summary=replace(result.record.summary, items=0, items_per_s=0.0),
            ),
        )

    return run


def test_without_items_the_time_of_the_work_leads_the_search() -> None:
    answer, _ = answered(GOAL, without_items(Machine()))
    assert "reports no items, so no setting has a speed" in answer.why
    goal = replace(GOAL, objective=Objective(metric="work_s", direction="min"))
    answer, order = answered(goal, without_items(Machine()))
    assert [one.workers for one in order if one.phase == SEARCH][:4] == [2, 4, 8, 16]
    assert answer.finalists[0] == GOAL.setting(16_000, 16, mps="auto")


NOW = replace(GOAL, most_repeats=9, looks=3, again=12)


def winner_of(goal: TuneGoal, machine: Machine) -> tuple[TuneAnswer, dict[str, Any] | None]:
    """Search to the end; return the answer, and the knobs of the winner."""
    search, results = Search(goal), {}

    def run(candidate: Candidate) -> MeasuredCandidate:
        results[candidate.key] = machine.run(candidate)
        return results[candidate.key]

    answer = follow(search.steps(), run)
    assert isinstance(answer, TuneAnswer)
    records = [result.record for key, result in results.items() if key[0] == FINAL and result.record]
    finals = Finals(objective=goal.objective, loop=goal.loop, looks=goal.looks, records=records)
    return answer, dict(finals.winner.params) if finals.winner else None


def test_the_plain_loop_is_the_answer_if_no_setting_is_shown_to_be_faster() -> None:
    class Fast(Machine):
        """Its plain loop is faster than all else."""

        def speed(self, params: Mapping[str, Value]) -> float:
            return 1e4 if "batch_size" in params else super().speed(params)

    assert winner_of(NOW, Fast(noise=0.01))[1] == LOOP
    assert winner_of(NOW, Machine(noise=0.01))[1] == GOAL.setting(16_000, 16, mps="auto")


def test_repeats_go_on_while_nothing_is_shown_and_end_at_twice_the_points() -> None:
    even = Machine(cores=1, shared=0.5, noise=0.2, best=8_000)
    _, order = searched(NOW, even)
    assert finals(order) in {6, 9}
    assert len(order) <= NOW.most_points
    assert finals(searched(NOW, Machine())[1]) == 3


def test_a_step_that_scatter_may_have_ended_is_measured_again() -> None:
    class Slow(Machine):
        """Its first measurement of 4 workers is far too slow."""

        def scatters(self, candidate: Candidate, /) -> float:
            first = (candidate.workers, candidate.repeat, candidate.phase) == (4, 1, SEARCH)
            return 0.51 if first else 1.0

    answer, order = searched(NOW, Slow())
    assert answer.finalists[0][WORKERS] == 16
    assert [one.repeat for one in order if (one.phase, one.workers) == (SEARCH, 4)] == [1, 2]
    once, _ = searched(replace(NOW, again=0), Slow())
    assert once.finalists[0][WORKERS] in {2, 4}


def test_an_order_that_the_text_does_not_decide_is_compared() -> None:
    goal = replace(NOW, order="text", other_order="sorted", padding={})
    answer, order = searched(goal, Machine())
    assert answer.finalists[0]["order"] == "sorted"
    assert [one.params["order"] for one in order if one.phase == SEARCH].count("sorted") in {1, 2}


def falling(workers: int) -> Callable[[Candidate], float | None]:
    """Return an f1 that falls in the finals with this many workers or more."""
    return lambda one: 0.725 if one.phase == FINAL and one.workers >= workers else 0.95


F1 = replace(NOW, objective=Objective(bounds={"f1": Bound(min=0.9)}))


def test_a_constraint_is_judged_on_the_repeats_of_the_finals() -> None:
    run = reporting(Machine(), falling(2))
    answer, order = answered(F1, run)
    records = [record for one in order if one.phase == FINAL and (record := run(one).record)]
    kept = Finals(objective=F1.objective, loop=LOOP, looks=3, records=records)
    assert (len(answer.finalists), kept.kept, kept.winner) == (2, (), kept.plain)
    none, _ = answered(F1, reporting(Machine(), falling(1)))
    assert (none.finalists, "f1 0.725 is under 0.9" in none.why) == ((), True)


def test_a_loop_that_fails_and_settings_that_break_a_constraint_leave_no_answer() -> None:
    class NoLoop(Machine):
        def run(self, candidate: Candidate) -> MeasuredCandidate:
            done = super().run(candidate)
            return MeasuredCandidate(Outcome.BUG, None, 1.0) if candidate.params.get("batch_size") else done

    answer, _ = answered(F1, reporting(NoLoop(), lambda one: 0.95 if one.phase == MEMORY else 0.725))
    assert (answer.finalists, answer.why) == (
        (),
        "neither the plain loop nor another setting keeps the constraints: f1 0.725 is under 0.9",
    )
    alone = replace(F1, objective=Objective(bounds={"f1": Bound(min=0.99)}))
    assert "the plain loop did not succeed" in answered(alone, reporting(NoLoop(), falling(1)))[0].why


@pytest.mark.parametrize(
    ("ran", "goal", "machine"),
    [
        (1, GOAL, Machine(fails={(WORKERS, 1): Outcome.ENVIRONMENT})),
        (12, replace(GOAL, objective=Objective(bounds={"batch_p95": Bound(max=1e-9)})), Machine()),
    ],
)
def test_a_search_that_an_earlier_version_ended_sooner_has_ended(
    ran: int, goal: TuneGoal, machine: Machine
) -> None:
    """It ended at its first failure, and without the plain loop if no setting kept the constraints."""
    _, order = searched(goal, machine)
    done = {one.key: machine.run(one) for one in order[:ran]}
    answer = follow(Search(goal, tried=tuple(order[:ran])).steps(), lambda one: done.get(one.key))
    assert isinstance(answer, TuneAnswer)
    assert answer.finalists == ()


def test_repeats_until_the_speeds_are_known_may_take_more_points() -> None:
    goal = replace(NOW, most_repeats=10, share=0.05)
    assert finals(searched(goal, Machine(noise=0.3))[1]) == 10


# -- shortcuts


def words(order: Sequence[Candidate], *phases: str) -> list[Value | None]:
    """Return the value of the shortcuts of each point of some phases."""
    return [one.params.get(SHORTCUTS) for one in order if one.phase in phases]


def test_all_settings_but_the_plain_loop_have_shortcuts_and_the_best_is_tried_without() -> None:
    answer, order = searched(FAST, Machine())
    assert set(words(order, MEMORY)) == {EXACT}
    *search, last = (one for one in order if one.phase == SEARCH)
    assert set(words(search, SEARCH)) == {EXACT}
    best = next(one for one in search if whole(one.params) == answer.finalists[0])
    assert last.params == {**best.params, SHORTCUTS: OFF}
    assert words(order, FINAL) == [OFF, EXACT, EXACT] * 3
    assert [params[SHORTCUTS] for params in answer.finalists] == [EXACT, EXACT]
    settings_ = {tuple(sorted(whole(one.params).items())) for one in order}
    assert len(settings_) <= FAST.most_settings == GOAL.most_settings + 1
    assert len(order) <= FAST.most_points
    assert FAST.combinations == 2 * GOAL.combinations


def test_a_machine_on_which_shortcuts_are_slower_is_answered_without() -> None:
    answer, _ = searched(FAST, Machine(exact=0.5))
    assert answer.finalists[0][SHORTCUTS] == OFF


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


def test_memory_without_shortcuts_is_that_of_a_search_without() -> None:
    machine = Refusing(bytes_per_load=40_000)
    goal = replace(FAST, memory_bytes=8 * GIB)
    answer, order = searched(goal, machine)
    assert [one.workers for one in order if one.phase == SEARCH][:3] == [2, 4, 6]
    assert answer.limit == "memory"


def test_a_try_that_is_refused_and_runs_out_of_memory_is_repeated_without() -> None:
    class Small(Machine):
        def run(self, candidate: Candidate) -> MeasuredCandidate:
            done = super().run(candidate)
            assert done.record
            if not self.refuses_shortcuts(candidate):
                return done
            failed = replace(done.record, outcome=Outcome.GPU_OOM, summary=None)
            return MeasuredCandidate(Outcome.GPU_OOM, failed, self.start_s)

    answer, order = searched(FAST, Small(refuses=(MEMORY,)))
    assert words(order, MEMORY) == [EXACT, *[OFF] * len(SIZES)]
    assert answer.finalists


def test_a_refusal_is_no_failure_of_its_size() -> None:
    """Only two sizes that fail end a search."""
    machine = Machine(refuses=(MEMORY,), fails={(PADDED_CHARS, 4_000): Outcome.BUG})

    def run(candidate: Candidate) -> MeasuredCandidate:
        return (replace(machine, fails={}) if machine.refuses_shortcuts(candidate) else machine).run(
            candidate
        )

    answer, order = answered(FAST, run)
    assert [one.params[PADDED_CHARS] for one in order if one.phase == MEMORY] == [4_000, *SIZES]
    assert answer.finalists


def test_more_workers_that_are_refused_end_the_doubling_with_that_reason() -> None:
    answer, order = searched(FAST, Machine(refuses=(SEARCH,)))
    assert next(one.workers for one in order if one.phase == SEARCH) == 2
    assert (answer.limit, answer.why) == ("failure", "2 workers ended as ok, without their shortcuts")
    assert {params[WORKERS] for params in answer.finalists} == {1}


@pytest.mark.parametrize("refuses", [(), (MEMORY,), (SEARCH,), (FINAL,)])
@pytest.mark.parametrize("budget_s", [60, 200, 300, 600, 3600])
def test_the_answer_of_a_search_with_shortcuts_that_ended_stays(
    budget_s: int, refuses: tuple[str, ...]
) -> None:
    goal, machine = replace(FAST, budget_s=budget_s, looks=3, most_repeats=9), Machine(refuses=refuses)
    answer, order = searched(goal, machine)
    done = {one.key: machine.run(one) for one in order}
    for factor in (0.0, 3.0):
        copied = {key: replace(one, held_s=max(one.work_s, one.held_s * factor)) for key, one in done.items()}
        assert follow(Search(goal, tried=tuple(order)).steps(), _result_in(copied)) == answer


def test_a_second_finalist_that_is_slower_beyond_doubt_is_not_measured() -> None:
    alone = replace(FAST, sizes=SIZES[1:2], loads=SIZES[1:2], workers=1)
    times = [1.3, 1.5, 1.6, 3.0]
    found = [searched(alone, Machine(exact=exact))[0].finalists for exact in times]
    assert [len(finalists) for finalists in found] == [2, 2, 1, 1]
    assert 1.5 < math.exp(DOUBT) < 1.6
    assert {finalists[0][SHORTCUTS] for finalists in found} == {EXACT}
    by_f1 = replace(alone, objective=Objective(metric="f1", direction="max"))
    answer, _ = answered(
        by_f1, reporting(Machine(), lambda one: 0.9 + 0.05 * (one.params.get(SHORTCUTS) == OFF))
    )
    assert len(answer.finalists) == 2, "another figure may differ less"


def parts(order: Sequence[Candidate]) -> tuple[Value, set[Value]]:
    """Return on which part of the text the plain loop worked, and the finalists."""
    final = [one for one in order if one.phase == FINAL]
    [of_loop] = {one.params.get(EVERY, 1) for one in final if whole(one.params) == FAST.loop}
    return of_loop, {one.params.get(EVERY, 1) for one in final if whole(one.params) != FAST.loop}


@pytest.mark.parametrize(("budget_s", "expected"), [(300, (6, {1})), (500, (2, {1})), (600, (1, {1}))])
def test_the_plain_loop_gets_a_smaller_part_than_the_finalists_if_the_budget_is_short(
    budget_s: int, expected: tuple[Value, set[Value]]
) -> None:
    goal, machine = replace(FAST, budget_s=budget_s), Machine(exact=2.0)
    _, order = searched(goal, machine)
    assert parts(order) == expected
    assert sum(machine.run(one).held_s for one in order) <= budget_s


@pytest.mark.parametrize(("budget_s", "start_s", "workers"), [(100, 5.0, 4), (100, 5.0, 1), (856, 60.0, 1)])
def test_with_hardly_any_time_left_the_finalists_still_get_enough_for_a_speed(
    budget_s: int, start_s: float, workers: int
) -> None:
    goal = replace(FAST, budget_s=budget_s, workers=workers)
    _, order = searched(goal, Machine(start_s=start_s))
    assert parts(order)[1] == {FAST.memory_every}


def test_without_shortcuts_the_loop_and_the_finalists_work_on_the_same_part() -> None:
    _, order = searched(replace(GOAL, budget_s=400), Machine(start_s=10.0))
    final = {one.params.get(EVERY, 1) for one in order if one.phase == FINAL}
    assert len(final) == 1
