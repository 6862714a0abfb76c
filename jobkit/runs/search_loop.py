"""The loop of every search: the results at home lead to the next point, until they lead to an answer.

A search is a file of its goal in the run folder, and a function that proposes the next point from what the
folder holds. So a search that was killed goes on where it was. Standard library only, for the node may have
no more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from jobkit.core.errors import JobkitError
from jobkit.core.files import append_line, exclusive_lock, read_text
from jobkit.core.json_codec import from_json, to_json
from jobkit.core.layout import POINTS_FILE, SEARCH_LOCK, read_points
from jobkit.core.records import Point

T = TypeVar("T")
Propose = Callable[[Path], Point | None]
"""Returns the point that the results of a run folder lead to; ``None`` once it has written the answer."""


def read_goal(kind: type[T], path: Path, hint: str) -> T:
    """Return the goal of a search; ``hint`` is the command that makes a run with such a file."""
    try:
        return from_json(kind, read_text(path), where=str(path))
    except OSError as error:
        raise JobkitError(f"{path}: {error.strerror}", hint=hint) from error


def next_point(run_dir: Path, propose: Propose) -> Point | None:
    """Return the point that a search runs next, appended to ``points.jsonl`` if it is new.

    One process at a time proposes. The caller has run the point before to its end.
    """
    with exclusive_lock(run_dir / SEARCH_LOCK, lambda: None):
        point = propose(run_dir)
        if point and point.index > max((one.index for one in read_points(run_dir)[0]), default=0):
            append_line(run_dir / POINTS_FILE, to_json(point))
        return point


def main(name: str, propose: Propose, notes: Callable[[Path, Point | None], Iterable[str]]) -> int:
    """Print the number of the next point, for the script of a search; ``notes`` are lines for its log."""
    run_dir = Path(sys.argv[1])
    try:
        point = next_point(run_dir, propose)
    except (JobkitError, OSError) as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 1
    sys.stderr.write("".join(f"{name}: {line}\n" for line in notes(run_dir, point)))
    sys.stdout.write(f"{point.index}\n" if point else "")
    return 0
