"""Run the points of a run folder here, one after the other, through submitit's local executor.

submitit starts one job for all points of a driver: a shell that runs the script of each point that it reads
from the driver, so that a point does not pay for submitit's three starts of Python. Walltime and devices are
jobkit's: submitit's defaults are two minutes and no device (submitit 1.5, LocalExecutor).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from jobkit.core import files, terminal
from jobkit.core.frozen import frozen
from jobkit.core.layout import (
    ACCOUNTING_FILE,
    PID_FILE,
    SEARCH_GOAL_FILE,
    SPEC_FILE,
    read_points,
)
from jobkit.core.records import Outcome, Point
from jobkit.core.shell import Completed
from jobkit.core.terminal import relative_path, shell_path
from jobkit.planning.job_script import check_programs, script_name
from jobkit.runs import journal
from jobkit.runs.after import OK, ask
from jobkit.runs.driver_lock import driving
from jobkit.runs.journal import SchedulerAnswer
from jobkit.runs.search_loop import Propose, next_point
from jobkit.runs.status import kind_of
from jobkit.runs.which_run import remember
from jobkit.schedulers.local import NAME, log_name
from jobkit.schedulers.registry import by_name, unused_schedulers
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import SweepSpec, load_spec
from jobkit.worker import parent

if TYPE_CHECKING:
    from jobkit.runs.request import RetryGroup

POLL_S = 0.1
END_GRACE_S = 30.0  # time for a stopped point to bring its results home

LAST_POLL_S, LAST_S = 0.01, 5.0
"""How often, and for how long at most, to look whether submitit has ended after the last point."""

_RUN_POINTS = """\
exec 3<"$1" 4>"$2" || exit
pid_file=$3 logs=$4
shift 4
trap : TERM HUP
while read -r -u 3 task owner log; do
    (echo "$BASHPID" >"$pid_file"; export JOBKIT_TASK=$task JOBKIT_PARENT=${owner#-}; exec "$@") \\
        </dev/null >>"$logs/$log" 2>&1 3<&- 4>&-
    echo "$?" >&4
done
"""
"""Arguments: two pipes of the driver, the file for the process id of the running point, the folder of the
logs, and the command. The job ends when the driver closes its pipe or is killed. A signal to all processes of
a terminal ends only the point, because the driver waits until its results are home."""


def driver_argv(run_dir: Path) -> tuple[str, ...]:
    """Return the command that runs the whole run folder, as a process that goes on by itself."""
    return (sys.executable, "-m", "jobkit.launch.resume", str(run_dir))


@contextlib.contextmanager
def as_driver(run_dir: Path) -> Iterator[str]:
    """Be the driver of a run; yield its job id. An interruption is journalled."""
    check_programs()
    with ended_by_signals(), driving(run_dir) as job_id:
        remember(run_dir)
        try:
            _end_orphan(run_dir)
            yield job_id
        except KeyboardInterrupt:
            journal.note(run_dir, "cancelled", job_id=job_id, cluster="", status=0, said="interrupted")
            run = shell_path(run_dir)
            terminal.say(f"what was measured is in {relative_path(run_dir)}", err=True)
            look = kind_of(run_dir).look
            terminal.say(f"  see it    jobkit {look} {run}\n  go on     jobkit resume {run}", err=True)
            raise
        finally:
            parent.end(job_id)


def _end_orphan(run_dir: Path) -> None:
    """End the point that a killed driver left running, so that it does not run twice.

    It brings home what it has. If it has just ended well, it is done.
    """
    path = run_dir / PID_FILE
    with contextlib.suppress(OSError, ValueError):
        pid = int(path.read_text(encoding="ascii"))
        if not _runs_for(pid, run_dir):
            return
        terminal.say(f"process {pid} of a driver that was killed still runs: ending it", err=True)
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


def drive(
    run_dir: Path,
    tick: Callable[[Point], None],
    job_id: str,
    group: RetryGroup | None = None,
    round_: int = 1,
) -> None:
    """Run points of a run folder in turn, by default all; then the largest batch if the spec requests it.

    ``tick`` is called with the running point, a few times a second; ``job_id`` is that of `as_driver`;
    ``group`` are points that run again, by the script of ``round_``.
    """
    points, _ = read_points(run_dir)
    left = [point for point in points if group is None or point.index in group.points]
    span: dict[str, Any] = {"first": left[0].index, "last": left[-1].index, "offset": 0, "throttle": 1}
    span |= {"round": round_} | ({} if group is None else {"only": list(group.points)})
    span |= ({"given": group.given} if group and group.given else {}) | {"job_id": job_id}
    spec = group.spec if group else load_spec(run_dir / SPEC_FILE)
    asked = {"walltime_s": spec.resources.walltime, "memory_bytes": spec.resources.memory}
    span |= {"cluster": platform.node(), "on_path": unused_schedulers(), **asked}
    journal.note(run_dir, "submitting", scheduler=NAME, argv=driver_argv(run_dir), **span)
    journal.note(run_dir, "submitted", scheduler=NAME, **span)
    try:
        if (answer := ask(spec.after, by_name(NAME), living_s=math.inf) if spec.after else OK) != OK:
            for point in left:
                _account(run_dir, point, job_id, answer, 0.0, Outcome.DEPENDENCY)
            return
        with _runner(run_dir, spec, round_, tick, job_id) as run_point:
            while left:
                run_point(left[0])
                left.pop(0)
    except KeyboardInterrupt:
        for point in left:
            _account(run_dir, point, job_id, "interrupted", 0.0, Outcome.CANCELLED)
        raise
    if round_ == 1 and (run_dir / SEARCH_GOAL_FILE).is_file():
        from jobkit.answers.search import propose_trial  # only a run that asks for its largest batch

        search(run_dir, tick, job_id, propose_trial)


def search(run_dir: Path, tick: Callable[[Point], None], job_id: str, propose: Propose) -> None:
    """Run the points that a search chooses by the results so far, until it chooses none; as `drive`."""
    with _runner(run_dir, load_spec(run_dir / SPEC_FILE), 1, tick, job_id) as run_point:
        while point := next_point(run_dir, propose):
            span: dict[str, Any] = {"first": point.index, "last": point.index, "offset": 0, "throttle": 1}
            span["on_path"] = unused_schedulers()
            journal.note(run_dir, "submitted", scheduler=NAME, job_id=job_id, cluster=platform.node(), **span)
            run_point(point)


@contextlib.contextmanager
def _runner(
    run_dir: Path, spec: SweepSpec, round_: int, tick: Callable[[Point], None], job_id: str
) -> Iterator[Callable[[Point], None]]:
    """Yield the function that runs one point to its end, and accounts for it.

    timeout(1) warns the point with USR1 before the walltime ends, and kills it later.
    """
    walltime_s = spec.resources.walltime
    warning_s = max(1, min(load_site(spec.site, NAME).warning_s, walltime_s // 4))
    timeout = ["timeout", "--signal=USR1", f"--kill-after={warning_s}", str(walltime_s - warning_s)]
    command = [*timeout, "bash", str(run_dir / script_name(round_)), "--offset", "0"]
    with ExitStack() as stack:
        jobs: list[_Job] = []  # one, unless somebody kills it

        def run_point(point: Point) -> None:
            if not (jobs and jobs[-1].alive()):
                jobs.append(stack.enter_context(_job(run_dir, command, job_id)))
            start = time.monotonic()
            owner = job_id if point.fork else ""
            state = jobs[-1].run(point, owner, log_name(point.run_id, job_id, point.index), tick)
            _account(run_dir, point, job_id, f"process {state}", time.monotonic() - start)

        yield run_point


@frozen
class _Job:
    """The driver's side of submitit's job, which runs points in turn."""

    submitted: Any  # as submitit has it, which is untyped
    points: TextIO  # pipe: the point to run next
    ends: BinaryIO  # pipe: the exit status of each point that has ended
    run_dir: Path

    @property
    def pid_file(self) -> Path:
        return self.run_dir / PID_FILE

    def alive(self) -> bool:
        return not self.submitted.done()

    def run(self, point: Point, owner: str, log: str, tick: Callable[[Point], None]) -> str:
        """Run a point to its end and return how that was; end the point on an interruption."""
        self.points.write(f"{point.index} {owner or '-'} {log}\n")
        self.points.flush()
        try:
            while not self._ended(POLL_S):
                if not self.alive() and not self._ended(0):
                    state = str(self.submitted.state).lower()
                    return "lost" if state == "finished" else state
                tick(point)
        except KeyboardInterrupt:
            self._stop()
            raise
        finally:
            self.pid_file.unlink(missing_ok=True)
        return "finished"

    def _ended(self, timeout_s: float) -> bool:
        ready, _, _ = select.select([self.ends], [], [], timeout_s)
        return bool(ready and self.ends.readline())

    def _stop(self) -> None:
        """Ask the running point to end, and wait until it has brought its results home."""
        pid, deadline = 0, time.monotonic() + END_GRACE_S
        while time.monotonic() < deadline:
            if not pid:
                with contextlib.suppress(OSError, ValueError):  # it may be about to write the file
                    pid = int(self.pid_file.read_text(encoding="ascii"))
                    os.kill(pid, signal.SIGTERM)
            if self._ended(POLL_S):
                return
            # A hangup ends submitit's processes, not the point.
            if not (_runs_for(pid, self.run_dir) if pid else self.alive()):
                return


@contextlib.contextmanager
def _job(run_dir: Path, command: Sequence[str], job_id: str) -> Iterator[_Job]:
    """Submit the job that runs points with this command; at the end close its pipe and wait for it."""
    with ExitStack() as stack:
        (to_read, to_write), (ends_read, ends_write) = os.pipe(), os.pipe()
        for ours in (to_read, ends_write):
            stack.callback(os.close, ours)
        ends = stack.enter_context(os.fdopen(ends_read, "rb", buffering=0))
        points = stack.enter_context(os.fdopen(to_write, "w", encoding="ascii"))
        pipes = [f"/proc/{os.getpid()}/fd/{end}" for end in (to_read, ends_write)]
        words = ["jobkit-points", *pipes, str(run_dir / PID_FILE), str(run_dir / "logs"), *command]
        submitted = _submit(run_dir, ["bash", "-c", _RUN_POINTS, *words], job_id)
        try:
            yield _Job(submitted, points, ends, run_dir)
        finally:
            points.close()
            deadline = time.monotonic() + LAST_S
            while not submitted.done() and time.monotonic() < deadline:
                time.sleep(LAST_POLL_S)
            for path in (submitted.paths.submitted_pickle, submitted.paths.result_pickle):
                path.unlink(missing_ok=True)


def _submit(run_dir: Path, command: list[str], job_id: str) -> Any:  # noqa: ANN401 - submitit is untyped
    import submitit

    executor = submitit.LocalExecutor(folder=run_dir / "logs")
    executor.update_parameters(timeout_min=60 * 24 * 365, stderr_to_stdout=True)
    env = {**os.environ, "JOBKIT_JOB": job_id}
    # Ctrl-C reaches the whole process group of a terminal: the job must not die of it before
    # `_stop` has made it bring its results home. An ignored signal stays ignored in children.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return executor.submit(submitit.helpers.CommandFunction(command, env=env))
    finally:
        signal.signal(signal.SIGINT, before)


def _account(
    run_dir: Path, point: Point, job_id: str, evidence: str, elapsed_s: float, outcome: Outcome | None = None
) -> None:
    """Append what happened to a point to the accounting, as a scheduler's answer would have it."""
    row = {"job_id": job_id, "task": point.index, "outcome": outcome, "evidence": evidence}
    row |= {"host": platform.node(), "elapsed_s": round(elapsed_s, 3)}
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    answer = SchedulerAnswer(at, "accounting", NAME, Completed((), 0, json.dumps(row), ""))
    files.append_line(run_dir / ACCOUNTING_FILE, answer.as_line())


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Take TERM and HUP for Ctrl-C inside the block: the running point must not be left alone."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
