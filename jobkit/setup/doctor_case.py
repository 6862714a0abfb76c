"""What `jobkit doctor` checks: the user's spec or a small one, the scheduler, and the site file."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from jobkit.core.errors import JobkitError
from jobkit.core.paths import cache_dir
from jobkit.planning.batch_sizes import decided, is_auto
from jobkit.planning.points import plan, request
from jobkit.planning.prepare import Options, asked_by_shell, device
from jobkit.planning.texts import find_text
from jobkit.planning.workload_traits import traits
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import by_name, choose_scheduler, runs_here
from jobkit.schedulers.survey import Survey, asked_for
from jobkit.schedulers.types import JobRequest
from jobkit.setup.findings import Finding, fine, missing, warning
from jobkit.spec.site import Site, find_site, own_site
from jobkit.spec.sweep_spec import SweepSpec, load_spec
from jobkit.worker import command_line
from jobkit.worker.examine import interpreter

NAME = "doctor"
SMALL = {"gpus": 0, "cpus": 1, "memory": "1GiB", "walltime": "00:10:00"}
"""The resources of a point without a spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the doctor checks."""

    spec: SweepSpec  # the user's, else a small one
    sweep: str  # the command that sweeps it; empty if it is not the user's
    base: Path  # the folder of the spec
    scheduler: Scheduler  # `scheduler`, `why`: the scheduler of the points, and the reason in a few words
    why: str
    site: Site  # `site`, `site_file`: the site, and its file
    site_file: Path
    runs_dir: Path  # where run folders go
    opening: tuple[Finding, ...] = field(default=())  # the findings about spec and site

    @property
    def given(self) -> bool:
        """Whether the spec is the user's: then everything that it needs must be there."""
        return bool(self.sweep)

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
        """The folder of the spec, which may have the user's workload."""
        return os.path.abspath(self.base)  # noqa: PTH100 - without `..`, and links as they are

    @property
    def importable(self) -> str:
        """The workload that a job must be able to import: for a command it is enough to run jobkit."""
        return "count" if self.spec.command else self.spec.workload_name

    @property
    def program(self) -> str:
        """The first word of a command; a shell's if one reads the command; empty without a command."""
        command = self.spec.command
        if command is None:
            return ""
        return command_line.SHELL[0] if command.shell else next(iter(command_line.split(command.command)), "")

    @property
    def staged_program(self) -> Path | None:
        """The program of a command, if it is a file that travels with the run."""
        command, name = self.spec.command, PurePosixPath(self.program)
        names = {PurePosixPath(file) for file in command.files} if command else set()
        staged = not name.is_absolute() and not names.isdisjoint({name, *name.parents})
        return self.base / name if staged and (self.base / name).is_file() else None

    @property
    def sought_program(self) -> str:
        """What a node must have to start the command; empty if it is nothing, or depends on a knob."""
        if command_line.placeholders(self.program):
            return ""
        return interpreter(self.staged_program) if self.staged_program else self.program

    def request(self) -> JobRequest:
        """Return what the point that requests most asks of the scheduler."""
        spec = decided(self.spec, (1,)) if is_auto(self.spec) else self.spec
        points = plan(spec.model_copy(update={"device": self.device}))
        most = max((spec.resources.of(point) for point in points), key=lambda asked: (asked.gpus, asked.cpus))
        return request(NAME, spec, self.site, most)


def open_case(path: Path | None, options: Options) -> Case:
    """Return what to check. A spec or a site file with errors is a finding, and a default replaces it."""
    opening: list[Finding] = []
    spec = None
    try:
        if path is not None:
            spec = load_spec(path, options.all_overrides)
            spec = spec.model_copy(update={"environment": spec.environment.of_folder(path.parent)})
            opening.append(fine("spec", str(path)))
    except JobkitError as error:
        opening.append(missing("spec", error.message, error.hint))
    chosen = spec or SweepSpec.model_validate({"name": NAME, "resources": SMALL, **options.named})
    name, why = choose_scheduler(chosen.scheduler)
    site, file = _site(chosen.site, name, opening)
    resources, variables = asked_by_shell(chosen.resources, name)
    opening += [fine("shell", line) for line in variables]
    return Case(
        spec=chosen.model_copy(update={"resources": resources}),
        sweep=shlex.join(("jobkit", "sweep", str(path), *options.words)) if spec else "",
        base=path.parent if path else Path(),
        scheduler=by_name(name),
        why=why,
        site=site,
        site_file=file,
        runs_dir=options.runs_folder(site),
        opening=tuple(opening),
    )


def _site(name: str, scheduler: str, opening: list[Finding]) -> tuple[Site, Path]:
    default = f"{scheduler}-default"
    try:
        site, file = find_site(name, scheduler)
    except JobkitError as error:
        opening.append(missing("site file", error.message, error.hint))
        return find_site(default, scheduler)
    if name == "auto" and site.name == default and not runs_here(scheduler):
        message = f"none of your own: the shipped {default} is used, which guesses this cluster's names"
        opening.append(warning("site file", message, f"jobkit init   (it writes {own_site()})"))
    else:
        opening.append(fine("site file", f"{site.name} ({file})"))
    return site, file


def with_gpus(case: Case, survey: Survey) -> Case:
    """Return a case whose small spec asks for a GPU, if the site has GPUs and spells how to ask.

    On this machine it always asks for one: `Case.device` checks whether there is one.
    """
    asked = asked_for(case.site.queue, survey.queues or (), "")
    offered = case.site.requests.gpus is not None and any(queue.gpus for queue in asked.queues)
    if case.given or not (offered or case.local):
        return case
    resources = case.spec.resources.model_copy(update={"gpus": 1})
    return replace(case, spec=case.spec.model_copy(update={"resources": resources}))


def inputs_of(case: Case) -> Iterator[Path]:
    """Yield the files that a point of the user's spec reads, if they exist: its text, its model."""
    if not case.given:
        return
    with contextlib.suppress(JobkitError):  # `check_machine.text` reports it
        text = Path(find_text(case.spec.text, base=case.base, cache=cache_dir(), write=False).path)
        if text.exists():
            yield text
    if not needs_model(case):
        return
    from jobkit.planning import models  # here, for a workload without a model

    workload, model = case.spec.workload_name, case.spec.model
    if models.is_folder(workload, model.model_dump()):
        with contextlib.suppress(JobkitError):  # `check_machine.model` reports it
            found = models.find(workload, model.model_dump(), case.base, cache_dir())
            if not found.stand_in:
                yield Path(found.path)
    elif place := model_place(model.name):
        yield place / model.name


def model_place(name: str) -> Path | None:
    """Return the first folder of models that has this one whole."""
    from jobkit.planning.models import model_places  # here, for a workload without a model
    from jobkit.worker.workloads.model import missing_files

    places = (place for place in model_places(name, cache_dir()) if not missing_files(place, name))
    return next(places, None)


def needs_model(case: Case) -> bool:
    """Return whether the workload needs a model; ``False`` if it cannot be imported."""
    try:
        return traits(case.importable, case.workload_folder).needs_model
    except JobkitError:
        return False
