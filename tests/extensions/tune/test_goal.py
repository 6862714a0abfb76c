"""What a search for the fastest setting begins with."""

from __future__ import annotations

import os
from typing import Any

import pytest

from jobkit.answers.loads import Lengths
from jobkit.core.errors import JobkitError
from jobkit.core.knobs import Knob
from jobkit.extensions.tune.goal import Node, largest_node, tuned
from jobkit.schedulers.survey import Nodes, Queue, Survey
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import SweepSpec

BUDGET = (Knob(name="batch_size", grows_load=True), Knob(name="padded_chars", grows_load=True))
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
    assert (goal.order, goal.size_knob, goal.workers) == ("sorted", "padded_chars", 16)
    assert goal.padding["sorted"] > 2 * goal.padding["text"]
    assert len(goal.sizes) == 4
    assert list(goal.sizes) == sorted(goal.sizes)
    assert all(load <= size for size, load in zip(goal.sizes, goal.loads, strict=True))
    assert (goal.search_every, goal.memory_every) == (2, 83)
    assert (changed.work_unit, changed.repeats, changed.sweep.product["workers"]) == (300, 1, [1])
    assert goal.loop == {"order": "text", "batch_size": 300, "workers": 1, "mps": "off"}


def test_a_short_text_is_read_whole_in_smaller_calls() -> None:
    changed, goal = tuned(spec(tune={"repeats": "auto"}), BUDGET, text(881))
    assert (goal.repeats, goal.most_repeats, goal.share) == (7, 10, 0.03)
    assert (goal.search_every, goal.memory_every, changed.work_unit) == (1, 1, 10)


def test_a_workload_without_budgets_or_lengths_gets_batch_sizes() -> None:
    _, goal = tuned(spec(device="cpu", resources={"gpus": 0}), PLAIN, Lengths.unknown(2_000))
    assert (goal.size_knob, goal.sizes, goal.order, goal.padding) == ("batch_size", (1, 3, 7, 15), "text", {})
    assert goal.loop["threads"] == 16
    assert (goal.mps, goal.memory_bytes) == (False, 8 * 2**30)


def test_a_workload_with_shortcuts_is_searched_with_them_and_compared_with_the_loop_without() -> None:
    _, goal = tuned(spec(), iter((*BUDGET, Knob(name="shortcuts", words=("off", "exact")))), text(1_000))
    assert goal.loop["shortcuts"] == "off"
    assert goal.setting(goal.sizes[0], 2)["shortcuts"] == "exact"
    _, without = tuned(spec(), BUDGET, text(1_000))
    assert "shortcuts" not in {*without.loop, *without.setting(without.sizes[0], 2)}


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
def test_the_most_workers_and_what_limits_them(
    keys: dict[str, Any], node: Node | None, workers: int, why: str
) -> None:
    _, goal = tuned(spec(**keys), BUDGET, text(1_000), node=node)
    assert (goal.workers, goal.limited_by) == (workers, why)


def test_a_workload_that_does_not_say_that_it_pads_keeps_the_order_of_the_text() -> None:
    _, goal = tuned(spec(), BUDGET, text(1_000), pads=False)
    assert (goal.order, goal.other_order, goal.padding) == ("text", "sorted", {})
    summed = Lengths(paragraphs=text(1_000).paragraphs, padded=False)
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
