from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.knobs import FP32
from jobkit.core.layout import ENTITIES_FILE
from jobkit.core.records import Outcome
from jobkit.runs.agreement import Agreement, agreements
from jobkit.runs.results import read_run
from jobkit.worker.workloads.base import Entity
from tests.support.builders import of_precision as of
from tests.support.builders import record, try_folder, write_record
from tests.support.builders import write_tagged as write_run

BATH, YORK, NAME = (
    Entity(0, "Bath", "PLACE", 0, 4),
    Entity(1, "York", "PLACE", 9, 13),
    Entity(2, 'Ann\t"Nancy"\nBell', "PERSON", 0, 16),
)


def test_an_entity_of_one_and_one_of_the_other_are_two_that_differ(tmp_path: Path) -> None:
    other = BATH._replace(label="PERSON")
    run = write_run(
        tmp_path / "run", [(of(1, "bf16"), [other, YORK, NAME]), (of(2, FP32), [BATH, YORK, NAME])]
    )
    assert agreements(read_run(run).points) == {1: Agreement(3, 2, 4 / 6), 2: Agreement(3, 0, 1)}


def test_the_same_batch_is_the_reference_or_else_the_first_fp32_and_nothing_is_compared_with_nothing(
    tmp_path: Path,
) -> None:
    points = [of(1, FP32, 50), of(2, "fp16", 50), of(3, FP32, 100), of(4, "fp16", 100), of(5, "fp16", 200)]
    found = [[BATH], [BATH], list[Entity](), [], [BATH]]
    run = write_run(tmp_path / "run", zip(points, found, strict=True))
    by_index = agreements(read_run(run).points)
    assert {index: agreement.differ for index, agreement in by_index.items()} == {1: 0, 2: 0, 5: 0}


def test_repeats_of_fp32_are_compared_with_the_first(tmp_path: Path) -> None:
    points = [of(1, FP32), of(2, "bf16"), of(3, FP32, repeat=2)]
    run = write_run(tmp_path / "run", zip(points, [[BATH], [BATH], [YORK]], strict=True))
    assert [agreement.differ for agreement in agreements(read_run(run).points).values()] == [0, 0, 2]


@pytest.mark.parametrize("precisions", [(FP32, FP32), ("bf16", "fp16")])
def test_without_two_precisions_of_which_one_is_fp32_nothing_is_compared(
    tmp_path: Path, precisions: tuple[str, str]
) -> None:
    points = [of(index, precision) for index, precision in enumerate(precisions, 1)]
    assert agreements(read_run(write_run(tmp_path / "run", [(one, [BATH]) for one in points])).points) == {}


def test_a_point_that_failed_or_lost_its_entities_is_compared_with_nothing(tmp_path: Path) -> None:
    points = [of(1, FP32), of(2, "bf16"), of(3, "fp16"), of(4, "tf32"), of(5, "fp16", 100)]
    run = write_run(tmp_path / "run", [(one, [BATH]) for one in points])
    write_record(run, replace(record(points[1]), outcome=Outcome.GPU_OOM))
    (try_folder(run, points[2]) / ENTITIES_FILE).unlink()
    (try_folder(run, points[3]) / ENTITIES_FILE).write_text("")
    assert set(agreements(read_run(run).points)) == {1, 5}
