"""Find all that a spec names: text, model, site, scheduler and device; every fault at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from jobkit.core import torch_build
from jobkit.core.errors import JobkitError
from jobkit.core.paths import cache_dir
from jobkit.core.records import ModelRef, Point, TextRef
from jobkit.core.terminal import Say
from jobkit.core.units import format_count
from jobkit.planning.templates import find_template
from jobkit.planning.texts import SAMPLE, find_text
from jobkit.planning.workload_traits import Traits, traits
from jobkit.run.workloads.base import SHIPPED
from jobkit.schedulers.registry import SCHEDULERS, choose_scheduler, runs_here
from jobkit.spec.axes import unknown_knobs
from jobkit.spec.site import Site, load_site, whole_name
from jobkit.spec.sweep_spec import SweepSpec, load_spec
from jobkit.spec.yaml_files import Document

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says beside the spec.

    Attributes
    ----------
    overrides
        ``key=value`` of each ``--set``.
    scheduler, site
        Override the spec's where given.
    runs_dir
        Override the site's where given.
    """

    overrides: tuple[str, ...] = ()
    scheduler: str | None = None
    site: str | None = None
    runs_dir: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSpec:
    """A spec with all that it names, found.

    Attributes
    ----------
    spec
        With everything ``auto`` decided but the batch sizes.
    site, why, text, model, workload_folder
        As in `Prepared` and its points.
    """

    spec: SweepSpec
    site: Site
    why: str
    text: TextRef
    model: ModelRef | None
    workload_folder: str | None


def resolve(
    path: Path,
    options: Options,
    *,
    fetch: bool,
    build: bool,
    say: Say,
    check: Callable[[SweepSpec, Site, Traits], None] = lambda *_: None,
) -> ResolvedSpec:
    """Return a spec with all that it names; ``fetch`` and ``build`` are for its text and its model.

    Parameters
    ----------
    check
        Is called before a model is built, and may refuse.

    Raises
    ------
    JobkitError
        As `prepare`.
    """
    overrides = (*options.overrides, *_flags(options))
    folder = os.path.abspath(path.parent)  # noqa: PTH100 - without `..`, and links as they are
    checks = (_text_check(path, write=fetch), _workload_check(folder), _site_check, _template_check(path))
    spec = load_spec(path, overrides, checks)
    name, why = choose_scheduler(spec.scheduler)
    site = load_site(spec.site, name)
    text = find_text(spec.text, base=path.parent, cache=cache_dir(), write=fetch)
    decided: dict[str, object] = {"scheduler": name, "text": _again(spec, text), "device": device(spec, name)}
    decided |= {"pack": _pack(spec, site), **_whole_names(spec, site, path.parent)}
    spec = spec.model_copy(update=decided)
    known = traits(spec.workload, folder)
    check(spec, site, known)
    return ResolvedSpec(
        spec=spec,
        site=site,
        why=why,
        text=text,
        model=_model(spec, build=build, say=say) if known.needs_model else None,
        workload_folder=None if spec.workload in SHIPPED else folder,
    )


def _pack(spec: SweepSpec, site: Site) -> int:
    """Return how many points share a job: as the spec says, else the site; one after the other here."""
    if runs_here(site.scheduler):
        return 1
    return spec.pack if "pack" in spec.model_fields_set else site.pack


def _again(spec: SweepSpec, text: TextRef) -> str:
    """Return the text as a spec anywhere else may name it: a path made absolute."""
    return spec.text if SAMPLE.fullmatch(spec.text) or "://" in spec.text else text.path


def _whole_names(spec: SweepSpec, site: Site, base: Path) -> dict[str, str | None]:
    """Return site and template as a spec anywhere else may name them."""
    template = find_template(spec.template, base) if spec.template else None
    return {"site": whole_name(spec.site, site.scheduler), "template": template}


def _flags(options: Options) -> list[str]:
    pairs = (("scheduler", options.scheduler), ("site", options.site))
    return [f"{key}={value}" for key, value in pairs if value]


def _text_check(path: Path, *, write: bool) -> Callable[[Document], None]:
    def check(document: Document) -> None:
        name = document.data.get("text", "sample")
        if isinstance(name, str):
            _found(
                document, "text", lambda: find_text(name, base=path.parent, cache=cache_dir(), write=write)
            )

    return check


def _workload_check(folder: str) -> Callable[[Document], None]:
    def check(document: Document) -> None:
        workload = document.data.get("workload", "stanza-ner")
        if not isinstance(workload, str) or (workload not in SHIPPED and ":" not in workload):
            return  # a fault of its own
        found = _found(document, "workload", lambda: traits(workload, folder))
        axes = document.data.get("sweep")
        if found and workload not in SHIPPED and isinstance(axes, dict):  # `check_axes` has the shipped ones
            for loc, what in unknown_knobs(axes, found.knobs, workload):
                document.faults.append(document.fault(("sweep", *loc), what, on_key=True))
        if found and found.needs_model:
            _check_model(document)

    return check


