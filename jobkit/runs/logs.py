"""Print the log of a point's try, follow it while it grows, and explain why there is none."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import BinaryIO

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.files import open_regular
from jobkit.core.frozen import keyed
from jobkit.core.layout import EXIT_FILE, LOGS_FOLDER, point_folder, read_points, try_numbers
from jobkit.core.records import Point
from jobkit.core.terminal import LogSanitizer, Say, shell_quote
from jobkit.core.units import pauses
from jobkit.runs.journal import read_accounts
from jobkit.runs.reader import read_status
from jobkit.runs.results import read_result
from jobkit.runs.status import LIVE, PointStatus, find_point, kind_of, point_named
from jobkit.runs.status_text import plain
from jobkit.runs.tries import Try, is_fault, log_path


@keyed
class Log:
    """Where the output of a try is, or will be."""

    point: Point
    tried: Try  # number 0 if no try of the task has begun
    path: Path | None  # ``None`` if there is no log, or it is not known
    tries: tuple[int, ...]  # the numbers of all the point's tries that the log holds
    others: tuple[str, ...]  # the points that share it, because they share the task

    @property
    def name(self) -> str:
        return f"{self.point.point_id} try {self.tried.number}" if self.tried.number else self.point.point_id

    @property
    def ended(self) -> bool:
        return bool(self.tried.number) and Path(self.tried.folder, EXIT_FILE).is_file()


def find_log(run: Path, word: str, number: int | None = None) -> Log:
    """Return the log of a try; by default of the latest, or the next if the point was submitted since."""
    kind = kind_of(run)
    if kind.unplanned(run):
        hint = f"the logs of the job that plans it are in {run / LOGS_FOLDER}"
        raise JobkitError(f"{run}: {kind.subject} is not planned yet, so there is no {kind.noun}", hint=hint)
    points, _ = read_points(run)
    if not points:
        raise JobkitError(f"{run}: not a run folder", hint="jobkit status lists the runs")
    point = point_named(points, word)
    accounts = read_accounts(run, name=point.run_id)
    tries = read_result(run, point, accounts, []).all_tries
    tried = next((one for one in tries if number is None or (number and one.number == number)), None)
    if tried is None:
        known = ", ".join(str(one.number) for one in reversed(tries) if one.number)
        there = f"there is {known}" if known else "none has begun"
        hint = "leave --try out for the latest"
        raise JobkitError(f"{point.point_id} has no try {number}: {there}", hint=hint)
    same_task = (other.number for other in tries if other.task == tried.task)
    tasks = (pair for submission in accounts.journal.submissions for pair in submission.tasks())
    packed = tried.task in accounts.packed
    together = {index for task, indices in tasks if packed and task == tried.task for index in indices}
    return Log(
        point=point,
        tried=tried,
        path=log_path(run, point, tried.task),
        tries=tuple(sorted(filter(None, same_task))),
        others=tuple(other.point_id for other in points if other.index in together - {point.index}),
    )


FIRST_PAUSE_S, SLOWEST_PAUSE_S = 0.2, 2.0
ASK_EVERY_S = 30.0  # time without output until the scheduler is asked whether more is to come


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
    while not log.ended:
        before, place = place, _copy(path, place, errors, out)
        grew, due = place != before, time.monotonic() >= ask_at
        if due and not grew:
            point = _point(run, log)
            say(f"{log.name}: {_state(point)}")
            if point.standing not in LIVE:
                break
        if grew:
            waits = pauses(FIRST_PAUSE_S, SLOWEST_PAUSE_S)
        if grew or due:
            ask_at = time.monotonic() + ASK_EVERY_S
        time.sleep(next(waits))
        if not log.tried.number and try_numbers(point_folder(run, log.point.point_id)):
            log = find_log(run, log.point.point_id)  # of the try that has begun since
        if log.path != path:
            path, place = _followed(run, log, say), 0
    place = _copy(path, place, errors, out)
    if not place and not path.is_file():
        raise _missing(run, log)
    _end(run, log, errors, out, say)


def _followed(run: Path, log: Log, say: Say) -> Path:
    """Report which log is followed from now on; return its path. A point submitted again has another."""
    if log.tried.by_hand or log.path is None:
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
            while data := stream.read(2**16):
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
    point = _point(run, log)
    tried = next((tried for tried in point.tries if tried.number == log.tried.number), None)
    if tried is None or tried.outcome is None:
        return _state(point)
    message = tried.record.message if tried.record else ""
    words = [str(tried.outcome), tried.evidence, "" if message in tried.evidence else message]
    return plain("; ".join(filter(None, words)))


def _note(log: Log, say: Say) -> None:
    """Report which log it is, and what else is in it."""
    say(f"{log.name}: {_job(log)}, {log.path}")
    if len(log.tries) > 1:
        say(f"the log holds tries {', '.join(map(str, log.tries))}, one after the other")
    if log.others:
        say(f"the log holds all of the job, one after the other: also {', '.join(log.others)}")


def _job(log: Log) -> str:
    task = log.tried.task
    return f"{task.scheduler} job {task.job_id}, task {task.task}" if task else "of no job"


def _point(run: Path, log: Log) -> PointStatus:
    (status,) = read_status([run.absolute()])
    return find_point(status.points, log.point.point_id)


def _state(point: PointStatus) -> str:
    return f"{point.state}, {point.why}" if point.why else point.state


def _missing(run: Path, log: Log) -> JobkitError:
    """Return why there is no log, and whether there will be one."""
    if log.tried.by_hand:
        message = f"{log.name} was run by hand: its output went to that terminal"
        return JobkitError(message, hint=f"{_command('logs', run, log)} --try N prints another try")
    if log.ended:
        where = f"{log.path} is not there" if log.path else "its job is not known"
        hint = f"somebody may have moved or removed the log; {_command('status', run, log)} shows the rest"
        return JobkitError(f"{log.name} has ended ({_outcome(run, log)}), but {where}", hint=hint)
    point = _point(run, log)
    job = f" ({_job(log)})" if log.tried.task else ""
    hint, yet, exit_code = f"{_command('status', run, log)} shows everything known", "", ExitCode.USAGE
    if log.tried.task is None:
        hint, exit_code = f"{_command('resume', run)} submits it", ExitCode.TO_COME
    elif point.standing in LIVE:
        hint, yet, exit_code = "with -f jobkit prints the log as soon as it comes", " yet", ExitCode.TO_COME
    return JobkitError(f"{log.name} has no log{yet}: {_state(point)}{job}", hint=hint, exit_code=exit_code)


def _command(command: str, run: Path, log: Log | None = None) -> str:
    return f"jobkit {command} {shell_quote(run)}{f' {log.point.index}' if log else ''}"
