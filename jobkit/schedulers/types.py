"""The nouns that jobkit and its schedulers speak in."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from jobkit.core.records import Outcome
from jobkit.core.shell import Completed

LogOutcomes = tuple[tuple[re.Pattern[str], Outcome], ...]
"""Patterns of lines of a log, each with the outcome that such a line reports."""


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


ONE_TASK = Array(first=1, last=1, offset=0, throttle=None)


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


@dataclass(frozen=True, slots=True)
class Check:
    """A question to ask before anything is submitted.

    ``refusal`` reads the answer and returns what is wrong, or ``None``; ``outlook`` what the
    answer lets one expect, such as when the job would start, or nothing.
    """

    argv: tuple[str, ...]
    refusal: Callable[[Completed], str | None]
    outlook: Callable[[Completed], str] = lambda _: ""


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
