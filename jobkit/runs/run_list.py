"""What `jobkit status --list` prints: all runs of a user, from every project, the latest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from jobkit.core.blocks import Column, table
from jobkit.core.errors import JobkitError
from jobkit.core.terminal import relative_path
from jobkit.core.units import format_about, format_count
from jobkit.runs.queue import OpenRun, open_run
from jobkit.runs.reader import standings_of
from jobkit.runs.standing import RunStanding, count_by_state
from jobkit.runs.status_text import cut
from jobkit.runs.which_run import find_run, is_run, remembered, runs_in, start, usual

SCHEMA = 1
MOST_LEFT_OUT = 3  # folders without a run that are named one by one


@dataclass(frozen=True, slots=True)
class ListedRun:
    name: str  # as every command takes it: the name of the folder, or its path if another run has that name
    standing: RunStanding
    began: datetime

    @property
    def age_s(self) -> float:
        return max(0.0, (self.standing.now - self.began).total_seconds())


@dataclass(frozen=True, slots=True)
class RunList:
    runs: tuple[ListedRun, ...]  # the latest first
    older: int  # how many more there are
    left_out: tuple[str, ...]  # A line for each folder that cannot be read


def read_list(most: int) -> RunList:
    """Return the latest runs: those that jobkit remembers, and those in the folder for runs."""
    left_out: list[str] = []
    opened: list[OpenRun] = []
    found = sorted(_folders(left_out), key=start, reverse=True)
    for folder in found[:most]:
        try:
            opened.append(open_run(folder))
        except (OSError, JobkitError) as error:
            left_out.append(_why(folder, getattr(error, "message", str(error))))
    runs = (ListedRun(_name(run.folder), run, start(run.folder)) for run in standings_of(opened))
    return RunList(tuple(runs), max(0, len(found) - most), tuple(left_out))


def _folders(left_out: list[str]) -> Iterator[Path]:
    """Yield the run folders, each once; those that are no run any more become lines."""
    try:
        here = [run.absolute() for run in runs_in(usual())]
    except JobkitError:
        here = []
    for folder in dict.fromkeys([*remembered(), *here]):
        if is_run(folder):
            yield folder
        else:
            left_out.append(_why(folder, "no longer exists, or cannot be read"))


def _name(folder: Path) -> str:
    """Return the name of a run as every command takes it, else its path."""
    try:
        found = find_run(folder.name)
    except JobkitError:  # several runs have this name
        found = None
    return folder.name if found and found.absolute() == folder else str(folder)


def _why(folder: Path, reason: str) -> str:
    return f"left out: {relative_path(folder)}: {reason.removeprefix(f'{folder}: ')}"


def as_text(listed: RunList, width: int) -> str:
    """Return the list as printed: a line for each run, then what is not in it."""
    runs = listed.runs
    columns = [
        Column("run", [run.name for run in runs], left=True),
        Column("age", [format_about(run.age_s) for run in runs]),
        Column("state", [count_by_state(run.standing) for run in runs], left=True),
    ]
    lines = [cut(line, width) for line in table(columns, rule=False)] if runs else ["no runs yet"]
    lines += [f"and {listed.older:,} older runs: --all lists them"] if listed.older else []
    lines += listed.left_out[:MOST_LEFT_OUT]
    more = len(listed.left_out) - MOST_LEFT_OUT
    lines += [f"left out: {format_count(more, 'more folder')}"] if more > 0 else []
    return "".join(f"{line}\n" for line in lines)


def as_json(listed: RunList) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "runs": [
            {
                "run": run.name,
                "folder": str(run.standing.folder),
                "state": count_by_state(run.standing),
                "exit_code": run.standing.exit_code,
                "age_s": run.age_s,
            }
            for run in listed.runs
        ],
        "older": listed.older,
        "notes": list(listed.left_out),
    }
