"""Check everything that a sweep needs, in the order that a newcomer reads."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from jobkit.core import shell
from jobkit.core.errors import JobkitError
from jobkit.core.files import read_text
from jobkit.core.paths import cache_dir
from jobkit.planning.job_script import (
    COPIER,
    PROGRAMS,
    SCRATCH_MARGIN_BYTES,
    render_bare,
    render_errand,
)
from jobkit.planning.resolve import idle_gpus, needed_gpus
from jobkit.schedulers.survey import Survey
from jobkit.schedulers.types import ONE_TASK, Request
from jobkit.setup import check_machine, check_site
from jobkit.setup.check_node import MACHINE, PYTHON, NodeRequest, check_node, programs
from jobkit.setup.doctor_case import Case, inputs_of, needs_model
from jobkit.setup.facts import ANSWER_FILE, EXAMINED_FILE, Facts, read_facts
from jobkit.setup.findings import Finding, Status, fine, missing, warning
from jobkit.spec.axes import settings
from jobkit.spec.fields import Auto
from jobkit.spec.repeats import most
from jobkit.spec.sweep_spec import Environment, SweepSpec
from jobkit.submit.scheduler_calls import submission_environment

BODY = "doctor.sh.j2"
STEP_LIMIT_S = 60
"""Limit of one step of a check: torch from a cold file server takes most of a minute."""
LOOK_LIMIT_S = 180.0
ASK_LIMIT_S = 20.0

HERE, INPUTS, PYTHON_HERE = "This machine", "Folders and inputs", "Python, as a job would have it"


def safely(where: str, name: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yield findings; an error of the file system is the last of them."""
    try:
        yield from findings
    except OSError as error:
        yield from under(where, [missing(name, str(error))])


def under(where: str, findings: Iterator[Finding] | Sequence[Finding]) -> Iterator[Finding]:
    """Yield findings with their heading."""
    return (replace(finding, where=where) for finding in findings)


def opening(case: Case) -> Iterator[Finding]:
    """Yield the findings for which no scheduler is asked."""
    first = [check_machine.jobkit_itself(), *(finding for finding in case.opening if finding.name == "spec")]
    here = f"{case.why}: points would run here, one at a time"
    yield from under(HERE, [*first, check_machine.commands(case.scheduler, here)])


def scheduler(case: Case, survey: Survey) -> Iterator[Finding]:
    """Yield the findings from the scheduler's answers, for a point of the spec."""
    if case.local:
        return
    findings = [check_site.controller(survey)]
    findings += [finding for finding in case.opening if finding.name == "site file"]
    try:
        request = case.request()
    except JobkitError as error:
        findings.append(missing("job script", error.message, error.hint))
    else:
        if not survey.trouble:
            findings += check_site.check_site(survey, _asking(case, survey, request))
            if idle := idle_gpus(case.spec, case.scheduler.NAME, case.device):
                findings.append(warning("GPUs in use", idle, needed_gpus(case.device)))
            findings += _tried(case, request, findings)
    yield from under(survey.product, findings)


def _asking(case: Case, survey: Survey, request: Request) -> check_site.SiteRequest:
    return check_site.SiteRequest(
        request=request,
        site=case.site,
        queue_key=_queue_key(case),
        limit=case.scheduler.parse_limit(survey.limits),
        points=_points(case.spec) if case.given else 0,
    )


def _points(spec: SweepSpec) -> int:
    """Return how many points a spec has; 0 if its batch sizes are not chosen yet."""
    axes = spec.sweep
    if any(isinstance(values, Auto) for values in axes.product.values()):
        return 0
    return len(settings(axes.product, axes.zip, axes.include, axes.exclude)) * most(spec.repeats)


def _queue_key(case: Case) -> str:
    if case.spec.resources.queue:
        return "resources.queue in the spec"
    return f"`queue` in {case.site_file}" if case.site.queue else "`queue` in the site file"


