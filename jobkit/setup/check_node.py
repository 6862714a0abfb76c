"""What is checked on a node, and of its Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobkit.core.terminal import shell_quote
from jobkit.core.torch_build import cuda_install_command
from jobkit.core.units import format_bytes_gib
from jobkit.setup.facts import PROGRAMS, Facts
from jobkit.setup.findings import Finding, fine, missing, unknown, warning


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequest:
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


Probe = Callable[[Facts, NodeRequest], Finding | None]


def check_node(facts: Facts, wanted: NodeRequest, probes: Sequence[Probe]) -> Iterator[Finding]:
    """Yield what the probes find; one that has nothing to say says nothing."""
    for probe in probes:
        if (found := probe(facts, wanted)) is not None:
            yield found


def programs(facts: Facts, wanted: NodeRequest) -> Finding:
    """Return whether the programs are there that a job script calls."""
    needed = [name for name in PROGRAMS if wanted.rsync or name != "rsync"]
    absent = [name for name in needed if not facts.said.get(f"program.{name}")]
    if not absent:
        return fine("programs", f"{', '.join(needed)} are there")
    said = f"not on PATH: {', '.join(absent)}; a job script calls them"
    mend = "ask the cluster's support to install them, or load a module in the site file's `setup`"
    return missing("programs", said, mend) if wanted.on_node else warning("programs", said, mend)


def scratch(facts: Facts, wanted: NodeRequest) -> Finding:
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


def inputs(facts: Facts, wanted: NodeRequest) -> Finding | None:
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


def cores(facts: Facts, wanted: NodeRequest) -> Finding | None:
    """Return how many CPUs a process may use there."""
    number = facts.python.get("cpus")
    return fine("CPUs", f"a process may use {number}") if wanted.on_node and number else None


MACHINE: tuple[Probe, ...] = (programs, scratch, inputs, cores)


SLOW_IMPORT_S = 30.0
FOR_CUDA = "another build, for the CUDA that the driver supports (jobkit help dependencies):"
ON_NODE = "jobkit doctor --submit looks on a node"


def environment(facts: Facts, wanted: NodeRequest) -> Finding:
    """Return whether the environment can be made ready, and has a Python."""
    status = facts.status("activation")
    if status is None:
        return unknown("environment", "the look ended before it came to that")
    if status:
        said = facts.said.get("activation.said", "").strip() or f"status {status}"
        return missing(
            "environment",
            f"it could not be activated: {said}",
            "change `environment` in the spec, or `setup` in the site file",
        )
    if not facts.said.get("python"):
        return missing(
            "environment",
            f"there is no {wanted.python} here",
            "put it where the nodes see it, or name another: environment.venv, environment.conda",
        )
    version = facts.python.get("python")
    return fine("environment", f"Python {version or ''} at {facts.said['python']}".replace("  ", " "))


def packages(facts: Facts, wanted: NodeRequest) -> Finding | None:
    """Return whether that Python can run the worker, and the workload."""
    status = facts.status("worker")
    if not status and status is not None:
        return _workload(facts, wanted)
    if status is None or not facts.said.get("python"):
        return None  # told as the environment
    said = facts.said.get("worker.said", "").strip() or f"status {status}"
    if facts.hung("worker"):
        said = "it took too long: is the file system that holds it slow?"
    return missing(
        "jobkit",
        f"this Python cannot run jobkit's worker: {said}",
        f"{shell_quote(facts.said['python'])} -m pip install jobkit",
    )


def _workload(facts: Facts, wanted: NodeRequest) -> Finding:
    seen = facts.python
    if not seen:
        if facts.hung("examine"):
            return warning("jobkit", "it runs, but looking at its packages took too long")
        return missing(
            "jobkit", f"looking at its packages failed: {facts.said.get('examine.said', '')}".strip(": ")
        )
    if error := seen.get("workload_error"):
        mend = seen.get("workload_hint") or "install what it imports into that environment"
        return missing("jobkit", str(error), str(mend))
    version = seen.get("jobkit")
    if version != wanted.jobkit:
        return warning(
            "jobkit",
            f"it has jobkit {version}, and here it is {wanted.jobkit}",
            f"{shell_quote(facts.said['python'])} -m pip install jobkit=={wanted.jobkit}",
        )
    stanza = f", stanza {seen['stanza']}" if seen.get("stanza") else ""
    return fine("jobkit", f"jobkit {version}{stanza}; it can run {wanted.workload}")


def torch(facts: Facts, wanted: NodeRequest) -> Finding | None:
    """Return whether torch can be imported, where the work needs it."""
    told = _torch(facts)
    if told is None:
        return None
    python = facts.said.get("python", "python")
    if told.get("version") is None:
        return missing(
            "torch",
            f"it cannot be imported: {told.get('error')}",
            f"{shell_quote(python)} -m pip install torch",
        )
    built = f"for CUDA {told['built_for']}" if told.get("built_for") else "a CPU build"
    said = f"torch {told['version']}, {built}, imported in {told.get('import_s')} s"
    if wanted.device == "cuda" and not told.get("built_for"):
        asks = "the sweep asks for one" if wanted.given else "the cluster has some"
        return _lacking(wanted)(
            "torch",
            f"{said}: it cannot use a GPU, and {asks}",
            f"{FOR_CUDA}\n{cuda_install_command(python)}",
        )
    if (told.get("import_s") or 0) > SLOW_IMPORT_S:
        return warning(
            "torch", f"{said}: that is slow, and every point pays it", "put the environment on a faster disk"
        )
    return fine("torch", said)


def _lacking(wanted: NodeRequest) -> Callable[[str, str, str], Finding]:
    """Return what the lack of a thing is that only some sweeps need."""
    return missing if wanted.given else warning


def _torch(facts: Facts) -> Mapping[str, Any] | None:
    told = facts.python.get("torch")
    return told if isinstance(told, dict) else None


def cuda(facts: Facts, wanted: NodeRequest) -> Finding | None:
    """Return whether a tensor can be put on a GPU, where the sweep asks for one."""
    told = _torch(facts)
    if wanted.device != "cuda" or told is None or not told.get("built_for"):
        return None
    if told.get("works"):
        said = f"{told.get('devices')} x {told.get('name')}, {format_bytes_gib(told.get('total_bytes') or 0)}"
        if (told.get("devices") or 0) < wanted.gpus:
            return warning(
                "CUDA", f"{said}; asked for: {wanted.gpus}", "change requests.gpus in the site file"
            )
        return fine("CUDA", said)
    if not wanted.on_node:
        return unknown("CUDA", f"not on this machine: {told.get('why')}", ON_NODE)
    return _lacking(wanted)(
        "CUDA",
        str(told.get("why")),
        "does the site file's requests.gpus ask for a GPU, and the queue have one? nvidia-smi in a job tells",
    )


def nvml(facts: Facts, wanted: NodeRequest) -> Finding | None:
    """Return whether the driver tells about the cards: memory by process, use, power."""
    if wanted.device != "cuda" or not facts.python:
        return None
    cards = _cards(facts)
    if not cards:
        if not wanted.on_node:
            return unknown("NVML", "no NVIDIA driver here", ON_NODE)
        return warning(
            "NVML",
            "the driver's library does not answer: memory is then told by torch alone",
            "ask the cluster's support about libnvidia-ml.so on the nodes",
        )
    named = f"driver {cards[0].get('driver')}, {', '.join(str(card.get('name')) for card in cards)}"
    busy = [card for card in cards if card.get("processes")]
    if busy:
        said = f"{named}; other processes compute on {len(busy)} of them: figures would be theirs too"
        return warning("NVML", said, "ask for the card alone, if the site has a way (resources.options)")
    return fine("NVML", named)


def accounting_mode(facts: Facts, wanted: NodeRequest) -> Finding | None:
    """Return whether the driver keeps the peak of a process that was killed."""
    cards = _cards(facts)
    if wanted.device != "cuda" or not cards:
        return None
    if all(card.get("accounting") for card in cards):
        return fine("GPU accounting", "on: the driver keeps the peak of a process that was killed")
    if all(card.get("accounting") is None for card in cards):
        return fine("GPU accounting", "these cards have none (MIG has not); jobkit samples memory itself")
    said = "off: fine, jobkit samples memory itself; on, a peak between two samples would be kept too"
    return fine("GPU accounting", f"{said} (an administrator's nvidia-smi -am 1)")


def _cards(facts: Facts) -> Sequence[Mapping[str, Any]]:
    cards = facts.python.get("gpus")
    return [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []


PYTHON: tuple[Probe, ...] = (environment, packages, torch, cuda, nvml, accounting_mode)
