"""What happens to a prepared run: preview, run here, detach, submit, or a shell on a node."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobkit.core import shell
from jobkit.core.errors import WOULD_REFUSE, ExitCode, JobkitError
from jobkit.core.host import note_begun
from jobkit.core.layout import SHELL_FOLDER, read_points
from jobkit.core.terminal import note, note_next, relative_path, say, shell_path, shell_quote
from jobkit.core.units import format_count, format_size, format_walltime
from jobkit.launch import local, scheduler_calls, submission, sweep
from jobkit.launch.guards import find_duplicate
from jobkit.launch.job import announce
from jobkit.planning.job_script import render, script_name
from jobkit.planning.points import request
from jobkit.planning.prepare import Prepared
from jobkit.runs.trials import MOST_TRIALS
from jobkit.schedulers.parsed_script import directives, read_script
from jobkit.schedulers.registry import by_name, runs_here, submission_environment
from jobkit.schedulers.types import ONE_TASK, Array, JobId
from jobkit.spec.axes import most
from jobkit.spec.sweep_spec import Resources, SweepSpec
from jobkit.worker import command_line

if TYPE_CHECKING:
    from jobkit.core.records import Point
    from jobkit.runs.status import RunStatus
    from jobkit.spec.policy import Policy
    from jobkit.spec.site import Site


def preview(
    plan: Sequence[str], script: str, path: Path, commands: Iterable[Sequence[str]], *, only_script: bool
) -> None:
    """Print a dry run: on a terminal the plan, else the job script with the plan as comments below it.

    ``path``: where the script would be.
    ``commands``: they would submit it; the scheduler is asked while they are read.
    """
    piped = not sys.stdout.isatty()
    if only_script or piped:
        say(script.rstrip("\n"))
    if only_script:
        return
    lines = [f"Dry run: nothing was submitted{'' if piped else '; --script prints the job script'}.", *plan]
    if submits := [f"  {shlex.join(argv)}" for argv in commands]:
        lines += [f"The script would be {path}, submitted by:", *submits]
    say("\n".join(["", *(f"# {line}" for line in lines)] if piped else lines))


def submit_commands(prepared: Prepared) -> Iterator[tuple[str, ...]]:
    """Yield the submit commands of a run, one an array, and those of the jobs that follow.

    On this machine it is the command of the driver. If the controller does not answer, because the scheduler
    is not on this machine, one array is assumed to hold all points.
    """
    scheduler = by_name(prepared.spec.scheduler)
    if scheduler.RUNS_HERE:
        yield local.driver_argv(prepared.run_dir)
        return
    round_ = sweep.first_round(prepared)
    try:
        limits = submission.ask_limits(scheduler, once=True)
    except JobkitError:
        note(f"{scheduler.NAME} does not answer here, so its array limit is unknown: jobkit shows one array")
        arrays = submission.plan_arrays(scheduler, round_, "")
    else:
        arrays = submission.plan_arrays(scheduler, round_, limits)
        _note_refusal(prepared, arrays)
    names = [JobId(f"JOB{number}") for number, _ in enumerate(arrays, 1)]
    for job in sweep.planned_jobs(prepared, arrays):
        yield scheduler.submit_argv(str(prepared.run_dir / job.script), job.array, job.waits_for(names))


def _note_refusal(prepared: Prepared, arrays: Sequence[Array]) -> None:
    scheduler, round_ = by_name(prepared.spec.scheduler), sweep.first_round(prepared)
    try:
        submission.would_accept(
            prepared.script, lambda path: submission.check_round(scheduler, round_, path, arrays)
        )
    except JobkitError as error:
        reasons = error.message.partition(scheduler_calls.REFUSED)[2] or error.message
        note(f"the scheduler {WOULD_REFUSE}: {reasons}\n  hint: {error.hint}")


def headline(prepared: Prepared) -> str:
    """Return a line with what is about to run, where, and why there."""
    spec = prepared.spec
    number = most(spec.repeats)
    settings = format_count(len(prepared.points) // number, "setting")
    times = number if spec.repeats == number else f"at most {number}"
    points = f"{format_count(len(prepared.points), 'point')} ({settings} x {times})"
    is_local = runs_here(spec.scheduler)
    where = f"{'this machine' if is_local else spec.scheduler} ({prepared.why})"
    site = "" if is_local else f", site {prepared.site.name}"
    line = f"{points} of {spec.workload_name} on {where}{site}; device {spec.device}"
    paths = command_line.paths(spec.command.command) if spec.command else []
    line += f"\n{warning}" if (warning := model_warning(prepared)) else ""
    return (
        f"{line}\njobkit does not stage these paths, so each node must have them: {', '.join(paths)}"
        if paths
        else line
    )


def model_warning(prepared: Prepared) -> str:
    """Return in a line that the model of a run is a stand-in; empty if it is not."""
    return prepared.inputs.model.warning if prepared.inputs.model else ""


def here(prepared: Prepared, check: sweep.Check) -> None:
    from jobkit.runs import watch  # brings rich: a submission returns at once without it

    note(f"{headline(prepared)}\n{request_line(prepared)}\nrun folder: {relative_path(prepared.run_dir)}")
    sweep.write_run(prepared, check)
    run_dir, points = prepared.run_dir, prepared.points
    with local.as_driver(run_dir) as job_id, watch.ProgressBars(run_dir, points) as progress:
        local.drive(run_dir, progress.tick, job_id)


def detached(prepared: Prepared, check: sweep.Check) -> int:
    note(f"{headline(prepared)}\n{request_line(prepared)}")
    sweep.write_run(prepared, check)
    run_dir = prepared.run_dir
    note_begun(run_dir)
    pid = shell.detach(local.driver_argv(run_dir), run_dir / "logs" / "driver.out")
    note(f"running here as process {pid}")
    note_follow(run_dir)
    return 0


def request_line(prepared: Prepared) -> str:
    """Return in a line what is about to be asked for, and what it comes to at most.

    A job that shares points asks for the walltime of all of them; the job that tries the largest batch for
    that of one point, which here each trial has.
    """
    spec, resources = prepared.spec, prepared.spec.resources
    trials = (MOST_TRIALS if runs_here(spec.scheduler) else 1) if prepared.find_script else 0
    each_s = resources.walltime * (len(prepared.points) + trials)
    with_find = ", the largest batch included" if prepared.find_script else ""
    if runs_here(spec.scheduler):
        walltime = format_walltime(resources.walltime)
        return f"one point at a time, {walltime} each at most: at most {_hours(each_s)} hours{with_find}"
    unit = "gpus" if resources.gpus else "cpus"
    number = sum(getattr(group.resources, unit) * len(group.points) for group in prepared.groups)
    number += getattr(prepared.groups[0].resources, unit) * trials
    retries = ", retries not counted" if prepared.follow_script else ""
    most = f"at most {_hours(number * resources.walltime)} {unit[:-1].upper()}-hours{with_find}{retries}"
    each = request_words([group.resources for group in prepared.groups])
    return f"requesting {each} a point{_job_sharing(spec)}: {most}"


def request_words(groups: Sequence[Resources]) -> str:
    """Return what a point gets: ``1 v100 GPU, 2 to 8 CPUs, 8GiB of memory and 00:10:00``."""
    first = groups[0]
    kind = f"{first.gpu_type} " if first.gpu_type else ""
    what = [_range([resources.gpus for resources in groups], f"{kind}GPU")] if first.gpus else []
    what += [
        _range([resources.cpus for resources in groups], "CPU"),
        f"{format_size(first.memory)} of memory",
    ]
    what += ["a node to itself"] if first.exclusive else []
    return f"{', '.join(what)} and {format_walltime(first.walltime)}"


def _range(numbers: Sequence[int], noun: str) -> str:
    low, high = min(numbers), max(numbers)
    return format_count(high, noun) if low == high else f"{low:,} to {format_count(high, noun)}"


def _job_sharing(spec: SweepSpec) -> str:
    together = f", {spec.pack} points a job" if spec.pack > 1 else ""
    jobs = "jobs " if spec.pack > 1 else ""
    return together + (f", {spec.max_parallel} {jobs}at a time" if spec.max_parallel else "")


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.1f}" if hours >= 1 else f"{hours:.2g}"


def on_cluster(prepared: Prepared, check: sweep.Check = lambda: None, *, wait: bool) -> int | None:
    """Submit and return an exit code; with ``wait``, ``None`` once the last point is home."""
    note(f"{headline(prepared)}\n{request_line(prepared)}")
    announce(prepared.spec.scheduler, sweep.submit(prepared, note, check))
    if not wait:
        note_follow(prepared.run_dir)
        return 0
    note(f"run folder: {relative_path(prepared.run_dir)}")
    return wait_for_points(prepared.run_dir, prepared.points, prepared.spec.policy)


def wait_for_points(
    run_dir: Path, points: Sequence[Point], policy: Policy, before: RunStatus | None = None
) -> int | None:
    """Wait for points of a run, submitted again since ``before``; Ctrl-C leaves the job alone."""
    from jobkit.runs import watch  # as above

    try:
        if not points:  # of a corpus that a job plans, or has just planned
            watch.until_planned(run_dir)
            points, _ = read_points(run_dir)
        watch.until_done(run_dir, points, policy, before)
    except KeyboardInterrupt:
        note("no longer waiting; the job goes on")
        note_follow(run_dir)
        return ExitCode.INTERRUPTED
    return None


def note_follow(run_dir: Path) -> None:
    """Print the run folder of a run that goes on by itself, and the command that follows it."""
    note(f"run folder: {relative_path(run_dir)}")
    note_next(f"jobkit status {shell_path(run_dir)} --watch")


# -- a shell on a node


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A shell on a node with what a point requests, and what to type in it."""

    argv: tuple[str, ...]  # the command that starts it; empty if no allocation is needed
    command: str  # runs the point, in that shell
    refused: JobkitError | None = None  # why the scheduler would refuse it, or why that is unknown here

    def go(self) -> int:
        """Start the shell at this terminal; return its exit status."""
        if self.refused:
            raise self.refused
        return shell.attach(self.argv, submission_environment())


