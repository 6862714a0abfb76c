"""What `jobkit sweep` does once a run is prepared: preview, run here, detach, or submit."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from jobkit import local, shell, submit
from jobkit.errors import JobkitError
from jobkit.journal import note
from jobkit.prepare import Prepared
from jobkit.schedulers.base import JobId
from jobkit.schedulers.registry import by_name
from jobkit.submit import Submitted

EXIT_INTERRUPTED = 130


def say(text: str) -> None:
    """Print a line for a person, on stderr: stdout is for what was asked for."""
    click.echo(text, err=True)


def preview(prepared: Prepared) -> str:
    """Return the script and the commands that would submit it, as the shell would take them."""
    lines = [prepared.script.rstrip("\n"), "", f"# Nothing was written or submitted ({headline(prepared)})."]
    lines += [f"# The script would be {prepared.run_dir}/job.sh, submitted by:"]
    return "\n".join([*lines, *(f"#   {shlex.join(argv)}" for argv in submit_commands(prepared))])


def submit_commands(prepared: Prepared) -> list[tuple[str, ...]]:
    """Return the submit commands of a run, one an array, and that of the job that follows.

    Where the controller does not answer, for the scheduler is not on this machine, one array
    is taken to hold all points.

    Raises
    ------
    JobkitError
        Where the controller's limits forbid so many points.
    """
    scheduler = by_name(prepared.spec.scheduler)
    try:
        limits = submit.ask_limits(scheduler)
    except JobkitError:
        limits = ""
        say(f"{scheduler.NAME} does not answer here, so its array limit is unknown: one array is shown")
    arrays = submit.arrays_within(scheduler, limits, len(prepared.points), prepared.spec.max_parallel)
    commands = [scheduler.submit_argv(str(prepared.run_dir / "job.sh"), array) for array in arrays]
    if prepared.find_script is None or scheduler.NAME == "local":
        return commands
    last = submit.following(len(prepared.points))
    jobs = [JobId(f"JOB{number}") for number, _ in enumerate(arrays, 1)]
    return [*commands, scheduler.submit_argv(str(prepared.run_dir / submit.FIND_SCRIPT), last, jobs)]


def headline(prepared: Prepared) -> str:
    """Return in a line what is about to run, where, and why there."""
    spec = prepared.spec
    points = (
        f"{len(prepared.points)} points ({len(prepared.points) // spec.repeats} settings x {spec.repeats})"
    )
    where = "this machine" if spec.scheduler == "local" else f"{spec.scheduler}, site {prepared.site.name}"
    return f"{points} of {spec.workload} on {where}: {prepared.why}; device {spec.device}"


def here(prepared: Prepared) -> int | None:
    """Run all points on this machine, with progress; return an exit code if it did not get so far."""
    from jobkit import watch  # brings rich, which a submission that returns at once does not need

    say(f"{headline(prepared)}\nrun folder: {_short(prepared.run_dir)}")
    submit.write_run(prepared)
    try:
        with local.ended_by_signals(), watch.Progress(prepared.run_dir, prepared.points) as progress:
            local.drive(prepared.run_dir, lambda _: progress.look())
    except KeyboardInterrupt:
        note(prepared.run_dir, "cancelled", job_id=str(os.getpid()), cluster="", status=0, said="interrupted")
        say(f"interrupted; what was measured is in {_short(prepared.run_dir)}")
        say(f"  see it:   jobkit collect {_short(prepared.run_dir)}")
        return EXIT_INTERRUPTED
    return None


def detached(prepared: Prepared) -> int:
    """Start the local run in a process of its own and return."""
    submit.write_run(prepared)
    run_dir = prepared.run_dir
    argv = by_name("local").submit_argv(
        str(run_dir / "job.sh"), submit.chunks(len(prepared.points), None, None)[0]
    )
    pid = shell.detach(argv, run_dir / "logs" / "driver.out")
    _done(prepared, f"running here as process {pid}", f"kill {pid}")
    return 0


def on_cluster(prepared: Prepared, *, wait: bool) -> int | None:
    """Submit and return an exit code; with ``wait``, ``None`` once the last point is home."""
    say(headline(prepared))
    taken = submit.submit(prepared)
    scheduler = by_name(prepared.spec.scheduler)
    jobs = ", ".join(str(one.job) for one in taken if not one.follows)
    jobs += "".join(
        f"; job {one.job} waits for it and tries the largest batch" for one in taken if one.follows
    )
    cancel = "; ".join(shlex.join(scheduler.cancel_argv(one.job)) for one in taken)
    if not wait:
        _done(prepared, f"submitted: {scheduler.NAME} job {jobs}", cancel)
        return 0
    say(f"submitted: {scheduler.NAME} job {jobs}\nrun folder: {_short(prepared.run_dir)}")
    return _stay(prepared, taken, cancel)


def _stay(prepared: Prepared, taken: Sequence[Submitted], cancel: str) -> int | None:
    """Wait for the points of a submitted run; Ctrl-C leaves the job alone."""
    from jobkit import watch  # as above

    try:
        watch.until_done(prepared.run_dir, prepared.points, taken, by_name(prepared.spec.scheduler))
    except KeyboardInterrupt:
        say("no longer waiting; the job goes on")
        say(f"  later:    jobkit collect {_short(prepared.run_dir)}\n  cancel:   {cancel}")
        return EXIT_INTERRUPTED
    return None


def _done(prepared: Prepared, what: str, cancel: str) -> None:
    run_dir = _short(prepared.run_dir)
    say(what)
    say(f"  run folder   {run_dir}")
    say(f"  results      jobkit collect {run_dir}")
    say(f"  logs         {run_dir}/logs/")
    say(f"  cancel       {cancel}")


def _short(path: Path) -> str:
    """Return a path relative to here where that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
