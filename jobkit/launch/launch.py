"""What happens to a prepared run: preview, run here, detach, or submit."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jobkit.core import shell
from jobkit.core.errors import JobkitError
from jobkit.core.files import read_text
from jobkit.core.host import note_begun
from jobkit.core.layout import POINTS_FILE, SPEC_FILE, read_point, read_points
from jobkit.core.records import Point
from jobkit.core.terminal import note, relative_path, say, shell_path
from jobkit.core.units import format_count, format_hours, format_size, format_walltime, pauses
from jobkit.launch import local, submission
from jobkit.launch.ceiling import at_most, gpu_seconds, refuse_above, with_retries
from jobkit.launch.job import Job, begin_after
from jobkit.launch.submission import note_follow
from jobkit.planning.prepare import Prepared
from jobkit.runs.journal import FOLLOWED, read_journal
from jobkit.runs.reader import read_status
from jobkit.runs.status import CANCELLED, PointStanding, why_failed
from jobkit.runs.trials import MOST_TRIALS
from jobkit.runs.which_run import start_time
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import by_name, runs_here
from jobkit.schedulers.types import JobId
from jobkit.spec.axes import most
from jobkit.spec.sweep_spec import Resources, SweepSpec, load_spec
from jobkit.worker import command_line


class Preview(NamedTuple):
    """What a dry run prints: the job script alone, and with the values of `environment`."""

    only_script: bool = False
    show_environment: bool = False


def dry_run(
    preview: Preview,
    spec: SweepSpec,
    source: Path,
    plan: Sequence[str],
    script: tuple[Path, str],
    commands: Iterable[Sequence[str]],
) -> int:
    """Print a dry run: on a terminal the plan, else the plan as comments and below it the job script.

    A refusal is raised once all is printed.
    ``source``: the file that has the values of `environment`.
    ``script``: where it would be, and its text.
    ``commands``: they would submit it; the scheduler is asked while they are read.
    """
    path, text = script
    piped = not sys.stdout.isatty()
    shown = text if preview.show_environment else spec.environment.hidden_in(text, source, spec.template)
    if preview.only_script:
        say(shown.rstrip("\n"))
        return 0
    lines = [f"Dry run: nothing was submitted{'' if piped else '; --script prints the job script'}.", *plan]
    submits, refused = list[str](), None
    try:
        submits += (f"  {shlex.join(argv)}" for argv in commands)
    except JobkitError as error:
        refused = error
    lines += [f"The script would be {path}, submitted by:", *submits] if submits else []
    say("\n".join([*(f"# {line}" for line in lines), "", shown.rstrip("\n")] if piped else lines))
    if refused:
        raise refused
    return 0


def submit_commands(run: Prepared, jobs: Sequence[Job] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the submit commands of the jobs of a run, by default of all that it begins with; then ask.

    On this machine it is the command of the driver. If the controller does not answer, because the scheduler
    is not on this machine, one array is assumed to hold all points.
    """
    scheduler = by_name(run.spec.scheduler)
    if scheduler.RUNS_HERE:
        yield local.driver_argv(run.run_dir)
        return
    script = run.more_files.get(jobs[0].script, run.script) if jobs else run.script
    yield from commands_of(
        scheduler,
        run.run_dir,
        script,
        lambda limits: begin_after(jobs or submission.run_jobs(run, limits), run.spec, run.site),
    )
    refuse_above(run.spec, asked_gpu_s(run, jobs))


def commands_of(
    scheduler: Scheduler, run_dir: Path, script: str, jobs_in: Callable[[str], Sequence[Job]]
) -> Iterator[tuple[str, ...]]:
    """Yield the submit commands of jobs, given the limits of the controller; as `submit_commands`."""
    limits = None
    try:
        limits = submission.ask_limits(scheduler, once=True)
    except JobkitError:
        line = "does not answer here, so its array limit is unknown: jobkit shows one array"
        note(f"{scheduler.NAME} {line}")
    jobs = jobs_in(limits or "")
    before: list[JobId] = []
    for number, job in enumerate(jobs, 1):
        yield scheduler.submit_argv(str(run_dir / job.script), job.array, job.waits_for(before))
        before += [JobId(f"JOB{number}")] if job.role in FOLLOWED else []
    if limits is not None:
        submission.would_accept(scheduler, script, jobs)


def asked_gpu_s(run: Prepared, jobs: Sequence[Job] = ()) -> float:
    """Return the GPU-seconds that a run asks for at most; ``jobs`` as in `go`."""
    asked = [job.request for job in jobs if job.request]
    trial = run.points[:1] if run.find_script and not jobs else ()
    return sum(one.gpus * one.walltime_s for one in asked) or gpu_seconds(
        run.spec.resources, [*run.points, *trial]
    )


