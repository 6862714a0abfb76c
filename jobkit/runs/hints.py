"""What blocks a run, and what to type next: the one place of every hint. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from jobkit.core.errors import JobkitError
from jobkit.core.layout import SPEC_FILE
from jobkit.core.records import Outcome
from jobkit.core.terminal import shell_quote
from jobkit.core.torch_build import cuda_install_command
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
from jobkit.runs import standing
from jobkit.runs.journal import PLANNERS, PURPOSES, STILL_AT_IT, Role
from jobkit.runs.kinds import Foreseen, kind_for
from jobkit.runs.progress import progress_of_try, whole_s
from jobkit.runs.request import (
    LEAST_ROOM_BYTES,
    MEMORY_FACTOR,
    WALLTIME_FACTOR,
    held_in,
    memory_request,
    walltime_request,
)
from jobkit.runs.results import task_s
from jobkit.runs.standing import HELD, JobStanding, PointState, PointStatus, RunStanding, given_to
from jobkit.schedulers.registry import SCHEDULERS, runs_here
from jobkit.schedulers.types import Queued, Remedy, State
from jobkit.worker.failure import (
    CPU_BUILD,
    HANG,
    NO_DRIVER,
    NO_GPU_ASSIGNED,
    NO_GPU_REQUESTED,
    NO_MPS,
    NO_PROFILER,
    NO_SHORTCUTS,
    OLD_DRIVER,
)

if TYPE_CHECKING:
    from jobkit.spec.sweep_spec import Resources


class FixKind(StrEnum):
    CHANGE = "change"  # jobkit runs or cancels points, or the scheduler releases them
    FIX = "fix"  # the points get what they lacked
    LOOK = "look"
    LOG = "log"
    WATCH = "watch"


@dataclass(frozen=True, slots=True)
class Step:
    command: str
    does: str
    kind: FixKind = FixKind.CHANGE


RESUME = "jobkit resume {run}"
STATUS = "jobkit status {run} {point}"
AGAIN = (Step(RESUME, "run it again"),)
LOG = Step("jobkit logs {run} {point}", "read its log", FixKind.LOG)
FIXED = Step(f"{RESUME} {{point}}", "once it is fixed")
LOOK = Step("jobkit doctor --submit", "check from inside a job what is missing", FixKind.LOOK)
CUDA = Step("nvidia-smi", "check there that the driver answers, and which CUDA it supports", FixKind.LOOK)

REMEDIES: Mapping[Outcome, tuple[Step, ...]] = {
    Outcome.OK: (),
    Outcome.GPU_OOM: (),
    Outcome.PRUNED: (Step(f"{RESUME} {{point}}", "run it anyway"),),
    Outcome.RAM_OOM: (Step(STATUS, "how much memory it needs", FixKind.LOOK),),
    Outcome.TIMEOUT: (Step(STATUS, "how much walltime it needs", FixKind.LOOK),),
    **dict.fromkeys((Outcome.CANCELLED, Outcome.PREEMPTED, Outcome.NODE_FAIL, Outcome.LOST), AGAIN),
    Outcome.GPU_BUSY: (Step(RESUME, "once no other process uses the GPU, run it again"),),
    Outcome.QUEUE_ERROR: (
        Step("jobkit cancel {run} {point}", "cancel its job, which cannot begin"),
        Step(RESUME, "once it is fixed"),
    ),
    Outcome.NO_GPU: (LOOK, Step(RESUME, "once a job gets a GPU")),
    Outcome.ENVIRONMENT: (
        LOG,
        Step(f"{RESUME} --set environment.venv=FOLDER", "in another environment", FixKind.FIX),
        Step(RESUME, "or once this one is fixed"),
    ),
    Outcome.MODEL_MISSING: (LOG, Step(RESUME, "once the model is complete")),
    Outcome.SCRATCH_FULL: (
        Step(RESUME, "once there is room on the node, or `scratch` in the site file names another place"),
    ),
    Outcome.STAGE_IN: (LOG, Step(RESUME, "once text and model are restored")),
    Outcome.STAGE_OUT: (Step(RESUME, "once there is room in the run folder, run it again"),),
    Outcome.STOPPED: (Step(RESUME, "once what stopped the sweep is fixed"),),
    Outcome.BUG: (LOG, FIXED),
}
"""By outcome; ``{run}`` and ``{point}`` stand for the run folder and the point's number."""

