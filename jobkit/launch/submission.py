"""From a run to its jobs: one submission of some points, cut into arrays, and the folder of a new run."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from jobkit.core import files, json_codec, layout, shell
from jobkit.core.errors import ExitCode, JobkitError, RefusedError, file_error
from jobkit.core.files import folder_lock
from jobkit.core.frozen import keyed
from jobkit.core.layout import FIND_SCRIPT, FOLLOW_SCRIPT, read_points
from jobkit.core.records import Point
from jobkit.core.terminal import note, note_next, relative_path, shell_path
from jobkit.launch import scheduler_calls
from jobkit.launch.job import Job, announce, find_job, follow_job, ids
from jobkit.launch.scheduler_calls import SubmissionUnconfirmed, run_while_busy
from jobkit.planning.job_script import check_programs, script_name
from jobkit.planning.points import PointGroup
from jobkit.planning.prepare import Prepared
from jobkit.runs import journal
from jobkit.runs.after import prepare_round
from jobkit.runs.journal import FOLLOWED, Role
from jobkit.runs.on_end import address_of
from jobkit.runs.status import RunStatus
from jobkit.runs.trials import SearchGoal
from jobkit.runs.which_run import remember
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import by_name, query_environment, runs_here
from jobkit.schedulers.survey import PRACTICE_ENV, PRACTICE_NEEDS
from jobkit.schedulers.types import Array, JobId, JobRequest
from jobkit.spec.policy import Policy
from jobkit.spec.sweep_spec import SweepSpec


@keyed
class Round:
    """One submission of some points of a run."""

    number: int = 1  # 1 for the sweep
    script: str  # the text of its job script
    groups: Sequence[PointGroup]  # the points that run, by what they request
    pack: int  # how many of them share a task
    max_parallel: int | None  # most tasks at a time; ``None`` for no limit
    given: tuple[str, ...] = ()  # what a person set for these points: ``key=value``

    @property
    def tasks(self) -> list[list[tuple[int, ...]]]:
        """The points of each task of each group."""
        return [
            [group.points[start : start + self.pack] for start in range(0, len(group.points), self.pack)]
            for group in self.groups
        ]

    @property
    def listed(self) -> str:
        """The file that names the points of each task; empty if task k runs point k."""
        points = [index for group in self.groups for index in group.points]
        plain = self.pack == 1 and points == list(range(1, len(points) + 1))
        return "" if plain else f"tasks-{self.number}.txt"


def first_round(run: Prepared) -> Round:
    spec = run.spec
    return Round(script=run.script, groups=run.groups, pack=spec.pack, max_parallel=spec.max_parallel)


# -- its jobs


def ask_limits(scheduler: Scheduler, *, once: bool = False) -> str:
    """Return the controller's answer about its limits; empty if it has none.

    ``once``: do not ask again if the scheduler is busy or away.
    """
    argv = scheduler.limit_argv()
    if not argv:
        return ""
    env = query_environment(scheduler)
    done = shell.run(argv, env=env) if once else run_while_busy(argv, scheduler.BUSY_PATTERN, env)
    hint = f"is this a login node? From a laptop: jobkit --on HOST. {PRACTICE_NEEDS} {PRACTICE_ENV}"
    return shell.check(done, "the scheduler does not answer", hint=hint).stdout


def plan_arrays(scheduler: Scheduler, round_: Round, limits: str | None = None) -> tuple[Array, ...]:
    """Return the arrays of a round, within the controller's ``limits``; ``None`` to ask for them now.

    The limit is on the task *index*, so each array starts at 1 and its tasks are offset. The arrays run next
    to each other, so they share the throttle.
    """
    limits = ask_limits(scheduler) if limits is None else limits
    limit = scheduler.parse_limit(limits)
    if limit == 0:
        message = f"{scheduler.NAME} accepts no array jobs here: its array limit is 0"
        hint = "ask the cluster's support about array jobs"
        raise RefusedError(message, hint=hint)
    plain, offset = list[Array](), 0
    for tasks, group in zip(round_.tasks, round_.groups, strict=True):
        number, most = len(tasks), limit or len(tasks)
        for start in range(0, number, most):
            array = Array(first=1, last=min(most, number - start), offset=offset + start, throttle=None)
            plain.append(replace(array, listed=round_.listed, options=group.options))
        offset += number
    shares = scheduler_calls.share(round_.max_parallel or 0, [array.last for array in plain])
    arrays = tuple(replace(one, throttle=each or None) for one, each in zip(plain, shares, strict=True))
    if refusal := scheduler.task_limit_error(limits, arrays):
        hint = "split the sweep into several specs, lower `repeats`, or let points share jobs (`pack`)"
        raise RefusedError(f"{refusal}; nothing was submitted", hint=hint)
    return arrays


def round_jobs(round_: Round, arrays: Sequence[Array]) -> list[Job]:
    """Return the jobs of a round, one an array; they share the limit on tasks at a time."""
    most = round_.max_parallel or len(arrays)
    groups = [next(group for group in round_.groups if group.options == array.options) for array in arrays]
    return [
        Job(
            script=script_name(round_.number),
            array=array,
            round=round_.number,
            given=round_.given,
            behind=most if place >= most else 0,
            request=group.request,
        )
        for place, (array, group) in enumerate(zip(arrays, groups, strict=True))
    ]


def run_jobs(run: Prepared, limits: str | None = None) -> list[Job]:
    """Return the jobs that a run begins with; ``limits`` as in `plan_arrays`."""
    round_ = first_round(run)
    jobs = round_jobs(round_, plan_arrays(by_name(run.spec.scheduler), round_, limits))
    jobs += [find_job(len(run.points))] if run.find_script is not None else []
    return jobs + ([follow_job(1)] if run.follow_script is not None else [])


def would_accept(scheduler: Scheduler, script: str, jobs: Sequence[Job]) -> tuple[str, ...]:
    """Ask the scheduler about each request of jobs whose script need not be in a run folder yet.

    Return its forecast of the first; raise if it would refuse one.
    """
    asked: dict[JobRequest, Job] = {}
    for job in jobs:
        if job.request:
            asked.setdefault(job.request, job)
    with tempfile.TemporaryDirectory(prefix="jobkit-") as folder:
        path = Path(folder) / jobs[0].script
        path.write_text(script, encoding="utf-8")
        answers = [
            scheduler_calls.check_submission(scheduler, request, str(path), job.array)
            for request, job in asked.items()
        ]
    return answers[0]


def submit_jobs(
    scheduler: Scheduler,
    run_dir: Path,
    jobs: Sequence[Job],
    before: Sequence[JobId] = (),
    *,
    after: Sequence[JobId] = (),
) -> tuple[Job, ...]:
    """Submit jobs whose scripts are written, in order; return those that the scheduler answered.

    ``before`` are arrays that were submitted earlier. An array of points begins when the jobs ``after`` have
    ended, unless it waits for another array.
    """
    remember(run_dir)
    taken: list[Job] = []
    if jobs[0].is_first:
        prepare_round(run_dir, jobs[0].round, jobs[0].after, scheduler.NAME)
    for job in jobs:
        arrays = ids([one for one in taken if one.role in FOLLOWED])
        try:
            waits = job.waits_for([*before, *arrays])
            waits = [*waits, *after] if job.role is Role.POINTS and not job.behind else waits
            taken.append(scheduler_calls.submit_array(scheduler, run_dir, job, waits))
        except JobkitError as error:
            if job.role is Role.FOLLOW and error.exit_code != ExitCode.TO_COME:
                return (*taken, replace(job, refused=error.message))
            if not isinstance(error, SubmissionUnconfirmed):  # else resume finds out, and submits the rest
                scheduler_calls.cancel(scheduler, run_dir, ids(taken))
            raise
    scheduler_calls.hold_again(scheduler, run_dir)
    return tuple(taken)


def submit(run_dir: Path, spec: SweepSpec, jobs: Sequence[Job], then: str = "") -> None:
    """Submit jobs whose scripts are written, and print what was submitted, and what they do ``then``."""
    announce(spec.scheduler, submit_jobs(by_name(spec.scheduler), run_dir, jobs), then)


# -- its folder

Check = Callable[[], bool | None]  # raises if a run folder must not be made


def create_run_folder(run_dir: Path, check: Check, fill: Callable[[Path], None], *, option: str) -> None:
    """Make a run folder under another name, and rename it once it is whole.

    ``check`` raises if the folder must not be made, and returns true if it is there without points: then it
    gets the missing files, the points last. It is asked while no other process begins a run in this
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
    except OSError as error:
        raise file_error(error, run_dir, hint=f"choose another place with {option}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _move_into(part: Path, run_dir: Path) -> None:
    """Move the missing files into a folder without points, then the points, which put it into force."""
    for entry in part.iterdir():
        target = run_dir / entry.name
        if entry.name in {layout.JOURNAL_FILE, layout.ACCOUNTING_FILE}:
            if text := files.read_text(entry).rstrip("\n"):
                files.append_line(target, text)
        elif entry.name not in {layout.POINTS_FILE, layout.LOGS_FOLDER}:
            if target.is_dir():  # of a command that was killed here
                shutil.rmtree(target)
            entry.replace(target)
    (part / layout.POINTS_FILE).replace(run_dir / layout.POINTS_FILE)


def write_run(run: Prepared, check: Check = lambda: None) -> None:
    create_run_folder(run.run_dir, check, partial(write_files, run), option="--runs-dir")


def write_files(run: Prepared, run_dir: Path) -> None:
    """Write the files of every run folder, into a folder that does not exist yet."""
    if runs_here(run.spec.scheduler):
        check_programs()
    if run.spec.on_end and run.spec.on_end.webhook:
        address_of(run.spec.on_end.webhook)
    layout.make_run_folder(run_dir, group=run.site.group_can_read)
    users = run.points[0].files  # of which the workload consists
    for file in users:
        if files.digest(file.path)[0] != file.sha256:
            raise JobkitError(f"{file.path}: has just changed", hint="type the same command again")
    for file in users:
        files.copy_files(Path(file.path), run_dir / layout.FILES_FOLDER / file.name)
    (run_dir / layout.RESULTS_FOLDER).mkdir()
    texts = {layout.SPEC_FILE: run.spec.as_yaml(), **run.more_files}
    texts[layout.POINTS_FILE] = "".join(json_codec.to_json(point) + "\n" for point in run.points)
    if run.follow_script is not None:
        texts[FOLLOW_SCRIPT] = run.follow_script
    if run.lengths is not None:
        texts[layout.LENGTHS_FILE] = run.lengths.to_json() + "\n"
    for name, text in texts.items():
        files.write_atomically(run_dir / name, text)
    if run.auto:
        journal.note(run_dir, "auto", resources=run.auto)
    write_round(run_dir, first_round(run))
    if run.find_script is not None:
        write_search(search_goal(run.spec), run_dir, run.find_script)


def write_round(run_dir: Path, round_: Round) -> None:
    """Write the script of a round, and the list of its tasks if there is one."""
    files.write_atomically(run_dir / script_name(round_.number), round_.script)
    if round_.listed:
        text = "".join(" ".join(map(str, task)) + "\n" for tasks in round_.tasks for task in tasks)
        files.write_atomically(run_dir / round_.listed, text)


def search_goal(spec: SweepSpec, after: int = 0) -> SearchGoal:
    """Return what the search for the largest batch is for, after some earlier trials."""
    return SearchGoal(
        memory_bytes=spec.asked_bytes,
        ram_bytes=spec.resources.memory,
        after=after,
    )


def write_search(goal: SearchGoal, run_dir: Path, script: str) -> None:
    files.write_atomically(run_dir / layout.SEARCH_GOAL_FILE, json_codec.to_json(goal) + "\n")
    files.write_atomically(run_dir / FIND_SCRIPT, script)


# -- who waits for it


def follow(run_dir: Path, points: Sequence[Point], policy: Policy, *, wait: bool) -> int | None:
    """Wait for points of a run that is submitted, as `wait_for_points`, or print what follows it."""
    if wait:
        note(f"run folder: {relative_path(run_dir)}")
        return wait_for_points(run_dir, points, policy)
    note_follow(run_dir)
    return 0


def wait_for_points(
    run_dir: Path, points: Sequence[Point], policy: Policy, before: RunStatus | None = None
) -> int | None:
    """Wait for points of a run, submitted again since ``before``; Ctrl-C leaves the job alone."""
    from jobkit.runs import watch  # brings rich: a submission returns at once without it

    try:
        if not points:  # of a corpus that a job plans, or has just planned
            watch.until_planned(run_dir)
            points, _ = read_points(run_dir)
        watch.until_done(run_dir, points, policy, before, submits=True)
    except KeyboardInterrupt:
        note("no longer waiting; the job goes on")
        note_follow(run_dir)
        return ExitCode.INTERRUPTED
    return None


def note_follow(run_dir: Path) -> None:
    """Print the run folder of a run that goes on by itself, and the command that follows it."""
    note(f"run folder: {relative_path(run_dir)}")
    note_next(f"jobkit status {shell_path(run_dir)} --watch")
