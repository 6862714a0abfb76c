"""What blocks a run, and what to type next: the one place of every hint. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from jobkit.core.errors import JobkitError
from jobkit.core.extras import cuda_install_command
from jobkit.core.frozen import frozen
from jobkit.core.layout import SPEC_FILE
from jobkit.core.measurements import largest
from jobkit.core.records import Outcome, Point
from jobkit.core.terminal import shell_quote
from jobkit.core.units import (
    format_about,
    format_count,
    format_list,
    format_memory,
    format_moment,
    format_size,
    format_walltime,
    moment,
)
from jobkit.runs import status
from jobkit.runs.journal import GONE_AFTER, PLANNERS, STILL_AT_IT, Role
from jobkit.runs.request import (
    LEAST_ROOM_BYTES,
    MEMORY_FACTOR,
    WALLTIME_FACTOR,
    changed_resources,
    comparable_tries,
    held_in,
    memory_request,
    scaled_request,
    walltime_request,
)
from jobkit.runs.status import (
    JobStatus,
    PointStanding,
    PointStatus,
    RunStatus,
    given_to,
    kind_for,
)
from jobkit.runs.tries import progress_of_try, task_s, whole_s
from jobkit.schedulers.registry import SCHEDULERS, runs_here
from jobkit.schedulers.types import Queued, Remedy, State
from jobkit.worker.failure import Cause

if TYPE_CHECKING:
    from jobkit.spec.sweep_spec import Resources


class FixKind(StrEnum):
    CHANGE = "change"  # jobkit runs or cancels points, or the scheduler releases them
    FIX = "fix"  # the points get what they lacked
    LOOK = "look"
    LOG = "log"
    WATCH = "watch"


@frozen
class Step:
    command: str
    does: str
    kind: FixKind = FixKind.CHANGE


RESUME = "jobkit resume {run}"
STATUS = "jobkit status {run} {point}"


def _again(does: str) -> Step:
    return Step(RESUME, does)


def _with(change: str, does: str) -> Step:
    return Step(f"{RESUME} --set {change}", does, FixKind.FIX)


AGAIN = (_again("run it again"),)
LOG = Step("jobkit logs {run} {point}", "read its log", FixKind.LOG)
LOOK = Step("jobkit doctor --submit", "check from inside a job what is missing", FixKind.LOOK)
CUDA = Step("nvidia-smi", "check there that the driver answers, and which CUDA it supports", FixKind.LOOK)
THEN = _again("then run it again")

REMEDIES: Mapping[Outcome, tuple[Step, ...]] = {
    Outcome.OK: (),
    Outcome.GPU_OOM: (),
    Outcome.PRUNED: (Step(f"{RESUME} {{point}}", "run it anyway"),),
    Outcome.RAM_OOM: (Step(STATUS, "how much memory it needs", FixKind.LOOK),),
    Outcome.TIMEOUT: (Step(STATUS, "how much walltime it needs", FixKind.LOOK),),
    **dict.fromkeys((Outcome.CANCELLED, Outcome.PREEMPTED, Outcome.NODE_FAIL, Outcome.LOST), AGAIN),
    Outcome.GPU_BUSY: (_again("once no other process uses the GPU, run it again"),),
    Outcome.QUEUE_ERROR: (
        Step("jobkit cancel {run} {point}", "cancel its job, which cannot begin"),
        _again("once it is fixed"),
    ),
    Outcome.DEPENDENCY: (_again("once what it begins after has ended well; --after NEW takes another"),),
    Outcome.NO_GPU: (LOOK, _again("once a job gets a GPU")),
    Outcome.ENVIRONMENT: (
        LOG,
        _with("environment.venv=FOLDER", "in another environment"),
        _again("or once this one is fixed"),
    ),
    Outcome.MODEL_MISSING: (LOG, _again("once the model is complete")),
    Outcome.SCRATCH_FULL: (
        _again("once there is room on the node, or `scratch` in the site file names another place"),
    ),
    Outcome.STAGE_IN: (LOG, _again("once text and model are restored")),
    Outcome.STAGE_OUT: (_again("once there is room in the run folder, run it again"),),
    Outcome.STOPPED: (
        Step(f"{RESUME} --only stopped", "once what stopped it is fixed, or if that concerns others alone"),
    ),
    Outcome.BUG: (LOG, Step(f"{RESUME} {{point}}", "once it is fixed")),
}
"""By outcome; ``{run}`` and ``{point}`` stand for the run folder and the point's number."""

