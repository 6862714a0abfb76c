"""Check a node, and its Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jobkit.core.terminal import shell_quote
from jobkit.core.torch_build import cuda_install_command
from jobkit.core.units import format_bytes_gib
from jobkit.planning.job_script import COPIER, PROGRAMS
from jobkit.setup.facts import Facts
from jobkit.setup.findings import Finding, fine, missing, unknown, warning


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequest:
    """What the points of a sweep need on a machine.

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
        Files and folders that a point reads.
    python
        What the job calls Python.
    on_node
        Whether the machine is one that runs points.
    jobkit
        The version that submits.
    given
        Whether the user's spec asks for all this.
    container
        The image in which the worker runs; empty for none.
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
    container: str = ""


Probe = Callable[[Facts, NodeRequest], Finding | None]


def check_node(facts: Facts, wanted: NodeRequest, probes: Sequence[Probe]) -> Iterator[Finding]:
    """Yield the findings of the probes."""
    for probe in probes:
        if (finding := probe(facts, wanted)) is not None:
            yield finding


def programs(facts: Facts, wanted: NodeRequest) -> Finding:
    """Return whether the programs that a job script calls are on PATH."""
    absent = [name for name in PROGRAMS if not facts.said.get(f"program.{name}")]
    if not absent:
        copier = COPIER if facts.said.get(f"program.{COPIER}") else f"cp: {COPIER} is not on PATH"
        return fine("programs", f"{', '.join(PROGRAMS)} are there; a job copies with {copier}")
    message = f"not on PATH: {', '.join(absent)}; a job script calls them"
    hint = "ask the cluster's support to install them, or load a module in the site file's `setup`"
    return missing("programs", message, hint) if wanted.on_node else warning("programs", message, hint)


def scratch(facts: Facts, wanted: NodeRequest) -> Finding:
    """Return whether scratch is writable, and has room for the inputs of a point."""
    folder, free = facts.said.get("scratch"), facts.number("scratch.free")
    key = "change `scratch` in the site file"
    if folder is None or free is None:
        tried = facts.said.get("scratch.error", "nothing")
        return missing("scratch", f"no folder could be made in scratch ({tried})", key)
    message = f"{folder} has {format_bytes_gib(free)} free"
    if free < wanted.scratch_bytes:
        return missing("scratch", f"{message}; a point needs {format_bytes_gib(wanted.scratch_bytes)}", key)
    return _shared(facts, folder, key) or fine("scratch", message)


def _shared(facts: Facts, folder: str, key: str) -> Finding | None:
    """Return what is wrong with scratch as a folder that users and tasks share."""
    owner, mode = facts.said.get("scratch.owner", "0"), facts.said.get("scratch.mode", "")
    if owner not in {"0", facts.said.get("uid", owner)}:
        return missing("scratch", f"{folder} belongs to user {owner}, who can change the files in it", key)
    if mode[8:9] == "w" and mode[-1] not in "tT":
        message = f"{folder} ({mode}) has no sticky bit: other users can rename the files in it"
        return warning("scratch", message, f'{key}, for instance to "{folder}/$USER"')
    if facts.said.get("scratch.locks", "yes") != "yes":
        message = f"no file in {folder} can be locked: each task makes its own copy of the inputs"
        return warning("scratch", message)
    return None


def inputs(facts: Facts, wanted: NodeRequest) -> Finding | None:
    """Return whether the machine can read the inputs of a point."""
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
    """Return how many CPUs a process may use on a node."""
    number = facts.python.get("cpus")
    return fine("CPUs", f"a process may use {number}") if wanted.on_node and number else None


MACHINE: tuple[Probe, ...] = (programs, scratch, inputs, cores)


SLOW_IMPORT_S = 30.0
FOR_CUDA = "another build, for the CUDA that the driver supports (jobkit help dependencies):"
ON_NODE = "jobkit doctor --submit checks a node"
ON_CPU = "to work on the CPU, add --set device=cpu --set resources.gpus=0"


