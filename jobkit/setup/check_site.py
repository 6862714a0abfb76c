"""From what a scheduler says of its site to findings, for one request. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from jobkit.core.units import format_count
from jobkit.schedulers.parsing import as_walltime, no_such
from jobkit.schedulers.survey import (
    Consumable,
    Queue,
    RequestedQueues,
    Survey,
    asked_for,
    gpu_fault,
    node_fault,
    unknown_fault,
    walltime_fault,
)
from jobkit.schedulers.types import Request
from jobkit.setup.findings import Finding, fine, missing, unknown, warning
from jobkit.spec.site import Requests

SUPPORT = "ask the cluster's support"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRequest:
    """What is held against what a scheduler says.

    Attributes
    ----------
    request
        What one point asks for.
    requests, memory_per
        How the site file spells that.
    queue_key
        The key, and the file, that names the queue.
    limit
        The largest task index of an array, ``None`` where the controller does not say.
    points
        How many points there are; 0 where no sweep is at hand.
    """

    request: Request
    requests: Requests
    memory_per: str = "job"
    queue_key: str = "`queue` in the site file"
    limit: int | None = None
    points: int = 0


Probe = Callable[[Survey, SiteRequest], Finding | None]


def controller(survey: Survey) -> Finding:
    """Return whether the scheduler answers: without it there is nothing else to find out."""
    named = f"{survey.product} {survey.version}".strip()
    if survey.trouble:
        said = f"{named} does not answer: {' '.join(survey.trouble.split())}"
        return missing(
            "scheduler", said, f"is this a login node? If it is, {SUPPORT} whether the scheduler is up"
        )
    cluster = f", cluster {survey.cluster}" if survey.cluster else ""
    return fine("scheduler", f"{named} answers{cluster}")


def queue(survey: Survey, asking: SiteRequest) -> Finding:
    """Return whether the queue is there, open, and for this user."""
    noun = survey.queue_noun
    if survey.queues is None:
        return _untold(noun, survey, "nodes", "queues")
    asked = asked_for(asking.request.queue, survey.queues, noun)
    if fault := unknown_fault(asked, survey.queues, noun):
        return missing(noun, fault.said, f"change {asking.queue_key}")
    if not asked.queues:
        return missing(noun, f"the cluster has no {noun}", SUPPORT)
    closed = [one for one in asked.queues if one.closed]
    if len(closed) == len(asked.queues):
        said = "; ".join(f"{noun} {one.name!r} takes no jobs of yours: {one.closed}" for one in closed)
        return missing(
            noun, said, f"name another: change {asking.queue_key} (jobs go to: {_open(survey.queues)})"
        )
    said = "; ".join(_described(one) for one in asked.queues if not one.closed)
    kept = [one for one in asked.queues if one.only]
    if len(kept) == len(asked.queues):
        return warning(
            noun, f"{said}; only for {kept[0].only}", f"if you are not among them, change {asking.queue_key}"
        )
    return fine(noun, said)


def _untold(name: str, survey: Survey, *questions: str) -> Finding:
    """Return that the scheduler did not answer a question."""
    said = next((survey.silent[question] for question in questions if question in survey.silent), "")
    return unknown(name, f"{survey.product} did not say{': ' if said else ''}{' '.join(said.split())}")


def _open(queues: Iterable[Queue]) -> str:
    return ", ".join(one.name for one in queues if not one.closed) or "none"


def _described(one: Queue) -> str:
    nodes = f"{one.nodes} node{'s' * (one.nodes != 1)}, " if one.nodes else ""
    longest = (
        "no limit on walltime" if one.walltime_s is None else f"at most {as_walltime(one.walltime_s)} a job"
    )
    return f"{one.name}: {nodes}{longest}"


def gpus(survey: Survey, asking: SiteRequest) -> Finding | None:
    """Return whether the queue has the GPUs that are asked for, by the names of the site."""
    if survey.queues is None:
        return None
    asked = asked_for(asking.request.queue, survey.queues, survey.queue_noun)
    if asked.unknown:
        return None
    if not asking.request.gpus:
        return fine("GPUs", "none is asked for")
    if survey.resources is not None:
        return _gpus_by_resource(survey, asking, asked)
    if fault := gpu_fault(asking.request, asked):
        return missing("GPUs", fault.said, f"change {fault.key}")
    return fine("GPUs", f"{asked.where}: {'; '.join(_kinds(one) for one in asked.queues if one.gpus)}")


def _kinds(one: Queue) -> str:
    return ", ".join(f"{count} x {kind or 'GPU'}" for kind, count in one.gpus.items()) + " on a node"


def _gpus_by_resource(survey: Survey, asking: SiteRequest, asked: RequestedQueues) -> Finding | None:
    """Return whether a queue has the resource by which the site file asks for GPUs."""
    known = {resource.name: resource for resource in survey.resources or ()} | {
        resource.shortcut: resource for resource in survey.resources or ()
    }
    named = asking.requests.gpus or ""
    one = next(
        (known[name] for name in asking.request.resources if name in known and f"{name}=" in named), None
    )
    if one is None or not any(other.most for other in known.values()):
        return None  # the names are told of below; where no host tells what it has, there is nothing to say
    here = [queue.name for queue in asked.queues if queue.name in one.most]
    if not here:
        elsewhere = ", ".join(one.most) or "none"
        said = f"{asked.where} has no {one.name!r}; those that have: {elsewhere}"
        return missing("GPUs", said, f"change {asking.queue_key}, or requests.gpus in the site file")
    free = int(max(one.most[name] for name in here))
    if not free:
        return warning(
            "GPUs", f"no {one.name!r} is left in {asked.where} now, or none is there", "qstat -F shows"
        )
    if one.counted is Consumable.SLOT and asking.request.cpus > 1 and "-pe " in (asking.requests.cpus or ""):
        took = asking.request.gpus * asking.request.cpus
        said = (
            f"{one.name!r} is counted for each slot: {format_count(asking.request.cpus, 'CPU')} and "
            f"{format_count(asking.request.gpus, 'GPU')} would take {format_count(took, 'GPU')}"
        )
        return warning("GPUs", said, "set resources.cpus: 1 in the spec")
    return fine("GPUs", f"{asked.where}: {one.name!r}, {free} on a node now")


def names(survey: Survey, asking: SiteRequest) -> Finding | None:
    """Return whether the cluster has the resources by which the site file asks."""
    if survey.resources is None or not asking.request.resources:
        return None
    known = {word for resource in survey.resources for word in (resource.name, resource.shortcut)}
    strange = [name for name in dict.fromkeys(asking.request.resources) if name not in known]
    if not strange:
        return fine("resources", f"{', '.join(dict.fromkeys(asking.request.resources))} are known here")
    said = "\n".join(no_such("resource", name, known, "").said for name in strange)
    return missing("resources", said, "change `requests` in the site file, or resources.options")


def memory(survey: Survey, asking: SiteRequest) -> Finding | None:
    """Return whether the site file and the cluster agree on what memory is counted for."""
    named = asking.requests.memory or ""
    one = next((resource for resource in survey.resources or () if f"{resource.name}=" in named), None)
    if one is None or one.counted is Consumable.NOT or one.counted == asking.memory_per:
        return None
    said = (
        f"{one.name!r} is counted for each {one.counted}; the site file has memory_per: {asking.memory_per}"
    )
    return warning("memory", said, f"set memory_per: {one.counted} in the site file")


def nodes(survey: Survey, asking: SiteRequest) -> Finding | None:
    """Return whether some node of the queue has the CPUs and the memory that are asked for.

    On Grid Engine it is a warning: memory may be a limit, not room on the host, and a job may have
    slots of several queues there.
    """
    asked = asked_for(asking.request.queue, survey.queues or (), survey.queue_noun)
    request = asking.request
    if survey.resources is not None:
        request = replace(request, cpus=request.slots, gpus=0)
    fault = None if asked.unknown else node_fault(request, asked)
    if fault is None:
        return None
    report = missing if survey.resources is None else warning
    return report("nodes", fault.said, f"change {fault.key}")


def walltime(survey: Survey, asking: SiteRequest) -> Finding | None:
    """Return whether a queue allows the walltime."""
    if survey.queues is None:
        return None
    asked = asked_for(asking.request.queue, survey.queues, survey.queue_noun)
    if asked.unknown:
        return None
    if fault := walltime_fault(asking.request, asked, survey.walltime_noun):
        return missing("walltime", fault.said, f"change {fault.key}")
    return fine("walltime", f"{as_walltime(asking.request.walltime_s)} is asked for")


def arrays(survey: Survey, asking: SiteRequest) -> Finding | None:
    """Return whether the controller takes array jobs, and how large ones."""
    if not survey.limits:
        return _untold("array jobs", survey, "config", "controller")
    if asking.limit is None:
        return fine("array jobs", "the controller names no limit")
    if asking.limit == 0:
        return missing(
            "array jobs", "the controller takes none: its limit is 0", f"{SUPPORT} about array jobs"
        )
    said = f"at most {format_count(asking.limit, 'task')} in one"
    if asking.points > asking.limit:
        said += f"; {asking.points:,} points become {-(-asking.points // asking.limit)} of them"
    return fine("array jobs", said)


def account(survey: Survey, asking: SiteRequest) -> Finding | None:
    """Return whether jobs can be charged to somebody, where they must be."""
    named, known = asking.request.account, survey.accounts
    if named and known and named not in known:
        fault = no_such("account of yours", named, known, "resources.account in the spec")
        return missing("account", fault.said, f"change {fault.key}")
    if survey.must_charge and not named and not survey.account:
        if known:
            said = f"every job must name an account or project (there are: {', '.join(known)})"
            return missing("account", said, f"set resources.account: {known[0]} in the spec")
        return missing("account", "every job must name an account or project, and you have none", SUPPORT)
    if named or survey.account:
        others = [one for one in known or () if one != (named or survey.account)]
        also = f"; you may also use {', '.join(others)}" if others else ""
        return fine("account", f"jobs are charged to {named or survey.account}{also}")
    return None


def accounting(survey: Survey, asking: SiteRequest) -> Finding | None:
    """Return whether the scheduler keeps account of jobs that have ended."""
    del asking
    if survey.keeping.works:
        return fine("accounting", survey.keeping.said)
    if survey.keeping.works is None:
        return unknown("accounting", survey.keeping.said)
    said = f"{survey.keeping.said}; sweeps work, but of a point that was killed nobody will know why"
    return warning("accounting", said, f"{SUPPORT} about accounting")


SITE: tuple[Probe, ...] = (queue, gpus, nodes, names, memory, walltime, arrays, account, accounting)
"""In the order that a newcomer reads: what all else needs comes first."""


def check_site(survey: Survey, asking: SiteRequest) -> list[Finding]:
    """Return what there is to say of a scheduler that answers."""
    return [found for probe in SITE if (found := probe(survey, asking)) is not None]
