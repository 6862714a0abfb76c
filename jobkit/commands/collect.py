"""``jobkit collect``: print the scaling table of runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobkit.commands.shared import FilledPath, OutputPath, gpu_memory_option, json_option, write_output
from jobkit.core import terminal
from jobkit.core.errors import JobkitError
from jobkit.core.knobs import CPU
from jobkit.core.layout import is_run_folder
from jobkit.core.units import format_count, format_list, parse_size

if TYPE_CHECKING:
    from jobkit.report.tables import Collected

STDOUT = Path("-")
MOST_NAMED = 3


@click.command()
@click.argument("paths", nargs=-1, type=FilledPath(path_type=Path))
@click.option(
    "--format",
    "fmt",
    type=click.Choice(["table", *terminal.DELIMITERS, "json", "md"]),
    default="table",
    show_default=True,
    metavar=f"[table|{'|'.join(terminal.DELIMITERS)}|md]",
    help="table and md are for people, in GiB; csv and tsv are for programs, in bytes and seconds.",
)
@click.option(
    "--output",
    type=OutputPath(),
    metavar="FILE",
    help="Write to FILE, whole or not at all, and print nothing; - is standard output.",
)
@gpu_memory_option("The GPU memory to estimate the largest batch for. Default: that of the measured GPU.")
@json_option
@click.option(
    "--plot",
    type=OutputPath(),
    metavar="FILE.{png,svg,pdf}",
    help="Also draw memory, speed and energy to this file, with line, bound and knee. Needs jobkit[plot].",
)
@click.option(
    "--plot-size",
    type=click.Choice(["screen", "paper"]),
    default="screen",
    show_default=True,
    help="The size of the picture: of a screen, or of a column of a paper.",
)
def collect(
    paths: tuple[Path, ...],
    fmt: str,
    output: Path | None,
    gpu_memory: str | None,
    as_json: bool,
    plot: Path | None,
    plot_size: str,
) -> int:
    """Read the results of runs and print how speed and memory scale with the batch size.

    PATHS are run folders, folders of run folders, and logs of the Stanza taggers that came before
    jobkit, in any mixture. The name of a run works without its folder. Without PATHS, jobkit reads
    runs/, or the site's runs_dir. It only reads files, asks no scheduler and changes nothing, so you
    can use it at any time, also while a sweep runs.

    \b
      jobkit collect                                  every run under runs/
      jobkit collect runs/stanza-20260102-101530-3f9a one run
      jobkit collect runs/ --gpu-memory 80GiB         would a larger GPU take a larger batch?
      jobkit collect old.o2650                        a log of an earlier tagger
      jobkit collect runs/ --format csv --output points.csv
      jobkit collect runs/stanza-20260102-101530-3f9a --plot scaling.pdf

    jobkit prints one table for each combination of text, model, GPU, software versions and settings; it
    never averages points that differ in one of these. Means are over the repeats that succeeded. Below
    the table are the points that failed or are still to come, with the evidence and what to type. If
    the points show how memory grows with the load, jobkit predicts the largest batch that fits a GPU,
    with a bound, as `jobkit recommend RUN` does; else it prints why not. Of an old log it guesses by a
    straight line, without a bound.

    csv and tsv have one row per point; --json has points, sizes (means, standard deviations and
    intervals), groups, estimates and notes.

    \b
    Exit status:
      0  every point is done (out of GPU memory is a result, not a failure)
      2  there is nothing to collect
      4  some points failed
      5  some points are still to come
    """
    fmt = "json" if as_json else fmt
    output = None if output == STDOUT else output
    if output and plot and output.resolve() == plot.resolve():
        raise click.UsageError(f"--plot and --output both name {output}: give each a file of its own")
    gpu_memory_bytes = None if gpu_memory is None else parse_size(gpu_memory)
    from jobkit.runs.which_run import how_to_begin, refuse_unmeasured

    found = _named(paths)
    for path in found:
        refuse_unmeasured(path, "collect")
    # Imported here because pandas takes most of a second, which --help need not spend.
    from jobkit.report.output import render
    from jobkit.report.tables import collect as collect_runs

    if plot is not None:
        from jobkit.report.plot import pictures

        pictures.check_plot(plot)
    collected = collect_runs(found)
    if not collected.rows and not collected.sources.profiled:
        notes = "".join(f"\n  {note}" for note in collected.notes)
        raise JobkitError(f"nothing to collect{notes}", hint=how_to_begin())
    if plot is not None:
        pictures.plot(collected, plot, gpu_memory_bytes=gpu_memory_bytes, size=plot_size)
    color = output is None and sys.stdout.isatty()
    report = render(
        collected, fmt, width=terminal.page_width(), gpu_memory_bytes=gpu_memory_bytes, color=color
    )
    if output is None:
        terminal.say(_which(collected, paths, fmt) + report, nl=False, colours=color)
        if fmt == "table":
            _note_next(collected, gpu_memory)
    else:
        write_output(output, report)
    return collected.exit_code


def _which(collected: Collected, paths: tuple[Path, ...], fmt: str) -> str:
    """Return a line that names the runs that were read; nothing if PATHS names them, or for programs."""
    if paths or fmt != "table":
        return ""
    runs = [terminal.shell_path(Path(run)) for run in dict.fromkeys(row.folder for row in collected.rows)]
    number = format_count(len(runs), "run")
    return f"Of {number}: {format_list(runs[::-1], MOST_NAMED)}\n"


def _note_next(collected: Collected, gpu_memory: str | None) -> None:
    """Print what to type next, if one run was read that is done: the lines on other points have it else."""
    folders = {row.folder for row in collected.rows}
    if collected.exit_code or len(folders) != 1:
        return
    if is_run_folder(folder := Path(folders.pop())):
        on_gpu = any(
            row.point.device != CPU for row in collected.rows
        )  # of a CPU recommend refuses the option
        given = f" --gpu-memory {terminal.shell_quote(gpu_memory)}" if gpu_memory and on_gpu else ""
        terminal.note_next(f"jobkit recommend {terminal.shell_path(folder)}{given}")


def _named(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the paths to read: the folder of a run given by name; without PATHS the runs folder."""
    from jobkit.runs.which_run import find_run, how_to_begin, usual

    if paths:
        return tuple(path if path.exists() else find_run(path) or path for path in paths)
    if not usual().exists():
        raise JobkitError(f"nothing to collect: there is no {usual()}/ here", hint=how_to_begin())
    return (usual(),)


def print_table(run: Path) -> int:
    """Print the scaling table of a run; return the exit code of `jobkit collect`."""
    code: int = collect.main(args=["--", str(run)], prog_name="jobkit collect", standalone_mode=False)
    return code