def environment(facts: Facts, wanted: NodeRequest) -> Finding:
    """Return whether the environment can be activated, and has a Python."""
    status, name = facts.number("activation"), "environment"
    if status is None:
        return unknown(name, "the check ended before this step")
    if status:
        message = f"it could not be activated: {facts.message('activation') or f'status {status}'}"
        return missing(name, message, "change `environment` in the spec, or `setup` in the site file")
    if not facts.said.get("python"):
        hint = "put it where the nodes see it, or name another: environment.venv, .conda or .container"
        return missing(name, f"there is no {wanted.python} here", hint)
    version = facts.python.get("python")
    return fine(name, f"Python {version or ''} at {facts.said['python']}".replace("  ", " "))


def packages(facts: Facts, wanted: NodeRequest) -> Finding | None:
    """Return whether that Python can run the worker and the workload."""
    status = facts.number("worker")
    if status == 0:
        return _workload(facts, wanted)
    if status is None or not facts.said.get("python"):
        return None  # reported as the environment
    message = facts.message("worker") or f"status {status}"
    if facts.hung("worker"):
        message = "it took too long: is the file system that holds it slow?"
    return missing("jobkit", f"this Python cannot run jobkit's worker: {message}", f"{facts.pip} jobkit")


def _workload(facts: Facts, wanted: NodeRequest) -> Finding:
    examined = facts.python
    if not examined:
        if facts.hung("examine"):
            return warning("jobkit", "it runs, but looking at its packages took too long")
        return missing("jobkit", f"looking at its packages failed: {facts.message('examine')}".strip(": "))
    if error := examined.get("workload_error"):
        hint = examined.get("workload_hint") or "install what it imports into that environment"
        return missing("jobkit", str(error), str(hint))
    version, here = examined.get("jobkit"), wanted.jobkit
    if version != here:
        return warning(
            "jobkit", f"it has jobkit {version}, and here it is {here}", f"{facts.pip} jobkit=={here}"
        )
    stanza = f", stanza {examined['stanza']}" if examined.get("stanza") else ""
    return fine("jobkit", f"jobkit {version}{stanza}; it can run {wanted.workload}")


def program(facts: Facts, wanted: NodeRequest) -> Finding | None:
    """Return whether the program of a command, or the interpreter of one that is staged, can be started."""
    found = facts.python.get("program")
    if found is None:
        return None
    name, needs = found["name"], found.get("interpreter")
    where = f"in {wanted.container}" if wanted.container else "here"
    if found.get("path") and (not needs or found.get("interpreter_path")):
        return fine("program", f"{name} is {found['path']}")
    if needs and found.get("path"):
        message = f"{found['path']} needs {needs!a}, which is not {where}"
        return _absent(wanted, message, needs)
    if found.get("is_file"):
        return _absent(
            wanted, f"{name} is not executable {where}", name, hint=f"chmod +x {shell_quote(name)}"
        )
    lack = f"there is no {name!a}" if "/" in name else f"{name} is not on PATH"
    return _absent(wanted, f"{lack} {where}", name)


def _absent(wanted: NodeRequest, message: str, name: str, hint: str = "") -> Finding:
    """Return that a program cannot be started; on a machine that runs no points this may be right."""
    if name.endswith("\r"):
        hint = "its lines end as on Windows: sed -i 's/\\r$//' FILE"
    elif not hint and wanted.container:
        hint = "add it when you build the image, or stage it (workload.files)"
    elif not hint:
        hint = "load its module (environment.modules), write its path, or stage it (workload.files)"
    return (missing if wanted.on_node else warning)("program", message, hint)


