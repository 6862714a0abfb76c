"""Sizes, durations and counts as people and schedulers write them; bytes and seconds inside."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from jobkit.core.errors import JobkitError

MIB = 2**20
GIB = 2**30
MAX_BYTES = 2**60
"""No machine holds more; schedulers count in 64 bits."""
MAX_SECONDS = 10 * 365 * 86400
"""Ten years: no job runs longer; Grid Engine counts seconds in 32 bits."""

SIZE_UNITS = {
    "B": 1,
    **{f"{letter}{tail}": 1024**power for power, letter in enumerate("KMGT", 1) for tail in ("iB", "")},
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)},
}
"""``GiB`` and ``G`` are 2**30, as Slurm (sbatch(1), ``--mem``) and Grid Engine (sge_types(1)) mean ``G``;
only ``GB`` is 10**9. Case counts: Grid Engine's ``g`` is 10**9, so a lone ``g`` is refused."""

DURATION_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_size(text: str) -> int:
    """Return ``8GiB`` or ``30GB`` in bytes; refuse a bare number: schedulers disagree on what it means."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)", text.strip(), re.ASCII)
    scale = SIZE_UNITS.get(match[2]) if match else None
    if match is None or scale is None:
        hint = "a number and a unit, for instance 30GiB (or G, 2**30 bytes), 512MiB, 30GB (10**9 bytes)"
        raise JobkitError(f"size {text!r}: not understood", hint=hint)
    size_bytes = int(Decimal(match[1]) * scale)
    if size_bytes <= 0:
        raise JobkitError(f"size {text!r}: must be more than 0", hint="for instance 30GiB")
    if size_bytes > MAX_BYTES:
        raise JobkitError(f"size {text!r}: more than any machine has", hint="for instance 30GiB")
    return size_bytes


def parse_duration(text: str) -> int:
    """Return ``00:10:00``, ``1-12:00:00`` or ``90m`` in seconds.

    ``MM:SS`` is refused: Slurm reads it as minutes, people read it as hours.
    """
    count = re.fullmatch(r"(\d{1,18}) ?([smhd])", text.strip(), re.ASCII)
    clock = re.fullmatch(r"(?:(\d{1,18})-)?(\d{1,18}):([0-5]\d):([0-5]\d)", text.strip(), re.ASCII)
    if count:
        duration_s = int(count[1]) * DURATION_UNITS[count[2]]
    elif clock and not (clock[1] and int(clock[2]) > 23):
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        duration_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    else:
        hint = "HH:MM:SS, D-HH:MM:SS, or a number with s, m, h or d; for instance 00:10:00 or 90m"
        raise JobkitError(f"duration {text!r}: not understood", hint=hint)
    if duration_s == 0:
        raise JobkitError(f"duration {text!r}: must be more than 0", hint="for instance 00:10:00")
    if duration_s > MAX_SECONDS:
        raise JobkitError(f"duration {text!r}: more than ten years", hint="for instance 00:10:00")
    return duration_s


SECONDS_PATTERN = r"^\s*\d+(\.\d+)? ?(ms|s)\s*$"


def parse_seconds(text: str) -> float:
    if not re.fullmatch(SECONDS_PATTERN, text):
        raise JobkitError(f"time {text!r}: not understood", hint="a number with s or ms; for instance 500ms")
    number, unit = text.strip().rstrip("ms").strip(), text.strip()
    seconds = float(number) / (1000 if unit.endswith("ms") else 1)
    if not seconds:
        raise JobkitError(f"time {text!r}: must be more than 0", hint="for instance 500ms")
    return seconds


def format_seconds(seconds: float) -> str:
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def format_walltime(duration_s: float) -> str:
    """Return seconds, rounded up, as ``HH:MM:SS``; hours go past 24, because Grid Engine knows no days."""
    whole = math.ceil(duration_s)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def format_took(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else format_walltime(seconds)


def format_clock(duration_s: float) -> str:
    """Return seconds as a clock shows them: ``0:07``, ``12:30``, ``1:02:03``; hours go past 24."""
    minutes, seconds = divmod(math.ceil(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def format_hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 1 else f"{hours:.2g}"


def format_about(duration_s: float) -> str:
    """Return seconds as a rough figure with units: ``45 s``, ``24 min``, ``5 h 20 min``, ``3 d 4 h``."""
    minutes = round(duration_s / 60)
    if duration_s < 90:
        return f"{math.ceil(duration_s)} s"
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 36 else f"{hours // 24} d {hours % 24} h"


def format_compared(duration_s: float) -> str:
    """Return seconds to about 1 %, to be compared with another figure."""
    if duration_s < 600:
        digits = 2 if duration_s < 10 else 1 if duration_s < 100 else 0
        return f"{duration_s:.{digits}f} s"
    return f"{duration_s / 60:.1f} min" if duration_s < 5400 else format_about(duration_s)


def format_moment(text: str) -> str:
    """Return an ISO timestamp as local time, ``2026-01-02 10:15:30``; any other text unchanged."""
    at = moment(text)
    return text if at is None else f"{at:%Y-%m-%d %H:%M:%S}"


def pauses(first_s: float, slowest_s: float) -> Iterator[float]:
    """Yield the waits between looks, each 1.3 times the one before, up to the slowest."""
    pause_s = first_s
    while True:
        yield pause_s
        pause_s = min(slowest_s, pause_s * 1.3)


def format_setting(params: Mapping[str, int | str]) -> str:
    """Return the values of knobs in words: ``batch_size 50``."""
    return ", ".join(
        f"{knob} {value if isinstance(value, str) else f'{value:,}'}" for knob, value in params.items()
    )


def format_count(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def format_short(value: float) -> str:
    """Return a number in few characters, for an axis: ``0.5``, ``300``, ``47k``, ``2.5M``."""
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= scale:
            return f"{value / min(scale, 10 ** (3 * int(math.log10(scale) // 3))):g}{letter}"
    return f"{value:g}"


def format_figure(value: float) -> str:
    """Return a number with four digits, or all of a larger one: ``0.0123``, ``48.37``, ``87,752``."""
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def format_f1(f1: float) -> str:
    """Return an F1 with four places, rounded down: only a perfect one reads as 1."""
    return f"{math.floor(f1 * 10_000) / 10_000:.4f}"


MOST_NAMED = 5  # names or lines of a list in a message


def format_list(names: Sequence[str], most: int = MOST_NAMED) -> str:
    """Return the first names, and the number of others: ``p001, p002 and 3 more``."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def first_lines(lines: Sequence[str], most: int = MOST_NAMED) -> list[str]:
    """Return the first lines, and as the last the number of others: ``and 3 more``."""
    return [*lines[:most], *([f"and {len(lines) - most:,} more"] if len(lines) > most else [])]


