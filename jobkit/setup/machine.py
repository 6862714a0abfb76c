"""Check this machine, the site of a scheduler, and a node with its Python."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from jobkit.core.errors import JobkitError, NotFoundError
from jobkit.core.extras import cuda_install_command
from jobkit.core.files import filesystem_type, likely_shared
from jobkit.core.frozen import keyed
from jobkit.core.paths import cache_dir
from jobkit.core.records import TextRef
from jobkit.core.terminal import shell_path, shell_quote
from jobkit.core.units import format_bytes_gib, format_count, format_walltime
from jobkit.planning.job_script import COPIER, PROGRAMS
from jobkit.planning.prepare import NAMING
from jobkit.planning.texts import SAMPLE, find_text
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.survey import (
    NOTHING_HOLDS,
    PRACTICE_ENV,
    PRACTICE_NEEDS,
    Consumable,
    RequestedQueues,
    Survey,
    asked_for,
    gpu_counts,
    no_such,
)
from jobkit.schedulers.types import JobRequest
from jobkit.setup.findings import STAND_IN, Facts, Finding, fine, missing, unknown, warning
from jobkit.spec.site import Site
from jobkit.spec.sweep_spec import SweepSpec
from jobkit.worker.command_line import SHELL, placeholders
from jobkit.worker.examine import interpreter

LITTLE_BYTES = 2**30
"""Results of a sweep take a few MiB a point, a model some hundred MiB."""
MOUNTS = Path("/proc/self/mountinfo")


def commands(scheduler: Scheduler, why: str) -> Finding:
    """Return whether the scheduler's commands are on PATH."""
    absent = [name for name in scheduler.COMMANDS if shutil.which(name) is None]
    if not absent:
        return fine("commands", f"{', '.join(scheduler.COMMANDS)} are on PATH" if scheduler.COMMANDS else why)
    hint = "log in to a node that submits jobs, or load the scheduler's module"
    hint += "; without a scheduler: --scheduler local"
    return missing("commands", f"not on PATH: {', '.join(absent)}", hint)


