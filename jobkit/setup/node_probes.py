"""From what was found on a machine to findings: programs, scratch, inputs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jobkit.core.units import format_bytes_gib
from jobkit.setup.facts import PROGRAMS, Facts
from jobkit.setup.findings import Finding, fine, missing, warning


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the points of a sweep would need of a machine.

    Attributes
    ----------
    device
        ``cpu`` or ``cuda``.
    workload
        As a spec names it.
    gpus
        How many one point asks for.
    scratch_bytes
        Room for its inputs.
    seen
        Files and folders that it reads.
    python
        What the job calls Python.
    on_node
        Whether the machine that was looked at is one that points run on.
    jobkit
        The version that submits.
    given
        Whether a spec asks for all this, and not jobkit for the sake of looking.
    rsync
        Whether the job script cannot do without it: on this machine alone cp will do.
    """

    device: str
    workload: str
    gpus: int
    scratch_bytes: int
    seen: tuple[str, ...]
    python: str
    on_node: bool
    jobkit: str
    given: bool = True
    rsync: bool = True


Probe = Callable[[Facts, Wanted], Finding | None]


def look(facts: Facts, wanted: Wanted, probes: Sequence[Probe]) -> Iterator[Finding]:
    """Yield what the probes find; one that has nothing to say says nothing."""
    for probe in probes:
        if (found := probe(facts, wanted)) is not None:
            yield found


def programs(facts: Facts, wanted: Wanted) -> Finding:
    """Return whether the programs are there that a job script calls."""
    needed = [name for name in PROGRAMS if wanted.rsync or name != "rsync"]
    absent = [name for name in needed if not facts.said.get(f"program.{name}")]
    if not absent:
        return fine("programs", f"{', '.join(needed)} are there")
    said = f"not on PATH: {', '.join(absent)}; a job script calls them"
    mend = "ask the cluster's support to install them, or load a module in the site file's `setup`"
    return missing("programs", said, mend) if wanted.on_node else warning("programs", said, mend)


def scratch(facts: Facts, wanted: Wanted) -> Finding:
    """Return whether scratch takes a folder, and has room for the inputs of a point."""
    folder, free = facts.said.get("scratch"), facts.number("scratch.free")
    key = "change `scratch` in the site file"
    if folder is None or free is None:
        tried = facts.said.get("scratch.error", "nothing")
        return missing("scratch", f"no folder could be made in scratch ({tried})", key)
    said = f"{folder} has {format_bytes_gib(free)} free"
    if free < wanted.scratch_bytes:
        return missing("scratch", f"{said}; a point needs {format_bytes_gib(wanted.scratch_bytes)}", key)
    return _shared(facts, folder, key) or fine("scratch", said)


def _shared(facts: Facts, folder: str, key: str) -> Finding | None:
    """Return what is wrong with scratch as a place that several users and tasks share."""
    owner, mode = facts.said.get("scratch.owner", "0"), facts.said.get("scratch.mode", "")
    if owner not in {"0", facts.said.get("uid", owner)}:
        return missing("scratch", f"{folder} belongs to user {owner}, who can change the files in it", key)
    if mode[8:9] == "w" and mode[-1] not in "tT":
        said = f"{folder} ({mode}) has no sticky bit: other users can rename the files in it"
        return warning("scratch", said, f'{key}, for instance to "{folder}/$USER"')
    if facts.said.get("scratch.locks", "yes") != "yes":
        return warning(
            "scratch", f"no file in {folder} can be locked: each task makes its own copy of the inputs"
        )
    return None


def inputs(facts: Facts, wanted: Wanted) -> Finding | None:
    """Return whether the machine sees what a point reads."""
    if not wanted.seen:
        return None
    unseen = [path for n, path in enumerate(wanted.seen) if facts.said.get(f"seen.{n}") != "yes"]
    if not unseen:
        return fine("inputs", f"it can read {', '.join(wanted.seen)}")
    return missing(
        "inputs",
        f"it cannot read {', '.join(unseen)}",
        "put it where the nodes see it; for the cache of texts and models set JOBKIT_CACHE to such a folder",
    )


def cores(facts: Facts, wanted: Wanted) -> Finding | None:
    """Return how many CPUs a process may use there."""
    number = facts.python.get("cpus")
    return fine("CPUs", f"a process may use {number}") if wanted.on_node and number else None


MACHINE: tuple[Probe, ...] = (programs, scratch, inputs, cores)
