"""Print the log of a point's try, follow it while it grows, and say why there is none."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.files import open_regular
from jobkit.core.layout import point_folder, try_numbers
from jobkit.core.terminal import LogSanitizer, Say, shell_quote
from jobkit.outcome.log_text import is_fault
from jobkit.outcome.logs import Log, find_log
from jobkit.status.standing import PointStanding, Standing, read_standings, reason, state_of
from jobkit.status.table import plain

FIRST_PAUSE_S, SLOWEST_PAUSE_S, BACK_OFF = 0.2, 2.0, 1.3
ASK_EVERY_S = 30.0
"""Of silence: so often a scheduler is asked whether there is still something to wait for."""
CHUNK_BYTES = 2**16
TO_COME = frozenset({Standing.RUNNING, Standing.WAITING, Standing.STUCK, Standing.UNSETTLED})


class ErrorFilter:
    """Lets a log through: all of it, or from the first line on that tells of a fault.

    Parameters
    ----------
    faults
        Whether only from there on.
    """

    def __init__(self, *, faults: bool) -> None:
        self.open = not faults
        self._rest = b""
        self._visible = LogSanitizer()

    def through(self, data: bytes) -> bytes:
        """Return what of the next bytes is let through, safe for a terminal."""
        return self._visible.through(self._let(data))

    def _let(self, data: bytes) -> bytes:
        if self.open:
            return data
        *lines, self._rest = (self._rest + data).split(b"\n")
        for place, line in enumerate(lines):
            if is_fault(line.decode("utf-8", "replace")):
                self.open = True
                return b"\n".join([*lines[place:], self._rest])
        return b""

    def end(self) -> bytes:
        """Return what is let through of a last line that does not end."""
        return self._visible.through(b"" if self.open else self._let(b"\n")[:-1], last=True)


def show(run: Path, log: Log, sieve: ErrorFilter, out: BinaryIO, say: Say) -> None:
    """Print a log as far as it is there.

    Parameters
    ----------
    run
        The run folder.
    log, sieve
        Which, and what of it.
    out, say
        Get the log, and notes for a person.

    Raises
    ------
    JobkitError
        Where there is none: exit code 5 where it is still to come.
    """
    if log.path is None or not log.path.is_file():
        raise _missing(run, log)
    _note(log, say)
    _copy(log.path, 0, sieve, out)
    _end(run, log, sieve, out, say)


def print_log(run: Path, log: Log, sieve: ErrorFilter, out: BinaryIO, say: Say) -> None:
    """Print a log, and what is added to it until the try has ended; wait for one that is to come.

    Parameters
    ----------
    run, log, sieve, out, say
        As for `show`.

    Raises
    ------
    JobkitError
        Where there will be none.
    """
    path = _followed(run, log, say)
    place, pace = 0, _Pace(time.monotonic() + (ASK_EVERY_S if path.is_file() else 0))
    while not (log.exit is not None and log.exit.is_file()):
        before, place = place, _copy(path, place, sieve, out)
        if place == before and pace.due() and not _to_come(run, log, say):
            break
        pace.wait(grew=place != before)
        log = _newer(run, log)
        if log.path != path:
            path, place = _followed(run, log, say), 0
    place = _copy(path, place, sieve, out)
    if not place and not path.is_file():
        raise _missing(run, log)
    _end(run, log, sieve, out, say)


def _followed(run: Path, log: Log, say: Say) -> Path:
    """Say whose log is followed from now on; return where it is. A point submitted anew has another."""
    if log.by_hand or log.path is None:
        raise _missing(run, log)
    _note(log, say)
    return log.path


@dataclass(slots=True)
class _Pace:
    """How long to wait before the next look, and when to ask the scheduler."""

    ask_at: float
    pause_s: float = FIRST_PAUSE_S

    def due(self) -> bool:
        """Tell whether it is time to ask; it then is again only after as much silence."""
        if time.monotonic() < self.ask_at:
            return False
        self.ask_at = time.monotonic() + ASK_EVERY_S
        return True

    def wait(self, *, grew: bool) -> None:
        """Wait: longer and longer while nothing comes."""
        time.sleep(self.pause_s)
        self.pause_s = FIRST_PAUSE_S if grew else min(SLOWEST_PAUSE_S, self.pause_s * BACK_OFF)
        if grew:
            self.ask_at = time.monotonic() + ASK_EVERY_S


def _copy(path: Path, place: int, sieve: ErrorFilter, out: BinaryIO) -> int:
    """Print what a file has from a place on; return the place reached. One that shrank begins anew."""
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            if place > stream.seek(0, 2):
                place = 0
            stream.seek(place)
            while data := stream.read(CHUNK_BYTES):
                out.write(sieve.through(data))
            out.flush()
            return stream.tell()
    except FileNotFoundError:
        return place


def _end(run: Path, log: Log, sieve: ErrorFilter, out: BinaryIO, say: Say) -> None:
    out.write(sieve.end())
    out.flush()
    empty = log.path is not None and log.path.is_file() and not log.path.stat().st_size
    if not sieve.open and not empty:
        say("nothing in it looks like an error; without --err all of it is printed")
    if empty or not sieve.open:
        say(f"{log.name}{' has printed nothing' if empty else ''}: {_known(run, log)}")
        say(f"everything known: {_typed('status', run, log)}")


def _known(run: Path, log: Log) -> str:
    """Return the outcome of a try, what it follows from, and the message of its record."""
    one, words = _looked(run, log)
    tried = next((tried for tried in one.tries if tried.files.number == log.number), None)
    if tried is None or tried.verdict.outcome is None:
        return f"{state_of(one)}{f', {words}' if words else ''}"
    record = tried.files.record
    known = [str(tried.verdict.outcome), tried.verdict.evidence]
    known += [record.message] if record and record.message not in tried.verdict.evidence else []
    return plain("; ".join(filter(None, known)))


def _note(log: Log, say: Say) -> None:
    """Say whose log it is, and what else stands in it."""
    say(f"{log.name}: {_job(log)}, {log.path}")
    if len(log.tries) > 1:
        say(f"the log holds tries {', '.join(map(str, log.tries))}, one after the other")
    if log.others:
        say(f"the log holds all points of the job, one after the other: also {', '.join(log.others)}")


def _job(log: Log) -> str:
    return f"{log.task.scheduler} job {log.task.job_id}, task {log.task.task}" if log.task else "of no job"


def _newer(run: Path, log: Log) -> Log:
    """Return the log of the try that has begun since, where none had."""
    home = Path(point_folder(run, log.point.point_id))
    return find_log(run, log.point.point_id) if log.exit is None and try_numbers(str(home)) else log


def _looked(run: Path, log: Log) -> tuple[PointStanding, str]:
    """Ask where a point stands; return it, and why in words."""
    (seen,) = read_standings([run.absolute()])
    one = next(point for point in seen.points if point.point.index == log.point.index)
    return one, reason(one, seen.silent, datetime.now(UTC))


def _to_come(run: Path, log: Log, say: Say) -> bool:
    """Tell whether more of a log is to come; say how the point stands."""
    one, words = _looked(run, log)
    say(f"{log.name}: {state_of(one)}{f', {words}' if words else ''}")
    return one.standing in TO_COME


def _missing(run: Path, log: Log) -> JobkitError:
    """Return why there is no log, and whether there will be one."""
    if log.by_hand:
        told = f"{log.name} was run by hand: its output went to that terminal"
        return JobkitError(told, hint=f"{_typed('logs', run, log)} --try N prints another try")
    if log.exit is not None and log.exit.is_file():
        where = f"{log.path} is not there" if log.path else "its job is not known"
        ended = f"{log.name} has ended ({_known(run, log)}), but {where}"
        return JobkitError(
            ended, hint=f"it may have been moved or removed; {_typed('status', run, log)} shows the rest"
        )
    one, words = _looked(run, log)
    state = f"{log.name} has no log{{}}: {state_of(one)}{f', {words}' if words else ''}"
    if log.task is None:
        return JobkitError(
            state.format(""), hint=f"{_typed('resume', run)} submits it", exit_code=ExitCode.TO_COME
        )
    if one.standing in TO_COME:
        job = f" ({_job(log)})"
        hint = "with -f the log is printed as soon as it comes"
        return JobkitError(state.format(" yet") + job, hint=hint, exit_code=ExitCode.TO_COME)
    return JobkitError(
        f"{state.format('')} ({_job(log)})", hint=f"{_typed('status', run, log)} shows everything known"
    )


def _typed(command: str, run: Path, log: Log | None = None) -> str:
    """Return a command about a run, or the point of a log, as a person types it."""
    return f"jobkit {command} {shell_quote(run)}{f' {log.point.index}' if log else ''}"
