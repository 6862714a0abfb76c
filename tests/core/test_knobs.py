from __future__ import annotations

from dataclasses import asdict, replace

from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.json_codec import from_json, to_json
from jobkit.core.knobs import RUN_KNOBS, Knob, Value, declared, from_fields, sort_key
from jobkit.core.records import Point
from tests.support.builders import point

settings = st.dictionaries(st.sampled_from("abc"), st.integers(1) | st.sampled_from(["x", "load"]))


def test_a_name_alone_declares_whole_numbers() -> None:
    mode = Knob(name="mode", words=("slow", "fast"), devices=("cuda",))
    batch, other, same = declared(("batch_size", "width", mode))
    assert (batch.grows_load, other.grows_load, same) == (True, False, mode)
    assert (batch.expected, mode.expected) == ("a whole number above 0", "one of slow, fast")


def test_a_knob_passes_through_json_and_a_word_may_mean_something_on_a_gpu_only() -> None:
    pinned = Knob(name="pinned", words=("off", "on"), cuda_words=("on",))
    assert (pinned.devices_of("off"), pinned.devices_of("on")) == (("cpu", "cuda"), ("cuda",))
    for knob in (*RUN_KNOBS, pinned):
        listed = {
            name: list(value) if isinstance(value, tuple) else value for name, value in asdict(knob).items()
        }
        assert from_fields(listed) == knob


def test_numbers_come_first_then_fp32_and_off_and_no_value_last() -> None:
    assert sorted(["tf32", "bf16", "fp32", "fp16"], key=sort_key) == ["fp32", "bf16", "fp16", "tf32"]
    values = [None, "refused", "exact", "off", 7]
    assert sorted(values, key=sort_key) == [7, "off", "exact", "refused", None]


def test_a_point_at_another_setting_has_its_words() -> None:
    words: dict[str, Value] = {"shortcuts": "exact", "precision": "bf16", "workers": 3}
    moved = point(1).at(words)
    assert (moved.shortcuts, moved.precision, moved.workers) == ("exact", "bf16", 3)
    numbered = replace(point(1), shortcuts="off").at({"shortcuts": 7})
    assert (numbered.shortcuts, numbered.params) == ("off", {"shortcuts": 7}), "a knob of the user's own"


@given(settings)
def test_a_point_keeps_numbers_and_words(params: dict[str, int | str]) -> None:
    read = from_json(Point, to_json(replace(point(1), params=params)), where="x")
    assert read.params == params
    assert read.numbers == {name: value for name, value in params.items() if not isinstance(value, str)}
