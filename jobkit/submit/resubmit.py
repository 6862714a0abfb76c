"""Submit again the points of a run that failed or are missing, and no other."""

from __future__ import annotations

import contextlib
import errno
import functools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from jobkit.core.errors import ExitCode, JobkitError, file_error
from jobkit.core.files import exclusive_lock
from jobkit.core.layout import RUN_LOCK, SPEC_FILE
from jobkit.core.terminal import Say
from jobkit.core.units import format_count
from jobkit.outcome import journal
from jobkit.outcome.accounting import GONE_AFTER
from jobkit.outcome.driver_lock import elsewhere
from jobkit.outcome.journal import read_journal
from jobkit.planning.prepare import request, shared_by
from jobkit.planning.script import render
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import by_name, runs_here
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import SweepSpec, load_spec
from jobkit.status.retry import Group, Overrides, groups, select_points
from jobkit.status.standing import IN_QUEUE, RunStanding, Standing, given_to, read_standings
from jobkit.submit.controller import SubmissionUnconfirmed, Submitted
from jobkit.submit.recover import reconcile_submission, refuse_strays
from jobkit.submit.rounds import Round, ask_round, jobs_of, plan_arrays, submit_round, write_round
from jobkit.submit.sweep import FOLLOW_SCRIPT, follow_up

CHANGEABLE = ("resources", "environment", "max_parallel", "pack", "policy")
"""Keys of the spec that `--set` may change: none that a point's own figures depend on."""
NO_LOCK = (
    "this file system has no locks, so jobkit cannot see whether another jobkit changes this run now: "
    "run one command on it at a time, or points may run twice"
)
PATIENCE_S = GONE_AFTER / timedelta(seconds=1) + 30.0
POLL_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """What was submitted again.

    Attributes
    ----------
    groups
        The points, by how they run.
    taken
        The jobs, those that follow too; nothing on this machine, where the points run at once.
    left
        Points that were wanted and stay as they are, and why, in sentences.
    """

    groups: tuple[Group, ...]
    taken: tuple[Submitted, ...] = ()
    left: tuple[str, ...] = ()


def prepare_resume(run_dir: Path, overrides: Sequence[str]) -> SweepSpec:
    """Return the spec of a run, changed.

    Parameters
    ----------
    overrides
        ``key=value`` of each ``--set``.

    Raises
    ------
    JobkitError
        Where a key may not change, or a value is no good.
    """
    for override in overrides:
        key = override.partition("=")[0].strip()
        if key.partition(".")[0] not in CHANGEABLE:
            raise JobkitError(
                f"--set {override}: {key} belongs to what the points measure, and cannot change within a run",
                hint=f"resume takes {', '.join(CHANGEABLE)}; for the rest make a new sweep",
            )
    return load_spec(run_dir / SPEC_FILE, overrides)


@contextlib.contextmanager
def alone(run_dir: Path, say: Say) -> Iterator[None]:
    """Let one process at a time decide what runs again.

    Where the file system has no locks, it is said that nobody else may do so now.

    Raises
    ------
    JobkitError
        For any OSError, in the block too: which file, and what is wrong with it.
    """
    try:
        with exclusive_lock(
            run_dir / RUN_LOCK,
            lambda: say("another jobkit command is changing this run: waiting for it"),
            lambda: say(NO_LOCK),
        ):
            yield
    except BrokenPipeError:
        raise
    except OSError as error:
        owned = error.errno in {errno.EACCES, errno.EPERM}
        raise file_error(error, run_dir, hint="only its owner can change a run" if owned else "") from error


def settled(run_dir: Path, scheduler: Scheduler, say: Say, *, patience_s: float = 0) -> RunStanding:
    """Return a look at a run in which no point is between two states.

    A task that left the queue without a trace may still turn up, and one that was cancelled takes a
    while to end: they are given a minute.

    Parameters
    ----------
    patience_s
        For how long a scheduler that does not answer is asked again: nobody waits for a job.

    Raises
    ------
    JobkitError
        Exit code 3, where the scheduler does not answer, or holds a job of the run that the journal
        has lost: a point might be run twice.
    """
    reconcile_submission(run_dir, say)
    begin, told = time.monotonic(), False
    deadline = begin + PATIENCE_S
    while True:
        (seen,) = read_standings([run_dir])
        if seen.silent:
            if time.monotonic() - begin < patience_s:
                time.sleep(POLL_S)
                continue
            if any(map(runs_here, seen.silent)):
                raise elsewhere(run_dir, machine_of(seen))
            raise JobkitError(
                f"{', '.join(seen.silent)} does not answer, so what still runs is not known",
                hint="try again when squeue or qstat answers: jobkit status tells",
                exit_code=ExitCode.REFUSED,
            )
        lines = between(seen)
        if not lines or time.monotonic() > deadline:
            refuse_strays(run_dir, scheduler)
            return seen
        if not told:
            for line in lines:
                say(f"{line}: looking again for a minute")
            told = True
        time.sleep(POLL_S)


