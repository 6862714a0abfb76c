"""Planning and rendering of ever more points: ``jobkit sweep --dry-run``, whole processes."""

from __future__ import annotations

from pathlib import Path

from benchmarks import controller
from benchmarks.raw import Row, below
from benchmarks.runs import write_spec
from benchmarks.timing import JOBKIT, middle, once

TITLE = "Planning and rendering"
SETTINGS = 1000
MOST_S = 10.0
RUNS = 5


def measure(folder: Path) -> list[Row]:
    """Return the medians at 1,000, 10,000 and 100,000 points, and what one more point costs."""
    env = controller.start(folder / "slurm").environment
    rows, walls = [], {}
    for points in (1_000, 10_000, 100_000):
        spec = write_spec(folder, points, points // SETTINGS)
        argv = [*JOBKIT, "sweep", str(spec), "--dry-run"]
        timing = middle([once(argv, env=env, cwd=folder) for _ in range(RUNS)])
        walls[points] = timing["wall_s"]
        rows.append(below(f"{points:,} points", timing["wall_s"], MOST_S, {**timing}))
    first = (walls[10_000] - walls[1_000]) / 9_000
    then = (walls[100_000] - walls[10_000]) / 90_000
    shown = f"{first * 1e6:.1f} µs, then {then * 1e6:.1f} µs"
    raw: dict[str, object] = {"to_10000_s": first, "to_100000_s": then}
    return [*rows, Row(what="one point more, up to 10,000 and up to 100,000", shown=shown, raw=raw)]
