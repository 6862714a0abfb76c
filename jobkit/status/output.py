"""Which text or JSON `jobkit status` shows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from jobkit.core import terminal
from jobkit.core.units import format_count
from jobkit.outcome.journal import Task
from jobkit.status.advice import advice
from jobkit.status.progress import Progress
from jobkit.status.standing import Standing, find_point
from jobkit.status.summary import JobStatus, PointStatus, RunStatus, TryStatus, tries_of
from jobkit.status.table import headline, plain, render, render_point
from jobkit.status.which_run import Glance, glance

Json = dict[str, object]


def run_json(status: RunStatus, folder: str) -> Json:
    """Return a run as JSON takes it.

    Parameters
    ----------
    folder
        The run folder as a person types it.
    """
    said = advice(status, folder)
    return {
        "run": status.name,
        "folder": str(status.seen.folder),
        "schedulers": sorted({submission.scheduler for submission in status.seen.submissions}),
        "silent": list(status.seen.silent),
        "exit_code": status.exit_code,
        "standings": _standings(status),
        "to_go_s": _finite(status.to_go_s),
        "saved_s": _finite(status.saved.seconds if status.saved else None),
        "gpus": status.asked.gpus,
        "points": [point_json(point) for point in status.points],
        "jobs": [_job(job) for job in status.jobs],
        "notices": list(said.notices),
        "next": [{"command": step.command, "does": step.does} for step in said.steps],
        "notes": list(status.seen.notes),
    }


def _standings(status: RunStatus) -> Json:
    standings = Counter(point.standing for point in status.seen.points)
    return {str(one): standings[one] for one in Standing}


def point_json(one: PointStatus, tries: Sequence[TryStatus] | None = None) -> Json:
    """Return a point as JSON takes it; with its tries where they are given."""
    point, look = one.look.point, one.look
    found: Json = {
        "index": point.index,
        "point": point.point_id,
        "params": dict(point.params),
        "repeat": point.repeat,
        "state": one.state,
        "standing": str(look.standing),
        "outcome": _word(look.outcome),
        "provisional": look.counts.verdict.provisional,
        "evidence": look.counts.verdict.evidence,
        "why": one.why,
        **_task(look.task),
        "start_at": look.queued.start_at or None if look.queued else None,
        "node": look.counts.node or (look.queued.node if look.queued else "") or None,
        "gpu": one.gpu or None,
        "tries": len(look.tries),
        "elapsed_s": _finite(one.elapsed_s),
        **_progress(one.progress),
    }
    return found if tries is None else {**found, "all_tries": [_try(tried) for tried in tries]}


def _task(task: Task | None) -> Json:
    if task is None:
        return {"scheduler": None, "job": None, "task": None}
    return {"scheduler": task.scheduler, "job": task.job_id, "task": task.task}


def _progress(progress: Progress | None) -> Json:
    return {
        "batches": progress.batches if progress else None,
        "batches_total": progress.batches_total if progress else None,
        "characters": progress.characters if progress else None,
        "characters_total": progress.characters_total if progress else None,
        "left_s": _finite(progress.left_s) if progress else None,
    }


def _try(one: TryStatus) -> Json:
    tried = one.tried
    exit_, account = tried.files.exit, tried.account
    return {
        "try": tried.files.number,
        "outcome": _word(tried.verdict.outcome),
        "provisional": tried.verdict.provisional,
        "evidence": tried.verdict.evidence,
        **_task(tried.task),
        "node": tried.node or None,
        "elapsed_s": _finite(one.elapsed_s),
        **_progress(one.progress),
        "exit_status": exit_.status if exit_ else None,
        "stage": exit_.stage if exit_ else None,
        "message": exit_.message if exit_ else None,
        "scratch": exit_.scratch or None if exit_ else None,
        "accounting": account.evidence if account else None,
        "log": one.log or None,
        "folder": one.folder or None,
        "files": list(one.files),
    }


def _job(one: JobStatus) -> Json:
    return {
        "role": str(one.job.role),
        "round": one.job.round,
        "scheduler": one.job.scheduler,
        "job": one.job.job.id,
        "state": one.state,
        "why": one.why,
    }


def _word(value: object) -> str | None:
    return None if value is None else str(value)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


SCHEMA = 1
MOST_OTHERS = 10


def text(
    found: Sequence[RunStatus], runs: Sequence[Path], points: Sequence[str], *, width: int, most: int
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
        Of a run of more points only those are listed that want to be looked at.

    Raises
    ------
    JobkitError
        Where a word names no point.
    """
    if points:
        (run,), (folder,) = found, runs
        looks = [_point(run, word) for word in points]
        parts = [render_point(run, look, tries_of(run, look), str(folder), width=width) for look in looks]
        return "\n".join(parts)
    heads = "".join(f"{headline(one)}\n" for one in found) + "\n" if len(found) > 1 else ""
    pairs = zip(found, runs, strict=True)
    return heads + "\n".join(render(one, str(run), width=width, most=most) for one, run in pairs)


def others(runs: Sequence[Path]) -> str:
    """Return the other runs of a folder, a line each, the latest first; nothing where there are none."""
    if not runs:
        return ""
    glances = [glance(run) for run in runs[:MOST_OTHERS]]
    longest = max(len(str(one.folder)) for one in glances)
    lines = [f"  {plain(str(one.folder)).ljust(longest)}  {_begun(one)}" for one in glances]
    older = len(runs) - len(glances)
    lines += [f"  and {older:,} older"] if older else []
    return "".join(f"{line}\n" for line in ["", "other runs", *lines])


def _begun(one: Glance) -> str:
    begun = "all begun" if one.begun == one.points > 1 else f"{one.begun:,} begun"
    return f"{format_count(one.points, 'point')}, {begun}"


def as_json(
    found: Sequence[RunStatus], runs: Sequence[Path], points: Sequence[str], others: Sequence[Path] = ()
) -> str:
    """Return the same for programs, on one line; docs/commands.md tells the keys.

    Raises
    ------
    JobkitError
        Where a word names no point.
    """
    data: dict[str, object] = {"schema": SCHEMA, "at": datetime.now(UTC).isoformat(timespec="seconds")}
    if points:
        (run,) = found
        looks = [_point(run, word) for word in points]
        data |= {"run": run.name, "points": [point_json(look, tries_of(run, look)) for look in looks]}
    else:
        data["runs"] = [run_json(one, str(run)) for one, run in zip(found, runs, strict=True)]
        glances = [glance(run) for run in others]
        data["others"] = [
            {"run": one.folder.name, "folder": str(one.folder), "points": one.points, "begun": one.begun}
            for one in glances
        ]
    return terminal.as_json(data)


def _point(run: RunStatus, word: str) -> PointStatus:
    """Return the point that a word names."""
    index = find_point(run.seen.points, word).point.index
    return next(point for point in run.points if point.look.point.index == index)
