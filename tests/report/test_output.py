from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.answers.loads import Lengths
from jobkit.core.blocks import Column, fit_columns
from jobkit.core.layout import LENGTHS_FILE, Exit
from jobkit.core.records import Command, Outcome, Point, Record
from jobkit.core.units import GIB
from jobkit.report.output import fastest_line, heading, missing_lines, render, size_columns
from jobkit.report.predictions import estimates
from jobkit.report.recommend.advice import recommend
from jobkit.report.recommend.material import read_material
from jobkit.report.tables import Collected, Size, collect
from jobkit.worker.workloads.base import Entity
from tests.support.builders import (
    GPU,
    MODEL,
    grid,
    of_precision,
    point,
    record,
    write_exit,
    write_points,
    write_record,
    write_records,
    write_submitted,
    write_tagged,
)
from tests.support.recommendations import records, write_run

DATA = Path(__file__).parents[1] / "data"
OLD_LOG = DATA / "predecessors" / "gpu-stanza-tagging.o2650"
REPORTS = DATA / "reports"


def finished(folder: Path, points: list[Point]) -> Path:
    records = [record(p, work_s=400 / p.numbers["batch_size"] + 2 + p.repeat / 50) for p in points]
    return write_records(folder, records)


def mixed(folder: Path) -> Path:
    """Return a run with good points, one too large for the card, two that failed and one to come."""
    points = [*grid([50, 100, 200], repeats=2), *(replace(p, index=p.index + 6) for p in grid([600] * 4))]
    points = [replace(p, point_id=f"p{p.index:03d}") for p in points]
    write_points(folder, points)
    for p in points[:6]:
        write_record(folder, record(p, work_s=400 / p.numbers["batch_size"] + 2 + p.repeat / 50))
    write_record(folder, replace(record(points[6]), outcome=Outcome.GPU_OOM, summary=None))
    write_exit(folder, points[7], Exit(status=11, stage="stage_out", scratch="/scratch/77.8", host="node1"))
    write_record(folder, replace(record(points[8]), outcome=Outcome.TIMEOUT, signal="USR1", provisional=True))
    write_submitted(folder, "slurm", "77", first=1, last=10)
    return folder


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return ``runs``, empty, so that no path in a report depends on where the tests run."""
    monkeypatch.chdir(tmp_path)
    return Path("runs")


def test_the_published_log_at_80_columns() -> None:
    report = render(collect([OLD_LOG]), width=80, limit_bytes=30 * GIB)
    assert report == (REPORTS / "old-log-80.txt").read_text()


def test_a_run_of_all_kinds(runs: Path) -> None:
    found = collect([mixed(runs / "demo")])
    for width in (80, 120):
        report = render(found, width=width)
        assert report == (REPORTS / f"mixed-{width}.txt").read_text()
        assert "\x1b[" not in report
    assert render(found, "md") == (REPORTS / "mixed.md").read_text()
    assert "\x1b[1m" in render(found, color=True)
    report = render(found, width=60)
    assert "how much walltime it needs: jobkit status runs/demo 9\n" in report, "a command is never broken"


def test_no_line_is_wider_than_the_terminal_and_no_figure_is_cut(tmp_path: Path) -> None:
    found = collect([finished(tmp_path / "run", grid([50, 100], repeats=2))])
    for width in range(40, 161, 20):
        report = render(found, width=width)
        assert "…" not in report
        assert max(map(len, report.splitlines())) <= width


def test_words_from_files_are_not_taken_for_markup(tmp_path: Path) -> None:
    run = write_points(tmp_path / "run", points := grid([50]))
    write_exit(run, points[0], Exit(status=1, stage="environment", message="[bold]no[/bold] :smile: | <b>"))
    assert "[bold]no[/bold] :smile: | <b>" in render(collect([run]), width=200)
    assert "\\| &lt;b&gt;" in render(collect([run]), "md")


def test_long_lists_are_cut_and_say_so(tmp_path: Path) -> None:
    points = grid(range(1, 101))
    report = render(collect([write_points(tmp_path / "to come", points)]), width=80)
    assert "to come: p001, p002, p003 and 97 more" in report
    assert len(report.splitlines()) < 5
    bugs = [replace(record(point), outcome=Outcome.BUG, message=f"line {point.index}") for point in points]
    report = render(collect([write_records(tmp_path / "failed", bugs)]), width=80)
    assert "... and 80 more points (--format csv has them all)" in report
    assert len(report.splitlines()) < 70


def collected(run: Path, records: Sequence[Record]) -> Collected:
    return collect([write_records(run, records)])


def test_a_precision_that_the_checkpoint_chose_is_shown(tmp_path: Path) -> None:
    for name, asked in (("chosen", None), ("asked", "fp32")):
        points = [replace(point, precision=asked) for point in grid([50, 100])]
        found = [replace(record(point), effective={"precision": "fp32"}) for point in points]
        assert ("precision: fp32" in render(collected(tmp_path / name, found))) == (asked is None)


def test_the_heading_says_that_a_model_has_random_weights(tmp_path: Path) -> None:
    model = replace(MODEL, name="a/b", stand_in=True, architecture="MiniLM-L6")
    found = collected(tmp_path, [record(replace(point(), model=model))])
    line = "RANDOM weights: architecture MiniLM-L6, not trained, in place of a/b full"
    assert heading(found, 0)[1] == line


@pytest.mark.parametrize("differ", [True, False])
def test_the_fastest_with_other_entities_says_so(tmp_path: Path, *, differ: bool) -> None:
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


def sizes(run: Path, inert: tuple[str, ...] = ()) -> Sequence[Size]:
    """Return the sizes of a run whose knobs perhaps did not take effect."""
    records = [replace(record(p), inert=inert if p.index == 1 else ()) for p in grid([50, 100])]
    return collect([write_records(run, records)]).by_size


def cells(columns: Sequence[Column]) -> dict[str, Sequence[str]]:
    return {column.name: column.cells for column in columns}


def test_a_knob_without_effect_is_named_and_the_sum_goes_if_its_parts_are_shown(tmp_path: Path) -> None:
    columns = size_columns(sizes(tmp_path / "run"), ["batch_size"])
    assert "model GiB" not in cells(fit_columns(columns))
    parts = [column for column in columns if column.name != "weights GiB"]
    assert "model GiB" in cells(fit_columns(parts))
    assert "no effect of" not in cells(columns)
    shown = cells(size_columns(sizes(tmp_path / "some", ("batch_size",)), ["batch_size"]))
    assert shown["no effect of"] == ["batch_size", ""]


@pytest.mark.parametrize(
    ("of", "head", "legend"),
    [
        ({"workload": "stanza-ner"}, "load chars", "characters of the largest batch once padded"),
        ({"workload": "sentence-embedding"}, "load tokens", "tokens of the largest batch once padded"),
        ({"workload": "spacy-ner"}, "load tokens", "tokens of the largest batch, which is not padded"),
        ({"workload": "mine:Own"}, "load words", "words of the largest batch, which is not padded"),
        ({"command": Command(template="tag {batch_size} {text}")}, "load", "as the program reports it"),
    ],
)
def test_a_load_has_the_unit_of_its_workload(
    tmp_path: Path, of: dict[str, Any], head: str, legend: str
) -> None:
    run = write_records(tmp_path, [record(replace(p, **of)) for p in grid([50, 100])])
    (run / LENGTHS_FILE).write_text(Lengths(paragraphs=((3,),), unit="words", pads=False).to_json())
    found = collect([run])
    (column,) = (c for c in size_columns(found.by_size, ["batch_size"]) if c.name == head)
    (note,) = column.notes
    assert legend in note


def test_a_spread_larger_than_the_mean_is_unknown(tmp_path: Path) -> None:
    """CSV and JSON keep the figures."""
    points = grid([50], repeats=2)
    run = write_records(
        tmp_path / "run", [record(p, work_s=s) for p, s in zip(points, (1.0, 30.0), strict=True)]
    )
    found = collect([run])
    assert cells(size_columns(found.by_size, found.knobs))["speed paragr./s"] == ["455 ± ?"]
    assert "spread unknown" in render(found, "md")
    (size,) = json.loads(render(found, "json"))["sizes"]
    assert size["items_per_s_low"] < 0


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_run(Path("runs/demo"), records())


def test_another_memory_has_another_largest_batch(run: Path) -> None:
    report = render(collect([run]), width=200, limit_bytes=4 * GIB)
    assert "3.33 GiB for the allocator" in report
    report = render(collect([run]), width=200, limit_bytes=2**20)
    assert "Largest safe batch_size: 0; " in report
    assert "Not even a batch of 1 fits: with no batch at all the line has " in report


FLAT = [replace(one, needs=tuple(replace(need, passed_bytes=GIB) for need in one.needs)) for one in records()]
NAMELESS = [replace(one, gpu=replace(GPU, total_bytes=None)) for one in records()]


def test_what_is_not_known_has_the_reason_that_recommend_has(tmp_path: Path) -> None:
    for name, told, reason in (
        ("flat", FLAT, "memory does not grow with the load"),
        ("nameless", NAMELESS, "how much memory there is was not recorded: name it with --gpu-memory"),
    ):
        run = write_run(tmp_path / name, told)
        (found,) = estimates(collect([run]))
        assert found.by_knob.reason.startswith(reason)
        assert found.prediction == recommend(read_material(run)).memory.largest
        report = render(collect([run]), width=200)
        assert f"No estimate of the largest batch_size: {reason}" in report
        assert "straight line" not in report
