from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobkit.schedulers.survey import Nodes, Queue, asked_for
from tests.support.surveys import REQUEST

GIB = 2**30
MIXED = (
    Nodes(number=3, cpus=64, memory_bytes=32 * GIB, gpus={}),
    Nodes(number=1, cpus=8, memory_bytes=256 * GIB, gpus={"v100": 2}),
    Nodes(names="n9, n10", cpus=4, gpus={}),
)
KNOWN = (
    Queue(name="cpu", default=True, walltime_s=3600),
    Queue(name="gpu", walltime_s=7200, gpus={"v100": 2}),
    Queue(name="gpu-big", gpus={"v100": 1, "a100": 4}),
    Queue(name="mixed", gpus={"v100": 2}, kinds=MIXED),
)


@pytest.mark.parametrize(
    ("names", "found", "unknown"),
    [
        (None, ["cpu"], ""),
        ("gpu,cpu", ["cpu", "gpu"], ""),
        ("gpu*", ["gpu", "gpu-big"], ""),
        ("gpu@node7", ["gpu"], ""),
        ("@nodes", ["cpu", "gpu", "gpu-big", "mixed"], ""),
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


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"queue": "gqu", "gpus": 1}, "the cluster has no partition 'gqu'"),
        ({"walltime_s": 3600}, ""),
        ({"walltime_s": 3601}, "walltime 01:00:01 is longer than partition 'cpu' allows (MaxTime): at most"),
        ({"queue": "cpu,gpu", "walltime_s": 7200}, ""),
        ({"gpus": 1}, "partition 'cpu' has no GPUs; requested: 1 (change resources.gpus or the queue)"),
        ({"gpus": 4, "queue": "gpu*", "gpu_type": "a100"}, ""),
        ({"gpus": 3, "queue": "gpu"}, "at most 2 GPUs a node; requested: 3"),
        ({"gpus": 1, "queue": "gpu", "gpu_type": "a100"}, "no GPU type in partition 'gpu' 'a100'"),
        ({"queue": "gpu", "cpus": 10**6}, ""),
        ({"queue": "mixed", "cpus": 4, "memory_bytes": 256 * GIB, "gpus": 2, "gpu_type": "v100"}, ""),
        ({"queue": "mixed", "cpus": 65}, "no node with 65 CPUs: 3 nodes have 64 CPUs"),
        ({"queue": "mixed", "cpus": 16, "gpus": 1}, "no node with 16 CPUs and 1 GPU: "),
        ({"queue": "mixed", "cpus": 65, "gpus": 3}, "at most 2 GPUs a node; requested: 3"),
    ],
)
def test_what_queues_do_not_have_is_named_once(changes: dict[str, Any], words: str) -> None:
    request = replace(REQUEST, **changes)
    asked = asked_for(request.queue, KNOWN, "partition")
    faults = asked.walltime_fault(request, "MaxTime"), asked.gpu_fault(request), asked.node_fault(request)
    said = [str(fault) for fault in (asked.unknown, *faults) if fault]
    assert len(said) == bool(words)
    assert words in "".join(said)


def test_queues_that_never_start_a_job_are_named_if_others_do() -> None:
    """Else none is, or a refusal says it; that one is named is in test_slurm.py."""
    known = [Queue(name="short", walltime_s=1800.0), Queue(name="long", walltime_s=86400.0)]
    for queue, minutes in (("short,long", 6), ("short", 120), ("short,long", 6000)):
        request = replace(REQUEST, queue=queue, walltime_s=60 * minutes)
        assert not asked_for(queue, known, "partition").never(request)
