"""The machine itself as a scheduler: a driver process that runs one point after the other.

There is no queue, and no command that submits: jobkit starts the driver, which writes the accounting itself,
one JSON object a point.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.schedulers import protocol
from jobkit.schedulers.types import Accounted, JobId, LogOutcomes, Queued

if TYPE_CHECKING:
    from jobkit.schedulers.survey import Answers, Survey

NAME, TITLE, DIRECTIVE = "local", "this machine", ""
PROGRAMS: tuple[str, ...] = ()
COMMANDS: tuple[str, ...] = ()
RUNS_HERE = EXPORTS_ENVIRONMENT = NAMES_GPUS = True
CHARGES_PAGE_CACHE = MAILS_EACH_TASK = False
RESERVED_OPTIONS: Mapping[str, str] = {}
FORBIDDEN_PATH_CHARS = ""
ENVIRONMENT: Mapping[str, str] = {}
ASKING_VARIABLES: Mapping[str, str] = {}
CLUSTER_VARIABLES = LEAKING_VARIABLES = LOG_FAULT = protocol.NEVER
BUSY_PATTERN = UNCONFIRMED_PATTERN = protocol.NEVER
JOB_ID_PATTERNS: tuple[str, ...] = (r"(?P<id>\d+)",)
OVER_PATTERN = re.compile("No such process")
JOB_VARIABLE = ""
RECORDED_VARIABLES: tuple[str, ...] = ()
LOG_OUTCOMES: LogOutcomes = ()
submit_argv = wait_argv = identity_argv = limit_argv = throttle_argv = queue_argv = protocol.no_command
accounting_argv = status_argv = checks = resource_names = protocol.no_command
parse_identity = parse_limit = task_limit_error = parse_queue = lint = remedy = protocol.nothing
header_path = protocol.quoted_path
slots = protocol.one_slot
shut_argv = protocol.no_command
shut_reason = protocol.no_reason
WHOLE = 0  # the task that stands for all points: no queue lists the points of a driver


def process_of(job: JobId) -> str:
    """Return the process id of a driver: the job id has a random suffix, since process ids are reused."""
    return job.id.partition("-")[0]


def log_name(name: str, job: str, task: int) -> str:
    """Return the name of a point's log, as the driver names it; a second try is appended to it."""
    return f"{job}_{task}.out"


def cancel_argv(job: JobId, tasks: tuple[int, ...] = ()) -> tuple[str, ...]:
    """Return the command that asks the driver to stop: by bash, because a machine may lack kill(1)."""
    return ("bash", "-c", 'kill -TERM "$1"', "kill", process_of(job))


def explain(task: Queued) -> str:
    return "one at a time runs here"


def diagnostic_argvs(jobs: tuple[JobId, ...], name: str) -> tuple[tuple[str, ...], ...]:
    return (("ps", "-p", ",".join(map(process_of, jobs))),)


def parse_accounting(answer: Completed) -> tuple[Accounted, ...] | None:
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


def search_argvs(name: str, since: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return no commands: the lock finds the driver of a run."""
    return (), ()


def survey_argvs(answers: Answers) -> Mapping[str, tuple[str, ...]]:
    return {}


def parse_survey(answers: Answers) -> Survey:
    from jobkit.schedulers.survey import Survey  # here, for only doctor asks

    return Survey(product=TITLE)
