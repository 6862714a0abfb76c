"""What docs/measurements.md concludes from the records of workers."""

from __future__ import annotations

from statistics import fmean

from benchmarks import grid, tune_page, workers_page
from jobkit.answers.setting import Mean
from jobkit.core.figures import SPEED
from jobkit.report.tables import collect


def test_sixteen_workers_with_mps_do_more_than_ten_times_the_work_of_one() -> None:
    rows = {row.point: row for row in collect([workers_page.RUNS / workers_page.WHOLE]).rows}
    one = rows["workers-1-batch_size-300-order-text-mps-off-r1"].value(SPEED)
    best = rows["workers-16-padded_chars-40000-mps-on-order-sorted-r1"].value(SPEED)
    assert one
    assert best
    assert best > 10 * one


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
    cpu, gpu = (
        {
            (record.summary.items, record.summary.batches, record.summary.characters)
            for record in tune_page.read(run)
            if record.summary
        }
        for run in (grid.CPU, grid.GPU)
    )
    assert len(cpu) == 1
    assert cpu == gpu