def folder_of(name: str, folder: Path, place: str, *, shared: bool, more: str = "") -> Finding:
    """Return whether a folder, such as the cache, can be written; if it is ``shared`` nodes must see it.

    ``place``: what names another place for it.
    """
    hint = f"name another place: {place}"
    there = folder
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        with tempfile.TemporaryFile(dir=there) as stream:
            stream.write(b"\0" * 4096)
            stream.flush()
        free = shutil.disk_usage(there).free
        kind = filesystem_type(str(there.resolve()), MOUNTS.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        return missing(name, f"nothing can be written in {there}: {error.strerror}", hint)
    message = f"{folder}: {format_bytes_gib(free, 0)} free"
    if free < LITTLE_BYTES:
        return warning(name, f"{folder}: only {format_bytes_gib(free)} free", f"make room, or {hint}")
    if shared and likely_shared(kind) is False:
        seen = "jobkit doctor --submit checks it; if they do not, "
        return warning(
            name, f"{message}, on {kind}: a disk of this machine, which nodes may not see", f"{seen}{hint}"
        )
    return fine(name, f"{message}{f', on {kind}' if kind else ''}{more}")


def named_text(spec: SweepSpec, base: Path) -> TextRef:
    number, seed = spec.text_sample, spec.text_seed
    return find_text(spec.text, base=base, cache=cache_dir(), write=False, number=number, seed=seed)


def text(spec: SweepSpec, base: Path) -> Finding:
    """Return whether the text of a spec is there."""
    try:
        text_file = named_text(spec, base)
    except JobkitError as error:
        return missing("text", error.message, error.hint)
    return fine("text", f"{text_file.name} ({text_file.size_bytes:,} bytes)")


def program_here(word: str, staged: Path | None) -> Finding | None:
    """Return whether the program of a command can be started, if it travels with the run."""
    if placeholders(word):
        return unknown("program", f"{word}: a knob decides it, so it is not looked for")
    if word == SHELL[0]:
        return fine("program", f"{word} reads the command; the programs that it names are not looked for")
    if staged is None:
        return None  # `jobkit.setup.machine.program` looks for it
    if not os.access(staged, os.X_OK):
        return missing("program", f"{staged} is not executable", f"chmod +x {shell_path(staged)}")
    needs = interpreter(staged)
    return fine("program", f"{word}: travels with the run{f', and needs {needs!a}' if needs else ''}")


def model(spec: SweepSpec, base: Path, sweep: str, *, stand_in: bool = False) -> Finding:
    """Return whether the model of a spec is on this machine, since a job never downloads.

    ``sweep``: the command that sweeps the spec; empty if none needs the model: then its absence is a warning.
    ``stand_in``: whether a person permits one.
    """
    from jobkit.planning import models, standin  # here, for a workload without a model

    workload, lacks = spec.workload_name, missing if sweep else warning
    name = models.real_name(workload, spec.model.name)
    hint = models.fetch_command(workload, name)
    try:
        found = models.find(workload, spec.model.model_dump(), base, cache_dir())
    except NotFoundError:
        if sweep and spec.model.name == standin.LANGUAGE:
            hint += f"; or, to try jobkit without it:\n{sweep} --stand-in"
        return lacks("model", f"{name} is not on this machine; a job never downloads", hint)
    except JobkitError as error:
        return lacks("model", error.message, error.hint)
    if not found.stand_in:
        return fine("model", f"{found.name} at {found.path}")
    built = "will be built by the sweep" if found.fingerprint == models.NOT_BUILT else "is"
    kind = f"{found.size} stand-in{f' ({found.caveat})' if found.architecture else ''}"
    message = f"{name} is not here; the {kind} {built} at {found.path}"
    if stand_in:
        return fine("model", message)
    # Unpermitted only a plain sweep takes it for a text of one's own.
    hint += "" if spec.model.size == "full" else ", then --set model.size=full"
    if spec.find_max and not SAMPLE.fullmatch(spec.text):
        return missing("model", f"{message}; find_max refuses it for a text of your own", hint)
    own = "tune and apply refuse it for a text of your own, unless you say --stand-in"
    return warning(STAND_IN, f"{message}; {own}", hint)


SUPPORT = "ask the cluster's support"


@keyed
class SiteRequest:
    """What is compared with the site."""

    request: JobRequest  # what one point asks for
    site: Site  # the site file, which spells that
    queue_key: str = "`queue` in the site file"  # the key, and the file, that names the queue
    limit: int | None = None  # the largest task index of an array, ``None`` if the controller has none
    points: int = 0  # how many points there are; 0 without a sweep

    def queues(self, survey: Survey) -> RequestedQueues:
        """Return the queues of the site that the request names."""
        return asked_for(self.request.queue, survey.queues or (), survey.queue_noun)


def controller(survey: Survey) -> Finding:
    """Return whether the scheduler answers: without it nothing else can be found out."""
    product = f"{survey.product} {survey.version}".strip()
    if survey.trouble:
        message = f"{product} does not answer: {' '.join(survey.trouble.split())}"
        hint = f"is this a login node? If it is, {SUPPORT} whether the scheduler is up"
        return missing("scheduler", message, f"{hint}; {PRACTICE_NEEDS}\n{PRACTICE_ENV}")
    cluster = f", cluster {survey.cluster}" if survey.cluster else ""
    return fine("scheduler", f"{product} answers{cluster}")


def queue(survey: Survey, asking: SiteRequest) -> Finding:
    """Return whether the queue exists, is open, and takes jobs of this user."""
    noun = survey.queue_noun
    if survey.queues is None:
        return _unanswered(noun, survey, "nodes", "queues")
    queues, hint = asking.queues(survey), f"change {asking.queue_key}"
    if queues.unknown:
        return missing(noun, queues.unknown.said, hint)
    if not queues.queues:
        return missing(noun, f"the cluster has no {noun}", SUPPORT)
    usable = [queue for queue in queues.queues if not queue.closed]
    if not usable:
        message = "; ".join(
            f"{noun} {queue.name!r} takes no jobs of yours: {queue.closed}" for queue in queues.queues
        )
        others = ", ".join(queue.name for queue in survey.queues if not queue.closed) or "none"
        return missing(noun, message, f"name another: {hint} (jobs go to: {others})")
    offers = []
    for queue in usable:
        number, limit = f"{format_count(queue.nodes, 'node')}, " if queue.nodes else "", queue.walltime_s
        longest = "no limit on walltime" if limit is None else f"at most {format_walltime(limit)} a job"
        offers.append(f"{queue.name}: {number}{longest}")
    message = "; ".join(offers)
    only = queues.queues[0].only if survey.associations else queues.queues[0].whom
    if only and all(queue.whom for queue in queues.queues):
        return warning(noun, f"{message}; only for {only}", f"if you are not among them, {hint}")
    return fine(noun, message)


def _unanswered(name: str, survey: Survey, *questions: str) -> Finding:
    message = next((survey.silent[question] for question in questions if question in survey.silent), "")
    return unknown(
        name, f"{survey.product} gave no answer{': ' if message else ''}{' '.join(message.split())}"
    )


def gpus(survey: Survey, asking: SiteRequest) -> Finding | None:
    """Return whether the queue has the GPUs that are requested, by the names of the site."""
    queues = asking.queues(survey)
    if survey.queues is None or queues.unknown:
        return None
    if not asking.request.gpus:
        return fine("GPUs", "the spec requests none")
    if survey.resources is not None:
        return _gpus_by_resource(survey, asking, queues)
    if fault := queues.gpu_fault(asking.request):
        return missing("GPUs", fault.said, f"change {fault.key}")
    offers = (", ".join(gpu_counts(queue.gpus)) for queue in queues.queues if queue.gpus)
    return fine("GPUs", f"{queues.where}: {'; '.join(f'{offer} on a node' for offer in offers)}")


def _gpus_by_resource(survey: Survey, asking: SiteRequest, queues: RequestedQueues) -> Finding | None:
    """Return whether a queue has the resource by which the site file asks for GPUs."""
    resources, request = survey.resources or (), asking.request
    known = {name: resource for resource in resources for name in (resource.name, resource.shortcut)}
    spelling = asking.site.requests.gpus or ""
    named = (known[name] for name in request.resources if name in known and f"{name}=" in spelling)
    gpu = next(named, None)
    if gpu is None or not any(resource.most for resource in known.values()):
        return None  # `names` reports unknown names; nothing to compare if no host reports any
    here = [queue.name for queue in queues.queues if queue.name in gpu.most]
    if not here:
        message = f"{queues.where} has no {gpu.name!r}; those that have: {', '.join(gpu.most) or 'none'}"
        return missing("GPUs", message, f"change {asking.queue_key}, or requests.gpus in the site file")
    free = int(max(gpu.most[name] for name in here))
    if not free:
        message = f"no {gpu.name!r} is left in {queues.where} now, or none is there"
        return warning("GPUs", message, f"see {survey.sources['queues']}")
    if gpu.counted is Consumable.SLOT and request.slots > 1 and asking.site.gpus_per == "job":
        cpus, gpus = format_count(request.cpus, "CPU"), format_count(request.gpus, "GPU")
        took = format_count(request.gpus * request.cpus, "GPU")
        message = f"{gpu.name!r} is counted for each slot: {cpus} and {gpus} would take {took}"
        return warning(
            "GPUs", message, "set gpus_per: slot in the site file, and resources.cpus: 1 in the spec"
        )
    return fine("GPUs", f"{queues.where}: {gpu.name!r}, {free} on a node now")


def names(survey: Survey, asking: SiteRequest) -> Finding | None:
    """Return whether the cluster has the resources by which the site file asks."""
    requested = dict.fromkeys(asking.request.resources)
    if survey.resources is None or not requested:
        return None
    known = {name for resource in survey.resources for name in (resource.name, resource.shortcut)}
    unknown = [name for name in requested if name not in known]
    if not unknown:
        return fine("resources", f"{', '.join(requested)} are known here")
    message = "\n".join(no_such("resource", name, known, "").said for name in unknown)
    return missing("resources", message, "change `requests` in the site file, or resources.options")


def memory(survey: Survey, asking: SiteRequest) -> Finding | None:
    """Return whether the site file and the cluster agree on what memory is counted for."""
    spelling, per = asking.site.requests.memory or "", asking.site.memory_per
    named = (resource for resource in survey.resources or () if f"{resource.name}=" in spelling)
    resource = next(named, None)
    if survey.resources is not None and (resource.holds_nothing if resource else not spelling):
        better = next((each.name for each in survey.memory if not each.holds_nothing), "")
        hint = f"jobkit init would request {better!r}: see `requests` in the site file" if better else SUPPORT
        return warning("memory", f"{NOTHING_HOLDS}: jobs share what a node has, whatever they request", hint)
    if resource is None or resource.counted in {Consumable.NOT, per}:
        return None
    message = f"{resource.name!r} is counted for each {resource.counted}; the site file has memory_per: {per}"
    return warning("memory", message, f"set memory_per: {resource.counted} in the site file")


def nodes(survey: Survey, asking: SiteRequest) -> Finding | None:
    """Return whether a node of the queue is up, and one has the CPUs and the memory that are requested.

    If the scheduler counts slots it is a warning: memory may be a limit, not room on the host, and a
    job may have slots of several queues there.
    """
    queues, request, report = asking.queues(survey), asking.request, missing
    if queues.down:
        up = [one.name for one in survey.queues or () if not one.closed and not one.down]
        other = f"; or change {asking.queue_key} (nodes are up of: {', '.join(up)})" if up else ""
        return missing("nodes", queues.down, f"wait, or {SUPPORT} when they are back{other}")
    if survey.resources is not None:
        request, report = replace(request, cpus=request.slots, gpus=0), warning
    fault = None if queues.unknown else queues.node_fault(request)
    return report("nodes", fault.said, f"change {fault.key}") if fault else None


def walltime(survey: Survey, asking: SiteRequest) -> Finding | None:
    """Return whether a queue allows the walltime."""
    queues = asking.queues(survey)
    if survey.queues is None or queues.unknown:
        return None
    if fault := queues.walltime_fault(asking.request, survey.walltime_noun):
        return missing("walltime", fault.said, f"change {fault.key}")
    return fine("walltime", f"{format_walltime(asking.request.walltime_s)} is requested")


def arrays(survey: Survey, asking: SiteRequest) -> Finding | None:
    """Return whether the controller takes array jobs, and how large ones."""
    name, limit = "array jobs", asking.limit
    if not survey.limits:
        return _unanswered(name, survey, "config", "controller")
    if limit is None:
        return fine(name, "the controller names no limit")
    if limit == 0:
        return missing(name, "the controller takes none: its limit is 0", f"{SUPPORT} about array jobs")
    message = f"at most {format_count(limit, 'task')} in one"
    if asking.points > limit:
        message += f"; {asking.points:,} points become {-(-asking.points // limit)} of them"
    return fine(name, message)


def charges(survey: Survey, asking: SiteRequest) -> Iterator[Finding]:
    """Yield the account and the QOS without which no requested queue starts the job."""
    if survey.associations and asking.request.account in {None, *(survey.accounts or ())}:
        for fault in asking.queues(survey).charge_faults(asking.request, survey.associations):
            name, _, _ = fault.key.removeprefix("resources.").partition(":")
            yield missing(name, fault.said, f"change {fault.key}")


def account(survey: Survey, asking: SiteRequest) -> Finding | None:
    """Return whether there is an account for jobs, if they must name one."""
    named, known = asking.request.account, survey.accounts
    if named and known and named not in known:
        fault = no_such("account of yours", named, known, "resources.account in the spec")
        return missing("account", fault.said, f"change {fault.key}")
    if charged := named or survey.account:
        others = [name for name in known or () if name != charged]
        also = f"; you may also use {', '.join(others)}" if others else ""
        return fine("account", f"jobs are charged to {charged}{also}")
    if not survey.must_charge:
        return None
    if not known:
        return missing("account", "every job must name an account or project, and you have none", SUPPORT)
    message = f"every job must name an account or project (there are: {', '.join(known)})"
    return missing("account", message, f"set resources.account: {known[0]} in the spec")


def accounting(survey: Survey, asking: SiteRequest) -> Finding | None:
    """Return whether the scheduler keeps account of jobs that have ended."""
    del asking
    message, works = survey.keeping.said, survey.keeping.works
    if works is not False:
        return (fine if works else unknown)("accounting", message)
    message += "; sweeps work, but if a point is killed the reason is unknown"
    return warning("accounting", message, f"{SUPPORT} about accounting")


def check_site(survey: Survey, asking: SiteRequest) -> list[Finding]:
    """Return the findings about the site of a scheduler that answers."""
    # In the order that a newcomer reads: first what everything else needs
    site = (queue, gpus, nodes, names, memory, walltime, arrays, account, accounting)
    found = [finding for probe in site if (finding := probe(survey, asking)) is not None]
    return [*found, *charges(survey, asking)]


@keyed
class NodeRequest:
    """What the points of a sweep need on a machine."""

    device: str  # ``cpu`` or ``cuda``
    workload: str  # as a spec names it
    gpus: int  # how many one point asks for
    scratch_bytes: int  # room for its inputs
    seen: tuple[str, ...]  # files and folders that a point reads
    python: str  # what the job calls Python
    on_node: bool  # whether the machine is one that runs points
    jobkit: str  # the version that submits
    given: bool = True  # whether the user's spec asks for all this


NodeProbe = Callable[[Facts, NodeRequest], Finding | None]


def check_node(facts: Facts, wanted: NodeRequest, probes: Sequence[NodeProbe]) -> Iterator[Finding]:
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
        return missing("scratch", f"the job could make no folder in scratch ({tried})", key)
    message = f"{folder} has {format_bytes_gib(free)} free"
    if free < wanted.scratch_bytes:
        return missing("scratch", f"{message}; a point needs {format_bytes_gib(wanted.scratch_bytes)}", key)
    # users and tasks share the folder
    owner, mode = facts.said.get("scratch.owner", "0"), facts.said.get("scratch.mode", "")
    if owner not in {"0", facts.said.get("uid", owner)}:
        return missing("scratch", f"{folder} belongs to user {owner}, who can change the files in it", key)
    if mode[8:9] == "w" and mode[-1] not in "tT":
        message = f"{folder} ({mode}) has no sticky bit: other users can rename the files in it"
        return warning("scratch", message, f'{key}, for instance to "{folder}/$USER"')
    if facts.said.get("scratch.locks", "yes") != "yes":
        message = f"no file in {folder} can be locked: each task makes its own copy of the inputs"
        return warning("scratch", message)
    return fine("scratch", message)


def inputs(facts: Facts, wanted: NodeRequest) -> Finding | None:
    """Return whether the machine can read the inputs of a point."""
    if not wanted.seen:
        return None
    unseen = [path for n, path in enumerate(wanted.seen) if facts.said.get(f"seen.{n}") != "yes"]
    if not unseen:
        return fine("inputs", f"the job can read {', '.join(wanted.seen)}")
    return missing(
        "inputs",
        f"the job cannot read {', '.join(unseen)}",
        "put it where the nodes see it; for the cache of texts and models set JOBKIT_CACHE to such a folder",
    )


def cores(facts: Facts, wanted: NodeRequest) -> Finding | None:
    """Return how many CPUs a process may use on a node."""
    number = facts.python.get("cpus")
    return fine("CPUs", f"a process may use {number}") if wanted.on_node and number else None


MACHINE: tuple[NodeProbe, ...] = (programs, scratch, inputs, cores)


ON_NODE = "jobkit doctor --submit checks a node"
ON_CPU = "to work on the CPU, add --set device=cpu --set resources.gpus=0"


def environment(facts: Facts, wanted: NodeRequest) -> Finding:
    """Return whether the environment can be activated, and has a Python."""
    status, name = facts.number("activation"), "environment"
    if status is None:
        return unknown(name, "the check ended before this step")
    if status:
        message = (
            f"the environment could not be activated: {facts.message('activation') or f'status {status}'}"
        )
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
        message = "the import took too long: is its file system slow?"
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
    image = facts.said.get("container")
    where = f"in {image}" if image else "here"
    if found.get("path") and (not needs or found.get("interpreter_path")):
        python = f"; `python` in it is {found['python']}" if found.get("python") and name != "python" else ""
        return fine("program", f"{name} is {found['path']}{python}")
    hint = "load its module (environment.modules), write its path, or stage it (workload.files)"
    if image:
        hint = "add it when you build the image, or stage it (workload.files)"
    absent = name
    if needs and found.get("path"):
        absent, message = needs, f"{found['path']} needs {needs!a}, which is not {where}"
    elif found.get("is_file"):
        message, hint = f"{name} is not executable {where}", f"chmod +x {shell_quote(name)}"
    else:
        message = f"there is no {name!a} {where}" if "/" in name else f"{name} is not on PATH {where}"
    if absent.endswith("\r"):
        hint = "its lines end as on Windows: sed -i 's/\\r$//' FILE"
    return (missing if wanted.on_node else warning)("program", message, hint)


def torch(facts: Facts, wanted: NodeRequest) -> Finding | None:
    """Return whether torch can be imported, if the workload needs it."""
    torch = facts.python.get("torch")
    if torch is None:
        return None
    if torch.get("version") is None:
        lacking = missing if wanted.given else warning  # of a site alone no workload is known
        return lacking("torch", f"it cannot be imported: {torch.get('error')}", f"{facts.pip} torch")
    built = f"for CUDA {torch['built_for']}" if torch.get("built_for") else "a CPU build"
    message = f"torch {torch['version']}, {built}, imported in {torch.get('import_s')} s"
    for_cuda = "another build, for the CUDA that the driver supports (jobkit help dependencies):"
    if wanted.device == "cuda" and not torch.get("built_for"):
        asks = "the sweep asks for one" if wanted.given else "the cluster has some"
        message += f": it cannot use a GPU, and {asks}"
        install = cuda_install_command(facts.said.get("python", "python"))
        lacking = missing if wanted.given else warning
        return lacking("torch", message, f"{ON_CPU}; for the GPU {for_cuda}\n{install}")
    if (torch.get("import_s") or 0) > 30.0:
        message += ": that is slow, and every point pays it"
        return warning("torch", message, "put the environment on a faster disk")
    return fine("torch", message)


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
    return (missing if wanted.given else warning)("CUDA", str(torch.get("why")), f"{hint}; {ON_CPU}")


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
    if wanted.on_node and not facts.python.get("gpus_named", True) and len(gpus) > wanted.gpus:
        message += "; nothing names those of a job (CUDA_VISIBLE_DEVICES): tasks on a node share the first"
        return warning("NVML", message, NAMING)
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


PYTHON: tuple[NodeProbe, ...] = (environment, packages, program, torch, cuda, nvml, accounting_mode)
