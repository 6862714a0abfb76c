"""Ask the accounting of this cluster about past jobs, with as few commands as the scheduler permits."""

from __future__ import annotations

import importlib
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import cast

from jobkit.core import shell
from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.paths import user_name
from jobkit.core.units import format_count, format_list
from jobkit.schedulers.protocol import PastJob, PastJobs, without_impossible
from jobkit.schedulers.registry import by_name, choose_scheduler, query_environment, runs_here

JOB_ID = re.compile(
    r"\d+(?:[_.+]\d+|[_.]?\[[\d,:%-]*\]|[_.]\d+-[\d:-]+)?(?:\.(?:\d+|batch|extern|interactive))?"
)
"""How people type a job: ``4711`` or ``4711_[1-3]``, a task ``4711_3`` or ``4711.3``, a part ``4711+1``, and
a step, ``4711.batch``."""
_TASKS = re.compile(r"[_.]?\[|[_.]\d+-")
MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the accounting answered."""

    scheduler: str  # its name
    jobs: tuple[PastJob, ...]  # those that have ended
    running: tuple[str, ...]  # the ids of those that have not
    unknown: tuple[str, ...]  # the ids that were asked for and that it does not know
    sampling_s: float | None  # seconds between two samples of memory; ``None`` if that is not known


def ask(ids: Sequence[str], *, days: int, name: str = "*", scheduler: str = "auto") -> History:
    """Return past jobs: those of the ids, or my own of the last days.

    ``ids``: as a person types them.
    ``days``: how far back to look without ids.
    ``name``: A pattern that their names match.
    ``scheduler``: whose accounting; ``auto`` for the first that is here.
    """
    scheduler, ids = _chosen(scheduler), [_TASKS.split(id_)[0] for id_ in ids]
    past = past_of(scheduler)
    environment = query_environment(by_name(scheduler))
    site = shell.run(past.site_argv(), env=environment).stdout
    every = [
        job
        for argv in past.argvs(tuple(ids), user_name(), days)
        for job in _read(past, argv, site, environment)
    ]
    asked = [
        job
        for job in every
        if (job.name == name or fnmatchcase(job.name, name))
        and (not ids or any(_is(job, id_) for id_ in ids))
    ]
    over = {job.job_id for job in asked if job.ended}
    found = History(
        scheduler=scheduler,
        jobs=tuple(job for job in asked if (job.ended or (job.again and job.job_id in over)) and job.began),
        running=tuple(dict.fromkeys(job.job_id for job in asked if not job.ended and job.job_id not in over)),
        unknown=tuple(id_ for id_ in ids if not any(_is(job, id_) for job in every)),
        sampling_s=past.sampling_s(site),
    )
    if not found.jobs:
        message, hint = _nothing(found, past, ids, days, name)
        raise JobkitError(message, hint=hint)
    return found


def _chosen(name: str) -> str:
    scheduler, why = choose_scheduler(name)
    if runs_here(by_name(scheduler).NAME):
        raise JobkitError(
            f"no accounting to ask about jobs: {why}", hint="type it on a login node of the cluster"
        )
    return scheduler


def past_of(scheduler: str) -> PastJobs:
    """Return how the accounting of a scheduler is asked."""
    try:
        return cast("PastJobs", importlib.import_module(f"jobkit.schedulers.{scheduler}_past"))
    except ModuleNotFoundError:
        title = by_name(scheduler).TITLE
        message = f"jobkit reads past jobs in the accounting of Slurm and Grid Engine, not of {title}"
        raise JobkitError(message, hint="a run of jobkit has records of its own: jobkit waste RUN") from None


def _is(job: PastJob, word: str) -> bool:
    """Return whether a word names a job, or the array or the heterogeneous job that it is part of."""
    return word in {job.job_id, re.split(r"[_.+]", job.job_id)[0]}


def _read(
    past: PastJobs, argv: tuple[str, ...], site: str, environment: Mapping[str, str]
) -> Iterator[PastJob]:
    """Yield the jobs of an answer, which waits in a file: it may be larger than the memory."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as stream:
        answer = shell.run_streaming(argv, stream.write, text="", env=environment)
        if refusal := past.refusal(answer):
            message = f"{past.ACCOUNTING} does not answer: {' '.join(refusal.split())}"
            hint = "--scheduler NAME asks another scheduler; jobkit waste RUN reads the records of a run"
            raise JobkitError(message, hint=hint, exit_code=ExitCode.REFUSED)
        stream.seek(0)
        yield from map(without_impossible, past.read(stream, site))


def _nothing(found: History, past: PastJobs, ids: Sequence[str], days: int, name: str) -> tuple[str, str]:
    if found.running:
        what = format_list(list(found.running), MOST_NAMED)
        more = f"; not in the accounting: {', '.join(found.unknown)}" if found.unknown else ""
        return (
            f"{what}: not ended yet, so what it used is not known{more}",
            "type the command again when the job has ended",
        )
    if ids:
        what, mine = format_list(list(ids), MOST_NAMED), "jobkit waste --mine --days 30 lists yours"
        if whole := [id_ for id_ in found.unknown if not id_.isdecimal()]:
            hint = f"of the whole job: jobkit waste {' '.join(re.split(r'[_.+]', id_)[0] for id_ in whole)}"
            return f"{what}: {past.ACCOUNTING} has no job or task of this name", hint
        if found.unknown:
            return f"{what}: {past.ACCOUNTING} has no such job", f"was the job on this cluster? {mine}"
        return f"{what}: it never began, so it used nothing", mine
    which = "" if name == "*" else f" called {name!r}"
    message = f"no job of yours{which} ended in the last {format_count(days, 'day')}"
    return message, f"look further back: --days {4 * days}; upper and lower case differ in a name"
