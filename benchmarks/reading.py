"""Reading back: ``jobkit collect`` of many records, and 1,000 points next to submitit and signac-flow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from benchmarks.controller import account, start
from benchmarks.peers.with_submitit import write_results
from benchmarks.raw import Row, below
from benchmarks.runs import read_points, record, write_run
from benchmarks.submission import POINTS, peer
from benchmarks.timing import JOBKIT, Timing, middle, once

TITLE = "Reading back"
RUNS = 7
MOST_S = 2.0
SIZES = {1_000: 7, 10_000: 5, 100_000: 1}
"""How many records, and how often they are collected."""


def measure(folder: Path) -> list[Row]:
    """Return the medians of `jobkit collect` by size, then those of the three clients."""
    return [*_by_size(folder), *_beside_peers(folder)]


def _by_size(folder: Path) -> list[Row]:
    rows = []
    for records, runs in SIZES.items():
        argv = [*JOBKIT, "collect", str(write_run(folder, records))]
        timing = middle([once(argv) for _ in range(runs)])
        each, rss = timing["wall_s"] / records * 1e6, timing["maxrss_bytes"] / 2**20
        what = f"`jobkit collect` of {records:,} records ({each:.0f} µs each, {rss:.0f} MiB at most)"
        row = below(what, timing["wall_s"], MOST_S, {**timing})
        plain = Row(what=what, shown=f"{timing['wall_s']:.2f} s", raw=row.raw)
        rows.append(row if records == 10_000 else plain)
    return rows


def _beside_peers(folder: Path) -> list[Row]:
    controller = start(folder / "slurm")
    account(controller, POINTS)
    run = folder / f"run-{POINTS}"
    write_results(folder / "submitit", [asdict(record(point)) for point in read_points(run)])
    flow = folder / "flow"
    flow.mkdir()
    env = controller.environment
    once(peer("with_flow", "init", flow), env=env)
    rows = []
    for verb, what in (("states", "state of every point, one call"), ("results", "result of every point")):
        argvs = {
            "jobkit": peer("with_jobkit", verb, folder, run),
            "submitit": peer("with_submitit", verb, folder / "submitit"),
            "signac-flow": peer("with_flow", verb, flow),
        }
        found: dict[str, list[Timing]] = {name: [] for name in argvs}
        for _ in range(RUNS):
            for name, argv in argvs.items():
                found[name].append(once(argv, env=env))
        rows += _rows(what, found)
    return rows


def _rows(what: str, found: dict[str, list[Timing]]) -> list[Row]:
    walls = {name: median(timing.wall_s for timing in timings) for name, timings in found.items()}
    ratio = walls["jobkit"] / min(walls["submitit"], walls["signac-flow"])
    rows = [
        Row(what=f"{name}: {what}", shown=f"{walls[name]:.3f} s", raw=_raw(timings))
        for name, timings in found.items()
    ]
    target = Row(what="jobkit to the faster of the two", shown=f"{ratio:.2f}", target="≤ 1", met=ratio <= 1)
    return [*rows, target]


def _raw(timings: Sequence[Timing]) -> dict[str, object]:
    """Return the whole process's figures, and the work without start and imports of the library."""
    return {**middle(timings), "work_s": median(json.loads(timing.stdout)["work_s"] for timing in timings)}
