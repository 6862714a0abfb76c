"""Run the points of a run folder here, one after the other, through submitit's local executor.

submitit keeps the process group, the logs and the clean-up; the walltime and the devices are
ours, for its own defaults are two minutes and no device at all (submitit 1.5, LocalExecutor).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from jobkit.core import files, terminal
from jobkit.core.layout import (
    ACCOUNTING_FILE,
    PID_FILE,
    SEARCH_GOAL_FILE,
    SPEC_FILE,
    is_corpus_folder,
    read_points,
)
from jobkit.core.records import Outcome, Point
from jobkit.core.shell import Completed
from jobkit.core.terminal import relative_path, shell_path
from jobkit.fit.search import next_trial
from jobkit.outcome import journal
from jobkit.outcome.accounting import Answer
from jobkit.outcome.driver_lock import driving
from jobkit.planning.job_script import script_name
from jobkit.run import parent
from jobkit.schedulers.local import NAME, log_name
from jobkit.schedulers.registry import unused_schedulers
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import SweepSpec, load_spec

POLL_S = 0.1
END_GRACE_S = 30.0
"""How long a stopped point may take to bring its results home."""

_NAME_AND_EXEC = 'echo $$ >"$1"; exec >>"$2" 2>&1; shift 2; exec "$@"'
"""submitit's cancel leaves the command alive, so the command reports its process id first; and its log
is named by submitit's process, which no one knows later, so the command has one of its own."""


@dataclass(frozen=True, slots=True)
class LocalRound:
    """Points that are driven one after the other, by one script.

    Attributes
    ----------
    points
        Their indices; ``None`` for all of the run.
    spec
        With the walltime that they get; ``None`` for the run's own.
    round
        Of the run: which script it is.
    given
        What a person set for these points: ``key=value``.
    """

    points: Sequence[int] | None = None
    spec: SweepSpec | None = None
    round: int = 1
    given: tuple[str, ...] = ()


@contextlib.contextmanager
def as_driver(run_dir: Path) -> Iterator[str]:
    """Be the driver of a run; yield its job id. An interruption is journalled.

    Raises
    ------
    JobkitError, OSError
        As `jobkit.outcome.driver_lock.driving`.
    KeyboardInterrupt
        Also for TERM and HUP, after the commands that go on from here are printed.
    """
    with ended_by_signals(), driving(run_dir) as job_id:
        try:
            _end_orphan(run_dir)
            yield job_id
        except KeyboardInterrupt:
            journal.note(run_dir, "cancelled", job_id=job_id, cluster="", status=0, said="interrupted")
            run = shell_path(run_dir)
            terminal.say(f"what was measured is in {relative_path(run_dir)}", err=True)
            see = "status" if is_corpus_folder(run_dir) else "collect"
            terminal.say(f"  see it    jobkit {see} {run}\n  go on     jobkit resume {run}", err=True)
            raise
        finally:
            parent.end(job_id)


def _end_orphan(run_dir: Path) -> None:
    """End the point that the driver before left running when it was killed, so that it does not run twice.

    It brings home what it has. If it has just ended well, it is done.
    """
    path = run_dir / PID_FILE
    with contextlib.suppress(OSError, ValueError):
        pid = int(path.read_text(encoding="ascii"))
        if not _runs_for(pid, run_dir):
            return
        terminal.say(f"process {pid} of a driver that was killed still runs a point: ending it", err=True)
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + END_GRACE_S
        while _runs_for(pid, run_dir) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if _runs_for(pid, run_dir):
            os.killpg(pid, signal.SIGKILL)


