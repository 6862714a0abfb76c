"""What `jobkit status` prints: text or JSON, of runs or of points."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from jobkit.core import terminal
from jobkit.core.layout import is_corpus_folder, names
from jobkit.core.records import described
from jobkit.core.units import format_count
from jobkit.outcome.journal import Task
from jobkit.outcome.tries import TryResult
from jobkit.status.advice import advice
from jobkit.status.details import listed_tries, log_of, render_point
from jobkit.status.needs import progress_of_try
from jobkit.status.progress import Progress
from jobkit.status.shards import corpus_json
from jobkit.status.standing import JobStanding, PointStanding, RunStanding, Standing, find_point
from jobkit.status.table import headline, plain, render
from jobkit.status.which_run import Glance, glance

Json = dict[str, object]


def run_json(run: RunStanding, folder: str) -> Json:
    """Return a run as JSON takes it.

    Parameters
    ----------
    folder
        The run folder as a person types it.
    """
    advised = advice(run, folder)
    standings = Counter(point.standing for point in run.points)
    return {
        "run": run.name,
        "folder": str(run.folder),
        **described(run.points[0].point.model if run.points else None),
        "schedulers": run.schedulers,
        "silent": list(run.silent),
        "exit_code": run.exit_code,
        "standings": {str(standing): standings[standing] for standing in Standing},
        "to_go_s": _finite(run.to_go_s),
        "saved_s": _finite(run.saved.seconds if run.saved else None),
        "gpus": run.requested.gpus,
        **({"corpus": corpus_json(run)} if is_corpus_folder(run.folder) else {}),
        "points": [point_json(run, point) for point in run.points],
        "jobs": [_job(job) for job in run.jobs],
        "notices": list(advised.notices),
        "next": [{"command": step.command, "does": step.does} for step in advised.steps],
        "notes": list(run.notes),
    }


def point_json(run: RunStanding, point: PointStanding, *, with_tries: bool = False) -> Json:
    """Return a point as JSON takes it."""
    fields: Json = {
        "index": point.point.index,
        "point": point.point.point_id,
        "params": dict(point.point.params),
        "repeat": point.point.repeat,
        "state": point.state,
        "standing": str(point.standing),
        "outcome": point.outcome,
        "provisional": point.verdict.provisional,
        "evidence": point.verdict.evidence,
        "why": point.why,
        **_task(point.task),
        "start_at": point.queued.start_at or None if point.queued else None,
        "node": point.node or (point.queued.node if point.queued else "") or None,
        "gpu": run.gpu_of(point) or None,
        "tries": len(point.tries),
        "elapsed_s": _finite(point.elapsed_s),
        **_progress(point.progress),
    }
    tries = listed_tries(point) if with_tries else ()
    return {**fields, "all_tries": [_try(run, point, tried) for tried in tries]} if tries else fields


def _task(task: Task | None) -> Json:
    fields = {"scheduler": "scheduler", "job": "job_id", "task": "task"}
    return {key: getattr(task, name, None) for key, name in fields.items()}


def _progress(progress: Progress | None) -> Json:
    fields = ("batches", "batches_total", "characters", "characters_total")
    far = {name: getattr(progress, name, None) for name in fields}
    return {**far, "left_s": _finite(progress.left_s) if progress else None}


def _try(run: RunStanding, point: PointStanding, tried: TryResult) -> Json:
    files, account = tried.files, tried.account
    return {
        "try": files.number,
        "outcome": tried.verdict.outcome,
        "provisional": tried.verdict.provisional,
        "evidence": tried.verdict.evidence,
        **_task(tried.task),
        "node": tried.node or None,
        "elapsed_s": _finite(point.elapsed_of(tried)),
        **_progress(progress_of_try(tried)),
        "exit_status": files.exit.status if files.exit else None,
        "stage": files.exit.stage if files.exit else None,
        "message": files.exit.message if files.exit else None,
        "scratch": files.exit.scratch or None if files.exit else None,
        "accounting": account.evidence if account else None,
        "log": log_of(run, point, tried) or None,
        "folder": files.folder or None,
        "files": sorted(names(files.folder)) if files.folder else [],
    }


def _job(job: JobStanding) -> Json:
    return {
        "role": str(job.submission.role),
        "round": job.submission.round,
        "scheduler": job.submission.scheduler,
        "job": job.submission.job.id,
        "state": job.state,
        "why": job.why,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


SCHEMA = 1
MOST_OTHERS = 10


def text(
    standings: Sequence[RunStanding], runs: Sequence[Path], points: Sequence[str], *, width: int, most: int
) -> str:
    """Return runs, or points of one, as printed.

    Parameters
    ----------
    runs
        Their folders as a person types them.
    points
        Numbers or ids; nothing for the runs themselves.
    width
        Columns of the terminal.
    most
        Of more points than this, only those that a person wants to see are listed.

    Raises
    ------
    JobkitError
        If a word names no point.
    """
    if points:
        (run,), (folder,) = standings, runs
        named = [find_point(run.points, word) for word in points]
        return "\n".join(render_point(run, point, str(folder)) for point in named)
    heads = "".join(f"{headline(run)}\n" for run in standings) + "\n" if len(standings) > 1 else ""
    pairs = zip(standings, runs, strict=True)
    return heads + "\n".join(render(run, str(folder), width=width, most=most) for run, folder in pairs)


def others(runs: Sequence[Path]) -> str:
    """Return the other runs of a folder, a line each, the latest first; empty if there are none."""
    if not runs:
        return ""
    glances = [glance(run) for run in runs[:MOST_OTHERS]]
    longest = max(len(str(run.folder)) for run in glances)
    lines = [f"  {plain(str(run.folder)).ljust(longest)}  {_begun(run)}" for run in glances]
    older = len(runs) - len(glances)
    lines += [f"  and {older:,} older"] if older else []
    return "".join(f"{line}\n" for line in ["", "other runs", *lines])


def _begun(run: Glance) -> str:
    begun = "all begun" if run.begun == run.points > 1 else f"{run.begun:,} begun"
    noun = "shard" if is_corpus_folder(run.folder) else "point"
    return f"{format_count(run.points, noun)}, {begun}"


def as_json(
    standings: Sequence[RunStanding],
    runs: Sequence[Path],
    points: Sequence[str],
    others: Sequence[Path] = (),
) -> str:
    """Return the same for programs, on one line; docs/commands.md lists the keys.

    Raises
    ------
    JobkitError
        If a word names no point.
    """
    data: dict[str, object] = {"schema": SCHEMA, "at": datetime.now(UTC).isoformat(timespec="seconds")}
    if points:
        (run,) = standings
        named = [find_point(run.points, word) for word in points]
        data |= {"run": run.name, "points": [point_json(run, point, with_tries=True) for point in named]}
    else:
        data["runs"] = [run_json(run, str(folder)) for run, folder in zip(standings, runs, strict=True)]
        data["others"] = [
            {"run": run.folder.name, "folder": str(run.folder), "points": run.points, "begun": run.begun}
            for run in map(glance, others)
        ]
    return terminal.as_json(data)
