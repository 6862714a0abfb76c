"""The largest batch in the tables: that of `jobkit recommend`, or the same reason why it is not known."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.archives import group
from jobkit.answers.gpus import GPUS
from jobkit.core.layout import LENGTHS_FILE
from jobkit.core.units import GIB
from jobkit.report.estimates import estimates
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


def test_the_prediction_is_printed(run: Path) -> None:
    report = render(collect([run]), width=200, gpu_memory_bytes=4 * GIB)
    assert "straight line" not in report
    assert "Largest safe batch_size: " in report
    assert "3.33 GiB for the allocator" in report
    assert "at most 3.3" in report
    assert "  GPUs, time and scheduler lines: jobkit recommend runs/demo\n" in report
    report = render(collect([run]), width=200)
    assert "Largest safe batch_size: 881, which is the whole text; 139.12 GiB for the allocator" in report
    assert "  Beware: the text ends the batch at 881 paragraphs" in report


def test_json_has_the_prediction_and_no_other_number(run: Path) -> None:
    (told,) = json.loads(render(collect([run]), "json"))["estimates"]
    assert (told["by_knob"]["largest"], told["by_load"]) == (None, None)
    assert (told["prediction"]["safe_batch"], told["run"]) == (881, "runs/demo")
    assert told["prediction"]["capacity_bytes"] == GPUS["h200"].usable_bytes - CONTEXT_BYTES


def test_the_lengths_of_the_run_tell_the_batch(run: Path) -> None:
    (with_lengths,) = estimates(collect([run]), 4 * GIB)
    (run / LENGTHS_FILE).unlink()
    (without,) = estimates(collect([run]), 4 * GIB)
    assert with_lengths.prediction is not None
    assert without.prediction is not None
    assert without.prediction.safe_load == with_lengths.prediction.safe_load
    assert "the lengths of the text are unknown" in " ".join(without.prediction.doubts)


def test_with_fewer_than_four_loads_it_is_not_known_as_recommend_says(tmp_path: Path) -> None:
    few = write_run(tmp_path / "few", records(sizes=(40, 130, 220)))
    (told,) = estimates(collect([few]))
    assert told.prediction == recommend(read_material(few), RecommendOptions()).batch.largest
    assert told.by_knob.reason.startswith("3 distinct loads measured")
    report = render(collect([few]), width=200)
    assert "No estimate of the largest batch_size: 3 distinct loads measured" in report
    assert "straight line" not in report


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


def test_needs_that_do_not_grow_are_refused_with_the_reason(tmp_path: Path) -> None:
    flat = [
        replace(record, needs=tuple(replace(need, passed_bytes=GIB) for need in record.needs))
        for record in records()
    ]
    report = render(collect([write_run(tmp_path / "flat", flat)]), width=200)
    assert "No estimate of the largest batch_size: memory does not grow with the load" in report


def test_without_a_capacity_or_a_batch_size_there_is_the_reason(tmp_path: Path) -> None:
    nameless = [replace(record, gpu=replace(GPU, total_bytes=None)) for record in records()]
    (told,) = estimates(collect([write_run(tmp_path / "nameless", nameless)]))
    assert "how much memory there is was not recorded" in told.by_knob.reason
    other = [
        replace(record, point=replace(record.point, params={"tokenizer_batch": record.point.index}))
        for record in records()
    ]
    found = estimates(collect([write_run(tmp_path / "other", other)]))
    assert {one.by_knob.reason for one in found} == {
        "neither batch_size nor padded_chars is a knob of this sweep"
    }


@pytest.mark.parametrize("on", [True, False])
def test_pythons_search_for_cycles_is_left_as_it_was(run: Path, *, on: bool) -> None:
    if not on:
        gc.disable()
    try:
        estimates(collect([run]))
        assert gc.isenabled() is on
    finally:
        gc.enable()


def test_a_card_on_which_nothing_fits_is_not_said_to_take_anything(tmp_path: Path) -> None:
    report = render(collect([write_run(tmp_path / "run", records())]), width=200, gpu_memory_bytes=2**20)
    assert "Largest safe batch_size: 0, without the safety bound: 0; " in report
    assert "Not even a batch of 1 fits: with none at all it is " in report
    assert "It needs" not in report


@pytest.mark.parametrize("name", ["gpus", "precision"])
def test_a_knob_with_which_the_load_does_not_grow_has_no_largest_value(name: str) -> None:
    collected = collect([*group(name).glob(f"{name}-2*")])
    assert {"batch_size", "padded_chars"} >= {one.knob for one in estimates(collected)}
    assert f"largest {name}" not in render(collected).lower()
