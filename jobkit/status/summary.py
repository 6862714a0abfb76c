"""A run and its points as a person wants to know them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.layout import (
    SPEC_FILE,
    TRY_PREFIX,
    names,
    point_folder,
    read_batches,
    try_folder,
)
from jobkit.core.records import Outcome
from jobkit.outcome.journal import Role, Submission, Task
from jobkit.outcome.logs import log_path
from jobkit.outcome.timing import elapsed_s, task_s
from jobkit.outcome.tries import TryResult
from jobkit.schedulers.registry import runs_here
from jobkit.schedulers.types import Queued, State
from jobkit.spec.yaml_files import read_document
from jobkit.status.progress import Pace, Progress, SkippedTime, progress_of, setting_of, skipped_time, to_go
from jobkit.status.standing import (
    HELD,
    PointStanding,
    RunStanding,
    Standing,
    explain_wait,
    followers,
    read_standings,
    reason,
    running_s,
    state_of,
)

TO_COME = frozenset({Standing.RUNNING, Standing.WAITING, Standing.UNSETTLED, Standing.MISSING})
ENDED = "ended"
_STATES = {
    State.ERROR: str(Standing.STUCK),
    State.RUNNING: str(Standing.RUNNING),
    State.ENDING: str(Standing.RUNNING),
    State.PENDING: str(Standing.WAITING),
    State.HELD: str(Standing.WAITING),
}


@dataclass(frozen=True, slots=True)
class RequestedGpus:
    """What the spec of a run asks for: the GPUs of a point, and of which type."""

    gpus: int = 0
    gpu_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointStatus:
    """A point in what a person wants to know.

    Attributes
    ----------
    state
        Its outcome, or where it stands: ``held`` is a wait that somebody must end.
    why
        What led to its outcome, or why it waits; empty where there is nothing to say.
    elapsed_s
        How long its last try has been running, or took; ``None`` where that is not known.
    progress
        Of a try that runs, as far as its batches are home.
    gpu
        The card of the record, else the type that was asked for; empty where neither is known.
    """

    look: PointStanding
    state: str
    why: str = ""
    elapsed_s: float | None = None
    progress: Progress | None = None
    gpu: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """A job that waits for the points.

    Attributes
    ----------
    state
        ``ended``, or a standing.
    why
        Why it waits, or how it ended.
    """

    job: Submission
    state: str
    why: str = ""
    queued: Queued | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """A run in what a person wants to know.

    Attributes
    ----------
    jobs
        Those that find the largest batch, and those that run again what the policy says.
    to_go_s
        How long it has to go if as many points run at a time as now; ``None`` where nobody can tell.
    saved
        Job time that was not spent on points that were left out.
    mine
        Whether the run folder can be written: else only its owner can change the run.
    """

    seen: RunStanding
    asked: RequestedGpus
    points: tuple[PointStatus, ...]
    jobs: tuple[JobStatus, ...]
    to_go_s: float | None
    saved: SkippedTime | None
    mine: bool = True

    @property
    def name(self) -> str:
        """The run id."""
        return self.seen.points[0].point.run_id

    @property
    def exit_code(self) -> int:
        """The exit code that tells it: still to come before failed before done."""
        standings = {point.standing for point in self.seen.points}
        if standings & TO_COME:
            return ExitCode.TO_COME
        return ExitCode.FAILED if standings & {Standing.FAILED, Standing.STUCK} else ExitCode.DONE

    @property
    def running(self) -> int:
        """How many points run."""
        return sum(point.standing is Standing.RUNNING for point in self.seen.points)


def status(folders: Sequence[Path], *, max_age_s: float = 0) -> tuple[RunStatus, ...]:
    """Look at runs, and return how they stand.

    Parameters
    ----------
    folders, max_age_s
        As `jobkit.status.standing.read_standings`.

    Raises
    ------
    JobkitError
        Where a folder is no run folder.
    """
    seen = read_standings(folders, max_age_s=max_age_s)
    now = datetime.now(UTC)
    return tuple(status_of(one, now) for one in seen)


def status_of(seen: RunStanding, now: datetime) -> RunStatus:
    """Return how a run stands that was looked at; of what runs the batches are read."""
    asked = read_asked(seen.folder)
    shared = shared_tasks(seen)
    points = tuple(_point(seen, point, asked, now, shared=point.task in shared) for point in seen.points)
    return RunStatus(
        seen=seen,
        asked=asked,
        points=points,
        jobs=tuple(_jobs(seen, now)),
        to_go_s=_to_go(seen, points, shared),
        saved=skipped_time(seen.points),
        mine=os.access(seen.folder, os.W_OK),
    )


def read_asked(folder: Path) -> RequestedGpus:
    """Return what the spec of a run asks for; nothing where it cannot be read."""
    try:
        resources = read_document(folder / SPEC_FILE).data["resources"]
        return RequestedGpus(int(resources["gpus"]), str(resources["gpu_type"] or ""))
    except (JobkitError, KeyError, TypeError, ValueError):
        return RequestedGpus()


def shared_tasks(seen: RunStanding) -> frozenset[Task]:
    """Return the tasks that run several points."""
    tasks = Counter(point.task for point in seen.points if point.task)
    return frozenset(task for task, points in tasks.items() if points > 1)


def _point(
    seen: RunStanding, one: PointStanding, asked: RequestedGpus, now: datetime, *, shared: bool
) -> PointStatus:
    record = one.counts.files.record
    runs, over = one.standing is Standing.RUNNING, one.standing in {Standing.DONE, Standing.FAILED}
    took_s = elapsed_s(one.counts, shared=shared) if over else None
    return PointStatus(
        look=one,
        state=state_of(one),
        why=reason(one, seen.silent, now),
        elapsed_s=running_s(one, now, shared=shared) if runs else took_s,
        progress=_progress(seen, one) if runs else None,
        gpu=record.gpu.name if record and record.gpu else asked.gpu_type,
    )


def _progress(seen: RunStanding, one: PointStanding) -> Progress | None:
    """Return how far the try is that runs; what of its batches cannot be read is left out."""
    if not one.tries:
        return None
    home = point_folder(seen.folder, one.point.point_id)
    return progress_of(read_batches(home, one.tries[0].files.number, []))


def _jobs(seen: RunStanding, now: datetime) -> Iterable[JobStatus]:
    for role in (Role.FIND, Role.FOLLOW):
        for one, queued in followers(seen, role):
            if queued is not None:
                state = _STATES.get(queued.state, str(Standing.UNSETTLED))
                words = explain_wait(one.scheduler, queued, now)
                yield JobStatus(job=one, state=state, why=words, queued=queued)
            else:
                end = seen.ends.get(Task(one.scheduler, one.job.id, one.first), "")
                yield JobStatus(job=one, state=ENDED if end else str(Standing.UNSETTLED), why=end)


def _to_go(seen: RunStanding, points: Sequence[PointStatus], shared: frozenset[Task]) -> float | None:
    """Return how long the points have to go; ``None`` also if one waits for a person."""
    if any(point.state in {HELD, Standing.STUCK} for point in points):
        return None
    here = bool(seen.submissions) and all(runs_here(submission.scheduler) for submission in seen.submissions)
    return to_go([_pace(seen, point, shared) for point in points], at_a_time=1 if here else 0)


def _pace(seen: RunStanding, one: PointStatus, shared: frozenset[Task]) -> Pace:
    counts = one.look.outcome is Outcome.OK and not one.look.point.trial
    well = one.look.standing is not Standing.DONE or counts
    return Pace(
        setting=setting_of(one.look.point.params),
        standing=str(one.look.standing) if well else "",
        elapsed_s=_took_s(seen, one, shared) if one.look.standing is Standing.DONE else one.elapsed_s,
        left_s=one.progress.left_s if one.progress else None,
    )


def _took_s(seen: RunStanding, one: PointStatus, shared: frozenset[Task]) -> float | None:
    counts = one.look.counts
    folder = try_folder(seen.folder, one.look.point.point_id, counts.files.number)
    return task_s(counts.files, folder, None if counts.task in shared else counts.account)


@dataclass(frozen=True, slots=True, kw_only=True)
class TryStatus:
    """A try with all that is home of it.

    Attributes
    ----------
    folder
        Of the try; empty where it left none.
    files
        Their names.
    log
        Of its task; empty where there is none.
    progress
        By the batches that are home.
    elapsed_s
        How long it took; ``None`` where that is not known.
    """

    tried: TryResult
    folder: str
    files: tuple[str, ...]
    log: str
    progress: Progress | None
    elapsed_s: float | None


def tries_of(status: RunStatus, one: PointStatus) -> tuple[TryStatus, ...]:
    """Return the tries of a point, the latest first; among them, as number 0, tasks that left none.

    Those by hand come last.
    """
    look = one.look
    waits = () if look.counts.files.number else (look.counts,)
    every = (*waits, *look.tries, *reversed(look.vanished), *look.by_hand)
    return tuple(_try(status, one, tried) for tried in every)


def _try(status: RunStatus, one: PointStatus, tried: TryResult) -> TryStatus:
    home = point_folder(status.seen.folder, one.look.point.point_id)
    folder = f"{home}/{TRY_PREFIX}{tried.files.number}" if tried.files.number else ""
    return TryStatus(
        tried=tried,
        folder=folder,
        files=tuple(sorted(names(folder))) if folder else (),
        log=_log(status, one, tried),
        progress=progress_of(read_batches(home, tried.files.number, [])) if folder else None,
        elapsed_s=elapsed_s(tried, shared=tried.task in shared_tasks(status.seen)),
    )


def _log(status: RunStatus, one: PointStatus, tried: TryResult) -> str:
    path = log_path(status.seen.folder, one.look.point, tried.task)
    return str(path) if path is not None and path.is_file() else ""
