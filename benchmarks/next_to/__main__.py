# ruff: noqa: E501, S603, S607 - bash functions, and commands of rows.yaml
"""``python -m benchmarks.next_to [ROW|ROW/PROGRAM...] --peers BIN``: run the commands of rows.yaml.

BIN is the ``bin`` of an environment with the packages that rows.yaml names. Slurm and Grid Engine are
practice clusters, which start here and end at the end. The raw data is written after each cell; what
ran earlier stays in it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from benchmarks.machine import describe

ROWS = Path(__file__).with_name("rows.yaml")
DOCS = Path(__file__).parents[2] / "docs"
OUT = DOCS / "benchmarks" / "next-to.json"
CELL_S = 180
KEPT = 800
"""Characters of a cell's output that the raw data keeps: its end."""

PRELUDE = r"""
RFM='reframe -C settings.py -c check.py'
# The plugin starts srun without SLURM_CONF, which names the practice cluster: the jobs set it again.
SLURM_PLUGIN=(--executor slurm --slurm-init-seconds-before-status-checks 3 --seconds-between-status-checks 3
    --precommand "export SLURM_CONF=${SLURM_CONF:-}")
calls() { n=$(grep -v version calls.txt | grep -cv -e --test-only -e '-w v' || true)
    [[ $# == 0 ]] || n=$(grep -v -e --test-only -e '-w v' calls.txt | grep -c -e "$1" || true); echo "calls: $n"; }
ran() { echo "$(wc -l <ran.txt) runs of $(sort -u ran.txt | wc -l) settings"; }
settle() { while [[ $(squeue -h) ]]; do sleep 0.5; done; }
killed() { "$@" >/dev/null 2>&1 & while [[ ! -s ran.txt ]]; do sleep 0.05; done; kill -9 $!; wait $! 2>/dev/null; }
mentions() { f=$(python -c "import $1; print($1.__path__[0])"); echo "$(grep -rliE --include=*.py --exclude-dir=test* "$2" "$f" | wc -l) files of $1 mention $2"; }
touch calls.txt ran.txt
"""
WRAPPER = '#!/bin/bash\necho "{name} $*" >>{here}/calls.txt\nexec /usr/bin/{name} "$@"\n'


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What a command showed about one program."""

    row: str
    program: str
    answer: str
    command: str
    shows: str
    output: str
    confirmed: bool


def main() -> None:
    """Run the cells, all by default, and write the raw data; exit with 1 if one is not confirmed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    table = yaml.safe_load(ROWS.read_text(encoding="utf-8"))
    confirmed = True
    with tempfile.TemporaryDirectory(prefix="jk-") as folder:
        chosen = select(table["rows"], options.rows)
        for cell in run_rows(chosen, table["files"], Path(folder), options.peers.absolute()):
            store(cell, options.out, table)
            confirmed &= cell.confirmed
    sys.exit(not confirmed)


def select(rows: dict[str, Any], words: list[str]) -> dict[str, Any]:
    """Return the rows with the cells that ROW or ROW/PROGRAM name; all without any."""
    return {
        name: row | {"cells": cells}
        for name, row in rows.items()
        if (
            cells := {
                program: cell
                for program, cell in row["cells"].items()
                if not words or name in words or f"{name}/{program}" in words
            }
        )
    }


def store(cell: Cell, out: Path, table: dict[str, Any]) -> None:
    """Write a cell to the raw data, in place of an earlier result of the same cell."""
    earlier = json.loads(out.read_text(encoding="utf-8"))["cells"] if out.exists() else []
    cells = {(one["row"], one["program"]): one for one in earlier}
    cells[cell.row, cell.program] = asdict(cell) | {"date": datetime.now(UTC).date().isoformat()}
    order = [(name, program) for name, row in table["rows"].items() for program in row["cells"]]
    raw = {
        "command": "python -m benchmarks.next_to --peers peers/bin",
        "versions": table["versions"],
        "machine": describe(),
        "cells": [cells[key] for key in order if key in cells],
    }
    out.write_text(json.dumps(raw, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def run_rows(rows: dict[str, Any], files: dict[str, str], folder: Path, peers: Path) -> Iterator[Cell]:
    """Yield every cell of the rows; one scheduler is up at a time."""
    for scheduler in (None, "slurm", "sge"):
        mine = {name: row for name, row in rows.items() if row.get("scheduler") == scheduler}
        with practice(scheduler if mine else None, folder / "c") as exports:
            for name, row in mine.items():
                for program, cell in row["cells"].items():
                    here = folder / f"{name}-{program}"
                    lay_out(here, files)
                    output = run_cell(cell["run"].replace("{here}", str(here)), here, exports, peers)
                    confirmed = re.search(cell["shows"], output) is not None
                    sys.stderr.write(f"{name:10} {program:12} {cell['answer']:7} {confirmed}\n")
                    output = (
                        output.replace(str(here), ".")
                        .replace(str(DOCS), "docs")
                        .replace(str(peers.parent), "peers")[-KEPT:]
                    )
                    yield Cell(
                        row=name,
                        program=program,
                        answer=cell["answer"],
                        command=cell["run"],
                        shows=cell["shows"],
                        output=output,
                        confirmed=confirmed,
                    )


@contextmanager
def practice(scheduler: str | None, folder: Path) -> Iterator[str]:
    """Start a practice cluster, yield the lines that make its commands find it, and end it."""
    if scheduler is None:
        yield ""
        return
    jobkit = [sys.executable, "-m", "jobkit", "practice"]
    subprocess.run([*jobkit, "up", scheduler, "--dir", str(folder)], check=True, stdout=sys.stderr)
    try:
        told = subprocess.run(
            [*jobkit, "env", "--dir", str(folder)], check=True, capture_output=True, text=True
        )
        yield told.stdout
    finally:
        subprocess.run([*jobkit, "down", "--dir", str(folder)], check=True, stdout=sys.stderr)


def lay_out(here: Path, files: dict[str, str]) -> None:
    """Make the folder of a cell, with the files of rows.yaml, and submit commands that are counted."""
    (here / "bin").mkdir(parents=True)
    for name, text in files.items():
        (here / name).write_text(text.format(here=here), encoding="utf-8")
    for name in ("sbatch", "qsub"):
        wrapper = here / "bin" / name
        wrapper.write_text(WRAPPER.format(here=here, name=name), encoding="utf-8")
        wrapper.chmod(0o755)


def run_cell(command: str, here: Path, exports: str, peers: Path) -> str:
    """Run a command in its folder, and return what it printed."""
    ours = Path(sys.executable).parent
    (here / "bin" / "jobkit").symlink_to(ours / "jobkit")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("JOBKIT", "RFM"))}
    env |= {
        "PATH": f"{here / 'bin'}:{peers}:{env['PATH']}",
        "HOME": str(here),
        "XDG_CACHE_HOME": str(here / "cache"),
        "JOBKIT_CACHE": str(here / "cache"),
        "DOCS": str(DOCS),
        "NO_COLOR": "1",
        "RFM_COLORIZE": "n",
        "RFM_ENABLE_RESULTS_STORAGE": "1",
        "SECONDS_EACH": "0",
        "SUBMIT": "sh",
    }
    done = subprocess.run(
        ["timeout", str(CELL_S), "bash", "-c", f"{exports}\n{PRELUDE}\n{command}"],
        cwd=here,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


if __name__ == "__main__":
    main()