def session(spec: SweepSpec, site: Site, point: Point, run_dir: Path) -> Session:
    """Return the shell in which a person can run one point of a run folder that is written.

    Its options are the directives of the point's own job script, except those about a batch job.
    """
    spec = spec.model_copy(update={"pack": 1})
    scheduler = by_name(site.scheduler)
    command = f"bash {shell_quote(run_dir / script_name(1))} {point.index}"
    text = render(spec, site, point, run_dir)
    options = [
        option
        for option in directives(read_script(text), scheduler.DIRECTIVE)
        if scheduler.DIRECTIVE and option[0].partition("=")[0] not in scheduler.RESERVED_OPTIONS
    ]
    argv = scheduler.interactive_argv(options)
    refused = _refusal(argv[0], spec, site, point, text) if argv else None
    return Session(argv=argv, command=command, refused=refused)


def _refusal(program: str, spec: SweepSpec, site: Site, point: Point, text: str) -> JobkitError | None:
    """Return why the scheduler would refuse the job of a point; ``None`` if it would not."""
    if shutil.which(program) is None:
        return JobkitError(
            f"there is no {program} on this machine",
            hint="type the same command on a submit host of the cluster",
            exit_code=ExitCode.REFUSED,
        )
    asked = request(point.run_id, spec, site, spec.resources.of(point))
    scheduler = by_name(site.scheduler)
    try:
        submission.would_accept(
            text, lambda path: scheduler_calls.check_submission(scheduler, asked, path, ONE_TASK)
        )
    except JobkitError as error:
        error.message = error.message.replace(WOULD_REFUSE, "would refuse this shell")
        return error
    return None


def write_shell_run(prepared: Prepared) -> Path:
    """Write a run folder for shells only, or reuse the one that is there; submit nothing.

    It lies in ``shell/`` of the folder of runs: no other command takes it for a run.
    """
    run_dir = prepared.run_dir.parent / SHELL_FOLDER / prepared.run_dir.name
    script = render(prepared.spec, prepared.site, prepared.points[0], run_dir)
    prepared = replace(prepared, run_dir=run_dir, script=script, find_script=None, follow_script=None)
    if earlier := find_duplicate(prepared):
        return earlier
    sweep.write_run(prepared)
    return run_dir
