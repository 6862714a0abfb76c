"""What `jobkit resume` does: decide what runs again and no other, and submit it or run it; and `verify`.

``python -m jobkit.launch.resume RUN`` is the driver of a detached local run: it runs all points, and then
what the policy says.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import fmean

from jobkit.core import layout, terminal
from jobkit.core.errors import ExitCode, JobkitError, RefusedError, UnknownError, file_error, lost_file
from jobkit.core.extensions import of_run
from jobkit.core.files import exclusive_lock, read_text, write_atomically
from jobkit.core.frozen import keyed
from jobkit.core.knobs import CPU
from jobkit.core.records import FULL, Outcome, Point
from jobkit.core.terminal import note, note_next, relative_path, shell_path, shell_quote
from jobkit.core.units import format_count, format_hours, format_size, format_walltime
from jobkit.launch import local, scheduler_calls, submission
from jobkit.launch.ceiling import HOUR_S, at_most, gpu_seconds, refuse_above
from jobkit.launch.job import Job, announce, begin_after, find_job, follow_job, ids
from jobkit.launch.scheduler_calls import (
    SubmissionUnconfirmed,
    declare_machine_gone,
    reconcile_submission,
    refuse_elsewhere,
    refuse_stray_jobs,
)
from jobkit.launch.submission import Round, wait_for_points, write_round
from jobkit.planning.job_script import render, render_find, render_follow, script_name
from jobkit.planning.models import refuse_stand_in
from jobkit.planning.points import group_points
from jobkit.planning.prepare import shared_by, warn_again
from jobkit.planning.texts import is_sample
from jobkit.runs import journal
from jobkit.runs.driver_lock import elsewhere
from jobkit.runs.hints import HARMLESS, advice
from jobkit.runs.journal import GONE_AFTER, PURPOSES, Role, read_journal
from jobkit.runs.on_end import tell
from jobkit.runs.reader import read_status
from jobkit.runs.request import (
    WORDS,
    Overrides,
    RetryGroup,
    allow_nodes,
    groups,
    merge_overrides,
    select_points,
)
from jobkit.runs.status import (
    IN_QUEUE,
    LIVE,
    PointStanding,
    RunStatus,
    count_by_state,
    find_point,
    first_task,
    followers,
    given_to,
    kind_of,
)
from jobkit.runs.trials import describe_trials, trials
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import by_name, runs_here
from jobkit.schedulers.types import JobId
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import FindMax, SweepSpec, load_spec
from jobkit.spec.yaml_files import hide_override

PATIENCE_S = GONE_AFTER / timedelta(seconds=1) + 30.0
POLL_S = 5.0


JOB_PATIENCE_S = 300.0
"""Patience of the job that follows, of its ten minutes, for a controller that is away."""


# -- may this run change?


def measure_again(run: Path, point: Point) -> tuple[str, ...]:
    """Return how to measure a stand-in's run again with the real model."""
    if point.model is None or point.workload_folder:
        return ("then measure again",)
    size = () if point.model.size == FULL else ("--set", "model.size=full")
    words = ("jobkit", kind_of(run).command, shell_path(run / layout.SPEC_FILE), *size)
    return (f"{' '.join(words)}   (then name its run)",)


def warn_stand_in(point: Point) -> None:
    if point.model and point.model.stand_in:
        note(point.model.warning)


def refuse_moved_run(run_dir: Path, *, by_hand: bool = False) -> None:
    """Refuse a run folder that is not where its job script works, or not on the cluster of its jobs.

    It comes before anything is written there. ``by_hand``: nothing need have been submitted.
    """
    kind = kind_of(run_dir)
    script = run_dir / (layout.PLAN_SCRIPT if kind.unplanned(run_dir) else script_name(1))
    needed = (script, run_dir / layout.SPEC_FILE, run_dir / layout.JOURNAL_FILE)
    lost = [path for path in needed if not path.exists()]
    looks = f"jobkit {kind.look} {shell_path(run_dir)} shows what is there"
    if lost and lost[0].name != layout.JOURNAL_FILE:
        raise lost_file(lost[0], f"without it no {kind.noun} can run", looks)
    try:
        text = read_text(script)
    except OSError as error:
        raise file_error(error, script) from error
    match = re.search(r"^run=(.+)$", text, flags=re.MULTILINE)
    words = shlex.split(match[1]) if match else []
    there = Path(words[0]) if words else run_dir
    if there.resolve() == run_dir.resolve():
        if lost and not by_hand:
            raise lost_file(lost[0], "without it it is not known what was submitted", looks)
        refuse_elsewhere(run_dir)
        return
    what, hint = "a folder that was moved", f"move it back: mv {shell_path(run_dir)} {shell_path(there)}"
    if (there / layout.POINTS_FILE).is_file():
        what, hint = "a copy of it", f"name {shell_path(there)}"
    raise JobkitError(f"{run_dir}: its {script.name} works in {there}, so this is {what}", hint=hint)


