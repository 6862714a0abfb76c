from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.knobs import FP32
from jobkit.core.layout import ENTITIES_FILE
from jobkit.core.records import Outcome, Point
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


@pytest.mark.parametrize(
    ("points", "found", "differ"),
    [
        (
            [of(1, FP32, 50), of(2, "fp16", 50), of(3, FP32, 100), of(4, "fp16", 100), of(5, "fp16", 200)],
            [[BATH], [BATH], [], [], [BATH]],
            {1: 0, 2: 0, 5: 0},
        ),
        ([of(1, FP32), of(2, "bf16"), of(3, FP32, repeat=2)], [[BATH], [BATH], [YORK]], {1: 0, 2: 0, 3: 2}),
        ([of(1, FP32), of(2, FP32)], [[BATH], [BATH]], {}),
        ([of(1, "bf16"), of(2, "fp16")], [[BATH], [BATH]], {}),
    ],
    ids=["the same batch, or else the first", "repeats", "one precision", "no fp32"],
)
def test_what_is_the_reference(
    tmp_path: Path, points: list[Point], found: list[list[Entity]], differ: dict[int, int]
) -> None:
    by_index = agreements(read_run(write_run(tmp_path / "run", zip(points, found, strict=True))).points)
    assert {index: agreement.differ for index, agreement in by_index.items()} == differ


def test_a_point_that_failed_or_lost_its_entities_is_compared_with_nothing(tmp_path: Path) -> None:
    points = [of(1, FP32), of(2, "bf16"), of(3, "fp16"), of(4, "tf32"), of(5, "fp16", 100)]
    run = write_run(tmp_path / "run", [(one, [BATH]) for one in points])
    write_record(run, replace(record(points[1]), outcome=Outcome.GPU_OOM))
    (try_folder(run, points[2]) / ENTITIES_FILE).unlink()
    (try_folder(run, points[3]) / ENTITIES_FILE).write_text("")
    assert set(agreements(read_run(run).points)) == {1, 5}
