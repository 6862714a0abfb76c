"""Tables of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table: its first column to the left, the others to the right."""
    lines = [f"| {' | '.join(heads)} |", "|---|" + "--:|" * (len(heads) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])
