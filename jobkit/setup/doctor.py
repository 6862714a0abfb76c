"""What `jobkit doctor` checks, in the order that a newcomer reads: here, or from inside a job."""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from importlib import metadata
from pathlib import Path, PurePosixPath

from jobkit.core import shell
from jobkit.core.errors import JobkitError
from jobkit.core.frozen import keyed
from jobkit.core.paths import CACHE_VARIABLE, cache_dir
from jobkit.core.records import STANZA
from jobkit.core.terminal import Say, shell_quote
from jobkit.core.units import format_clock
from jobkit.launch.helper_job import Errand, submit_errand
from jobkit.launch.job import announce, ids
from jobkit.planning import prepare
from jobkit.planning.batch_sizes import decided, is_auto
from jobkit.planning.job_script import (
    COPIER,
    PROGRAMS,
    SCRATCH_MARGIN_BYTES,
    fill,
    job_python,
    job_values,
    render_errand,
)
from jobkit.planning.models import STAND_IN
from jobkit.planning.points import plan, request
from jobkit.planning.workload_traits import traits
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import (
    by_name,
    choose_scheduler,
    query_environment,
    runs_here,
    submission_environment,
)
from jobkit.schedulers.survey import Survey, asked_for
from jobkit.schedulers.types import ONE_TASK, JobRequest, State
from jobkit.setup import machine
from jobkit.setup.findings import (
    ANSWER_FILE,
    Finding,
    Status,
    exit_code,
    fine,
    missing,
    read_facts,
    unknown,
    warning,
)
from jobkit.setup.machine import MACHINE, PYTHON, NodeRequest, check_node, programs
from jobkit.spec.axes import most, settings
from jobkit.spec.site import Site, find_site, own_site, queue_of
from jobkit.spec.sweep_spec import SweepSpec, load_spec
from jobkit.worker import command_line
from jobkit.worker.examine import interpreter

NAME = "doctor"


@keyed
class Case:
    """What the doctor checks."""

    spec: SweepSpec  # the user's, else a small one
    sweep: str  # the command that sweeps it; empty if it is not the user's
    base: Path  # the folder of the spec
    stand_in: bool = False  # whether a person permits one in place of a model
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
        return prepare.device(self.spec, self.scheduler.NAME)

    @property
    def workload_folder(self) -> str:
        """The folder of the spec, which may have the user's workload."""
        return os.path.abspath(self.base)  # noqa: PTH100 - without `..`, and links as they are

    @property
    def importable(self) -> str:
        """The workload that a job must be able to import: for a command or a site jobkit is enough."""
        of_site = not self.given and self.spec.site != "auto"
        return "count" if self.spec.command or of_site else self.spec.workload_name

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


def open_case(path: Path | None, options: prepare.Options) -> Case:
    """Return what to check. A spec or a site file with errors is a finding, and a default replaces it."""
    opening: list[Finding] = []
    spec = None
    try:
        if path is not None:
            spec = load_spec(path, options.all_overrides)
            if (
                options.stand_in
                and machine.model(spec, path.parent, "", stand_in=True).status is not Status.OK
            ):
                size = spec.model.size if "size" in spec.model.model_fields_set else "tiny"
                changed = spec.model.model_copy(update={"fallback": STAND_IN, "size": size})
                spec = spec.model_copy(update={"model": changed})
            spec = spec.model_copy(update={"environment": spec.environment.of_folder(path.parent)})
            opening.append(fine("spec", str(path)))
    except JobkitError as error:
        opening.append(missing("spec", error.message, error.hint))
    # The resources of a point without a spec
    small = {"gpus": 0, "cpus": 1, "memory": "1GiB", "walltime": "00:10:00"}
    chosen = spec or SweepSpec.model_validate({"name": NAME, "resources": small, **options.named})
    name, why = choose_scheduler(chosen.scheduler)
    default = f"{name}-default"
    try:
        site, file = find_site(chosen.site, name)
    except JobkitError as error:
        opening.append(missing("site file", error.message, error.hint))
        site, file = find_site(default, name)
    else:
        found = fine("site file", f"{site.name} ({file})")
        if chosen.site == "auto" and site.name == default and not runs_here(name):
            none, way = "none of your own", f"jobkit init   (it writes {own_site()})"
            if own_site().is_file():  # it is for another scheduler
                none = f"{own_site()} is not for {name}"
                here = own_site().parent / "sites" / f"{name}.yaml"
                way = f"jobkit init --only site --scheduler {name} --site-file {here}; then --site {name}"
            message = f"{none}: the shipped {default} is used, which guesses this cluster's names"
            found = warning("site file", message, way)
        opening.append(found)
    resources, variables = prepare.asked_by_shell(chosen.resources, name)
    opening += [fine("shell", line) for line in variables]
    return Case(
        spec=chosen.model_copy(update={"resources": resources}),
        sweep=shlex.join(("jobkit", "sweep", str(path), *options.words)) if spec else "",
        base=path.parent if path else Path(),
        stand_in=options.stand_in,
        scheduler=by_name(name),
        why=why,
        site=site,
        site_file=file,
        runs_dir=options.runs_folder(site),
        opening=tuple(opening),
    )


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
    with contextlib.suppress(JobkitError):  # `machine.text` reports it
        text = Path(machine.named_text(case.spec, case.base).path)
        if text.exists():
            yield text
    if not needs_model(case):
        return
    from jobkit.planning import models  # here, for a workload without a model

    with contextlib.suppress(JobkitError):  # `machine.model` reports it
        found = models.find(case.spec.workload_name, case.spec.model.model_dump(), case.base, cache_dir())
        if not found.stand_in:
            yield Path(found.path, found.name if found.kind == STANZA else "")


