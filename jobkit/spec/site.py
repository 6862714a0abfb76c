"""What this cluster calls its queue, its GPUs, its memory and its scratch, and the header lines with them."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import BaseModel, Field

from jobkit.core.errors import JobkitError
from jobkit.core.paths import config_folder, shipped_folder
from jobkit.core.terminal import SCHEDULER_WORDS, suggest
from jobkit.core.units import format_count, format_walltime
from jobkit.schedulers.registry import brought_folders, by_name, own_option
from jobkit.spec.fields import STRICT, Line, PositiveNumber, SchedulerName, Word
from jobkit.spec.policy import OnEnd
from jobkit.spec.yaml_files import read_document, sound, validated

if TYPE_CHECKING:
    from jobkit.spec.sweep_spec import Resources


class Requests(BaseModel):
    """How the site spells what a sweep asks for: one header line each, of one option or several.

    The words in braces are filled in; ``null`` means that the site has no such thing.
    ``{memory}`` is in the scheduler's units (``8G``, ``1500M``: powers of 1024). ``{exclude}``
    has commas between the nodes, ``{exclude_bars}`` the ``|`` of Grid Engine's patterns.
    """

    model_config = STRICT

    queue: Line | None = None
    gpus: Line | None = None
    gpu_type: Line | None = None
    cpus: Line | None = None
    memory: Line | None = None
    walltime: Line | None = None
    account: Line | None = None
    qos: Line | None = None
    mail: Line | None = None
    constraint: Line | None = None
    exclude: Line | None = None
    reservation: Line | None = None
    exclusive: Line | None = None


class Site(BaseModel):
    """A site file, whole.

    Attributes
    ----------
    scheduler
        The scheduler that the site runs.
    about
        One line for a person.
    queue
        The queue or partition that jobs go to unless the spec names another; ``null`` for the
        scheduler's default.
    account, qos
        Those of jobs whose spec names none; ``null`` for the scheduler's default.
    cpu_queue
        The one for work without a GPU, such as `jobkit models fetch --as-job`; ``null`` for ``queue``.
    requests
        See `Requests`. ``gpu_type`` replaces ``gpus`` where the spec names a type.
    memory_per
        Whether the scheduler counts memory for the job or for each slot (CPU).
    gpus_per
        Whether it counts GPUs for the job or for each slot.
    gpus
        Which GPUs of its node a job uses, on Grid Engine: ``choose`` for free ones that the worker chooses,
        ``given`` for those that the site names in CUDA_VISIBLE_DEVICES or a resource map.
    options
        Further header lines for every job.
    scratch
        A shell expression for the node's scratch folder, such as ``/disk/scratch/$USER``;
        ``null`` for ``$SLURM_TMPDIR``, ``$TMPDIR`` or ``/tmp``, the first that is set.
    setup
        Shell lines to run before the environment is activated.
    sync_interval_s
        How often results are brought home while the job runs.
    warning_s
        How long before the walltime the job asks to be warned: at most a quarter of a point's walltime.
    kill_wait_s
        How long the scheduler leaves a cancelled job before it kills it.
    runs_dir
        Where run folders go on this site; ``null`` for ``runs/`` here.
    group_can_read
        Whether the group of a run folder can read it; else only you can.
    max_gpu_hours
        The ceiling of a run where the spec names none, as in the spec.
    on_end
        Who is told of the end of a run where the spec says nothing, as in the spec.
    pack
        How many points share a job where the spec does not say: for sites that forbid many short jobs.
    on
        The host on which commands run, as `jobkit --on` names it: for a laptop, whose site file needs no
        other key.
    """

    model_config = STRICT

    MEANT: ClassVar = {
        word: key.replace("resources.", "requests.")
        for word, key in SCHEDULER_WORDS.items()
        if key.removeprefix("resources.") in Requests.model_fields
    }

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    scheduler: SchedulerName
    about: str = ""
    queue: Word | None = None
    cpu_queue: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    requests: Requests = Requests()
    memory_per: Literal["job", "slot"] = "job"
    gpus_per: Literal["job", "slot"] = "job"
    gpus: Literal["choose", "given"] | None = None
    options: list[Line] = []
    scratch: str | None = None
    setup: list[str] = []
    sync_interval_s: Annotated[int, Field(ge=1)] = 30
    warning_s: Annotated[int, Field(ge=0)] = 60
    kill_wait_s: Annotated[int, Field(ge=1)] = 30
    runs_dir: str | None = None
    group_can_read: bool = False
    max_gpu_hours: PositiveNumber | None = None
    on_end: OnEnd | None = None
    pack: Annotated[int, Field(ge=1)] = 1
    on: Word | None = None
    nodes_ask: bool = True
    pass_variables: list[Word] = []


def load_site(name: str, scheduler: str) -> Site:
    """Return the site that a spec names.

    Parameters
    ----------
    name
        ``auto`` (the user's own ``site.yaml`` if it is for this scheduler, else the shipped
        default of the scheduler), the name of a site file, or a path to one.
    scheduler
        The scheduler that will be used; the site must be one of its.

    Raises
    ------
    JobkitError
        If there is no such site, it has errors, or it is for another scheduler.
    """
    return find_site(name, scheduler)[0]


def find_site(name: str, scheduler: str) -> tuple[Site, Path]:
    """Return the site that a spec names, and its file, as `load_site`."""
    if name == "auto":
        own = own_site()
        laptop = own.is_file() and read_document(own).data.keys() == {"on"}  # its jobs run elsewhere
        if own.is_file() and not laptop and (site := _read(own)).scheduler == scheduler:
            return site, own
        name = f"{scheduler}-default"
    path = _find(name)
    site = _read(path)
    if site.scheduler != scheduler:
        raise JobkitError(
            f"site {name!r} is for {site.scheduler}, not for {scheduler}",
            hint=f"pass --scheduler {site.scheduler}, or name another site",
        )
    return site, path


def own_site() -> Path:
    """Return the path of the user's site file, which ``site: auto`` finds, whether it exists or not."""
    return config_folder() / "site.yaml"


