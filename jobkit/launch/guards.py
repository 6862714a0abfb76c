"""Refuse a second run of the same sweep, and a folder that was copied or moved; warn of a stand-in model."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.files import open_regular, read_text
from jobkit.core.layout import PLAN_SCRIPT, POINTS_FILE, SPEC_FILE, read_points
from jobkit.core.records import FULL, Point
from jobkit.core.terminal import note, relative_path, shell_path
from jobkit.core.units import format_count
from jobkit.planning.job_script import script_name
from jobkit.planning.prepare import Prepared
from jobkit.runs.reader import read_status
from jobkit.runs.status import CANCELLED, PointState, RunStatus, kind_of, why_failed
from jobkit.runs.which_run import start_time


def measure_again(run: Path, point: Point) -> tuple[str, ...]:
    """Return how to measure a stand-in's run again with the real model."""
    if point.model is None or point.workload_folder:
        return ("then measure again",)
    size = () if point.model.size == FULL else ("--set", "model.size=full")
    words = ("jobkit", kind_of(run).command, shell_path(run / SPEC_FILE), *size)
    return (f"{' '.join(words)}   (then name its run)",)


def warn_stand_in(point: Point) -> None:
    if point.model and point.model.stand_in:
        note(point.model.warning)


def refuse_duplicate_sweep(prepared: Prepared, *, dry_run: bool = False) -> None:
    """Refuse a sweep that has a run already; if nothing is submitted anyway, only print that it has."""
    if folder := find_duplicate(prepared):
        (run,) = read_status([folder], ask=False)
        if dry_run:
            note(f"{_description(run)}; --new submits it again")
            return
        hint = f"{_next(run)}; --new starts another run"
        raise JobkitError(f"{_description(run)}; nothing was submitted", hint=hint)


def find_duplicate(prepared: Prepared) -> Path | None:
    """Return the newest run folder next to this one of the same spec, text, model and points."""
    text = prepared.spec.as_yaml().encode()
    points = _bare(prepared.points)
    runs, names = prepared.run_dir.parent, []
    with contextlib.suppress(OSError):
        names = os.listdir(runs)  # noqa: PTH208 - names only: there may be thousands
    for name in sorted(names, key=lambda name: (start_time(name), name), reverse=True):
        if _holds(f"{runs}/{name}/{SPEC_FILE}", text):
            other, _ = read_points(runs / name)
            if _bare(other[: len(points)]) == points:  # behind them: trials of the largest batch
                return runs / name
    return None


def _holds(path: str, content: bytes) -> bool:
    """Return whether a file has this content; most differ in size, and are not read."""
    try:
        if os.stat(path).st_size != len(content):  # noqa: PTH116 - a Path costs as much again
            return False
        with os.fdopen(open_regular(path), "rb") as stream:
            return stream.read() == content
    except OSError:
        return False


def _bare(points: Sequence[Point]) -> list[Point]:
    """Return points without what two runs never share, and without paths: checksums identify both."""
    return [
        replace(
            point,
            run_id="",
            text=replace(point.text, path=""),
            model=replace(point.model, path="") if point.model else None,
        )
        for point in points
    ]


def _description(run: RunStatus) -> str:
    """Return the run and its progress: ``15 points: 9 done, 2 failed (2 timeout), 4 to come``."""
    numbers = {word: run.counts[word] for word in (CANCELLED, PointState.DONE, PointState.FAILED)}
    numbers["to come"] = len(run.points) - sum(numbers.values())
    words = [
        f"{number} {word}" + (why_failed(run) if word == PointState.FAILED else "")
        for word, number in numbers.items()
        if number
    ]
    points = f"{format_count(len(run.points), 'point')}: {', '.join(words)}"
    return f"this sweep has a run already: {relative_path(run.folder)}, {points}"


def _next(run: RunStatus) -> str:
    standings = {point.state for point in run.points}
    path = shell_path(run.folder)
    ways = [f"jobkit collect {path} prints its table"]
    if standings & {PointState.FAILED, PointState.MISSING}:
        ways.insert(0, f"jobkit resume {path} runs what failed or is missing")
    if standings - {PointState.FAILED, PointState.DONE, PointState.MISSING}:
        ways.insert(0, f"jobkit status {path} shows its progress")
    return ", ".join(ways)


_RUN = re.compile(r"^run=(.+)$", re.MULTILINE)  # the line of a job script that names its run folder


def refuse_moved_run(run_dir: Path) -> None:
    """Refuse a run folder that is not where its job script works, before anything is written there."""
    script = run_dir / (PLAN_SCRIPT if kind_of(run_dir).unplanned(run_dir) else script_name(1))
    try:
        text = read_text(script)
    except OSError as error:
        hint = "jobkit collect reads what is there; to run the points again make a new sweep"
        raise JobkitError(
            f"{script}: {error.strerror}: no point can run without this file", hint=hint
        ) from error
    match = _RUN.search(text)
    words = shlex.split(match[1]) if match else []
    there = Path(words[0]) if words else run_dir
    if there.resolve() == run_dir.resolve():
        return
    what, hint = "a folder that was moved", f"move it back: mv {shell_path(run_dir)} {shell_path(there)}"
    if (there / POINTS_FILE).is_file():
        what, hint = "a copy of it", f"name {shell_path(there)}"
    raise JobkitError(f"{run_dir}: its {script.name} works in {there}, so this is {what}", hint=hint)