OF_COPY = (
    LOG,
    Step("{new_run}", "this run keeps its copy of your file; once yours is corrected", FixKind.FIX),
    Step(f"{RESUME} {{point}}", "or, if the cause is outside of that file, once it is fixed"),
)
"""What to type about a bug if the run has copies of the user's files, which nothing changes."""

SAVE = "copy out/ from the folder that keeps them into the folder of the try, before the node cleans it"
HUNG = "if its node was at fault; if a batch takes so long, start a new run with a larger `hang_s`"
BY_MESSAGE: Mapping[tuple[Outcome, str], tuple[Step, ...]] = {
    (Outcome.NO_GPU, "is a CPU build"): (Step("{torch}", "install a torch for CUDA", FixKind.FIX), THEN),
    (Outcome.NO_GPU, Cause.OLD_DRIVER): (CUDA, Step("{torch}", "a torch for that CUDA", FixKind.FIX), THEN),
    (Outcome.NO_GPU, Cause.NO_GPU_REQUESTED): (_with("resources.gpus=1", "again with a GPU"),),
    (Outcome.NO_GPU, Cause.NO_DRIVER): (
        CUDA,
        _with("resources.queue=NAME", "on nodes with an NVIDIA driver"),
    ),
    (Outcome.NO_GPU, Cause.NO_GPU_ASSIGNED): (
        LOOK,
        _again("once `requests.gpus` in the site file asks for one"),
    ),
    (Outcome.STAGE_OUT, "kept in "): (Step(STATUS, SAVE, FixKind.LOOK),),
    (Outcome.ENVIRONMENT, "in the container"): (
        LOG,
        LOOK,
        _with("environment.container=IMAGE", "in another image, by its absolute path"),
        _again("or once this image has what it lacks"),
    ),
    (Outcome.ENVIRONMENT, "there is no image"): (
        LOOK,
        _with("environment.container=IMAGE", "in an image that the nodes see"),
        _again("or once this one is there"),
    ),
    (Outcome.ENVIRONMENT, "neither apptainer nor singularity"): (
        LOOK,
        _with("'environment.modules=[apptainer]'", "with the module that has apptainer"),
        _with("resources.queue=NAME", "or on nodes that have it"),
    ),
    (Outcome.ENVIRONMENT, "module load "): (
        LOG,
        _with("'environment.modules=[NAME]'", "with a module that is there"),
        _again("or once this one is"),
    ),
    (Outcome.ENVIRONMENT, Cause.OF_SHELL): (
        _with("'resources.options.slurm=[--propagate=NONE]'", "without the limits of the shell that submits"),
    ),
    (Outcome.ENVIRONMENT, Cause.SMALL_LIMIT): (
        Step("ulimit -a", "the limits of this shell; qconf -sq NAME has those of a queue", FixKind.LOOK),
        _again("once that limit is higher"),
    ),
    (Outcome.ENVIRONMENT, Cause.NO_MPS): (
        _with("resources.queue=NAME", "on nodes that can; or `mps: auto` in a new run"),
    ),
    (Outcome.ENVIRONMENT, Cause.NO_SHORTCUTS): (
        _with(
            "environment.venv=FOLDER",
            "with another Stanza; or measure with `shortcuts: off`, and apply that run",
        ),
    ),
    (Outcome.ENVIRONMENT, Cause.NO_PROFILER): (
        Step("pip install torch", "in the environment of the job", FixKind.FIX),
        THEN,
    ),
    (Outcome.TIMEOUT, Cause.HANG): (LOG, Step(f"{RESUME} {{point}}", HUNG)),
}
"""By outcome and words that a worker or the job script writes in its message: the first that apply."""


