"""Write a site file and a spec to start from, out of what the scheduler says; never over a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.terminal import Say, shell_quote
from jobkit.run.measure import nvml
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import LAST_RESORT, by_name, choose_scheduler
from jobkit.schedulers.survey import Queue, Survey
from jobkit.setup.init_choice import Choice, choose
from jobkit.setup.init_files import SPEC_NAME, Setting, site_text, spec_text
from jobkit.setup.survey import ask_site
from jobkit.spec.site import load_site, own_site

SITE, SPEC = "site", "spec"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A file that was written, and what it is."""

    path: Path
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be written where.

    Attributes
    ----------
    scheduler, why
        The one that is asked, and why that one.
    site_file
        Where the site file goes, or lies already where only the spec is written; ``None`` without a
        scheduler, for this machine needs none.
    spec_file
        Where the spec goes; ``None`` where only the site file is written.
    own
        Whether ``site: auto`` finds the site file.
    write_site
        Whether the site file is written.
    """

    scheduler: Scheduler
    why: str
    site_file: Path | None
    spec_file: Path | None
    own: bool
    write_site: bool


def plan_for(folder: Path, scheduler: str, site: Path | None, only: str | None) -> Plan:
    """Return what is to be written where.

    Parameters
    ----------
    folder
        Gets the spec.
    scheduler
        A name, or ``auto``.
    site
        Where the site file goes; ``None`` for the user's own, which ``site: auto`` finds.
    only
        ``site`` or ``spec`` where only one of the two is wanted.

    Raises
    ------
    JobkitError
        Where a file is in the way, or a site file is wanted and there is no scheduler.
    """
    name, why = choose_scheduler(scheduler)
    if name == LAST_RESORT and only == SITE:
        hint = "run it on a login node of the cluster, or name one: --scheduler slurm"
        raise JobkitError(f"there is no scheduler here to ask ({why})", hint=hint)
    plan = Plan(
        scheduler=by_name(name),
        why=why,
        site_file=None if name == LAST_RESORT else (site.expanduser().absolute() if site else own_site()),
        spec_file=None if only == SITE else folder / SPEC_NAME,
        own=site is None,
        write_site=name != LAST_RESORT and only != SPEC,
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
    hints.append("to begin anew, move away: " + " ".join(map(str, there)))
    raise JobkitError(
        f"nothing was written, for there is already {' and '.join(map(str, there))}", hint="; ".join(hints)
    )


def begin(plan: Plan, say: Say) -> tuple[Written, ...]:
    """Ask the scheduler, and write what is planned; all of it or nothing.

    Raises
    ------
    JobkitError
        Exit code 3 where the scheduler does not answer; else where a file cannot be written.
    """
    if plan.scheduler.COMMANDS:
        say(f"asking {plan.scheduler.NAME} ({plan.why})")
    survey = _asked(plan)
    choice = choose(survey, _settled(plan))
    setting = Setting(
        scheduler=plan.scheduler.NAME,
        why=plan.why,
        site_file=str(plan.site_file or ""),
        site="auto" if plan.own else str(plan.site_file),
        date=datetime.now().astimezone().strftime("%Y-%m-%d"),
    )
    return _write(_files(plan, survey, choice, setting))


def _asked(plan: Plan) -> Survey:
    """Return what the scheduler says; of this machine, whether it has a GPU."""
    if not plan.scheduler.COMMANDS:
        cards = {"": len(nvml.list_gpus())}
        one = Queue(name="", gpus=cards if cards[""] else {})
        return Survey(product="this machine", queues=(one,))
    survey = ask_site(plan.scheduler)
    if survey.trouble or survey.queues is None:
        said = survey.trouble or "\n".join(survey.silent.values())
        raise JobkitError(
            f"{survey.product} does not answer; nothing was written: {said}",
            hint="jobkit doctor looks closer; is this a login node?",
            exit_code=ExitCode.REFUSED,
        )
    return survey


def _settled(plan: Plan) -> str | None:
    """Return the queue of a site file that there is already.

    Raises
    ------
    JobkitError
        Where it has faults, or is not there.
    """
    if plan.write_site or plan.site_file is None:
        return None
    name = "auto" if plan.own else str(plan.site_file)
    return load_site(name, plan.scheduler.NAME).queue


def _files(plan: Plan, survey: Survey, choice: Choice, setting: Setting) -> list[tuple[Written, str]]:
    files = []
    if plan.write_site and plan.site_file is not None:
        usual = load_site(f"{plan.scheduler.NAME}-default", plan.scheduler.NAME)
        found = "`site: auto` finds it" if plan.own else f"a spec names it: site: {plan.site_file}"
        what = Written(path=plan.site_file, what=f"what this cluster calls things; {found}")
        files.append((what, site_text(survey, choice, usual, setting)))
    if plan.spec_file is not None:
        what = Written(path=plan.spec_file, what="a sweep to start from")
        files.append((what, spec_text(survey, choice, setting)))
    return files


def _write(files: Sequence[tuple[Written, str]]) -> tuple[Written, ...]:
    """Write files that are not there yet; where one cannot be written, none stays."""
    done: list[Path] = []
    try:
        for one, text in files:
            one.path.parent.mkdir(parents=True, exist_ok=True)
            with one.path.open("x", encoding="utf-8") as stream:
                done.append(one.path)
                stream.write(text)
    except OSError as error:
        for path in done:
            path.unlink(missing_ok=True)
        raise JobkitError(
            f"{error.filename or done[-1]}: {error.strerror}; nothing was written",
            hint="name another place: jobkit init FOLDER --site-file FILE",
        ) from error
    return tuple(one for one, _ in files)
