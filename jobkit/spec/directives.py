"""What a spec asks for, as the header lines by which a site is asked. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from jobkit.core.errors import JobkitError
from jobkit.core.units import format_count, format_walltime
from jobkit.schedulers.registry import by_name
from jobkit.spec.site import Requests, Site
from jobkit.spec.sweep_spec import Resources

_INSTEAD = {
    "exclusive": "put requests.exclusive into the site file, on Grid Engine "
    '"-l NAME=true" with a resource of type BOOL and relation EXCL (qconf -sc) that hosts have. '
    "A site without one: max_parallel: 1 keeps the points apart, but other jobs may share the node",
}
"""What to do if a site has no spelling for a request, if a plain "leave it out" is too little."""


def directives(resources: Resources, site: Site) -> list[str]:
    """Return the header lines, less their prefix, by which this site is asked for resources.

    Raises
    ------
    JobkitError
        If something is asked for that the site file has no spelling for.
    """
    if not by_name(site.scheduler).DIRECTIVE:
        return []
    asked = _asked(resources, site)
    names = [name for name, value in asked.items() if value is not None]
    if "gpu_type" in names:
        names.remove("gpus")
    if resources.cpus == 1 and site.requests.cpus is None:
        names.remove("cpus")
    words = asked | {"exclude_bars": "|".join(resources.exclude)}
    lines = [_request(site, name, words) for name in names]
    return [*lines, *site.options, *resources.options.get(site.scheduler, [])]


def queue_of(resources: Resources, site: Site) -> str | None:
    """Return the queue for a job: the site may have one for work without a GPU."""
    spelled = site.requests.queue and not resources.gpus
    return resources.queue or (site.cpu_queue if spelled else None) or site.queue


def _asked(resources: Resources, site: Site) -> dict[str, object]:
    """Return what is asked for, by the names of the site's requests; ``None`` if nothing is."""
    asked: dict[str, object] = {name: getattr(resources, name) or None for name in Requests.model_fields}
    return asked | {
        "queue": queue_of(resources, site),
        "gpus": _gpus(resources, site) or None,
        "gpu_type": resources.gpu_type if resources.gpus else None,
        "memory": _memory(resources, site),
        "walltime": format_walltime(resources.walltime),
        "exclude": ",".join(resources.exclude) or None,
    }


def _request(site: Site, name: str, words: Mapping[str, object]) -> str:
    """Return the header line by which the site is asked for one thing."""
    spelling: str | None = getattr(site.requests, name)
    if spelling is None:
        raise JobkitError(
            f"resources.{name} is set, but site {site.name!r} has no header line for it",
            hint=_INSTEAD.get(name)
            or f"put requests.{name} into the site file, or leave resources.{name} out",
        )
    try:
        return spelling.format_map(words)
    except (LookupError, ValueError, AttributeError) as error:
        raise JobkitError(
            f"site {site.name!r}: requests.{name}: {spelling!r} cannot be filled in: {error}",
            hint=f"the words in braces are {', '.join(words)}; a brace itself is written twice",
        ) from error


def _gpus(resources: Resources, site: Site) -> int:
    """Return the number of GPUs to ask for: of the job, or of each of its slots."""
    if site.gpus_per == "job":
        return resources.gpus
    each, left = divmod(resources.gpus, resources.cpus)
    if left:
        cpus, gpus = format_count(resources.cpus, "CPU"), format_count(resources.gpus, "GPU")
        raise JobkitError(
            f"site {site.name!r} counts GPUs for each CPU, so a job of {cpus} cannot have {gpus}",
            hint="a point has resources.cpus CPUs for each worker: lower resources.cpus, workers or threads",
        )
    return each


def _memory(resources: Resources, site: Site) -> str:
    slots = resources.cpus if site.memory_per == "slot" else 1
    mebibytes = math.ceil(resources.memory / slots / 2**20)
    return f"{mebibytes // 1024}G" if mebibytes % 1024 == 0 else f"{mebibytes}M"
