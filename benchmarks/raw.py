"""The raw data of a benchmark: what was measured, how, when, and on what."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.machine import describe
from benchmarks.row import Row


def write(path: Path, title: str, command: str, measure: Callable[[Path], Sequence[Row]]) -> None:
    """Measure in a folder of its own, and write what came out as JSON.

    Parameters
    ----------
    path
        The file.
    title, command
        What the page shows over and under the table.
    measure
        Gets an empty folder, which is removed afterwards.
    """
    begun = {"title": title, "command": command, "machine": describe()}
    with tempfile.TemporaryDirectory(prefix="jobkit-bench-") as folder:
        rows = [row.as_dict() for row in measure(Path(folder))]
    told = {**begun, "date": datetime.now(UTC).date().isoformat(), "rows": rows}
    path.write_text(json.dumps(told, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