def remedy(
    outcome: Outcome, message: str, *, run: str, point: Point, alone: bool = False
) -> tuple[Step, ...]:
    """Return what to type about an outcome, in order; ``alone`` runs this point only."""
    found = (steps for (of, words), steps in BY_MESSAGE.items() if of is outcome and words in message)
    build = re.search(r"torch \S+ in (?P<python>.+) is a CPU build", message)
    torch = cuda_install_command(build["python"] if build else "python")
    usual = OF_COPY if outcome is Outcome.BUG and point.files else REMEDIES[outcome]
    names = {"run": run, "point": point.index, "torch": torch, "new_run": kind_for(point).new_run}
    steps = []
    for step in next(found, usual):
        one = alone and "{point}" not in step.command
        command = step.command.replace(RESUME, f"{RESUME} {{point}}") if one else step.command
        steps.append(replace(step, command=command.format(**names)))
    return tuple(steps)


WALLTIME, MEMORY = "resources.walltime", "resources.memory"
UNKNOWN = {WALLTIME: "HH:MM:SS", MEMORY: "SIZE"}  # what stands for a value that is not known
MOST_NAMES = 3


@frozen
class ResourceNeed:
    """How much points need of a resource that they ran out of."""

    key: str  # of the spec
    value: str  # enough of it; empty if that is not known
    because: str  # the measured reason; if the value is not known, why not

    @property
    def option(self) -> str:
        """The option of `jobkit resume`; a word in capitals stands for what is not known."""
        return option(self.key, self.value)


def option(key: str, value: str) -> str:
    return f"--set {key}={value or UNKNOWN.get(key, key.rpartition('.')[2].upper())}"


def is_limited(point: PointStatus) -> bool:
    """Return whether a point ran out of walltime or memory; a batch that hung did not."""
    return point.outcome is Outcome.RAM_OOM or (point.outcome is Outcome.TIMEOUT and not point.verdict.hung)


def needed_by(run: RunStatus, points: Sequence[PointStatus]) -> list[ResourceNeed]:
    """Return what points need that ran out of walltime or memory, each key once.

    The walltime follows from the measured pace; without one, and for the memory, it is what the policy of the
    spec gives after such a try. Both are never less than what was measured before.
    """
    late = [point for point in points if point.outcome is Outcome.TIMEOUT and is_limited(point)]
    full = [point for point in points if point.outcome is Outcome.RAM_OOM]
    needs = []
    for key, lacking, need_of in ((WALLTIME, late, _walltime), (MEMORY, full, _memory)):
        try:
            needs += [need_of(run, lacking)] if lacking else []
        except JobkitError:
            unread = f"{UNKNOWN[key]}: more than before; the spec of the run cannot be read"
            needs.append(ResourceNeed(key, "", unread))
    return needs


def _walltime(run: RunStatus, late: Sequence[PointStatus]) -> ResourceNeed:
    found, unmeasured = [], []
    room = f"{100 * (WALLTIME_FACTOR - 1):.0f} % more, and time to copy"
    for point in late:
        tried = point.verdict
        if (progress := progress_of_try(tried)) and (longest_s := whole_s(tried)):
            of = f" of {progress.batches_total:,}" if progress.batches_total else ""
            far = f"{progress.batches:,}{of} batches took {task_s(tried) or 0:,.0f} s"
            found.append((walltime_request(longest_s), f"{far}; {room}"))
            continue
        unmeasured.append(point.point.point_id)
        found.append((_by_policy(run, point).walltime, "the walltime that the policy requests next"))
        if planned_s := kind_for(point.point).foreseen(run.folder, point.point).seconds:
            found.append((walltime_request(planned_s), f"{format_about(planned_s)} were planned; {room}"))
    seconds, because = max(found, key=itemgetter(0))
    more = f"; the time of {format_list(unmeasured, MOST_NAMES)} was not measured yet" if unmeasured else ""
    return ResourceNeed(WALLTIME, format_walltime(seconds), because + more)


