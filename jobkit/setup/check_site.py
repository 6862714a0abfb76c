"""From a scheduler's description of its site to findings, for one request. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from jobkit.core.units import format_count, format_walltime
from jobkit.schedulers.survey import (
    PRACTICE_ENV,
    PRACTICE_NEEDS,
    Consumable,
    Queue,
    RequestedQueues,
    Survey,
    asked_for,
    gpu_counts,
    no_such,
)
from jobkit.schedulers.types import Request
from jobkit.setup.findings import Finding, fine, missing, unknown, warning
from jobkit.spec.site import Site

SUPPORT = "ask the cluster's support"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRequest:
    """What is compared with the site.

    Attributes
    ----------
    request
        What one point asks for.
    site
        The site file, which spells that.
    queue_key
        The key, and the file, that names the queue.
    limit
        The largest task index of an array, ``None`` if the controller has none.
    points
        How many points there are; 0 without a sweep.
    """

    request: Request
    site: Site
    queue_key: str = "`queue` in the site file"
    limit: int | None = None
    points: int = 0

    def queues(self, survey: Survey) -> RequestedQueues:
        """Return the queues of the site that the request names."""
        return asked_for(self.request.queue, survey.queues or (), survey.queue_noun)


Probe = Callable[[Survey, SiteRequest], Finding | None]


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
    message = "; ".join(_described(queue) for queue in usable)
    if all(queue.only for queue in queues.queues):
        only = queues.queues[0].only
        return warning(noun, f"{message}; only for {only}", f"if you are not among them, {hint}")
    return fine(noun, message)


def _unanswered(name: str, survey: Survey, *questions: str) -> Finding:
    """Return that the scheduler did not answer a question."""
    message = next((survey.silent[question] for question in questions if question in survey.silent), "")
    return unknown(name, f"{survey.product} did not say{': ' if message else ''}{' '.join(message.split())}")


def _described(queue: Queue) -> str:
    nodes, limit = f"{format_count(queue.nodes, 'node')}, " if queue.nodes else "", queue.walltime_s
    longest = "no limit on walltime" if limit is None else f"at most {format_walltime(limit)} a job"
    return f"{queue.name}: {nodes}{longest}"


def gpus(survey: Survey, asking: SiteRequest) -> Finding | None:
    """Return whether the queue has the GPUs that are requested, by the names of the site."""
    queues = asking.queues(survey)
    if survey.queues is None or queues.unknown:
        return None
    if not asking.request.gpus:
        return fine("GPUs", "none is requested")
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
    if (resource := next(named, None)) is None or resource.counted in {Consumable.NOT, per}:
        return None
    message = f"{resource.name!r} is counted for each {resource.counted}; the site file has memory_per: {per}"
    return warning("memory", message, f"set memory_per: {resource.counted} in the site file")


def nodes(survey: Survey, asking: SiteRequest) -> Finding | None:
    """Return whether some node of the queue has the CPUs and the memory that are requested.

    If the scheduler counts slots it is a warning: memory may be a limit, not room on the host, and a
    job may have slots of several queues there.
    """
    queues, request, report = asking.queues(survey), asking.request, missing
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
    message = survey.keeping.said
    if survey.keeping.works is not False:
        return (fine if survey.keeping.works else unknown)("accounting", message)
    message += "; sweeps work, but if a point is killed the reason is unknown"
    return warning("accounting", message, f"{SUPPORT} about accounting")


SITE: tuple[Probe, ...] = (queue, gpus, nodes, names, memory, walltime, arrays, account, accounting)
"""In the order that a newcomer reads: first what everything else needs."""


def check_site(survey: Survey, asking: SiteRequest) -> list[Finding]:
    """Return the findings about the site of a scheduler that answers."""
    return [finding for probe in SITE if (finding := probe(survey, asking)) is not None]
