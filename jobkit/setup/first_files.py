"""What the first site file and the first spec say, by the scheduler's answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobkit.core.extras import missing_extra
from jobkit.core.frozen import keyed
from jobkit.core.units import GIB, format_bytes_gib, format_count, format_size, format_walltime
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.survey import (
    NOTHING_HOLDS,
    Consumable,
    Queue,
    Resource,
    Survey,
    gpu_counts,
)
from jobkit.spec.site import Requests, Site
from jobkit.worker.workloads.base import EXTRA_OF


@keyed
class InitResources:
    """The resources of a first sweep."""

    queue: Queue  # for work with a GPU; without a name if no known queue accepts jobs
    cpu_queue: Queue | None  # for work without one
    gpus: int  # `gpus`, `gpu_type`: for one point; the type if the scheduler reports types
    gpu_type: str | None
    environment: str | None  # the parallel environment for several CPUs on one node
    cpus: int  # `cpus`, `memory_bytes`, `walltime_s`: for one point
    memory_bytes: int
    walltime_s: int
    account: str | None  # if every job must name one


def choose(survey: Survey, queue: str | None = None) -> InitResources:
    """Return the resources of a first sweep.

    ``queue``: the name of a queue that the site file has already.
    """
    known = [queue for queue in survey.queues or () if not queue.closed]
    settled = next((candidate for candidate in known if candidate.name == queue), None)
    cpu_queue = _best_queue(known, gpus=False)
    chosen = settled or _best_queue(known, gpus=True) or cpu_queue
    environment = _environment(survey.one_node, chosen)
    chosen = chosen or Queue(name="")
    per_slot = chosen.gpus and survey.gpus is not None and survey.gpus.counted is Consumable.SLOT
    one_cpu = per_slot or (survey.resources is not None and environment is None)
    memory_bytes = 8 * GIB
    while memory_bytes > max(chosen.memory_bytes or memory_bytes, GIB):
        memory_bytes //= 2
    return InitResources(
        queue=chosen,
        cpu_queue=cpu_queue,
        gpus=int(bool(chosen.gpus)),
        # the most frequent on a node: points on different types cannot be compared
        gpu_type=max(filter(None, chosen.gpus), key=chosen.gpus.__getitem__, default=None),
        environment=environment,
        cpus=1 if one_cpu else min(2, chosen.cpus or 2),
        memory_bytes=memory_bytes,
        walltime_s=int(min(600, chosen.walltime_s or 600)),
        account=(survey.account or next(iter(survey.accounts or ()), None)) if survey.must_charge else None,
    )


def spelt(choice: InitResources, requests: Requests) -> InitResources:
    """Return a choice without all that a site has no header line for: a spec with it would be refused."""
    least: dict[str, Any] = {"queue": Queue(name=""), "gpus": 0, "gpu_type": None, "cpus": 1, "account": None}
    lacking = {name: value for name, value in least.items() if getattr(requests, name) is None}
    return replace(choice, **lacking)


def _best_queue(known: Sequence[Queue], *, gpus: bool) -> Queue | None:
    """Return the queue for work with or without a GPU.

    Open to all, the default, named after GPUs or not, with the most GPUs or with none.
    """

    def order(queue: Queue) -> tuple[bool, bool, bool, int]:
        number = max(queue.gpus.values(), default=0) * max(queue.nodes, 1)
        named = "gpu" in queue.name.lower()
        return bool(queue.whom), not queue.default, named is not gpus, -number if gpus else bool(number)

    return min((queue for queue in known if queue.gpus or not gpus), key=order, default=None)


def _environment(one_node: Sequence[str], queue: Queue | None) -> str | None:
    fit = [name for name in one_node if queue is None or name in queue.environments]
    plain = re.compile(r"smp|shm|thread|openmp|omp", re.IGNORECASE)
    return min(fit, key=lambda name: (not plain.search(name), len(name), name), default=None)


COMMENT_COLUMN, WIDTH = 44, 110
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
WORD = re.compile(r"[A-Za-z0-9_@*][A-Za-z0-9_@*?.,:;+=%!/-]*")
"""As ``name`` of `jobkit.spec.site.Site` and `jobkit.spec.fields.Word` have it."""


@keyed
class InitFiles:
    """The files to write."""

    scheduler: Scheduler  # `scheduler`, `why`: the scheduler to ask, and the reason for it
    why: str
    # the path of the site file, written or not; ``None`` without a scheduler, since this machine needs
    # none
    site_file: Path | None
    spec_file: Path | None  # the path of the spec; ``None`` if only the site file is written
    own: bool  # whether ``site: auto`` finds the site file
    write_site: bool  # whether the site file is written
    date: str  # the date of today

    @property
    def site(self) -> str:
        """The name of the site in a spec: ``auto``, or the path of its file."""
        return "auto" if self.own else str(self.site_file)


def line(text: str, comment: str) -> str:
    """Return a line of YAML with a comment, above it if the line would be too wide."""
    if not comment:
        return text
    one_line = f"{text:<{COMMENT_COLUMN}}# {plain(comment)}"
    indent = " " * (len(text) - len(text.lstrip()))
    return one_line if len(one_line) <= WIDTH else f"{indent}# {plain(comment)}\n{text}"


def plain(text: str) -> str:
    """Return a text that is valid in a YAML comment."""
    return "".join(char if char.isprintable() else " " for char in text)


def scalar(text: str) -> str:
    """Return a text as YAML: bare if YAML reads it as text, else in double quotes."""
    bare = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", text)
    reserved = text.lower() in {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
    if bare and not reserved:
        return text
    quoted = re.sub(r'["\\]', r"\\\g<0>", text)
    shown = (char if char.isprintable() else f"\\U{ord(char):08x}" for char in quoted)
    return f'"{"".join(shown)}"'


def word(queue: Queue | None) -> str:
    """Return the name of a queue as YAML, ``null`` if there is none or a spec cannot name it."""
    return scalar(queue.name) if queue is not None and WORD.fullmatch(queue.name) else "null"


def site_text(survey: Survey, choice: InitResources, usual: Site, plan: InitFiles) -> str:
    """Return the site file.

    ``usual``: the shipped default of this scheduler, whose spellings are kept.
    """
    product = plain(f"{survey.product} {survey.version}".strip())
    per = "job"
    if (first := next(iter(survey.memory), None)) and first.counted is not Consumable.JOB:
        per = "slot" if first.limit or first.counted is Consumable.SLOT else "job"  # queue_conf(5), h_vmem
    gpus_per_slot = survey.gpus is not None and survey.gpus.counted is Consumable.SLOT
    lines = [
        f"# The names that {cluster_of(survey)} uses. Written by jobkit init on {plan.date} from the",
        f"# answers of {product}; yours to change: `jobkit doctor` compares it with the cluster.",
        f"# `site: {plan.site}` in a spec means this file. Every key: jobkit help templates-and-sites",
        f"name: {scalar(site_name(survey))}",
        line(f"scheduler: {plan.scheduler.NAME}", plan.why),
        f"about: {scalar(f'{product}, {cluster_of(survey)}')}",
        "",
        *_table(survey),
        line(f"queue: {word(choice.queue)}", _why(choice, survey)),
        line(f"cpu_queue: {word(choice.cpu_queue)}", "for work without a GPU"),
        "",
        "requests:",
        *_requests(survey, choice, usual),
        line(f"memory_per: {per}", "what memory is counted for"),
        *([line("gpus_per: slot", "what GPUs are counted for")] if gpus_per_slot else []),
        *([f"options: {json.dumps(usual.options)}"] if usual.options else []),
        "",
        "# If a node's own disk is not at $SLURM_TMPDIR, $TMPDIR or /tmp:",
        '# scratch: "/scratch/$USER"',
        "# If `module` or `conda` is defined by a profile that jobs do not read:",
        '# setup: ["source /etc/profile"]',
    ]
    return "\n".join(lines) + "\n"


def site_name(survey: Survey) -> str:
    """Return the cluster's name if it is valid for a site, else the scheduler's."""
    if NAME.fullmatch(survey.cluster):
        return survey.cluster
    return re.sub(r"[^a-z0-9]+", "-", survey.product.lower()).strip("-") or "site"


def cluster_of(survey: Survey) -> str:
    """Return the cluster for a person."""
    return f"cluster {survey.cluster}" if NAME.fullmatch(survey.cluster) else "this cluster"


def _table(survey: Survey) -> Iterator[str]:
    noun = survey.queue_noun
    if survey.queues is None:
        yield f"# {survey.product} did not list its {noun}s: name one here."
        return
    source = survey.sources.get("queues", survey.product)
    yield f"# {noun.capitalize()}s, as {source} list them (* the default):"
    width = max([len(queue.name) for queue in survey.queues], default=0) + 2
    for queue in survey.queues:
        parts = [f"{queue.nodes} node{'s' * (queue.nodes != 1)}"] if queue.nodes else []
        parts += [format_count(queue.cpus, "CPU")] if queue.cpus else []
        parts += [format_bytes_gib(queue.memory_bytes, 1)] if queue.memory_bytes else []
        parts += gpu_counts(queue.gpus)
        limit = queue.walltime_s
        parts += ["no limit on walltime" if limit is None else f"at most {format_walltime(limit)}"]
        parts += [f"only for {queue.whom}"] if queue.whom else []
        described = f"({queue.closed})" if queue.closed else ", ".join(parts)
        name = f"{queue.name}{'*' * queue.default}"
        yield f"#   {plain(f'{name:<{width}}{described}')}"


def _why(choice: InitResources, survey: Survey) -> str:
    noun, queue = survey.queue_noun, choice.queue
    if not queue.name:
        return f"the scheduler's default: no {noun} is known that takes your jobs"
    if not queue.gpus:
        return f"no {noun} that takes your jobs has GPUs"
    usable = (other for other in survey.queues or () if other.gpus and not other.closed)
    others = [other.name for other in usable if other is not queue]
    return _and_others(f"{'the default, and ' if queue.default else ''}it has GPUs", others, "so have")


def _and_others(message: str, others: Iterable[str], words: str = "there are also") -> str:
    listed = ", ".join(others)
    return f"{message}; {words}: {listed}" if listed else message


_Spelt = dict[str, tuple[str | None, str]]
"""How the site spells requests, each with a note."""


def _requests(survey: Survey, choice: InitResources, usual: Site) -> Iterator[str]:
    """Yield how the site spells each request: ``null``, with the reason, if it cannot."""
    spelt: _Spelt = {name: (spelling, "") for name, spelling in usual.requests.model_dump().items()}
    spelt |= _by_type(survey, usual) if survey.resources is None else _by_name(survey, choice)
    if survey.accounts:
        default = f"jobs are charged to {survey.account} by default; " if survey.account else ""
        spelt["account"] = spelt["account"][0], f"{default}yours: {', '.join(survey.accounts)}"
    for name, (spelling, note) in spelt.items():
        if spelling is not None or note:
            text = "null" if spelling is None else json.dumps(spelling, ensure_ascii=False)
            yield line(f"  {name}: {text}", note)


def _by_type(survey: Survey, usual: Site) -> _Spelt:
    kinds = dict.fromkeys(kind for queue in survey.queues or () for kind in queue.gpus)
    if survey.queues is not None and not kinds:
        return dict.fromkeys(("gpus", "gpu_type"), (None, "no node has GPUs"))
    named = [kind for kind in kinds if kind]
    note = f"there are: {', '.join(named)}" if named else "no types are reported"
    return {"gpu_type": (usual.requests.gpu_type, note)}


def _by_name(survey: Survey, choice: InitResources) -> _Spelt:
    known, option = survey.resources or (), survey.resource_option
    source, gpus, memory = survey.sources.get("resources", ""), survey.gpus, survey.memory[:1]
    spelt: _Spelt = {}
    others = (resource.name for resource in known if resource is not gpus)
    alike = [name for name in others if re.search("gpu|cuda", name)]
    note = f"{source}: {_counted(gpus)}" if gpus else f"{source} names nothing that counts GPUs"
    spelt["gpus"] = f"{option} {gpus.name}={{gpus}}" if gpus else None, _and_others(note, alike)

    environment = choice.environment
    every = dict.fromkeys(name for queue in survey.queues or () for name in queue.environments)
    note = "all slots on one node" if environment else "no environment has all slots on one node"
    note = f"{survey.sources.get('environments', '')}: {note}"
    spelling = f"{survey.environment_option} {environment} {{cpus}}" if environment else None
    spelt["cpus"] = spelling, _and_others(note, [name for name in every if name != environment])

    note = f"{source}: {_counted(memory[0])}" if memory else f"{source} names no memory"
    note += f"; {NOTHING_HOLDS}" if not memory or memory[0].holds_nothing else ""
    note = _and_others(note, [resource.name for resource in survey.memory[1:]])
    spelt["memory"] = f"{option} {memory[0].name}={{memory}}" if memory else None, note

    alone = next((resource for resource in known if resource.exclusive and resource.most), None)
    note = "BOOL, EXCL" if alone else "no host has a resource with the relation EXCL"
    spelt["exclusive"] = f"{option} {alone.name}=true" if alone else None, f"{source}: {note}"
    return spelt


def _counted(resource: Resource) -> str:
    return "not counted" if resource.counted is Consumable.NOT else f"counted for each {resource.counted}"


SPEC_NAME = "first.yaml"


def workload_note() -> str:
    """Return what to know of the workload of the first spec: what installs it, and what there is instead."""
    if not (lack := missing_extra("", "stanza")):
        return "or count: no model, no torch, done in seconds"
    others = [name for name, extra in EXTRA_OF.items() if not missing_extra("", extra)]
    return f"not installed here: {lack.hint}; installed: {', '.join(['count', *others])}"


def spec_text(
    survey: Survey, choice: InitResources, plan: InitFiles, cpu_torch: str = "", workload: str = ""
) -> str:
    """Return the spec to start from.

    ``cpu_torch``: why the Python of the jobs cannot use a GPU; empty if it can, or if that is unknown.
    ``workload``: what `workload_note` returns.
    """
    where = cluster_of(survey) if plan.site_file else "this machine"
    command, does = f"#   jobkit sweep {SPEC_NAME} --stand-in", "tries it with a small model of jobkit's own"
    trial = [f"{command}    {does}"]
    if choice.gpus and cpu_torch:
        more = (f"{does}, on CPUs:", f"its jobs would use this Python, {cpu_torch}")
        trial = [
            f"{command} --set device=cpu --set resources.gpus=0",
            *(f"#{' ' * 41}{text}" for text in more),
        ]
    lines = [
        f"# A first sweep on {where}, written by jobkit init on {plan.date}. Every key: jobkit help spec",
        f"#   jobkit doctor {SPEC_NAME}              checks whether anything is missing",
        f"#   jobkit sweep {SPEC_NAME} --dry-run     prints what would be submitted",
        f"#   jobkit sweep {SPEC_NAME} --wait        runs it and prints the table",
        *trial,
        "name: first",
        line("workload: stanza-ner", workload),
        line("text: sample:300", "generated paragraphs; or your own: a path, UTF-8, blank lines between"),
        "model:",
        line("  name: en", "Stanza's English; to fetch it: jobkit models fetch en"),
        line("trim: true", "an entity begins and ends with no blank"),
        "sweep:",
        line("  batch_size: [5, 20, 60, 150]", "paragraphs a call"),
        line("repeats: 1", "3 or more for intervals; auto: until they are short"),
        line(f"scheduler: {plan.scheduler.NAME}", plan.why),
        line(f"site: {scalar(plan.site)}", str(plan.site_file or "")),
        "resources:",
        *_resources(choice, survey),
        line("max_parallel: 4", "tasks at a time: be a good neighbour"),
    ]
    return "\n".join(lines) + "\n"


def _resources(choice: InitResources, survey: Survey) -> Iterator[str]:
    queue, counter = choice.queue, survey.gpus
    if (name := word(queue)) != "null":
        yield line(f"  queue: {name}", f"the site file lists all {survey.queue_noun}s")
    yield line(
        f"  gpus: {choice.gpus}", "for one point" if choice.gpus else "no GPU is known: points run on CPUs"
    )
    if queue.name and choice.gpu_type:
        others = [kind for kind in queue.gpus if kind and kind != choice.gpu_type]
        note = f"there are also: {', '.join(others)}; points on different GPUs cannot be compared"
        named = line(f"  gpu_type: {scalar(choice.gpu_type)}", note)
        # a site without a header line for types can take a spec with a comment, too
        yield named if others else f"  # the only type of GPU there: {plain(choice.gpu_type)}"
    note = f"a node has {queue.cpus}" if queue.cpus else ""
    if choice.gpus and counter is not None and counter.counted is Consumable.SLOT:
        note = f"{counter.name} is counted for each slot: 2 CPUs would take 2 GPUs"
    yield line(f"  cpus: {choice.cpus}", note)
    most = queue.memory_bytes
    note = f"a node has {format_bytes_gib(most, 1)}" if most else ""
    yield line(f"  memory: {format_size(choice.memory_bytes)}", note)
    longest = queue.walltime_s
    limit = "no limit" if longest is None else f"at most {format_walltime(longest)}"
    note = f"; {queue.name} has {limit} ({survey.walltime_noun})" if queue.name else ""
    yield line(f'  walltime: "{format_walltime(choice.walltime_s)}"', f"for one point{note}")
    if choice.account is not None and WORD.fullmatch(choice.account):
        others = [account for account in survey.accounts or () if account != choice.account]
        yield line(f"  account: {scalar(choice.account)}", _and_others("every job must name one", others))
