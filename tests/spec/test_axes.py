"""The knobs of a sweep, and how often each setting runs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.errors import JobkitError
from jobkit.core.knobs import Knob
from jobkit.spec.axes import Repeats, axis_faults, most, settings
from jobkit.spec.checks import add_offer_faults
from jobkit.spec.sweep_spec import SweepSpec, load_spec
from jobkit.spec.yaml_files import YamlDocument

values = st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True)


@given(st.dictionaries(st.sampled_from("abc"), values, max_size=3))
def test_the_product_holds_every_combination_once(axes: dict[str, list[int]]) -> None:
    rows = settings(axes, {}, [], [])
    assert len(rows) == math.prod(map(len, axes.values()))
    assert all(row[name] in axes[name] for row in rows for name in axes)


@given(values, values)
def test_zipped_knobs_advance_together_exclude_drops_and_include_adds(
    column: list[int], other: list[int]
) -> None:
    rows = settings({}, {"a": column, "b": column}, [], [])
    assert [(row["a"], row["b"]) for row in rows] == [(value, value) for value in column]
    rows = settings({"a": column, "b": other}, {}, [{"a": 100}], [{"a": column[0]}])
    assert {row["a"] for row in rows} == {*column[1:], 100}
    assert settings({}, {}, [{"a": 1}], []) == ({"a": 1},)


def test_a_word_must_be_offered() -> None:
    known = (Knob(name="precision", words=("fp32", "bf16")),)
    for word, said in (("fp16", ["precision: 'fp16': own:Own offers fp32, bf16"]), ("bf16", [])):
        document = YamlDocument("own.yaml", None, {"precision": word})
        add_offer_faults(document, known, "own:Own")
        assert [fault.what for fault in document.faults] == said


@given(
    st.dictionaries(st.text(), st.none() | st.integers() | st.lists(st.integers() | st.none()) | st.text())
)
def test_raw_yaml_of_any_shape_never_raises(axes: dict[str, object]) -> None:
    for key in ("zip", "include", "exclude"):
        list(axis_faults({**axes, key: axes}, "stanza-ner"))


def loaded(folder: Path, repeats: str) -> SweepSpec:
    path = folder / "spec.yaml"
    path.write_text(f"name: x\nrepeats: {repeats}\n", encoding="utf-8")
    return load_spec(path)


@pytest.mark.parametrize(
    ("given", "said", "planned"),
    [
        ("7", 7, 7),
        ("auto", Repeats(), 10),
        ("{share: 1.5%, most: 8}", Repeats.model_validate({"share": "1.5%", "most": 8}), 8),
        ("{most: 4}", Repeats(least=4, most=4), 4),
    ],
)
def test_repeats_are_a_number_or_end_by_themselves(
    tmp_path: Path, given: str, said: object, planned: int
) -> None:
    spec = loaded(tmp_path, given)
    assert (spec.repeats, most(spec.repeats)) == (said, planned)
    (tmp_path / "sweep.yaml").write_text(spec.as_yaml(), encoding="utf-8")
    assert load_spec(tmp_path / "sweep.yaml") == spec


@pytest.mark.parametrize(
    ("given", "place", "phrase"),
    [
        ("2000000000", "2:10", "should be at most 1,000,000,000"),
        ("{share: 3}", "2:18", "repeats.share: 3: a share is written like 3%"),
        ("{share: 100%}", "2:18", "is between 0% and 100%"),
        ("{least: 20}", "2:18", "repeats.least: 10 repeats at most, and repeats.least is 20"),
        ("{least: 5, most: 4}", "2:27", "repeats.most: 4 repeats at most, and repeats.least is 5"),
        ("{most: 1000000}", "2:10", "1 setting x 1,000,000 would be 1,000,000 points"),
        ("2\ntune: {repeats: {least: 20}}", "3:25", "tune.repeats.least: 10 repeats at most, and tune."),
    ],
)
def test_a_fault_names_the_key(tmp_path: Path, given: str, place: str, phrase: str) -> None:
    with pytest.raises(JobkitError) as caught:
        loaded(tmp_path, given)
    assert any(f":{place}: " in line and phrase in line for line in caught.value.message.splitlines())
