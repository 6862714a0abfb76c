"""``python -m benchmarks.next_to --peers BIN [ROW|ROW/PROGRAM...]``: run the commands of rows.yaml.

BIN is the ``bin`` of an environment with the programs that rows.yaml names. Slurm and Grid Engine are
practice clusters, which start here and end at the end. The raw data is written after each cell. A cell
that the raw data confirms already, with the same commands and versions, is not run again, unless its row
is named.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from benchmarks.next_to.cells import RECORDS, Bench, Cell, practice
from benchmarks.raw import describe

ROWS = Path(__file__).with_name("rows.yaml")
OUT = RECORDS / "next-to.json"


def main() -> None:
    """Run the cells, all by default, and write the raw data; exit with 1 if one is not confirmed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` ends cell and cluster
    table = yaml.safe_load(ROWS.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="jk-", ignore_cleanup_errors=True) as folder:
        bench = Bench(table, Path(folder), options.peers.absolute())
        confirmed = [
            run_rows(bench, scheduler, options.rows, options.out) for scheduler in (None, "slurm", "sge")
        ]
    sys.exit(not all(confirmed))


def run_rows(bench: Bench, scheduler: str | None, words: list[str], out: Path) -> bool:
    """Run and store the cells of the rows of a scheduler, and return whether all are confirmed."""
    done = {} if words else confirmed_cells(out)
    chosen = [
        (name, program)
        for name, row in bench.table["rows"].items()
        for program in row["cells"]
        if row.get("scheduler") == scheduler
        and (not words or name in words or f"{name}/{program}" in words)
        and done.get((name, program)) != bench.key(name, program)
    ]
    if not chosen:
        return True
    with practice(scheduler, bench.folder / "c") as cluster:
        cells = []
        for name, program in chosen:
            cells.append(bench.run(name, program, cluster))
            store(cells[-1], out, bench.table)
            line = f"{name:10} {program:12} {cells[-1].answer:7} {cells[-1].seconds:5.1f} s "
            sys.stderr.write(f"{line} {'confirmed' if cells[-1].confirmed else 'NOT confirmed'}\n")
    return all(cell.confirmed for cell in cells)


def confirmed_cells(out: Path) -> dict[tuple[str, str], Any]:
    """Return what the confirmed cells of the raw data ran, with which versions."""
    cells = json.loads(out.read_text(encoding="utf-8"))["cells"] if out.exists() else []
    return {
        (cell["row"], cell["program"]): (cell["answer"], cell["command"], cell["shows"], cell["versions"])
        for cell in cells
        if cell["confirmed"]
    }


def store(cell: Cell, out: Path, table: dict[str, Any]) -> None:
    """Write a cell to the raw data, in place of an earlier result of the same cell."""
    earlier = json.loads(out.read_text(encoding="utf-8"))["cells"] if out.exists() else []
    cells = {(one["row"], one["program"]): one for one in earlier}
    cells[cell.row, cell.program] = asdict(cell)
    order = [(name, program) for name, row in table["rows"].items() for program in row["cells"]]
    raw = {
        "command": "python -m benchmarks.next_to --peers peers/bin",
        "machine": describe(),
        "cells": [cells[key] for key in order if key in cells],
    }
    out.write_text(json.dumps(raw, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
