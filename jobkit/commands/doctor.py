"""``jobkit doctor``: check everything that a sweep needs on this machine and on a node."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobkit.commands import shared
from jobkit.core import terminal
from jobkit.core.units import parse_duration

if TYPE_CHECKING:
    from jobkit.setup.doctor_case import Case
    from jobkit.setup.findings import Finding

WITHIN = "10m"
COLOURS = {"ok": "green", "warning": "yellow", "missing": "red", "unknown": "cyan"}


@click.command("doctor", short_help="Say whether this machine, a spec, a script or a workload will work.")
@click.argument(
    "word", metavar="[SPEC|SCRIPT|WORKLOAD]", type=shared.FilledPath(), default=None, required=False
)
@shared.set_option
@shared.scheduler_option
@shared.site_option
@shared.runs_dir_option
@click.option("--submit", is_flag=True, help="Also check a node: submit a job of a minute and wait for it.")
@click.option(
    "--within",
    metavar="DURATION",
    default=WITHIN,
    show_default=True,
    help="With --submit: how long the job may wait in the queue before it is cancelled.",
)
@click.option("--all", "whole", is_flag=True, help="Also print what is ok.")
@shared.json_option
def doctor(
    word: str | None,
    overrides: tuple[str, ...],
    scheduler: str | None,
    site: str | None,
    runs_dir: Path | None,
    submit: bool,
    within: str,
    whole: bool,
    as_json: bool,
) -> int:
    """Say whether it will work, and print how to fix what is missing and what to type next.

    Without a word jobkit checks this machine: the scheduler and its queues, the names in the site file,
    folders, model, Python, torch and GPU; with a SPEC, the same against what the spec requests. A SCRIPT
    is a file with #SBATCH or #$ lines: jobkit lists the lines that the scheduler would ignore, and asks it
    whether it would take the job. Any other word is a WORKLOAD, which jobkit tries on a short text. It
    prints what is not ok and counts the rest; it changes nothing, and without --submit it submits nothing.

    \b
      jobkit doctor
      jobkit doctor first.yaml
      jobkit doctor first.yaml --submit       also from inside a job on a node
      jobkit doctor job.sh
      jobkit doctor ./tagger.py:tag

    \b
    A line is one of
      ok        as it must be
      warning   it works, but check this
      missing   it would not work
      unknown   jobkit cannot check it from here

    \b
    Exit status
      0   nothing is missing
      2   the word names nothing that jobkit can check
      4   something is missing
      130 interrupted; the submitted job is cancelled
    """
    if overrides and word is None:
        raise click.UsageError("--set changes a key of a SPEC, and no SPEC is given")
    from jobkit.planning.resolve import Options
    from jobkit.setup import doctor as checks
    from jobkit.setup import findings
    from jobkit.setup.doctor import What

    options = Options(overrides=overrides, scheduler=scheduler, site=site, runs_dir=runs_dir)
    word, within_s = word or "", parse_duration(within)
    what = checks.what_is(word)
    words = [word, *options.words]
    waits = ["--submit", *(["--within", within] if within != WITHIN else [])] if submit else []
    nodes = False
    if what in {What.SCRIPT, What.WORKLOAD}:
        from jobkit.commands.lint import is_folder

        if submit or words[1:]:
            raise click.UsageError(f"{word} is a {what}: only --all and --json go with a {what}")
        script = what is What.SCRIPT
        found = checks.script(Path(word), is_folder) if script else checks.workload(word, terminal.note)
        checked = checks.under(f"{what.capitalize()} {word}", found)
    else:
        from jobkit.setup.doctor_case import open_case

        case = open_case(Path(word) if word else None, options)
        nodes = not (submit or case.local)
        checked = _check(case, within_s if submit else None)
    if as_json:
        listed = list(checked)
        terminal.say(terminal.as_json(findings.as_json(listed), indent=1))
    else:
        listed = list(_printed(checked, whole=whole))
        again = f"jobkit doctor {shlex.join(filter(None, [*words, *waits]))}".rstrip()
        then = checks.next_command(what, word, words[1:])
        terminal.say(
            f"{findings.summary(listed, whole=whole)}\n{findings.advice(listed, again, then, nodes=nodes)}"
        )
    return findings.exit_code(listed)


def _check(case: Case, within_s: int | None) -> Iterator[Finding]:
    """Yield the findings, each as soon as it is known."""
    from jobkit.setup import doctor
    from jobkit.setup.doctor_case import with_gpus
    from jobkit.setup.init import ask_site

    yield from (before := list(doctor.opening(case)))
    survey = ask_site(case.scheduler)
    case = with_gpus(case, survey)
    yield from (asked := list(doctor.safely(survey.product, "files", doctor.scheduler(case, survey))))
    folders = doctor.inputs(case, nodes_tell=within_s is not None)
    yield from doctor.safely(doctor.INPUTS, "folders", folders)
    yield from doctor.safely(doctor.PYTHON_HERE, "files", doctor.python_here(case))
    if within_s is not None:
        in_job = doctor.in_a_job(case, [*before, *asked], within_s, terminal.note)
        yield from doctor.safely(doctor.WHERE, "files", in_job)


def _printed(findings: Iterable[Finding], *, whole: bool) -> Iterator[Finding]:
    """Yield each finding, printed under its heading unless it is ok and not all are wanted."""
    from jobkit.setup.findings import WIDTH, Status, lines

    where = ""
    for finding in findings:
        if whole or finding.status is not Status.OK:
            if finding.where != where:
                terminal.say(("\n" if where else "") + click.style(finding.where, bold=True), colours=True)
                where = finding.where
            first, *rest = lines(finding, terminal.terminal_width() or WIDTH)
            status = click.style(finding.status, fg=COLOURS[finding.status])
            terminal.say("\n".join([first.replace(finding.status, status, 1), *rest]), colours=True)
        yield finding
    if where:
        terminal.say("")
