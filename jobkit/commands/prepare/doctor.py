"""``jobkit doctor``: check everything that a sweep needs on this machine and on a node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobkit.commands import shared
from jobkit.core import terminal
from jobkit.core.units import parse_duration

if TYPE_CHECKING:
    from jobkit.planning.resolve import Options
    from jobkit.setup.doctor_case import Case
    from jobkit.setup.findings import Finding

COLOURS = {"ok": "green", "warning": "yellow", "missing": "red", "unknown": "cyan"}


@click.command("doctor", short_help="Check this machine, and a node, for everything that a sweep needs.")
@click.argument("spec", type=shared.FilledPath(dir_okay=False, path_type=Path), required=False)
@shared.set_option
@shared.scheduler_option
@shared.site_option
@shared.runs_dir_option
@click.option("--submit", is_flag=True, help="Also check a node: submit a job of a minute and wait for it.")
@click.option(
    "--within",
    metavar="DURATION",
    default="10m",
    show_default=True,
    help="With --submit: how long the job may wait in the queue before it is cancelled.",
)
@shared.json_option
def doctor(
    spec: Path | None,
    overrides: tuple[str, ...],
    scheduler: str | None,
    site: str | None,
    runs_dir: Path | None,
    submit: bool,
    within: str,
    as_json: bool,
) -> int:
    """Check everything that a sweep needs on this machine, and print how to fix what is missing.

    jobkit checks the scheduler and its queues, the names in the site file, folders, model, Python,
    torch and GPU; with a SPEC, against what the spec requests. It changes nothing, and without --submit
    it submits nothing.

    \b
      jobkit doctor
      jobkit doctor sweeps/stanza.yaml
      jobkit doctor --submit                  also from inside a job on a node
      jobkit doctor --scheduler sge --site mine.yaml

    \b
    A line is one of
      ok        as a sweep needs it
      warning   a sweep works, but check this
      missing   a sweep would not work
      unknown   jobkit cannot check it from here

    \b
    Exit status
      0   nothing is missing
      4   something is missing
      130 interrupted; the submitted job is cancelled
    """
    if overrides and spec is None:
        raise click.UsageError("--set changes a key of a SPEC, and no SPEC is given")
    from jobkit.planning.resolve import Options
    from jobkit.setup import findings
    from jobkit.setup.doctor_case import open_case

    options = Options(overrides=overrides, scheduler=scheduler, site=site, runs_dir=runs_dir)
    within_s = parse_duration(within)
    case = open_case(spec, options)
    checked = _check(case, within_s if submit else None)
    listed = list(checked if as_json else _printed(checked))
    if as_json:
        terminal.say(terminal.as_json(findings.as_json(listed), indent=1))
    else:
        unseen = not (submit or case.local)
        advice = findings.advice(listed, [str(spec or "SPEC"), *_words(options)], nodes=unseen)
        terminal.say(f"\n{findings.summary(listed)}\n{advice}")
    return findings.exit_code(listed)


def _words(options: Options) -> Iterator[str]:
    """Yield the options that the sweep needs too, so that it is the sweep that was checked."""
    for change in options.overrides:
        yield from ("--set", change)
    named = {"--scheduler": options.scheduler, "--site": options.site, "--runs-dir": options.runs_dir}
    for name, value in named.items():
        if value is not None:
            yield from (name, str(value))


def _check(case: Case, within_s: int | None) -> Iterator[Finding]:
    """Yield the findings, each as soon as it is known."""
    from jobkit.setup import doctor, doctor_job
    from jobkit.setup.ask_site import ask_site
    from jobkit.setup.doctor_case import with_gpus

    yield from (before := list(doctor.opening(case)))
    survey = ask_site(case.scheduler)
    case = with_gpus(case, survey)
    yield from (asked := list(doctor.safely(survey.product, "files", doctor.scheduler(case, survey))))
    folders = doctor.inputs(case, nodes_tell=within_s is not None)
    yield from doctor.safely(doctor.INPUTS, "folders", folders)
    yield from doctor.safely(doctor.PYTHON_HERE, "files", doctor.python_here(case))
    if within_s is not None:
        in_job = doctor_job.in_a_job(case, [*before, *asked], within_s, terminal.note)
        yield from doctor.safely(doctor_job.WHERE, "files", in_job)


def _printed(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Print each finding under its heading, and yield it."""
    from jobkit.setup.findings import WIDTH, lines

    where = ""
    for finding in findings:
        if finding.where != where:
            heading = click.style(finding.where, bold=True)
            terminal.say(("\n" if where else "") + heading, colours=True)
            where = finding.where
        first, *rest = lines(finding, terminal.terminal_width() or WIDTH)
        status = click.style(finding.status, fg=COLOURS[finding.status])
        terminal.say(first.replace(finding.status, status, 1), colours=True)
        for line in rest:
            terminal.say(line)
        yield finding
