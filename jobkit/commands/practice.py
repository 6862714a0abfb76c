"""``jobkit practice``: a real scheduler on this one machine, to learn with and to break on purpose."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from jobkit.commands.listing import Group
from jobkit.core import terminal
from jobkit.core.errors import ExitCode, JobkitError
from jobkit.practice import cluster, faults, packages
from jobkit.practice.place import SCHEDULERS, default_folder, typed

which_scheduler = click.argument("scheduler", type=click.Choice(SCHEDULERS), required=False)


dir_option = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    callback=lambda _ctx, _param, folder: (folder or default_folder()).absolute(),
    help="The folder with all files of the practice clusters.  [default: $JOBKIT_PRACTICE, else"
    " jobkit/practice in your state folder]",
)


@click.group("practice", cls=Group)
def practice() -> None:
    """Run a real Slurm or Grid Engine on this one machine, and break it on purpose.

    The scheduler comes from the packages of Debian or Ubuntu, and runs as you, without root. It has fake
    GPUs and has accounting. All its files are in one folder. Slurm can be reached from this machine
    only; Grid Engine listens on every network, but accepts no other host.

    \b
      jobkit practice up slurm            start it; returns when a job can start
      eval "$(jobkit practice env)"       let this shell's commands find it
      jobkit practice shell sinfo         or: run one command, or a shell, with it
      jobkit practice break node          break something, then look at squeue and jobkit status
      jobkit practice fix                 repair it
      jobkit practice down                end it
    """


def _running(folder: Path, scheduler: str | None) -> list[cluster.Cluster]:
    if clusters := cluster.running(folder, scheduler):
        return clusters
    hint = f"jobkit practice up {scheduler or 'slurm'}{typed(folder)}"
    raise JobkitError(f"no practice cluster is up in {folder}", hint=hint)


@practice.command("up")
@click.argument("scheduler", type=click.Choice(SCHEDULERS))
@dir_option
@click.option(
    "--install", is_flag=True, help="First install the packages that are missing, with apt-get and sudo."
)
def up(scheduler: str, folder: Path, install: bool) -> int:
    """Start a practice cluster; return when a job can start.

    It starts only what does not run. Without --install it installs nothing: if packages are missing, it
    prints the line that installs them.

    \b
      jobkit practice up slurm
      jobkit practice up sge --dir /tmp/lesson
    """
    if install:
        packages.install(scheduler)
    started = cluster.up(folder, scheduler)
    terminal.say(started.kind.summary(started.place))
    terminal.say(
        f'\n{scheduler} is up. For this shell: eval "$(jobkit practice env{typed(folder)})"', err=True
    )
    return 0


@practice.command("down")
@which_scheduler
@dir_option
def down(scheduler: str | None, folder: Path) -> int:
    """Cancel the jobs of a practice cluster and end it; its files stay.

    It ends a process only if pid file, start time and boot prove that it is one of this folder's daemons,
    and the processes that these have started. `jobkit practice up` goes on with the same accounting.
    """
    for ended in (clusters := cluster.down(folder, scheduler)):
        terminal.say(f"{ended.place.scheduler} is down; its files are in {ended.place.folder}")
    if not clusters:
        terminal.say(f"there is no practice cluster in {folder}")
    return 0


@practice.command("status")
@which_scheduler
@dir_option
def status(scheduler: str | None, folder: Path) -> int:
    """Show whether a practice cluster is up, and its nodes.

    \b
    Exit status
      0   up: all daemons run and jobs can start
      2   not up, or something of it is broken
    """
    clusters = cluster.running(folder, scheduler)
    for one in clusters:
        state = "up" if (good := one.is_up()) else "broken"
        lost = f"; not running: {', '.join(one.stopped())}" if one.stopped() else ""
        hint = "" if good else f"\n  hint: jobkit practice fix{typed(folder)}"
        terminal.say(f"{one.place.scheduler} is {state} in {one.place.folder}{lost}{hint}")
        terminal.say(one.kind.summary(one.place))
    if not clusters:
        terminal.say(f"no practice cluster is up in {folder}")
    # The exit status of `status` if nothing is up
    return 0 if clusters and all(one.is_up() for one in clusters) else 2


@practice.command("reset")
@which_scheduler
@dir_option
def reset(scheduler: str | None, folder: Path) -> int:
    """End a practice cluster, remove all its files, and start it empty."""
    names = [removed.place.scheduler for removed in cluster.remove(folder, scheduler)]
    for name in names:
        cluster.up(folder, name)
        terminal.say(f"{name} is up, with an empty accounting")
    if not names:
        terminal.say(f"no practice cluster is in {folder}")
    return 0


@practice.command("env")
@which_scheduler
@dir_option
def env(scheduler: str | None, folder: Path) -> int:
    """Print the variables by which commands find the practice cluster, for eval.

    \b
      eval "$(jobkit practice env)"
    """
    found = cluster.variables(_running(folder, scheduler))
    for name, value in found.items():
        terminal.say(f"export {name}={shlex.quote(value)}")
    return 0


@practice.command(
    "shell", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@dir_option
def shell(command: tuple[str, ...], folder: Path) -> int:
    """Run a command, or your shell, that finds the practice cluster; its exit status is the command's.

    \b
      jobkit practice shell
      jobkit practice shell sbatch --wrap hostname
    """
    os.environ.update(cluster.variables(_running(folder, None)))
    words = command or (os.environ.get("SHELL", "/bin/sh"),)
    try:
        os.execvp(words[0], words)  # noqa: S606 - the command of the user, without a shell
    except OSError as error:
        raise JobkitError(
            f"{words[0]}: {error.strerror}",
            hint="jobkit practice shell starts your shell",
            exit_code=ExitCode.USAGE,
        ) from None


@practice.command("break")
@click.argument("fault", type=click.Choice(list(faults.FAULTS)))
@which_scheduler
@dir_option
def break_(fault: str, scheduler: str | None, folder: Path) -> int:
    """Break something of the practice cluster on purpose, and print what to look at.

    \b
    FAULT is one of
      node         a node dies, and the jobs on it
      disk         the disk fails on which a node keeps its jobs
      accounting   sacct or qacct does not answer; jobs go on
      preempt      an urgent job takes the whole cluster: running jobs are requeued or suspended
    """
    clusters = _running(folder, scheduler)
    if len(clusters) > 1:
        raise JobkitError("Slurm and Grid Engine are both up", hint="name one: slurm or sge")
    with cluster.locked(folder):
        terminal.say(faults.break_(clusters[0], fault))
    return 0


@practice.command("fix")
@which_scheduler
@dir_option
def fix(scheduler: str | None, folder: Path) -> int:
    """Put right all that was broken; return when jobs can start everywhere."""
    clusters = _running(folder, scheduler)
    with cluster.locked(folder):
        for one in clusters:
            faults.fix(one)
            terminal.say(f"{one.place.scheduler} takes jobs again")
    return 0