def format_bytes_gib(size_bytes: float, digits: int = 2) -> str:
    return f"{size_bytes / GIB:,.{digits}f} GiB"


def format_memory(size_bytes: float) -> str:
    """Return bytes for a sentence: ``7.08 GiB``, or ``150.0 MiB`` below 1 GiB."""
    return format_bytes_gib(size_bytes) if size_bytes >= GIB else f"{size_bytes / MIB:,.1f} MiB"


def format_energy(energy_j: float) -> str:
    """Return joules in three digits: ``34.1 J``, ``12.3 kJ``, ``7.20 MJ (2.00 kWh)``."""
    scale, unit = (1e6, "MJ") if abs(energy_j) >= 1e6 else (1e3, "kJ") if abs(energy_j) >= 1e4 else (1.0, "J")
    kwh = f" ({energy_j / 3.6e6:,.2f} kWh)" if unit == "MJ" else ""
    value = abs(energy_j / scale)
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{energy_j / scale:,.{digits}f} {unit}{kwh}"


def format_size(size_bytes: int) -> str:
    """Return bytes exactly, in the largest whole unit, as `parse_size` reads them back."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size_bytes and size_bytes % SIZE_UNITS[unit] == 0:
            return f"{size_bytes // SIZE_UNITS[unit]}{unit}"
    return f"{size_bytes}B"


def moment(text: str) -> datetime | None:
    """Parse an ISO timestamp; ``None`` if it is none. Without a zone it is local time, as of schedulers."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        return None