def prepare_resume(run_dir: Path, overrides: Sequence[str]) -> SweepSpec:
    """Return the spec of a run, changed by the ``key=value`` of each ``--set``."""
    # Keys that `--set` may change: no point's own figures depend on them
    changeable = ("resources", "environment", "max_parallel", "max_gpu_hours", "pack", "policy", "after")
    for override in overrides:
        key = override.partition("=")[0].strip()
        if key.partition(".")[0] not in changeable:
            shown = hide_override(override, SweepSpec)
            raise JobkitError(
                f"--set {shown}: the results depend on {key}, which cannot change within a run",
                hint=f"resume takes {', '.join(changeable)}; to change another key begin a new run",
            )
    return spec_of_run(run_dir, overrides)


def spec_of_run(run_dir: Path, overrides: Sequence[str] = ()) -> SweepSpec:
    """Return the spec of a run with what was given to all of it since, and now."""
    given = merge_overrides(read_journal(run_dir).given, tuple(overrides))
    return load_spec(run_dir / layout.SPEC_FILE, given)


@contextlib.contextmanager
def run_lock(run_dir: Path) -> Iterator[None]:
    """Let one process at a time decide what runs again; if the file system has no locks, print a warning."""
    no_lock = (
        "this file system has no locks, so jobkit cannot see whether another jobkit changes this run now: "
        "run one command on it at a time, or work may be done twice"
    )
    try:
        with exclusive_lock(
            run_dir / layout.RUN_LOCK,
            lambda: note("another jobkit command is changing this run: waiting for it"),
            lambda: note(no_lock),
        ):
            yield
    except BrokenPipeError:
        raise
    except OSError as error:
        owned = error.errno in {errno.EACCES, errno.EPERM}
        raise file_error(error, run_dir, hint="only its owner can change a run" if owned else "") from error


def read_settled(run_dir: Path, scheduler: Scheduler, *, patience_s: float = 0) -> RunStatus:
    """Return a look at a run in which no point is between two states.

    A task that left the queue without a trace may still turn up, and one that was cancelled takes a while to
    end: they are given a minute. A scheduler that does not answer is asked again for ``patience_s``, which is
    0 if a person waits.
    """
    reconcile_submission(run_dir, note)
    begin, announced = time.monotonic(), False
    deadline = begin + PATIENCE_S
    while True:
        (run,) = read_status([run_dir])
        if run.silent:
            if time.monotonic() - begin < patience_s:
                time.sleep(POLL_S)
                continue
            refuse_silent(run, "what still runs is unknown")
        lines = undecided(run)
        if not lines or time.monotonic() > deadline:
            refuse_stray_jobs(run_dir, scheduler)
            return run
        if not announced:
            for line in lines:
                note(f"{line}: looking again for a minute")
            announced = True
        time.sleep(POLL_S)


def refuse_silent(run: RunStatus, so: str) -> None:
    """Refuse if a scheduler, or the machine of the points, does not answer; ``so`` is what that means."""
    if any(map(runs_here, run.silent)):
        machines = [job.job.cluster for job in run.submissions if runs_here(job.scheduler)]
        raise elsewhere(run.folder, machines[-1])
    for why in run.silent.values():
        hint = why.hint or "try again when it answers"
        raise UnknownError(f"{why.message}, so {so}", hint=hint)


def undecided(run: RunStatus) -> list[str]:
    ending = sum(point.standing in IN_QUEUE and point.task in run.ending for point in run.points)
    numbers = {
        "left the queue without a trace": run.counts[PointStanding.UNSETTLED],
        "cancelled, and not over yet": ending,
    }
    lines = [f"{format_count(number, run.noun)} {words}" for words, number in numbers.items() if number]
    role = run.kind.awaited(run.folder)
    for job, queued in followers(run, role)[-1:] if role else ():
        if first_task(job) in run.ending:
            lines.append(f"the job that {PURPOSES[job.role]} was cancelled, and is not over yet")
        elif queued is None and not has_ended(run, job.role):
            lines.append(f"the job that {PURPOSES[job.role]} left the queue without a trace")
    return lines


