"""What `jobkit doctor` looks at: the spec, else a small one of its own; the scheduler; the site file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.paths import cache_dir
from jobkit.planning.prepare import request
from jobkit.planning.resolve import Options, device
from jobkit.planning.texts import find_text
from jobkit.planning.workload_traits import traits
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import by_name, choose_scheduler, runs_here
from jobkit.schedulers.survey import Survey, asked_for
from jobkit.schedulers.types import Request
from jobkit.setup.findings import Finding, fine, missing, warning
from jobkit.spec.site import Site, find_site, own_site
from jobkit.spec.sweep_spec import SweepSpec, load_spec

NAME = "doctor"
SMALL = {"gpus": 0, "cpus": 1, "memory": "1GiB", "walltime": "00:10:00"}
"""What is asked for where no spec says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is looked at.

    Attributes
    ----------
    spec
        The user's, else a small one.
    given
        Whether it is the user's: then what it needs and is not there is missing.
    base
        The folder of the spec.
    scheduler, why
        The one that would be used, and why in a few words.
    site, site_file
        The site, and its file.
    runs_dir
        Where run folders go.
    opening
        What was found of spec and site while they were read.
    """

    spec: SweepSpec
    given: bool
    base: Path
    scheduler: Scheduler
    why: str
    site: Site
    site_file: Path
    runs_dir: Path
    opening: tuple[Finding, ...] = field(default=())

    @property
    def local(self) -> bool:
        """Whether points would run on this machine."""
        return self.scheduler.RUNS_HERE

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda``: what a point would work on."""
        return device(self.spec, self.scheduler.NAME)

    @property
    def workload_folder(self) -> str:
        """Where a workload of the user's own is looked for: the folder of the spec."""
        return os.path.abspath(self.base)  # noqa: PTH100 - without `..`, and links as they are

    def request(self) -> Request:
        """Return what a point asks of the scheduler.

        Raises
        ------
        JobkitError
            Where the site file does not say how to ask for it.
        """
        return request(NAME, self.spec, self.site)


def open_case(path: Path | None, options: Options) -> Case:
    """Return what there is to look at; a spec or a site file with faults is replaced, and told of.

    Raises
    ------
    JobkitError
        Where the command line names a scheduler that there is not.
    """
    opening: list[Finding] = []
    spec = None if path is None else _spec(path, options, opening)
    chosen = spec or _small(options)
    name, why = choose_scheduler(chosen.scheduler)
    site, file = _site(chosen.site, name, opening)
    return Case(
        spec=chosen,
        given=spec is not None,
        base=path.parent if path else Path(),
        scheduler=by_name(name),
        why=why,
        site=site,
        site_file=file,
        runs_dir=options.runs_folder(site),
        opening=tuple(opening),
    )


def _small(options: Options) -> SweepSpec:
    return SweepSpec.model_validate({"name": NAME, "resources": SMALL, **options.named})


def _spec(path: Path, options: Options, opening: list[Finding]) -> SweepSpec | None:
    """Return the user's spec, ``None`` where it has faults."""
    try:
        spec = load_spec(path, options.all_overrides)
    except JobkitError as error:
        opening.append(missing("spec", error.message, error.hint))
        return None
    opening.append(fine("spec", str(path)))
    return spec


def _site(name: str, scheduler: str, opening: list[Finding]) -> tuple[Site, Path]:
    """Return the site and its file; where it has faults, the shipped default of the scheduler."""
    default = f"{scheduler}-default"
    try:
        site, file = find_site(name, scheduler)
    except JobkitError as error:
        opening.append(missing("site file", error.message, error.hint))
        return find_site(default, scheduler)
    if name == "auto" and site.name == default and not runs_here(scheduler):
        said = (
            f"none of your own: the shipped {default} is used, which guesses what this cluster calls things"
        )
        opening.append(warning("site file", said, f"jobkit init   (it writes {own_site()})"))
    else:
        opening.append(fine("site file", f"{site.name} ({file})"))
    return site, file


def with_gpus(case: Case, survey: Survey) -> Case:
    """Return a case whose small spec asks for a GPU, where the site has them and says how to ask.

    Of this machine a GPU is always asked for: `Case.device` looks whether there is one.
    """
    asked = asked_for(case.site.queue, survey.queues or (), "")
    offered = case.site.requests.gpus is not None and any(queue.gpus for queue in asked.queues)
    if case.given or not (offered or case.local):
        return case
    resources = case.spec.resources.model_copy(update={"gpus": 1})
    return replace(case, spec=case.spec.model_copy(update={"resources": resources}))


def inputs_of(case: Case) -> Iterator[Path]:
    """Yield what a point of the user's spec reads and that is there: its text, its model."""
    from jobkit.planning.models import model_places  # here, for a workload without a model
    from jobkit.run.staged import missing_files

    if not case.given:
        return
    try:
        text: Path | None = Path(
            find_text(case.spec.text, base=case.base, cache=cache_dir(), write=False).path
        )
    except JobkitError:
        text = None  # told where it is looked for
    if text and text.exists():
        yield text
    name = case.spec.model.name
    if needs_model(case):
        yield from [
            place / name for place in model_places(name, cache_dir()) if not missing_files(place, name)
        ][:1]


def needs_model(case: Case) -> bool:
    """Tell whether the workload needs a model; of one that cannot be imported it is not known."""
    try:
        return traits(case.spec.workload, case.workload_folder).needs_model
    except JobkitError:
        return False
