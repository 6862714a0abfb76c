from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobkit.setup.check_node import MACHINE, NodeRequest, check_node, cores, inputs, programs, scratch
from jobkit.setup.facts import PROGRAMS, Facts
from jobkit.setup.findings import Status

GIB = 2**30
WANTED = NodeRequest(
    device="cpu",
    workload="count",
    gpus=0,
    scratch_bytes=GIB,
    seen=("/home/ada/cache", "/home/ada/text.txt"),
    python="python",
    on_node=True,
    jobkit="0.1.0",
)
SAID = {
    **{f"program.{name}": f"/usr/bin/{name}" for name in PROGRAMS},
    "scratch": "/scratch",
    "scratch.free": str(5 * GIB),
    "uid": "1000",
    "scratch.owner": "0",
    "scratch.mode": "drwxrwxrwt",
    "scratch.locks": "yes",
    "seen.0": "yes",
    "seen.1": "yes",
}


def facts(said: dict[str, str] | None = None, **python: Any) -> Facts:
    return Facts(said=SAID | (said or {}), python=python)


def test_a_node_with_all_that_a_point_needs() -> None:
    found = list(check_node(facts(cpus=8), WANTED, MACHINE))

    assert [one.name for one in found] == ["programs", "scratch", "inputs", "CPUs"]
    assert {one.status for one in found} == {Status.OK}
    assert found[1].said == "/scratch has 5.00 GiB free"


def test_a_program_that_is_absent_is_missing_on_a_node_only() -> None:
    without = facts({"program.rsync": ""})
    on_node, here = programs(without, WANTED), programs(without, replace(WANTED, on_node=False))

    assert programs(without, replace(WANTED, rsync=False)).status is Status.OK
    assert (on_node.status, here.status) == (Status.MISSING, Status.WARNING)
    assert "not on PATH: rsync" in on_node.said
    assert "setup" in on_node.mend


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        ({"scratch.owner": "1000", "scratch.mode": "drwxr-xr-x"}, Status.OK, "5.00 GiB free"),
        ({"scratch.owner": "1001"}, Status.MISSING, "belongs to user 1001"),
        ({"scratch.mode": "drwxrwxrwx"}, Status.WARNING, "no sticky bit"),
        ({"scratch.locks": ""}, Status.WARNING, "its own copy of the inputs"),
    ],
)
def test_scratch_that_others_share(said: dict[str, str], status: Status, words: str) -> None:
    found = scratch(facts(said), WANTED)
    assert found.status is status
    assert words in found.said


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"scratch.free": str(GIB - 1)}, "a point needs 1.00 GiB"),
        ({"scratch.free": ""}, "no folder could be made in scratch (nothing)"),
    ],
)
def test_scratch_without_room_or_without_a_folder(said: dict[str, str], words: str) -> None:
    found = scratch(facts(said), WANTED)

    assert found.status is Status.MISSING
    assert words in found.said
    assert found.mend == "change `scratch` in the site file"


def test_a_scratch_that_cannot_be_made_is_named() -> None:
    found = scratch(Facts(said={"scratch.error": "/disk/scratch/ada"}), WANTED)

    assert "(/disk/scratch/ada)" in found.said


def test_what_a_node_cannot_read_is_named() -> None:
    found = inputs(facts({"seen.1": "no"}), WANTED)

    assert found is not None
    assert found.status is Status.MISSING
    assert found.said == "it cannot read /home/ada/text.txt"
    assert "JOBKIT_CACHE" in found.mend


def test_what_there_is_nothing_to_say_of() -> None:
    assert inputs(facts(), replace(WANTED, seen=())) is None
    assert cores(facts(), WANTED) is None
    assert cores(facts(cpus=2), replace(WANTED, on_node=False)) is None
