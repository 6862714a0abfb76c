from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.errors import JobkitError
from jobkit.core.records import Point, TextRef
from jobkit.planning.points import Inputs, plan
from jobkit.spec.sweep_spec import SweepSpec

TEXT = TextRef(path="/t", sha256="0" * 64, size_bytes=1, name="sample")


def planned(*, device: str = "cpu", **changes: object) -> tuple[Point, ...]:
    spec = SweepSpec.model_validate({"name": "x", **changes})
    return plan(spec, Inputs(run_id="x-1", text=TEXT, model=None, device=device))


columns = st.dictionaries(
    st.sampled_from(["batch_size", "tokenizer_batch"]),
    st.lists(st.integers(1, 50), min_size=1, max_size=4, unique=True),
)


@given(columns, st.integers(1, 3))
def test_points_are_counted_named_and_ordered(axes: dict[str, list[int]], repeats: int) -> None:
    points = planned(sweep=axes, repeats=repeats)
    assert [point.index for point in points] == list(range(1, len(points) + 1))
    assert len(points) == repeats * math.prod(map(len, axes.values()))
    assert len({point.point_id for point in points}) == len(points)
    order = [(point.repeat, math.prod(point.params.values())) for point in points]
    assert order == sorted(order)


def test_each_repeat_runs_every_setting_in_ascending_load() -> None:
    points = planned(sweep={"batch_size": [50, 10]}, repeats=2)
    assert [point.point_id for point in points] == [
        "batch_size-10-r1",
        "batch_size-50-r1",
        "batch_size-10-r2",
        "batch_size-50-r2",
    ]


def test_the_allocator_is_a_matter_of_cuda_and_of_the_spec() -> None:
    assert planned()[0].allocator is None
    assert planned(device="cuda")[0].allocator == "expandable_segments:True"
    own = {"variables": {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}}
    assert planned(device="cuda", environment=own)[0].allocator == "max_split_size_mb:64"
    default = {"variables": {"PYTORCH_ALLOC_CONF": ""}}
    assert planned(device="cuda", environment=default)[0].allocator is None


def test_a_sweep_that_excludes_everything_is_refused() -> None:
    with pytest.raises(JobkitError, match="leaves no point"):
        planned(sweep={"batch_size": [1], "exclude": [{"batch_size": 1}]})


def test_sizes_still_to_be_chosen_are_no_points() -> None:
    with pytest.raises(JobkitError, match=r"sweep\.batch_size: 'auto' is decided from the text") as caught:
        plan(SweepSpec.model_validate({"name": "t", "sweep": {"batch_size": "auto"}}))
    assert caught.value.hint == "jobkit.prepare reads it and decides"