NO_GPU = {
    NO_GPU_REQUESTED: (Step(f"{RESUME} --set resources.gpus=1", "again with a GPU", FixKind.FIX),),
    NO_DRIVER: (
        CUDA,
        Step(f"{RESUME} --set resources.queue=NAME", "on nodes with an NVIDIA driver", FixKind.FIX),
    ),
    NO_GPU_ASSIGNED: (LOOK, Step(RESUME, "once `requests.gpus` in the site file asks for one")),
}  # the remedies of `Outcome.NO_GPU` by what its message holds
IN_CONTAINER, NO_IMAGE, NO_ENGINE = (
    "in the container",
    "there is no image",
    "neither apptainer nor singularity",
)
"""The job script writes it in the message of `Outcome.ENVIRONMENT` if the point has a container."""
KEPT = "kept in "  # in the message of `Outcome.STAGE_OUT` if the node's scratch still holds the results
BY_MESSAGE = {
    (Outcome.STAGE_OUT, KEPT): (
        Step(
            STATUS,
            "copy out/ from the folder that keeps them into the folder of the try, before the node cleans it",
            FixKind.LOOK,
        ),
    ),
    (Outcome.ENVIRONMENT, IN_CONTAINER): (
        LOG,
        LOOK,
        Step(
            f"{RESUME} --set environment.container=IMAGE",
            "in another image, by its absolute path",
            FixKind.FIX,
        ),
        Step(RESUME, "or once this image has what it lacks"),
    ),
    (Outcome.ENVIRONMENT, NO_IMAGE): (
        LOOK,
        Step(f"{RESUME} --set environment.container=IMAGE", "in an image that the nodes see", FixKind.FIX),
        Step(RESUME, "or once this one is there"),
    ),
    (Outcome.ENVIRONMENT, NO_ENGINE): (
        LOOK,
        Step(
            f"{RESUME} --set 'environment.modules=[apptainer]'",
            "with the module that has apptainer",
            FixKind.FIX,
        ),
        Step(f"{RESUME} --set resources.queue=NAME", "or on nodes that have it", FixKind.FIX),
    ),
    (Outcome.ENVIRONMENT, NO_MPS): (
        Step(
            f"{RESUME} --set resources.queue=NAME",
            "on nodes that can; or `mps: auto` in a new run",
            FixKind.FIX,
        ),
    ),
    (Outcome.ENVIRONMENT, NO_SHORTCUTS): (
        Step(
            f"{RESUME} --set environment.venv=FOLDER",
            "with another Stanza; or measure with `shortcuts: off`, and apply that run",
            FixKind.FIX,
        ),
    ),
    (Outcome.ENVIRONMENT, NO_PROFILER): (
        Step("pip install 'jobkit[profile]'", "in the environment of the job", FixKind.FIX),
        Step(RESUME, "then run it again"),
    ),
    (Outcome.TIMEOUT, HANG): (
        LOG,
        Step(
            f"{RESUME} {{point}}",
            "if its node was at fault; if a batch takes so long, start a new run with a larger `hang_s`",
        ),
    ),
}  # the remedies of an outcome if its message holds these words


def remedy(outcome: Outcome, message: str, *, run: str, point: int, alone: bool = False) -> tuple[Step, ...]:
    """Return what to type about an outcome, in order; ``alone`` runs this point only."""
    steps = []
    for step in _steps(outcome, message):
        one = alone and "{point}" not in step.command
        command = step.command.replace(RESUME, f"{RESUME} {{point}}") if one else step.command
        steps.append(replace(step, command=command.format(run=run, point=point)))
    return tuple(steps)


def _steps(outcome: Outcome, message: str) -> tuple[Step, ...]:
    if outcome is not Outcome.NO_GPU:
        found = (steps for (of, words), steps in BY_MESSAGE.items() if of is outcome and words in message)
        return next(found, REMEDIES[outcome])
    if build := CPU_BUILD.search(message):
        new_torch = Step(
            _plain(cuda_install_command(build["python"])), "install a torch for CUDA", FixKind.FIX
        )
        return (new_torch, Step(RESUME, "then run it again"))
    if OLD_DRIVER in message:
        return (
            CUDA,
            Step(_plain(cuda_install_command("python")), "a torch for that CUDA", FixKind.FIX),
            Step(RESUME, "then run it again"),
        )
    return next((steps for words, steps in NO_GPU.items() if words in message), REMEDIES[outcome])