def torch(facts: Facts, wanted: NodeRequest) -> Finding | None:
    """Return whether torch can be imported, if the workload needs it."""
    torch = facts.python.get("torch")
    if torch is None:
        return None
    if torch.get("version") is None:
        return missing("torch", f"it cannot be imported: {torch.get('error')}", f"{facts.pip} torch")
    built = f"for CUDA {torch['built_for']}" if torch.get("built_for") else "a CPU build"
    message = f"torch {torch['version']}, {built}, imported in {torch.get('import_s')} s"
    if wanted.device == "cuda" and not torch.get("built_for"):
        asks = "the sweep asks for one" if wanted.given else "the cluster has some"
        message += f": it cannot use a GPU, and {asks}"
        install = cuda_install_command(facts.said.get("python", "python"))
        return _lacking(wanted)("torch", message, f"{ON_CPU}; for the GPU {FOR_CUDA}\n{install}")
    if (torch.get("import_s") or 0) > SLOW_IMPORT_S:
        message += ": that is slow, and every point pays it"
        return warning("torch", message, "put the environment on a faster disk")
    return fine("torch", message)


def _lacking(wanted: NodeRequest) -> Callable[[str, str, str], Finding]:
    """Return the status of a missing thing that only some sweeps need."""
    return missing if wanted.given else warning


def cuda(facts: Facts, wanted: NodeRequest) -> Finding | None:
    """Return whether torch can use a GPU, if the sweep asks for one."""
    torch = facts.python.get("torch") or {}
    if wanted.device != "cuda" or not torch.get("built_for"):
        return None
    if torch.get("works"):
        devices, memory = torch.get("devices") or 0, format_bytes_gib(torch.get("total_bytes") or 0)
        message = f"{devices} x {torch.get('name')}, {memory}"
        if devices < wanted.gpus:
            return warning(
                "CUDA", f"{message}; requested: {wanted.gpus}", "change requests.gpus in the site file"
            )
        return fine("CUDA", message)
    if not wanted.on_node:
        return unknown("CUDA", f"not on this machine: {torch.get('why')}", ON_NODE)
    hint = "does the site file's requests.gpus ask for a GPU, and the queue have one? See nvidia-smi in a job"
    return _lacking(wanted)("CUDA", str(torch.get("why")), f"{hint}; {ON_CPU}")


def nvml(facts: Facts, wanted: NodeRequest) -> Finding | None:
    """Return whether the driver reports memory by process, utilisation and power of the GPUs."""
    if wanted.device != "cuda" or not facts.python:
        return None
    gpus = facts.python.get("gpus")
    if not gpus and not wanted.on_node:
        return unknown("NVML", "no NVIDIA driver here", ON_NODE)
    if not gpus:
        message = "the driver's library does not answer: then only torch reports memory"
        return warning("NVML", message, "ask the cluster's support about libnvidia-ml.so on the nodes")
    message = f"driver {gpus[0].get('driver')}, {', '.join(str(gpu.get('name')) for gpu in gpus)}"
    if busy := [gpu for gpu in gpus if gpu.get("processes")]:
        message += f"; other processes compute on {len(busy)} of them: figures would be theirs too"
        hint = "ask for a GPU of your own, if the site has a way (resources.options)"
        return warning("NVML", message, hint)
    return fine("NVML", message)


def accounting_mode(facts: Facts, wanted: NodeRequest) -> Finding | None:
    """Return whether the driver keeps the peak of a process that was killed."""
    modes = [gpu.get("accounting") for gpu in facts.python.get("gpus") or ()]
    if wanted.device != "cuda" or not modes:
        return None
    message = "off: fine, jobkit samples memory itself; on, a peak between two samples would be kept too"
    message += " (an administrator's nvidia-smi -am 1)"
    if all(modes):
        message = "on: the driver keeps the peak of a process that was killed"
    elif all(mode is None for mode in modes):
        message = "these GPUs have none (MIG has not); jobkit samples memory itself"
    return fine("GPU accounting", message)


PYTHON: tuple[Probe, ...] = (environment, packages, program, torch, cuda, nvml, accounting_mode)
