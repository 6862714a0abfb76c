"""Search for the fastest setting: here, or as a job; and go on with a search that was cut short.

`jobkit resume` chooses the next point of a search, and runs none again.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from jobkit.core.errors import ExitCode
from jobkit.core.figures import SPEED
from jobkit.core.layout import SETTING_FILE, TUNE_SCRIPT
from jobkit.core.records import Outcome, Point
from jobkit.core.terminal import note, relative_path, shell_path
from jobkit.core.units import format_about, format_count, format_setting
from jobkit.extensions.tune.goal import resources
from jobkit.extensions.tune.search import Tuning, propose_point
from jobkit.extensions.tune.steps import Candidate, TuneGoal
from jobkit.launch import launch, local
from jobkit.launch.job import Job, follow_job
from jobkit.launch.resume import Resumption, has_ended
from jobkit.launch.submission import Check, note_follow, submit, wait_for_points, write_run
from jobkit.planning.points import request
from jobkit.planning.prepare import Prepared
from jobkit.runs.journal import Role
from jobkit.runs.request import RetryGroup
from jobkit.runs.results import read_run
from jobkit.runs.status import RunStatus, followers
from jobkit.schedulers.registry import runs_here
from jobkit.schedulers.types import Array, JobRequest
from jobkit.spec.sweep_spec import SweepSpec

MOST_JOBS = 3
"""How often jobkit submits the job of a search by itself: two of these jobs may be killed."""


def headline(goal: TuneGoal, spec: SweepSpec) -> str:
    """Return in two lines the limits of a search, and what the text has decided."""
    held = (
        format_count(spec.resources.gpus, "GPU")
        if goal.mps
        else format_count(goal.workers * goal.cpus, "CPU")
    )
    settings, points = format_count(goal.most_settings, "setting"), format_count(goal.most_points, "point")
    workers = format_count(goal.workers, "worker")
    most = f"at most {settings} in {points}, {format_about(goal.budget_s)} of {held}, up to {workers}"
    sizes = ", ".join(f"{size:,}" for size in goal.sizes)
    text = f"from the text alone: order {goal.order}, {goal.size_knob} {sizes}"
    if goal.padding:
        padded = ", ".join(f"{share:.0%} in {order} order" for order, share in goal.padding.items())
        text += f" (share of text in the padding: {padded})"
    return f"{most}\n{text}"


def dry_run(preview: launch.Preview, run: Prepared, goal: TuneGoal, source: Path) -> int:
    """Print what a search takes at most and the submit commands, or its script."""
    scheduler = run.spec.scheduler
    used = f"scheduler {scheduler} ({run.why}), site {run.site.name}"
    jobs = _jobs(1, follow=run.follow_script is not None)
    submits = () if runs_here(scheduler) else launch.submit_commands(run, jobs)
    plan = [*headline(goal, run.spec).splitlines(), *filter(None, [launch.model_warning(run)]), used]
    script = (run.run_dir / TUNE_SCRIPT, run.more_files[TUNE_SCRIPT])
    return launch.dry_run(preview, run.spec, source, plan, script, submits)


def _jobs(index: int, *, follow: bool, asked: JobRequest | None = None) -> list[Job]:
    array = Array(first=1, last=1, offset=index - 1, throttle=None)
    search = Job(script=TUNE_SCRIPT, array=array, role=Role.TUNE, request=asked)
    return [search, *([follow_job(1)] if follow else [])]


def tune(run: Prepared, goal: TuneGoal, check: Check, *, wait: bool) -> int | None:
    """Search here, or submit the search and the job that follows it; return as `launch.go`."""
    run_dir, spec = run.run_dir, run.spec
    note("\n".join(filter(None, (headline(goal, spec), launch.model_warning(run)))))
    write = partial(write_run, run, check)
    if runs_here(spec.scheduler):
        write()
        note(f"run folder: {relative_path(run_dir)}")
        _search(run_dir)
        return None
    asked = request(run_dir.name, spec, run.site, resources(spec, run.points[0], goal))
    jobs = _jobs(1, follow=run.follow_script is not None, asked=asked)
    return launch.go(run, write, jobs, wait=wait)


def _search(run_dir: Path) -> None:
    ran: list[Point] = []

    def choose(folder: Path) -> Point | None:
        for before in ran[-1:]:
            note(_ending(folder, before))
        point = propose_point(folder)
        ran.extend([point] if point else [])
        return point

    with local.as_driver(run_dir) as job_id:
        local.search(run_dir, lambda _: None, job_id, choose)


def _ending(run_dir: Path, point: Point) -> str:
    result = next(result for result in read_run(run_dir).points if result.point.index == point.index)
    summary = result.record.summary if result.record else None
    end = f"{result.outcome}: {result.counts.evidence}"
    if summary and result.outcome is Outcome.OK:
        speed = result.record.value(SPEED) if result.record else None
        end = f"{speed:,.1f} paragraphs/s" if speed else f"{summary.work_s:,.1f} s"
    return f"{point.index:>4}  {point.phase:<6}  {format_setting(point.params)}: {end}"


def go_on(
    run_dir: Path, spec: SweepSpec, run: RunStatus, *, by_itself: bool = False, wait: bool = False
) -> int | None:
    """Go on with a search that was cut short; return an exit code, or ``None`` if it has ended.

    If no person asked (``by_itself``) at most `MOST_JOBS` jobs are submitted.
    """
    if (run_dir / SETTING_FILE).is_file():
        note(f"the search has ended: jobkit tune {shell_path(run_dir)} prints its answer")
        return 0
    if runs_here(spec.scheduler):
        _search(run_dir)
        return None
    searches = followers(run, Role.TUNE)
    # The job that follows starts once the search has ended, often before the accounting knows of that.
    if searches and (searches[-1][1] is not None or not (by_itself or has_ended(run, Role.TUNE))):
        note(f"the search is under way: jobkit status {shell_path(run_dir)} shows its progress")
        return ExitCode.TO_COME
    if by_itself and len(searches) >= MOST_JOBS:
        searched = format_count(len(searches), "job")
        note(f"{searched} of this search ended early: jobkit resume goes on with it")
        return 0
    tuning = Tuning.read(run_dir)
    index = tuning.point(tuning.next).index if isinstance(tuning.next, Candidate) else 1
    submit(run_dir, spec, _jobs(index, follow=spec.policy.follow_up))
    if wait:
        return wait_for_points(run_dir, [point.point for point in run.points], spec.policy, run)
    if not by_itself:
        note_follow(run_dir)
    return 0


class TuneResumption(Resumption):
    def decide(self, *_: object, **__: object) -> list[RetryGroup]:
        """Return no point: a search judges a point that failed."""
        return []

    def nothing(
        self, run: RunStatus, spec: SweepSpec, *, by_itself: bool = False, wait: bool = False
    ) -> int | None:
        return go_on(run.folder, spec, run, by_itself=by_itself, wait=wait)


TUNE = TuneResumption()
