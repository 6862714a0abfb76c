"""Submission of 1,000 points to a controller that answers in 5 ms: what jobkit itself takes."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median

from benchmarks.controller import ANSWER_S, MAX_ARRAY_SIZE, start
from benchmarks.raw import Row, below
from benchmarks.runs import write_spec
from benchmarks.timing import JOBKIT, once

TITLE = "Submission of 1,000 points"
POINTS = 1000
RUNS = 7
CLIENT_S = 0.5


def measure(folder: Path) -> list[Row]:
    """Return the medians of the client's time and of the wall time, and the calls counted."""
    controller = start(folder / "slurm")
    argv = [*JOBKIT, "sweep", str(write_spec(folder, POINTS)), "--new", "--runs-dir", str(folder / "runs")]
    walls, clients = [], []
    for _ in range(RUNS):
        walls.append(once(argv, env=controller.environment, cwd=folder).wall_s)
        calls = controller.calls()
        clients.append(walls[-1] - calls.total() * ANSWER_S)
    arrays = math.ceil(POINTS / (MAX_ARRAY_SIZE - 1))
    what = "`jobkit sweep`: client time (wall less 5 ms a call)"
    return [
        below(what, median(clients), CLIENT_S, {"client_s": clients, "wall_s": walls}),
        Row(
            what=f"`jobkit sweep`: sbatch calls, for arrays of {MAX_ARRAY_SIZE - 1} and a job that follows",
            shown=f"{calls['sbatch']}",
            target=f"{arrays} + 1",
            met=calls["sbatch"] == arrays + 1,
            raw={"calls": dict(calls)},
        ),
        Row(what="`jobkit sweep`: wall", shown=f"{median(walls):.3f} s"),
    ]
