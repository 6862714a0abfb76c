"""``jobkit waste``: name what a run requested and did not use."""

from __future__ import annotations

from pathlib import Path

import click

from jobkit.commands.shared import FilledPath, json_option
from jobkit.core import terminal


@click.command()
@click.argument("run", type=FilledPath(path_type=Path), required=False)
@json_option
def waste(run: Path | None, as_json: bool) -> int:
    """Print what one RUN, by default the latest, requested and did not use, with the lines that fix it.

    jobkit judges seven wastes: idle GPU, memory, cores, too large a GPU, walltime, tiny jobs, and work on
    the login node. For each it prints what was requested, what was used, by how many points, and whether
    it is waste by a stated limit; for a waste the key of the spec and the #SBATCH or #$ line that fix it.
    If something was not measured, it prints the reason. It reads the run folder, asks no scheduler and
    changes nothing.

    \b
      jobkit waste
      jobkit waste runs/stanza-20260102-101530-3f9a
      jobkit waste runs/stanza-20260102-101530-3f9a --json

    jobkit help waste explains each.

    \b
    Exit status:
      0  the run was read, with or without waste
      2  there is nothing to read
    """
    from jobkit.core.blocks import as_text
    from jobkit.core.records import Outcome
    from jobkit.report.recommend import waste as wasted
    from jobkit.report.recommend.request import read_use
    from jobkit.report.recommend.waste import wastes
    from jobkit.runs.kinds import kind_of
    from jobkit.runs.which_run import run_or_latest

    found_run = run_or_latest(run)
    use = read_use(found_run)
    found = wastes(use)
    if as_json:
        terminal.say(wasted.as_json(use, found), nl=False)
        return 0
    terminal.say(as_text(wasted.blocks(use, found), terminal.terminal_width()), nl=False)
    folder = terminal.shell_path(found_run)
    if use.unended or all(each.row.outcome is not Outcome.OK for each in use.points):
        terminal.note_next(f"jobkit status {folder}", f"how the {use.noun}s stand")
    elif not kind_of(found_run).refusal(found_run, "recommend"):
        terminal.note_next(f"jobkit recommend {folder}")
    return 0