def headline(run: Prepared) -> str:
    """Return a line with what is about to run, where, and why there."""
    spec = run.spec
    number = most(spec.repeats)
    settings = format_count(len(run.points) // number, "setting")
    times = number if spec.repeats == number else f"at most {number}"
    points = f"{format_count(len(run.points), 'point')} ({settings} x {times})"
    is_local = runs_here(spec.scheduler)
    where = f"{'this machine' if is_local else spec.scheduler} ({run.why})"
    site = "" if is_local else f", site {run.site.name}"
    lines = [f"{points} of {spec.workload_name} on {where}{site}; device {spec.device}"]
    lines += [warning] if (warning := model_warning(run)) else []
    if paths := command_line.paths(spec.command.command) if spec.command else []:
        lines.append(f"jobkit does not stage these paths, so each node must have them: {', '.join(paths)}")
    return "\n".join(lines)


def model_warning(run: Prepared) -> str:
    """Return in a line that the model of a run is a stand-in; empty if it is not."""
    return run.inputs.model.warning if run.inputs.model else ""


def go(
    run: Prepared,
    write: Callable[[], None],
    jobs: Sequence[Job] = (),
    *,
    wait: bool = False,
    detach: bool = False,
) -> int | None:
    """Run it here, or submit its jobs; return an exit code, or ``None`` once its points have ended.

    ``write`` makes the run folder. ``jobs`` are those that it begins with, by default all.
    """
    from jobkit.launch.resume import run_again, run_follow_up  # here: a dry run begins sooner

    run_dir, spec = run.run_dir, run.spec
    if runs_here(spec.scheduler):
        begin_after((), spec, run.site)
        write()
        if detach:
            return in_background(run_dir, argv=local.driver_argv(run_dir))
        from jobkit.runs import watch  # brings rich: a submission returns at once without it

        note(f"run folder: {relative_path(run_dir)}")
        with local.as_driver(run_dir) as job_id, watch.ProgressBars(run_dir, run.points) as progress:
            local.drive(run_dir, progress.tick, job_id)
        return run_follow_up(run_dir) or None
    scheduler = by_name(spec.scheduler)
    refuse_above(spec, asked_gpu_s(run, jobs))
    jobs = begin_after(jobs or submission.run_jobs(run), spec, run.site)
    script = run.more_files.get(jobs[0].script, run.script)
    for line in submission.would_accept(scheduler, script, jobs):
        note(line)
    write()
    submission.submit(run_dir, spec, jobs)
    if run.needs:  # a round of its own for the points that request more
        return run_again(run_dir, (), (), wait=wait)
    return submission.follow(run_dir, run.points, spec.policy, wait=wait)


def in_background(run_dir: Path, words: Sequence[str] = (), argv: Sequence[str] = ()) -> int:
    """Let a process of its own work on a run here, by default as ``jobkit resume``; return 0 once it works.

    Until then nothing tells the run from one that nobody works on. ``words``: more of that command.
    """
    note_begun(run_dir)
    argv = argv or (sys.executable, "-m", "jobkit", "resume", str(run_dir), *words)
    process = shell.detach(argv, log := run_dir / "logs" / "driver.out")
    for pause_s in pauses(0.05, 0.5):
        begun = any(job.job.id.startswith(f"{process.pid}-") for job in read_journal(run_dir).submissions)
        if begun or process.poll() is not None:
            break
        time.sleep(pause_s)
    if process.returncode:
        last = read_text(log).strip().splitlines()[-2:]
        message = f"process {process.pid} ended at once with status {process.returncode}"
        raise JobkitError(": ".join([message, " ".join(last)]), hint=f"the whole log: {log}")
    threading.Thread(target=process.wait, daemon=True).start()  # in a notebook it would stay a zombie
    note(f"running here as process {process.pid}")
    note_follow(run_dir)
    return 0


def request_line(run: Prepared) -> str:
    """Return in a line what is about to be asked for, and what it comes to at most.

    A job that shares points asks for the walltime of all of them; the job that tries the largest batch for
    that of one point, which here each trial has.
    """
    spec, resources = run.spec, run.spec.resources
    trials = (MOST_TRIALS if runs_here(spec.scheduler) else 1) if run.find_script else 0
    with_find = ", the largest batch included" if run.find_script else ""
    if runs_here(spec.scheduler):
        hours = format_hours(resources.walltime * (len(run.points) + trials) / 3600)
        each = f"{format_walltime(resources.walltime)} each at most"
        return f"one point at a time, {each}: at most {hours} hours{with_find}"
    unit = "gpus" if resources.gpus else "cpus"
    number = sum(getattr(group.resources, unit) * len(group.points) for group in run.groups)
    number += getattr(run.groups[0].resources, unit) * trials
    times = with_retries(spec.policy)
    most = at_most(spec, number * resources.walltime, unit[:-1].upper(), times, with_find)
    each = request_words([group.resources for group in run.groups])
    sharing, jobs = (f", {spec.pack} points a job", "jobs ") if spec.pack > 1 else ("", "")
    sharing += f", {spec.max_parallel} {jobs}at a time" if spec.max_parallel else ""
    return f"requesting {each} a point{sharing}: {most}"


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


# -- a second run of the same sweep


def refuse_duplicate(run: Prepared, *, new: bool = False, dry_run: bool = False) -> None:
    """Refuse a sweep that has a run already; if nothing is submitted anyway, only print that it has."""
    folder = None if new else find_duplicate(run)
    if folder is None:
        return
    (before,) = read_status([folder], ask=False)
    numbers = {word: before.counts[word] for word in (CANCELLED, PointStanding.DONE, PointStanding.FAILED)}
    numbers["to come"] = len(before.points) - sum(numbers.values())
    counts = ", ".join(
        f"{number} {word}{why_failed(before) if word == PointStanding.FAILED else ''}"
        for word, number in numbers.items()
        if number
    )
    points = f"{format_count(len(before.points), 'point')}: {counts}"
    message = f"this sweep has a run already: {relative_path(folder)}, {points}"
    if dry_run:
        note(f"{message}; --new submits it again")
        return
    path, states = shell_path(folder), {point.standing for point in before.points}
    ways = [f"jobkit collect {path} prints its table"]
    if states & {PointStanding.FAILED, PointStanding.MISSING}:
        ways.insert(0, f"jobkit resume {path} runs what failed or is missing")
    if states - {PointStanding.FAILED, PointStanding.DONE, PointStanding.MISSING}:
        ways.insert(0, f"jobkit status {path} shows its progress")
    hint = f"{', '.join(ways)}; --new starts another run"
    raise JobkitError(f"{message}; nothing was submitted", hint=hint)


def find_duplicate(run: Prepared) -> Path | None:
    """Return the newest run folder next to this one of the same spec, text, model and points.

    The spec that an earlier version wrote lacks later keys: they have the defaults of this version.
    """
    points, runs, names = _inputs(run.points), run.run_dir.parent, list[str]()
    with contextlib.suppress(OSError):
        names = os.listdir(runs)  # noqa: PTH208 - names only: there may be thousands
    own = f"{run.spec.name}-"  # or a person has renamed it
    names = [name for name in names if own in name or not start_time(name)]
    for name in sorted(names, key=lambda name: (start_time(name), name), reverse=True):
        with contextlib.suppress(OSError, JobkitError):  # no run folder, or damaged
            first = read_point(runs / name / POINTS_FILE, 1)  # most differ there, and are not read whole
            if _inputs([first]) == points[:1] and _is_spec_of(run, runs / name / SPEC_FILE):
                other, _ = read_points(runs / name)
                if _inputs(other[: len(points)]) == points:  # behind them: trials of the largest batch
                    return runs / name
    return None


def _is_spec_of(run: Prepared, path: Path) -> bool:
    """Return whether a folder has the spec of a run, but for the text's name and what it begins after."""
    spec = load_spec(path)
    before, has = spec.model_dump(mode="json"), spec.model_dump(mode="json", exclude_unset=True)
    now = _known(has, run.spec.model_dump(mode="json"), run.written.model_dump(mode="json"))
    before["resources"] |= {key: now["resources"][key] for key in run.auto}
    ignored: dict[str, Any] = {"text": "", "after": [], "max_gpu_hours": None, "on_end": None}
    return bool(before | ignored == now | ignored)


def _known(has: Any, decided: Any, written: Any) -> Any:  # noqa: ANN401 - parts of specs
    """Return the decided values of the keys that an earlier spec has, and of all others what is written."""
    if not (isinstance(has, dict) and isinstance(decided, dict) and isinstance(written, dict)):
        return decided
    return {
        key: _known(has[key], value, written.get(key)) if key in has else written.get(key, value)
        for key, value in decided.items()
    }


def _inputs(points: Sequence[Point]) -> list[tuple[object, ...]]:
    """Return of each point what a spec does not have, without paths: checksums identify text and files."""
    return [
        (
            *(point.params, point.repeat, point.text.sha256, point.model and point.model.fingerprint),
            *(point.workload_folder, [(file.name, file.sha256) for file in point.files]),
        )
        for point in points
    ]
