# ruff: noqa: T201 - it prints the differences
"""``python -m tests.golden`` shows where answers differ from the record; ``--update`` writes the record."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.golden.record import answer, cases, difference, project, update

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[1:] == ["--update"]:
            print("\n".join(update(Path(folder))) or "nothing has changed")
        else:
            with project(Path(folder)) as here:
                print(
                    "\n".join(filter(None, (difference(case.file, answer(case, here)) for case in cases())))
                )
