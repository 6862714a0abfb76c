from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.answers.objective import Bound, Objective
from jobkit.answers.setting import Setting
from jobkit.core.figures import ENERGY as ENERGY_J
from jobkit.core.figures import ENERGY_PER_1000 as PER_1000
from jobkit.core.figures import FIGURES, GPU_MEMORY
from jobkit.core.measurements import NOT_ATTRIBUTABLE, Energy, MemoryReadings
from jobkit.core.records import Record
from jobkit.core.units import GIB
from jobkit.report.output import front_line, render
from jobkit.report.rows import Row, read_sources
from jobkit.report.tables import Collected, Size, collect, unbeaten
from jobkit.runs.results import read_run
from tests.support.builders import GPU, ITEMS, grid, point, record, write_records

ENERGY = Energy(span_s=10, counter_j=881, idle_w=20, idle_s=6)
FOREIGN = replace(ENERGY, attribution=NOT_ATTRIBUTABLE)


def records(*energies: Energy | None, repeats: int = 1) -> list[Record]:
    """Return the records of batch sizes 50, 100 and so on with these energies, each faster than the last."""
    points = grid([50 * (number + 1) for number in range(len(energies) // repeats)], repeats)
    return [
        replace(record(point, work_s=20.0 / point.index), energy=energy)
        for point, energy in zip(points, energies, strict=True)
    ]


def collected(folder: Path, *energies: Energy | None, repeats: int = 1) -> Collected:
    return collect([write_records(folder / "run", records(*energies, repeats=repeats))])


def mean(size: Size, name: str) -> float | None:
    found = size.mean(FIGURES[name])
    return found.value if found else None


def spending(counter_j: float, **more: object) -> Energy:
    return replace(ENERGY, counter_j=counter_j, **more)  # type: ignore[arg-type]  # fields by name


def test_energy_is_of_the_work_and_of_1000_items(tmp_path: Path) -> None:
    [size] = collected(tmp_path, ENERGY).by_size
    assert mean(size, "energy_j") == 881
    assert mean(size, "energy_per_1000_j") == pytest.approx(1000 * 881 / ITEMS)
    assert mean(size, "net_energy_j") == 881 - 200
    assert mean(size, "net_energy_per_1000_j") == pytest.approx(1000 * 681 / ITEMS)
    assert size.front is None, "there is no other setting"
    [one] = records(ENERGY)
    row = collect([write_records(tmp_path / "none", [replace(one, summary=None)])]).rows[0]
    assert [row.value(of) for of in (ENERGY_J, PER_1000)] == [881, None], "of no item"


def test_a_table_is_net_of_idle_if_all_that_it_shows_is(tmp_path: Path) -> None:
    for name, last, shown, absent in (
        ("all", ENERGY, "net J/1,000", "energy J"),
        ("all but one", replace(ENERGY, idle_w=None), "energy J/1,000", "net J"),
        ("all that are in a table", FOREIGN, "net J/1,000", "energy J"),
    ):
        report = render(collected(tmp_path / name, ENERGY, last), "md")
        assert f" {shown} |" in report
        assert f"| {absent} " not in report
        assert f"{shown.split(maxsplit=1)[0]}: " in report.lower()


def test_what_is_not_attributable_is_in_no_mean_and_in_csv(tmp_path: Path) -> None:
    found = collected(tmp_path, ENERGY, FOREIGN, repeats=2)
    [size] = found.by_size
    assert (size.n, size.values(FIGURES["energy_j"])) == (2, (881,))
    _, shared = found.point_records()
    assert (shared["energy_j"], shared["net_energy_per_1000_j"]) == (None, None)
    assert [shared[name] for name in ("energy_counter_j", "energy_span_s", "idle_w")] == [881, 10, 20]


def test_energy_of_points_at_the_same_time_is_not_attributable(tmp_path: Path) -> None:
    first, second = records(ENERGY, ENERGY)
    together = [first, replace(second, started_at=first.started_at, ended_at=first.ended_at)]
    found = collect([write_records(tmp_path / "run", together)])
    assert [row.value(ENERGY_J) for row in found.rows] == [None, None]
    assert "front" not in render(found, "md")
    results = read_run(tmp_path / "run").points
    constrained = [result.record.value(PER_1000) for result in results if result.record]
    assert constrained == [None, None], "no constraint has them"


def test_energy_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """It had a second instrument, the sampled power, and a reason."""
    folder = write_records(tmp_path / "run", records(ENERGY, ENERGY, ENERGY))
    earlier = {"power_j": 890.0, "power_samples": 9, "reason": "why"}
    changes = (("attribution", "unknown"), ("attribution", "not attributable"), ("counter_j", None))
    for path, (key, value) in zip(sorted(folder.glob("results/*/try-1/record.json")), changes, strict=True):
        told = json.loads(path.read_text(encoding="utf-8"))
        told["energy"] |= {**earlier, key: value}
        path.write_text(json.dumps(told), encoding="utf-8")
    assert sorted(row.value(ENERGY_J) or 0 for row in collect([folder]).rows) == [0, 0, 881]


def test_the_front_is_marked_and_said(tmp_path: Path) -> None:
    found = collected(tmp_path, spending(300), spending(500), spending(400), None)
    assert [size.front for size in found.by_size] == [True, False, True, None]
    line = "Time and energy: no other setting beats one of these in both: (batch_size 50), (batch_size 150)."
    assert front_line(found.by_size) == (line,)
    report = render(found, width=200)
    assert line in report
    assert "front: no other setting beats it in both time and energy" in report
    sizes = json.loads(render(found, "json"))["sizes"]
    assert [size["front"] for size in sizes] == [True, False, True, None]
    found = collected(tmp_path / "one", spending(500), spending(400))
    assert front_line(found.by_size) == ("Time and energy: no other setting beats batch_size 100 in either.",)
    assert unbeaten([(1, 2), (1, 2), (2, 2)]) == [True, True, False], "of equal settings all are on the front"


def row_of(run: Path, memory: MemoryReadings, foreign: int | None, workers: int = 1) -> Row:
    gpu = replace(GPU, foreign_processes=foreign)
    told = replace(record(replace(point(), workers=workers)), memory=memory, gpu=gpu)
    (row,) = read_sources([write_records(run, [told])]).rows
    return row


ONE_PROCESS = MemoryReadings(context_bytes=GIB, reserved_peak_bytes=3 * GIB)
ABOVE_IDLE = MemoryReadings(device_peak_bytes=5 * GIB, device_idle_bytes=GIB)


@pytest.mark.parametrize(
    ("memory", "foreign", "workers", "instrument"),
    [
        (ABOVE_IDLE, 0, 1, "NVML device above idle"),
        (ONE_PROCESS, 0, 1, "context + torch reserved"),
        (ONE_PROCESS, 0, 2, None),
        (replace(ABOVE_IDLE, context_bytes=GIB, reserved_peak_bytes=9), 0, 2, "NVML device above idle"),
        (ABOVE_IDLE, 1, 1, None),
        (ABOVE_IDLE, None, 1, None),
        (replace(ABOVE_IDLE, device_idle_bytes=None), 0, 1, None),
    ],
)
def test_without_the_peak_of_the_process_another_instrument_stands_in_if_it_measures_that_process_alone(
    tmp_path: Path, memory: MemoryReadings, foreign: int | None, workers: int, instrument: str | None
) -> None:
    found = row_of(tmp_path / "run", memory, foreign, workers)
    peak = 4 * GIB if instrument else None
    assert (found.value(GPU_MEMORY), found.value("gpu_instrument")) == (peak, instrument)


def test_a_constraint_is_judged_by_the_memory_that_the_table_shows(tmp_path: Path) -> None:
    memory = MemoryReadings(device_peak_bytes=9 * GIB, device_idle_bytes=7 * GIB)
    row = row_of(tmp_path / "run", memory, 0)
    assert row.record
    assert row.value(GPU_MEMORY) == 2 * GIB
    at_most = Objective(bounds={GPU_MEMORY.key: Bound(max=3 * GIB)})
    assert at_most.broken(Setting(points=(row.record,))) == ""
