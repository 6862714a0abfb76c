"""What a search begins with, what it measures on models of a machine, what it answers, at what cost."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobkit.answers.loads import Lengths
from jobkit.answers.objective import Bound, Finals, Objective
from jobkit.core.errors import JobkitError
from jobkit.core.knobs import (
    EVERY,
    EXACT,
    OFF,
    ON,
    ORDER,
    PADDED,
    SHORTCUTS,
    WORKERS,
    Knob,
    Value,
)
from jobkit.core.measurements import Metric
from jobkit.core.records import Outcome
from jobkit.core.units import GIB
from jobkit.extensions.tune.goal import TuneGoal, whole
from jobkit.extensions.tune.job import Node, largest_node, tuned
from jobkit.extensions.tune.measured import (
    FINAL,
    MEMORY,
    SEARCH,
    Candidate,
    MeasuredCandidate,
    TuneAnswer,
)
from jobkit.extensions.tune.steps import propose
from jobkit.schedulers.survey import Nodes, Queue, Survey
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import SweepSpec
from tests.support.machines import FAST, GOAL, LOOP, SIZES, Machine

BUDGET = (Knob(name="batch_size", grows_load=True), Knob(name="padded", grows_load=True))
PLAIN = (Knob(name="batch_size", grows_load=True),)


def spec(**keys: Any) -> SweepSpec:
    resources = {"gpus": 1, "cpus": 1, "memory": "8GiB"} | keys.pop("resources", {})
    given = {"name": "t", "scheduler": "slurm", "device": "cuda", "resources": resources}
    return SweepSpec.model_validate(given | keys)


def text(paragraphs: int) -> Lengths:
    """Return the lengths of a text of long and short sentences in turn."""
    return Lengths(paragraphs=tuple((20 + 300 * (n % 3 == 0), 40) for n in range(paragraphs)))


def test_the_text_decides_order_sizes_and_parts() -> None:
    changed, goal = tuned(spec(), BUDGET, text(100_000))
    assert (goal.order, goal.size_knob, goal.workers) == ("sorted", "padded", 16)
    assert goal.padding["sorted"] > 2 * goal.padding["text"]
    assert len(goal.sizes) == 4
    assert list(goal.sizes) == sorted(goal.sizes)
    assert all(load <= size for size, load in zip(goal.sizes, goal.loads, strict=True))
    assert (goal.search_every, goal.memory_every) == (2, 83)
    assert (changed.work_unit, changed.repeats, changed.sweep.product["workers"]) == (300, 1, [1])
    assert goal.loop == {"order": "text", "batch_size": 300, "workers": 1, "mps": "off"}
    _, short = tuned(spec(tune={"budget": "5m"}), BUDGET, text(100_000))
    assert (short.short, short.looks, short.most_repeats, short.search_every) == (True, 1, 9, 5)
    changed, goal = tuned(spec(tune={"repeats": "auto"}), BUDGET, text(881))
    assert (goal.repeats, goal.most_repeats, goal.share) == (7, 10, 0.03)
    assert (goal.search_every, goal.memory_every, changed.work_unit) == (1, 1, 10)


def test_a_workload_without_budgets_or_lengths_gets_batch_sizes() -> None:
    _, goal = tuned(spec(device="cpu", resources={"gpus": 0}), PLAIN, Lengths.unknown(2_000))
    assert (goal.size_knob, goal.sizes, goal.order, goal.padding) == ("batch_size", (1, 3, 7, 15), "text", {})
    assert goal.loop["threads"] == 16
    assert (goal.mps, goal.memory_bytes) == (False, 8 * 2**30)


def test_a_workload_with_shortcuts_is_compared_with_the_loop_without_and_has_its_windows() -> None:
    knobs = (*BUDGET, Knob(name="shortcuts", words=("off", "exact")))
    changed, goal = tuned(spec(), iter(knobs), text(100_000), window=10_000)
    assert (goal.loop["shortcuts"], goal.setting(goal.sizes[0], 2)["shortcuts"]) == ("off", "exact")
    _, without = tuned(spec(), BUDGET, text(1_000))
    assert "shortcuts" not in {*without.loop, *without.setting(without.sizes[0], 2)}
    assert (changed.work_unit, goal.memory_every, goal.search_every) == (10_000, 5, 1)
    assert (len(goal.sizes), goal.sizes[-1]) == (4, 270_000)
    assert (goal.loop["batch_size"], goal.loop["threads"]) == (32, 16)
    assert [goal.setting(4_000, workers)["threads"] for workers in (1, 4)] == [16, 4]
    assert tuned(spec(work_unit=500), knobs, text(100_000), window=10_000)[0].work_unit == 500


SMALL = Node(4, "partition 'cpu'")


@pytest.mark.parametrize(
    ("keys", "node", "workers", "why"),
    [
        ({}, None, 16, "tune.workers: 16 (the default)"),
        ({"tune": {"workers": 12}}, None, 12, "tune.workers: 12"),
        ({"constraints": {"cpus": 8}, "resources": {"cpus": 3}}, None, 2, "constraints.cpus: 8"),
        ({}, SMALL, 4, "the 4 CPUs of the largest node of partition 'cpu'"),
        ({"tune": {"workers": 3}}, SMALL, 3, "tune.workers: 3"),
        ({}, Node(64, "it"), 16, "tune.workers: 16 (the default)"),
    ],
)
def test_the_most_workers_and_what_limits_them(keys: Any, node: Node | None, workers: int, why: str) -> None:
    _, goal = tuned(spec(**keys), BUDGET, text(1_000), node=node)
    assert (goal.workers, goal.limited_by) == (workers, why)


def test_a_workload_that_does_not_say_that_it_pads_keeps_the_order_of_the_text() -> None:
    _, goal = tuned(spec(), BUDGET, text(1_000), pads=False)
    assert (goal.order, goal.other_order, goal.padding) == ("text", "sorted", {})
    summed = Lengths(paragraphs=text(1_000).paragraphs, pads=False)
    assert tuned(spec(), BUDGET, summed)[1].order == "text"
    assert tuned(spec(), BUDGET, text(1_000))[1].other_order == ""


def test_more_workers_than_the_node_has_cpus_for_are_refused_with_the_key() -> None:
    with pytest.raises(JobkitError, match=r"tune\.workers: 8 with resources\.cpus: 1 is more than") as caught:
        tuned(spec(tune={"workers": 8}), BUDGET, text(1_000), node=SMALL)
    assert caught.value.hint == "leave it out, or --set tune.workers=4"


def test_the_largest_node_is_one_that_has_what_the_job_requests() -> None:
    kinds = (
        Nodes(number=2, cpus=64, memory_bytes=2**40, gpus={}),
        Nodes(number=2, cpus=8, memory_bytes=2**40, gpus={"a100": 2}),
    )
    survey = Survey(product="Slurm", queue_noun="partition", queues=(Queue(name="gpu", kinds=kinds),))
    site = load_site("slurm-default", "slurm")
    assert largest_node(survey, spec(), site) == Node(8, "any partition")
    assert largest_node(survey, spec(device="cpu", resources={"gpus": 0}), site) == Node(64, "any partition")
    assert largest_node(Survey(product="Slurm"), spec(), site) is None


def test_here_there_are_no_more_workers_than_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    _, goal = tuned(spec(scheduler="local", tune={"workers": 8}), BUDGET, text(1_000))
    assert (goal.workers, goal.limited_by) == (3, "the 3 CPUs of this machine")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"every": 2}, "every: 2: jobkit tune chooses the part of the text itself"),
        ({"device": "cpu", "constraints": {"gpu_memory": "8GiB"}}, "means nothing with device: cpu"),
        (
            {"resources": {"cpus": 4}, "constraints": {"cpus": 2}},
            "worker, and constraints.cpus: 2 leaves none",
        ),
    ],
)
def test_what_a_search_cannot_keep_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(JobkitError, match=message):
        tuned(spec(**keys), BUDGET, text(1_000))


NOW = replace(GOAL, most_repeats=9, looks=3, again=12)


def searched(goal: TuneGoal, machine: Machine) -> tuple[TuneAnswer, list[Candidate]]:
    """Search to the end; return the answer, and what was measured in order."""
    order: list[Candidate] = []

    def run(candidate: Candidate) -> MeasuredCandidate:
        assert candidate.key not in {one.key for one in order}
        order.append(candidate)
        return machine.run(candidate)

    answer = propose(goal, run)
    assert isinstance(answer, TuneAnswer)
    return answer, order


def read_again(
    goal: TuneGoal, machine: Machine, ran: Sequence[Candidate], factor: float = 1.0
) -> TuneAnswer | Candidate:
    """Return the answer of a search that has ended, from its files, whose times may be off by a factor."""
    done = {one.key: machine.run(one) for one in ran}
    copied = {key: replace(one, held_s=max(one.work_s, one.held_s * factor)) for key, one in done.items()}
    return propose(goal, lambda one: copied.get(one.key), tuple(ran))


def of_phase(order: Sequence[Candidate], *phases: str) -> list[Candidate]:
    return [one for one in order if one.phase in phases]


def loops(order: Sequence[Candidate]) -> int:
    """Return how often the plain loop ran."""
    return sum(one.params == LOOP for one in order)


def bounded(goal: TuneGoal = GOAL, **bounds: Bound) -> TuneGoal:
    return replace(goal, objective=Objective(bounds=bounds))


# -- what is measured


@pytest.mark.parametrize(("goal", "combinations"), [(GOAL, 72), (FAST, 144)])
def test_it_keeps_to_what_it_announced(goal: TuneGoal, combinations: int) -> None:
    _, order = searched(goal, Machine())
    assert len({tuple(sorted(whole(one.params).items())) for one in order}) <= goal.most_settings
    assert goal.combinations == combinations
    assert len(order) <= goal.most_points


@pytest.mark.parametrize("budget_s", [60, 300, 3600])
@pytest.mark.parametrize(
    ("goal", "machine"),
    [
        (GOAL, Machine()),
        *((replace(FAST, looks=3, most_repeats=9), Machine(refuses=phases)) for phases in ((), (SEARCH,))),
        (replace(FAST, short=True, looks=1, most_repeats=6, again=12), Machine()),
        (replace(FAST, short=True, looks=1, most_repeats=6, again=12, fills_gpu=True), Machine()),
    ],
    ids=["without", "with shortcuts", "refused", "short", "short, of an encoder"],
)
def test_an_answer_does_not_depend_on_times_of_files(budget_s: int, goal: TuneGoal, machine: Machine) -> None:
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
    answer, order = searched(goal, machine)
    assert all(machine.run(one).outcome is Outcome.OK for one in order if one.phase != MEMORY)
    assert max(map(machine.speed, answer.finalists)) >= 0.9 * max(map(machine.speed, fits))


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


@pytest.mark.parametrize(
    ("machine", "workers", "limit"),
    [
        (
            Machine(cores=12),
            [16],
            "cores: 16 workers are 12.00 times as fast as 1 (7,200.0 and 600.0 para",
        ),
        (
            Machine(cores=4),
            [16, 8, 4],
            "cores: 8 workers are 1.00 times as fast as 4 (2,400.0 and 2,400.0 para",
        ),
        (Machine(gpu_bytes=12 * GIB), [9], "memory: memory holds 9 workers at padded 4,000"),
        (Machine(fails={(WORKERS, 16): Outcome.GPU_OOM}), [16, 8], "memory: 16 workers ended as gpu_oom"),
    ],
)
def test_a_short_search_begins_with_the_most_workers(
    machine: Machine, workers: list[int], limit: str
) -> None:
    answer, order = searched(replace(FAST, short=True, most_repeats=6, again=12), machine)
    assert list(dict.fromkeys(one.workers for one in of_phase(order, SEARCH))) == workers
    assert f"{answer.limit}: {answer.why}".startswith(limit)
    assert [len(answer.finalists), len(of_phase(order, MEMORY))] == [1, 2]
    assert words(order, SEARCH) == [EXACT] * len(words(order, SEARCH))


def test_a_short_search_uses_the_time_that_is_left_for_repeats() -> None:
    answer, order = searched(replace(FAST, short=True, most_repeats=9), Machine())
    final = [whole(one.params) for one in of_phase(order, FINAL)]
    assert [final.count(dict(row)) for row in (*answer.finalists, FAST.loop)] == [9, 9]
    assert final[1:7] + final[-3:] == [FAST.loop] * 9, "more of it once both ran often"


SHORT = replace(FAST, short=True, most_repeats=6)
ONE_SIZE = replace(FAST, sizes=SIZES[1:2], loads=SIZES[1:2], mps=False)


@pytest.mark.parametrize("goal", [FAST, SHORT, ONE_SIZE], ids=["long", "short", "one finalist"])
def test_a_finalist_that_memory_does_not_hold_gives_way_to_one_with_fewer_workers(goal: TuneGoal) -> None:
    class Fragmented(Machine):
        """Its memory holds 16 workers on the part of the text that the search reads."""

        def run(self, candidate: Candidate) -> MeasuredCandidate:
            done = super().run(candidate)
            full = (candidate.workers, candidate.phase) == (16, FINAL)
            return MeasuredCandidate(Outcome.GPU_OOM, None, self.start_s) if full else done

    answer, order = searched(goal, Fragmented())
    assert read_again(goal, Fragmented(), order) == answer
    assert f"{answer.limit}: {answer.why}" == "memory: 16 workers ended as gpu_oom"
    final = [one.workers for one in of_phase(order, FINAL)]
    assert final.count(16) == (2 if goal is FAST else 1), "each finalist once"
    assert max(one[WORKERS] for one in answer.finalists) in {*final} - {16}
    assert len({one.key for one in order}) == len(order)


@pytest.mark.parametrize(("metric", "workers"), [("f1", 1), ("items_per_s", 4)])
def test_a_short_search_whose_finalists_fail_has_ended(metric: str, workers: int) -> None:
    goal = replace(by(metric, goal=SHORT), fills_gpu=True, workers=workers)
    machine = Reporting(f1=lambda _: 0.9, refuses=(FINAL,))
    answer, order = searched(goal, machine)
    read = read_again(goal, machine, order)
    assert isinstance(read, TuneAnswer)
    assert (read.limit, read.why) == (answer.limit, answer.why)


# -- what ends it


def test_without_a_measurement_of_memory_no_number_of_workers_is_ruled_out() -> None:
    class Blind(Machine):
        def run(self, candidate: Candidate) -> MeasuredCandidate:
            done = super().run(candidate)
            assert done.record
            memory = replace(done.record.memory, context_bytes=None, process_peak_bytes=None)
            return replace(done, record=replace(done.record, needs=(), memory=memory, gpu=None))

    answer, order = searched(GOAL, Blind())
    assert (answer.limit, max(one.workers for one in order)) == ("cores", 16)


def test_a_limit_of_the_memory_is_kept() -> None:
    answer, order = searched(replace(GOAL, memory_bytes=8 * GIB), Machine(bytes_per_load=40_000))
    search = of_phase(order, SEARCH)
    held = [one.workers * (GIB + one.params[PADDED] * 40_000) for one in search]  # type: ignore[operator]
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


def test_two_sizes_that_fail_end_the_search_and_one_does_not() -> None:
    answer, order = searched(GOAL, Machine(fails={(WORKERS, 1): Outcome.ENVIRONMENT}))
    assert (len(order), answer.finalists) == (2, ())
    assert answer.why == "one worker at padded 16,000 ended as environment"
    answer, order = searched(GOAL, Machine(fails={(PADDED, 4_000): Outcome.BUG}))
    assert [one.params[PADDED] for one in of_phase(order, MEMORY)] == [*SIZES]
    assert answer.finalists[0] == GOAL.setting(16_000, 16, mps="auto")


# -- repeats of the finals


@pytest.mark.parametrize(("noise", "repeats"), [(0.0, 3), (0.08, 6), (0.4, 8)])
def test_the_finalists_run_until_their_speeds_are_known(noise: float, repeats: int) -> None:
    goal, machine = replace(GOAL, most_repeats=8, share=0.1), Machine(noise=noise)
    answer, order = searched(goal, machine)
    assert loops(order) == repeats
    assert len(order) <= goal.most_points
    assert read_again(goal, machine, order) == answer
    failing = replace(machine, noise=0.0, fails={(ORDER, "text"): Outcome.BUG})
    assert loops(searched(goal, failing)[1]) == 3, "a plain loop that fails has no speed to wait for"


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


def by(metric: str, direction: str = "max", goal: TuneGoal = GOAL) -> TuneGoal:
    return replace(goal, objective=Objective(metric=metric, direction=direction))


def test_settings_over_a_constraint_are_not_finalists() -> None:
    limit = 1_000 * 500 / Machine().speed(GOAL.setting(16_000, 16, mps=ON)) + 0.01
    answer, _ = searched(bounded(joules_per_1000=Bound(max=limit)), Machine())
    assert [params[PADDED] for params in answer.finalists] == [16_000]


@given(st.permutations(SIZES), st.sampled_from(["max", "min"]))
def test_the_finalists_are_the_best_and_of_equal_ones_the_fastest(order: list[int], direction: str) -> None:
    """The figure depends on the size alone, so all numbers of workers are equal."""
    value = {size: float(order.index(size)) for size in SIZES}
    machine = Reporting(f1=lambda one: value.get(one.params.get(PADDED), 0.0))  # type: ignore[arg-type]
    answer, _ = searched(by("f1", direction), machine)
    assert answer.finalists[0][PADDED] == order[-1 if direction == "max" else 0]
    assert answer.finalists[0][WORKERS] == 16


def test_points_without_the_metric_are_no_finalists() -> None:
    answer, _ = searched(by("f1"), Reporting(f1=lambda one: 0.9 if one.workers == 1 else None))
    assert [params[WORKERS] for params in answer.finalists] == [1, 1]
    answer, order = searched(by("f1"), Machine())
    assert (answer.finalists, {one.phase for one in order}) == ((), {MEMORY})
    assert "no point has the metric 'f1'" in answer.why


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


def test_an_ended_short_search_says_which_constraint_nothing_keeps() -> None:
    goal = bounded(replace(FAST, short=True, budget_s=60, memory_every=1, most_repeats=9), f1=Bound(min=0.9))
    machine = Reporting(items=600, start_s=1.0, f1=lambda _: 0.5)
    answer, order = searched(goal, machine)
    assert parts(order, dict(FAST.loop))[0] != 1, "the plain loop worked on a part"
    assert "f1 0.5 is under 0.9" in answer.why
    assert read_again(goal, machine, order) == answer


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
    assert words(order, FINAL) == [OFF, EXACT, EXACT, EXACT, EXACT, OFF, OFF, EXACT, EXACT]
    assert [params[SHORTCUTS] for params in answer.finalists] == [EXACT, EXACT]
    assert searched(FAST, Machine(exact=0.5))[0].finalists[0][SHORTCUTS] == OFF, "if they are slower"


ENCODER = replace(FAST, fills_gpu=True, loop={**LOOP, "threads": 16, SHORTCUTS: OFF})


def test_a_short_search_of_an_encoder_keeps_time_for_three_repeats() -> None:
    goal = replace(ENCODER, short=True, most_repeats=9, budget_s=90, again=12)
    answer, order = searched(goal, Machine(start_s=5.0))
    final = [whole(one.params) for one in of_phase(order, FINAL)]
    assert [final.count(dict(row)) for row in (*answer.finalists, goal.loop)] == [3, 3]


@pytest.mark.parametrize(
    ("utilisation", "cores", "workers"), [(95, 8, {1}), (60, 1, {1, 2}), (60, 2, {1, 2, 4})]
)
def test_more_workers_than_one_that_fills_the_gpu_are_tried_while_they_help(
    utilisation: float, cores: int, workers: set[int]
) -> None:
    answer, order = searched(ENCODER, Machine(utilisation=utilisation, cores=cores, exact=9.0))
    assert {one.workers for one in order} == workers
    assert {(one.params["threads"], one.params[WORKERS]) for one in of_phase(order, SEARCH)} <= {
        (16, 1),
        (8, 2),
        (4, 4),
    }
    assert set(words(order, MEMORY, SEARCH)) == {EXACT}, "the plain loop alone is measured without"
    assert answer.limit == ("GPU" if utilisation > 90 else "cores")
    assert len(order) <= ENCODER.most_points


class Refusing(Machine):
    """Refuses shortcuts from the second size on."""

    def refuses_shortcuts(self, candidate: Candidate) -> bool:
        return candidate.params.get(SHORTCUTS) == EXACT and candidate.params[PADDED] != SIZES[0]


def test_shortcuts_that_are_refused_are_never_tried_again() -> None:
    answer, order = searched(FAST, Refusing(exact=30.0))
    assert words(order, MEMORY) == [EXACT, EXACT, *[OFF] * len(SIZES)]
    assert set(words(order, SEARCH, FINAL)) == {OFF}
    assert {params[SHORTCUTS] for params in answer.finalists} == {OFF}
    assert answer.limit == "cores"
    answer, order = searched(replace(FAST, memory_bytes=8 * GIB), Refusing(bytes_per_load=40_000))
    assert [one.workers for one in of_phase(order, SEARCH)][:3] == [2, 4, 6], "by the memory without them"
    assert answer.limit == "memory"


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
def test_the_plain_loop_gets_the_smaller_part(budget_s: int, expected: tuple[Value, set[Value]]) -> None:
    machine = Machine(exact=2.0)
    _, order = searched(replace(FAST, budget_s=budget_s), machine)
    assert parts(order, dict(FAST.loop)) == expected
    assert sum(machine.run(one).held_s for one in order) <= budget_s


def test_the_plain_loop_of_a_short_search_gets_a_batch_if_there_is_time() -> None:
    goal = replace(FAST, short=True, budget_s=60, memory_every=1, most_repeats=9)
    _, order = searched(goal, Machine(items=600, start_s=1.0))
    assert parts(order, dict(FAST.loop))[0] == 600 // 300


@pytest.mark.parametrize(("budget_s", "start_s", "workers"), [(100, 5.0, 4), (856, 60.0, 1)])
def test_with_hardly_any_time_finalists_get_a_speed(budget_s: int, start_s: float, workers: int) -> None:
    _, order = searched(replace(FAST, budget_s=budget_s, workers=workers), Machine(start_s=start_s))
    assert parts(order, dict(FAST.loop))[1] == {FAST.memory_every}
