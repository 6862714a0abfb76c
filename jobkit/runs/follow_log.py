"""Print the log of a point's try, follow it while it grows, and explain why there is none."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import BinaryIO

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.files import open_regular
from jobkit.core.layout import point_folder, try_numbers
from jobkit.core.terminal import LogSanitizer, Say, shell_quote
from jobkit.core.units import pauses
from jobkit.runs.logs import Log, find_log
from jobkit.runs.reader import read_standings
from jobkit.runs.standing import LIVE, PointStatus, find_point
from jobkit.runs.status_text import plain
from jobkit.runs.tries import is_fault

FIRST_PAUSE_S, SLOWEST_PAUSE_S = 0.2, 2.0
ASK_EVERY_S = 30.0  # time without output until the scheduler is asked whether more is to come
CHUNK_BYTES = 2**16


class ErrorFilter:
    """Passes a log on: all of it, or from the first line on that looks like an error."""

    def __init__(self, *, faults: bool) -> None:
        self.open = not faults
        self._rest = b""
        self._visible = LogSanitizer()

    def through(self, data: bytes) -> bytes:
        """Return the part of the next bytes that passes, safe for a terminal."""
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
        """Return the part of an unfinished last line that passes."""
        return self._visible.through(b"" if self.open else self._let(b"\n")[:-1], last=True)


def show(run: Path, log: Log, errors: ErrorFilter, out: BinaryIO, say: Say) -> None:
    """Print a log as far as it has been written; ``say`` gets notes for a person."""
    if log.path is None or not log.path.is_file():
        raise _missing(run, log)
    _note(log, say)
    _copy(log.path, 0, errors, out)
    _end(run, log, errors, out, say)


def print_log(run: Path, log: Log, errors: ErrorFilter, out: BinaryIO, say: Say) -> None:
    """Print a log, and what is added to it until the try has ended; wait for a log that is to come."""
    path = _followed(run, log, say)
    place, waits = 0, pauses(FIRST_PAUSE_S, SLOWEST_PAUSE_S)
    ask_at = time.monotonic() + (ASK_EVERY_S if path.is_file() else 0)
    while not (log.exit is not None and log.exit.is_file()):
        before, place = place, _copy(path, place, errors, out)
        grew, due = place != before, time.monotonic() >= ask_at
        if due and not grew and not _to_come(run, log, say):
            break
        if grew:
            waits = pauses(FIRST_PAUSE_S, SLOWEST_PAUSE_S)
        if grew or due:
            ask_at = time.monotonic() + ASK_EVERY_S
        time.sleep(next(waits))
        if log.exit is None and try_numbers(point_folder(run, log.point.point_id)):
            log = find_log(run, log.point.point_id)  # of the try that has begun since
        if log.path != path:
            path, place = _followed(run, log, say), 0
    place = _copy(path, place, errors, out)
    if not place and not path.is_file():
        raise _missing(run, log)
    _end(run, log, errors, out, say)


def _followed(run: Path, log: Log, say: Say) -> Path:
    """Report which log is followed from now on; return its path. A point submitted again has another."""
    if log.by_hand or log.path is None:
        raise _missing(run, log)
    _note(log, say)
    return log.path


def _copy(path: Path, place: int, errors: ErrorFilter, out: BinaryIO) -> int:
    """Print a file from a place on; return the place reached. A file that shrank is printed again."""
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            if place > stream.seek(0, 2):
                place = 0
            stream.seek(place)
            while data := stream.read(CHUNK_BYTES):
                out.write(errors.through(data))
            out.flush()
            return stream.tell()
    except FileNotFoundError:
        return place


def _end(run: Path, log: Log, errors: ErrorFilter, out: BinaryIO, say: Say) -> None:
    out.write(errors.end())
    out.flush()
    empty = log.path is not None and log.path.is_file() and not log.path.stat().st_size
    if not errors.open and not empty:
        say("nothing in the log looks like an error; without --err jobkit prints the whole log")
    if empty or not errors.open:
        say(f"{log.name}{' has printed nothing' if empty else ''}: {_outcome(run, log)}")
        say(f"everything known: {_command('status', run, log)}")


def _outcome(run: Path, log: Log) -> str:
    """Return the outcome of a try, what it follows from, and the message of its record."""
    point = _standing(run, log)
    tried = next((tried for tried in point.tries if tried.number == log.number), None)
    if tried is None or tried.verdict.outcome is None:
        return _state(point)
    record = tried.record
    words = [str(tried.verdict.outcome), tried.verdict.evidence]
    words += [record.message] if record and record.message not in tried.verdict.evidence else []
    return plain("; ".join(filter(None, words)))


def _note(log: Log, say: Say) -> None:
    """Report which log it is, and what else is in it."""
    say(f"{log.name}: {_job(log)}, {log.path}")
    if len(log.tries) > 1:
        say(f"the log holds tries {', '.join(map(str, log.tries))}, one after the other")
    if log.others:
        say(f"the log holds all of the job, one after the other: also {', '.join(log.others)}")


def _job(log: Log) -> str:
    return f"{log.task.scheduler} job {log.task.job_id}, task {log.task.task}" if log.task else "of no job"


def _standing(run: Path, log: Log) -> PointStatus:
    (standing,) = read_standings([run.absolute()])
    return find_point(standing.points, log.point.point_id)


def _state(point: PointStatus) -> str:
    return f"{point.state}, {point.why}" if point.why else point.state


def _to_come(run: Path, log: Log, say: Say) -> bool:
    """Return whether more of a log is to come; report how the point stands."""
    point = _standing(run, log)
    say(f"{log.name}: {_state(point)}")
    return point.standing in LIVE


def _missing(run: Path, log: Log) -> JobkitError:
    """Return why there is no log, and whether there will be one."""
    if log.by_hand:
        message = f"{log.name} was run by hand: its output went to that terminal"
        return JobkitError(message, hint=f"{_command('logs', run, log)} --try N prints another try")
    if log.exit is not None and log.exit.is_file():
        where = f"{log.path} is not there" if log.path else "its job is not known"
        hint = f"somebody may have moved or removed the log; {_command('status', run, log)} shows the rest"
        return JobkitError(f"{log.name} has ended ({_outcome(run, log)}), but {where}", hint=hint)
    point = _standing(run, log)
    job = f" ({_job(log)})" if log.task else ""
    hint, yet, exit_code = f"{_command('status', run, log)} shows everything known", "", ExitCode.USAGE
    if log.task is None:
        hint, exit_code = f"{_command('resume', run)} submits it", ExitCode.TO_COME
    elif point.standing in LIVE:
        hint, yet, exit_code = "with -f jobkit prints the log as soon as it comes", " yet", ExitCode.TO_COME
    return JobkitError(f"{log.name} has no log{yet}: {_state(point)}{job}", hint=hint, exit_code=exit_code)


def _command(command: str, run: Path, log: Log | None = None) -> str:
    return f"jobkit {command} {shell_quote(run)}{f' {log.point.index}' if log else ''}"
