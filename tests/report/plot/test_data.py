"""What the pictures show, as data: what needs no drawing to be seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.archives import RECORDS
from jobkit.core.measurements import Energy, Gpu
from jobkit.core.records import Outcome, Point, Record
from jobkit.core.units import GIB
from jobkit.report.plot.data import GroupPlot, group_plots
from jobkit.report.tables import collect
from tests.support.builders import grid, need, record, write_records

ONE = RECORDS / "gpu" / "stanza-20261121-034558-42cc"
OLD_LOG = Path(__file__).parents[2] / "data" / "predecessors" / "gpu-stanza-tagging.o2650"
SIZES = (50, 100, 150, 200, 300)
LOAD = 1_000
"""Padded characters of a paragraph in these tests."""
CARD = Gpu(name="a card", uuid="GPU-2", total_bytes=16 * GIB, driver="1", cuda="12")
CONTEXT = 3 * GIB // 4
"""As `tests.support.builders.memory` has it."""
JOULES = {50: 300.0, 100: 260.0, 150: 270.0, 200: 240.0, 300: 280.0}
"""By batch size, over 10 s."""


def needed(size: float) -> int:
    return int(0.25 * GIB + size * GIB / 100)


def measured(of: Point, *, work_s: float = 8.0, gpu: Gpu = CARD) -> Record:
    """Return a record whose need is 0.25 GiB and 0.01 GiB for each paragraph of the batch."""
    size = of.numbers["batch_size"]
    made = record(of, work_s=work_s)
    assert made.summary is not None
    loaded = replace(made.summary, load_max=LOAD * size)
    return replace(made, gpu=gpu, needs=(need(LOAD * size, needed(size)),), summary=loaded)


def seconds(of: Point) -> float:
    """Return the work of a point: less the larger the batch, by less and less, with a little scatter."""
    return 8 + 200 / of.numbers["batch_size"] + 0.1 * of.repeat


def a_run(folder: Path, *, repeats: int = 2, sizes: Sequence[int] = SIZES, gpu: Gpu = CARD) -> Path:
    return write_records(folder, [measured(of, work_s=seconds(of), gpu=gpu) for of in grid(sizes, repeats)])


def with_energy(folder: Path, *, idle_w: float | None = None, run_id: str = "demo", gpu: Gpu = CARD) -> Path:
    """Make a run of points that measured energy: the larger the batch, the faster."""
    points = [replace(one, run_id=run_id) for one in grid(SIZES)]
    made = [measured(one, work_s=8 + 200 / one.numbers["batch_size"], gpu=gpu) for one in points]
    energies = [Energy(span_s=10, counter_j=joules, idle_w=idle_w) for joules in JOULES.values()]
    return write_records(
        folder, [replace(one, energy=energy) for one, energy in zip(made, energies, strict=True)]
    )


def several_series(folder: Path, sizes: Sequence[int]) -> Path:
    """Make a run in which another knob varies by itself."""
    points = [
        replace(one, index=n, point_id=f"p{n}", params={**one.params, "tokenizer_batch": batch})
        for n, (one, batch) in enumerate(((one, b) for b in (32, 64) for one in grid(sizes, 2)), 1)
    ]
    return write_records(folder, map(measured, points))


def all_failed(folder: Path) -> Path:
    made = map(measured, grid([50, 100]))
    return write_records(
        folder, [replace(one, outcome=Outcome.GPU_OOM, needs=(), summary=None) for one in made]
    )


def group_of(path: Path, limit_bytes: int | None = None) -> GroupPlot:
    (found,) = group_plots(collect([path]), limit_bytes)
    return found


def test_an_old_log_has_a_straight_line_without_an_error_bar() -> None:
    found = group_of(OLD_LOG)
    panel = found.memory
    assert [size for size, _ in panel.spots("measured")] == [50, 300]
    assert panel.line
    assert (panel.line.name, panel.bound) == ("straight line", None)
    assert panel.notes[0] == "2 points, no error bar"
    assert {mean.n for mean in found.speed.means} == {1}


def test_a_card_that_is_unknown_has_no_limit_and_one_that_is_too_small_says_so(tmp_path: Path) -> None:
    unknown = group_of(a_run(tmp_path / "run", gpu=replace(CARD, total_bytes=None))).memory
    assert (unknown.limit, unknown.spots("predicted")) == (None, [])
    assert unknown.bound
    small = group_of(a_run(tmp_path / "small"), CONTEXT + GIB // 8).memory
    assert small.notes == ("not even a batch of 1 fits",)
