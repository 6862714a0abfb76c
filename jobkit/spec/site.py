"""What this cluster calls its queue, its GPUs, its memory and its scratch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field

from jobkit.core.errors import JobkitError
from jobkit.core.paths import config_folder, shipped_folder
from jobkit.core.terminal import SCHEDULER_WORDS, suggest
from jobkit.schedulers.registry import own_option
from jobkit.spec.fields import STRICT, Line, SchedulerName, Word
from jobkit.spec.yaml_files import raise_faults, read_document, validated


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
    cpu_queue
        The one for work without a GPU, such as `jobkit models fetch --as-job`; ``null`` for ``queue``.
    requests
        See `Requests`. ``gpu_type`` replaces ``gpus`` where the spec names a type.
    memory_per
        Whether the scheduler counts memory for the job or for each slot (CPU).
    gpus_per
        Whether it counts GPUs for the job or for each slot.
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
    requests: Requests = Requests()
    memory_per: Literal["job", "slot"] = "job"
    gpus_per: Literal["job", "slot"] = "job"
    options: list[Line] = []
    scratch: str | None = None
    setup: list[str] = []
    sync_interval_s: Annotated[int, Field(ge=1)] = 30
    warning_s: Annotated[int, Field(ge=0)] = 60
    kill_wait_s: Annotated[int, Field(ge=1)] = 30
    runs_dir: str | None = None
    group_can_read: bool = False
    pack: Annotated[int, Field(ge=1)] = 1
    on: Word | None = None
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
    site, path = _own_or_default(scheduler) if name == "auto" else _named(name)
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


def _folders() -> tuple[Path, Path]:
    return config_folder() / "sites", shipped_folder("templates") / "sites"


def _own_or_default(scheduler: str) -> tuple[Site, Path]:
    own = own_site()
    if own.is_file() and not _only_names_a_host(own) and (site := _read(own)).scheduler == scheduler:
        return site, own
    return _named(f"{scheduler}-default")


def _only_names_a_host(path: Path) -> bool:
    """Return whether a site file is that of a laptop, whose jobs run elsewhere."""
    return read_document(path).data.keys() == {"on"}


def _named(name: str) -> tuple[Site, Path]:
    path = _find(name)
    return _read(path), path


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
    for number, line in enumerate(site.options if site else ()):
        if what := own_option(site.scheduler if site else "", line):
            document.faults.append(document.fault(("options", number), f"options.{number}: {what}"))
    raise_faults(document, "every key of a site file: jobkit help templates-and-sites", nested=True)
    assert site is not None  # noqa: S101 - refuse has raised otherwise; this is for the type checker
    return site
