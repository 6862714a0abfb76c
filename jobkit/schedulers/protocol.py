"""What a scheduler offers: argument lists out, text in. Nothing here runs anything."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from jobkit.core.shell import Completed
from jobkit.schedulers.survey import Answers, Survey
from jobkit.schedulers.types import Accounted, Array, Check, JobId, Queued, Remedy, Request


class Scheduler(Protocol):
    """A module of this package satisfies this; see docs/adding-a-scheduler.md."""

    NAME: str
    PROGRAMS: tuple[str, ...]
    """What must be on PATH for ``scheduler: auto`` to choose it; nothing for the last resort."""
    COMMANDS: tuple[str, ...]
    """All that jobkit calls of it."""
    EXPORTS_ENVIRONMENT: bool
    """Whether a job gets the variables of the shell that submits it."""
    RESERVED_OPTIONS: Mapping[str, str]
    """Options that jobkit writes itself, so that nobody else may, and what to do instead."""
    BUSY_PATTERN: re.Pattern[str]
    """Words of an answer that mean: nothing was done, come again."""
    UNCONFIRMED_PATTERN: re.Pattern[str]
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

    def task_limit_error(self, answer: str, arrays: Sequence[Array]) -> str | None:
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

    def diagnostic_argvs(self, jobs: tuple[JobId, ...], name: str) -> tuple[tuple[str, ...], ...]:
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
