"""What a scheduler offers: argument lists out, text in. Nothing here runs anything."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from jobkit.core.shell import Completed
from jobkit.schedulers.types import Accounted, Array, Check, JobId, JobRequest, LogOutcomes, Queued, Remedy

if TYPE_CHECKING:
    from jobkit.schedulers.parsed_script import LintFinding, Script
    from jobkit.schedulers.survey import Answers, Survey


class Scheduler(Protocol):
    """A module of `jobkit.schedulers` satisfies this, if need be with the defaults at the end of this file.

    See docs/adding-a-scheduler.md.
    """

    NAME: str
    """Its name in specs, site files and journals; its template is ``NAME.sh.j2``."""
    TITLE: str
    """Its name for a person."""
    DIRECTIVE: str
    """The word that a header line of a job script begins with; empty if its scripts have no header."""
    PROGRAMS: tuple[str, ...]
    """The commands that must be on PATH for ``scheduler: auto`` to choose it; none for the last resort."""
    COMMANDS: tuple[str, ...]
    """All commands that a run needs."""
    RUNS_HERE: bool
    """Whether jobkit's own driver runs the points on this machine, so that no queue holds them."""
    EXPORTS_ENVIRONMENT: bool
    """Whether a job gets the variables of the shell that submits it."""
    CHARGES_PAGE_CACHE: bool
    """Whether a job has a cgroup of its own, so that page cache counts as its memory."""
    RESERVED_OPTIONS: Mapping[str, str]
    """The options that jobkit writes itself, each with what to do instead; in a spec they are faults."""
    FORBIDDEN_PATH_CHARS: str
    """The characters of a path that a header line cannot carry."""
    ENVIRONMENT: Mapping[str, str]
    """The variables that its commands need so that jobkit can parse their output."""
    CLUSTER_VARIABLES: re.Pattern[str]
    """Matches the variables that choose which cluster its commands ask: those that only ask get no other."""
    LEAKING_VARIABLES: re.Pattern[str]
    """Matches the beginning of variables that would change a submission: its commands do not get them."""
    ASKING_VARIABLES: Mapping[str, str]
    """Variables that ask for what a spec does not name, and its key in ``resources``."""
    JOB_VARIABLE: str
    """The variable that each of its jobs has, and no login shell; empty if there is none."""
    RECORDED_VARIABLES: tuple[str, ...]
    """The variables of a job that the record of a try keeps; the first is the queue that it got."""
    BUSY_PATTERN: re.Pattern[str]
    """Found in an answer if nothing was done and the command can be repeated."""
    UNCONFIRMED_PATTERN: re.Pattern[str]
    """Found in the answer to a submission if the job may have been accepted all the same."""
    JOB_ID_PATTERNS: tuple[str, ...]
    """Patterns of a whole line of a submission's output: the group ``id``, and perhaps ``cluster``."""
    OVER_PATTERN: re.Pattern[str]
    """Found in the lines of a cancellation or throttle that are no refusal: all done, or over before."""
    LOG_OUTCOMES: LogOutcomes
    """Patterns of lines that it writes into a job's log, each with the outcome, the most specific first."""
    LOG_FAULT: re.Pattern[str]
    """Found in the lines of a job's log that are its error messages."""

    def submit_argv(self, script: str, array: Array, after: Sequence[JobId] = ()) -> tuple[str, ...]:
        """Return the command that submits ``script`` as one array job; empty if jobkit's driver runs it.

        It starts once the jobs ``after`` have ended, with whatever outcome.
        """

    def interactive_argv(self, options: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        """Return the command that starts bash on a node, at a terminal; empty if none is needed.

        ``options`` are the directives of a job script, without those that jobkit writes itself.
        """

    def limit_argv(self) -> tuple[str, ...]:
        """Return the command that prints the array limit."""

    def parse_limit(self, answer: str) -> int | None:
        """Return the largest task *index* of an array, ``None`` if the answer has no limit."""

    def task_limit_error(self, answer: str, arrays: Sequence[Array]) -> str | None:
        """Return why the controller cannot hold these arrays, from the answer to `limit_argv`.

        ``None`` if it can, or if the answer has no such limit.
        """

    def checks(self, script: str, array: Array, request: JobRequest) -> tuple[Check, ...]:
        """Return the questions to ask before a submission."""

    def resource_names(self, directives: Sequence[str]) -> tuple[str, ...]:
        """Return the resources that header lines request by the names that the site gave them."""

    def slots(self, directives: Sequence[str], cpus: int) -> int:
        """Return how many slots header lines request on one node for ``cpus`` CPUs."""

    def header_path(self, path: str) -> str:
        """Return a path as a header line takes it: the filter ``NAME`` of the templates."""

    def lint(self, script: Script) -> tuple[LintFinding, ...] | None:
        """Return what it ignores in a script, by line; ``None`` if the script has no directive for it."""

    def log_name(self, name: str, job: str, task: int) -> str:
        """Return the file name of a task's log in the run's ``logs``; empty if unknown.

        ``name`` is the job's.
        """

    def search_argvs(self, name: str, since: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the commands that find jobs by their name: in the queue, and in the accounting.

        For a client that died between a submission and its answer. ``since`` is local ISO time.
        """

    def throttle_argv(self, job: JobId, most: int) -> tuple[str, ...]:
        """Return the command that changes how many tasks of a job run at a time; empty if none can."""

    def cancel_argv(self, job: JobId, tasks: tuple[int, ...] = ()) -> tuple[str, ...]:
        """Return the one command that cancels a job, or these of its tasks."""

    def queue_argv(self, jobs: tuple[JobId, ...], users: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the one command that lists the tasks of these jobs in the queue.

        ``users`` are the owners of the jobs, by default the current user: one scheduler finds jobs
        by their ids, another by their owners.
        """

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
        """Return the one command that asks the accounting.

        ``since`` is local ISO time, ``name`` the job name that the jobs share, empty if they
        share none, ``users`` as for `queue_argv`: one scheduler finds jobs by their ids, another by
        their name or their owners.
        """

    def parse_accounting(self, answer: Completed) -> tuple[Accounted, ...] | None:
        """Return what the accounting has of the tasks, ``None`` if it did not answer."""

    def diagnostic_argvs(self, jobs: tuple[JobId, ...], name: str) -> tuple[tuple[str, ...], ...]:
        """Return the commands that show a person how jobs ended, the queue's first.

        ``name`` is the job name that the jobs share.
        """

    def survey_argvs(self, answers: Answers) -> Mapping[str, tuple[str, ...]]:
        """Return the questions about the site, each with a name.

        Called again with the answers until it returns no new question. So it asks nothing more of a
        controller that is down, and one answer may lead to another question.
        """

    def parse_survey(self, answers: Answers) -> Survey:
        """Return the site as the answers describe it; a part without an answer stays unknown."""


NEVER = re.compile(r"(?!)")
"""Matches no text."""
NO_OUTCOMES: LogOutcomes = ()


def no_command(*_: object, **__: object) -> tuple[()]:
    """Return no command, and no question to ask."""
    return ()


def nothing(*_: object, **__: object) -> None:
    """Return ``None``: no limit, no error, no remedy, no directive."""


def no_reason(*_: object, **__: object) -> str:
    """Return no reason."""
    return ""


def one_slot(*_: object, **__: object) -> int:
    """Return 1: the scheduler counts CPUs, not slots."""
    return 1


quoted_path = shlex.quote
"""A header line reads a path as the shell does."""