def _runs_for(pid: int, run_dir: Path) -> bool:
    """Return whether a process runs the script of a run: process ids are reused."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(word.startswith(os.fsencode(run_dir) + b"/job") for word in words)


def drive(run_dir: Path, tick: Callable[[Point], None], job_id: str, leg: LocalRound | None = None) -> None:
    """Run points of a run folder in turn, by default all; then the largest batch if the spec requests it.

    Parameters
    ----------
    run_dir
        The run folder, written.
    tick
        Called with the running point, a few times a second.
    job_id
        As `as_driver` yields it.
    leg
        Which points, and how.

    Raises
    ------
    KeyboardInterrupt
        After the running point was asked to end and its results are home.
    """
    leg = leg or LocalRound()
    points, _ = read_points(run_dir)
    left = [point for point in points if leg.points is None or point.index in leg.points]
    run_point = _runner(run_dir, leg.spec or load_spec(run_dir / SPEC_FILE), leg.round, tick, job_id)
    span: dict[str, Any] = {"first": left[0].index, "last": left[-1].index, "offset": 0, "throttle": 1}
    span |= {"round": leg.round} | ({} if leg.points is None else {"only": list(leg.points)})
    span |= ({"given": leg.given} if leg.given else {}) | {"job_id": job_id, "cluster": platform.node()}
    span["on_path"] = unused_schedulers()
    argv = [sys.executable, "-m", "jobkit.submit.resume", str(run_dir)]
    journal.note(run_dir, "submitting", scheduler=NAME, argv=argv, **span)
    journal.note(run_dir, "submitted", scheduler=NAME, **span)
    try:
        while left:
            run_point(left[0])
            left.pop(0)
    except KeyboardInterrupt:
        for point in left:
            _account(run_dir, point, job_id, "interrupted", 0.0, Outcome.CANCELLED)
        raise
    if leg.round == 1 and (run_dir / SEARCH_GOAL_FILE).is_file():
        search(run_dir, tick, job_id, next_trial)


def search(
    run_dir: Path, tick: Callable[[Point], None], job_id: str, choose: Callable[[Path], Point | None]
) -> None:
    """Run the points that a search chooses by the results so far, until it chooses none.

    Parameters
    ----------
    run_dir, tick, job_id
        As for `drive`.
    choose
        Returns the next point of a run: `jobkit.fit.search.next_trial`, or `jobkit.fit.tune.next_point`.
    """
    run_point = _runner(run_dir, load_spec(run_dir / SPEC_FILE), 1, tick, job_id)
    while point := choose(run_dir):
        span: dict[str, Any] = {"first": point.index, "last": point.index, "offset": 0, "throttle": 1}
        span["on_path"] = unused_schedulers()
        journal.note(run_dir, "submitted", scheduler=NAME, job_id=job_id, cluster=platform.node(), **span)
        run_point(point)


def _runner(
    run_dir: Path, spec: SweepSpec, round_: int, tick: Callable[[Point], None], job_id: str
) -> Callable[[Point], None]:
    """Return the function that runs one point to its end, and accounts for it.

    timeout(1) warns the point with USR1 before the walltime ends, and kills it later.
    """
    walltime_s = spec.resources.walltime
    warning_s = max(1, min(load_site(spec.site, NAME).warning_s, walltime_s // 4))
    timeout = ["timeout", "--signal=USR1", f"--kill-after={warning_s}", str(walltime_s - warning_s)]
    script = ["bash", str(run_dir / script_name(round_)), "--offset", "0"]

    def run_point(point: Point) -> None:
        log = run_dir / "logs" / log_name(point.run_id, job_id, point.index)
        named = ["jobkit-point", str(run_dir / PID_FILE), str(log)]
        start = time.monotonic()
        job = _start(run_dir, ["bash", "-c", _NAME_AND_EXEC, *named, *timeout, *script], job_id, point)
        _wait(run_dir / PID_FILE, job, functools.partial(tick, point))
        state = "lost" if job.state == "NO PROCESS AND NO RESULT" else job.state.lower()
        _account(run_dir, point, job_id, f"process {state}", time.monotonic() - start)

    return run_point


def _wait(pid_file: Path, job: Any, tick: Callable[[], None]) -> None:  # noqa: ANN401 - submitit is untyped
    """Wait until the process of a point has ended; end it on an interruption."""
    try:
        while not job.done():
            tick()
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        _stop(pid_file, job)
        raise
    finally:
        pid_file.unlink(missing_ok=True)
        for path in (job.paths.submitted_pickle, job.paths.result_pickle):
            path.unlink(missing_ok=True)


def _start(run_dir: Path, command: list[str], job_id: str, point: Point) -> Any:  # noqa: ANN401 - submitit is untyped
    import submitit

    executor = submitit.LocalExecutor(folder=run_dir / "logs")
    executor.update_parameters(timeout_min=60 * 24 * 365, stderr_to_stdout=True)
    env = {**os.environ, "JOBKIT_JOB": job_id, "JOBKIT_TASK": str(point.index)}
    if point.fork:
        env[parent.VARIABLE] = job_id
    # Ctrl-C reaches the whole process group of a terminal: the job must not die of it before
    # `_stop` has made it bring its results home. An ignored signal stays ignored in children.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return executor.submit(submitit.helpers.CommandFunction(command, env=env))
    finally:
        signal.signal(signal.SIGINT, before)


def _stop(pid_file: Path, job: Any) -> None:  # noqa: ANN401 - submitit is untyped
    """Ask the running point to end, and wait until it has brought its results home."""
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(pid_file.read_text(encoding="ascii")), signal.SIGTERM)
    deadline = time.monotonic() + END_GRACE_S
    while not job.done() and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _account(
    run_dir: Path, point: Point, job_id: str, evidence: str, elapsed_s: float, outcome: Outcome | None = None
) -> None:
    """Append what happened to a point to the accounting, as a scheduler's answer would have it."""
    row = {"job_id": job_id, "task": point.index, "outcome": outcome, "evidence": evidence}
    row |= {"host": platform.node(), "elapsed_s": round(elapsed_s, 3)}
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    answer = Answer(at, "accounting", NAME, Completed((), 0, json.dumps(row), ""))
    files.append_line(run_dir / ACCOUNTING_FILE, answer.as_line())


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Take TERM and HUP for Ctrl-C inside the block: the running point must not be left alone."""
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
