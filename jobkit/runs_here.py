"""The runs of a folder of runs, the latest first, and what the command line means by a RUN and a POINT."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from jobkit.errors import JobkitError
from jobkit.nearest import advice
from jobkit.records import POINTS_FILE, RESULTS_FOLDER
from jobkit.run_folder import is_run_folder

RUNS = Path("runs")
NO_RUNS = "make one first: jobkit sweep sweeps/demo.yaml"
_STAMP = re.compile(r"-(\d{8}-\d{6})-[0-9a-f]{4}$")


@dataclass(frozen=True, slots=True)
class Named:
    """What the words of a command line name.

    Attributes
    ----------
    runs
        Run folders; nothing for the latest of ``folder``.
    points
        Of the one run, numbers or ids.
    folder
        A folder of runs.
    """

    runs: tuple[Path, ...] = ()
    points: tuple[str, ...] = ()
    folder: Path = RUNS


@dataclass(frozen=True, slots=True)
class Glance:
    """A run at a glance: no scheduler is asked, and no record is read.

    Attributes
    ----------
    points
        How many it has.
    begun
        How many have begun, ever.
    """

    folder: Path
    points: int
    begun: int


def named(words: Sequence[str]) -> Named:
    """Return what words name: a word that is no run folder is a point of the run before it.

    Parameters
    ----------
    words
        Run folders, names of runs under ``runs/``, and behind a single run numbers or ids of points;
        or one folder that holds runs; or nothing, for the folder where sweeps go from here.

    Raises
    ------
    JobkitError
        Where the first word is no run, or points are behind several runs.
    """
    if not words:
        return Named(folder=_usual())
    if len(words) == 1 and Path(words[0]).is_dir() and not _run(words[0]):
        return Named(folder=Path(words[0]))
    runs: list[Path] = []
    points: list[str] = []
    for word in words:
        found = _run(word)
        if found:
            runs.append(found)
        elif runs:
            points.append(word)
        else:
            raise _no_run(word)
    if points and len(runs) > 1:
        message = f"{points[0]}: not a run folder, and a point is named behind one run alone"
        raise JobkitError(message, hint="jobkit status RUN POINT")
    return Named(tuple(runs), tuple(points))


def _usual() -> Path:
    """Return where a sweep from here puts its runs: ``runs/``, unless only the site says where."""
    if RUNS.is_dir():
        return RUNS
    # Imported here: a site file takes pydantic, which a run that is named does not need.
    from jobkit.found import choose_scheduler
    from jobkit.site import load_site

    try:
        told = load_site("auto", choose_scheduler("auto")[0]).runs_dir
    except JobkitError:
        told = None
    return Path(os.path.expandvars(told)).expanduser() if told else RUNS


def _run(word: str) -> Path | None:
    return next((path for path in (Path(word), RUNS / word) if is_run_folder(path)), None)


def _no_run(word: str) -> JobkitError:
    known = [path.name for path in RUNS.iterdir()] if RUNS.is_dir() else []
    close = advice(Path(word).name, known)
    return JobkitError(
        f"{word}: not a run folder", hint=close or "jobkit status, alone, lists the runs of runs/"
    )


def runs_in(folder: Path) -> list[Path]:
    """Return the run folders in a folder, the latest first: by the time in the name, else of the folder.

    Raises
    ------
    JobkitError
        Where the folder cannot be read.
    """
    try:
        found = [path for path in folder.iterdir() if is_run_folder(path)]
    except OSError as error:
        raise JobkitError(f"no runs in {folder}: {error.strerror}", hint=NO_RUNS) from error
    if not found:
        raise JobkitError(f"no runs in {folder}", hint=NO_RUNS)
    return sorted(found, key=_when, reverse=True)


def _when(run: Path) -> str:
    found = _STAMP.search(run.name)
    if found:
        return found[1]
    made = datetime.fromtimestamp((run / POINTS_FILE).stat().st_mtime).astimezone()
    return made.strftime("%Y%m%d-%H%M%S")


def glance(run: Path) -> Glance:
    """Return a run at a glance."""
    points = (run / POINTS_FILE).read_bytes().count(b"\n")
    begun = 0
    with suppress(OSError):
        begun = len(os.listdir(run / RESULTS_FOLDER))  # noqa: PTH208 - names only
    return Glance(run, points, min(begun, points))
