"""Which run and points the words of a command line name; the runs of a folder, the latest first."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from jobkit.core.errors import JobkitError, NotFoundError, lost_file
from jobkit.core.files import append_line, read_text
from jobkit.core.frozen import frozen
from jobkit.core.host import note_begun
from jobkit.core.layout import COPY_FILE, JOURNAL_FILE, POINTS_FILE, RESULTS_FOLDER, is_run_folder
from jobkit.core.paths import config_folder, runs_path, shipped_folder
from jobkit.core.terminal import did_you_mean, relative_path, shell_path
from jobkit.core.terminal import shell_quote as quoted
from jobkit.core.units import format_list
from jobkit.runs.results import runs_below
from jobkit.runs.status import kind_of

RUNS = Path("runs")
_STAMP = re.compile(r"-(\d{8}-\d{6})-[0-9a-f]{4}$")


@frozen
class RunAndPoints:
    runs: tuple[Path, ...] = ()  # run folders; nothing for the latest of ``folder``
    points: tuple[str, ...] = ()  # numbers or ids, of a single run
    folder: Path = RUNS  # A folder of runs


def resolve_words(words: Sequence[str]) -> RunAndPoints:
    """Return what words name; a word that is no run folder is a point of the run before it.

    They are run folders, names of runs as for `run_named`, and after a single run numbers or ids of points;
    or one folder that holds runs; or nothing, for the folder where sweeps go from here. A number that is no
    run is a point of the latest run.
    """
    if not words:
        return RunAndPoints(folder=usual())
    if len(words) == 1 and Path(words[0]).is_dir() and not find_run(words[0]):
        return RunAndPoints(folder=Path(words[0]))
    if words[0].isdecimal() and not find_run(words[0]):
        return RunAndPoints((latest_run(),), tuple(words))
    runs: list[Path] = []
    points: list[str] = []
    for word in words:
        if run := find_run(word):
            runs.append(run)
        elif runs:
            points.append(word)
        else:
            raise _no_run(word)
    if points and len(runs) > 1:
        message = f"{points[0]}: not a run folder, and points can be named after one run only"
        raise JobkitError(message, hint="jobkit status RUN POINT")
    return RunAndPoints(tuple(runs), tuple(points))


def names_job(words: Sequence[str]) -> bool:
    """Return whether the one word may be the number of a job: the latest run has no such point."""
    if len(words) != 1 or not words[0].isdecimal() or find_run(words[0]):
        return False
    try:
        return int(words[0]) > glance(latest_run())[0]
    except JobkitError:
        return True


def usual() -> Path:
    """Return the folder of the runs: that of the site file if it exists or ``runs/`` does not."""
    folder = _site_folder()
    return folder if folder and (folder.is_dir() or not RUNS.is_dir()) else RUNS


def _site_folder() -> Path | None:
    if not (config_folder() / "site.yaml").is_file():
        return None
    # Here: a site file takes pydantic, which a run that is named does not need.
    from jobkit.schedulers.registry import choose_scheduler
    from jobkit.spec.site import load_site

    try:
        folder = load_site("auto", choose_scheduler("auto")[0]).runs_dir
    except JobkitError:
        return None
    return Path(relative_path(Path(os.path.expandvars(folder)).expanduser())) if folder else None


def run_named(word: Path | str) -> Path:
    """Return the run folder that a word of the command line names.

    The word is a run folder, or the name of a run in ``runs/``, in the folder that the site file names, or in
    the list of `jobkit status --list`.
    """
    run = find_run(word)
    if run is None:
        raise _no_run(str(word))
    return run


def changed_run_named(word: Path | str, command: str) -> Path:
    """Return the run folder that a word names, as `run_named`, for a command that changes it."""
    run = run_named(word)
    refuse_copy(run, command)
    return run


def refuse_copy(run: Path, command: str) -> None:
    """Refuse a copy of a run on a cluster, which does not know how the run stands."""
    with suppress(OSError):
        host = read_text(run / COPY_FILE).strip()
        there = f"jobkit --on {quoted(host)} {command} {shell_path(run)}"
        raise JobkitError(f"{shell_path(run)} is a copy of the run on {host}", hint=there)


def run_or_latest(word: Path | str | None) -> Path:
    """Return the run folder that a word names, as `run_named`; without a word the latest run."""
    return run_named(word) if word is not None else runs_in(usual())[0]


def run_and_point(words: Sequence[str]) -> tuple[Path, str]:
    """Return the run and the point that ``[RUN] POINT`` name; without RUN it is the latest run."""
    *run, point = words
    if len(run) > 1:
        raise JobkitError(f"{words[2]}: one POINT at a time", hint="jobkit logs [RUN] POINT")
    if not run and find_run(point):
        hint = f"jobkit status {quoted(point)} lists its points"
        raise JobkitError(f"{point}: a run, and no POINT is named", hint=hint)
    return run_named(run[0]) if run else latest_run(), point


def find_run(word: Path | str) -> Path | None:
    """Return the run folder that a word names, as `run_named`; ``None`` if it names none."""
    if word == "":  # pathlib reads it as the working directory
        hint = "is a variable of your shell not set? jobkit status, alone, lists the runs"
        raise JobkitError("the name of a run or point is empty", hint=hint)
    for place in (Path(word), RUNS / word):
        if is_run(place):
            return place
        if (place / JOURNAL_FILE).is_file() and not (place / POINTS_FILE).exists():
            raise lost_file(place / POINTS_FILE, "without it no command can read the run")
    if (folder := _site_folder()) and is_run(folder / word):
        return folder / word
    name = str(word)
    if name.isdecimal() or "/" in name:  # a number is that of a point
        return None
    found = [run for run in remembered() if run.name == name and is_run(run)]
    if len(found) > 1:
        hint = f"name one by its folder: {format_list([shell_path(run) for run in found], 3)}"
        raise JobkitError(f"{name}: {len(found)} runs have this name", hint=hint)
    return found[0] if found else None


def remember(run_dir: Path) -> None:
    """Add a run folder to the user's list of runs; a list that cannot be written does not stop a run."""
    note_begun(run_dir)
    folder = run_dir.absolute()
    with suppress(OSError):
        if folder not in remembered():
            runs_path().parent.mkdir(parents=True, exist_ok=True)
            append_line(runs_path(), str(folder))


