"""The site file and the spec that `jobkit init` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from jobkit.core.units import format_bytes_gib, format_count, format_size, format_walltime
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.survey import Consumable, Queue, Resource, Survey, gpu_counts
from jobkit.setup.init_choice import Choice
from jobkit.spec.site import Site

COMMENT_COLUMN, WIDTH = 44, 110
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
WORD = re.compile(r"[A-Za-z0-9_@*][A-Za-z0-9_@*?.,:;+=%!/-]*")
"""As `jobkit.spec.site.Site.name` and `jobkit.spec.fields.Word` have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The files to write.

    Attributes
    ----------
    scheduler, why
        The scheduler to ask, and the reason for it.
    site_file
        The path of the site file, written or not; ``None`` without a scheduler, since this machine
        needs none.
    spec_file
        The path of the spec; ``None`` if only the site file is written.
    own
        Whether ``site: auto`` finds the site file.
    write_site
        Whether the site file is written.
    date
        The date of today.
    """

    scheduler: Scheduler
    why: str
    site_file: Path | None
    spec_file: Path | None
    own: bool
    write_site: bool
    date: str

    @property
    def site(self) -> str:
        """The name of the site in a spec: ``auto``, or the path of its file."""
        return "auto" if self.own else str(self.site_file)


def line(text: str, comment: str = "") -> str:
    """Return a line of YAML with a comment, above it if the line would be too wide."""
    if not comment:
        return text
    one_line = f"{text:<{COMMENT_COLUMN}}# {plain(comment)}"
    if len(one_line) <= WIDTH:
        return one_line
    indent = text[: len(text) - len(text.lstrip())]
    return f"{indent}# {plain(comment)}\n{text}"


def plain(text: str) -> str:
    """Return a text that is valid in a YAML comment."""
    return "".join(char if char.isprintable() else " " for char in text)


def scalar(text: str) -> str:
    """Return a text as YAML: bare if YAML reads it as text, else in double quotes."""
    bare = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", text)
    reserved = text.lower() in {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
    return text if bare and not reserved else f'"{"".join(map(_escaped, text))}"'


def _escaped(char: str) -> str:
    if char in {'"', "\\"}:
        return f"\\{char}"
    return char if char.isprintable() else f"\\U{ord(char):08x}"


def word(queue: Queue | None) -> str:
    """Return the name of a queue as YAML, ``null`` if there is none or a spec cannot name it."""
    return scalar(queue.name) if queue is not None and WORD.fullmatch(queue.name) else "null"


COUNTED = {
    Consumable.NOT: "not counted",
    Consumable.SLOT: "counted for each slot",
    Consumable.JOB: "counted for each job",
}


def _per(*resources: Resource) -> str:
    """Return what the scheduler counts a resource for: ``slot`` or ``job``."""
    return "slot" if any(resource.counted is Consumable.SLOT for resource in resources) else "job"


def site_text(survey: Survey, choice: Choice, usual: Site, plan: Plan) -> str:
    """Return the site file.

    Parameters
    ----------
    usual
        The shipped default of this scheduler, whose spellings are kept.
    """
    product = plain(f"{survey.product} {survey.version}".strip())
    per = _per(*survey.memory[:1])
    gpus_per = _per(*filter(None, [survey.gpus]))
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
        *([line(f"gpus_per: {gpus_per}", "what GPUs are counted for")] if gpus_per == "slot" else []),
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
    """Yield the queues of the cluster, as comments."""
    noun = survey.queue_noun
    if survey.queues is None:
        yield f"# {survey.product} did not say which {noun}s there are: name one here."
        return
    source = survey.sources.get("queues", survey.product)
    yield f"# {noun.capitalize()}s, as {source} list them (* the default):"
    width = max([len(queue.name) for queue in survey.queues], default=0) + 2
    for queue in survey.queues:
        name = f"{queue.name}{'*' * queue.default}"
        yield f"#   {plain(f'{name:<{width}}{_described(queue)}')}"


def _described(queue: Queue) -> str:
    if queue.closed:
        return f"({queue.closed})"
    parts = [f"{queue.nodes} node{'s' * (queue.nodes != 1)}"] if queue.nodes else []
    parts += [format_count(queue.cpus, "CPU")] if queue.cpus else []
    parts += [format_bytes_gib(queue.memory_bytes, 1)] if queue.memory_bytes else []
    parts += gpu_counts(queue.gpus)
    limit = queue.walltime_s
    parts += ["no limit on walltime" if limit is None else f"at most {format_walltime(limit)}"]
    return ", ".join([*parts, *([f"only for {queue.only}"] if queue.only else [])])


def _why(choice: Choice, survey: Survey) -> str:
    """Return why this queue is the one for GPUs."""
    noun, queue = survey.queue_noun, choice.queue
    if queue is None:
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


def _requests(survey: Survey, choice: Choice, usual: Site) -> Iterator[str]:
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
    """Return the requests for GPUs by their types in the queues; without GPUs they are ``null``."""
    kinds = dict.fromkeys(kind for queue in survey.queues or () for kind in queue.gpus)
    if survey.queues is not None and not kinds:
        return dict.fromkeys(("gpus", "gpu_type"), (None, "no node has GPUs"))
    named = [kind for kind in kinds if kind]
    note = f"there are: {', '.join(named)}" if named else "no types are reported"
    return {"gpu_type": (usual.requests.gpu_type, note)}


def _by_name(survey: Survey, choice: Choice) -> _Spelt:
    """Return the requests by the names that the site gave its resources and environments."""
    known, option = survey.resources or (), survey.resource_option
    source, gpus, memory = survey.sources.get("resources", ""), survey.gpus, survey.memory[:1]
    spelt: _Spelt = {}
    others = (resource.name for resource in known if resource is not gpus)
    alike = [name for name in others if re.search("gpu|cuda", name)]
    note = f"{source}: {COUNTED[gpus.counted]}" if gpus else f"{source} names nothing that counts GPUs"
    spelt["gpus"] = f"{option} {gpus.name}={{gpus}}" if gpus else None, _and_others(note, alike)

    environment = choice.environment
    every = dict.fromkeys(name for queue in survey.queues or () for name in queue.environments)
    note = "all slots on one node" if environment else "no environment has all slots on one node"
    note = f"{survey.sources.get('environments', '')}: {note}"
    spelling = f"{survey.environment_option} {environment} {{cpus}}" if environment else None
    spelt["cpus"] = spelling, _and_others(note, [name for name in every if name != environment])

    note = f"{source}: {COUNTED[memory[0].counted]}" if memory else f"{source} names no memory"
    note = _and_others(note, [resource.name for resource in survey.memory[1:]])
    spelt["memory"] = f"{option} {memory[0].name}={{memory}}" if memory else None, note

    alone = next((resource for resource in known if resource.exclusive and resource.most), None)
    note = "BOOL, EXCL" if alone else "no host has a resource with the relation EXCL"
    spelt["exclusive"] = f"{option} {alone.name}=true" if alone else None, f"{source}: {note}"
    return spelt


SPEC_NAME = "first.yaml"


def spec_text(survey: Survey, choice: Choice, plan: Plan, cpu_torch: str = "") -> str:
    """Return the spec to start from.

    Parameters
    ----------
    cpu_torch
        Why the Python of the jobs cannot use a GPU; empty if it can, or if that is unknown.
    """
    where = cluster_of(survey) if plan.site_file else "this machine"
    lines = [
        f"# A first sweep on {where}, written by jobkit init on {plan.date}. Every key: jobkit help spec",
        f"#   jobkit doctor {SPEC_NAME}              checks whether anything is missing",
        f"#   jobkit sweep {SPEC_NAME} --dry-run     prints what would be submitted",
        f"#   jobkit sweep {SPEC_NAME} --wait        runs it and prints the table",
        *_trial(choice, cpu_torch),
        "name: first",
        line("workload: stanza-ner", "or count: no model, no torch, done in seconds"),
        line("text: sample:300", "generated paragraphs; or your own: a path, UTF-8, blank lines between"),
        "model:",
        line("  name: en", "Stanza's English; to fetch it: jobkit models fetch en"),
        "sweep:",
        line("  batch_size: [5, 20, 60, 150]", "paragraphs a call"),
        line("repeats: 1", "3 or more for intervals; auto: until they are short"),
        line(f"scheduler: {plan.scheduler.NAME}", plan.why),
        line(f"site: {scalar(plan.site)}", str(plan.site_file or "")),
        "resources:",
        *_queue(choice, survey),
        line(f"  gpus: {choice.gpus}", "for one point" if choice.gpus else "none is known: it runs on CPUs"),
        *_gpu_type(choice),
        line(f"  cpus: {choice.cpus}", _told_cpus(choice, survey)),
        line(f"  memory: {format_size(choice.memory_bytes)}", _told_memory(choice)),
        line(f'  walltime: "{format_walltime(choice.walltime_s)}"', _told_walltime(choice, survey)),
        *_charged(choice, survey),
        line("max_parallel: 4", "tasks at a time: be a good neighbour"),
    ]
    return "\n".join(lines) + "\n"


def _trial(choice: Choice, cpu_torch: str) -> Iterator[str]:
    """Yield the command that tries the spec without the real model."""
    command, small = f"#   jobkit sweep {SPEC_NAME} --stand-in", "with a small model of jobkit's own"
    if choice.gpus and cpu_torch:
        yield f"{command} --set device=cpu --set resources.gpus=0"
        yield f"#{' ' * 41}tries it {small}, on CPUs:"
        yield f"#{' ' * 41}its jobs would use this Python, {cpu_torch}"
    else:
        yield f"{command}    tries it {small}"


def _queue(choice: Choice, survey: Survey) -> Iterator[str]:
    if (name := word(choice.queue)) != "null":
        yield line(f"  queue: {name}", f"the site file lists all {survey.queue_noun}s")


def _gpu_type(choice: Choice) -> Iterator[str]:
    if choice.queue is None or choice.gpu_type is None:
        return
    others = [kind for kind in choice.queue.gpus if kind and kind != choice.gpu_type]
    if not others:  # a site without a header line for types can take the spec, too
        yield f"  # the only type of GPU there: {plain(choice.gpu_type)}"
        return
    note = f"there are also: {', '.join(others)}; points on different GPUs cannot be compared"
    yield line(f"  gpu_type: {scalar(choice.gpu_type)}", note)


def _told_cpus(choice: Choice, survey: Survey) -> str:
    gpus = survey.gpus
    if choice.gpus and gpus is not None and gpus.counted is Consumable.SLOT:
        return f"{gpus.name} is counted for each slot: 2 CPUs would take 2 GPUs"
    return f"a node has {choice.queue.cpus}" if choice.queue and choice.queue.cpus else ""


def _told_memory(choice: Choice) -> str:
    most = choice.queue.memory_bytes if choice.queue else None
    return f"a node has {format_bytes_gib(most, 1)}" if most else ""


def _told_walltime(choice: Choice, survey: Survey) -> str:
    if choice.queue is None or not choice.queue.name:
        return "for one point"
    longest = choice.queue.walltime_s
    limit = "no limit" if longest is None else f"at most {format_walltime(longest)}"
    return f"for one point; {choice.queue.name} has {limit} ({survey.walltime_noun})"


def _charged(choice: Choice, survey: Survey) -> Iterator[str]:
    if choice.account is not None and WORD.fullmatch(choice.account):
        others = [account for account in survey.accounts or () if account != choice.account]
        also = f"; there are also: {', '.join(others)}" if others else ""
        yield line(f"  account: {scalar(choice.account)}", f"every job must name one{also}")