def _memory(run: RunStatus, full: Sequence[PointStatus]) -> ResourceNeed:
    size, held = max(_by_policy(run, point).memory for point in full), 0
    for point in full:  # the most RAM of a try with this number of processes, also before the run
        processes = (point.point.workers, point.point.gpus)
        done = (one for one in run.points if one.outcome is Outcome.OK)
        alike = (one for one in done if (one.point.workers, one.point.gpus) == processes)
        foreseen = kind_for(point.point).foreseen(run.folder, point.point).peak_bytes
        held = largest((held, foreseen, *(held_in(one.verdict) for one in (point, *alike)))) or 0
    if held and size < (wanted := memory_request(held)):
        room = f"{100 * (MEMORY_FACTOR - 1):.0f} % more, at least {format_size(LEAST_ROOM_BYTES)}"
        because = f"{format_memory(held)} were measured; {room}"
        return ResourceNeed(MEMORY, format_size(wanted), because)
    return ResourceNeed(MEMORY, format_size(size), "the memory that the policy requests next")


def _by_policy(run: RunStatus, point: PointStatus) -> Resources:
    """Return what the policy gives a point now."""
    from jobkit.spec.sweep_spec import load_spec  # here: only a point that lacked something needs the spec

    every = given_to(run)
    given = every.get(point.task, ())
    spec = load_spec(run.folder / SPEC_FILE, given)
    change = scaled_request(spec.policy, comparable_tries(point, every, given))
    return changed_resources(spec.resources, change)


_Blocked = tuple[Sequence[PointStatus], Queued, Remedy]
"""Points that wait for a person, all of one job and for one reason."""


def advice(run: RunStatus, folder: str) -> tuple[list[str], list[Step]]:
    """Return what a person must know of a run beyond its points, and what to type next, most urgent first.

    ``folder`` is unquoted.
    """
    typed = shell_quote(folder)
    from_files = "the states of its jobs are from the run folder alone"
    notices = [f"{why.message}: {from_files}" for why in run.silent.values()]
    notices += [f"to ask there: {why.hint}" for why in run.silent.values() if why.hint]
    if run.unanswered is not None:
        at = format_moment(str(run.unanswered.get("at", "an unknown time")))
        no_answer = f"a submission at {at} got no answer: its job may be in the queue"
        notices.append(f"a submission is under way, since {at}" if _submitting(run) else no_answer)
    if run.left is not None:
        notices += _left(run, run.left)
    notices += [
        f"job {sent.job} begins after {format_list(sent.after, MOST_NAMES)}"
        for sent in run.submissions
        if sent.after and any(task.job_id == sent.job.id and not one.node for task, one in run.queued.items())
    ]
    for points, _, way_out in _blocked(run, run.points):
        names = format_list([point.point.point_id for point in points], MOST_NAMES)
        command = f"; an administrator types: {shlex.join(way_out.admin_argv)}" if way_out.admin_argv else ""
        notices.append(f"waiting for a person: {names} ({points[0].why or points[0].state}){command}")
    steps = (*releases(run, run.points, typed), *_run_again(run, typed), *_look(run, typed))
    first: dict[str, Step] = {}
    for step in steps:
        first.setdefault(step.command, step)
    if not run.mine:
        notices.append("the run folder cannot be written from here: only its owner can change the run")
    return notices, [step for step in first.values() if run.mine or step.kind in HARMLESS]


HARMLESS = frozenset({FixKind.LOOK, FixKind.LOG, FixKind.WATCH})


