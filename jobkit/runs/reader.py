"""Read where runs stand: their files, what the queue holds, and what the accounting reports."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.layout import SPEC_FILE
from jobkit.runs.journal import JobTask
from jobkit.runs.queue import OpenRun, ask_about, follower_ends, open_run, task_of
from jobkit.runs.results import PointResult
from jobkit.runs.standing import PointState, PointStatus, Requested, RunStanding
from jobkit.runs.tries import not_started
from jobkit.schedulers.registry import SCHEDULERS, runs_here
from jobkit.schedulers.types import Queued, State


def read_standings(
    folders: Sequence[Path], *, ask: bool = True, max_age_s: float = 0
) -> tuple[RunStanding, ...]:
    """Return where runs stand, without ``ask`` by files alone, else by answers of at most this age."""
    return standings_of([open_run(folder) for folder in folders], ask=ask, max_age_s=max_age_s)


def standings_of(
    runs: Sequence[OpenRun], *, ask: bool = True, max_age_s: float = 0
) -> tuple[RunStanding, ...]:
    """Return where runs stand whose folders are read, as `read_standings`."""
    if ask:
        asked = {task.scheduler for run in runs for task in run.open}
        for name in filter(asked.__contains__, SCHEDULERS):
            open_runs = [run for run in runs if any(task.scheduler == name for task in run.open)]
            ask_about(SCHEDULERS[name], open_runs, max_age_s)
    now = datetime.now(UTC)
    return tuple(_run_standing(run, now) for run in runs)


def _run_standing(run: OpenRun, now: datetime) -> RunStanding:
    journal = run.accounts.journal
    tasks = {index: task_of(run, index) for index in run.results}
    numbers = Counter(task for task in tasks.values() if task)
    shared = frozenset(task for task, points in numbers.items() if points > 1)
    return RunStanding(
        folder=run.folder,
        points=tuple(
            _point_standing(run, result, tasks[index], shared, now) for index, result in run.results.items()
        ),
        submissions=journal.submissions,
        queued=run.queued,
        ended=run.accounts.ended | (journal.cancelled.keys() - run.queued.keys()),
        ends={task: end for task, end in follower_ends(run).items() if end and task not in run.queued},
        ending=frozenset(journal.cancelled.keys() & run.queued.keys()),
        silent=tuple(sorted(run.silent)),
        unanswered=journal.unanswered,
        left=journal.left,
        notes=tuple(run.notes),
        request=partial(read_requested, run.folder),
        mine=os.access(run.folder, os.W_OK),
        now=now,
    )


def read_requested(folder: Path) -> Requested:
    """Return what the spec of a run requests; nothing if it cannot be read."""
    from jobkit.spec.yaml_files import read_document  # here: of most runs the records name the GPU

    try:
        resources = read_document(folder / SPEC_FILE).data["resources"]
        gpus, gpu_type = int(resources["gpus"]), str(resources["gpu_type"] or "")
        return Requested(gpus, gpu_type, str(resources.get("queue") or ""))
    except (JobkitError, KeyError, TypeError, ValueError):
        return Requested()


def _point_standing(
    run: OpenRun, result: PointResult, task: JobTask | None, shared: frozenset[JobTask], now: datetime
) -> PointStatus:
    queued = run.queued.get(task) if task else None
    begun = {tried.task for tried in result.all_tries}
    gone = (one for one in run.accounts.earlier.get(result.point.index, ()) if one not in begun)
    return PointStatus(
        point=result.point,
        all_tries=result.all_tries,
        batches=result.batches,
        standing=_standing(run, result, task, queued),
        task=task,
        queued=queued,
        vanished=tuple(not_started(result.point, run.accounts, one) for one in gone),
        shared_tasks=shared,
        silent=task is not None and task.scheduler in run.silent,
        now=now,
    )


def _standing(run: OpenRun, result: PointResult, task: JobTask | None, queued: Queued | None) -> PointState:
    packed = task in run.accounts.packed
    # A try by hand is no answer while the scheduler has the point.
    by_hand = result.counts.by_hand and queued is not None
    if result.outcome in result.point.kind.answers and not by_hand:
        return PointState.DONE
    if queued is not None and queued.state is State.ERROR:
        return PointState.STUCK
    latest = result.latest
    begun = bool(latest.number) and latest.task == task
    over = begun and bool(latest.record or latest.exit)
    if over and queued is not None and latest.verdict.provisional:
        over = queued.state is State.RUNNING and packed  # else the scheduler may be about to requeue it
    if queued is not None and queued.state in {State.RUNNING, State.ENDING} and not over:
        return PointState.RUNNING if begun or (queued.task and not packed) else PointState.WAITING
    if queued is not None and queued.state not in {State.RUNNING, State.ENDING}:
        return PointState.WAITING  # also a task that the scheduler will run again by itself
    if result.outcome is not None:
        return PointState.FAILED
    here = task is not None and runs_here(task.scheduler) and task in run.accounts.gone
    return PointState.UNSETTLED if task and not here else PointState.MISSING
