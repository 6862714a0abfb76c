from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobkit.schedulers.survey import Nodes, Queue, asked_for
from tests.support.surveys import REQUEST

KNOWN = (
    Queue(name="cpu", default=True, walltime_s=3600),
    Queue(name="gpu", walltime_s=7200, gpus={"v100": 2}),
    Queue(name="gpu-big", gpus={"v100": 1, "a100": 4}),
)


@pytest.mark.parametrize(
    ("names", "found", "unknown"),
    [
        (None, ["cpu"], ""),
        ("gpu,cpu", ["cpu", "gpu"], ""),
        ("gpu*", ["gpu", "gpu-big"], ""),
        ("gpu@node7", ["gpu"], ""),
        ("@nodes", ["cpu", "gpu", "gpu-big"], ""),
        ("gpu,gqu", ["gpu"], "gqu"),
    ],
)
def test_the_queues_that_are_asked_for(names: str | None, found: list[str], unknown: str) -> None:
    asked = asked_for(names, KNOWN, "queue")

    assert [queue.name for queue in asked.queues] == found
    assert (f"{unknown!r}" in str(asked.unknown)) if unknown else asked.unknown is None
    assert asked.where == f"queue {names or 'cpu'!r}"


def test_where_there_is_no_default_any_will_do() -> None:
    asked = asked_for(None, KNOWN[1:], "queue")
    assert (asked.queues, asked.where) == (KNOWN[1:], "any queue")
    nothing = asked_for(None, (), "partition")
    assert (nothing.queues, nothing.unknown) == ((), None)
    assert str(asked_for("gqu", KNOWN, "partition").unknown) == (
        "the cluster has no partition 'gqu' (it has: cpu, gpu, gpu-big); "
        "did you mean 'gpu'? (change the queue)"
    )


LONGER = "is longer than partition 'cpu' allows (MaxTime): at most 01:00:00 (change"


@pytest.mark.parametrize(
    ("queue", "changes", "fault"),
    [
        ("cpu", {"walltime_s": 3600}, ""),
        ("cpu", {"walltime_s": 3601}, f"walltime 01:00:01 {LONGER} resources.walltime or the queue)"),
        (
            "cpu",
            {"walltime_s": 7200, "pack": 4},
            f"walltime 02:00:00 (4 points a job, 00:30:00 each) {LONGER} pack, resources.walltime or",
        ),
        ("cpu,gpu", {"walltime_s": 7200}, ""),
        ("gpu-big", {"walltime_s": 10**8}, ""),
    ],
)
def test_walltimes(queue: str, changes: dict[str, Any], fault: str) -> None:
    said = asked_for(queue, KNOWN, "partition").walltime_fault(replace(REQUEST, **changes), "MaxTime")
    assert (said is None) == (not fault)
    assert fault in str(said)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"gpus": 0}, None),
        ({"gpus": 4, "queue": "gpu*", "gpu_type": "a100"}, None),
        ({"gpus": 1}, "partition 'cpu' has no GPUs; requested: 1 (change resources.gpus or the queue)"),
        ({"gpus": 3, "queue": "gpu"}, "at most 2 GPUs a node; requested: 3"),
        ({"gpus": 1, "queue": "gpu", "gpu_type": "a100"}, "no GPU type in partition 'gpu' 'a100'"),
        ({"gpus": 1, "queue": "none"}, None),
    ],
)
def test_gpus(changes: dict[str, Any], fault: str | None) -> None:
    request = replace(REQUEST, **changes)
    said = asked_for(request.queue, KNOWN, "partition").gpu_fault(request)

    assert (said is None) == (fault is None)
    assert (fault or "") in str(said)


MIXED = Queue(
    name="mixed",
    gpus={"v100": 2},
    kinds=(
        Nodes(number=3, cpus=64, memory_bytes=32 * 2**30, gpus={}),
        Nodes(number=1, cpus=8, memory_bytes=256 * 2**30, gpus={"v100": 2}),
        Nodes(names="n9, n10", cpus=4, gpus={}),
    ),
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cpus": 4, "memory_bytes": 256 * 2**30, "gpus": 2, "gpu_type": "v100"}, None),
        (
            {"cpus": 65, "memory_bytes": 2 * 2**30},
            "no node with 65 CPUs: 3 nodes have 64 CPUs, 32.00 GiB; 1 node has 8 CPUs, 256.00 GiB, 2 x v100;",
        ),
        ({"cpus": 16, "gpus": 1}, "no node with 16 CPUs and 1 GPU: "),
        ({"cpus": 16, "gpus": 1, "gpu_type": "v100"}, "no node with 16 CPUs and 1 v100 GPU: "),
        ({"cpus": 65, "gpus": 3}, None),
        ({"cpus": 10**6, "queue": "unknown"}, None),
    ],
)
def test_what_no_node_has_together(changes: dict[str, Any], words: str | None) -> None:
    request = replace(REQUEST, **{"queue": "mixed", **changes})
    fault = asked_for(request.queue, [MIXED, Queue(name="unknown")], "queue").node_fault(request)

    assert (fault is None) if words is None else (words in str(fault))


def test_not_every_kind_of_node_is_listed() -> None:
    queue = Queue(name="many", kinds=tuple(Nodes(number=1, names=f"n{k}", cpus=k) for k in range(1, 20)))

    fault = asked_for("many", [queue], "queue").node_fault(replace(REQUEST, cpus=99))

    assert fault is not None
    assert fault.said.endswith("n8 has 8 CPUs; ...")


SHORT = "not in every queue: walltime 02:00:00 is longer than short allows: at most 00:30:00"


@pytest.mark.parametrize(
    ("queue", "walltime_s", "said"),
    [
        ("short,long", 7200, SHORT),
        ("short,long", 600, ""),
        ("short", 7200, ""),  # a refusal says it
        ("short,long", 10**6, ""),  # the same
    ],
)
def test_queues_that_never_start_a_job_are_named_if_others_do(queue: str, walltime_s: int, said: str) -> None:
    known = [Queue(name="short", walltime_s=1800.0), Queue(name="long", walltime_s=86400.0)]
    asked = asked_for(queue, known, "partition")
    assert asked.never(replace(REQUEST, queue=queue, walltime_s=walltime_s, gpus=0)) == said
