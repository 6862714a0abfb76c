"""What docs/measurements.md concludes from its records: of memory, of soaks, and of workers."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from benchmarks import gpu_page, grid, soak_page, tune_page, workers_page
from benchmarks.edge_records import LOAD, TIGHT, Cell, cells, fit_now, reports, smaller
from jobkit.answers.loads import read_lengths
from jobkit.answers.memory import Prediction, memory_of
from jobkit.answers.setting import Mean
from jobkit.core.figures import SPEED
from jobkit.core.records import Record
from jobkit.report.tables import collect
from jobkit.runs.results import read_run
from jobkit.runs.trials import trials

READ = reports()
CELLS = [
    pytest.param(cell, raw, report, id=f"{cell.allocator}-{cell.order}-{cell.paragraphs}-{cell.cap_gib:g}")
    for report in READ
    for cell, raw in zip(cells(report), report["cells"], strict=True)
]


@pytest.mark.parametrize(("cell", "raw", "report"), CELLS)
def test_the_safe_bound_of_then_and_of_today_passed(
    cell: Cell, raw: dict[str, Any], report: dict[str, Any]
) -> None:
    assert cell.holds
    assert len(cell.held_bytes) == 1, "all trials began alike"
    assert cell.now <= 1 or cell.saturated
    said = raw["prediction"]
    line = fit_now(report["order"], said)
    assert line.largest(said["capacity_bytes"]) == pytest.approx(said["largest_load"]), "as it was tried"


def test_larger_points_bring_a_small_cap_near_the_truth() -> None:
    for found in [smaller(report) for report in READ if report["order"] == LOAD]:
        assert TIGHT < found.bound[1] <= 1
        assert found.bound[1] > found.bound[0]


ROOT = Path(__file__).parents[2]
RUNS = sorted((ROOT / "benchmarks" / "records" / "find-max").iterdir())
EARLIER = next(run for run in RUNS if run.name == "capped-16GiB-20261121-071153-d67e")
"""Run before the bound added a share of what lies beyond the largest load measured."""
LATER = next(run for run in RUNS if run.name == "capped-16GiB-20261121-084431-ad94")
TODAY = [run for run in RUNS if run != EARLIER]


def predicted(run: Path) -> Prediction:
    """Return what the code of today predicts from the sweep, without the points that tried a prediction."""
    results = [point for point in read_run(run).points if not point.point.point_id.endswith("-verify")]
    records = [result.chosen.record for result in results if result.chosen and result.chosen.record]
    memory = memory_of(records, lengths=read_lengths(run))
    assert not isinstance(memory, str)
    return memory.predict(trials(run)[0].capacity_bytes)


@pytest.mark.parametrize("run", TODAY, ids=lambda run: run.name)
def test_the_first_try_held_and_todays_bound_names_no_more_and_hardly_less(run: Path) -> None:
    (tried,) = trials(run)
    found = predicted(run)
    assert tried.held
    assert 0.998 * tried.batch_size < found.safe_batch <= tried.batch_size
    assert found.expected_bytes == pytest.approx(tried.expected_bytes, rel=2e-3)
    assert found.bound_bytes == pytest.approx(tried.bound_bytes, rel=2e-3)


def test_todays_bound_names_less_than_what_once_failed() -> None:
    failed, held = trials(EARLIER)
    assert (failed.held, held.held) == (False, True)
    names = {predicted(run).safe_batch for run in (EARLIER, LATER)}
    assert len(names) == 1
    assert max(names) < failed.batch_size


RECORDS = [record for run in sorted(gpu_page.RUNS.iterdir()) for record in gpu_page.records(run)]


@pytest.mark.parametrize(
    "record", RECORDS, ids=lambda record: f"{record.point.allocator}-{record.point.point_id}"
)
def test_the_split_adds_up_to_nvmls_figure_within_2_percent_and_instruments_differ(record: Record) -> None:
    assert gpu_page.share(record.memory, 4) == pytest.approx(1, abs=0.02)
    assert record.memory.disagreement == ""
    assert record.memory.other_bytes == pytest.approx(gpu_page.slack_bytes(record.memory), abs=16 * 2**20)
    peaks = ("allocated", "reserved", "process", "device")
    figures = [getattr(record.memory, f"{name}_peak_bytes") for name in peaks]
    assert figures == sorted(set(figures)), "the four instruments differ"
    assert record.sampler is not None
    assert record.sampler.memory_query == "v2"


KILLS = {"client", "worker", "job script"}


def test_every_point_ended_once_with_an_outcome() -> None:
    found = soak_page.reports()
    assert [(one["scheduler"], one["points"]) for one in found] == [("slurm", 500), ("sge", 200)]
    for one in found:
        assert (one["lost_points"], one["twice"], one["without_outcome"]) == (0, 0, 0)
        assert one["rounds"][-1] == {"ok": one["points"]}
        assert one["kills"].keys() >= KILLS
        assert one["kills"].keys() & {"slurmd", "node down", "execd"}


def test_every_row_of_a_corpus_is_there_once() -> None:
    found = soak_page.reports(soak_page.APPLY_RAW)
    assert [(one["scheduler"], one["shards"]) for one in found] == [("slurm", 500), ("sge", 200)]
    for one in found:
        assert (one["lost"], one["doubled"], one["byte_equal"]) == (0, 0, True)
        assert KILLS | {"disk filled"} <= one["kills"].keys()
        assert one["kills"].keys() & {"slurmd", "node down", "execd"}
        assert one["superseded"]


def test_sixteen_workers_with_mps_do_more_than_ten_times_the_work_of_one() -> None:
    rows = {row.point.point_id: row for row in collect([workers_page.RUNS / workers_page.WHOLE]).rows}
    one = rows["workers-1-batch_size-300-order-text-mps-off-r1"].value(SPEED)
    best = rows["workers-16-padded_chars-40000-mps-on-order-sorted-r1"].value(SPEED)
    assert (best or 0) > 10 * (one or 0) > 0


def test_the_grid_has_every_setting_and_its_best_three_are_in_the_finals() -> None:
    cells = grid.grid()
    workers = {1: ("off",), **dict.fromkeys((2, 4, 8, 12, 16), ("off", "on"))}
    assert set(cells) == {
        (number, mps, *column) for number, ways in workers.items() for mps in ways for column in grid.COLUMNS
    }
    ranked = sorted(cells, key=lambda cell: -tune_page.speeds([cells[cell]])[0])
    assert all(mps == "on" and order == "sorted" for _, mps, order, _ in ranked[:3])
    assert set(grid.finals()) == {(cell[0], cell[3]) for cell in ranked[:3]} | {grid.answer()}


def test_the_answer_of_tune_is_close_to_the_best_of_the_grid() -> None:
    finals = grid.finals()
    tuned = Mean.of(finals[grid.answer()]).over(Mean.of(max(finals.values(), key=fmean)))
    assert tuned.mean >= 0.97 or not tuned.differs


def test_the_cpu_and_the_gpu_did_the_same_calls() -> None:
    calls = set()
    for run in (grid.CPU, grid.GPU):
        done = [record.summary for record in tune_page.read(run) if record.summary]
        calls.add(frozenset((one.items, one.batches, one.characters) for one in done))
    assert [len(one) for one in calls] == [1]
