"""``jobkit doctor``: everything that must be true here before a sweep works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobkit.commands.shared import json_option, runs_dir_option, scheduler_option, set_option, site_option
from jobkit.core import terminal
from jobkit.core.units import parse_duration

if TYPE_CHECKING:
    from jobkit.planning.resolve import Options
    from jobkit.setup.case import Case
    from jobkit.setup.findings import Finding

COLOURS = {"ok": "green", "warning": "yellow", "missing": "red", "unknown": "cyan"}


@click.command("doctor", short_help="Say what is missing before a sweep works.")
@click.argument("spec", type=click.Path(dir_okay=False, path_type=Path), required=False)
@set_option
@scheduler_option
@site_option
@runs_dir_option
@click.option("--submit", is_flag=True, help="Look on a node too: a job of a minute, waited for.")
@click.option(
    "--within",
    metavar="DURATION",
    default="10m",
    show_default=True,
    help="With --submit: how long it may wait in the queue before it is cancelled.",
)
@json_option
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
    """Look at what must be true on this machine before a sweep works, each with what mends it.

    The scheduler and its queues, the names of the site file, folders, model, Python, torch and
    GPU. With a SPEC it is held against what that asks for. Nothing is changed, and without
    --submit nothing is submitted.

    \b
      jobkit doctor
      jobkit doctor sweeps/stanza.yaml
      jobkit doctor --submit                  from inside a job on a node
      jobkit doctor --scheduler sge --site mine.yaml

    \b
    A line is one of
      ok        as it must be
      warning   a sweep works, but look at it
      missing   a sweep would not work
      unknown   it cannot be seen from here

    \b
    Exit status
      0   nothing is missing
      4   something is missing
      130 interrupted; a job that was submitted is cancelled
    """
    if overrides and spec is None:
        raise click.UsageError("--set changes a key of a SPEC, and none is named")
    from jobkit.planning.resolve import Options
    from jobkit.setup import findings
    from jobkit.setup.case import open_case

    options = Options(overrides=overrides, scheduler=scheduler, site=site, runs_dir=runs_dir)
    within_s = parse_duration(within)
    case = open_case(spec, options)
    printer = _Printer(silent=as_json)
    found = [printer.show(one) for one in _look(case, within_s if submit else None)]
    if as_json:
        terminal.say(terminal.as_json(findings.as_json(found), indent=1))
    else:
        unseen = not (submit or case.local)
        advice = findings.advice(found, [str(spec or "SPEC"), *_words(options)], nodes=unseen)
        terminal.say(f"\n{findings.summary(found)}\n{advice}")
    return findings.exit_code(found)


def _words(options: Options) -> Iterator[str]:
    """Yield the options that a sweep takes too: without them it would be another than was looked at."""
    for change in options.overrides:
        yield from ("--set", change)
    named = {"--scheduler": options.scheduler, "--site": options.site, "--runs-dir": options.runs_dir}
    for name, value in named.items():
        if value is not None:
            yield from (name, str(value))


def _look(case: Case, within_s: int | None) -> Iterator[Finding]:
    """Yield what is found, as it is found."""
    from jobkit.setup import doctor, doctor_job
    from jobkit.setup.case import with_gpus
    from jobkit.setup.survey import ask_site

    yield from (before := list(doctor.opening(case)))
    survey = ask_site(case.scheduler)
    case = with_gpus(case, survey)
    told = doctor.safely(survey.product, "files", doctor.scheduler(case, survey))
    yield from (asked := list(told))
    folders = doctor.inputs(case, nodes_tell=within_s is not None)
    yield from doctor.safely(doctor.INPUTS, "folders", folders)
    yield from doctor.safely(doctor.PYTHON_HERE, "files", doctor.python_here(case))
    if within_s is not None:
        looked = doctor_job.in_a_job(case, [*before, *asked], within_s, say)
        yield from doctor.safely(doctor_job.WHERE, "files", looked)


def say(text: str) -> None:
    """Print a line of progress."""
    terminal.say(text, err=True)


class _Printer:
    """Prints findings as they come, under their headings; nothing where silent."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self._where = ""

    def show(self, one: Finding) -> Finding:
        """Print a finding, and return it."""
        from jobkit.setup.findings import WIDTH, lines

        if self._silent:
            return one
        if one.where != self._where:
            terminal.say(("\n" if self._where else "") + click.style(one.where, bold=True), colours=True)
            self._where = one.where
        first, *rest = lines(one, terminal.terminal_width() or WIDTH)
        status = click.style(one.status, fg=COLOURS[one.status])
        terminal.say(first.replace(one.status, status, 1), colours=True)
        for line in rest:
            terminal.say(line)
        return one
