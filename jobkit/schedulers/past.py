"""A past job as the accounting has it: what it requested, and what is known of its use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.core.units import MAX_BYTES, format_count, format_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class PastJob:
    """One run of a job, of a task of an array, or of a component of a heterogeneous job."""

    scheduler: str
    # as a person types it: ``4711``, ``4711_3`` or ``4711.3`` for a task, ``4711+1`` for a component
    job_id: str
    name: str
    user: str
    queue: str
    state: str  # the scheduler's own word or figures for how it ended
    ended: bool  # whether for good
    well: bool  # whether it ended by itself, with status 0
    again: bool = False  # whether the scheduler was to run the job again
    # only if the accounting shows that a limit or a person ended it, or its memory
    outcome: Outcome | None = None
    began: str = ""  # local ISO time; empty if it never began
    elapsed_s: float = 0.0  # how long it ran
    walltime_s: float | None = None  # how long it was allowed to run
    memory_bytes: int | None = None  # what it requested on each node
    memory_key: str = ""  # option or resource that requests memory
    memory_shares: int = 1  # how often a job gets it: for each slot, or each CPU with ``--mem-per-cpu``
    # most memory seen at once on a node; peaks of processes may differ in time, but are added up
    held_bytes: int | None = None
    process_bytes: int | None = None  # the most that one process, or one task of a step, held
    cpus: int = 1  # requested
    cpu_s: float | None = None  # CPU time that it used
    processes: int = 1  # how many tasks its largest step had at once
    gpus: int = 0  # requested
    gpu_bytes: int | None = None  # used, if the site records it
    gpu_percent: float | None = None  # used, if the site records it
    nodes: int = 1  # how many nodes it had
    environment: str = ""  # the parallel environment of Grid Engine; empty without one
    doubts: tuple[str, ...] = ()  # the figures of the accounting that cannot be; their fields are ``None``


MOST_BUSY = 10
"""A site that does not confine jobs may let them keep a few times their CPUs busy; more is an error."""


def without_impossible(job: PastJob) -> PastJob:
    """Return a job without impossible figures, which `PastJob.doubts` then names."""
    cpu_s, held, doubts = job.cpu_s, job.held_bytes, []
    most_s = job.cpus * (job.elapsed_s + 1)
    if cpu_s is not None and cpu_s > MOST_BUSY * most_s:
        doubts += [f"{cpu_s / most_s:,.0f} times the time of {format_count(job.cpus, 'CPU')}"]
        cpu_s = None
    if held is not None and held > MAX_BYTES:
        doubts += [f"{format_memory(held)} of memory"]
        held = None
    return replace(job, cpu_s=cpu_s, held_bytes=held, doubts=tuple(doubts)) if doubts else job


class PastJobs(Protocol):
    """How an accounting is asked about past jobs: a module such as `jobkit.schedulers.slurm_past`."""

    ACCOUNTING: str  # what a person calls the source

    def argvs(self, ids: tuple[str, ...], user: str, days: int) -> tuple[tuple[str, ...], ...]:
        """Return the commands that print the jobs of these ids; without ids those of a user and some days."""

    def site_argv(self) -> tuple[str, ...]:
        """Return the command that prints the site's configuration for `read` and `sampling_s`."""

    def read(self, lines: Iterable[str], site: str) -> Iterator[PastJob]:
        """Yield the jobs of an answer line by line, so that a long answer needs little memory."""

    def refusal(self, answer: Completed) -> str:
        """Return why the accounting gave no answer; empty if it answered, also that it knows no such job."""

    def sampling_s(self, site: str) -> float | None:
        """Return the seconds between two samples of memory; ``None`` if unknown."""

    def lines(self, job: PastJob, *, memory: int | None, walltime: int | None, cpus: int | None) -> list[str]:
        """Return the header lines of the next job like this one, for the values that are given."""