def has_ended(run: RunStatus, role: Role) -> bool:
    """Return whether the last job of a role is known to have ended."""
    return all(first_task(submission) in run.ended for submission, _ in followers(run, role)[-1:])


# -- points that run again, round by round


def resume(
    run_dir: Path, spec: SweepSpec, run: RunStatus, again: Sequence[RetryGroup]
) -> tuple[list[Job], list[RetryGroup], list[str]]:
    """Submit groups of points, one round each, and a job that follows them.

    Return the jobs, the groups that were not submitted, and why, in sentences.
    """
    scheduler = by_name(spec.scheduler)
    taken: list[Job] = []
    left: list[RetryGroup] = []
    reasons: list[str] = []
    arrays = run.arrays_in_queue()
    for group in again:
        try:
            taken += _submit(scheduler, run_dir, run, group, arrays)
        except SubmissionUnconfirmed:
            raise  # one more intent in the journal would hide this one
        except JobkitError as error:
            if not taken and group is again[-1]:
                raise
            left.append(group)
            reasons.append(f"{format_count(len(group.points), run.noun)} not submitted: {error.message}")
    if taken and (run_dir / layout.FOLLOW_SCRIPT).is_file() and spec.policy.follow_up:
        site, point = load_site(spec.site, spec.scheduler), run.points[0].point
        write_atomically(run_dir / layout.FOLLOW_SCRIPT, render_follow(spec, site, point, run_dir))
        job = follow_job(read_journal(run_dir).rounds)
        taken += submission.submit_jobs(scheduler, run_dir, [job], ids(taken))
    return taken, left, reasons


def _begun(run: RunStatus, group: RetryGroup) -> RetryGroup:
    """Return a group, without what it begins after if all its points have worked: that had ended then."""
    points = (point for point in run.points if point.point.index in group.points)
    if any(all(tried.outcome is Outcome.DEPENDENCY for tried in point.tries) for point in points):
        return group
    return replace(group, spec=group.spec.model_copy(update={"after": []}))


def _submit(
    scheduler: Scheduler, run_dir: Path, run: RunStatus, group: RetryGroup, arrays: dict[JobId, int]
) -> tuple[Job, ...]:
    """Submit a group of points, if need be to the nodes that the policy avoids.

    ``arrays`` share ``max_parallel``, each with its number of tasks: the group's arrays take a part, and are
    added.
    """
    group, site = _begun(run, group), load_site(group.spec.site, group.spec.scheduler)
    round_ = make_round(run_dir, run, group)
    own = most = round_.max_parallel
    after = [min(arrays, key=lambda job: arrays[job])] if most and len(arrays) >= most else []
    if after:
        own = 1
    elif most:
        own = scheduler_calls.share(most, [*arrays.values(), sum(map(len, round_.tasks))])[-1]
    round_ = replace(round_, max_parallel=own)
    cut = submission.plan_arrays(scheduler, round_)
    jobs = begin_after(submission.round_jobs(round_, cut), group.spec, site)
    try:
        forecast = submission.would_accept(scheduler, round_.script, jobs)
    except JobkitError:
        if not group.change.exclude:
            raise
        wider = make_round(run_dir, run, allow_nodes(group, spec_of_run(run_dir, group.given)))
        round_ = replace(wider, max_parallel=own)
        jobs = begin_after(submission.round_jobs(round_, cut), group.spec, site)
        forecast = submission.would_accept(scheduler, round_.script, jobs)
        nodes = ", ".join(group.change.exclude)
        forecast += (f"only {nodes} matches the request, so the {run.noun}s may run there again",)
    for line in forecast:
        note(line)
    write_round(run_dir, round_)
    submitted = submission.submit_jobs(scheduler, run_dir, jobs, after=after)
    others, number = list(arrays), format_count(len(group.points), run.noun)
    arrays |= {job.id: job.array.tasks for job in submitted[-(own or len(submitted)) :] if job.id}
    if after:
        del arrays[after[0]]
        note(f"max_parallel is {most}: {number} will begin when job {after[0]} has ended")
    elif most and others:
        names = ", ".join(map(str, others))
        note(
            f"max_parallel is {most}: {number} may begin next to job {names}, at most {own} at a time; "
            "until running tasks end, more may run in all"
        )
        for line in scheduler_calls.throttle(scheduler, run_dir, most, arrays):
            note(line)
    return submitted


