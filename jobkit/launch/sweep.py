"""Check, write the run folder, submit the sweep and what follows it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from jobkit.core import files, json_codec, layout
from jobkit.core.errors import JobkitError, file_error
from jobkit.core.files import folder_lock
from jobkit.core.layout import FIND_SCRIPT, FOLLOW_SCRIPT
from jobkit.core.paths import ledger_path
from jobkit.core.records import FileRef
from jobkit.core.terminal import Say
from jobkit.launch import submission
from jobkit.launch.job import Job, find_job, follow_job
from jobkit.launch.submission import Round, check_round
from jobkit.planning.job_script import check_programs
from jobkit.planning.prepare import Prepared
from jobkit.runs.trials import SearchGoal
from jobkit.schedulers.registry import by_name, runs_here
from jobkit.schedulers.types import Array
from jobkit.spec.fields import DEVICE
from jobkit.spec.sweep_spec import SweepSpec


def first_round(prepared: Prepared) -> Round:
    return Round(
        number=1,
        script=prepared.script,
        groups=prepared.groups,
        pack=prepared.spec.pack,
        max_parallel=prepared.spec.max_parallel,
    )


Check = Callable[[], None]  # raises if the run must not be written


def write_run(prepared: Prepared, check: Check = lambda: None) -> None:
    """Write the run folder: spec, points, scripts, lengths where known, and empty folders.

    ``check`` is asked while no other process begins a run in this place.
    """
    run_dir = prepared.run_dir
    try:
        run_dir.parent.mkdir(parents=True, exist_ok=True)
        with folder_lock(run_dir.parent):
            check()
            write_files(prepared, run_dir)
    except OSError as error:
        raise file_error(error, run_dir, hint="choose another place with --runs-dir") from error


def write_files(prepared: Prepared, run_dir: Path) -> None:
    """Write the files of every run folder, into a folder that does not exist yet."""
    if runs_here(prepared.spec.scheduler):
        check_programs()
    files.make_run_folder(run_dir, group=prepared.site.group_can_read)
    copy_files(prepared.points[0].files, run_dir)
    for folder in (run_dir / "logs", run_dir / layout.RESULTS_FOLDER):
        folder.mkdir()
    files.write_atomically(run_dir / layout.SPEC_FILE, prepared.spec.as_yaml())
    lines = "".join(json_codec.to_json(point) + "\n" for point in prepared.points)
    files.write_atomically(run_dir / layout.POINTS_FILE, lines)
    submission.write_round(run_dir, first_round(prepared))
    if prepared.find_script is not None:
        write_search(search_goal(prepared.spec), run_dir, prepared.find_script)
    for name, text in prepared.more_files.items():
        files.write_atomically(run_dir / name, text)
    if prepared.follow_script is not None:
        files.write_atomically(run_dir / FOLLOW_SCRIPT, prepared.follow_script)
    if prepared.lengths is not None:
        files.write_atomically(run_dir / layout.LENGTHS_FILE, prepared.lengths.to_json() + "\n")
    for name in (layout.JOURNAL_FILE, layout.ACCOUNTING_FILE):
        (run_dir / name).touch()


def copy_files(refs: Sequence[FileRef], run_dir: Path) -> None:
    """Copy the user's files that the workload consists of."""
    for file in refs:
        if files.digest(file.path)[0] != file.sha256:
            raise JobkitError(f"{file.path}: has just changed", hint="type the same command again")
    for file in refs:
        files.copy_files(Path(file.path), run_dir / layout.FILES_FOLDER / file.name)


def submit(
    prepared: Prepared,
    say: Say = lambda _: None,
    check: Check = lambda: None,
    write: Callable[[], None] | None = None,
) -> tuple[Job, ...]:
    """Write the run folder and submit the sweep, one array job per array limit, and what follows.

    ``say`` prints the scheduler's forecast before the submission; ``check`` as in `write_run`.
    """
    scheduler, run_dir = by_name(prepared.spec.scheduler), prepared.run_dir
    round_ = first_round(prepared)
    arrays = submission.plan_arrays(scheduler, round_)
    (write or partial(write_run, prepared, check))()
    try:
        for line in check_round(scheduler, round_, str(run_dir / layout.JOB_SCRIPT), arrays):
            say(line)
    except JobkitError:
        shutil.rmtree(run_dir)
        raise
    return submission.submit_jobs(scheduler, run_dir, planned_jobs(prepared, arrays))


def planned_jobs(prepared: Prepared, arrays: Sequence[Array]) -> list[Job]:
    jobs = submission.round_jobs(first_round(prepared), arrays)
    if prepared.find_script is not None:
        jobs.append(find_job(len(prepared.points)))
    if prepared.follow_script is not None:
        jobs.append(follow_job(1))
    return jobs


def search_goal(spec: SweepSpec, after: int = 0) -> SearchGoal:
    """Return what the search for the largest batch is for, after some earlier trials."""
    memory = spec.find_max.memory if spec.find_max else DEVICE
    return SearchGoal(
        memory_bytes=memory if isinstance(memory, int) else None,
        ram_bytes=spec.resources.memory,
        ledger=str(ledger_path()),
        after=after,
    )


def write_search(goal: SearchGoal, run_dir: Path, script: str) -> None:
    files.write_atomically(run_dir / layout.SEARCH_GOAL_FILE, json_codec.to_json(goal) + "\n")
    files.write_atomically(run_dir / FIND_SCRIPT, script)
