"""Bring a practice cluster up and down, and say how it is."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Protocol

from jobkit.core.errors import JobkitError, RefusedError
from jobkit.core.files import exclusive_lock
from jobkit.practice import daemons as processes
from jobkit.practice import packages, sge, slurm
from jobkit.practice import place as places
from jobkit.practice.daemons import Daemon
from jobkit.practice.place import SCHEDULERS, Place


class PracticeScheduler(Protocol):
    def prepare(self, place: Place) -> None:
        """Write what the daemons read, unless it is there."""

    def daemons(self, place: Place) -> tuple[Daemon, ...]:
        """Return the daemons in the order in which they start."""
        ...

    def after(self, place: Place, daemon: Daemon) -> None:
        """Wait for what the next daemon needs of this one."""

    def states(self, place: Place) -> dict[str, str]:
        """Return the state of every node or queue, in the scheduler's own letters."""
        ...

    def heal(self, place: Place) -> None:
        """Let nodes or queues that are out of order take jobs again."""

    def takes_jobs(self, place: Place) -> bool:
        """Return whether the whole cluster answers and a job can start."""
        ...

    def end_jobs(self, place: Place) -> None:
        """Cancel all jobs, and return when they have ended."""

    def summary(self, place: Place) -> str: ...


KINDS: dict[str, PracticeScheduler] = {"slurm": slurm, "sge": sge}


class Cluster:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.kind = KINDS[place.scheduler]

    @property
    def daemons(self) -> dict[str, Daemon]:
        return {daemon.name: daemon for daemon in self.kind.daemons(self.place)}

    def stopped(self) -> list[str]:
        return [name for name, daemon in self.daemons.items() if daemon.pid() is None]

    def is_up(self) -> bool:
        return not self.stopped() and self.kind.takes_jobs(self.place)

    def is_started(self) -> bool:
        """Return whether at least its first daemon runs, whatever is broken."""
        first, *_ = self.daemons.values()
        return first.pid() is not None

    def start(self) -> None:
        """Start what does not run, and return when a job can start."""
        self.kind.prepare(self.place)
        self.start_daemons()
        self.heal()

    def start_daemons(self) -> None:
        for daemon in self.daemons.values():
            daemon.start()
            self.kind.after(self.place, daemon)

    def heal(self) -> None:
        """Let nodes or queues that are out of order take jobs again, and return when they do."""

        def ready() -> bool:
            if stopped := self.stopped():
                log = self.daemons[stopped[0]].log
                raise RefusedError(f"{stopped[0]} has ended", hint=f"see the end of {log}")
            self.kind.heal(self.place)
            return self.kind.takes_jobs(self.place)

        processes.wait_for(ready, f"a job can start; the logs are in {self.place.folder / 'log'}", 120.0)

    def end(self) -> None:
        """End all jobs and daemons of this cluster, and no other process."""
        if not self.stopped():
            with suppress(JobkitError):
                self.kind.end_jobs(self.place)
        for daemon in reversed(self.daemons.values()):
            daemon.end()
        processes.end_started(self.place.folder)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a practice folder, for which a second command that changes it waits."""
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(folder / ".lock", lambda: None):
        yield


def up(folder: Path, scheduler: str) -> Cluster:
    """Start the cluster in ``--dir``, or its missing daemons; return it when a job can start."""
    packages.require(scheduler)
    with locked(folder):
        cluster = Cluster(places.make(folder, scheduler))
        cluster.start()
    return cluster


def found(folder: Path, scheduler: str | None = None) -> list[Cluster]:
    """Return the clusters that were once started in a folder, of one scheduler or of both, up or not."""
    names = SCHEDULERS if scheduler is None else (scheduler,)
    known = (places.found(folder, name) for name in names)
    return [Cluster(place) for place in known if place is not None]


def running(folder: Path, scheduler: str | None = None) -> list[Cluster]:
    """Return the clusters of a folder that were started and not ended."""
    return [cluster for cluster in found(folder, scheduler) if cluster.is_started()]


def down(folder: Path, scheduler: str | None = None) -> list[Cluster]:
    """End clusters of a folder, and return them; their files stay."""
    clusters = found(folder, scheduler)
    with locked(folder) if clusters else nullcontext():
        for cluster in clusters:
            cluster.end()
    return clusters


def remove(folder: Path, scheduler: str | None = None) -> list[Cluster]:
    """End clusters of a folder, remove their files, and return them."""
    for cluster in (ended := down(folder, scheduler)):
        shutil.rmtree(cluster.place.folder)
    return ended


def variables(clusters: Iterable[Cluster]) -> dict[str, str]:
    """Return the variables by which commands find these clusters."""
    return {name: value for cluster in clusters for name, value in cluster.place.variables.items()}