def make_round(run_dir: Path, run: RunStatus, group: RetryGroup) -> Round:
    spec = shared_by(group.spec, len(group.points))
    number = max(1, read_journal(run_dir).rounds) + 1  # job.sh is never written again
    site = load_site(spec.site, spec.scheduler)
    points = [one.point for one in run.points if one.point.index in group.points]
    places = run.kind.places(run_dir) if spec.environment.container else ()
    return Round(
        number=number,
        script=render(spec, site, points[0], run_dir, round_=number, places=places),
        groups=group_points(spec, site, points),
        pack=spec.pack,
        max_parallel=spec.max_parallel,
        given=group.given,
    )


def note_left(run_dir: Path, why: str, again: Sequence[RetryGroup]) -> None:
    """Journal which points a node failed to resubmit; `jobkit status` reports them."""
    points = [index for group in again for index in group.points]
    journal.note(run_dir, "left", points=points, why=why)


# -- what a person asks, and what a policy says


@keyed
class Asked:
    """What a person asks of `jobkit resume`, as the arguments of `run_again`."""

    only: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    machine_gone: str = ""
    rows_gone: bool = False  # whether points run again that are done, and whose results are gone
    quarantine: bool = False  # whether points run again that left out parts of their work
    replan: bool = False  # whether to cut what is not done into new points
    shard_minutes: float | None = None  # how long each shard is to take; ``None`` to leave it open
    shards: int | None = None  # how many shards there are to be; ``None`` to leave it open
    wait: bool = False


class Resumption:
    """How a run goes on: the hooks of a sweep, whose points run again; an extension inherits them."""

    def resume(self, run_dir: Path, asked: Asked) -> int | None:
        for_a_corpus = ("replan", "rows_gone", "quarantine")
        for option in (f"--{name.replace('_', '-')}" for name in for_a_corpus if getattr(asked, name)):
            raise JobkitError(f"{run_dir}: {option} is for the folder of jobkit apply, and this is a sweep's")
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
        base, sizes = spec_of(()).resources, ("resources.memory=", "resources.walltime=")
        for group in again:
            asked = group.spec.resources
            others = [hide_override(word, SweepSpec) for word in group.given if not word.startswith(sizes)]
            what = [f"with {', '.join(others)}"] if others else []
            if asked.memory != base.memory:
                what.append(f"with {format_size(asked.memory)} of memory")
            if asked.walltime != base.walltime:
                what.append(f"with {format_walltime(asked.walltime)} of walltime")
            if group.change.exclude:
                what.append(f"not on {', '.join(group.change.exclude)}")
            own = [point.standing for point in points if point.point.index in group.points]
            word = "again" if {*own} - {PointStanding.MISSING} else "begins"
            number = format_count(len(group.points), run.noun)
            note(f"{word}: {number}{', ' if what else ''}{' and '.join(what)}")
        for line in () if strictly else undecided(run):
            note(f"{line}: not run again now; once that is over, type this command again")
        return again

    def nothing(
        self, run: RunStatus, spec: SweepSpec, *, by_itself: bool = False, wait: bool = False
    ) -> int | None:
        """Return the exit code, as `run_again`, if no point runs again; ``by_itself`` if no person asked."""
        del wait
        if by_itself:
            return 0
        changed = spec != spec_of_run(run.folder)
        note(f"nothing to run again{', so --set changed nothing' if changed else ''}")
        if undecided(run):
            return ExitCode.TO_COME
        _, steps = advice(run, relative_path(run.folder))
        if step := next((step for step in steps if step.kind in HARMLESS), None):
            note_next(step.command)
        return 0


