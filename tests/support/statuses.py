"""How runs stand, for tests of what is said of it: made from parts, no run folder behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jobkit.core.records import Outcome
from jobkit.outcome.journal import Role, Submission, Task
from jobkit.outcome.tries import TryResult
from jobkit.outcome.verdict import TryFiles, Verdict
from jobkit.schedulers.types import JobId, Queued, State
from jobkit.status.standing import PointStanding, RunStanding, Standing, state_of
from jobkit.status.summary import JobStatus, PointStatus, RequestedGpus, RunStatus
from tests.support.builders import point

AT = "2026-01-02T10:15:00+00:00"


def submission(
    job: str = "77", role: Role = Role.POINTS, scheduler: str = "slurm", last: int = 1000
) -> Submission:
    return Submission(at=AT, scheduler=scheduler, job=JobId(job), first=1, last=last, role=role)


def waits(state: State, reason: str = "", task: int = 1) -> Queued:
    return Queued(job_id="77", task=task, state=state, reason=reason)


def tried(
    number: int = 1, outcome: Outcome | None = None, *, evidence: str = "", task: Task | None = None
) -> TryResult:
    """Return a try on node1; its files and its account are for the test to add."""
    return TryResult(TryFiles(number=number), Verdict(outcome=outcome, evidence=evidence), task, "node1")


def a_point(
    index: int,
    standing: Standing,
    outcome: Outcome | None = None,
    *,
    why: str = "",
    queued: Queued | None = None,
    tries: Sequence[TryResult] = (),
) -> PointStatus:
    """Return a point: the task of its number of job 77, unless it is missing; with a try if it has begun."""
    task = None if standing is Standing.MISSING else Task(_scheduler(queued), "77", index)
    if not tries and (outcome is not None or standing is Standing.RUNNING):
        tries = (tried(1, outcome, evidence=why, task=task),)
    counts = tries[0] if tries else replace(tried(0, outcome, task=task), node="")
    look = PointStanding(
        point=point(index),
        standing=standing,
        counts=counts,
        tries=tuple(tries),
        task=task,
        queued=replace(queued, task=index) if queued else None,
    )
    return PointStatus(look=look, state=state_of(look), why=why)


def _scheduler(queued: Queued | None) -> str:
    return "sge" if queued and queued.reason.endswith("qw") else "slurm"


def a_job(
    role: Role, state: str, queued: Queued | None = None, *, why: str = "", job: str = "79"
) -> JobStatus:
    return JobStatus(job=submission(job, role, _scheduler(queued)), state=state, why=why, queued=queued)


def a_run(points: Sequence[PointStatus], jobs: Sequence[JobStatus] = (), **known: object) -> RunStatus:
    """Return a run; ``known`` are fields of RunLook."""
    schedulers = sorted({one.look.task.scheduler for one in points if one.look.task}) or ["slurm"]
    seen = RunStanding(
        folder=Path("runs/demo"),
        points=tuple(one.look for one in points),
        submissions=(
            *(submission(scheduler=scheduler) for scheduler in schedulers),
            *(job.job for job in jobs),
        ),
        **known,  # type: ignore[arg-type]
    )
    return RunStatus(
        seen=seen,
        asked=RequestedGpus(1, "h200"),
        points=tuple(points),
        jobs=tuple(jobs),
        to_go_s=None,
        saved=None,
    )
