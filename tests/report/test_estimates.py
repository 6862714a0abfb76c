"""The largest batch in the tables: that of `jobkit recommend`, or the same reason why it is not known."""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.archives import group
from jobkit.answers.gpus import GPUS
from jobkit.answers.memory import Prediction
from jobkit.answers.memory_line import Estimate, fit_line
from jobkit.core.layout import LENGTHS_FILE
from jobkit.core.records import Record
from jobkit.core.units import GIB
from jobkit.report.estimates import GroupEstimate, estimate_lines, estimates
from jobkit.report.output import render
from jobkit.report.recommend.advice import recommend
from jobkit.report.recommend.run_data import read_material
from jobkit.report.recommend.types import RecommendOptions
from jobkit.report.tables import collect
from tests.support.builders import GPU, batch, write_batches
from tests.support.recommendations import CONTEXT_BYTES, records, write_run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_run(Path("runs/demo"), records())


def test_the_prediction_is_printed_and_in_json_and_no_other_number(run: Path) -> None:
    report = render(collect([run]), width=200, gpu_memory_bytes=4 * GIB)
    assert "straight line" not in report
    assert "Largest safe batch_size: " in report
    assert "3.33 GiB for the allocator" in report
    assert "at most 3.3" in report
    assert "  GPUs, time and scheduler lines: jobkit recommend runs/demo\n" in report
    report = render(collect([run]), width=200)
    assert "Largest safe batch_size: 881, which is the whole text; 139.12 GiB for the allocator" in report
    assert "  Beware: the text ends the batch at 881 paragraphs" in report
    (told,) = json.loads(render(collect([run]), "json"))["estimates"]
    assert (told["by_knob"]["largest"], told["by_load"]) == (None, None)
    assert (told["prediction"]["safe_batch"], told["run"]) == (881, "runs/demo")
    assert told["prediction"]["capacity_bytes"] == GPUS["h200"].usable_bytes - CONTEXT_BYTES
    report = render(collect([run]), width=200, gpu_memory_bytes=2**20)
    assert "Largest safe batch_size: 0, without the safety bound: 0; " in report
    assert "Not even a batch of 1 fits: with none at all it is " in report
    assert "It needs" not in report


def test_the_lengths_of_the_run_tell_the_batch(run: Path) -> None:
    (with_lengths,) = estimates(collect([run]), 4 * GIB)
    (run / LENGTHS_FILE).unlink()
    (without,) = estimates(collect([run]), 4 * GIB)
    assert with_lengths.prediction is not None
    assert without.prediction is not None
    assert without.prediction.safe_load == with_lengths.prediction.safe_load
    assert "the lengths of the text are unknown" in " ".join(without.prediction.doubts)


FEW = records(sizes=(40, 130, 220))
FLAT = [replace(one, needs=tuple(replace(need, passed_bytes=GIB) for need in one.needs)) for one in records()]
NAMELESS = [replace(one, gpu=replace(GPU, total_bytes=None)) for one in records()]


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (FEW, "3 distinct loads measured"),
        (FLAT, "memory does not grow with the load"),
        (NAMELESS, "how much memory there is was not recorded: name it with --gpu-memory"),
    ],
    ids=["few", "flat", "nameless"],
)
def test_what_is_not_known_has_the_reason_that_recommend_has(
    tmp_path: Path, told: Sequence[Record], reason: str
) -> None:
    run = write_run(tmp_path / "run", told)
    (found,) = estimates(collect([run]))
    assert found.by_knob.reason.startswith(reason)
    assert found.prediction == recommend(read_material(run), RecommendOptions()).batch.largest
    report = render(collect([run]), width=200)
    assert f"No estimate of the largest batch_size: {reason}" in report
    assert "straight line" not in report


def test_values_of_another_knob_for_which_it_is_not_known_are_counted(tmp_path: Path) -> None:
    why = Estimate(line=None, capacity_bytes=GIB, reason="3 loads")
    unknown = Prediction(capacity_bytes=GIB, reason="3 loads")
    few = GroupEstimate(group=0, knob="batch_size", by_knob=why, prediction=unknown, others="precision fp32")
    known = replace(few, prediction=Prediction(capacity_bytes=GIB, safe_batch=8))
    for found, words in (
        ([few], "with precision fp32"),
        ([few, few], "with any of the 2 values of the other knobs"),
        ([few, few, known], "with 2 values of the other knobs"),
    ):
        assert f"No estimate of the largest batch_size {words}: 3 loads." in list(estimate_lines(found))
    others = [
        replace(record, point=replace(record.point, params={"tokenizer_batch": record.point.index}))
        for record in records()
    ]
    of_others = estimates(collect([write_run(tmp_path / "other", others)]))
    reasons = {one.by_knob.reason for one in of_others}
    assert reasons == {"neither batch_size nor padded_chars is a knob of this sweep"}


def test_without_needs_both_take_the_allocated_peaks_of_every_batch(tmp_path: Path) -> None:
    bare = [replace(record, needs=()) for record in records()]
    run = write_run(tmp_path / "bare", bare)
    for record in bare:
        assert record.summary
        peak = record.memory.allocated_peak_bytes
        calls = [replace(batch(0), load=record.summary.load_max or 0, allocated_peak_bytes=peak)]
        write_batches(run, record.point, calls)
    (told,) = estimates(collect([run]))
    assert told.prediction == recommend(read_material(run), RecommendOptions()).batch.largest


@pytest.mark.parametrize("on", [True, False])
def test_pythons_search_for_cycles_is_left_as_it_was(run: Path, *, on: bool) -> None:
    if not on:
        gc.disable()
    try:
        estimates(collect([run]))
        assert gc.isenabled() is on
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["gpus", "precision"])
def test_a_knob_with_which_the_load_does_not_grow_has_no_largest_value(name: str) -> None:
    collected = collect([*group(name).glob(f"{name}-2*")])
    assert {"batch_size", "padded_chars"} >= {one.knob for one in estimates(collected)}
    assert f"largest {name}" not in render(collected).lower()


def test_a_log_of_more_sizes_has_the_scatter_about_its_guess() -> None:
    for sizes, error in (([1, 2], "2 points, no error bar"), ([1, 2, 3], "3 points, 0.000 GiB sd about ")):
        line = fit_line(sizes, [size * GIB // 4 for size in sizes])
        guess = Estimate(line=line, capacity_bytes=GIB, largest=4)
        (first, *_) = estimate_lines([GroupEstimate(group=0, knob="batch_size", by_knob=guess)])
        assert f"near 4 on 1.00 GiB ({error}" in first
    none = replace(guess, line=None, reason="one size")
    assert list(estimate_lines([GroupEstimate(group=0, knob="batch_size", by_knob=none)])) == [
        "No estimate of the largest batch_size: one size."
    ]
