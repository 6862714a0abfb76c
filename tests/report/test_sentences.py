from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.answers.memory import Prediction
from jobkit.answers.memory_line import Estimate, fit_line
from jobkit.core.layout import Exit
from jobkit.core.records import FOLDER, ModelRef, Outcome, Record
from jobkit.core.units import GIB
from jobkit.report.estimates import (
    GroupEstimate,
    count_lines,
    estimate_lines,
    fastest_line,
    heading,
    missing_lines,
)
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


def title(found: Collected) -> list[str]:
    return heading(found.by_group[0], found.by_size)


def test_a_card_is_named_with_its_size_as_far_as_both_are_known(tmp_path: Path) -> None:
    known = record(point())
    cards = {
        "NVIDIA H200 (140.0 GiB)": GPU,
        "NVIDIA H200": replace(GPU, total_bytes=None),
        "NVIDIA A100 MIG 10GiB": replace(GPU, name="NVIDIA A100 MIG 10GiB"),
        "a GPU of unknown name": None,
    }
    for number, (words, gpu) in enumerate(cards.items()):
        (first, *_) = title(collected(tmp_path / str(number), [replace(known, gpu=gpu)]))
        assert first == f"stanza-ner: sample (881 paragraphs) on {words}"


def test_a_workload_without_a_model_names_none(tmp_path: Path) -> None:
    light = replace(point(device="cpu"), workload="count", model=None)
    assert title(collected(tmp_path, [record(light)]))[1].startswith("largest batch first")


def test_random_weights_are_named_in_place_of_the_model(tmp_path: Path) -> None:
    model = ModelRef(
        path="/m", name="a/b", size="full", stand_in=True, fingerprint="f", size_bytes=1, kind=FOLDER
    )
    random = replace(point(), workload="sentence-embedding", model=replace(model, architecture="MiniLM-L6"))
    said = title(collected(tmp_path / "random", [record(random)]))[1]
    assert said == "RANDOM weights: architecture MiniLM-L6, not trained, in place of a/b"
    real = replace(random, model=replace(model, stand_in=False))
    assert title(collected(tmp_path / "real", [record(real)]))[1] == "model a/b"
    assert [replace(model, architecture="x").caveat, model.caveat, replace(model, stand_in=False).caveat] == [
        "RANDOM weights, architecture x",
        "STAND-IN model",
        "",
    ]
    assert (model.label, replace(model, stand_in=False).warning) == ("STAND-IN model, in place of a/b", "")


def test_versions_are_reported_where_there_are_any(tmp_path: Path) -> None:
    told = record(point(device="cpu"))
    *_, last = title(collected(tmp_path / "told", [told]))
    assert last == "stanza 1.10.1, torch 2.5.0"
    *_, last = title(collected(tmp_path / "silent", [replace(told, versions={})]))
    assert last == "largest batch first, CPU threads: 2"


@pytest.mark.parametrize(
    ("shortcuts", "said"), [("exact", "largest batch first, CPU threads: 2, shortcuts: exact"), ("off", "")]
)
def test_shortcuts_of_all_points_are_in_the_heading(tmp_path: Path, shortcuts: str, said: str) -> None:
    told = record(replace(point(device="cpu"), shortcuts=shortcuts))
    lines = title(collected(tmp_path, [told]))
    assert [line for line in lines if "shortcuts" in line] == ([said] if said else [])


@pytest.mark.parametrize("differ", [True, False])
def test_the_fastest_with_other_entities_says_so(tmp_path: Path, differ: bool) -> None:  # noqa: FBT001
    fp32, bf16 = of_precision(1, "fp32"), of_precision(2, "bf16")
    bath = Entity(0, "Bath", "PLACE", 0, 4)
    run = write_tagged(tmp_path, [(fp32, [bath]), (bf16, [] if differ else [bath])])
    write_record(run, record(bf16, work_s=4))
    (line,) = fastest_line(collect([run]).by_size)
    assert line.startswith("Fastest: batch_size 50, precision bf16, 2.00 times as fast as ")
    assert line.endswith("Its entities differ from those of fp32.") is differ


def test_out_of_gpu_memory_needs_no_advice_and_a_bug_does(tmp_path: Path) -> None:
    run = write_points(tmp_path / "run", points := grid([50, 600]))
    write_exit(run, points[0], Exit(status=1, stage="run"))
    write_exit(run, points[1], Exit(status=3, stage="run", outcome=Outcome.GPU_OOM, message="no room"))
    found = collect([run])
    assert missing_lines(found) == (
        "p001 (batch_size 50, repeat 1): bug: exit file: status 1 in step run, but no record was copied home",
        f"  read its log: jobkit logs {run} 1",
        f"  once it is fixed: jobkit resume {run} 1",
        "p002 (batch_size 600, repeat 1): gpu_oom: exit file: no room",
    )
    assert count_lines(found) == "Points: 1 failed, of 2"


