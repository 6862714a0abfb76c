"""``jobkit waste``: name what a run, or past jobs, requested and did not use."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

from jobkit.commands.shared import json_option
from jobkit.core import terminal

DAYS = 7


@click.command()
@click.argument("words", nargs=-1, metavar="[RUN | JOBID...]")
@click.option("--mine", is_flag=True, help="Judge your own jobs of the last days, whoever submitted them.")
@click.option("--name", metavar="PATTERN", help="Only your own jobs with such a name.")
@click.option("--days", type=click.IntRange(1), metavar="N", help=f"How many days back; {DAYS} by default.")
@click.option(
    "--scheduler",
    default="auto",
    metavar="NAME",
    show_default=True,
    help="The scheduler whose accounting jobkit asks, if two schedulers are here.",
)
@json_option
def waste(
    words: tuple[str, ...], mine: bool, name: str | None, days: int | None, scheduler: str, as_json: bool
) -> int:
    """Print what one RUN, by default the latest, requested and did not use, with the lines that fix it.

    jobkit judges seven wastes: idle GPU, memory, cores, too large a GPU, walltime, tiny jobs, and work on
    the login node. For each it prints what was requested, what was used, by how many points, and whether
    it is waste by a stated limit; for a waste the key of the spec and the #SBATCH or #$ line that fix it.
    If something was not measured, it prints the reason. It reads the run folder, asks no scheduler and
    changes nothing.

    Of past jobs, named by JOBID, --mine or --name, it asks the accounting (sacct or qacct): what jobs of
    one name and request used, what the next one needs, and how sure that is by their number. Jobs of
    several names are a table, worst first; --name NAME prints all about one.

    \b
      jobkit waste
      jobkit waste runs/stanza-20260102-101530-3f9a
      jobkit waste runs/stanza-20260102-101530-3f9a --json
      jobkit waste 4711 4712
      jobkit waste --mine --days 30
      jobkit waste --name 'train*'

    jobkit help waste explains each.

    \b
    Exit status:
      0  the run or the jobs were read, with or without waste
      2  there is nothing to read
      3  the accounting does not answer
    """
    from jobkit.extensions.past_jobs.ask import JOB_ID

    words = tuple(part for word in words for part in _split(word))
    ids = tuple(word for word in words if JOB_ID.fullmatch(word))
    if name == "":
        raise click.UsageError("--name is empty; is a variable of your shell not set?")
    if not (ids or mine or name):
        if days is not None:
            raise click.UsageError("--days needs --mine or --name: a run is read as a whole")
        return _of_run(words, as_json=as_json)
    _refuse_mixture(words, ids, own=mine or bool(name), days=days)
    return _of_jobs(ids, name or "*", days or DAYS, scheduler, as_json=as_json)


def _split(word: str) -> list[str]:
    """Return the ids of a list with commas, as schedulers take it; any other word as it is."""
    return word.split(",") if re.fullmatch(r"[\d_.,+]*\d,\d[\d_.,+]*", word) else [word]


def _refuse_mixture(words: tuple[str, ...], ids: tuple[str, ...], *, own: bool, days: int | None) -> None:
    """Refuse words that ask for two things at once, and a number that names a folder too."""
    from jobkit.core.errors import JobkitError

    if words and own:
        raise click.UsageError(
            "--mine and --name choose among your own jobs: name no RUN and no JOBID with them"
        )
    if ids and days is not None:
        raise click.UsageError("--days is for --mine and --name: jobkit finds a JOBID however old the job is")
    if others := [word for word in words if word not in ids]:
        raise click.UsageError(f"{others[0]} is no job id: name one RUN, or only job ids")
    for word in ids if len(ids) == 1 else ():
        if Path(word).exists():
            hint = f"the folder: jobkit waste ./{word}; the job: (cd / && jobkit waste {word})"
            raise JobkitError(f"{word}: a job id, and a folder here has that name", hint=hint)


def _of_jobs(ids: tuple[str, ...], name: str, days: int, scheduler: str, *, as_json: bool) -> int:
    """Print what past jobs used."""
    from jobkit.core.blocks import as_text
    from jobkit.extensions.past_jobs import show
    from jobkit.extensions.past_jobs.ask import ask

    history = ask(ids, days=days, name=name, scheduler=scheduler)
    if as_json:
        for piece in show.as_json(history):
            terminal.say(piece, nl=False)
        return 0
    groups = show.worst_first(history.jobs)
    worst = groups[0].jobs[0].name
    table = not ids and any(group.jobs[0].name != worst for group in groups)
    text = as_text(show.blocks(history, groups, table=table), terminal.terminal_width())
    terminal.say(text, nl=False)
    if table:
        words = ["jobkit", "waste", "--name", worst, *(["--days", str(days)] if days != DAYS else [])]
        words += ["--scheduler", scheduler] if scheduler != "auto" else []
        terminal.note_next(shlex.join(words), "the lines for the next job of a name")
    return 0


def _of_run(words: tuple[str, ...], *, as_json: bool) -> int:
    """Print what a run used."""
    from jobkit.core.blocks import as_text
    from jobkit.core.errors import JobkitError
    from jobkit.core.records import Outcome
    from jobkit.report.recommend import waste as wasted
    from jobkit.report.recommend.material import read_use
    from jobkit.report.recommend.waste import wastes
    from jobkit.runs.status import kind_of
    from jobkit.runs.which_run import run_or_latest

    if len(words) > 1:
        raise click.UsageError(f"{words[1]}: one RUN at a time")
    if words == ("",):
        raise click.UsageError("RUN is empty; is a variable of your shell not set?")
    try:
        run = run_or_latest(words[0] if words else None)
    except JobkitError as error:
        if words:
            raise
        raise JobkitError(error.message, hint=f"{error.hint}; past jobs: jobkit waste --mine") from error
    use = read_use(run)
    found = wastes(use)
    if as_json:
        terminal.say(wasted.as_json(use, found), nl=False)
        return 0
    terminal.say(as_text(wasted.blocks(use, found), terminal.terminal_width()), nl=False)
    folder = terminal.shell_path(run)
    if use.unended or all(each.row.outcome is not Outcome.OK for each in use.points):
        terminal.note_next(f"jobkit status {folder}", f"how the {use.noun}s stand")
    elif not kind_of(run).refusal(run, "recommend"):
        terminal.note_next(f"jobkit recommend {folder}")
    return 0
