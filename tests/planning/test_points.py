from __future__ import annotations

from typing import Any

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.records import Point, TextRef
from jobkit.planning.points import Inputs, group_points, plan
from jobkit.spec.site import Site
from jobkit.spec.sweep_spec import SweepSpec

TEXT = TextRef(path="/t", sha256="0" * 64, size_bytes=1, name="sample")


def planned(*, device: str = "cpu", **changes: object) -> tuple[Point, ...]:
    spec = SweepSpec.model_validate({"name": "x", **changes})
    return plan(spec, Inputs(run_id="x-1", text=TEXT, model=None, device=device))


def test_points_stand_in_ascending_need_of_device_memory() -> None:
    names = [point.point_id for point in planned(sweep={"batch_size": [50, 10]}, repeats=2)]
    assert names == [f"batch_size-{size}-r{repeat}" for repeat in (1, 2) for size in (10, 50)]
    sweep = {"workers": [16, 1], "batch_size": [32, 1], "order": ["text", "load"]}
    points = planned(sweep=sweep, repeats=1)
    assert [point.index for point in points] == [*range(1, 9)]
    need = [(point.workers, point.numbers["batch_size"]) for point in points[::2]]
    assert need == [(1, 1), (1, 32), (16, 1), (16, 32)], "sixteen contexts are more than a batch of 32"
    assert [point.order for point in points[:2]] == ["text", "load"], "words keep their order"
    halved = planned(sweep={"batch_size": [1000, 600], "precision": ["fp32", "bf16"]}, repeats=1)
    of_16_bits = [(point.numbers["batch_size"], point.precision) for point in halved[:2]]
    assert of_16_bits == [(600, "bf16"), (1000, "bf16")], "a load of 16 bits needs half"


@pytest.mark.parametrize(
    ("key", "usual", "other"), [("precision", "fp32", "bf16"), ("shortcuts", "off", "exact")]
)
def test_a_point_knows_its_precision_and_shortcuts_by_the_knob_or_by_the_key(
    key: str, usual: str, other: str
) -> None:
    assert [getattr(planned(repeats=1, **keys)[0], key) for keys in ({}, {key: other})] == [usual, other]
    assert planned(repeats=1, **{key: other})[0].params == {}
    swept = planned(repeats=1, sweep={key: [other, usual]})
    assert [(point.params, getattr(point, key)) for point in swept] == [
        ({key: word}, word) for word in (other, usual)
    ]
    rows = {"include": [{"batch_size": 1}, {"batch_size": 1, key: usual}]}
    filled = planned(sweep=rows, repeats=1, **{key: other})
    assert {(point.params[key], getattr(point, key)) for point in filled} == {(other,) * 2, (usual,) * 2}
    none: dict[str, Any] = {"precision": None, "shortcuts": None}
    (point,) = planned(sweep={key: [16]}, repeats=1, workload="own:Own", **none)
    assert (point.params, getattr(point, key)) == ({key: 16}, None), "numbers are none of jobkit's"


def test_a_knob_overrides_the_key_of_the_same_name() -> None:
    keys = {"workers": 2, "threads": 3, "gpus": 2, "order": "text", "mps": "auto"}
    keys["resources"] = {"gpus": 1, "cpus": 4}
    (point,) = planned(device="cuda", repeats=1, **keys)
    assert (point.workers, point.threads, point.gpus, point.order) == (2, 3, 2, "text")
    assert point.mps == "auto"
    sweep = {"workers": 5, "threads": 6, "gpus": 4, "order": "load", "mps": "on"}
    (point,) = planned(device="cuda", repeats=1, sweep=sweep, **keys)
    assert (point.workers, point.threads, point.gpus, point.order) == (5, 6, 4, "load")
    assert point.mps == "on"
    (point,) = planned(repeats=1, mps="on", resources={"gpus": 0, "cpus": 4})
    assert (point.workers, point.threads, point.gpus, point.mps) == (1, 4, 1, "off"), "on a CPU"


def test_every_setting_names_the_knobs_of_jobkit_that_one_names() -> None:
    """So all of them are rows of one table."""
    rows = [{"batch_size": 5}, {"batch_size": 5, "workers": 2, "order": "text"}]
    points = planned(sweep={"include": rows}, repeats=1)
    assert [point.params for point in points] == [
        {"batch_size": 5, "workers": 1, "order": "load"},
        {"batch_size": 5, "workers": 2, "order": "text"},
    ]


HEADER = {"cpus": "-pe smp {cpus}", "memory": "-l mem={memory}", "walltime": "-l t={walltime}"}
SITE = Site.model_validate({"name": "s", "scheduler": "sge", "memory_per": "slot", "requests": HEADER})


def test_points_with_the_same_request_form_a_group() -> None:
    sweep, resources = {"workers": [1, 4], "threads": [1, 3]}, {"gpus": 0, "cpus": 2, "memory": "8GiB"}
    spec = SweepSpec.model_validate({"name": "x", "repeats": 2, "sweep": sweep, "resources": resources})
    points = plan(spec, Inputs(run_id="x-1", text=TEXT, model=None, device="cpu"))
    groups = group_points(spec, SITE, points)
    cpus = {group.request.cpus: group.points for group in groups}
    assert cpus == {2: (1, 5), 3: (2, 6), 8: (3, 7), 12: (4, 8)}, "at least a CPU for each thread"
    memory = {3: "2731M", 8: "1G", 12: "683M"}
    options = [(f"-pe smp {cpus}", f"-l mem={share}") for cpus, share in memory.items()]
    assert [group.options for group in groups] == [(), *options]
    assert {group.request.memory_bytes for group in groups} == {8 * 2**30}


def test_the_allocator_is_a_matter_of_cuda_and_of_the_spec() -> None:
    assert planned()[0].allocator is None
    assert planned(device="cuda")[0].allocator == "expandable_segments:True"
    own = {"variables": {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}}
    assert planned(device="cuda", environment=own)[0].allocator == "max_split_size_mb:64"
    default = {"variables": {"PYTORCH_ALLOC_CONF": ""}}
    assert planned(device="cuda", environment=default)[0].allocator is None


@pytest.mark.fault
def test_a_sweep_that_excludes_everything_is_refused() -> None:
    """FAULT: the spec leaves no point to run.

    HOW: real: an `exclude` that removes all points.
    REPORTED: that `exclude` leaves no point.
    LOST: nothing.
    """
    with pytest.raises(JobkitError, match="leaves no point"):
        planned(sweep={"batch_size": [1], "exclude": [{"batch_size": 1}]})
