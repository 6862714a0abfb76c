"""The ceiling on the GPU-hours of a run: spent, still open and asked for now, checked before a submission."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.records import Outcome, Point
from jobkit.core.terminal import shell_path
from jobkit.core.units import format_hours
from jobkit.runs.journal import SEARCHES, read_accounts
from jobkit.runs.reader import read_status
from jobkit.runs.results import each_point
from jobkit.runs.status import ENDED, first_task, history
from jobkit.runs.tries import task_s
from jobkit.schedulers.registry import runs_here
from jobkit.spec.policy import Policy
from jobkit.spec.sweep_spec import Resources, SweepSpec

HOUR_S = 3600


def gpu_seconds(resources: Resources, points: Iterable[Point]) -> float:
    """Return what points ask for at most: walltime x GPUs of each."""
    return resources.walltime * sum(resources.of(point).gpus for point in points)


def with_retries(policy: Policy) -> float:
    """Return how many times its walltime a point may take, all retries of a policy included.

    The most is a timeout first, because each later try then has the longer walltime.
    """
    timeout, others = policy.timeout, (policy.ram_oom, policy.preempted, policy.node_fail)
    longer = [timeout.walltime**times for times in range(timeout.tries + 1)]
    return sum(longer) + longer[-1] * sum(one.tries for one in others) if policy.follow_up else 1.0


def at_most(spec: SweepSpec, asked_s: float, unit: str, times: float, more: str = "") -> str:
    """Return in words what is asked for at most, in seconds of a ``unit``; with retries ``times`` as much."""
    words = f"at most {format_hours(asked_s / HOUR_S)} {unit}-hours{more}"
    words += f", {format_hours(times * asked_s / HOUR_S)} with all retries" if times > 1 else ""
    if spec.max_gpu_hours is None:
        return words
    if runs_here(spec.scheduler):
        return f"{words}; max_gpu_hours does not bind what runs here"
    binds = "nothing beyond is submitted" if unit == "GPU" else "without a GPU it does not bind"
    return f"{words}; the ceiling is {spec.max_gpu_hours:g} GPU-hours: {binds}"


def refuse_above(spec: SweepSpec, asked_s: float, run_dir: Path | None = None) -> None:
    """Refuse GPU-seconds that, with what a run has spent and still holds, are more than its ceiling."""
    if spec.max_gpu_hours is None or not asked_s or runs_here(spec.scheduler):
        return
    spent_s, open_s = spent_and_open(run_dir, spec) if run_dir else (0.0, 0.0)
    if (total := (spent_s + open_s + asked_s) / HOUR_S) > spec.max_gpu_hours:
        parts = {"asked for now": asked_s, "spent": spent_s, "in the queue": open_s}
        words = ", ".join(f"{format_hours(size / HOUR_S)} {what}" for what, size in parts.items() if size)
        again = f"jobkit resume {shell_path(run_dir)} " if run_dir else ""
        raise JobkitError(
            f"the ceiling is {spec.max_gpu_hours:g} GPU-hours, and this comes to {total:.4g} at most "
            f"({words}); nothing was submitted",
            hint=f"a lower resources.walltime asks for less; {again}--max-gpu-hours N raises the ceiling",
        )


def spent_and_open(run_dir: Path, spec: SweepSpec) -> tuple[float, float]:
    """Return the GPU-seconds that a run has spent, and those that its open jobs may still take.

    A try counts with its walltime if no source reports how long it took, an open search as its whole job.
    """
    (run,) = read_status([run_dir], ask=False)
    walltimes_s, spent_s = read_accounts(run_dir).walltimes_s, 0.0
    adding = [job.submission for job in run.jobs if job.submission.role in SEARCHES and job.state != ENDED]
    gpus = spec.resources.of(run.points[0].point).gpus
    open_s = len(adding) * gpus * run.kind.search_s(spec)
    searches = {first_task(sent) for sent in adding}
    tries = {one.point.index: history(one) for one in run.points}
    for one in each_point(run_dir, [], void=True):
        gpus = spec.resources.of(one.point).gpus
        for tried in tries.get(one.point.index, one.all_tries):
            if tried.task is None or tried.task in searches:
                continue
            most_s = walltimes_s.get(tried.task, spec.resources.walltime)
            took_s = task_s(tried)
            ended_by_hand = tried.outcome in {Outcome.CANCELLED, Outcome.STOPPED}
            if not tried.number and (ended_by_hand or not tried.alone):
                took_s = took_s or 0.0  # it never began
            if tried.outcome is None:
                open_s += gpus * most_s
            else:
                spent_s += gpus * (most_s if took_s is None else took_s)
    return spent_s, open_s
