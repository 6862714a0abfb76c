"""How a run begins: its folder, its jobs, and who waits for them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from jobkit.core import files
from jobkit.core.errors import file_error
from jobkit.core.files import folder_lock
from jobkit.core.layout import ACCOUNTING_FILE, JOURNAL_FILE, LOGS_FOLDER, POINTS_FILE
from jobkit.core.records import Point
from jobkit.launch import launch, submission
from jobkit.launch.job import Job, announce
from jobkit.schedulers.registry import by_name
from jobkit.spec.policy import Policy
from jobkit.spec.sweep_spec import SweepSpec


class RunFolder:
    @staticmethod
    def create(
        run_dir: Path, check: Callable[[], bool], fill: Callable[[Path], None], *, option: str
    ) -> None:
        """Make a run folder under another name, and rename it once it is whole.

        ``check`` raises if the folder must not be made, and returns whether it is there without points: then
        it gets the missing files, the points last. It is asked while no other process begins a run in this
        place. ``fill`` makes the folder that it is given, and ``option`` names the place.
        """
        part = run_dir.with_name(f".{run_dir.name}.part")
        try:
            run_dir.parent.mkdir(parents=True, exist_ok=True)
            with folder_lock(run_dir.parent):
                there = check()
                shutil.rmtree(part, ignore_errors=True)  # of a command that was killed
                fill(part)
                if there:
                    _move_into(part, run_dir)
                else:
                    part.replace(run_dir)
                files.sync_folder(run_dir if there else run_dir.parent)
                shutil.rmtree(part, ignore_errors=True)
        except OSError as error:
            raise file_error(error, run_dir, hint=f"choose another place with {option}") from error


def _move_into(part: Path, run_dir: Path) -> None:
    """Move the missing files into a folder without points, then the points, which put it into force."""
    for entry in part.iterdir():
        target = run_dir / entry.name
        if entry.name in {JOURNAL_FILE, ACCOUNTING_FILE}:
            if text := files.read_text(entry).rstrip("\n"):
                files.append_line(target, text)
        elif entry.name not in {POINTS_FILE, LOGS_FOLDER}:
            if target.is_dir():  # of a command that was killed here
                shutil.rmtree(target)
            entry.replace(target)
    (part / POINTS_FILE).replace(run_dir / POINTS_FILE)


def submit(run_dir: Path, spec: SweepSpec, jobs: Sequence[Job], then: str = "") -> None:
    """Submit jobs whose scripts are written, and print what was submitted, and what they do ``then``."""
    announce(spec.scheduler, submission.submit_jobs(by_name(spec.scheduler), run_dir, jobs), then)


def follow(run_dir: Path, points: Sequence[Point], policy: Policy, *, wait: bool) -> int | None:
    """Wait for points of a run that is submitted, as `launch.wait_for_points`, or print what follows it."""
    if wait:
        return launch.wait_for_points(run_dir, points, policy)
    launch.note_follow(run_dir)
    return 0
