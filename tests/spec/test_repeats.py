from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.spec.axes import Repeats, most
from jobkit.spec.sweep_spec import SweepSpec, load_spec


def loaded(folder: Path, repeats: str) -> SweepSpec:
    path = folder / "spec.yaml"
    path.write_text(f"name: x\nrepeats: {repeats}\n", encoding="utf-8")
    return load_spec(path)


@pytest.mark.parametrize(
    ("given", "told", "planned"),
    [
        ("7", 7, 7),
        ("auto", Repeats(), 10),
        ("{share: 1.5%, most: 8}", Repeats.model_validate({"share": "1.5%", "most": 8}), 8),
        ("{most: 4}", Repeats(least=4, most=4), 4),
    ],
)
def test_repeats_are_a_number_or_end_by_themselves(
    tmp_path: Path, given: str, told: object, planned: int
) -> None:
    spec = loaded(tmp_path, given)
    assert spec.repeats == told
    assert most(spec.repeats) == planned
    (tmp_path / "sweep.yaml").write_text(spec.as_yaml(), encoding="utf-8")
    assert load_spec(tmp_path / "sweep.yaml") == spec


def test_auto_is_its_defaults_written_out() -> None:
    written = SweepSpec.model_validate({"name": "x", "repeats": "auto"}).model_dump(mode="json")
    assert written["repeats"] == {"share": "3%", "least": 7, "most": 10}
    assert SweepSpec.model_validate({"name": "x", "repeats": Repeats()}).repeats == Repeats()


@pytest.mark.parametrize(
    ("given", "place", "phrase"),
    [
        ("0", "2:10", "repeats: 0: should be greater than 0"),
        ("2000000000", "2:10", "should be at most 1,000,000,000"),
        ("true", "2:10", "should be a whole number above 0, auto, or a mapping"),
        ("some", "2:10", "should be a whole number above 0, auto, or a mapping"),
        ("{share: 3}", "2:18", "repeats.share: 3: a share is written like 3%"),
        ("{share: x%}", "2:18", "repeats.share: 'x%': a share is written like 3%"),
        ("{share: 100%}", "2:18", "is between 0% and 100%"),
        ("{least: 1}", "2:18", "repeats.least: 1: should be greater than or equal to 2"),
        ("{least: 20}", "2:18", "repeats.least: 10 repeats at most, and repeats.least is 20"),
        ("{least: 5, most: 4}", "2:27", "repeats.most: 4 repeats at most, and repeats.least is 5"),
        ("{lest: 3}", "2:11", "repeats.lest: no such key; did you mean 'least'?"),
        ("{most: many}", "2:17", "repeats.most: 'many': should be a valid integer"),
        ("{most: 1000000}", "2:10", "1 setting x 1,000,000 would be 1,000,000 points"),
    ],
)
def test_a_fault_names_the_key(tmp_path: Path, given: str, place: str, phrase: str) -> None:
    with pytest.raises(JobkitError) as caught:
        loaded(tmp_path, given)
    assert any(f":{place}: " in line and phrase in line for line in caught.value.message.splitlines())


def test_those_of_the_finalists_of_a_search_too(tmp_path: Path) -> None:
    with pytest.raises(
        JobkitError, match=r"tune\.repeats\.least: 10 repeats at most, and tune\.repeats\.least is 20"
    ):
        loaded(tmp_path, "2\ntune: {repeats: {least: 20}}")
    assert loaded(tmp_path, "2\ntune: {repeats: auto}").tune.repeats == Repeats()
