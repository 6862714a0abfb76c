"""A job of a run, from the decision to submit it to the answer of the scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobkit.core.frozen import keyed
from jobkit.core.layout import FIND_SCRIPT, FOLLOW_SCRIPT, PLAN_SCRIPT
from jobkit.core.terminal import Say, note
from jobkit.runs.journal import PURPOSES, Role
from jobkit.schedulers.types import ONE_TASK, Array, JobId, JobRequest


@keyed
class Job:
    """A job that is about to be submitted, or that a scheduler has accepted or refused."""

    script: str  # the name of its script in the run folder, or the path
    array: Array  # its tasks
    role: Role = Role.POINTS  # a job for anything but points starts after the arrays before it
    round: int = 1  # in which round of its run
    given: tuple[str, ...] = ()  # what a person gave with it: ``key=value``
    request: JobRequest | None = None  # what the scheduler is asked of it before; ``None`` not to ask
    behind: int = 0  # an array waits for the array this many places before it; 0 for none
    id: JobId | None = None  # what the scheduler calls it; ``None`` unless it was accepted
    refused: str = ""  # why the scheduler refused it, if the run goes on without it; else empty

    def waits_for(self, arrays: Sequence[JobId]) -> Sequence[JobId]:
        """Return those of the arrays before it that must end before it starts."""
        if self.role is Role.POINTS:
            return arrays[-self.behind :][:1] if self.behind else ()
        return arrays

    def journalled(self, scheduler: str) -> Mapping[str, object]:
        """Return what the journal keeps of it, besides what was answered."""
        array, asked = self.array, self.request if self.role is Role.POINTS else None
        sizes = asked and {"walltime_s": asked.walltime_s // asked.pack, "memory_bytes": asked.memory_bytes}
        return {
            "scheduler": scheduler,
            "first": array.first,
            "last": array.last,
            "offset": array.offset,
            "throttle": array.throttle,
            "role": self.role,
            "round": self.round,
            **({"list": array.listed} if array.listed else {}),
            **({"given": self.given} if self.given else {}),
            **(sizes or {}),
        }


def find_job(points: int) -> Job:
    """Return the job that tries the largest batch: its task is the first point behind those of the run."""
    array = Array(first=1, last=1, offset=points, throttle=None)
    return Job(script=FIND_SCRIPT, array=array, role=Role.FIND)


def follow_job(round_: int) -> Job:
    """Return the job that runs points again as the policy says, once a round has ended."""
    return Job(script=FOLLOW_SCRIPT, array=ONE_TASK, role=Role.FOLLOW, round=round_)


def plan_job(request: JobRequest) -> Job:
    """Return the job that reads and plans a corpus, and submits its shards."""
    return Job(script=PLAN_SCRIPT, array=ONE_TASK, role=Role.PLAN, request=request)


def ids(jobs: Sequence[Job]) -> tuple[JobId, ...]:
    """Return the ids of the jobs that were accepted."""
    return tuple(job.id for job in jobs if job.id)


def announce(scheduler: str, jobs: Sequence[Job], then: str = "", say: Say = note) -> None:
    """Tell a person what was submitted; the job that runs failed points again only if it was refused."""
    points = ", ".join(map(str, ids([job for job in jobs if job.role is Role.POINTS])))
    others = [job for job in jobs if job.id and job.role not in {Role.POINTS, Role.FOLLOW}]
    parts = [f"job {points}"] if points else []
    parts += [f"job {job.id} {PURPOSES[job.role]}" for job in others]
    say(f"submitted: {scheduler} {'; '.join(parts)}{then}")
    for job in jobs:
        if job.refused:
            say(f"no job runs again what fails: {job.refused}")
