"""Jobs that the journal does not know: the client died between a submission and its answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from jobkit import journal, shell
from jobkit.errors import JobkitError
from jobkit.run_folder import read_points
from jobkit.schedulers.base import JobId, Scheduler
from jobkit.schedulers.registry import by_name
from jobkit.states import TIMEOUT_S
from jobkit.submissions import read_journal

STILL_AT_IT = timedelta(seconds=30)
"""A submit command may outlive the client that started it: it is given so long to end."""
SPAN = ("first", "last", "offset", "throttle", "role", "round", "list", "given")

LOST = "the client died before the scheduler took it: no job of this name is known"
BY_NAME = "by its name"


def adopt(run_dir: Path, say: Callable[[str], None]) -> None:
    """Find the job of a submission that was never answered, by the run's name, and journal it.

    One submission at a time is under way, and every earlier job is journalled: so a job of the
    run's name with a number that the journal does not know is the one.

    Raises
    ------
    JobkitError
        Exit code 3, where the scheduler does not answer, or the submission is only seconds old.
    """
    event = read_journal(run_dir).unanswered
    if event is None:
        return
    scheduler = by_name(str(event.get("scheduler")))
    if datetime.now(UTC) - datetime.fromisoformat(str(event["at"])) < STILL_AT_IT:
        raise JobkitError(
            f"{run_dir}: a submission is under way", hint="try again in half a minute", exit_code=3
        )
    span = {key: event[key] for key in SPAN if key in event}
    found = _by_name(scheduler, run_dir, event)
    if not found:
        journal.note(run_dir, "refused", scheduler=scheduler.NAME, status=None, said=LOST, **span)
        say("a submission was cut off before the scheduler took it")
        return
    job = found[-1]
    journal.note(
        run_dir, "submitted", scheduler=scheduler.NAME, job_id=job.id, cluster="", found=BY_NAME, **span
    )
    say(f"a submission was cut off; its job {job} was found by its name")


def _by_name(scheduler: Scheduler, run_dir: Path, event: Mapping[str, Any]) -> list[JobId]:
    """Return the jobs of the run's name that the journal does not know."""
    points, _ = read_points(run_dir)
    name = points[0].run_id if points else run_dir.name
    since = datetime.fromisoformat(str(event["at"])).astimezone() - timedelta(minutes=1)
    queue, accounting = scheduler.search_argvs(name, since.strftime("%Y-%m-%dT%H:%M:%S"))
    if not queue:
        return []
    env = {**os.environ, **scheduler.ENVIRONMENT}
    queued = scheduler.parse_queue(shell.run(queue, env=env, timeout_s=TIMEOUT_S))
    if queued is None:
        raise JobkitError(
            f"{scheduler.NAME} does not answer, and a submission of this run was cut off",
            hint="try again when squeue or qstat answers",
            exit_code=3,
        )
    ended = scheduler.parse_accounting(shell.run(accounting, env=env, timeout_s=TIMEOUT_S)) or ()
    ids = [one.job_id for one in queued if one.name == name]
    ids += [one.job_id for one in ended if one.name == name]
    known = {one.job.id for one in read_journal(run_dir).submissions}
    return [JobId(job) for job in sorted(set(ids) - known, key=int)]
