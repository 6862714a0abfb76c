"""What a scheduler says of its site, in the words that all schedulers share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from jobkit.core.shell import Completed
from jobkit.schedulers.queues import Queue

Answers = Mapping[str, Completed]
"""What was answered, by the name of the question."""


class Counted(StrEnum):
    """How much of a resource a job takes: nothing is kept account of, or so much for each slot or job."""

    NOT = "not"
    SLOT = "slot"
    JOB = "job"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Something that a job may ask for by a name that the site gave it.

    Attributes
    ----------
    kind
        Its type in the scheduler's words: ``INT``, ``MEMORY``.
    counted
        See `Counted`.
    exclusive
        Whether a job that asks for it has the host to itself (complex(5), relation ``EXCL``).
    most
        The most that one node of a queue has left of it now, by the name of the queue; only queues
        that have it, and only where the scheduler tells.
    """

    name: str
    shortcut: str = ""
    kind: str = ""
    counted: Counted = Counted.NOT
    exclusive: bool = False
    most: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """Whether the scheduler keeps account of jobs that have ended.

    Attributes
    ----------
    works
        ``None`` where that could not be found out.
    said
        In plain words.
    """

    works: bool | None = None
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a scheduler says of its site; ``None`` stands for what it does not tell.

    Attributes
    ----------
    product, version
        ``Slurm``, ``22.05.8``.
    queue_noun, walltime_noun
        What it calls a queue, and the longest walltime of one.
    trouble
        Why the controller does not answer; empty where it does.
    cluster
        The site's own name for itself; empty where it has none.
    queues
        All that there are.
    limits
        What the scheduler says of its limits, as `Scheduler.parse_limit` reads it.
    accounts, account
        What the user may have jobs charged to, and what they are charged to unless told.
    must_charge
        Whether a job that names no account, or a wrong one, is refused.
    resources
        Names to ask by, where the site gives them (Grid Engine).
    gpus
        The one of them that counts GPUs.
    one_node
        The parallel environments whose slots are all on one node.
    sources
        Which commands told of ``queues``, ``resources``, ``environments`` and ``accounts``, for a person.
    silent
        The questions that were not answered, and what was said instead.
    """

    product: str
    version: str = ""
    queue_noun: str = "queue"
    walltime_noun: str = ""
    trouble: str = ""
    cluster: str = ""
    queues: tuple[Queue, ...] | None = None
    limits: str = ""
    keeping: Keeping = Keeping()
    accounts: tuple[str, ...] | None = None
    account: str = ""
    must_charge: bool = False
    resources: tuple[Resource, ...] | None = None
    gpus: Resource | None = None
    one_node: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)


def unanswered(answers: Answers) -> dict[str, str]:
    """Return the questions that were not answered well, and what was said instead."""
    return {name: answer.said for name, answer in answers.items() if not answer.ok}


def text_of(answers: Answers, name: str) -> str | None:
    """Return what was printed to a question, ``None`` where it was not asked, or not answered well."""
    answer = answers.get(name)
    return answer.stdout if answer is not None and answer.ok else None
