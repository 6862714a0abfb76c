"""Write a site file and a first spec from the scheduler's answers; never overwrite a file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from jobkit.core.errors import JobkitError, UnknownError
from jobkit.core.extras import cpu_build_problem
from jobkit.core.terminal import Say, shell_quote
from jobkit.schedulers.registry import by_name, choose_scheduler, runs_here
from jobkit.schedulers.survey import (
    PRACTICE_ENV,
    PRACTICE_NEEDS,
    Queue,
    Survey,
)
from jobkit.setup.ask import ask_site
from jobkit.setup.first_files import (
    SPEC_NAME,
    InitFiles,
    choose,
    site_text,
    spec_text,
    spelt,
    workload_note,
)
from jobkit.spec.site import find_site, load_site, own_site
from jobkit.worker.measure import nvml

SITE, SPEC = "site", "spec"


def plan_for(folder: Path, scheduler: str, site: Path | None, only: str | None) -> InitFiles:
    """Return which files to write.

    ``site``: the path of the site file; ``None`` for the user's own, which ``site: auto`` finds.
    ``only``: ``site`` or ``spec`` to write only one of the two.
    """
    name, why = choose_scheduler(scheduler)
    if runs_here(name) and only == SITE:
        hint = "run it on a login node of the cluster, or name one: --scheduler slurm"
        raise JobkitError(f"there is no scheduler here to ask ({why})", hint=hint)
    path = None if runs_here(name) else (site.expanduser().absolute() if site else own_site())
    # a site file that is there, such as one for all users, is used
    use = path and not only and path.exists() and (site or find_site("auto", name)[1] == path)
    plan = InitFiles(
        scheduler=by_name(name),
        why=why,
        site_file=path,
        spec_file=None if only == SITE else folder / SPEC_NAME,
        own=site is None,
        write_site=bool(path) and only != SPEC and not use,
        date=datetime.now().astimezone().strftime("%Y-%m-%d"),
    )
    given = f" --scheduler {scheduler}" * (scheduler != "auto")
    given += f" --site-file {shell_quote(site)}" if site else ""
    wanted = [plan.site_file if plan.write_site else None, plan.spec_file]
    there = [path for path in wanted if path is not None and path.exists()]
    old_site, old_spec = (path in there for path in wanted)
    hints = []
    if old_site and plan.spec_file and not old_spec:
        hints.append(f"to write the spec alone: jobkit init {shell_quote(folder)} --only spec{given}")
    if old_spec and plan.write_site and not old_site:
        hints.append(f"to write the site file alone: jobkit init --only site{given}")
    if old_site:
        hints.append("for another site file, use --site-file FILE")
    if old_spec:
        hints.append(f"for another spec: jobkit init ANOTHER-FOLDER{given}")
    if there:
        hints.append(f"to start again, move away: {' '.join(map(str, there))}")
        message = f"nothing was written, for there is already {' and '.join(map(str, there))}"
        raise JobkitError(message, hint="; ".join(hints))
    return plan


def begin(plan: InitFiles, say: Say) -> list[tuple[Path, str]]:
    """Ask the scheduler, and write the files, all or none; return each with what it is."""
    survey, name = _asked(plan, say), plan.scheduler.NAME
    choice = choose(survey)
    files: list[tuple[Path, str, str]] = []
    if plan.write_site and plan.site_file is not None:
        usual = load_site(f"{name}-default", name)
        use = "`site: auto` finds it" if plan.own else f"a spec names it: site: {plan.site_file}"
        text = site_text(survey, choice, usual, plan)
        files.append((plan.site_file, f"the cluster's names; {use}", text))
    elif plan.site_file is not None:  # the file exists
        say(f"using the site file {plan.site_file}")
        site = load_site(plan.site, name)
        choice = spelt(choose(survey, site.queue), site.requests)
    if plan.spec_file is not None:
        text = spec_text(survey, choice, plan, cpu_build_problem(), workload_note())
        files.append((plan.spec_file, "a sweep to start from", text))
    _write(files)
    return [(path, what) for path, what, _ in files]


def _asked(plan: InitFiles, say: Say) -> Survey:
    if not plan.scheduler.COMMANDS:
        number = len(nvml.list_gpus())
        queue = Queue(name="", gpus={"": number} if number else {})
        return Survey(product=plan.scheduler.TITLE, queues=(queue,))
    say(f"asking {plan.scheduler.NAME} ({plan.why})")
    survey = ask_site(plan.scheduler)
    if survey.trouble or survey.queues is None:
        message = survey.trouble or "\n".join(survey.silent.values())
        raise UnknownError(
            f"{survey.product} does not answer; nothing was written: {message}",
            hint=f"is this a login node? {PRACTICE_NEEDS} {PRACTICE_ENV}",
        )
    return survey


def _write(files: Sequence[tuple[Path, str, str]]) -> None:
    done: list[Path] = []
    try:
        for path, _, text in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as stream:
                done.append(path)
                stream.write(text)
    except OSError as error:
        for path in done:
            path.unlink(missing_ok=True)
        raise JobkitError(
            f"{error.filename or done[-1]}: {error.strerror}; nothing was written",
            hint="name another place: jobkit init FOLDER --site-file FILE",
        ) from error