def needs_model(case: Case) -> bool:
    """Return whether the workload needs a model; ``False`` if it cannot be imported."""
    try:
        python = job_python(case.spec.environment, case.site)
        return traits(case.importable, case.workload_folder, None, python).needs_model
    except JobkitError:
        return False


STEP_LIMIT_S = 60
"""Limit of one step of a check: torch from a cold file server takes most of a minute."""

HERE, INPUTS, PYTHON_HERE = "This machine", "Folders and inputs", "Python, as a job would have it"


def safely(where: str, name: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yield findings with their heading; an error of the file system is the last of them."""
    try:
        yield from under(where, findings)
    except OSError as error:
        yield from under(where, [missing(name, str(error))])


def under(where: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings with their heading, unless they have one."""
    return (replace(finding, where=finding.where or where) for finding in findings)


def opening(case: Case) -> Iterator[Finding]:
    """Yield the findings for which no scheduler is asked."""
    python = f"Python {platform.python_version()} at {sys.executable}"
    yield fine("jobkit", f"{metadata.version('jobkit')}, {python}")
    yield from (finding for finding in case.opening if finding.name == "spec")
    yield machine.commands(case.scheduler, f"{case.why}: points would run here, one at a time")


def scheduler(case: Case, survey: Survey) -> Iterator[Finding]:
    """Yield the findings from the scheduler's answers, for a point of the spec."""
    if case.local:  # a sweep refuses a site that it cannot use here too
        yield from (one for one in case.opening if one.name != "spec" and one.status is Status.MISSING)
        return
    findings = [machine.controller(survey)]
    findings += [finding for finding in case.opening if finding.name != "spec"]
    try:
        request = case.request()
    except JobkitError as error:
        findings.append(missing("job script", error.message, error.hint))
    else:
        if not survey.trouble:
            findings += machine.check_site(survey, _asking(case, survey, request))
            if idle := prepare.idle_gpus(case.spec, case.scheduler.NAME, case.device):
                findings.append(warning("GPUs in use", idle, prepare.NO_GPU))
            mapped = survey.gpus and survey.gpus.kind == "RSMAP"
            if not mapped and (unnamed := prepare.unnamed_gpus(case.spec, case.site)):
                findings.append(warning("GPUs of a job", unnamed, prepare.NAMING))
            findings += _tried(case, request, findings)
    yield from findings


def _asking(case: Case, survey: Survey, request: JobRequest) -> machine.SiteRequest:
    axes, resources, site = case.spec.sweep, case.spec.resources, case.site
    chosen = case.given and not is_auto(case.spec)
    planned = settings(axes.product, axes.zip, axes.include, axes.exclude) if chosen else ()
    key = "cpu_queue" if site.cpu_queue and site.requests.queue and not resources.gpus else "queue"
    where = f"`{key}` in {case.site_file if queue_of(resources, site) else 'the site file'}"
    return machine.SiteRequest(
        request=request,
        site=site,
        queue_key="resources.queue in the spec" if resources.queue else where,
        limit=case.scheduler.parse_limit(survey.limits),
        points=len(planned) * most(case.spec.repeats),
    )


def _tried(case: Case, request: JobRequest, findings: Sequence[Finding]) -> Iterator[Finding]:
    with tempfile.TemporaryDirectory(prefix="jobkit-doctor-") as folder:
        script = Path(folder) / "job.sh"
        try:
            script.write_text(script_for(case, Path(folder), case.spec), encoding="utf-8")
        except (JobkitError, OSError) as error:
            yield missing("job", str(error))
            return
        checks = case.scheduler.checks(str(script), ONE_TASK, request)
        asked = [check for check in checks if str(script) in check.argv]
        env = query_environment(case.scheduler)
        answers = [(check, shell.run(check.argv, env=env, timeout_s=20.0)) for check in asked]
    refused = [text for check, answer in answers if (text := check.refusal(request, answer))]
    if refused:
        hint = "change the site file's `requests` or `options`"
        if any(finding.status is Status.MISSING for finding in findings):
            hint = "fix what is missing above first"
        yield missing("job", "\n".join(refused), hint)
    elif answers:
        outlook = [text for check, answer in answers if (text := check.outlook(request, answer))]
        yield fine("job", "; ".join([f"{asked[0].argv[0]} would take a job like a point's", *outlook]))


def script_for(case: Case, run_dir: Path, spec: SweepSpec, *, bare: bool = False) -> str:
    """Return the script of the check, as a job of a spec, or without a header to run here."""
    values: dict[str, object] = {
        "warning_s": 0,
        "programs": (COPIER, *PROGRAMS),
        "limit_s": STEP_LIMIT_S,
        "seen": seen_from(case),
        "binds": [*seen_from(case), case.workload_folder],
        "examine": [
            *("--device", case.device, "--workload", case.importable),
            *("--folder", case.workload_folder),
            *(("--program", case.sought_program) if case.sought_program else ()),
        ],
    }
    body = "doctor.sh.j2"
    if bare:
        return fill(body, None, job_values(spec, case.site, run_dir) | values)[0]
    return render_errand(spec, case.site, run_dir, body, **values)


def inputs(case: Case, *, nodes_tell: bool = False) -> Iterator[Finding]:
    """Yield whether folders are writable, and whether text and model are there.

    ``nodes_tell``: whether a node will report which folders it sees: then jobkit does not guess.
    """
    shared = not (case.local or nodes_tell)
    readers = "only you can read them (site file: group_can_read)"
    if case.site.group_can_read:
        readers = "your group can read them"
    place = "--runs-dir FOLDER, or `runs_dir` in the site file"
    yield machine.folder_of("run folders", case.runs_dir, place, shared=shared, more=f"; {readers}")
    yield machine.folder_of("cache", cache_dir(), f"export {CACHE_VARIABLE}=FOLDER", shared=shared)
    if case.given:
        yield machine.text(case.spec, case.base)
    if case.program and (program := machine.program_here(case.program, case.staged_program)):
        yield program
    if needs_model(case):
        yield machine.model(case.spec, case.base, case.sweep, stand_in=case.stand_in)


def python_here(case: Case) -> Iterator[Finding]:
    """Yield the findings about a job's Python, on this machine with a job's environment."""
    with tempfile.TemporaryDirectory(prefix="jobkit-doctor-") as name:
        folder = Path(name)
        try:
            script = script_for(case, folder, case.spec, bare=True)
            (folder / "look.sh").write_text(script, encoding="utf-8")
        except JobkitError as error:
            yield missing("job script", error.message, error.hint)
            return
        environment = submission_environment()
        if not case.scheduler.EXPORTS_ENVIRONMENT:
            names = {"HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"}
            kept = {name: value for name, value in os.environ.items() if name in names}
            environment = {"PATH": "/usr/local/bin:/bin:/usr/bin", **kept}
        shell.run(("bash", str(folder / "look.sh")), env=environment, timeout_s=180.0)
        facts = read_facts(folder)
    probes = (*MACHINE, *PYTHON) if case.local else (programs, *PYTHON)
    yield from check_node(facts, wanted(case, on_node=case.local), probes)


def wanted(case: Case, *, on_node: bool) -> NodeRequest:
    """Return what a point of the case needs on a machine."""
    python = case.spec.environment.python or "jobkit's own Python"
    image = case.spec.environment.container or ""
    input_files = [file for path in inputs_of(case) for file in (path, *path.rglob("*")) if file.is_file()]
    return NodeRequest(
        device=case.device,
        workload=case.importable,
        gpus=case.spec.resources.gpus,
        scratch_bytes=SCRATCH_MARGIN_BYTES + sum(file.stat().st_size for file in input_files),
        seen=seen_from(case),
        python=f"{python} in {image}" if image else python,
        on_node=on_node,
        jobkit=metadata.version("jobkit"),
        given=case.given,
    )


def seen_from(case: Case) -> tuple[str, ...]:
    """Return the files and folders of this machine that a node must see."""
    cache = cache_dir()
    return tuple(map(str, [*([cache] if cache.is_dir() else []), *inputs_of(case)]))


WALLTIME_S = 180
"""A minute's work; the rest is for a node that is slow to begin and to end."""
WHERE = "In a job"


def in_a_job(case: Case, before: Iterable[Finding], within_s: float, say: Say) -> Iterator[Finding]:
    """Yield the findings of a job on a node.

    ``before``: the findings about the scheduler: if something is missing, nothing is submitted.
    ``within_s``: how long the job may wait in the queue before it is cancelled.
    """
    if case.local:
        message = "--submit submitted nothing: points run on this machine, which is checked above"
        yield warning("job", message, "to check a node of a cluster: --scheduler slurm, or sge")
        return
    if exit_code(before):
        yield unknown("job", "not submitted: see what is missing above")
        return
    run_dir = case.runs_dir / prepare.run_id(NAME)
    resources = case.spec.resources.model_copy(update={"walltime": WALLTIME_S, "mail": None})
    spec = case.spec.model_copy(update={"name": NAME, "resources": resources})
    try:
        errand = submit_errand(case.scheduler, run_dir, script_for(case, run_dir, spec))
    except (JobkitError, OSError) as error:
        yield missing("job", str(error))
        return
    try:
        say("")
        announce(case.scheduler.NAME, [errand.job], "; waiting for it (Ctrl-C cancels it)", say)
        findings = _waited(case, errand, within_s, say)
    except KeyboardInterrupt:
        say(errand.cancel())
        raise
    yield from findings
    if not any(finding.status is Status.MISSING for finding in findings):
        shutil.rmtree(errand.run_dir, ignore_errors=True)


def _waited(case: Case, job: Errand, within_s: float, say: Say) -> list[Finding]:
    """Return what the job's answer comes to; times in records are the node's, so its clock matters."""
    before = ""
    for _ in job.wait_for(ANSWER_FILE):
        if trouble := _trouble(job, within_s):
            return [trouble]
        now = "  it has left the queue; waiting for its answer"
        if job.queued:
            why = job.scheduler.explain(job.queued)
            now = f"  {job.queued.state}{f' ({why})' if why else ''}"
        if now != before:
            say(now)
            before = now
    facts, seen_at = read_facts(job.run_dir), time.time()
    ran = f"{job.scheduler.NAME} job {job.job.id} ran, {job.waited_s:.0f} s after it was submitted"
    found = [fine("job", ran), fine("home", f"the job wrote its answer to {job.run_dir.parent}")]
    end = facts.number("end")
    if end is not None and abs(seen_at - end) > 60:
        message = f"the node's clock differs from this machine's by {abs(seen_at - end):.0f} s"
        found.append(warning("clock", message, "ask the cluster's support about NTP"))
    found += check_node(facts, wanted(case, on_node=True), (*MACHINE, *PYTHON))
    return [*under(f"{WHERE}, on {facts.said.get('host', 'a node')}", found)]


def _trouble(job: Errand, within_s: float) -> Finding | None:
    """Return why there is no use in waiting on, after the job was cancelled; ``None`` to wait on."""
    queued, home = job.queued, job.run_dir
    asks = job.scheduler.diagnostic_argvs(ids([job.job]), home.name)
    person = f"the scheduler's answer: {' '.join(asks[-1])}"
    if queued is None and job.gone:
        log = next((line.strip() for line in reversed(job.log.splitlines()) if line.strip()), "")
        message = f"job {job.job} left the queue and wrote no answer to {home}"
        if log:
            return missing("job", f"{message}; its log ends: {log}", f"less {home}/logs/*")
        hint = "can the nodes write there? Name a folder that they see: --runs-dir FOLDER"
        return missing("job", f"{message}, and no log", f"{hint}; {person}")
    if queued and job.blocked:
        way_out = job.job.id and job.scheduler.remedy(job.job.id, (1,), queued)
        change = f"change {way_out.key} in the spec; " if way_out and way_out.key else ""
        return missing("job", f"the job will not begin: {job.blocked}; {job.cancel()}", f"{change}{person}")
    if (queued is None or queued.state not in {State.RUNNING, State.ENDING}) and job.waited_s > within_s:
        why = job.scheduler.explain(queued) if queued else "the queue gives no reason"
        message = f"the job did not begin within {format_clock(within_s)} ({why}); {job.cancel()}"
        hint = "jobkit doctor --submit --within 2h waits longer; or name a queue that is less busy"
        return missing("job", message, hint)
    if job.waited_s > within_s + 2 * WALLTIME_S:
        return missing("job", f"the job began and did not answer; {job.cancel()}", f"its log: {home}/logs")
    return None


def next_command(word: str, options: Sequence[str]) -> str:
    """Return what to type once nothing is missing; ``word`` is the spec, empty for this machine.

    ``options``: those that the sweep needs too, so that it is the sweep that was checked.
    """
    first_spec = "first.yaml"
    if not word:
        if Path(first_spec).is_file():
            return shlex.join(["jobkit", "doctor", first_spec, *options])
        given = dict(zip(options[::2], options[1::2], strict=True))
        site = given.get("--site", "")
        words = ["--scheduler", given["--scheduler"]] if "--scheduler" in given else []
        words += ["--site-file", site] if (named := Path(site).is_file()) else []
        words += ["--only", "spec"] if named or own_site().is_file() else []
        return shlex.join(["jobkit", "init", *words])
    return f"jobkit sweep {shell_quote(word)} {shlex.join(options)}".rstrip()
