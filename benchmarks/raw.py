"""What a benchmark measures: its rows, how, when, and on what they were measured; and tables of Markdown."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was measured once, and what was hoped for.

    Attributes
    ----------
    what
        In a few words.
    shown
        The figure for a reader, with its unit.
    target
        What it is held against, empty for a figure that only stands next to others.
    met
        ``None`` where there is no target.
    raw
        All that was measured, by name, with units in the names.
    """

    what: str
    shown: str
    target: str = ""
    met: bool | None = None
    raw: dict[str, object] = field(default_factory=dict)


def below(what: str, value_s: float, most_s: float, raw: dict[str, object]) -> Row:
    """Return a row whose figure, in seconds, is held below a limit."""
    return Row(what=what, shown=f"{value_s:.3f} s", target=f"< {most_s:g} s", met=value_s < most_s, raw=raw)


def write(path: Path, title: str, command: str, measure: Callable[[Path], Sequence[Row]]) -> None:
    """Measure in a new folder, and write the rows as JSON, with the machine and the date."""
    begun = {"title": title, "command": command, "machine": describe()}
    with tempfile.TemporaryDirectory(prefix="jobkit-bench-") as folder:
        rows = [asdict(row) for row in measure(Path(folder))]
    data = {**begun, "date": datetime.now(UTC).date().isoformat(), "rows": rows}
    path.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def describe() -> dict[str, object]:
    """Return processor, cores, memory, load and Python: no names of hosts or people."""
    return {
        "processor": _value("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int((_value("/proc/meminfo", "MemTotal") or "0").split()[0]) / 2**20),
        "load_1min": os.getloadavg()[0],
        "python": platform.python_version(),
        "system": platform.system(),
    }


def _value(file: str, key: str) -> str | None:
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), None)


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of Markdown: its first column to the left, the others to the right."""
    lines = [f"| {' | '.join(heads)} |", "|---|" + "--:|" * (len(heads) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])
