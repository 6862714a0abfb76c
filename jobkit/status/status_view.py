"""What `jobkit status` shows of what its words name, for a person or a program."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from jobkit.core import folded
from jobkit.core.units import format_count
from jobkit.status.in_words import find_point
from jobkit.status.runs_here import Glance, glance
from jobkit.status.status import PointStatus, RunStatus
from jobkit.status.status_json import point_json, run_json
from jobkit.status.status_point import render_point
from jobkit.status.status_report import headline, plain, render
from jobkit.status.try_status import tries_of

SCHEMA = 1
MOST_OTHERS = 10


def text(
    found: Sequence[RunStatus], runs: Sequence[Path], points: Sequence[str], *, width: int, most: int
) -> str:
    """Return runs, or points of one, as printed.

    Parameters
    ----------
    runs
        Their folders as a person types them.
    points
        Numbers or ids; nothing for the runs themselves.
    width
        Columns of the terminal.
    most
        Of a run of more points only those are listed that want to be looked at.

    Raises
    ------
    JobkitError
        Where a word names no point.
    """
    if points:
        (run,), (folder,) = found, runs
        looks = [_point(run, word) for word in points]
        parts = [render_point(run, one, tries_of(run, one), str(folder), width=width) for one in looks]
        return "\n".join(parts)
    heads = "".join(f"{headline(one)}\n" for one in found) + "\n" if len(found) > 1 else ""
    pairs = zip(found, runs, strict=True)
    return heads + "\n".join(render(one, str(run), width=width, most=most) for one, run in pairs)


def others(runs: Sequence[Path]) -> str:
    """Return the other runs of a folder, a line each, the latest first; nothing where there are none."""
    if not runs:
        return ""
    glances = [glance(run) for run in runs[:MOST_OTHERS]]
    longest = max(len(str(one.folder)) for one in glances)
    lines = [f"  {plain(str(one.folder)).ljust(longest)}  {_begun(one)}" for one in glances]
    older = len(runs) - len(glances)
    lines += [f"  and {older:,} older"] if older else []
    return "".join(f"{line}\n" for line in ["", "other runs", *lines])


def _begun(one: Glance) -> str:
    begun = "all begun" if one.begun == one.points > 1 else f"{one.begun:,} begun"
    return f"{format_count(one.points, 'point')}, {begun}"


def as_json(
    found: Sequence[RunStatus], runs: Sequence[Path], points: Sequence[str], others: Sequence[Path] = ()
) -> str:
    """Return the same for programs, on one line; docs/commands.md tells the keys.

    Raises
    ------
    JobkitError
        Where a word names no point.
    """
    data: dict[str, object] = {"schema": SCHEMA, "at": datetime.now(UTC).isoformat(timespec="seconds")}
    if points:
        (run,) = found
        looks = [_point(run, word) for word in points]
        data |= {"run": run.name, "points": [point_json(one, tries_of(run, one)) for one in looks]}
    else:
        data["runs"] = [run_json(one, str(run)) for one, run in zip(found, runs, strict=True)]
        glances = [glance(run) for run in others]
        data["others"] = [
            {"run": one.folder.name, "folder": str(one.folder), "points": one.points, "begun": one.begun}
            for one in glances
        ]
    return folded.as_json(data)


def _point(run: RunStatus, word: str) -> PointStatus:
    """Return the point that a word names."""
    index = find_point(run.seen.points, word).point.index
    return next(one for one in run.points if one.look.point.index == index)
