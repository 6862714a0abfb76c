"""A fake Slurm: programs on PATH that answer after a fixed time and write down each call."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ANSWER_S = 0.005
MAX_ARRAY_SIZE = 301

_HEAD = """#!/bin/sh
echo "${{0##*/}} $*" >>{calls}
sleep {answer_s}
"""

_BODIES = {
    "sbatch": """case "$*" in
  *--version*) echo "slurm 22.05.8" ;;
  *--test-only*) echo "sbatch: Job 1 to start at 2026-01-02T10:15:30" >&2 ;;
  *--parsable*) echo 4711 ;;
  *) echo "Submitted batch job 4711" ;;
esac
""",
    "scontrol": """echo "MaxArraySize            = {max_array_size}"
echo "MaxJobCount             = 200000"
""",
    "sinfo": 'echo "main*|infinite|gpu:2"\n',
    "sacctmgr": "exit 0\n",
    "srun": "exit 0\n",
    "sacct": "exit 0\n",
    "squeue": "exit 0\n",
}


@dataclass(frozen=True, slots=True)
class Controller:
    """The programs' folder and the file of their calls."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment of this process, with the programs first on PATH."""
        return {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}

    def calls(self) -> Counter[str]:
        """Return how often each program was called since the last time, and forget it."""
        path = self.folder / "calls"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return Counter(_name(line) for line in lines)


def _name(line: str) -> str:
    program, _, rest = line.partition(" ")
    return f"{program} --test-only" if "--test-only" in rest else program


def start(folder: Path) -> Controller:
    """Write the programs into a folder."""
    (folder / "bin").mkdir(parents=True)
    for name, body in _BODIES.items():
        path = folder / "bin" / name
        head = _HEAD.format(calls=folder / "calls", answer_s=ANSWER_S)
        path.write_text(head + body.format(max_array_size=MAX_ARRAY_SIZE), encoding="utf-8")
        path.chmod(0o755)
    return Controller(folder)
