"""``jobkit shell``: a shell on a node in which a point runs by hand."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobkit.commands import shared
from jobkit.core import terminal
from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.layout import read_points

if TYPE_CHECKING:
    from jobkit.core.records import Point
    from jobkit.launch.launch import Session
    from jobkit.planning.resolve import Options

RESOURCES = "resources."
"""Keys of a run's spec that `--set` may change: its job script is written, and has the rest."""


@click.command(short_help="Print or start a shell on a node, to run a point by hand.")
@click.argument("source", type=shared.FilledPath(path_type=Path), metavar="SPEC|RUN")
@click.option("--point", "word", metavar="K", help="The point, by number or id. Default: the first.")
@click.option("--go", is_flag=True, help="Start the shell in this terminal.")
@shared.set_option
@shared.stand_in_option
@shared.scheduler_option
@shared.site_option
@shared.runs_dir_option
def shell(
    source: Path,
    word: str | None,
    go: bool,
    overrides: tuple[str, ...],
    stand_in: bool,
    scheduler: str | None,
    site: str | None,
    runs_dir: Path | None,
) -> int:
    """Print the command for a shell on a node, and what to type there to run one point.

    The command is `srun --pty` or `qrsh` with the request of the point's job. `bash job.sh K` then does
    what the job does: it copies the inputs to scratch, activates the environment, runs the point and
    copies the results home. With a SPEC, jobkit writes a run folder into runs/shell/ and submits nothing;
    with a RUN, it is a point of that run, such as one that failed.

    \b
      jobkit shell first.yaml
      jobkit shell first.yaml --point 3 --go --set resources.walltime=1h
      jobkit shell runs/stanza-20260102-101530-3f9a --point 12

    Without a scheduler no allocation is needed: the command runs the point in this shell.

    \b
    Exit status:
      0  the commands were printed, or the shell ended with status 0
      2  no such point, or no terminal for --go
      3  the scheduler refused, or does not answer
      4  the shell ended with another status, which is printed
    """
    from jobkit.planning.resolve import Options
    from jobkit.runs.which_run import find_run

    options = Options(
        overrides=overrides, scheduler=scheduler, site=site, runs_dir=runs_dir, stand_in=stand_in
    )
    if go and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise JobkitError(
            "--go needs a terminal", hint="leave --go out, and type the command that is printed"
        )
    run = find_run(source)
    session, point, number = (
        _of_run(run.absolute(), word, options) if run else _of_spec(source, word, options)
    )
    terminal.say(_as_text(session, point, number))
    if not go:
        if session.refused:
            terminal.note(str(session.refused))
        return 0
    status = session.go() if session.argv else 0
    if status:
        terminal.note(f"{session.argv[0]} ended with status {status}")
    return ExitCode.FAILED if status else ExitCode.DONE


def _of_run(run: Path, word: str | None, options: Options) -> tuple[Session, Point, int]:
    """Return the shell for a point of a run, the point, and how many points the run has."""
    from jobkit.launch.guards import refuse_moved_run
    from jobkit.launch.launch import session
    from jobkit.launch.resubmit import spec_of_run
    from jobkit.spec.site import load_site

    fixed = [key for key in ("scheduler", "site", "runs_dir") if getattr(options, key)]
    if fixed:
        key = fixed[0].replace("_", "-")
        raise JobkitError(f"--{key}: a run has its own {key}", hint=f"leave --{key} out, or name a spec")
    for override in options.overrides:
        if not override.startswith(RESOURCES):
            message = f"--set {override}: a run has its job script already; only {RESOURCES}... can change"
            raise JobkitError(message, hint="to change another key name a spec")
    refuse_moved_run(run)
    spec, (points, _) = spec_of_run(run, options.overrides), read_points(run)
    point = _chosen(points, word, run)
    return session(spec, load_site(spec.site, spec.scheduler), point, run), point, len(points)


def _of_spec(path: Path, word: str | None, options: Options) -> tuple[Session, Point, int]:
    """Write a run folder, or take the one that is there; return the same for a point of it."""
    from jobkit.launch.launch import session, write_shell_run
    from jobkit.planning.prepare import prepare

    prepared = prepare(path, options, build=True, say=terminal.note, needs_real=lambda _: "")
    point = _chosen(prepared.points, word, path)
    run_dir = write_shell_run(prepared)
    terminal.note(f"run folder: {terminal.relative_path(run_dir)}; nothing was submitted")
    return session(prepared.spec, prepared.site, point, run_dir), point, len(prepared.points)


def _chosen(points: Sequence[Point], word: str | None, source: Path) -> Point:
    from jobkit.runs.status import point_named

    if not points:
        raise JobkitError(f"{source}: has no point yet", hint=f"jobkit status {terminal.shell_path(source)}")
    return point_named(points, word) if word is not None else points[0]


def _as_text(session: Session, point: Point, number: int) -> str:
    """Return the commands to type, in order, each with a comment."""
    which = f"point {point.index} of {number:,}, {point.point_id}"
    lines = [f"# A shell on a node, for {which}:", shlex.join(session.argv), "# Then, in that shell:"]
    if not session.argv:
        lines = [f"# No allocation is needed here: runs {which}, in this shell."]
    return "\n".join([*lines, session.command])
