"""A job of a run, from the decision to submit it to the answer of the scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace

from jobkit.core.frozen import keyed
from jobkit.core.layout import FIND_SCRIPT, FOLLOW_SCRIPT, PLAN_SCRIPT
from jobkit.core.terminal import Say, note
from jobkit.runs.after import Parent, first_look
from jobkit.runs.journal import PURPOSES, Role
from jobkit.schedulers.registry import by_name
from jobkit.schedulers.types import ONE_TASK, Array, JobId, JobRequest
from jobkit.spec.site import Site
from jobkit.spec.sweep_spec import SweepSpec


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
    after: tuple[Parent, ...] = ()  # what else it begins after, if no array before it
    id: JobId | None = None  # what the scheduler calls it; ``None`` unless it was accepted
    refused: str = ""  # why the scheduler refused it, if the run goes on without it; else empty

    @property
    def is_first(self) -> bool:
        """Whether it waits for no job of its run."""
        return self.role not in {Role.FIND, Role.FOLLOW} and not self.behind

    def waits_for(self, arrays: Sequence[JobId]) -> Sequence[JobId]:
        """Return those of the arrays before it that must end before it starts."""
        if self.role is Role.POINTS:
            arrays = arrays[-self.behind :][:1] if self.behind else ()
        return arrays or [job for parent in self.after for job in parent.jobs]

    def journalled(self, scheduler: str) -> Mapping[str, object]:
        """Return what the journal keeps of it, besides what was answered."""
        waits = [astuple(job) for one in self.after for job in one.jobs]
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
            **({"after": [one.word for one in self.after], "waits": waits} if waits else {}),
            **(sizes or {}),
        }


def begin_after(jobs: Sequence[Job], spec: SweepSpec, site: Site) -> list[Job]:
    """Return jobs of which the first wait for what a spec names; refuse if that can never end as it must."""
    after = first_look(spec.after, by_name(spec.scheduler), site) if spec.after else ()
    return [replace(job, after=after) if job.is_first else job for job in jobs]


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
