"""The nouns that jobkit and its schedulers share."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from jobkit.core.records import Outcome
from jobkit.core.shell import Completed

LogOutcomes = tuple[tuple[re.Pattern[str], Outcome], ...]
"""Patterns of lines of a log, each with the outcome that such a line reports."""


class State(StrEnum):
    """The state of a task in the queue; ``UNKNOWN`` is not success."""

    PENDING = "pending"
    RUNNING = "running"
    ENDING = "ending"
    HELD = "held"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class JobId:
    """The scheduler's id of a job; ``cluster`` only if several clusters share one controller."""

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
    ``options`` are header lines that override those of the script: its points request something else.
    """

    first: int
    last: int
    offset: int
    throttle: int | None
    listed: str = ""
    options: tuple[str, ...] = ()

    @property
    def tasks(self) -> int:
        """How many tasks it has."""
        return self.last - self.first + 1

    @property
    def option_words(self) -> tuple[str, ...]:
        """Its options as arguments of the command that submits it."""
        return tuple(word for line in self.options for word in shlex.split(line))

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments of the job script that select a task's points."""
        if self.listed:
            return ("--list", self.listed, str(self.offset))
        return ("--offset", str(self.offset)) if self.offset else ()


ONE_TASK = Array(first=1, last=1, offset=0, throttle=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """A task as the queue sees it now.

    Attributes
    ----------
    reason
        Why it waits, in the scheduler's words.
    name
        The job's name; empty if unknown.
    node
        Its node.
    elapsed_s
        Its running time so far.
    start_at
        When it started, or will start by the scheduler's estimate: local ISO time. Empty if a person must
        act first.
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
    """A task in the accounting.

    Attributes
    ----------
    outcome
        ``None`` if the accounting does not report why the task ended (only the script's exit status),
        or if it has not ended.
    ended
        Whether the task has ended for good.
    evidence
        The accounting's words that led to the outcome, for a person.
    name
        The job's name; empty if unknown.
    never_began
        Whether it ended before it started, by accounting data that may be older than its start.
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
    ended_at: datetime | None = None
    never_began: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What a person can do for tasks that wait.

    Attributes
    ----------
    argv
        The command that lets them run; empty if there is none.
    admin_argv
        The command that lets them run if an administrator types it; empty if there is none.
    key
        The key of the spec to change, if they would never start; empty if no key helps.
    """

    argv: tuple[str, ...] = ()
    admin_argv: tuple[str, ...] = ()
    key: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """A question before a submission.

    ``refusal`` reads the answer and returns why the job would be refused, or ``None``; ``outlook``
    returns a forecast, such as the start of the job, or an empty text.
    """

    argv: tuple[str, ...]
    refusal: Callable[[Completed], str | None]
    outlook: Callable[[Completed], str] = lambda _: ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """The resources of a job, in the words of the spec.

    ``resources`` are the names in its header lines, if the scheduler requests resources by name
    (Grid Engine's ``-l``): checks compare them with the cluster. ``walltime_s`` is the job's, for
    all of the ``pack`` points that share it. ``slots`` is how many slots a node must have for it,
    if the scheduler counts CPUs in slots (Grid Engine). ``exclude`` are patterns of nodes to avoid.
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
    exclude: tuple[str, ...] = ()
