"""``jobkit recommend`` and ``jobkit report`` of many settings: five batch sizes with each value of a knob."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.raw import Row, below
from benchmarks.runs import read_points, record, write_run
from benchmarks.timing import JOBKIT, once
from jobkit.core.json_codec import to_json
from jobkit.core.layout import POINTS_FILE, RECORD_FILE

TITLE = "Many settings"
SETTINGS = (250, 500, 1_000, 2_000, 4_000)
BATCH_SIZES = 5
MOST_S, AIM = 5.0, 2_000
RUNS = 3


def write_settings(folder: Path, settings: int) -> Path:
    """Write a run folder in which each point has a setting of its own."""
    run = write_run(folder, settings)
    points = [
        replace(one, params={"batch_size": 40 * (number % BATCH_SIZES + 1), "knob": number // BATCH_SIZES})
        for number, one in enumerate(read_points(run))
    ]
    (run / POINTS_FILE).write_text("".join(to_json(point) + "\n" for point in points), encoding="utf-8")
    for point in points:
        home = run / "results" / point.point_id / "try-1"
        (home / RECORD_FILE).write_text(to_json(record(point)) + "\n", encoding="utf-8")
    return run


def measure(folder: Path) -> list[Row]:
    """Return the CPU time of each command by the number of settings, the least of some runs."""
    return list(_rows(folder))


def _rows(folder: Path) -> Iterator[Row]:
    runs = {number: write_settings(folder, number) for number in SETTINGS}
    for command in ("recommend", "report"):
        words = ["--output", str(folder / "report.html")] if command == "report" else []
        for number, run in runs.items():
            cpu_s = [once([*JOBKIT, command, str(run), *words]).cpu_s for _ in range(RUNS)]
            row = below(
                f"`jobkit {command}` of {number:,} settings, CPU time", min(cpu_s), MOST_S, {"cpu_s": cpu_s}
            )
            yield row if number == AIM else Row(what=row.what, shown=row.shown, raw=row.raw)