def machine_of(seen: RunStanding) -> str:
    """Return the machine on which the points of a run were started last."""
    return [submission.job.cluster for submission in seen.submissions if runs_here(submission.scheduler)][-1]


def between(seen: RunStanding) -> list[str]:
    """Return in words how many points are between two states."""
    kinds = {
        "left the queue without a trace": [
            point for point in seen.points if point.standing is Standing.UNSETTLED
        ],
        "cancelled, and not over yet": [
            point for point in seen.points if point.standing in IN_QUEUE and point.task in seen.ending
        ],
    }
    return [f"{format_count(len(some), 'point')} {words}" for words, some in kinds.items() if some]


def resume(run_dir: Path, spec: SweepSpec, seen: RunStanding, again: Sequence[Group], say: Say) -> Resumed:
    """Submit groups of points, one round each, and a job that follows them.

    Parameters
    ----------
    run_dir, spec
        The run, and its spec with what a person has changed.
    seen
        What is known of it.
    again
        The points, by what they get.

    Raises
    ------
    JobkitError
        Exit code 3 where the scheduler refuses all groups, or does not answer; of one that it refuses
        beside others it is told.
    """
    scheduler = by_name(spec.scheduler)
    taken: list[Submitted] = []
    done: list[Group] = []
    left: list[str] = []
    for group in again:
        round_ = make_round(run_dir, seen, group)
        try:
            taken += _submit(scheduler, run_dir, round_, say)
        except SubmissionUnconfirmed:
            raise  # one more intent in the journal would hide this one
        except JobkitError as error:
            if not taken and group is again[-1]:
                raise
            left.append(f"{format_count(len(group.points), 'point')} not submitted: {error.message}")
            continue
        done.append(group)
    if taken and (run_dir / FOLLOW_SCRIPT).is_file() and spec.policy.follow_up:
        number = read_journal(run_dir).rounds
        followed, refused = follow_up(scheduler, run_dir, number, jobs_of(taken))
        taken += followed
        left += [f"no job follows, for it was refused: {refused}"] if refused else []
    return Resumed(groups=tuple(done), taken=tuple(taken), left=tuple(left))


def _submit(scheduler: Scheduler, run_dir: Path, round_: Round, say: Say) -> tuple[Submitted, ...]:
    """Submit a round; where a check refuses it, nothing of it is left in the run folder."""
    arrays = plan_arrays(scheduler, round_)
    written = write_round(run_dir, round_)
    try:
        for line in ask_round(scheduler, run_dir, round_, arrays):
            say(line)
    except JobkitError:
        for path in written:
            path.unlink()
        raise
    return submit_round(scheduler, run_dir, round_, arrays)


def make_round(run_dir: Path, seen: RunStanding, group: Group) -> Round:
    """Return the round in which a group of points runs again."""
    spec = shared_by(group.spec, len(group.points))
    number = max(1, read_journal(run_dir).rounds) + 1  # job.sh is never written again
    site = load_site(spec.site, spec.scheduler)
    return Round(
        number=number,
        script=render(spec, site, seen.points[0].point, run_dir, round_=number),
        points=group.points,
        pack=spec.pack,
        max_parallel=spec.max_parallel,
        request=request(seen.points[0].point.run_id, spec, site),
        given=group.given,
    )


def wanted(
    seen: RunStanding, spec: SweepSpec, only: Sequence[str], given: Overrides = (), *, strictly: bool = False
) -> list[Group]:
    """Return the points to run again, by how.

    Parameters
    ----------
    spec
        Of the run, for its site.
    only
        As `jobkit.status.retry.select_points`.
    given
        What a person gives them now, as `prepare_resume` takes it.
    strictly
        Whether the policy alone decides.

    Raises
    ------
    JobkitError
        As `jobkit.status.retry.select_points`.
    """
    anywhere = load_site(spec.site, spec.scheduler).requests.exclude is None
    spec_of = functools.cache(functools.partial(load_spec, seen.folder / SPEC_FILE))
    points = select_points(seen.points, only)
    return groups(points, spec_of, given_to(seen), given, strictly=strictly, anywhere=anywhere)


def note_left(run_dir: Path, why: str, again: Sequence[Group]) -> None:
    """Journal what could not be submitted from a node, so that a person's `jobkit resume` finds it told."""
    points = [index for group in again for index in group.points]
    journal.note(run_dir, "left", points=points, why=why)
