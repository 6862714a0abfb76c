"""What a scheduler module offers: argv out, text in. Nothing here runs anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from jobkit.records import Outcome
from jobkit.shell import Completed

if TYPE_CHECKING:  # that module builds on this one
    from jobkit.schedulers.survey import Answers, Survey


class State(StrEnum):
    """What the queue says of a task; ``UNKNOWN`` is not success."""

    PENDING = "pending"
    RUNNING = "running"
    ENDING = "ending"
    HELD = "held"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class JobId:
    """The scheduler's name for a job; ``cluster`` only where several share one controller."""

    id: str
    cluster: str = ""

    def __str__(self) -> str:
        """Return the id as a person types it."""
        return f"{self.id};{self.cluster}" if self.cluster else self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """One array job: tasks ``first`` to ``last``; task k runs point ``k + offset``.

    ``throttle`` is the largest number of tasks at a time, ``None`` for no limit. ``listed`` is a
    file in the run folder: then task k runs the points that its line ``k + offset`` names.
    """

    first: int
    last: int
    offset: int
    throttle: int | None
    listed: str = ""

    @property
    def tasks(self) -> int:
        """How many tasks it has."""
        return self.last - self.first + 1

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments by which the job script finds a task's points."""
        if self.listed:
            return ("--list", self.listed, str(self.offset))
        return ("--offset", str(self.offset)) if self.offset else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """A task as the queue sees it now.

    Attributes
    ----------
    reason
        Why it waits, in the scheduler's words.
    name
        Of the job; empty where the scheduler does not tell.
    node
        Where it runs.
    elapsed_s
        How long it has been running.
    start_at
        When it is to begin by the scheduler's own estimate, local ISO time; or when it began.
    """

    job_id: str
    task: int
    state: State
    reason: str = ""
    name: str = ""
    node: str = ""
    elapsed_s: float | None = None
    start_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounted:
    """A task as the accounting tells it.

    Attributes
    ----------
    outcome
        ``None`` where the accounting does not say why the task ended (an exit status of its
        own), or where it has not ended.
    ended
        Whether the task has ended for good.
    evidence
        The words of the accounting that led here, for a person.
    name
        Of the job; empty where the accounting does not tell.
    never_began
        It ended before it began, as far as the accounting knew: that news may be older than its start.
    """

    job_id: str
    task: int
    ended: bool
    outcome: Outcome | None
    exit_status: int | None = None
    evidence: str = ""
    name: str = ""
    node: str = ""
    max_rss_bytes: int | None = None
    elapsed_s: float | None = None
    never_began: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What a person can do for tasks that wait for one.

    Attributes
    ----------
    argv
        The command that lets them go on; nothing where there is none.
    key
        What to change in the spec, where they will never begin as they are; empty where no key does it.
    """

    argv: tuple[str, ...] = ()
    key: str = ""


def _nothing(_: Completed) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Check:
    """A question to ask before anything is submitted.

    ``refusal`` reads the answer and returns what is wrong, or ``None``; ``outlook`` what the
    answer lets one expect, such as when the job would start, or nothing.
    """

    argv: tuple[str, ...]
    refusal: Callable[[Completed], str | None]
    outlook: Callable[[Completed], str] = _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a sweep asks of a scheduler, in the scheduler-free words of the spec.

    ``resources`` are the names that the site file requests them by, where the scheduler has
    names for them (Grid Engine's ``-l``): they are checked to exist. ``walltime_s`` is the job's, for
    all of the ``pack`` points that share it. ``slots`` is how many slots a node must have for it,
    where the scheduler counts CPUs in slots (Grid Engine).
    """

    name: str
    queue: str | None
    gpus: int
    gpu_type: str | None
    cpus: int
    memory_bytes: int
    walltime_s: int
    account: str | None
    qos: str | None
    resources: tuple[str, ...] = ()
    pack: int = 1
    slots: int = 1


