"""What the pictures show, as data: what needs no drawing to be seen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.archives import RECORDS
from jobkit.core.json_codec import to_json
from jobkit.core.layout import TRIALS_FILE
from jobkit.core.measurements import Energy, Gpu
from jobkit.core.records import Outcome, Point, Record
from jobkit.core.units import GIB
from jobkit.report.output import render
from jobkit.report.plot.data import GroupPlot, group_plots
from jobkit.report.plot.memory_data import MemoryPanel
from jobkit.report.tables import collect
from jobkit.runs.trials import Trial
from tests.support.builders import grid, need, record, write_record, write_records

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


def with_trials(folder: Path) -> Path:
    """Add two tries of a prediction under a cap of 8 GiB: the first ran out of memory."""
    first = grid([50])[0]
    tried = [
        replace(first, index=31 + n, point_id=f"batch_size-{size}-verify", params={"batch_size": size})
        for n, size in enumerate((780, 740))
    ]
    tried = [replace(one, cap_bytes=8 * GIB) for one in tried]
    with (folder / "points.jsonl").open("a") as stream:
        stream.writelines(to_json(one) + "\n" for one in tried)
    failed = replace(measured(tried[0]), outcome=Outcome.GPU_OOM, needs=(), summary=None)
    write_record(folder, replace(failed, failed_load=780 * LOAD))
    write_record(folder, measured(tried[1], work_s=1.0))
    trials = [
        Trial(
            index=one.index,
            batch_size=one.numbers["batch_size"],
            load=one.numbers["batch_size"] * LOAD,
            capacity_bytes=8 * GIB,
            expected_bytes=7.5 * GIB,
            bound_bytes=7.8 * GIB,
        )
        for one in tried
    ]
    (folder / TRIALS_FILE).write_text("".join(to_json(trial) + "\n" for trial in trials))
    return folder


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


def group_of(path: Path, gpu_memory_bytes: int | None = None) -> GroupPlot:
    (found,) = group_plots(collect([path]), gpu_memory_bytes)
    return found


def marks(panel: MemoryPanel) -> dict[str, list[tuple[Any, Any]]]:
    """Return what is marked by its name, without the prediction of the largest batch and allocated peaks."""
    return {
        mark.name: list(mark.spots)
        for mark in panel.marks
        if mark.name != "allocated peak" and not mark.name.startswith("predicted, ")
    }


def test_another_knob_makes_series_and_no_line_unless_it_moves_with_the_first(tmp_path: Path) -> None:
    found = group_of(several_series(tmp_path / "run", (50, 100, 150)))
    assert [series.name for series in found.speed.series] == ["tokenizer_batch 32", "tokenizer_batch 64"]
    assert found.memory.line is None
    assert "another knob than batch_size varies" in found.memory.notes[0]
    sizes = [(point, point.numbers["batch_size"]) for point in grid(SIZES, 2)]
    points = [replace(point, params={"batch_size": n, "tokenizer_batch": n}) for point, n in sizes]
    assert len(group_of(write_records(tmp_path / "moved", map(measured, points))).speed.series) == 1


def test_few_loads_are_points_with_the_reason(tmp_path: Path) -> None:
    panel = group_of(a_run(tmp_path / "run", sizes=(50, 100, 150))).memory
    assert (len(marks(panel)["need"]), panel.line) == (6, None)
    assert panel.notes == ("no line: 3 distinct loads measured, and a line with an error needs 4",)


def test_on_a_cpu_it_is_ram_whose_limit_only_a_try_brings(tmp_path: Path) -> None:
    points = grid(SIZES, device="cpu")
    plain = group_of(write_records(tmp_path / "plain", map(record, points))).memory
    peaks = [(900 * size, pytest.approx(size * GIB / 100)) for size in SIZES]
    assert (plain.up, plain.limit, marks(plain)) == ("RAM", None, {"RAM peak": peaks})
    assert plain.spots("predicted") == []
    tried = replace(points[0], index=6, point_id="batch_size-400-verify", params={"batch_size": 400})
    run = write_records(tmp_path / "run", map(record, [*points, tried]))
    trial = Trial(index=6, batch_size=400, load=360_000, capacity_bytes=5 * GIB, expected_bytes=4 * GIB)
    (run / TRIALS_FILE).write_text(to_json(trial) + "\n")
    panel = group_of(run).memory
    assert panel.limit
    assert panel.limit.size_bytes == 5 * GIB
    assert marks(panel)["verified, batch 400"] == [(360_000, pytest.approx(4 * GIB))]


def test_an_old_log_has_a_straight_line_without_an_error_bar(tmp_path: Path) -> None:
    found = group_of(OLD_LOG)
    panel = found.memory
    assert [size for size, _ in marks(panel)["peak in the log"]] == [50, 300]
    assert panel.line
    assert (panel.line.name, panel.bound) == ("straight line", None)
    assert panel.notes[0] == "2 points, no error bar"
    assert "memory grows faster than a line" in panel.notes[1]
    assert panel.across.startswith("batch size")
    assert {mean.n for mean in found.speed.series[0].means} == {1}
    text = OLD_LOG.read_text()
    one, cpu = tmp_path / "one.o1", tmp_path / "cpu.o2"
    one.write_text("".join(re.findall(r".*Total time[\s\S]*?Peak RAM.*\n", text)[:1]))
    assert group_of(one).memory.notes == ("no line: 1 size measured: a line needs two",)
    assert "No estimate of the largest batch_size: 1 size measured" in render(collect([one]))
    cpu.write_text("".join(line for line in text.splitlines(keepends=True) if "GPU" not in line))
    panel = group_of(cpu).memory
    assert (panel.up, panel.limit) == ("RAM", None)
    assert "no error bar" in panel.notes[0]


def test_a_card_that_is_unknown_has_no_limit_and_one_that_is_too_small_says_so(tmp_path: Path) -> None:
    unknown = group_of(a_run(tmp_path / "run", gpu=replace(CARD, total_bytes=None))).memory
    assert (unknown.limit, unknown.spots("predicted")) == (None, [])
    assert unknown.bound
    small = group_of(a_run(tmp_path / "small"), CONTEXT + GIB // 8).memory
    assert small.notes == ("not even a batch of 1 fits",)


def test_energy_without_idle_power_is_not_net(tmp_path: Path) -> None:
    panel = group_of(with_energy(tmp_path / "run")).energy
    assert panel
    assert not panel.net
    assert [spot.joules for spot in panel.spots] == pytest.approx([JOULES[n] / 0.881 for n in SIZES])
