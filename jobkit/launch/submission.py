"""One submission of some points, cut into arrays."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from jobkit.core import files, shell
from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.layout import JOB_SCRIPT
from jobkit.launch import scheduler_calls
from jobkit.launch.job import Job, ids
from jobkit.launch.scheduler_calls import SubmissionUnconfirmed, run_while_busy
from jobkit.planning.job_script import script_name
from jobkit.planning.points import PointGroup
from jobkit.runs.journal import FOLLOWED, Role
from jobkit.runs.which_run import remember
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import query_environment
from jobkit.schedulers.survey import PRACTICE_ENV, PRACTICE_NEEDS
from jobkit.schedulers.types import Array, JobId


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


def cut_into_arrays(
    tasks: Sequence[int],
    limit: int | None,
    max_parallel: int | None,
    listed: str = "",
    options: Sequence[tuple[str, ...]] = ((),),
) -> tuple[Array, ...]:
    """Return the arrays of a round, given the number of tasks of each request.

    The limit is on the task *index*, so each array starts at 1 and its tasks are offset. The arrays run next
    to each other, so they share the throttle. ``options`` are the header lines of each request, if they
    differ from the script's.
    """
    offsets = accumulate(tasks, initial=0)
    spans = [
        (offset + start, min(limit or number, number - start), lines)
        for number, lines, offset in zip(tasks, options, offsets, strict=False)
        for start in range(0, number, limit or number)
    ]
    shares = scheduler_calls.share(max_parallel or 0, [last for _, last, _ in spans])
    return tuple(
        Array(first=1, last=last, offset=offset, throttle=each or None, listed=listed, options=lines)
        for (offset, last, lines), each in zip(spans, shares, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    number: int  # 1 for the sweep
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


def plan_arrays(scheduler: Scheduler, round_: Round, limits: str | None = None) -> tuple[Array, ...]:
    """Return the arrays of a round, within the controller's ``limits``; ``None`` to ask for them now."""
    limits = ask_limits(scheduler) if limits is None else limits
    limit = scheduler.parse_limit(limits)
    if limit == 0:
        message = f"{scheduler.NAME} accepts no array jobs here: its array limit is 0"
        hint = "ask the cluster's support about array jobs"
        raise JobkitError(message, hint=hint, exit_code=ExitCode.REFUSED)
    tasks, options = map(len, round_.tasks), [group.options for group in round_.groups]
    arrays = cut_into_arrays(list(tasks), limit, round_.max_parallel, round_.listed, options)
    if refusal := scheduler.task_limit_error(limits, arrays):
        hint = "split the sweep into several specs, lower `repeats`, or let points share jobs (`pack`)"
        raise JobkitError(f"{refusal}; nothing was submitted", hint=hint, exit_code=ExitCode.REFUSED)
    return arrays


def check_round(scheduler: Scheduler, round_: Round, script: str, arrays: Sequence[Array]) -> tuple[str, ...]:
    """Ask the scheduler about each request of a round; return its forecast of the first."""
    answers = [
        scheduler_calls.check_submission(
            scheduler, group.request, script, next(one for one in arrays if one.options == group.options)
        )
        for group in round_.groups
    ]
    return answers[0]


def would_accept(script: str, ask: Callable[[str], tuple[str, ...]]) -> tuple[str, ...]:
    """Return the scheduler's forecast of a script that is in no run folder yet; raise if it would refuse it.

    ``ask`` is given the path of the script, and asks the scheduler.
    """
    with tempfile.TemporaryDirectory(prefix="jobkit-") as folder:
        path = Path(folder) / JOB_SCRIPT
        path.write_text(script, encoding="utf-8")
        return ask(str(path))


def write_round(run_dir: Path, round_: Round) -> list[Path]:
    """Write the script of a round, and the list of its tasks if there is one; return the files."""
    written = [run_dir / script_name(round_.number)]
    files.write_atomically(written[0], round_.script)
    if round_.listed:
        written.append(run_dir / round_.listed)
        text = "".join(" ".join(map(str, task)) + "\n" for tasks in round_.tasks for task in tasks)
        files.write_atomically(written[1], text)
    return written


def round_jobs(round_: Round, arrays: Sequence[Array]) -> list[Job]:
    """Return the jobs of a round, one an array; they share the limit on tasks at a time."""
    most = round_.max_parallel or len(arrays)
    requests = [
        [group.resources for group in round_.groups if group.options == array.options] for array in arrays
    ]
    return [
        Job(
            script=script_name(round_.number),
            array=array,
            round=round_.number,
            given=round_.given,
            walltime_s=max(one.walltime for one in requests[place]),
            memory_bytes=max(one.memory for one in requests[place]),
            behind=most if place >= most else 0,
        )
        for place, array in enumerate(arrays)
    ]


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
    for job in jobs:
        arrays = ids([one for one in taken if one.role in FOLLOWED])
        try:
            waits = job.waits_for([*before, *arrays])
            waits = waits or (after if job.role is Role.POINTS else ())
            taken.append(scheduler_calls.submit_array(scheduler, run_dir, job, waits))
        except JobkitError as error:
            if job.role is Role.FOLLOW and error.exit_code != ExitCode.TO_COME:
                return (*taken, replace(job, refused=error.message))
            if not isinstance(error, SubmissionUnconfirmed):  # else resume finds out, and submits the rest
                scheduler_calls.cancel(scheduler, run_dir, ids(taken))
            raise
    return tuple(taken)
