"""Before the first sweep: ``jobkit init``, ``doctor`` and ``lint``. For programs: ``emit`` and ``schema``."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobkit.commands import shared
from jobkit.commands.listing import removed
from jobkit.core import terminal
from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.extras import EXTRAS, NO_EXTRA, missing_extra
from jobkit.core.files import MOST_BYTES, read_bytes
from jobkit.core.units import parse_duration

if TYPE_CHECKING:
    from jobkit.planning.prepare import Options
    from jobkit.setup.doctor import Case
    from jobkit.setup.findings import Finding


@click.command("init", short_help="Write a site file and a first spec.")
@click.argument("folder", metavar="[DIR]", type=click.Path(file_okay=False, path_type=Path), default=".")
@partial(shared.scheduler_option, default="the scheduler on this machine")
@click.option(
    "--site-file",
    "site",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the site file to FILE, for other users too. Default: your own, which `site: auto` finds.",
)
@click.option(
    "--only", type=click.Choice(["site", "spec"]), help="Write only the site file or only the spec."
)
@click.option(
    "--extra",
    "extras",
    multiple=True,
    type=click.Choice([*EXTRAS, NO_EXTRA]),
    help="What jobkit needs there; --on HOST installs it. Default: stanza.",
)
@click.option("--install", is_flag=True, expose_value=False, help="With --on HOST: install jobkit there.")
def init(
    folder: Path, scheduler: str | None, site: Path | None, only: str | None, extras: tuple[str, ...]
) -> int:
    """Ask the scheduler about this cluster, and write a site file and a first spec.

    The site file has the cluster's names for queues, GPUs and memory; it goes into your configuration
    folder, where `site: auto` finds it. The spec, first.yaml, is a small sweep that fits the cluster; it
    goes into DIR. Each choice has a comment with its source and the alternatives. jobkit never
    overwrites a file.

    \b
      jobkit init
      jobkit init my-project
      jobkit init --only spec                          keep the site file as it is
      jobkit init --only site --site-file /shared/ours.yaml    one site file for all users of a cluster

    Without a scheduler on this machine jobkit writes only the spec, and sweeps run here.
    """
    from jobkit.setup.init import begin, plan_for

    written = begin(plan_for(folder, scheduler or "auto", site, only), terminal.note)
    width = max(len(terminal.relative_path(path)) for path, _ in written)
    for path, what in written:
        terminal.say(f"wrote {terminal.relative_path(path):<{width}}  {what}")
    for extra in sorted({*(extras or ("stanza",))} - {NO_EXTRA}) if only != "site" else ():
        if lack := missing_extra("first.yaml", extra):
            terminal.note(f"{lack.message}: {lack.hint}")
    given = [*(("--scheduler", scheduler) if scheduler else ()), *(("--site", str(site)) if site else ())]
    words = shlex.join(given) if only == "site" else terminal.shell_path(written[-1][0])
    terminal.say(terminal.next_line(f"jobkit doctor {words}".rstrip()))
    return 0


WITHIN = "10m"


@click.command("doctor", short_help="Say whether this machine or a spec will work.")
@click.argument("word", metavar="[SPEC]", type=shared.FilledPath(), default=None, required=False)
@shared.set_option
@shared.scheduler_option
@shared.site_option
@shared.runs_dir_option
@shared.stand_in_option
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
@shared.options_of_spec
def doctor(word: str | None, options: Options, submit: bool, within: str, whole: bool, as_json: bool) -> int:
    """Say whether it will work, and print how to fix what is missing and what to type next.

    Without a SPEC jobkit checks this machine: the scheduler and its queues, the names in the site file,
    folders, model, Python, torch and GPU; with a SPEC, the same against what the spec requests. It prints
    what is not ok and counts the rest; it changes nothing, and without --submit it submits nothing.

    \b
      jobkit doctor
      jobkit doctor first.yaml
      jobkit doctor first.yaml --submit       also from inside a job on a node

    \b
    A line is one of
      ok        as it must be
      warning   it works, but check this
      missing   it would not work
      unknown   jobkit cannot check it from here

    \b
    Exit status
      0   nothing is missing
      2   the word names no spec
      4   something is missing
      130 interrupted; the submitted job is cancelled
    """
    if (options.overrides or options.stand_in) and word is None:
        raise click.UsageError("--set and --stand-in change keys of a SPEC, and no SPEC is given")
    from jobkit.setup import doctor as checks
    from jobkit.setup import findings
    from jobkit.setup.doctor import open_case

    word, within_s = word or "", parse_duration(within)
    _refuse_no_spec(word)
    words = [word, *options.words]
    waits = ["--submit", *(["--within", within] if within != WITHIN else [])] if submit else []
    case = open_case(Path(word) if word else None, options)
    nodes = not (submit or case.local)
    checked = _check(case, within_s if submit else None)
    if as_json:
        listed = list(checked)
        terminal.say(terminal.as_json(findings.as_json(listed), indent=1))
    else:
        listed = list(_printed(checked, whole=whole))
        again = f"jobkit doctor {shlex.join(filter(None, [*words, *waits]))}".rstrip()
        then = checks.next_command(word, words[1:])
        terminal.say(
            f"{findings.summary(listed, whole=whole)}\n{findings.advice(listed, again, then, nodes=nodes)}"
        )
    return findings.exit_code(listed)


def _refuse_no_spec(word: str) -> None:
    """Refuse what is no spec; an earlier version checked scripts and workloads too."""
    from jobkit.setup.check_workload import SPEC_SUFFIXES

    here = Path(word).exists()
    if word.endswith(SPEC_SUFFIXES):
        if not here:
            raise JobkitError(f"{word}: there is no such file", hint="jobkit init writes a first spec")
    elif word.endswith((".sh", ".slurm", ".sbatch", ".sge", ".qsub", ".job")):
        raise removed("doctor SCRIPT", [word])
    elif word and (word.endswith(".py") or not here):
        raise removed("doctor WORKLOAD", [word])


def _check(case: Case, within_s: int | None) -> Iterator[Finding]:
    """Yield the findings, each as soon as it is known."""
    from jobkit.setup import doctor
    from jobkit.setup.ask import ask_site

    yield from (before := list(doctor.under(doctor.HERE, doctor.opening(case))))
    survey = ask_site(case.scheduler)
    case = doctor.with_gpus(case, survey)
    yield from (asked := list(doctor.safely(survey.product, "files", doctor.scheduler(case, survey))))
    folders = doctor.inputs(case, nodes_tell=within_s is not None)
    yield from doctor.safely(doctor.INPUTS, "folders", folders)
    known = {(finding.name, finding.said) for finding in asked}
    here = doctor.safely(doctor.PYTHON_HERE, "files", doctor.python_here(case))
    yield from (finding for finding in here if (finding.name, finding.said) not in known)
    if within_s is not None:
        in_job = doctor.in_a_job(case, [*before, *asked], within_s, terminal.note)
        yield from doctor.safely(doctor.WHERE, "files", in_job)


def _printed(findings: Iterable[Finding], *, whole: bool) -> Iterator[Finding]:
    """Yield each finding, printed under its heading unless it is ok and not all are wanted."""
    from jobkit.setup.findings import WIDTH, Status, lines

    where = ""
    colours = {"ok": "green", "warning": "yellow", "missing": "red", "unknown": "cyan"}
    for finding in findings:
        if whole or finding.status is not Status.OK:
            if finding.where != where:
                terminal.say(("\n" if where else "") + click.style(finding.where, bold=True), colours=True)
                where = finding.where
            first, *rest = lines(finding, terminal.terminal_width() or WIDTH)
            status = click.style(finding.status, fg=colours[finding.status])
            terminal.say("\n".join([first.replace(finding.status, status, 1), *rest]), colours=True)
        yield finding
    if where:
        terminal.say("")


@click.command("lint", short_help="List what a scheduler would silently ignore in a job script.")
@click.argument("scripts", nargs=-1, required=True, metavar="SCRIPT...")
@shared.json_option
def lint(scripts: tuple[str, ...], as_json: bool) -> int:
    """List what Slurm or Grid Engine would ignore or misread in the job script SCRIPT.

    Schedulers accept a job script with a misspelt directive, or with a directive after the first
    command, and ignore it without a message: the job then runs with too little memory or on the wrong
    node, or dies without a log. jobkit submits nothing and needs no scheduler; the directives show which
    scheduler a script is for. SCRIPT - is standard input.

    \b
      jobkit lint job.sh
      jobkit lint *.sh
      jobkit lint job.sh --json
      jobkit lint - <job.sh

    jobkit looks for log folders from the working directory, as if you submitted from here.
    Every rule, and how it was measured: jobkit help lint.

    \b
    Exit status:
      0  no findings
      2  findings, or a script that cannot be read
    """
    from jobkit.schedulers.lint import lint as lint_script
    from jobkit.schedulers.lint import summary
    from jobkit.schedulers.registry import SCHEDULERS

    results = [
        lint_script(_read(script), "standard input" if script == "-" else script, is_folder)
        for script in scripts
    ]
    if as_json:
        terminal.say(terminal.as_json({"scripts": [result.as_json() for result in results]}, indent=2))
    else:
        for line in (line for result in results for line in result.lines()):
            terminal.say(line)
        titles = " or ".join(scheduler.TITLE for scheduler in SCHEDULERS.values() if scheduler.DIRECTIVE)
        for result in (result for result in results if not result.found):
            terminal.say(f"{result.name}: has no directive of {titles}", err=True)
        terminal.say(summary(results), err=True)
    return ExitCode.USAGE if any(result.findings for result in results) else ExitCode.DONE


def _read(script: str) -> str:
    """Return the text of a script; bytes that are not UTF-8 become question marks."""
    try:
        piped, path = script == "-", Path(script)
        raw = sys.stdin.buffer.read(MOST_BYTES + 1) if piped else read_bytes(path, MOST_BYTES, typed=True)
    except OSError as error:
        hint = "name a job script, or - for standard input"
        raise JobkitError(f"{script}: cannot be read: {error.strerror}", hint=hint) from error
    name = "standard input" if piped else script
    if len(raw) > MOST_BYTES:
        raise JobkitError(f"{name}: more than {MOST_BYTES // 2**20} MiB", hint="name a job script")
    if b"\0" in raw:
        raise JobkitError(f"{name}: not a script: the file contains a zero byte", hint="name a text file")
    return raw.decode("utf-8", "replace")


def is_folder(path: str) -> bool:
    """Return whether a path is a folder, relative to the working directory."""
    filled = os.path.expandvars(path) if "$" in path else path
    return Path(filled).expanduser().is_dir()


@click.command(short_help="Report figures of a running program to jobkit, from a shell.")
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
def emit(pairs: tuple[str, ...]) -> None:
    """Append a line to the file JOBKIT_METRICS, from which jobkit reads a program's own figures.

    \b
      jobkit emit items=32 seconds=0.41 load=30112        a batch
      jobkit emit metric=f1 value=0.91 unit=1             a figure of the whole run

    A program that is Python calls jobkit.emit(items=32, seconds=0.41) instead. If the program does not run
    under jobkit, nothing is written.
    """
    from jobkit.worker.measure import figures
    from jobkit.worker.measure.emit import emit as append

    line = dict(map(_pair, pairs))
    try:
        figures.parse(json.dumps(line))
    except JobkitError as error:
        hint = "a batch has items and seconds; a figure has metric and value"
        raise JobkitError(f"{' '.join(pairs)}: {error.message}", hint=hint) from error
    if not os.environ.get(figures.VARIABLE):
        terminal.say(f"{figures.VARIABLE} is not set, so nothing is written", err=True)
        return
    append(**line)


def _pair(text: str) -> tuple[str, object]:
    """Return a key and its value: a number where the key has one."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise JobkitError(f"{text!r} is not KEY=VALUE", hint="for instance items=32")
    if key not in ("items", "seconds", "load", "worker", "value"):
        return key, value
    try:
        return key, float(value) if not value.lstrip("+-").isdecimal() else int(value)
    except ValueError as error:
        raise JobkitError(f"{text!r}: should be a number", hint="for instance items=32") from error


@click.command("schema", short_help="Print the JSON schema of specs.")
def schema() -> int:
    """Print the JSON schema of specs, with which an editor checks and completes a spec.

    \b
      jobkit schema > jobkit.schema.json

    Then write this as the first line of a spec in the same folder:

    \b
      # yaml-language-server: $schema=jobkit.schema.json
    """
    from jobkit.spec.sweep_spec import schema_text

    terminal.say(schema_text(), nl=False)
    return 0
