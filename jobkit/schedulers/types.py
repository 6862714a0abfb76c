"""The nouns that jobkit and its schedulers share."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import field
from datetime import datetime
from enum import StrEnum

from jobkit.core.frozen import frozen, keyed
from jobkit.core.records import Outcome
from jobkit.core.shell import Completed

LogOutcomes = tuple[tuple[re.Pattern[str], Outcome], ...]  # each reported by log lines that match


class State(StrEnum):
    """The state of a task in the queue; ``UNKNOWN`` is not success."""

    PENDING = "pending"
    RUNNING = "running"
    ENDING = "ending"
    HELD = "held"
    ERROR = "error"
    UNKNOWN = "unknown"


@frozen
class JobId:
    """The scheduler's id of a job; ``cluster`` only if several clusters share one controller."""

    id: str
    cluster: str = ""
    # whether what waits for it begins only after status 0, by the scheduler's own word (Slurm)
    well: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.id};{self.cluster}" if self.cluster else self.id


@keyed
class SchedulerId:
    """Which cluster a shell talks to, and who asked: several may share a home, and give the same ids."""

    name: str  # Slurm's ClusterName; of Grid Engine the folder of the cell
    controllers: tuple[str, ...]  # each host that may be in charge
    user: str = ""
    shell: dict[str, str] = field(default_factory=dict)  # the variables that chose the cluster

    def is_at(self, here: SchedulerId | None) -> bool | None:
        """Return whether another answer is of the same cluster; ``None`` if that is not known."""
        if here is not None and self.name != here.name:
            return False
        return True if here and {*self.controllers} & {*here.controllers} else None


@keyed
class Array:
    """One array job: tasks ``first`` to ``last``; task k runs point ``k + offset``.

    ``throttle`` is the largest number of tasks at a time, ``None`` for no limit. ``listed`` is a file in the
    run folder: then task k runs the points that its line ``k + offset`` names. ``options`` are header lines
    that replace those of the script, because its points request something else.
    """

    first: int
    last: int
    offset: int
    throttle: int | None
    listed: str = ""
    options: tuple[str, ...] = ()

    @property
    def tasks(self) -> int:
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


@keyed
class Queued:
    job_id: str
    task: int
    state: State
    reason: str = ""  # why it waits, in the scheduler's words
    name: str = ""  # the job's name; empty if unknown
    user: str = ""  # the job's owner; empty if unknown
    # when it was submitted, or a later time; ``None`` if unknown
    submitted_at: datetime | None = None
    node: str = ""  # its node
    elapsed_s: float | None = None  # its running time so far
    # local ISO time of the start, or of the scheduler's estimate; empty if a person must act first
    start_at: str = ""
    suspended: bool = False  # whether it is stopped on its node until it is resumed; its state is running


@keyed
class Accounted:
    job_id: str
    task: int
    ended: bool  # whether the task has ended for good
    # ``None`` if the accounting knows only the script's exit status, or if the task has not ended
    outcome: Outcome | None
    exit_status: int | None = None
    evidence: str = ""  # the accounting's words that led to the outcome, for a person
    name: str = ""  # these three as in `Queued`
    user: str = ""
    submitted_at: datetime | None = None
    node: str = ""
    max_rss_bytes: int | None = None
    elapsed_s: float | None = None
    ended_at: datetime | None = None
    # whether it ended before it started, by accounting data that may be older than its start
    never_began: bool = False


@keyed
class Remedy:
    argv: tuple[str, ...] = ()  # the command that lets them run; empty if there is none
    admin_argv: tuple[str, ...] = ()  # what an administrator types to let them run; empty if none
    key: str = ""  # the key of the spec to change, if they would never start; empty if no key helps
    value: str = ""  # what to set it to, if the scheduler reports it


@frozen
class Check:
    """A question before a submission.

    ``refusal`` returns why the job of a request would be refused by the answer, or ``None``; ``outlook``
    returns a forecast, such as the start of the job, or an empty text.
    """

    argv: tuple[str, ...]
    refusal: Callable[[JobRequest, Completed], str | None]
    outlook: Callable[[JobRequest, Completed], str] = lambda *_: ""


@keyed
class JobRequest:
    """The resources of a job, in the words of the spec.

    ``resources`` are the names in its header lines (Grid Engine's ``-l``), which checks compare with the
    cluster. ``walltime_s`` is the job's, for all of the ``pack`` points that share it. ``slots`` is how many
    slots a node must have for it, if the scheduler counts CPUs in slots (Grid Engine). ``exclude`` are
    patterns of nodes to avoid.
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
