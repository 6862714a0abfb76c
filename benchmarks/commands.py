"""How long a person waits for ``--help`` and for a preview: whole processes."""

from __future__ import annotations

from pathlib import Path

from benchmarks import controller
from benchmarks.raw import Row, below
from benchmarks.runs import write_spec
from benchmarks.timing import JOBKIT, middle, once

TITLE = "Commands"
RUNS = 7
HELP_S = 0.15
DRY_RUN_S = 0.5
HELPS = ((), ("sweep",), ("collect",), ("models",), ("models", "fetch"))


def measure(folder: Path) -> list[Row]:
    """Return the medians of seven runs each."""
    rows = []
    for words in HELPS:
        timing = middle([once([*JOBKIT, *words, "--help"]) for _ in range(RUNS)])
        rows.append(
            below(f"`{' '.join(['jobkit', *words, '--help'])}`", timing["wall_s"], HELP_S, {**timing})
        )
    env = controller.start(folder / "slurm").environment
    argv = [*JOBKIT, "sweep", str(write_spec(folder, 1000)), "--dry-run"]
    timing = middle([once(argv, env=env, cwd=folder) for _ in range(RUNS)])
    return [*rows, below("`jobkit sweep --dry-run`, 1,000 points", timing["wall_s"], DRY_RUN_S, {**timing})]