def remembered() -> list[Path]:
    """Return the folders in the user's list of runs, each once; empty if it cannot be read."""
    try:
        lines = read_text(runs_path()).splitlines()
    except OSError:
        return []
    return [Path(line) for line in dict.fromkeys(lines) if line.startswith("/")]


def is_run(path: Path) -> bool:
    try:
        return is_run_folder(path)
    except OSError:
        return False


def refuse_runs(words: Iterable[str]) -> None:
    """Refuse a run in the place of a point: a command that changes things takes one run at a time."""
    for word in words:
        here = is_run_folder(Path(word)) or is_run_folder(RUNS / word)
        if here or (_STAMP.search(word) and find_run(word)):
            hint = "one run at a time: the words after it name its points"
            raise JobkitError(f"{word}: a second run", hint=hint)


def refuse_unmeasured(run: Path, command: str) -> None:
    if refusal := kind_of(run).refusal(run, command):
        raise refusal


def _no_run(word: str) -> JobkitError:
    if Path(word).is_dir() and any(map(is_run_folder, runs_below(Path(word)))):
        hint = f"name one of the runs in it: jobkit status {quoted(word)} lists them"
        return NotFoundError(f"{word}: not a run folder", hint=hint)
    folders = {RUNS, usual()}
    known = [path.name for folder in folders if folder.is_dir() for path in folder.iterdir()]
    close = did_you_mean(Path(word).name, known)
    job = f"; a job: jobkit waste {word}" if re.fullmatch(r"\d[\d_.]*", word) else ""
    hint = close or f"jobkit status --list lists all your runs{job}"
    return NotFoundError(f"{word}: not a run folder", hint=hint)


def how_to_begin() -> str:
    """Return what to type if there is no run yet, wherever jobkit is installed."""
    demo = shell_path(shipped_folder("sweeps") / "demo.yaml")
    return f"make one first: jobkit sweep {demo}; on a cluster begin with jobkit init"


def runs_in(folder: Path) -> list[Path]:
    """Return the run folders in a folder, the latest first, by the time in the name, else of the folder."""
    try:
        runs = [path for path in folder.iterdir() if is_run_folder(path)]
    except OSError as error:
        raise NotFoundError(f"no runs in {folder}: {error.strerror}", hint=how_to_begin()) from error
    if not runs:
        raise NotFoundError(f"no runs in {folder}", hint=how_to_begin())
    return sorted(runs, key=start, reverse=True)


def known_runs() -> list[Path]:
    """Return the runs that jobkit remembers and those in the folder for runs, the latest first."""
    here: list[Path] = []
    with suppress(JobkitError):
        here = [run.absolute() for run in runs_in(usual())]
    found = [run for run in dict.fromkeys([*remembered(), *here]) if is_run(run)]
    return [Path(relative_path(run)) for run in sorted(found, key=start, reverse=True)]


def latest_run() -> Path:
    """Return the latest run of all, as `jobkit status --list` has it."""
    return next(iter(known_runs()), None) or runs_in(usual())[0]


def start_time(name: str) -> str:
    """Return the date and time at the end of a run's name; empty if it has none."""
    stamp = _STAMP.search(name)
    return stamp[1] if stamp else ""


def start(run: Path) -> datetime:
    """Return when a run began, by the time in its name, else by that of its points."""
    if stamp := start_time(run.name):
        return datetime.strptime(stamp, "%Y%m%d-%H%M%S").astimezone()
    return datetime.fromtimestamp((run / POINTS_FILE).stat().st_mtime).astimezone()


def glance(run: Path) -> tuple[int, int]:
    """Return how many points a run has, and how many have begun, ever, without its records and scheduler."""
    points = (run / POINTS_FILE).read_bytes().count(b"\n")
    begun = 0
    with suppress(OSError):
        begun = len(os.listdir(run / RESULTS_FOLDER))  # noqa: PTH208 - names only
    return points, min(begun, points)
