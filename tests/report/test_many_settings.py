"""An answer about many settings finds each fact once: its work grows no faster than their number."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.records import Record
from jobkit.report.page import page
from jobkit.report.recommend.advice import recommend
from tests.support.builders import grid, record
from tests.support.recommendations import material, records, write_run

SIZES = 5
FEW_AND_MANY = (30, 120)


def of_settings(number: int, device: str) -> list[Record]:
    """Return records of settings: five batch sizes with each value of another knob."""
    like = [record(point) for point in grid(range(40, 90, 10), device=device)]
    if device == "cuda":
        like = records(repeats=1)
    found = []
    for at in range(number):
        one = like[at % SIZES]
        params = {**one.point.params, "knob": at // SIZES}
        found.append(replace(one, point=replace(one.point, index=at + 1, point_id=f"p{at}", params=params)))
    return found


def calls(work: Callable[[], object]) -> int:
    """Return how many functions of Python are called, or generators resumed: no clock has a part in it."""
    number = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal number
        number += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return number


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_the_work_of_a_recommendation_grows_with_the_settings(device: str) -> None:
    few, many = (material(of_settings(number, device)) for number in FEW_AND_MANY)
    recommend(few)  # imports
    assert calls(lambda: recommend(many)) < 5 * calls(lambda: recommend(few))


@pytest.mark.slow
def test_the_work_of_a_report_grows_with_the_settings(tmp_path: Path) -> None:
    few, many = (write_run(tmp_path / f"{number}", of_settings(number, "cuda")) for number in FEW_AND_MANY)
    page([few])  # imports
    assert calls(lambda: page([many])) < 5 * calls(lambda: page([few]))