def _submitting(run: RunStatus) -> bool:
    """Return whether another process, or a job of the run, waits for the answer to a submission."""
    at = moment(str(run.unanswered.get("at", ""))) if run.unanswered else None
    return at is not None and abs(run.now - at) < STILL_AT_IT


def _left(run: RunStatus, left: Mapping[str, Any]) -> list[str]:
    reason = str(left.get("why", ""))
    if not run.points:
        return f"{run.kind.subject} could not be planned: {reason}".splitlines()
    points, reason = left.get("points"), " ".join(reason.split())
    what = f" {format_count(len(points), run.noun)}" if isinstance(points, list) and points else ""
    if left.get("role") in PLANNERS:
        return [f"the job that planned {run.kind.subject} could not submit{what}: {reason}"]
    return [f"the job that follows the sweep could not submit{what} again: {reason}"]


def _blocked(run: RunStatus, points: Sequence[PointStatus]) -> Iterator[_Blocked]:
    """Yield those of the points that wait for a person, by job and reason."""
    groups: dict[tuple[str, str, str], list[PointStatus]] = {}
    for point in points:
        if point.blocked and point.task and point.queued:
            key = (point.task.scheduler, point.task.job_id, point.queued.reason)
            groups.setdefault(key, []).append(point)
    jobs = {(submission.scheduler, submission.job.id): submission.job for submission in run.submissions}
    for (scheduler, job, _), group in groups.items():
        tasks = tuple(sorted({point.task.task for point in group if point.task}))
        queued = next(point.queued for point in group if point.queued)
        yield group, queued, SCHEDULERS[scheduler].remedy(jobs[scheduler, job], tasks, queued) or Remedy()


def is_idle(run: RunStatus, job: JobStatus) -> bool:
    """Return whether a job is held although it no longer waits for another job.

    Grid Engine lets it go at its next look at the queue, some seconds after the last point has ended.
    """
    held = job.queued is not None and job.queued.state is State.HELD
    ends = (moment(point.record.ended_at) for point in run.points if point.record)
    lately = any(end and run.now - end < GONE_AFTER for end in ends)
    return held and not lately and not any(point.standing in status.LIVE for point in run.points)


def releases(run: RunStatus, points: Sequence[PointStatus], typed: str) -> Iterator[Step]:
    """Yield what releases those of the points that wait for a person, or submits them again."""
    for group, queued, way_out in _blocked(run, points):
        number, them = format_count(len(group), run.noun), "it" if len(group) == 1 else "them"
        if way_out.argv:
            yield Step(shlex.join(way_out.argv), f"releases {number}")
        elif queued.state is State.ERROR:
            if way_out.key:
                does = f"cancels {number} that can never begin, and submits {them} again"
                yield Step(f"jobkit resume {typed} {option(way_out.key, way_out.value)}", does)
                continue
            indices = " ".join(str(point.point.index) for point in group)
            yield Step(f"jobkit cancel {typed} {indices}", f"cancels {number} that can never begin")
            yield Step(f"jobkit resume {typed}", f"then submits {them} again")