def resumption_of(run_dir: Path) -> Resumption:
    return of_run(run_dir).resume() or Resumption()


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
    `jobkit.runs.request.select_points` and `prepare_resume`; ``machine_gone`` is a
    machine with started points that a person declared gone.
    """
    refuse_moved_run(run_dir)
    spec = prepare_resume(run_dir, overrides)
    with run_lock(run_dir):
        if machine_gone:
            declare_machine_gone(run_dir, machine_gone)
        kind_of(run_dir).settle(run_dir)
        run = read_settled(run_dir, by_name(spec.scheduler))
        if {point.standing for point in run.points} - {PointStanding.DONE, PointStanding.MISSING}:
            note(f"{run.title}: {count_by_state(run)}")
        frees = any(word.startswith(("resources.", "after=")) for word in overrides)
        if frees and _end_stuck(run_dir, run, only):
            run = read_settled(run_dir, by_name(spec.scheduler))
        for point in run.points[:1]:
            warn_stand_in(point.point)
        goes_on = resumption_of(run_dir)
        given = tuple(word for word in overrides if not word.startswith("max_gpu_hours="))
        again = goes_on.decide(run, spec, only, given)
        _keep_ceiling(run, spec, again)
        if not again:
            return goes_on.nothing(run, spec, wait=wait)
        points = _points(run, again)
        warn_again(note, spec, points, "or name another Python: --set environment.venv=FOLDER")
        if runs_here(spec.scheduler):
            _here(run, again)
            return None
        taken, left, reasons = resume(run_dir, spec, run, again)
    if taken:
        announce(spec.scheduler, taken)
    for line in reasons:
        note(line)
    if left or not wait:
        note_next(f"jobkit status {shell_path(run_dir)} --watch")
        return ExitCode.REFUSED if left else 0
    return wait_for_points(run_dir, points, spec.policy, run)


def _end_stuck(run_dir: Path, run: RunStatus, only: Sequence[str]) -> bool:
    """Cancel the points that can never begin with what they request; ``only`` as in `run_again`."""
    names = [word for word in only if word not in {*WORDS, *Outcome}]
    chosen = [find_point(run.points, word) for word in names] if only else run.points
    stuck = [point for point in chosen if point.standing is PointStanding.STUCK]
    tasks = [point.task for point in stuck if point.task]
    if stuck and all(point in stuck for point in run.points if point.standing in LIVE):
        tasks += [first_task(job) for job, queued in followers(run, Role.FOLLOW) if queued]
    for sent, numbers in run.by_job(tasks):
        scheduler = by_name(sent.scheduler)
        if refused := scheduler_calls.cancel_tasks(scheduler, run_dir, sent.job, numbers, whole=False):
            message = f"{sent.scheduler} did not cancel job {sent.job}, which can never begin: {refused}"
            raise RefusedError(message, hint="end it with its own command")
    if stuck:
        note(f"cancelled: {format_count(len(stuck), run.noun)} that can never begin")
    return bool(stuck)


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
    with run_lock(run_dir):
        again = []
        try:
            run = read_settled(run_dir, by_name(spec.scheduler), patience_s=JOB_PATIENCE_S)
            note(f"{run.title}: {count_by_state(run)}")
            spec = prepare_resume(run_dir, ())  # again: another command may have held the lock
            arrays, most = run.arrays_in_queue(), spec.max_parallel
            if most and 0 < len(arrays) <= most:  # the queued arrays may use what ended ones have left
                for line in scheduler_calls.throttle(by_name(spec.scheduler), run_dir, most, arrays):
                    note(line)
            again = goes_on.decide(run, spec, ("failed",), strictly=True)
            _keep_ceiling(run, spec, again)
            if not again:
                return goes_on.nothing(run, spec, by_itself=True) or 0
            _, left, reasons = resume(run_dir, spec, run, again)
        except JobkitError as error:
            note_left(run_dir, error.message, again)
            note(f"{error}\na person must resume it: jobkit resume {shell_quote(run_dir)}")
            return 0
        if left:
            note_left(run_dir, "; ".join(reasons), left)
    for line in reasons:
        note(line)
    return 0


def _keep_ceiling(run: RunStatus, spec: SweepSpec, again: Sequence[RetryGroup]) -> None:
    """Refuse what goes above the ceiling of a run; journal a ceiling that a person has changed."""
    asked_s = sum(gpu_seconds(group.spec.resources, _points(run, [group])) for group in again)
    took = [one.elapsed_s for one in run.points if one.standing is PointStanding.DONE and one.elapsed_s]
    if asked_s and not runs_here(spec.scheduler):
        mean = spec.resources.model_copy(update={"walltime": fmean(took or [0])})
        hours = format_hours(gpu_seconds(mean, _points(run, again)) / HOUR_S)
        probably = f"; probably {hours}, by the points that are done" if took else ""
        note(f"{at_most(spec, asked_s, 'GPU', 1)}{probably}")
    refuse_above(spec, asked_s, run.folder)
    if spec.max_gpu_hours != spec_of_run(run.folder).max_gpu_hours:
        journal.note(run.folder, "ceiling", max_gpu_hours=spec.max_gpu_hours)


def _points(run: RunStatus, again: Sequence[RetryGroup]) -> list[Point]:
    indices = {index for group in again for index in group.points}
    return [point.point for point in run.points if point.point.index in indices]


def _here(run: RunStatus, again: Sequence[RetryGroup]) -> None:
    from jobkit.runs import watch  # brings rich: a submission returns at once without it

    run_dir = run.folder
    with local.as_driver(run_dir) as job_id:
        for group in [_begun(run, group) for group in again]:
            round_ = make_round(run_dir, run, group)
            write_round(run_dir, round_)
            with watch.ProgressBars(run_dir, _points(run, [group]), run) as progress:
                local.drive(run_dir, progress.tick, job_id, group, round_.number)


# -- the largest batch, tried


def verify(run_dir: Path, *, memory: int | str | None, stand_in: bool = False) -> int:
    """Run, or submit, the search for the largest batch of a run; return the exit code.

    ``memory`` is bytes, or ``device``; ``None`` for the memory in the run's spec. ``stand_in`` permits a
    stand-in model for a text that is not the sample.
    """
    refuse_moved_run(run_dir, by_hand=True)
    for point in layout.read_points(run_dir)[0][:1]:
        if not stand_in and not is_sample(point.text):
            refuse_stand_in(point.workload, point.model, "jobkit verify", *measure_again(run_dir, point))
        warn_stand_in(point)
    with run_lock(run_dir):
        reconcile_submission(run_dir, note)
        return _verify(run_dir, memory)


def _verify(run_dir: Path, memory: int | str | None) -> int:
    from jobkit.answers.search import foreseen, propose_trial, under_way  # no other command needs them

    spec = load_spec(run_dir / layout.SPEC_FILE)
    spec.refuse_command("jobkit verify")
    asked = spec.find_max or FindMax()
    if memory is not None:
        asked = asked.model_copy(update={"memory": memory})
    spec = spec.model_copy(update={"find_max": asked})
    points, _ = layout.read_points(run_dir)
    if not points:
        raise JobkitError(f"{run_dir / layout.POINTS_FILE}: holds no point")
    if points[0].device == CPU and isinstance(memory, int):
        ram = spec.resources.model_copy(update={"memory": max(memory, spec.resources.memory)})
        spec = spec.model_copy(update={"resources": ram})
    site = load_site(spec.site, spec.scheduler)
    before = len(trials(run_dir))
    goal = submission.search_goal(spec, before)
    next_, final = foreseen(run_dir, goal)
    if next_.proved:
        terminal.say(f"nothing to try: {next_.message}")
        return 0
    if not runs_here(spec.scheduler) and (trial := under_way(run_dir, goal)):
        named = trial if trial.size else next_
        what = named.setting if named.size else "the largest batch"
        terminal.say(
            f"{what} is being tested already: jobkit status {shell_path(run_dir)} shows its progress"
        )
        return ExitCode.TO_COME
    if final and not next_.index:
        for line in describe_trials([next_]):
            terminal.say(line)
        return ExitCode.FAILED
    warn_again(note, spec, points)
    submission.write_search(goal, run_dir, render_find(spec, site, points[0], run_dir))
    if not runs_here(spec.scheduler):
        refuse_above(spec, gpu_seconds(spec.resources, points[:1]), run_dir)
        submission.submit(run_dir, spec, [find_job(len(points))])
        note_next(f"jobkit collect {shell_path(run_dir)}")
        return 0
    note("predicting the largest batch and running it here")
    with local.as_driver(run_dir) as job_id:
        local.search(run_dir, lambda _: None, job_id, propose_trial)
    tried = trials(run_dir)[before:]
    for line in describe_trials(tried):
        terminal.say(line)
    return 0 if tried and (tried[-1].held or tried[-1].proved) else ExitCode.FAILED


def main() -> int:
    run_dir = Path(sys.argv[1])
    try:
        with local.as_driver(run_dir) as job_id:
            local.drive(run_dir, lambda _: None, job_id)
        code = run_follow_up(run_dir)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    tell(run_dir)
    return code


if __name__ == "__main__":
    sys.exit(main())