def _check_model(document: Document) -> None:
    model = document.data.get("model", {})
    if isinstance(model, dict):
        from jobkit.planning.models import find_model  # here, for a workload without a model starts sooner

        name, size = str(model.get("name", "en")), str(model.get("size", "full"))
        fallback = model.get("fallback")
        _found(
            document,
            "model",
            lambda: find_model(
                name, size, fallback=fallback, cache=cache_dir(), say=lambda _: None, build=False
            ),
        )


def _site_check(document: Document) -> None:
    name, scheduler = document.data.get("site", "auto"), document.data.get("scheduler", "auto")
    if isinstance(name, str) and scheduler in {"auto", *SCHEDULERS}:
        _found(document, "site", lambda: load_site(name, choose_scheduler(scheduler)[0]))


def _template_check(path: Path) -> Callable[[Document], None]:
    def check(document: Document) -> None:
        name = document.data.get("template")
        if isinstance(name, str):
            _found(document, "template", lambda: find_template(name, path.parent))

    return check


def _found(document: Document, key: str, find: Callable[[], T]) -> T | None:
    try:
        return find()
    except JobkitError as error:
        hint = f" ({error.hint})" if error.hint else ""
        named = "" if error.message.startswith(key) else f"{key}: "
        document.faults.append(document.fault((key,), f"{named}{error.message}{hint}"))
        return None


def _model(spec: SweepSpec, *, build: bool, say: Say) -> ModelRef:
    from jobkit.planning.models import find_model  # as above

    asked = spec.model
    return find_model(
        asked.name, asked.size, fallback=asked.fallback, cache=cache_dir(), say=say, build=build
    )


def idle_gpus(spec: SweepSpec, scheduler: str, device: str) -> str:
    """Return in a line which GPUs every point holds and none uses; empty where there are none.

    Parameters
    ----------
    scheduler
        On this machine no GPU is held.
    device
        ``cpu`` or ``cuda``: what a point works on.
    """
    gpus = spec.resources.gpus
    if runs_here(scheduler) or gpus <= (device == "cuda"):
        return ""
    if device == "cuda":
        return f"resources.gpus: {gpus}: a point uses one GPU, so {gpus - 1} of them would be idle"
    held = "a GPU" if gpus == 1 else format_count(gpus, "GPU")
    return f"device: cpu with resources.gpus: {gpus}: each point would hold {held} and use none"


def needed_gpus(device: str) -> str:
    """Return the option that asks for as many GPUs as a point uses."""
    return f"--set resources.gpus={int(device == 'cuda')}"


def device(spec: SweepSpec, scheduler: str) -> str:
    """Return ``cpu`` or ``cuda``: for ``auto``, what the job asks the scheduler for.

    Without a scheduler it is what this machine has.
    """
    if spec.device != "auto":
        return spec.device
    if runs_here(scheduler):
        from jobkit.run.measure import nvml  # here, for a submission asks no card

        return "cuda" if spec.resources.gpus and nvml.list_gpus() else "cpu"
    return "cuda" if spec.resources.gpus else "cpu"


def refuse_unusable_gpu(spec: SweepSpec, site: Site, workload: Traits) -> None:
    """Refuse points on a GPU where the Python that will run them is this one, and cannot use a GPU.

    Raises
    ------
    JobkitError
        With the commands that mend it.
    """
    if spec.device != "cuda" or not workload.needs_model or not (why := _wrong_torch(spec, site)):
        return
    ways = [
        f"{torch_build.cuda_install_command(sys.executable)}   (or the index for your driver)",
        "or name the Python that jobs use: environment.venv or environment.conda in the spec",
        "or measure on the CPU: --set device=cpu --set resources.gpus=0",
    ]
    if not runs_here(site.scheduler):
        ways.append("or, if the nodes have another torch at this path: --set 'environment.setup=[\":\"]'")
    raise JobkitError(f"the sweep asks for a GPU, and {why}", hint="\n        ".join(ways))


def _wrong_torch(spec: SweepSpec, site: Site) -> str:
    """Return why the Python of the jobs, if it is this one, cannot use a GPU; empty if nothing says so."""
    environment = spec.environment
    another = environment.conda or environment.venv or environment.modules or environment.setup or site.setup
    why = "" if another else torch_build.cpu_build_problem()
    return f"in the Python that its jobs use {why}: {sys.executable}" if why else ""


def warn_again(say: Say, spec: SweepSpec, points: Iterable[Point], *more: str) -> None:
    """Say of points of a run that run again what `refuse_unusable_gpu` says of a sweep.

    Parameters
    ----------
    more
        What helps too, after the command that installs another torch.
    """
    if not any(point.device == "cuda" and point.model for point in points):
        return
    if why := _wrong_torch(spec, load_site(spec.site, spec.scheduler)):
        say(f"warning: the run asks for a GPU, and {why}: the points that start now will end as no_gpu")
        for line in (
            f"{torch_build.cuda_install_command(sys.executable)}   (or the index for your driver)",
            *more,
        ):
            say(f"  hint: {line}")


def warn(say: Say, spec: SweepSpec, site: Site, workload: Traits) -> None:
    """Say what `refuse_unusable_gpu` would refuse."""
    try:
        refuse_unusable_gpu(spec, site, workload)
    except JobkitError as error:
        say(f"without --dry-run this is refused: {error}")