def _run_again(run: RunStatus, typed: str) -> Iterator[Step]:
    """Yield what releases a job that waits for points; what fixes their cause, and what runs them again."""
    yield from release_jobs(run)
    failed = [point for point in run.points if point.failed]
    copied = [point for point in failed if point.outcome is Outcome.BUG and point.point.files]
    reason = [
        Step(
            f"jobkit status {typed} {point.point.index}",
            f"all about {point.point.point_id}, and why it failed",
            FixKind.LOOK,
        )
        for point in failed[:1]
    ]
    if _submitting(run):
        yield Step(f"jobkit status {typed}", "in half a minute, whether it has an answer", FixKind.LOOK)
    elif run.unanswered is not None:
        yield Step(f"jobkit resume {typed}", "finds the job by the run's name, and submits what is missing")
    elif _resumes(run) and not run.silent:
        limited = [point for point in failed if is_limited(point)]
        others, needs = len(failed) > len(limited), needed_by(run, limited)
        simple = all(REMEDIES[point.outcome or Outcome.BUG] is AGAIN for point in failed)  # as for `lost`
        if not (all(need.value for need in needs) if limited else simple):
            yield from reason
        if needs:
            only = sorted({f"--only {point.outcome}" for point in limited}) if others else []
            words = " ".join([*only, *(need.option for need in needs)])
            yield Step(
                f"jobkit resume {typed} {words}", "; ".join(need.because for need in needs), FixKind.FIX
            )
        if not limited and len({point.outcome for point in failed}) == 1 and (outcome := failed[0].outcome):
            steps = remedy(outcome, failed[0].verdict.evidence, run=typed, point=failed[0].point)
            yield from (step for step in steps if step.kind in {FixKind.FIX, FixKind.LOOK})
        does = _resumes(run, without=len(copied))
        kinds = {str(point.outcome) for point in failed if point not in (*limited, *copied)}
        kinds |= {word for word in (status.CANCELLED, PointStanding.MISSING) if run.counts[word]}
        rest = "".join(f" --only {word}" for word in sorted(kinds)) if copied else ""
        if rest or (not copied and (others or not limited)):
            yield Step(f"jobkit resume {typed}{rest}", does)
    yield from reason


def release_jobs(run: RunStatus) -> Iterator[Step]:
    """Yield what releases the jobs that wait for the points, or that plan them."""
    for job in run.jobs:
        if job.queued is not None and (job.state == PointStanding.STUCK or is_idle(run, job)):
            sent = job.submission
            way_out = SCHEDULERS[sent.scheduler].remedy(sent.job, (sent.first,), job.queued)
            if way_out and way_out.argv:
                yield Step(shlex.join(way_out.argv), f"releases job {sent.job}")


def _resumes(run: RunStatus, *, without: int = 0) -> str:
    """Return what `jobkit resume` does, ``without`` some that failed; empty if it would do nothing."""
    if run.planner or not run.points:
        return "" if run.planner else f"submits the job that plans {run.kind.subject} again"
    failed, cancelled, missing = (
        run.counts[word] for word in (PointStanding.FAILED, status.CANCELLED, PointStanding.MISSING)
    )
    failed -= without
    again = [f"{_the(failed, run.noun)} that failed"] if failed else []
    if cancelled:
        again.append(f"{_the(cancelled, run.noun)} that {'was' if cancelled == 1 else 'were'} cancelled")
    what = [f"runs again {' and '.join(again)}"] if again else []
    here = run.schedulers and all(map(runs_here, run.schedulers))
    those = _the(missing, run.noun)
    new = f"runs {those} that did not begin" if here else f"submits {those} never submitted"
    what += [new] if missing else []
    return (", and " if len(again) > 1 else " and ").join(what)


def _look(run: RunStatus, typed: str) -> Iterator[Step]:
    """Yield what shows more: how the run goes on, or its results."""
    states = {str(point.standing) for point in run.points}
    follows = PointStanding.FAILED in states  # else the job that runs failed points again adds nothing
    states |= {job.state for job in run.jobs if follows or job.submission.role is not Role.FOLLOW}
    states |= {run.planner.state} if run.planner else set()
    if states & {PointStanding.RUNNING, PointStanding.WAITING}:
        yield Step(f"jobkit status {typed} --watch", "follows it to its end", FixKind.WATCH)
    for point in [point.point for point in run.points if point.standing is PointStanding.RUNNING][:1]:
        does = f"prints the log of {point.point_id}"
        yield Step(f"jobkit logs {typed} {point.index} -f", does, FixKind.LOG)
    for command, does in run.kind.looks(run, typed):
        yield Step(command, does, FixKind.LOOK)


def _the(number: int, noun: str) -> str:
    return f"the {noun}" if number == 1 else f"the {number:,} {noun}s"
