"""A line of a benchmark's table."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field


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

    def as_dict(self) -> dict[str, object]:
        """Return the row as JSON has it."""
        return asdict(self)


def below(what: str, value_s: float, most_s: float, raw: dict[str, object]) -> Row:
    """Return a row whose figure, in seconds, is held below a limit."""
    return Row(what=what, shown=f"{value_s:.3f} s", target=f"< {most_s:g} s", met=value_s < most_s, raw=raw)
