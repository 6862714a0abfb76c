from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.layout import Exit
from jobkit.core.records import FOLDER, ModelRef, Outcome, Point, Record
from jobkit.report.output import fastest_line, heading, missing_lines
from jobkit.report.tables import Collected, collect
from jobkit.worker.workloads.base import Entity
from tests.support.builders import (
    GPU,
    grid,
    of_precision,
    point,
    record,
    write_exit,
    write_points,
    write_record,
    write_records,
    write_tagged,
)


def collected(run: Path, records: Sequence[Record]) -> Collected:
    return collect([write_records(run, records)])


MIG = replace(GPU, name="NVIDIA A100 MIG 10GiB")
CPU = point(device="cpu")
RANDOM = ModelRef(
    path="/m",
    name="a/b",
    size="full",
    stand_in=True,
    fingerprint="f",
    size_bytes=1,
    kind=FOLDER,
    architecture="MiniLM-L6",
)


def test_the_heading_says_that_a_model_has_random_weights(tmp_path: Path) -> None:
    told = record(replace(CPU, workload="sentence-embedding", model=RANDOM))
    found = collected(tmp_path, [told])
    line = "RANDOM weights: architecture MiniLM-L6, not trained, in place of a/b"
    assert heading(found.by_group[0], found.by_size)[1] == line


@pytest.mark.parametrize("differ", [True, False])
def test_the_fastest_with_other_entities_says_so(tmp_path: Path, differ: bool) -> None:  # noqa: FBT001
    of = {n: replace(of_precision(n, "bf16" if n > 2 else "fp32"), repeat=2 - n % 2) for n in range(1, 5)}
    bath = Entity(0, "Bath", "PLACE", 0, 4)
    run = write_tagged(tmp_path, [(of[n], [] if differ and n > 2 else [bath]) for n in of])
    for n, planned in of.items():
        write_record(run, record(planned, work_s=(8.0, 8.01, 4.0, 4.01)[n - 1]))
    (line,) = fastest_line(collect([run]).by_size)
    assert line.startswith("Fastest: batch_size 50, precision bf16, 2.00 times as fast as ")
    assert line.endswith("Its entities differ from those of fp32.") is differ


NONE = "No difference in speed is shown between batch_size"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ({50: (1.0,), 100: ()}, ""),
        ({50: (5, 5.01), 100: (10, 10.01)}, "50, the smallest that succeeded."),
        ({50: (), 100: (1,), 150: (0.8,)}, "1.25 times as fast as batch_size 100; one repeat: not tested."),
        ({50: (10, 10.1), 100: (9.9, 10.0)}, f"{NONE} 50 and batch_size 100."),
        ({50: (10, 10.01), 100: (5, 5.01)}, "(1.97 to 2.03 with 95 % confidence): 50 % less time."),
    ],
)
def test_the_fastest_is_named_if_two_compare_and_a_difference_if_its_interval_excludes_none(
    tmp_path: Path, seconds: Mapping[int, tuple[float, ...]], words: str
) -> None:
    def ended(of: Point) -> Record:
        worked = seconds[of.numbers["batch_size"]]
        if worked:
            return record(of, work_s=worked[of.repeat - 1])
        return replace(record(of), outcome=Outcome.GPU_OOM, summary=None)

    repeats = max(map(len, seconds.values()))
    lines = fastest_line(collected(tmp_path, [ended(of) for of in grid(seconds, repeats)]).by_size)
    assert bool(lines) == bool(words)
    assert all(line.endswith(f"--set repeats={2 * repeats + 1}") for line in lines[1:])
    assert not words or lines[0].endswith(words)


def test_repeats_that_were_not_needed_are_counted_and_not_listed(tmp_path: Path) -> None:
    points = [replace(p, point_id=f"batch_size-50-r{p.repeat}") for p in grid([50], repeats=4)]
    run = write_points(tmp_path / "run", points)
    for p in points[:2]:
        write_record(run, record(p))
    skipped = Exit(
        status=0, stage="gate", outcome=Outcome.PRUNED, because="batch_size-50-r2", message="short"
    )
    write_exit(run, points[2], skipped)
    write_exit(run, points[3], replace(skipped, because="batch_size-20-r4"))
    found = collect([run])
    (line,) = missing_lines(found)
    assert line.startswith("batch_size-50-r4 (batch_size 50, repeat 4): pruned: ")
    skipped_note, few_note = found.notes
    assert skipped_note.startswith("1 repeat skipped: ")
    assert "fewer than " in few_note
