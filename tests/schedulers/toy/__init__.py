"""A toy scheduler: `toyq` in this folder is all its commands. See docs/adding-a-scheduler.md."""

import re
from collections.abc import Mapping, Sequence

from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.schedulers import protocol
from jobkit.schedulers.parsed_script import Effect, LintFinding, Rule, Script, finding
from jobkit.schedulers.survey import Answers, Queue, Survey, text_of, unanswered
from jobkit.schedulers.types import Accounted, Array, JobId, LogOutcomes, Queued, State

NAME, TITLE, DIRECTIVE = "toy", "Toy Queue", "#TOY"
PROGRAMS: tuple[str, ...] = ("toyq",)
COMMANDS: tuple[str, ...] = ("toyq",)
RUNS_HERE = CHARGES_PAGE_CACHE = MAILS_EACH_TASK = False
EXPORTS_ENVIRONMENT = NAMES_GPUS = True
RESERVED_OPTIONS: Mapping[str, str] = {"name": "change name"}
FORBIDDEN_PATH_CHARS = "%"
ENVIRONMENT: Mapping[str, str] = {}
CLUSTER_VARIABLES = re.compile("TOYQ")
LEAKING_VARIABLES = re.compile("TOY_")
ASKING_VARIABLES: Mapping[str, str] = {"TOY_QUEUE": "queue"}
JOB_VARIABLE = "TOY_JOB"
RECORDED_VARIABLES: tuple[str, ...] = ("TOY_QUEUE",)
BUSY_PATTERN = UNCONFIRMED_PATTERN = OVER_PATTERN = protocol.NEVER
JOB_ID_PATTERNS: tuple[str, ...] = (r"toy job (?P<id>\d+)",)
LOG_OUTCOMES: LogOutcomes = ((re.compile("toyq: out of time"), Outcome.TIMEOUT),)
LOG_FAULT = re.compile("toyq: ")
identity_argv = limit_argv = throttle_argv = wait_argv = status_argv = checks = protocol.no_command
resource_names = protocol.no_command
shut_argv, shut_reason = protocol.no_command, protocol.no_reason
parse_identity = parse_limit = task_limit_error = remedy = protocol.nothing
slots = protocol.one_slot
header_path = protocol.quoted_path
RULES = {"space": Rule(Effect.IGNORED, "toyq takes it for a comment", "write #TOY")}


def submit_argv(script: str, array: Array, after: Sequence[JobId] = ()) -> tuple[str, ...]:
    assert not after
    return ("toyq", "sub", f"{array.first}-{array.last}", script, *array.words)


def lint(script: Script) -> tuple[LintFinding, ...] | None:
    found = [finding(RULES, line, "space") for line in script.lines if line.text.startswith("# TOY")]
    return tuple(found) if found or any(line.text.startswith("#TOY") for line in script.lines) else None


def log_name(name: str, job: str, task: int) -> str:
    del name
    return f"{job}.{task}"


def search_argvs(name: str, since: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    del name, since
    return ("toyq", "stat"), ("toyq", "acct")


def cancel_argv(job: JobId, tasks: tuple[int, ...] = ()) -> tuple[str, ...]:
    return ("toyq", "del", job.id, *(map(str, tasks)))


def queue_argv(jobs: tuple[JobId, ...], users: tuple[str, ...] = ()) -> tuple[str, ...]:
    del jobs, users
    return ("toyq", "stat")


def _rows(answer: Completed) -> list[list[str]]:
    return [re.split("[/ ]", line) for line in answer.stdout.splitlines()]


def parse_queue(answer: Completed) -> tuple[Queued, ...] | None:
    states = {"runs": State.RUNNING, "waits": State.PENDING}
    return tuple(
        Queued(job_id=job, task=int(task), state=states.get(word, State.UNKNOWN), name=name)
        for job, task, word, name in _rows(answer)
    )


def explain(task: Queued) -> str:
    return "the toy is closed" if task.state is State.PENDING else ""


def accounting_argv(
    jobs: tuple[JobId, ...], since: str, name: str, users: tuple[str, ...] = ()
) -> tuple[str, ...]:
    del jobs, since, name, users
    return ("toyq", "acct")


def parse_accounting(answer: Completed) -> tuple[Accounted, ...] | None:
    ends = {"cancelled": Outcome.CANCELLED}
    return tuple(
        Accounted(job_id=job, task=int(task), ended=True, outcome=ends.get(word), evidence=word, name=name)
        for job, task, word, name in _rows(answer)
    )


def diagnostic_argvs(jobs: tuple[JobId, ...], name: str) -> tuple[tuple[str, ...], ...]:
    del jobs, name
    return (("toyq", "stat"),)


def survey_argvs(answers: Answers) -> Mapping[str, tuple[str, ...]]:
    del answers
    return {"info": ("toyq", "info")}


def parse_survey(answers: Answers) -> Survey:
    names = [line.split()[1] for line in (text_of(answers, "info") or "").splitlines()]
    queues = tuple(Queue(name=name, default=True, cpus=4, nodes=1) for name in names)
    return Survey(product=TITLE, queues=queues, limits="none", silent=unanswered(answers))