def portable_name(path: Path) -> str:
    """Return how a spec in any folder may name the site of a file: by its name, or by its absolute path."""
    return path.stem if path.parent in _folders() else str(path.absolute())


def _folders() -> tuple[Path, ...]:
    return config_folder() / "sites", *brought_folders(), shipped_folder("templates") / "sites"


def _find(name: str) -> Path:
    if "/" in name or name.endswith((".yaml", ".yml")):
        return Path(os.path.expanduser(name))  # noqa: PTH111 - a Path forgets the ./ of ./~
    for folder in _folders():
        if (path := folder / f"{name}.yaml").is_file():
            return path
    known = sorted({path.stem for folder in _folders() for path in folder.glob("*.yaml")})
    raise JobkitError(
        f"no site {name!r}{suggest(name, known)}",
        hint="name a shipped site, one in your config folder's sites/, or a path ending in .yaml",
    )


def _read(path: Path) -> Site:
    document = read_document(path)
    site = validated(document, Site)
    if site:
        scheduler = by_name(site.scheduler)
        for number, line in enumerate(site.options):
            if what := own_option(site.scheduler, line):
                document.add(("options", number), f"options.{number}: {what}")
        if site.gpus and scheduler.NAMES_GPUS:
            document.add(("gpus",), f"gpus: {scheduler.TITLE} names the GPUs of a job: leave it out")
    return sound(document, site, "every key of a site file: jobkit help templates-and-sites", nested=True)


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
    lines = []
    for name in names:
        spelling: str | None = getattr(site.requests, name)
        if spelling is None:
            hint = f"put requests.{name} into the site file, or leave resources.{name} out"
            if name == "exclusive":
                hint = (
                    'put requests.exclusive into the site file, on Grid Engine "-l NAME=true" with a '
                    "resource of type BOOL and relation EXCL (qconf -sc) that hosts have. A site without one:"
                    " max_parallel: 1 keeps the points apart, but other jobs may share the node"
                )
            message = f"resources.{name} is set, but site {site.name!r} has no header line for it"
            raise JobkitError(message, hint=hint)
        try:
            lines.append(spelling.format_map(words))
        except (LookupError, ValueError, AttributeError) as error:
            raise JobkitError(
                f"site {site.name!r}: requests.{name}: {spelling!r} cannot be filled in: {error}",
                hint=f"the words in braces are {', '.join(words)}; a brace itself is written twice",
            ) from error
    return [*lines, *site.options, *resources.options.get(site.scheduler, [])]


def queue_of(resources: Resources, site: Site) -> str | None:
    """Return the queue for a job: the site may have one for work without a GPU."""
    spelled = site.requests.queue and not resources.gpus
    return resources.queue or (site.cpu_queue if spelled else None) or site.queue


def _asked(resources: Resources, site: Site) -> dict[str, object]:
    """Return what is asked for, by the names of the site's requests; ``None`` if nothing is."""
    asked: dict[str, object] = {name: getattr(resources, name) or None for name in Requests.model_fields}
    slots = resources.cpus if site.memory_per == "slot" else 1
    mebibytes = math.ceil(resources.memory / slots / 2**20)
    return asked | {
        "queue": queue_of(resources, site),
        "account": resources.account or site.account,
        "qos": resources.qos or site.qos,
        "gpus": _gpus(resources, site) or None,
        "gpu_type": resources.gpu_type if resources.gpus else None,
        "memory": f"{mebibytes}M" if mebibytes % 1024 else f"{mebibytes // 1024}G",
        "walltime": format_walltime(resources.walltime),
        "exclude": ",".join(resources.exclude) or None,
    }


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
