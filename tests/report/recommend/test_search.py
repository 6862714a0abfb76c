"""The one answer of a run of ``jobkit tune``, or why there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.answers.objective import Bound, Objective
from jobkit.core.errors import JobkitError
from jobkit.core.units import GIB
from jobkit.report.recommend.advice import recommend
from jobkit.report.recommend.material import read_material
from jobkit.spec.sweep_spec import Resources
from tests.support.machines import GOAL, Machine, search


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return search(tmp_path_factory.mktemp("search"), Machine())


def test_a_search_under_way_and_one_without_a_setting_have_no_recommendation(tmp_path: Path) -> None:
    with pytest.raises(JobkitError, match="the search has not ended"):
        recommend(read_material(search(tmp_path, Machine(), most=5)))
    none = replace(GOAL, objective=Objective(bounds={"batch_p95": Bound(max=1e-9)}))
    with pytest.raises(JobkitError, match="the search found no setting"):
        recommend(read_material(search(tmp_path / "none", Machine(), none)))


def test_a_setting_of_a_search_is_charged_with_its_own_memory_only(run: Path) -> None:
    material = read_material(run)
    assert material.search
    held = [replace(one, accounted_rss_bytes=64 * GIB) for one in material.records]
    advice = recommend(replace(material, records=held, resources=Resources())).request
    assert advice
    assert advice.used_memory_bytes is None, "the records of its answer have no RAM"


def test_finals_that_differ_have_no_largest_batch_for_the_reason_of_their_memory(run: Path) -> None:
    material = read_material(run)
    assert material.search
    *_, last = material.search.finals.winner_records
    other = replace(last, versions={**last.versions, "torch": "0.1"})
    told = [other if record == last else record for record in material.records]
    largest = recommend(replace(material, records=told)).memory.largest
    assert largest.reason.startswith("the points differ in version of torch: ")