def _plain(command: str) -> str:
    """Return a command that `str.format` leaves as it is."""
    return command.replace("{", "{{").replace("}", "}}")


WALLTIME, MEMORY = "resources.walltime", "resources.memory"
ROOM = f"{100 * (WALLTIME_FACTOR - 1):.0f} % more, and time to copy"
MOST_NAMES = 3


@dataclass(frozen=True, slots=True)
class ResourceNeed:
    """How much points need of a resource that they ran out of."""

    key: str  # of the spec
    value: str  # enough of it; empty if that is not known
    because: str  # the measured reason; if the value is not known, why not

    @property
    def option(self) -> str:
        """The option of `jobkit resume`; a word in capitals stands for what is not known."""
        unknown = {WALLTIME: "HH:MM:SS", MEMORY: "SIZE"}
        return f"--set {self.key}={self.value or unknown[self.key]}"


def is_limited(point: PointStatus) -> bool:
    """Return whether a point ran out of walltime or memory; a batch that hung did not."""
    return point.outcome is Outcome.RAM_OOM or (point.outcome is Outcome.TIMEOUT and not point.verdict.hung)


def needed_by(run: RunStanding, points: Sequence[PointStatus]) -> list[ResourceNeed]:
    """Return what points need that ran out of walltime or memory, each key once.

    The walltime follows from the measured pace; without one, and for the memory, it is what the policy of the
    spec gives after such a try. Both are never less than what was measured before.
    """
    late = [point for point in points if point.outcome is Outcome.TIMEOUT and is_limited(point)]
    full = [point for point in points if point.outcome is Outcome.RAM_OOM]
    return [*([_walltime(run, late)] if late else []), *([_memory(run, full)] if full else [])]


def _walltime(run: RunStanding, late: Sequence[PointStatus]) -> ResourceNeed:
    paces = [(point, whole_s(point.counts, shared=point.counts.task in point.shared_tasks)) for point in late]
    found = [
        _unpaced(run, point) if longest_s is None else (walltime_request(longest_s), _far(point))
        for point, longest_s in paces
    ]
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return ResourceNeed(WALLTIME, "", "HH:MM:SS: more than before; the spec of the run cannot be read")
    seconds, because = max(known, key=itemgetter(0))
    names = [point.point.point_id for point, longest_s in paces if longest_s is None]
    more = f"; the time of {format_list(names, MOST_NAMES)} was not measured yet" if names else ""
    return ResourceNeed(WALLTIME, format_walltime(seconds), because + more)


def _unpaced(run: RunStanding, point: PointStatus) -> tuple[int, str] | None:
    """Return the walltime of a point without a pace, and why; ``None`` if the spec cannot be read."""
    resources, planned_s = _by_policy(run, point), _foreseen(run, point).seconds
    if resources is None:
        return None
    if planned_s is not None and (walltime_s := walltime_request(planned_s)) > resources.walltime:
        return walltime_s, f"{format_about(planned_s)} were planned; {ROOM}"
    return resources.walltime, "the walltime that the policy requests next"


def _foreseen(run: RunStanding, point: PointStatus) -> Foreseen:
    return kind_for(point.point).foreseen(run.folder, point.point)


def _far(point: PointStatus) -> str:
    progress, spent_s = progress_of_try(point.counts), task_s(point.counts)
    of = f" of {progress.batches_total:,}" if progress and progress.batches_total else ""
    return f"{progress.batches if progress else 0:,}{of} batches took {spent_s or 0:,.0f} s; {ROOM}"


def _memory(run: RunStanding, full: Sequence[PointStatus]) -> ResourceNeed:
    known = [found.memory for point in full if (found := _by_policy(run, point))]
    if len(known) < len(full):
        return ResourceNeed(MEMORY, "", "SIZE: more than before; the spec of the run cannot be read")
    size, held = max(known), max(_held_bytes(run, point) for point in full)
    if held and size < (wanted := memory_request(held)):
        room = f"{100 * (MEMORY_FACTOR - 1):.0f} % more, at least {format_size(LEAST_ROOM_BYTES)}"
        because = f"{format_memory(held)} were measured; {room}"
        return ResourceNeed(MEMORY, format_size(wanted), because)
    return ResourceNeed(MEMORY, format_size(size), "the memory that the policy requests next")


