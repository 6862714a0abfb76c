"""What a scheduler offers: argument lists out, text in. Nothing here runs anything."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Protocol

from jobkit.core.frozen import keyed
from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.core.units import MAX_BYTES, format_count, format_memory
from jobkit.schedulers.types import Accounted, Array, Check, JobId, JobRequest, LogOutcomes, Queued, Remedy

if TYPE_CHECKING:
    from jobkit.schedulers.parsed_script import LintFinding, Script
    from jobkit.schedulers.survey import Answers, Survey
    from jobkit.schedulers.types import SchedulerId


class Scheduler(Protocol):
    """A module of `jobkit.schedulers`, perhaps with the defaults below; see docs/adding-a-scheduler.md."""

    NAME: str  # in specs, site files and journals; its template is ``NAME.sh.j2``
    TITLE: str  # what a person calls it
    DIRECTIVE: str  # first word of a header line in a job script; empty if it has no header
    PROGRAMS: tuple[str, ...]  # ``scheduler: auto`` looks for them on PATH; none for the last resort
    COMMANDS: tuple[str, ...]  # all commands that a run needs
    RUNS_HERE: bool  # whether jobkit's own driver runs the points here, so that no queue holds them
    EXPORTS_ENVIRONMENT: bool  # whether a job gets the variables of the shell that submits it
    CHARGES_PAGE_CACHE: bool  # whether a job has its own cgroup, which counts page cache as its memory
    MAILS_EACH_TASK: bool  # whether a mail at the end is one for each task of an array
    NAMES_GPUS: bool  # whether a job knows which GPUs are its own; if not, jobkit warns, or chooses
    RESERVED_OPTIONS: Mapping[str, str]  # options that jobkit writes itself, each with what to do instead
    FORBIDDEN_PATH_CHARS: str  # characters that a header line cannot carry
    ENVIRONMENT: Mapping[str, str]  # variables that its commands need so that jobkit can parse their output
    CLUSTER_VARIABLES: re.Pattern[str]
    """Matches the variables that choose which cluster its commands ask: a query gets no other.

    A group ``secret`` matches in those whose value no file may have.
    """
    LEAKING_VARIABLES: re.Pattern[str]
    """Matches the beginning of variables that would change a submission: its commands do not get them."""
    ASKING_VARIABLES: Mapping[str, str]  # variables that request resources, with the key of the spec
    JOB_VARIABLE: str  # set in each of its jobs, and in no login shell; empty if there is none
    RECORDED_VARIABLES: tuple[str, ...]  # variables of a job in the record of a try, the queue first
    BUSY_PATTERN: re.Pattern[str]  # found in an answer if nothing was done: the command can be repeated
    UNCONFIRMED_PATTERN: re.Pattern[str]  # found in a submission's answer if the job may exist anyway
    JOB_ID_PATTERNS: tuple[str, ...]  # for a whole line: groups ``id``, perhaps ``cluster``
    OVER_PATTERN: re.Pattern[str]  # found in answers to a cancel or throttle that are no refusal
    LOG_OUTCOMES: LogOutcomes  # for lines that it writes into a job's log, the most specific first
    LOG_FAULT: re.Pattern[str]  # found in the lines of a job's log that are its error messages

    def submit_argv(self, script: str, array: Array, after: Sequence[JobId] = ()) -> tuple[str, ...]:
        """Return the command that submits an array once others have ended; empty for jobkit's driver."""

    def wait_argv(self, job: JobId, after: Sequence[JobId]) -> tuple[str, ...]:
        """Return the command that lets a waiting job wait for these jobs alone; empty if none can."""

    def identity_argv(self) -> tuple[str, ...]:
        """Return the command that prints which cluster this shell talks to."""

    def parse_identity(self, answer: Completed) -> SchedulerId | None:
        """Return name and controllers of the cluster, ``None`` without an answer."""

    def limit_argv(self) -> tuple[str, ...]:
        """Return the command that prints the array limit."""

    def parse_limit(self, answer: str) -> int | None:
        """Return the largest task *index* of an array, ``None`` if the answer has no limit."""

    def task_limit_error(self, answer: str, arrays: Sequence[Array]) -> str | None:
        """Return why the controller, by its answer to `limit_argv`, cannot hold these arrays."""

    def checks(self, script: str, array: Array, request: JobRequest) -> tuple[Check, ...]:
        """Return the questions to ask before a submission."""

    def resource_names(self, directives: Sequence[str]) -> tuple[str, ...]:
        """Return the resources that header lines request by names of the site."""

    def slots(self, directives: Sequence[str], cpus: int) -> int:
        """Return how many slots header lines request on one node for ``cpus`` CPUs."""

    def header_path(self, path: str) -> str:
        """Return a path as a header line takes it: the filter ``NAME`` of the templates."""

    def lint(self, script: Script) -> tuple[LintFinding, ...] | None:
        """Return what it ignores in a script, by line; ``None`` if the script has no directive for it."""

    def log_name(self, name: str, job: str, task: int) -> str:
        """Return the file name of a task's log in ``logs``; empty if unknown. ``name`` is the job's."""

    def search_argvs(self, name: str, since: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the commands that find jobs by name: in the queue, and in the accounting.

        For a client that died between a submission and its answer. ``since`` is local ISO time.
        """

    def throttle_argv(self, job: JobId, most: int) -> tuple[str, ...]:
        """Return the command that changes how many tasks of a job run at a time; empty if none can."""

    def cancel_argv(self, job: JobId, tasks: tuple[int, ...] = ()) -> tuple[str, ...]:
        """Return the one command that cancels a job, or these of its tasks."""

    def queue_argv(self, jobs: tuple[JobId, ...], users: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the one command that lists the tasks of these jobs, by their ids or by their owners."""

    def parse_queue(self, answer: Completed) -> tuple[Queued, ...] | None:
        """Return the tasks in the queue, ``None`` if the queue did not answer."""

    def shut_argv(self) -> tuple[str, ...]:
        """Return the command that shows which queues can start a job; empty if `queue_argv` shows it."""

    def shut_reason(self, answer: Completed) -> str:
        """Return which queues start no job, and what an administrator types; empty if each may start one."""

    def explain(self, task: Queued) -> str:
        """Return why a task waits: the scheduler's own word, and its meaning in plain words."""

    def remedy(self, job: JobId, tasks: tuple[int, ...], task: Queued) -> Remedy | None:
        """Return what a person can do for tasks that wait for the same reason as ``task``, else ``None``."""

    def accounting_argv(
        self, jobs: tuple[JobId, ...], since: str, name: str, users: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Return the one command that asks the accounting since a local ISO time.

        ``name`` is the job name that the jobs share, empty if they share none; ``users`` as for `queue_argv`.
        """

    def status_argv(self, jobs: tuple[JobId, ...], accounts: Sequence[Accounted]) -> tuple[str, ...]:
        """Return the command for statuses that the accounting leaves open; `parse_accounting` gets both."""

    def parse_accounting(self, answer: Completed) -> tuple[Accounted, ...] | None:
        """Return what the accounting has of the tasks, ``None`` if it did not answer."""

    def diagnostic_argvs(self, jobs: tuple[JobId, ...], name: str) -> tuple[tuple[str, ...], ...]:
        """Return the commands that show a person how jobs of one name ended, the queue's first."""

    def survey_argvs(self, answers: Answers) -> Mapping[str, tuple[str, ...]]:
        """Return the questions about the site by name; called with the answers until no question is new.

        So it asks nothing more of a controller that is down, and one answer may lead to another question.
        """

    def parse_survey(self, answers: Answers) -> Survey:
        """Return the site as the answers describe it; a part without an answer stays unknown."""


NEVER = re.compile(r"(?!)")  # matches no text


def no_command(*_: object, **__: object) -> tuple[()]:
    return ()


def nothing(*_: object, **__: object) -> None:
    """Return ``None``: no limit, no error, no remedy, no directive."""


def no_reason(*_: object, **__: object) -> str:
    return ""


def one_slot(*_: object, **__: object) -> int:
    """Return 1: the scheduler counts CPUs, not slots."""
    return 1


quoted_path = shlex.quote  # a header line reads a path as the shell does


@dataclass(slots=True, kw_only=True)  # not frozen: of a million that costs 4 s
class PastJob:
    """One run of a job, of a task of an array, or of a component of a heterogeneous job."""

    scheduler: str
    # as a person types it: ``4711``, ``4711_3`` or ``4711.3`` for a task, ``4711+1`` for a component
    job_id: str
    name: str
    user: str
    queue: str
    account: str = ""  # or project; empty if the accounting has none
    state: str  # the scheduler's own word or figures for how it ended
    ended: bool  # whether for good
    well: bool  # whether it ended by itself, with status 0
    again: bool = False  # whether the scheduler was to run the job again
    # only if the accounting shows that a limit or a person ended it, or its memory
    outcome: Outcome | None = None
    submitted: str = ""  # `submitted`, `began`, `over`: local ISO times; empty if not known, or not yet
    began: str = ""
    over: str = ""
    elapsed_s: float = 0.0  # how long it ran
    walltime_s: float | None = None  # how long it was allowed to run
    memory_bytes: int | None = None  # what it requested on each node
    memory_key: str = ""  # option or resource that requests memory
    memory_shares: int = 1  # how often a job gets it: for each slot, or each CPU or GPU of a node
    # most memory seen at once on a node; peaks of processes may differ in time, but are added up
    held_bytes: int | None = None
    sampled_s: float = 0.0  # how often its memory was read; 0 if the peak is counted
    process_bytes: int | None = None  # the most that one process, or one task of a step, held
    cpus: int = 1  # requested
    held_cpus: int = 0  # that it got: more on whole nodes and with hyperthreads; 0 if as requested
    cpu_s: float | None = None  # CPU time that it used
    processes: int = 1  # the most tasks of its steps at one time
    tasks: int = 0  # requested, if its command line does so
    gpus: int = 0  # requested
    held_gpus: int = 0  # that it got: more on whole nodes; 0 if not known
    gpu_type: str = ""  # empty if the accounting does not name it
    gpu_bytes: int | None = None  # used, if the site records it
    gpu_percent: float | None = None  # used, the sum over its GPUs, if the site records it
    nodes: int = 1  # how many nodes it had
    environment: str = ""  # the parallel environment of Grid Engine; empty without one
    by_default: tuple[str, ...] = ()  # ``memory``, ``walltime``: what is the default of its partition
    follows: bool = False  # whether it is jobkit's own, which runs points of a run again
    doubts: tuple[str, ...] = ()  # the figures of the accounting that cannot be; their fields are ``None``


RUN_NAME = re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}$")  # how the names of all jobs of a run end
FOLLOW_BYTES, FOLLOW_S = 2**30, 600  # memory and walltime of the job that follows a run
PAGE_CACHE = "page cache up to the limit"  # a doubt


def without_impossible(job: PastJob) -> PastJob:
    """Take the impossible figures from a job, name them in `PastJob.doubts`, and return it."""
    cpus, percent = max(job.cpus, job.held_cpus), job.gpu_percent or 0
    most_s = cpus * (job.elapsed_s + 1)
    # A site that does not confine jobs may let them keep a few times their CPUs busy; more is an error
    if job.cpu_s is not None and job.cpu_s > 10 * most_s:
        job.doubts += (f"{job.cpu_s / most_s:,.0f} times the time of {format_count(cpus, 'CPU')}",)
        job.cpu_s = None
    if job.held_bytes is not None and job.held_bytes > MAX_BYTES:
        job.doubts += (f"{format_memory(job.held_bytes)} of memory",)
        job.held_bytes = None
    # Of one GPU: utilisation is a mean of samples
    if (job.gpu_bytes or 0) > MAX_BYTES or percent > 110 * max(1, job.gpus):
        job.doubts += ("figures of its GPUs",)
        job.gpu_bytes = job.gpu_percent = None
    return job


@keyed
class Whose:
    """Which jobs the accounting is asked for: those of the ids, else those that fit all the rest."""

    ids: tuple[str, ...] = ()
    user: str = ""  # `user`, `account`, `queue`: empty for any
    account: str = ""
    queue: str = ""


class PastJobs(Protocol):
    """How an accounting is asked about past jobs: a module such as `jobkit.schedulers.slurm_past`."""

    ACCOUNTING: str  # what a person calls the source
    EXPORT: re.Pattern[str]  # how a file of its answers begins

    def argvs(self, whose: Whose, days: Sequence[date], site: str) -> tuple[tuple[str, ...], ...]:
        """Return the commands that print the jobs; without ids those of each of these days, in order.

        One command for each day, or one for all of them, if a day costs the accounting as much as all.
        """

    def site_argvs(self, whose: Whose) -> tuple[tuple[str, ...], ...]:
        """Return the commands that print what the other functions need as ``site``."""

    def read(self, lines: Iterable[str], site: str) -> Iterator[PastJob]:
        """Yield the jobs of an answer line by line, so that a long answer needs little memory."""

    def refusal(self, answer: Completed) -> str:
        """Return why the accounting gave no answer; empty if it answered, also that it knows no such job."""

    def how_measured(self, site: str) -> tuple[str, ...]:
        """Return sentences on how this site measures memory, and what that implies."""

    def lines(self, job: PastJob, *, memory: int | None, walltime: int | None, cpus: int | None) -> list[str]:
        """Return the header lines of the next job like this one, for the values that are given."""