class Scheduler(Protocol):
    """A module of this package satisfies this; see docs/adding-a-scheduler.md."""

    NAME: str
    PROGRAMS: tuple[str, ...]
    """What must be on PATH for ``scheduler: auto`` to choose it; nothing for the last resort."""
    COMMANDS: tuple[str, ...]
    """All that jobkit calls of it."""
    HANDS_ON: bool
    """Whether a job gets the variables of the shell that submits it."""
    OWN_OPTIONS: Mapping[str, str]
    """Options that jobkit writes itself, so that nobody else may, and what to do instead."""
    BUSY: re.Pattern[str]
    """Words of an answer that mean: nothing was done, come again."""
    UNSURE: re.Pattern[str]
    """Words of a submission's answer that leave open whether the job was taken."""
    ENVIRONMENT: Mapping[str, str]
    """Variables that its commands need so that what they print can be read."""

    def submit_argv(self, script: str, array: Array, after: Sequence[JobId] = ()) -> tuple[str, ...]:
        """Return the command that submits ``script`` as one array job.

        It begins once the jobs ``after`` have ended, however they did.
        """
        ...

    def parse_submit(self, answer: str) -> JobId:
        """Return the job id out of what the submit command printed, whatever surrounds it.

        Raises JobkitError where there is none.
        """
        ...

    def limit_argv(self) -> tuple[str, ...]:
        """Return the command that tells the array limit."""
        ...

    def parse_limit(self, answer: str) -> int | None:
        """Return the largest task *index* of an array, ``None`` where the answer does not say."""
        ...

    def too_many(self, answer: str, arrays: Sequence[Array]) -> str | None:
        """Return why the controller cannot hold so many tasks or jobs, from the limits' answer.

        ``None`` where it can, or does not say.
        """
        ...

    def checks(self, script: str, array: Array, request: Request) -> tuple[Check, ...]:
        """Return the questions to ask before anything is submitted."""
        ...

    def log_name(self, name: str, job: str, task: int) -> str:
        """Return the name of a task's log in the run's ``logs``; empty where it is not known.

        ``name`` is the job's.
        """
        ...

    def search_argvs(self, name: str, since: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the commands that look for jobs by their name: in the queue, and in the accounting.

        For a client that died between a submission and its answer. ``since`` is local ISO time.
        """
        ...

    def throttle_argv(self, job: JobId, most: int) -> tuple[str, ...]:
        """Return the command that changes how many tasks of a job run at a time; nothing where none can."""
        ...

    def cancel_argv(self, job: JobId, tasks: tuple[int, ...] = ()) -> tuple[str, ...]:
        """Return the command that cancels a job, or only some of its tasks: one, however many."""
        ...

    def refusal(self, answer: Completed) -> str | None:
        """Return what was refused of a cancellation or a throttle, in the scheduler's words.

        ``None`` where all was done, or what it was about had ended.
        """
        ...

    def queue_argv(self, jobs: tuple[JobId, ...], users: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the one command that lists what the queue still holds of these jobs.

        ``users`` are those whose jobs they are, by default oneself: one scheduler finds jobs by
        their ids, another by their owners.
        """
        ...

    def parse_queue(self, answer: Completed) -> tuple[Queued, ...] | None:
        """Return the tasks still in the queue, ``None`` where the answer is no answer."""
        ...

    def explain(self, one: Queued) -> str:
        """Return why a task waits: the scheduler's own word, and in plain words what it means."""
        ...

    def remedy(self, job: JobId, tasks: tuple[int, ...], one: Queued) -> Remedy | None:
        """Return what a person can do for tasks that wait alike; ``None`` where they need nobody."""
        ...

    def accounting_argv(
        self, jobs: tuple[JobId, ...], since: str, name: str, users: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Return the one command that asks the accounting.

        ``since`` is local ISO time, ``name`` the job name that the jobs share, empty where they
        share none, ``users`` as for `queue_argv`: one scheduler finds them by their ids, another by
        their name or their owners.
        """
        ...

    def parse_accounting(self, answer: Completed) -> tuple[Accounted, ...] | None:
        """Return what is known of the tasks, ``None`` where the accounting did not answer."""
        ...

    def person_argvs(self, jobs: tuple[JobId, ...], name: str) -> tuple[tuple[str, ...], ...]:
        """Return the commands that tell a person what became of jobs, the queue's first.

        ``name`` is the job name that they share. For eyes, where the others are for a parser.
        """
        ...

    def survey_argvs(self, answers: Answers) -> Mapping[str, tuple[str, ...]]:
        """Return what to ask the scheduler about its site, by a name for each question.

        Called again with what was answered, until it names no question that was not asked: so a
        controller that is down is asked no more, and one answer may lead to another question.
        """
        ...

    def parse_survey(self, answers: Answers) -> Survey:
        """Return what the answers come to; a question that was not answered leaves its part unknown."""
        ...