def _held_bytes(run: RunStanding, point: PointStatus) -> int:
    """Return the most RAM of a try with this number of processes, also before the run; 0 if unknown."""

    def alike(other: PointStatus) -> bool:
        return (other.point.workers, other.point.gpus) == (point.point.workers, point.point.gpus)

    ok = (other for other in run.points if other.outcome is Outcome.OK and alike(other))
    held = [held_in(one.counts) for one in (point, *ok)]
    return max((size for size in (_foreseen(run, point).peak_bytes, *held) if size), default=0)


def _by_policy(run: RunStanding, point: PointStatus) -> Resources | None:
    """Return what the policy gives a point now; ``None`` if the spec cannot be read."""
    # here: only a point that lacked something needs the spec
    from jobkit.runs.retry import changed, comparable_tries
    from jobkit.runs.retry_rule import scaled_request
    from jobkit.spec.sweep_spec import load_spec

    every = given_to(run)
    given = every.get(point.task, ()) if point.task else ()
    try:
        spec = load_spec(run.folder / SPEC_FILE, given)
    except JobkitError:
        return None
    return changed(spec, scaled_request(spec.policy, comparable_tries(point, every, given))).resources


@dataclass(frozen=True, slots=True)
class Advice:
    """What a person must know of a run beyond its points, in sentences, and what to type next."""

    notices: tuple[str, ...]
    steps: tuple[Step, ...]


_Blocked = tuple[Sequence[PointStatus], Queued, Remedy]
"""Points that wait for a person, all of one job and for one reason."""


def advice(run: RunStanding, folder: str) -> Advice:
    """Return what blocks a run, and what to type next, the most urgent first; ``folder`` is unquoted."""
    typed = shell_quote(folder)
    notices = list(_notices(run))
    steps = [*releases(run, run.points, typed), *_run_again(run, typed), *_look(run, typed)]
    steps = [step for step in steps if step is next(each for each in steps if each.command == step.command)]
    if not run.mine:
        notices.append("the run folder cannot be written from here: only its owner can change the run")
        steps = [step for step in steps if step.kind in HARMLESS]
    return Advice(tuple(notices), tuple(steps))


HARMLESS = frozenset({FixKind.LOOK, FixKind.LOG, FixKind.WATCH})


def _notices(run: RunStanding) -> Iterator[str]:
    for name in run.silent:
        yield f"{name} does not answer: the states of its jobs are from the run folder alone"
    if run.unanswered is not None:
        at = format_moment(str(run.unanswered.get("at", "an unknown time")))
        under_way = f"a submission is under way, since {at}"
        no_answer = f"a submission at {at} got no answer: its job may be in the queue"
        yield under_way if _submitting(run) else no_answer
    if run.left is not None:
        yield from _left(run, run.left)
    for points, _, way_out in _blocked(run, run.points):
        names = format_list([point.point.point_id for point in points], MOST_NAMES)
        typed = f"; an administrator types: {shlex.join(way_out.admin_argv)}" if way_out.admin_argv else ""
        yield f"waiting for a person: {names} ({points[0].why or points[0].state}){typed}"


def _submitting(run: RunStanding) -> bool:
    """Return whether another process, or a job of the run, waits for the answer to a submission."""
    at = moment(str(run.unanswered.get("at", ""))) if run.unanswered else None
    return at is not None and abs(run.now - at) < STILL_AT_IT


def _left(run: RunStanding, left: Mapping[str, Any]) -> Iterator[str]:
    why = str(left.get("why", ""))
    if not run.points:
        yield from f"{run.kind.subject} could not be planned: {why}".splitlines()
        return
    points, why = left.get("points"), " ".join(why.split())
    what = f" {format_count(len(points), run.noun)}" if isinstance(points, list) and points else ""
    if left.get("role") in PLANNERS:
        yield f"the job that planned {run.kind.subject} could not submit{what}: {why}"
    else:
        yield f"the job that follows the sweep could not submit{what} again: {why}"


