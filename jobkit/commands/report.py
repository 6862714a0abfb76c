"""``jobkit report``: write the results of runs as one HTML file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobkit.commands.compare import runs_named
from jobkit.commands.recommend import note_apply
from jobkit.commands.shared import FilledPath, OutputPath, write_output
from jobkit.core import terminal
from jobkit.core.errors import JobkitError
from jobkit.core.records import Outcome

if TYPE_CHECKING:
    from jobkit.report.rows import MoreFigures


@click.command()
@click.argument("runs", nargs=-1, type=FilledPath(path_type=Path), metavar="[RUN]...")
@click.option(
    "--output",
    type=OutputPath(),
    metavar="FILE",
    default=Path("report.html"),
    show_default=True,
    help="Write to FILE, whole or not at all.",
)
@click.option(
    "--dcgm",
    type=click.Path(exists=True, path_type=Path, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="A report of DCGM on a job of the one RUN, to show next to its figures; may be repeated.",
)
def report(runs: tuple[Path, ...], output: Path, dcgm: tuple[Path, ...]) -> int:
    """Write the results of each RUN, by default of the latest, as one HTML file.

    The file opens anywhere, without network, and begins with the answer: of a sweep the setting, the lines to
    request and the time; of a search the setting and how many times the plain loop it is; of a corpus what is
    done, and promise and truth. Below are pictures and tables, what went wrong and what to type, and folded
    the cautions, the wastes, the versions, the spec and the script. It needs no style and no script to be
    read. With several runs it begins with a comparison of each sweep with the first, as `jobkit compare`
    prints it. jobkit only reads the run folders and asks no scheduler.

    \b
      jobkit report
      jobkit report runs/stanza-20260102-101530-3f9a --output stanza.html
      jobkit report runs/stanza-20260102-101530-3f9a --dcgm job-2650.gpu-report
      jobkit report tagged
      jobkit report runs/a100-20260102-101530-3f9a runs/v100-20260103-091200-77b2
    """
    from jobkit.report.page import page

    named = runs_named(runs)
    if dcgm and len(named) > 1:
        hint = "name one RUN, or put each report into the logs/ folder of its run, as NAME.gpu-report"
        raise JobkitError(f"--dcgm {dcgm[0]}: {len(named)} runs are named", hint=hint)
    made = page(named, _more_figures(dcgm))
    write_output(output, made.html)
    terminal.say(f"report: {terminal.shell_path(output)} ({len(made.html.encode()) / 1000:.0f} kB)")
    if len(named) == 1:
        _note_next(named[0], made.outcomes)
    return 0


def _more_figures(dcgm: tuple[Path, ...]) -> MoreFigures | None:
    """Return what puts reports of DCGM next to points; ``None`` without a report."""
    if not dcgm:
        return None
    from jobkit.extensions.other_logs.reader import dcgm_reports

    return partial(dcgm_reports, dcgm)


def _note_next(run: Path, outcomes: frozenset[Outcome | None]) -> None:
    """Print what to type next of the one run that was read; nothing of an old log, or if all is done."""
    from jobkit.core.layout import is_run_folder
    from jobkit.runs.status import kind_of

    if not is_run_folder(run):
        return
    kind = kind_of(run)
    steps = tuple(kind.steps_after(run, outcomes))
    for command, does in steps:
        terminal.note_next(command, does)
    if not steps and not kind.refusal(run, "apply"):
        note_apply(run)
