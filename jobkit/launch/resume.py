"""What `jobkit resume` does: decide, submit or run here, and report it.

``python -m jobkit.launch.resume RUN`` is the driver of a detached local run: it runs all points, and then
what the policy says.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.extensions import extension_of, load
from jobkit.core.records import Point
from jobkit.core.terminal import note, note_next, relative_path, shell_path, shell_quote
from jobkit.core.units import format_count, format_size, format_walltime
from jobkit.launch import local, resubmit
from jobkit.launch.guards import refuse_moved_run, warn_stand_in
from jobkit.launch.job import announce
from jobkit.launch.launch import wait_for_points
from jobkit.launch.resubmit import note_left, prepare_resume, read_settled, run_lock, spec_of_run, undecided
from jobkit.launch.scheduler_calls import declare_machine_gone
from jobkit.launch.submission import write_round
from jobkit.planning.resolve import warn_again
from jobkit.runs.hints import HARMLESS, advice
from jobkit.runs.journal import read_journal
from jobkit.runs.reader import read_status
from jobkit.runs.request import Overrides, RetryGroup, groups, select_points
from jobkit.runs.status import RunStatus, count_by_state, given_to, kind_of
from jobkit.schedulers.registry import by_name, runs_here
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import Resources, SweepSpec
from jobkit.spec.yaml_files import hide_override

JOB_PATIENCE_S = 300.0
"""Patience of the job that follows, of its ten minutes, for a controller that is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a person asks of `jobkit resume`, as the arguments of `run_again`."""

    only: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    machine_gone: str = ""
    replan: bool = False  # whether to cut what is not done into new points
    shard_minutes: float | None = None  # how long each shard is to take; ``None`` to leave it open
    shards: int | None = None  # how many shards there are to be; ``None`` to leave it open
    wait: bool = False


class Resumption:
    """How a run goes on: the hooks of a sweep, whose points run again; an extension inherits them."""

    def resume(self, run_dir: Path, asked: Asked) -> int | None:
        if asked.replan:
            raise JobkitError(
                f"{run_dir}: --replan is for the folder of jobkit apply, and this folder is a sweep's"
            )
        return run_again(
            run_dir, asked.only, asked.overrides, machine_gone=asked.machine_gone, wait=asked.wait
        )

    def follow_up(self, run_dir: Path) -> int:
        """Go on without a person, in the job that follows a run; return the exit code."""
        return run_follow_up(run_dir)

    def decide(
        self,
        run: RunStatus,
        spec: SweepSpec,
        only: Sequence[str],
        given: Overrides = (),
        *,
        strictly: bool = False,
    ) -> list[RetryGroup]:
        """Print which points run again, and return them by how; ``strictly``: the policy alone decides.

        ``only`` as in `jobkit.runs.request.select_points`; ``given`` is what a person gives them now, as in
        `prepare_resume`.
        """
        anywhere = load_site(spec.site, spec.scheduler).requests.exclude is None
        spec_of = functools.cache(functools.partial(spec_of_run, run.folder))
        points = select_points(run.points, only)
        needs, before = read_journal(run.folder).needs, given_to(run)
        again = groups(points, spec_of, before, given, strictly=strictly, anywhere=anywhere, needs=needs)
        for group in again:
            note(f"again: {describe_group(group, spec_of(()).resources, run.noun)}")
        for line in () if strictly else undecided(run):
            note(f"{line}: not run again now; once that is over, type this command again")
        return again

    def nothing(
        self, run: RunStatus, spec: SweepSpec, *, by_itself: bool = False, wait: bool = False
    ) -> int | None:
        """Return the exit code, as `run_again`, if no point runs again; ``by_itself`` if no person asked."""
        del spec, wait
        if by_itself:
            return 0
        note("nothing to run again")
        if undecided(run):
            return ExitCode.TO_COME
        steps = advice(run, relative_path(run.folder)).steps
        if step := next((step for step in steps if step.kind in HARMLESS), None):
            note_next(step.command)
        return 0


def resumption_of(run_dir: Path) -> Resumption:
    return load(extension_of(run_dir), "resume") or Resumption()


def run_again(
    run_dir: Path,
    only: Sequence[str],
    overrides: Sequence[str],
    *,
    machine_gone: str = "",
    wait: bool = False,
) -> int | None:
    """Submit, or run here, the points that failed or are missing; return the exit code.

    ``None`` if they have ended: they ran here, or were waited for. ``only`` and ``overrides`` as in
    `jobkit.runs.request.select_points` and `jobkit.launch.resubmit.prepare_resume`; ``machine_gone`` is a
    machine with started points that a person declared gone.
    """
    refuse_moved_run(run_dir)
    spec = prepare_resume(run_dir, overrides)
    with run_lock(run_dir, note):
        if machine_gone:
            declare_machine_gone(run_dir, machine_gone)
        kind_of(run_dir).settle(run_dir)
        run = read_settled(run_dir, by_name(spec.scheduler), note)
        note(f"{run.title}: {count_by_state(run)}")
        for point in run.points[:1]:
            warn_stand_in(point.point)
        goes_on = resumption_of(run_dir)
        again = goes_on.decide(run, spec, only, tuple(overrides))
        if not again:
            return goes_on.nothing(run, spec, wait=wait)
        points = _points(run, again)
        warn_again(note, spec, points, "or name another Python: --set environment.venv=FOLDER")
        if runs_here(spec.scheduler):
            _here(run, again)
            return None
        done = resubmit.resume(run_dir, spec, run, again, note)
    if done.taken:
        announce(spec.scheduler, done.taken)
    for line in done.left:
        note(line)
    if len(done.groups) < len(again) or not wait:
        note_next(f"jobkit status {shell_path(run_dir)} --watch")
        return ExitCode.REFUSED if len(done.groups) < len(again) else 0
    return wait_for_points(run_dir, points, spec.policy, run)


def run_follow_up(run_dir: Path) -> int:
    """Run points again as the policy says, in the follow-up job or after a sweep here; return the exit code.

    If the node may not submit, or the scheduler refuses, the journal records what is left to do.
    """
    spec, goes_on = prepare_resume(run_dir, ()), resumption_of(run_dir)
    if runs_here(spec.scheduler):
        while spec.policy.follow_up:
            (run,) = read_status([run_dir])
            if not (again := goes_on.decide(run, spec, ("failed",), strictly=True)):
                break
            _here(run, again)
        return 0
    with run_lock(run_dir, note):
        again = []
        try:
            run = read_settled(run_dir, by_name(spec.scheduler), note, patience_s=JOB_PATIENCE_S)
            note(f"{run.title}: {count_by_state(run)}")
            spec = prepare_resume(run_dir, ())  # again: `jobkit throttle` may have held the lock
            resubmit.fill_slots(by_name(spec.scheduler), run_dir, run, spec, note)
            again = goes_on.decide(run, spec, ("failed",), strictly=True)
            if not again:
                return goes_on.nothing(run, spec, by_itself=True) or 0
            done = resubmit.resume(run_dir, spec, run, again, note)
        except JobkitError as error:
            note_left(run_dir, error.message, again)
            note(f"{error}\na person must resume it: jobkit resume {shell_quote(run_dir)}")
            return 0
        if left := [group for group in again if group not in done.groups]:
            note_left(run_dir, "; ".join(done.left), left)
    for line in done.left:
        note(line)
    return 0


def _points(run: RunStatus, again: Sequence[RetryGroup]) -> list[Point]:
    indices = {index for group in again for index in group.points}
    return [point.point for point in run.points if point.point.index in indices]


def describe_group(group: RetryGroup, base: Resources, noun: str) -> str:
    """Return a group in words: its number of points, and what they get beyond the run's own spec."""
    resources = group.spec.resources
    sizes = ("resources.memory=", "resources.walltime=")
    what = [hide_override(override) for override in group.given if not override.startswith(sizes)]
    what = [f"with {', '.join(what)}"] if what else []
    if resources.memory != base.memory:
        what.append(f"with {format_size(resources.memory)} of memory")
    if resources.walltime != base.walltime:
        what.append(f"with {format_walltime(resources.walltime)} of walltime")
    if group.change.exclude:
        what.append(f"not on {', '.join(group.change.exclude)}")
    return f"{format_count(len(group.points), noun)}{', ' if what else ''}{' and '.join(what)}"


def _here(run: RunStatus, again: Sequence[RetryGroup]) -> None:
    from jobkit.runs import watch  # brings rich: a submission returns at once without it

    run_dir = run.folder
    with local.as_driver(run_dir) as job_id:
        for group in again:
            round_ = resubmit.make_round(run_dir, run, group)
            write_round(run_dir, round_)
            leg = local.LocalRound(group.points, group.spec, round_.number, group.given)
            with watch.ProgressBars(run_dir, _points(run, [group]), run) as progress:
                local.drive(run_dir, progress.tick, job_id, leg)


def main() -> int:
    run_dir = Path(sys.argv[1])
    try:
        with local.as_driver(run_dir) as job_id:
            local.drive(run_dir, lambda _: None, job_id)
        return run_follow_up(run_dir)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