def _blocked(run: RunStanding, points: Sequence[PointStatus]) -> Iterator[_Blocked]:
    """Yield those of the points that wait for a person, by job and reason."""
    groups: dict[tuple[str, str, str], list[PointStatus]] = {}
    for point in points:
        if point.state in {HELD, PointState.STUCK} and point.task and point.queued:
            key = (point.task.scheduler, point.task.job_id, point.queued.reason)
            groups.setdefault(key, []).append(point)
    jobs = {(submission.scheduler, submission.job.id): submission.job for submission in run.submissions}
    for (scheduler, job, _), group in groups.items():
        tasks = tuple(sorted({point.task.task for point in group if point.task}))
        queued = next(point.queued for point in group if point.queued)
        yield group, queued, SCHEDULERS[scheduler].remedy(jobs[scheduler, job], tasks, queued) or Remedy()


def _idle(run: RunStanding, job: JobStanding) -> bool:
    """Return whether a job is held although it no longer waits for another job."""
    held = job.queued is not None and job.queued.state is State.HELD
    return held and not any(point.standing in standing.LIVE for point in run.points)


def releases(run: RunStanding, points: Sequence[PointStatus], typed: str) -> Iterator[Step]:
    """Yield what releases those of the points that wait for a person, or submits them again."""
    for group, queued, way_out in _blocked(run, points):
        number = format_count(len(group), run.noun)
        if way_out.argv:
            yield Step(shlex.join(way_out.argv), f"releases {number}")
        elif queued.state is State.ERROR:
            indices = " ".join(str(point.point.index) for point in group)
            more = f"; resume with another {way_out.key}" if way_out.key else ""
            yield Step(f"jobkit cancel {typed} {indices}", f"cancels {number} that can never begin{more}")
            change = f" --set {way_out.key}=..." if way_out.key else ""
            yield Step(f"jobkit resume {typed}{change}", "then submits them again")


def _run_again(run: RunStanding, typed: str) -> Iterator[Step]:
    """Yield what runs points again, and what releases a job that waits for them."""
    yield from release_jobs(run)
    failed = [point for point in run.points if point.standing is PointState.FAILED and not point.cancelled]
    does = _resumes(run)
    if _submitting(run):
        yield Step(f"jobkit status {typed}", "in half a minute, whether it has an answer", FixKind.LOOK)
    elif run.unanswered is not None:
        yield Step(f"jobkit resume {typed}", "finds the job by the run's name, and submits what is missing")
    elif does and not run.silent:
        yield from _resume(run, failed, typed, does)
    yield from _reason(failed, typed)


def _reason(failed: Sequence[PointStatus], typed: str) -> Iterator[Step]:
    for point in failed[:1]:
        does = f"all about {point.point.point_id}, and why it failed"
        yield Step(f"jobkit status {typed} {point.point.index}", does, FixKind.LOOK)


def release_jobs(run: RunStanding) -> Iterator[Step]:
    """Yield what releases the jobs that wait for the points, or that plan them."""
    for job in run.jobs:
        if job.queued is not None and (job.state == PointState.STUCK or _idle(run, job)):
            sent = job.submission
            way_out = SCHEDULERS[sent.scheduler].remedy(sent.job, (sent.first,), job.queued)
            if way_out and way_out.argv:
                yield Step(shlex.join(way_out.argv), f"releases job {sent.job}")


def _resume(run: RunStanding, failed: Sequence[PointStatus], typed: str, does: str) -> Iterator[Step]:
    """Yield what fixes the cause, and what runs the points again."""
    limited = [point for point in failed if is_limited(point)]
    others, needs = len(failed) > len(limited), needed_by(run, limited)
    if not all(need.value for need in needs) or not limited:
        yield from _reason(failed, typed)
    yield from _with_more(needs, limited, typed, only=others)
    if not limited and len({point.outcome for point in failed}) == 1 and (outcome := failed[0].outcome):
        steps = remedy(outcome, failed[0].verdict.evidence, run=typed, point=failed[0].point.index)
        yield from (step for step in steps if step.kind in {FixKind.FIX, FixKind.LOOK})
    if others or not limited:
        yield Step(f"jobkit resume {typed}", does)


