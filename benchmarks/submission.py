"""Submission of 1,000 points to a controller that answers in 5 ms: jobkit, submitit, signac-flow."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.controller import ANSWER_S, MAX_ARRAY_SIZE, Controller, start
from benchmarks.raw import Row, below
from benchmarks.runs import write_spec
from benchmarks.timing import JOBKIT, Timing, once

TITLE = "Submission of 1,000 points"
POINTS = 1000
RUNS = 7
CLIENT_S = 0.5


def measure(folder: Path) -> list[Row]:
    """Return the medians of alternating runs, calls counted, and the ratio to the faster peer."""
    controller = start(folder / "slurm")
    env = controller.environment
    spec = write_spec(folder, POINTS)

    def jobkit() -> Timing:
        argv = [*JOBKIT, "sweep", str(spec), "--new", "--runs-dir", str(folder / "runs")]
        return once(argv, env=env, cwd=folder)

    def submitit() -> Timing:
        return once(peer("with_submitit", "submit", folder / "submitit"), env=env)

    found: dict[str, list[dict[str, object]]] = {"jobkit": [], "submitit": []}
    for _ in range(RUNS):
        found["jobkit"].append(_counted(controller, jobkit))
        found["submitit"].append(_counted(controller, submitit))
    (folder / "flow").mkdir()
    once(peer("with_flow", "init", folder / "flow"), env=env)
    controller.calls()
    flow = _counted(controller, lambda: once(peer("with_flow", "submit", folder / "flow"), env=env))
    return _rows(found, flow)


def peer(module: str, verb: str, folder: Path, *more: object) -> list[str]:
    """Return the command of a module of ``benchmarks.peers``."""
    return [
        sys.executable,
        "-m",
        f"benchmarks.peers.{module}",
        verb,
        str(folder),
        *map(str, more or (POINTS,)),
    ]


def _counted(controller: Controller, run: Callable[[], Timing]) -> dict[str, object]:
    timing = run()
    calls = dict(controller.calls())
    client_s = timing.wall_s - sum(calls.values()) * ANSWER_S
    told: dict[str, object] = {
        "wall_s": timing.wall_s,
        "client_s": client_s,
        "cpu_s": timing.cpu_s,
        "calls": calls,
    }
    return told | (json.loads(timing.stdout) if timing.stdout.startswith("{") else {})


def _median(runs: list[dict[str, object]], key: str) -> float:
    return median(float(str(run[key])) for run in runs)


def _rows(found: dict[str, list[dict[str, object]]], flow: dict[str, object]) -> list[Row]:
    client = _median(found["jobkit"], "client_s")
    walls = {name: _median(runs, "wall_s") for name, runs in found.items()}
    walls["signac-flow"] = float(str(flow["wall_s"]))
    calls = found["jobkit"][0]["calls"]
    submits = calls["sbatch"] if isinstance(calls, dict) else 0
    wanted = math.ceil(POINTS / (MAX_ARRAY_SIZE - 1))
    ratio = walls["jobkit"] / min(walls["submitit"], walls["signac-flow"])
    return [
        below(
            "`jobkit sweep`: client time (wall less 5 ms a call)", client, CLIENT_S, {"runs": found["jobkit"]}
        ),
        Row(
            what=f"`jobkit sweep`: sbatch calls, for arrays of {MAX_ARRAY_SIZE - 1} and a job that follows",
            shown=f"{submits}",
            target=f"{wanted} + 1",
            met=submits == wanted + 1,
            raw={"calls": calls},
        ),
        Row(what="`jobkit sweep`: wall", shown=f"{walls['jobkit']:.3f} s"),
        Row(
            what="submitit `map_array`: wall; one call, and one array whatever the limit",
            shown=f"{walls['submitit']:.3f} s",
            raw={"runs": found["submitit"]},
        ),
        Row(
            what="signac-flow `submit`: wall, once; one call a point, the project made before",
            shown=f"{walls['signac-flow']:.2f} s",
            raw=flow,
        ),
        Row(what="jobkit to the faster of the two", shown=f"{ratio:.2f}", target="≤ 1", met=ratio <= 1),
    ]
