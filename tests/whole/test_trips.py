"""How far five commands travel through jobkit: a reader who follows one goes the same way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import trip

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "benchmarks" / "records" / "gpu"
RUN = min(RUNS.iterdir())
COMMANDS = {
    "recommend": ("recommend", RUN),
    "report": ("report", RUN),
    "sweep": ("sweep", ROOT / "sweeps" / "demo.yaml", "--dry-run"),
    "collect": ("collect", RUN),
    "status": ("status", RUN),
}
SIZES = ("functions", "modules", "types")
# What each takes now, and little more. A later feature may raise a figure, with its reason.
# A class that is defined as its module is imported counts as a function: of joined modules all are.
# `recommend` and `collect` ask Figure, Setting and Mean, each with small functions of its own, for what five
# lists of figures and eight places that averaged knew before.
CEILINGS = {
    # Every command asks which host runs it (core/host.py); status refuses the copy of a run on a cluster.
    # It ends with the command for the corpus; answer, limit and details are apart, for the page.
    # What a try requested is computed by the retry rule alone. Points and runs have a kind, which is a type.
    "recommend": (632, 80, 91),
    # It folds what is not the answer, and draws legends, searches and tries (html/pictures.py).
    # Its last line is the next command, by the outcomes that the page has.
    "report": (862, 90, 119),
    "sweep": (408, 86, 52),  # the list of commands is a module with a type
    "collect": (450, 58, 60),  # it ends with the next command, and leaves out jobkit's own folders
    # its table is laid out by core/blocks.py, as every other table is; hints.py computes walltime and memory
    "status": (285, 34, 43),
}


def travel(home: Path, command: str) -> tuple[int, ...]:
    """Run a command in a fresh Python, without a program on PATH; return the sizes of its trip."""
    environment = {"HOME": str(home), "PATH": str(home / "no-programs"), "LANG": "C.UTF-8", "COLUMNS": "140"}
    argv = [sys.executable, "-P", trip.__file__, "trip.json", *COMMANDS[command]]
    done = subprocess.run(argv, cwd=home, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((home / "trip.json").read_text(encoding="utf-8"))
    return tuple(len(found[size]) for size in SIZES)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home whose cache has the text of the demo: a dry run writes to a cache that exists."""
    place = tmp_path_factory.mktemp("home")
    (place / ".cache" / "jobkit").mkdir(parents=True)
    travel(place, "sweep")
    return place


@pytest.mark.parametrize("command", CEILINGS)
def test_no_command_travels_further_than_its_ceiling(home: Path, command: str) -> None:
    found = travel(home, command)
    further = [
        size for size, number, most in zip(SIZES, found, CEILINGS[command], strict=True) if number > most
    ]
    assert further == [], f"{found}; python -m tests.support.trip FILE COMMAND lists them"
