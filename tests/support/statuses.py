"""Standings of runs, made from parts: no run folder is behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobkit.core.records import Outcome, Record
from jobkit.runs.journal import JobTask, Role, Submission
from jobkit.runs.status import PointStanding, PointStatus, Requested, RunStatus
from jobkit.runs.tries import Try
from jobkit.schedulers.types import JobId, Queued, State
from tests.support.builders import batch, point

AT = "2026-01-02T10:15:00+00:00"
TASK = JobTask("slurm", "77", 1)
HALF = tuple(replace(batch(n), batches_total=40, characters_total=15_000) for n in range(2))
"""2 batches of 40, in a second, with a second to go."""


def submission(
    job: str = "77", role: Role = Role.POINTS, scheduler: str = "slurm", last: int = 1000
) -> Submission:
    return Submission(at=AT, scheduler=scheduler, job=JobId(job), first=1, last=last, role=role)


def waits(state: State = State.PENDING, reason: str = "", **fields: object) -> Queued:
    return replace(Queued(job_id="77", task=1, state=state, reason=reason), **fields)  # type: ignore[arg-type]


def tried(
    number: int = 1,
    outcome: Outcome | None = None,
    *,
    evidence: str = "",
    task: JobTask | None = TASK,
    record: Record | None = None,
) -> Try:
    """Return a try on node1; number 0 has not begun."""
    node = "node1" if number else ""
    return Try(number=number, record=record, outcome=outcome, evidence=evidence, task=task, node=node)


def a_point(
    index: int,
    standing: PointStanding,
    outcome: Outcome | None = None,
    *,
    why: str = "",
    tries: Sequence[Try] = (),
    **fields: Any,
) -> PointStatus:
    """Return a point: the task of its number of job 77, unless it is missing; with a try if it has begun."""
    queued: Queued | None = fields.pop(
        "queued", waits(State.RUNNING) if standing is PointStanding.RUNNING else None
    )
    task = None if standing is PointStanding.MISSING else JobTask(_scheduler(queued), "77", index)
    number = 1 if outcome is not None or standing is PointStanding.RUNNING else 0
    return PointStatus(
        point=point(index),
        standing=standing,
        all_tries=tuple(tries) or (tried(number, outcome, evidence=why, task=task),),
        task=task,
        queued=replace(queued, task=index) if queued else None,
        **fields,
    )


def _scheduler(queued: Queued | None) -> str:
    return "sge" if queued and queued.reason.endswith("qw") else "slurm"


def a_run(points: Sequence[PointStatus], **fields: object) -> RunStatus:
    """Return a run of job 77; ``fields`` are fields of RunStatus."""
    schedulers = sorted({point.task.scheduler for point in points if point.task}) or ["slurm"]
    known: dict[str, object] = {
        "folder": Path("runs/demo"),
        "points": tuple(points),
        "submissions": tuple(submission(scheduler=scheduler) for scheduler in schedulers),
    }
    run = RunStatus(**known | fields)  # type: ignore[arg-type]  # as the test says
    run.__dict__["requested"] = Requested(1, "h200")  # by its spec, which it does not have
    return run


def with_job(
    run: RunStatus,
    role: Role,
    state: State | None = None,
    reason: str = "",
    *,
    job: str = "79",
    end: str = "",
) -> RunStatus:
    """Return a run with a job that waits for its points: what the queue holds of it, or how it ended."""
    sent = submission(job, role, "sge" if reason.endswith("qw") else "slurm", last=1)
    task = JobTask(sent.scheduler, job, 1)
    queued = {task: waits(state, reason, job_id=job)} if state else {}
    ends = {task: end} if end else {}
    after = replace(
        run, submissions=(*run.submissions, sent), queued={**run.queued, **queued}, ends={**run.ends, **ends}
    )
    after.__dict__["requested"] = run.requested
    return after