def _tried(case: Case, request: Request, findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the scheduler's answer to a trial submission of a point, if it has a command for that."""
    name = "job"
    with tempfile.TemporaryDirectory(prefix="jobkit-doctor-") as folder:
        script = Path(folder) / "job.sh"
        try:
            script.write_text(script_for(case, Path(folder), case.spec), encoding="utf-8")
        except (JobkitError, OSError) as error:
            yield missing(name, str(error))
            return
        checks = case.scheduler.checks(str(script), ONE_TASK, request)
        asked = [check for check in checks if str(script) in check.argv]
        env = submission_environment()
        answers = [(check, shell.run(check.argv, env=env, timeout_s=ASK_LIMIT_S)) for check in asked]
    refused = [text for check, answer in answers if (text := check.refusal(answer))]
    if refused:
        hint = "change the site file's `requests` or `options`"
        if any(finding.status is Status.MISSING for finding in findings):
            hint = "fix what is missing above first"
        yield missing(name, "\n".join(refused), hint)
    elif answers:
        outlook = [text for check, answer in answers if (text := check.outlook(answer))]
        yield fine(name, "; ".join([f"{asked[0].argv[0]} would take a job like a point's", *outlook]))


def script_for(case: Case, run_dir: Path, spec: SweepSpec, *, bare: bool = False) -> str:
    """Return the script of the check, as a job of a spec, or without a header to run here.

    Raises
    ------
    JobkitError
        As `jobkit.planning.job_script.render_errand`.
    """
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
    render = render_bare if bare else render_errand
    return render(spec, case.site, run_dir, BODY, **values)


def inputs(case: Case, *, nodes_tell: bool = False) -> Iterator[Finding]:
    """Yield whether folders are writable, and whether text and model are there.

    Parameters
    ----------
    nodes_tell
        Whether a node will report which folders it sees: then jobkit does not guess.
    """
    shared = not (case.local or nodes_tell)
    findings = [check_machine.run_folders(case.runs_dir, shared=shared), check_machine.cache(shared=shared)]
    if case.given:
        findings.append(check_machine.text(case.spec, case.base))
    if case.program and (program := check_machine.program(case.program, case.staged_program)):
        findings.append(program)
    if needs_model(case):
        findings.append(check_machine.model(case.spec, case.base, case.sweep))
    yield from under(INPUTS, findings)


def python_here(case: Case) -> Iterator[Finding]:
    """Yield the findings about a job's Python, on this machine with a job's environment."""
    with tempfile.TemporaryDirectory(prefix="jobkit-doctor-") as name:
        folder = Path(name)
        try:
            script = script_for(case, folder, case.spec, bare=True)
            (folder / "look.sh").write_text(script, encoding="utf-8")
        except (JobkitError, OSError) as error:
            yield from under(PYTHON_HERE, [missing("job script", str(error))])
            return
        shell.run(("bash", str(folder / "look.sh")), env=_job_environment(case), timeout_s=LOOK_LIMIT_S)
        facts = facts_in(folder)
    probes = (*MACHINE, *PYTHON) if case.local else (programs, *PYTHON)
    yield from under(PYTHON_HERE, check_node(facts, wanted(case, on_node=case.local), probes))


def _job_environment(case: Case) -> Mapping[str, str]:
    """Return the variables with which a job starts."""
    if case.scheduler.EXPORTS_ENVIRONMENT:
        return submission_environment()
    names = {"HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"}
    kept = {name: value for name, value in os.environ.items() if name in names}
    return {"PATH": "/usr/local/bin:/bin:/usr/bin", **kept}


def facts_in(folder: Path) -> Facts:
    """Return the facts that the script left in a folder."""
    files = (folder / name for name in (ANSWER_FILE, EXAMINED_FILE))
    answer, examined = (read_text(file) if file.is_file() else "" for file in files)
    return read_facts(answer, examined)


def wanted(case: Case, *, on_node: bool) -> NodeRequest:
    """Return what a point of the case needs on a machine."""
    input_files = [file for path in inputs_of(case) for file in (path, *path.rglob("*")) if file.is_file()]
    return NodeRequest(
        device=case.device,
        workload=case.importable,
        gpus=case.spec.resources.gpus,
        scratch_bytes=SCRATCH_MARGIN_BYTES + sum(file.stat().st_size for file in input_files),
        seen=seen_from(case),
        python=_python(case.spec.environment),
        on_node=on_node,
        jobkit=metadata.version("jobkit"),
        given=case.given,
        container=case.spec.environment.container or "",
    )


def _python(environment: Environment) -> str:
    name = environment.python or "jobkit's own Python"
    return f"{name} in {environment.container}" if environment.container else name


def seen_from(case: Case) -> tuple[str, ...]:
    """Return the files and folders of this machine that a node must see."""
    cache = cache_dir()
    return tuple(map(str, [*([cache] if cache.is_dir() else []), *inputs_of(case)]))