def _with_more(
    needs: Sequence[ResourceNeed], limited: Sequence[PointStatus], typed: str, *, only: bool
) -> Iterator[Step]:
    """Yield what runs points again with more of what they ran out of; ``only`` leaves all others out."""
    outcomes = sorted({f"--only {point.outcome}" for point in limited}) if only else []
    if needs:
        words = " ".join([*outcomes, *(need.option for need in needs)])
        yield Step(f"jobkit resume {typed} {words}", "; ".join(need.because for need in needs), FixKind.FIX)


def _resumes(run: RunStanding) -> str:
    """Return what `jobkit resume` does; empty if it would do nothing."""
    if run.planner or not run.points:
        return "" if run.planner else f"submits the job that plans {run.kind.subject} again"
    failed, cancelled, missing = (
        run.counts[word] for word in (PointState.FAILED, standing.CANCELLED, PointState.MISSING)
    )
    again = [f"{_the(failed, run.noun)} that failed"] if failed else []
    if cancelled:
        again.append(f"{_the(cancelled, run.noun)} that {'was' if cancelled == 1 else 'were'} cancelled")
    what = [f"runs again {' and '.join(again)}"] if again else []
    here = run.schedulers and all(map(runs_here, run.schedulers))
    those = _the(missing, run.noun)
    new = f"runs {those} that did not begin" if here else f"submits {those} never submitted"
    what += [new] if missing else []
    return (", and " if len(again) > 1 else " and ").join(what)


def _look(run: RunStanding, typed: str) -> Iterator[Step]:
    """Yield what shows more: how the run goes on, or its results."""
    standings = {point.standing for point in run.points}
    moving = {PointState.RUNNING, PointState.WAITING}
    follows = PointState.FAILED in standings  # else the job that runs failed points again adds nothing
    jobs = {job.state for job in run.jobs if follows or job.submission.role is not Role.FOLLOW}
    if moving & (standings | jobs):
        yield Step(f"jobkit status {typed} --watch", "follows it to its end", FixKind.WATCH)
    running = next((point.point for point in run.points if point.standing is PointState.RUNNING), None)
    if running is not None:
        yield Step(
            f"jobkit logs {typed} {running.index} -f", f"prints the log of {running.point_id}", FixKind.LOG
        )
    for command, does in run.kind.looks(run, typed):
        yield Step(command, does, FixKind.LOOK)


def _the(number: int, noun: str) -> str:
    return f"the {noun}" if number == 1 else f"the {number:,} {noun}s"


def job_line(run: RunStanding, job: JobStanding) -> str:
    """Return how a job that waits for the points stands; empty if its scheduler does not answer.

    Of several ended jobs of a role, only the last has a line.
    """
    sent = job.submission
    name = f"job {sent.job}, which {PURPOSES[sent.role]},"
    if sent.role in PLANNERS and run.points and job.state != PointState.STUCK:
        return ""
    if sent.role is Role.FOLLOW and _goes_on(run, job):
        return ""
    if job.state == standing.ENDED:
        last = [other for other in run.jobs if other.submission.role is sent.role][-1]
        return f"{name} has ended ({job.why})" if job is last else ""
    if sent.scheduler in run.silent:
        return ""
    states = {
        PointState.RUNNING: "is running",
        PointState.STUCK: f"is stuck: {job.why}",
        PointState.WAITING: _waiting(run, job),
        PointState.UNSETTLED: "has left the queue; how it ended is not known yet",
    }
    return f"{name} {states[PointState(job.state)]}"


def _goes_on(run: RunStanding, job: JobStanding) -> bool:
    """Return whether a job that runs failed points again needs no person: it waits, runs, or is over."""
    if job.state == PointState.WAITING:
        waits = any(point.state in {HELD, PointState.STUCK} for point in run.points)
        return not waits and not _idle(run, job)
    failed = any(point.standing is PointState.FAILED and not point.cancelled for point in run.points)
    return job.state == PointState.RUNNING or (job.state == standing.ENDED and not failed)


def _waiting(run: RunStanding, job: JobStanding) -> str:
    if job.submission.role in PLANNERS:
        return f"waits: {job.why}" if job.why else "waits"
    if any(point.state in {HELD, PointState.STUCK} for point in run.points):
        return f"begins when the {run.noun}s have ended, so a person must release them first"
    if _idle(run, job):
        return f"waits though the {run.noun}s have ended: {job.why}"
    return f"begins when the {run.noun}s have ended"