def test_a_cancelled_point_is_not_a_failed_one(tmp_path: Path) -> None:
    run = write_points(tmp_path / "run", points := grid([50, 600]))
    write_exit(run, points[0], Exit(status=1, stage="run"))
    write_exit(run, points[1], Exit(status=143, stage="run", outcome=Outcome.CANCELLED, signal="TERM"))
    assert count_lines(collect([run])) == "Points: 1 failed, 1 cancelled, of 2"


@pytest.mark.parametrize(
    ("work_s", "phrases"),
    [
        ([1.0], ()),
        ([1.0, None], ()),
        ([1.0, 1.2], ("batch_size 50, the smallest that succeeded.",)),
        ([1.0, 0.8], ("batch_size 100, 1.25 times as fast as batch_size 50: 20 % less time.",)),
        ([None, 1.0, 0.8], ("batch_size 150, 1.25 times as fast as batch_size 100: 20 % less time.",)),
    ],
)
def test_the_fastest_size_is_named_if_two_compare(
    work_s: list[float | None], phrases: tuple[str, ...], tmp_path: Path
) -> None:
    failed = {"outcome": Outcome.GPU_OOM, "summary": None}
    records = [
        record(point, work_s=seconds) if seconds else replace(record(point), **failed)  # type: ignore[arg-type]
        for point, seconds in zip(grid([50, 100, 150][: len(work_s)]), work_s, strict=True)
    ]
    found = fastest_line(collected(tmp_path, records).by_size)
    assert found == tuple(f"Fastest: {phrase}" for phrase in phrases)


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


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [
        (
            {50: (10, 10.1), 100: (9.9, 10.0)},
            "1.01 times as fast as batch_size 50 (0.92 to 1.11 with 95 % confidence): no difference is shown",
        ),
        (
            {50: (10, 10.01), 100: (5, 5.01)},
            "2.00 times as fast as batch_size 50 (1.97 to 2.03 with 95 % confidence): 50 % less time",
        ),
        (
            {50: (10,), 100: (5,)},
            "2.00 times as fast as batch_size 50: 50 % less time",
        ),
    ],
)
def test_a_difference_is_real_only_if_its_interval_excludes_none(
    tmp_path: Path, seconds: dict[int, tuple[float, ...]], sentence: str
) -> None:
    number = len(seconds[50])
    records = [
        record(p, work_s=seconds[p.numbers["batch_size"]][p.repeat - 1])
        for p in grid(seconds, repeats=number)
    ]
    (line,) = fastest_line(collected(tmp_path, records).by_size)
    assert line == f"Fastest: batch_size 100, {sentence}."


def estimate(**prediction: Any) -> GroupEstimate:
    """Return the estimate of a run of jobkit."""
    known = Prediction(capacity_bytes=GIB, **prediction)
    reason = Estimate(line=None, capacity_bytes=GIB, reason=known.reason)
    return GroupEstimate(group=0, knob="batch_size", by_knob=reason, prediction=known, run="runs/a")


def test_the_values_of_the_other_knobs_for_which_it_is_not_known_are_counted() -> None:
    few = replace(estimate(reason="3 loads"), others="precision fp32")
    assert list(estimate_lines([few])) == [
        "No estimate of the largest batch_size with precision fp32: 3 loads."
    ]
    assert list(estimate_lines([few, few])) == [
        "No estimate of the largest batch_size with any of the 2 values of the other knobs: 3 loads."
    ]
    some = list(estimate_lines([few, few, estimate(safe_batch=8)]))
    assert "No estimate of the largest batch_size with 2 values of the other knobs: 3 loads." in some


def test_a_gpu_on_which_nothing_fits() -> None:
    told = list(estimate_lines([estimate(expected_bytes=2 * GIB)]))
    assert "  Not even a batch of 1 fits: with none at all it is 2.00 GiB by the line already." in told


def test_an_old_log_has_a_guess_or_the_reason_why_there_is_none() -> None:
    none = replace(estimate(), prediction=None)
    none = replace(none, by_knob=replace(none.by_knob, reason="one size"))
    assert list(estimate_lines([none])) == ["No estimate of the largest batch_size: one size."]
    for sizes, error in (([1, 2], "2 points, no error bar"), ([1, 2, 3], "3 points, 0.000 GiB sd about ")):
        line = fit_line(sizes, [size * GIB // 4 for size in sizes])
        guess = Estimate(line=line, capacity_bytes=GIB, largest=4)
        (first, *_) = estimate_lines([replace(none, by_knob=guess)])
        assert f"near 4 on 1.00 GiB ({error}" in first
