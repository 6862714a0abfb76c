"""The machine itself as a scheduler: a driver process that runs one point after the other.

There is no queue to ask; the driver (`jobkit.submit.local`) writes the accounting itself, one JSON
object a point.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.schedulers.parsing import refused
from jobkit.schedulers.survey import Answers, Survey
from jobkit.schedulers.types import Accounted, Array, Check, JobId, Queued, Remedy, Request, State

NAME = "local"
RESERVED_OPTIONS: Mapping[str, str] = {}
PROGRAMS: tuple[str, ...] = ()
COMMANDS: tuple[str, ...] = ()
BUSY_PATTERN = UNCONFIRMED_PATTERN = re.compile(r"(?!)")
"""See `jobkit.schedulers.protocol.Scheduler`: a machine is never too busy to start a process."""
EXPORTS_ENVIRONMENT = True
ENVIRONMENT: Mapping[str, str] = {}
WHOLE = 0
"""The task that stands for all: a driver has no queue that could be asked about each."""
_COLUMNS = 2
_OVER = re.compile("No such process")


def process_of(job: JobId) -> str:
    """Return the process id of a driver: its job id has a random word behind it, for numbers come again."""
    return job.id.partition("-")[0]


def submit_argv(script: str, array: Array, after: Sequence[JobId] = ()) -> tuple[str, ...]:  # noqa: ARG001 - a driver runs all points
    """Return the command of the driver that runs the whole run folder."""
    return (sys.executable, "-m", "jobkit.submit.driver", str(Path(script).parent))


def parse_submit(answer: str) -> JobId:
    """Return the driver's process id.

    Raises
    ------
    JobkitError
        Where the driver printed none.
    """
    if not answer.strip().isdigit():
        raise JobkitError(f"the local driver printed no process id: {answer!r}")
    return JobId(answer.strip())


def limit_argv() -> tuple[str, ...]:
    """Return no command: this machine takes any number of points."""
    return ()


def parse_limit(answer: str) -> int | None:  # noqa: ARG001 - the same for any answer
    """Return ``None``: no limit."""
    return None


def task_limit_error(answer: str, arrays: Sequence[Array]) -> str | None:  # noqa: ARG001 - never too many
    """Return ``None``: the points wait in a file."""
    return None


def checks(script: str, array: Array, request: Request) -> tuple[Check, ...]:  # noqa: ARG001 - nothing to ask
    """Return no questions."""
    return ()


def log_name(name: str, job: str, task: int) -> str:  # noqa: ARG001 - a driver runs one run
    """Return the name of a point's log, as the driver names it; a driver that runs it again adds to it."""
    return f"{job}_{task}.out"


def search_argvs(name: str, since: str) -> tuple[tuple[str, ...], tuple[str, ...]]:  # noqa: ARG001 - no queue
    """Return no commands: a driver that did not come so far runs nothing."""
    return (), ()


def throttle_argv(job: JobId, most: int) -> tuple[str, ...]:  # noqa: ARG001 - one at a time
    """Return no command: points run one after the other."""
    return ()


def cancel_argv(job: JobId, tasks: tuple[int, ...] = ()) -> tuple[str, ...]:  # noqa: ARG001 - one driver
    """Return the command that asks the driver to stop."""
    return ("kill", "-TERM", process_of(job))


def refusal(answer: Completed) -> str | None:
    """Return why the driver was not told to stop; ``None`` also where it has ended."""
    return refused(answer, _OVER)


def queue_argv(jobs: tuple[JobId, ...], users: tuple[str, ...] = ()) -> tuple[str, ...]:  # noqa: ARG001 - by number
    """Return the command that tells whether the drivers live, and what each runs: a number comes again."""
    return ("ps", "-ww", "-o", "pid=,args=", "-p", ",".join(map(process_of, jobs)))


def parse_queue(answer: Completed) -> tuple[Queued, ...] | None:
    """Return a driver that lives as one task, 0: only the records say which point it has reached.

    ps ends with 1 where it finds none (ps(1)).
    """
    if answer.status not in {0, 1} or answer.stderr.strip():
        return None
    rows = (line.split(maxsplit=1) for line in answer.stdout.splitlines())
    return tuple(
        Queued(job_id=row[0], task=WHOLE, state=State.RUNNING)
        for row in rows
        if len(row) == _COLUMNS and "jobkit" in row[1]
    )


def explain(one: Queued) -> str:  # noqa: ARG001 - points run one after the other
    """Return what a point waits for here."""
    return "one point at a time runs here"


def remedy(job: JobId, tasks: tuple[int, ...], one: Queued) -> Remedy | None:  # noqa: ARG001 - see below
    """Return ``None``: nothing here waits for a person."""
    return None


def accounting_argv(  # see below
    jobs: tuple[JobId, ...],  # noqa: ARG001
    since: str,  # noqa: ARG001
    name: str,  # noqa: ARG001
    users: tuple[str, ...] = (),  # noqa: ARG001
) -> tuple[str, ...]:
    """Return no command: the driver has written the accounting already."""
    return ()


def diagnostic_argvs(jobs: tuple[JobId, ...], name: str) -> tuple[tuple[str, ...], ...]:  # noqa: ARG001 - a driver has no name
    """Return the command that tells a person whether the drivers live."""
    return (("ps", "-p", ",".join(map(process_of, jobs))),)


def parse_accounting(answer: Completed) -> tuple[Accounted, ...] | None:
    """Return the points that the driver has finished, from its lines of JSON."""
    try:
        rows = [json.loads(line) for line in answer.stdout.splitlines() if line.strip()]
        return tuple(
            Accounted(
                job_id=str(row["job_id"]),
                task=int(row["task"]),
                ended=True,
                outcome=Outcome(row["outcome"]) if row.get("outcome") else None,
                evidence=str(row["evidence"]),
                node=str(row["host"]),
                elapsed_s=float(row["elapsed_s"]),
            )
            for row in rows
        )
    except (ValueError, KeyError, TypeError):
        return None


def survey_argvs(answers: Answers) -> Mapping[str, tuple[str, ...]]:  # noqa: ARG001 - nothing to ask
    """Return no questions."""
    return {}


def parse_survey(answers: Answers) -> Survey:  # noqa: ARG001 - the same for any answers
    """Return a site without queues."""
    return Survey(product="this machine")
