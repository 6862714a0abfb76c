"""Write a site file and a first spec from the scheduler's answers; never overwrite a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.terminal import Say, shell_quote
from jobkit.core.torch_build import cpu_build_problem
from jobkit.run.measure import nvml
from jobkit.schedulers.registry import by_name, choose_scheduler, runs_here
from jobkit.schedulers.survey import PRACTICE_ENV, PRACTICE_NEEDS, Queue, Survey
from jobkit.setup.ask_site import ask_site
from jobkit.setup.init_choice import Choice, choose, spelt
from jobkit.setup.init_files import SPEC_NAME, Plan, site_text, spec_text
from jobkit.spec.site import load_site, own_site

SITE, SPEC = "site", "spec"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A file that jobkit wrote, and what it is."""

    path: Path
    what: str


def plan_for(folder: Path, scheduler: str, site: Path | None, only: str | None) -> Plan:
    """Return which files to write.

    Parameters
    ----------
    folder
        The folder of the spec.
    scheduler
        A name, or ``auto``.
    site
        The path of the site file; ``None`` for the user's own, which ``site: auto`` finds.
    only
        ``site`` or ``spec`` to write only one of the two.

    Raises
    ------
    JobkitError
        If a file exists already, or a site file is wanted without a scheduler.
    """
    name, why = choose_scheduler(scheduler)
    if runs_here(name) and only == SITE:
        hint = "run it on a login node of the cluster, or name one: --scheduler slurm"
        raise JobkitError(f"there is no scheduler here to ask ({why})", hint=hint)
    plan = Plan(
        scheduler=by_name(name),
        why=why,
        site_file=None if runs_here(name) else (site.expanduser().absolute() if site else own_site()),
        spec_file=None if only == SITE else folder / SPEC_NAME,
        own=site is None,
        write_site=not runs_here(name) and only != SPEC,
        date=datetime.now().astimezone().strftime("%Y-%m-%d"),
    )
    _refuse_to_overwrite(plan, folder)
    return plan


def _refuse_to_overwrite(plan: Plan, folder: Path) -> None:
    spec, site = plan.spec_file, plan.site_file if plan.write_site else None
    there = [path for path in (site, spec) if path is not None and path.exists()]
    if not there:
        return
    hints = []
    if site in there and plan.spec_file is not None and spec not in there:
        hints.append(f"to keep it and write the spec alone: jobkit init {shell_quote(folder)} --only spec")
    if spec in there and site is not None and site not in there:
        hints.append("to keep it and write the site file alone: jobkit init --only site")
    if site in there:
        hints.append("for another site file, use --site-file FILE")
    if spec in there:
        hints.append("for another spec: jobkit init ANOTHER-FOLDER")
    hints.append("to start again, move away: " + " ".join(map(str, there)))
    raise JobkitError(
        f"nothing was written, for there is already {' and '.join(map(str, there))}", hint="; ".join(hints)
    )


def begin(plan: Plan, say: Say) -> tuple[Written, ...]:
    """Ask the scheduler, and write the files: all or none.

    Raises
    ------
    JobkitError
        Exit code 3 if the scheduler does not answer; else if a file cannot be written, or a site file
        that is kept has errors or does not exist.
    """
    if plan.scheduler.COMMANDS:
        say(f"asking {plan.scheduler.NAME} ({plan.why})")
    survey = _asked(plan)
    exists = plan.site_file is not None and not plan.write_site
    if not exists:
        return _write(_files(plan, survey, choose(survey)))
    site = load_site(plan.site, plan.scheduler.NAME)
    return _write(_files(plan, survey, spelt(choose(survey, site.queue), site.requests)))


def _asked(plan: Plan) -> Survey:
    """Return the scheduler's description of its site; of this machine, whether it has a GPU."""
    if not plan.scheduler.COMMANDS:
        number = len(nvml.list_gpus())
        queue = Queue(name="", gpus={"": number} if number else {})
        return Survey(product=plan.scheduler.TITLE, queues=(queue,))
    survey = ask_site(plan.scheduler)
    if survey.trouble or survey.queues is None:
        message = survey.trouble or "\n".join(survey.silent.values())
        raise JobkitError(
            f"{survey.product} does not answer; nothing was written: {message}",
            hint=f"is this a login node? {PRACTICE_NEEDS} {PRACTICE_ENV}",
            exit_code=ExitCode.REFUSED,
        )
    return survey


def _files(plan: Plan, survey: Survey, choice: Choice) -> list[tuple[Written, str]]:
    files = []
    if plan.write_site and plan.site_file is not None:
        usual = load_site(f"{plan.scheduler.NAME}-default", plan.scheduler.NAME)
        use = "`site: auto` finds it" if plan.own else f"a spec names it: site: {plan.site_file}"
        what = Written(path=plan.site_file, what=f"the cluster's names; {use}")
        files.append((what, site_text(survey, choice, usual, plan)))
    if plan.spec_file is not None:
        what = Written(path=plan.spec_file, what="a sweep to start from")
        files.append((what, spec_text(survey, choice, plan, cpu_build_problem())))
    return files


def _write(files: Sequence[tuple[Written, str]]) -> tuple[Written, ...]:
    """Write new files; if one cannot be written, remove the others."""
    done: list[Path] = []
    try:
        for file, text in files:
            file.path.parent.mkdir(parents=True, exist_ok=True)
            with file.path.open("x", encoding="utf-8") as stream:
                done.append(file.path)
                stream.write(text)
    except OSError as error:
        for path in done:
            path.unlink(missing_ok=True)
        raise JobkitError(
            f"{error.filename or done[-1]}: {error.strerror}; nothing was written",
            hint="name another place: jobkit init FOLDER --site-file FILE",
        ) from error
    return tuple(file for file, _ in files)
