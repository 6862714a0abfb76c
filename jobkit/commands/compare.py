"""``jobkit compare``: print runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from jobkit.commands.shared import FilledPath, json_option
from jobkit.core import terminal
from jobkit.core.errors import JobkitError


@click.command()
@click.argument("runs", nargs=-1, required=True, type=FilledPath(path_type=Path), metavar="RUN RUN...")
@json_option
def compare(runs: tuple[Path, ...], as_json: bool) -> int:
    """Print each RUN next to the first: what they differ in, and the settings that they share.

    For speed, memory and energy jobkit prints the means, the ratio of the means and its 95 % interval. It
    calls a difference one only if the interval excludes 1. It only reads the run folders.

    \b
      jobkit compare runs/a100-20260102-101530-3f9a runs/v100-20260103-091200-77b2
      jobkit compare runs/a100-20260102-101530-3f9a runs/v100-20260103-091200-77b2 --json
    """
    from jobkit.core.blocks import as_text
    from jobkit.extensions.compare import as_data, blocks, sides
    from jobkit.report.tables import collect
    from jobkit.runs.which_run import refuse_unmeasured

    named = runs_named(runs)
    for run in named:
        refuse_unmeasured(run, "compare")
    compared = sides([collect([run]) for run in named])
    if len(compared) < 2:  # noqa: PLR2004 - two sides
        raise JobkitError(
            f"nothing to compare: {len(compared)} of these runs has a table",
            hint="name two runs with figures",
        )
    if as_json:
        terminal.say(terminal.as_json(as_data(compared), indent=1))
        return 0
    terminal.say(as_text(blocks(compared), terminal.terminal_width()), nl=False)
    return 0


def runs_named(words: Sequence[Path]) -> list[Path]:
    """Return the runs, corpora and old logs that words name, each once; the latest run without a word."""
    from jobkit.runs.which_run import run_or_latest

    found = [word if word.is_file() else run_or_latest(word) for word in words] or [run_or_latest(None)]
    return list({run.resolve(): run for run in found}.values())
