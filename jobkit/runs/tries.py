"""Read the tries of a point, and decide the outcome of each.

The record decides, else the exit file, else the accounting, else the words of a log; nothing is guessed.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from jobkit.core.errors import JobkitError
from jobkit.core.files import open_regular, parse_object, read_text
from jobkit.core.json_codec import from_dict
from jobkit.core.layout import (
    BEGIN_FILE,
    BY_HAND,
    EXIT_FILE,
    LOGS_FOLDER,
    RECORD_FILE,
    TRY_PREFIX,
    Begin,
    Exit,
    read_begin,
    read_exit,
)
from jobkit.core.records import RESULTS, Outcome, Point, Record
from jobkit.core.units import format_moment, format_walltime
from jobkit.runs.accounting import Accounts
from jobkit.runs.journal import JobTask
from jobkit.runs.kinds import kind_for
from jobkit.schedulers.registry import SCHEDULERS, runs_here
from jobkit.schedulers.types import Accounted

_ENDS: tuple[tuple[re.Pattern[str], Outcome], ...] = (
    # the job script's message, if it could not write its exit file
    (re.compile(r"job(?:-\d+)?\.sh: (?P<outcome>[a-z_]+): "), Outcome.LOST),
    (re.compile(r"No space left on device|Disk quota exceeded"), Outcome.SCRATCH_FULL),
)  # from the most specific to the least


def reported_outcome(text: str) -> tuple[Outcome, str] | None:
    """Return the outcome that the end of a log reports, and its line; ``None`` if no line does.

    A task that ran twice writes into one log, so the last line counts.
    """
    lines = [line.strip() for line in text.splitlines()]
    of_schedulers = (pair for scheduler in SCHEDULERS.values() for pair in scheduler.LOG_OUTCOMES)
    for pattern, outcome in (*of_schedulers, *_ENDS):
        for line in reversed(lines):
            if match := pattern.search(line):
                word = match.groupdict().get("outcome")  # of the job script
                return Outcome(word) if word in set(Outcome) else outcome, line[-300:]
    return None


_FAULT = re.compile(
    r"Traceback \(most recent call last\)|^Fatal Python error"
    r"|(?:job(?:-\d+)?|find|follow|fetch)\.sh: |: line \d+: |\b[Ee]rror: "
    r"|^(?:Killed|Aborted|Bus error|Segmentation fault)|No space left on device|Disk quota exceeded"
)  # Python, the job script, bash, programs, the system


def is_fault(line: str) -> bool:
    patterns = (_FAULT, *(scheduler.LOG_FAULT for scheduler in SCHEDULERS.values()))
    return any(pattern.search(line) for pattern in patterns)


_CRASH = re.compile(
    r": line \d+: +\d+ (?P<signal>[A-Z][a-z]+(?: [a-z]+)*(?: +\(core dumped\))?)(?: {2,}| *\( )"
)
"""How bash reports a process that a signal ended: behind it, the command as written in the script."""


def last_words(text: str) -> str:
    """Return the last line of a log that is not empty: of a traceback the error, of a crash the signal."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    if crash := _CRASH.search(last):
        return f"the worker crashed: {' '.join(crash['signal'].split())}"
    return last[-300:]


OVERRULING = frozenset(
    {Outcome.TIMEOUT, Outcome.CANCELLED, Outcome.PREEMPTED, Outcome.NODE_FAIL, Outcome.RAM_OOM},
)
"""Outcomes of the accounting that overrule a provisional one: it knows best who sent the signal."""

SIGNALS = {"USR1": Outcome.TIMEOUT, "XCPU": Outcome.TIMEOUT, "KILL": Outcome.LOST}
"""The walltime warnings that jobkit requests, and a kill -9 of the job script, for an unknown reason; any
other signal is ``cancelled``, provisionally."""

STAGES = {
    "stage_in": Outcome.STAGE_IN,
    "environment": Outcome.ENVIRONMENT,
    "stage_out": Outcome.STAGE_OUT,
}
"""The outcome of a job script that failed in this step and names no outcome itself."""

KILLED = 137
"""128 + SIGKILL: walltime, memory or a person; the exit status does not show which."""


@dataclass(frozen=True, slots=True)
class TryOutcome:
    outcome: Outcome | None  # ``None`` while it is still to come
    evidence: str  # what it follows from, in a line for a person
    provisional: bool = False  # whether the accounting may still overrule it
    hung: bool = False  # whether a batch hung, as in `Record`


TO_COME = TryOutcome(None, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """A try: what its folder holds, what is known of its task, and its outcome."""

    number: int  # of the try, from 1
    record: Record | None = None  # ``None`` if its file is not home or cannot be read
    exit: Exit | None = None  # ``None`` if its file is not home or cannot be read
    begin: Begin | None = None  # who ran it; ``None`` if that is not known, or if there is a record
    problem: str = ""  # why a file that is there cannot be read, else empty
    folder: str = ""  # where they are; empty if no try has begun
    verdict: TryOutcome = TO_COME  # its outcome, and why
    task: JobTask | None = None  # the task that ran it, if it is known
    node: str = ""  # where it ran, as far as is known
    # what the scheduler's accounting, or its queue, reports of it; ``None`` if nothing
    account: Accounted | None = None
    alone: bool = True  # whether its task ran no other point, so that the time of the account is its own

    @property
    def by_hand(self) -> bool:
        """Whether a person ran it: ``bash job.sh K``."""
        by = self.record.job.scheduler if self.record else self.begin.scheduler if self.begin else ""
        return by == BY_HAND

    @property
    def queue(self) -> str:
        """The queue that its job got; empty if that is not known."""
        if self.record is None:
            return self.begin.queue if self.begin else ""
        scheduler = SCHEDULERS.get(self.record.job.scheduler)
        names = scheduler.RECORDED_VARIABLES[:1] if scheduler else ()
        return "".join(self.record.environment.get(name, "") for name in names)

    @property
    def restart(self) -> int:
        """How often the scheduler had begun its task before."""
        return self.record.job.restart if self.record else self.begin.restart if self.begin else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """What else is known of the task that ran a try."""

    gone: str = ""  # since when the queue has not held it, if nothing else reports its end; else empty
    cancelled: str = ""  # when jobkit took it back; else empty
    packed: bool = False  # whether the task runs several points
    superseded: bool = False  # whether a later try of the point has begun
    # whether the scheduler began the same task again after this try, by itself or because of a person
    requeued: bool = False
    here: bool = False  # whether a process of this machine ran it, and no scheduler: there is no queue


NO_HOME = 73
"""The status of a job script that cannot write in the run folder (sysexits.h, EX_CANTCREAT)."""


def decide_outcome(
    tried: Try | None, accounted: Accounted | None = None, known: TaskFacts | None = None
) -> TryOutcome:
    """Return the outcome of a try, ``None`` for a point without try folder, and why."""
    known = known or TaskFacts()
    verdict = _judge(tried, accounted, known)
    if not known.requeued or verdict.outcome in RESULTS:
        return verdict
    return replace(verdict, evidence=f"{verdict.evidence}; the scheduler began the task again")


def _judge(tried: Try | None, accounted: Accounted | None, known: TaskFacts) -> TryOutcome:
    if tried is None:
        verdict = _by_accounting(
            accounted, known, "left no try folder", "not started, or its folder is not copied home yet"
        )
        return _not_begun(verdict, accounted, known)
    if tried.record is not None:
        return _overruled(_by_record(tried.record, tried.exit), accounted)
    if tried.exit is not None:
        verdict = _by_exit(tried.exit, accounted)
    else:
        verdict = _by_accounting(
            accounted, known, "left no record", "no record yet: running, or not copied home yet"
        )
        verdict = _without_end(_cancelled(verdict, known), known)
    if not tried.problem:
        return verdict
    # A record is written once, at the end: one that cannot be read is no try still to come.
    outcome = verdict.outcome or Outcome.LOST
    return replace(verdict, outcome=outcome, evidence=f"{tried.problem}; {verdict.evidence}")


def _not_begun(verdict: TryOutcome, accounted: Accounted | None, known: TaskFacts) -> TryOutcome:
    """Return the outcome of a point that left nothing, by what else is known of its task."""
    verdict = _cancelled(verdict, known)
    if known.packed and accounted is not None and accounted.ended and verdict.outcome is Outcome.LOST:
        return TryOutcome(Outcome.STOPPED, f"its job ended before its turn came ({_words(accounted)})")
    if verdict.outcome is None and known.cancelled:
        return TryOutcome(
            Outcome.CANCELLED, f"by jobkit at {format_moment(known.cancelled)}, before it began"
        )
    if verdict.outcome is None and known.here and known.gone and not known.superseded:
        return replace(verdict, evidence="it did not begin: the process of the run is gone")
    return _without_end(verdict, known)


def _cancelled(verdict: TryOutcome, known: TaskFacts) -> TryOutcome:
    """Return ``cancelled`` if jobkit cancelled the task, and the accounting only reports that it was killed.

    qacct does not distinguish ``qdel`` from ``kill -9`` (measured, Grid Engine 8.1.9).
    """
    if verdict.outcome is not Outcome.LOST or not known.cancelled:
        return verdict
    return TryOutcome(Outcome.CANCELLED, f"by jobkit at {format_moment(known.cancelled)}; {verdict.evidence}")


def _without_end(verdict: TryOutcome, known: TaskFacts) -> TryOutcome:
    """Return a verdict on a try whose end neither its files nor the accounting report."""
    if verdict.outcome is not None:
        return verdict
    if known.superseded:
        return TryOutcome(Outcome.LOST, "it was run again, and nothing reports how this try ended")
    if not known.gone:
        return verdict
    at = format_moment(known.gone)
    gone = f"its process is gone, seen at {at}" if known.here else f"not in the queue since {at}"
    if known.cancelled:
        return TryOutcome(Outcome.CANCELLED, f"by jobkit at {format_moment(known.cancelled)}, and {gone}")
    why = f"{gone}, and no record, exit file or accounting reports why"
    return TryOutcome(Outcome.LOST, why, provisional=True)


def _by_record(record: Record, exit_: Exit | None) -> TryOutcome:
    signal = f"signal {record.signal}" if record.signal else ""
    kept = f"files kept in {exit_.kept}" if exit_ and exit_.scratch else ""
    evidence = "; ".join(filter(None, (record.message, signal, kept))) or "by its record"
    return TryOutcome(record.outcome, evidence, provisional=record.provisional, hung=record.hung)


def _overruled(verdict: TryOutcome, accounted: Accounted | None) -> TryOutcome:
    """Return the accounting's outcome instead of a provisional one, if it may overrule it."""
    if not verdict.provisional or accounted is None or not accounted.ended:
        return verdict
    evidence = f"{verdict.evidence}; accounting: {_words(accounted)}"
    if accounted.outcome in OVERRULING:
        return TryOutcome(outcome=accounted.outcome, evidence=evidence)
    return replace(verdict, evidence=evidence) if verdict.outcome is Outcome.LOST else verdict


def _by_exit(exit_: Exit, accounted: Accounted | None) -> TryOutcome:
    """Return the outcome by the exit file, or by the accounting if that knows better."""
    where = f"status {exit_.status} in step {exit_.stage or 'unknown'}"
    signal = f"signal {exit_.signal}" if exit_.signal else ""
    kept = f"results kept in {exit_.kept}" if exit_.scratch else ""
    evidence = "; ".join(filter(None, (f"exit file: {exit_.message or where}", signal, kept)))
    if exit_.signal:
        outcome = exit_.outcome or SIGNALS.get(exit_.signal.removeprefix("SIG"), Outcome.CANCELLED)
        return _overruled(TryOutcome(outcome=outcome, evidence=evidence, provisional=True), accounted)
    if exit_.outcome is not None:
        return TryOutcome(outcome=exit_.outcome, evidence=evidence)
    if exit_.status != 0 and exit_.stage in STAGES:
        return TryOutcome(outcome=STAGES[exit_.stage], evidence=evidence)
    if accounted is not None and accounted.ended and accounted.outcome in OVERRULING:
        return TryOutcome(outcome=accounted.outcome, evidence=f"{evidence}; accounting: {_words(accounted)}")
    if exit_.status == KILLED:
        evidence += ": killed (walltime, memory, or a person); the accounting does not report by whom"
        unsure = accounted is None or not accounted.ended
        return TryOutcome(outcome=Outcome.LOST, evidence=evidence, provisional=unsure)
    outcome = Outcome.BUG if exit_.status else Outcome.LOST
    return TryOutcome(outcome=outcome, evidence=f"{evidence}, but no record was copied home")


VISIBLE_AFTER = timedelta(seconds=60)
"""A shared file system may show so late what another machine wrote (nfs(5), ``acdirmax``)."""


def _by_accounting(accounted: Accounted | None, known: TaskFacts, left: str, silent: str) -> TryOutcome:
    """Return the outcome by the accounting, for a try that left neither record nor exit file."""
    if accounted is None:
        return TryOutcome(outcome=None, evidence=silent)
    words = _words(accounted)
    if not accounted.ended:
        # An outcome before the end is an error state of the queue, which a person may clear.
        return TryOutcome(
            outcome=accounted.outcome, evidence=words, provisional=accounted.outcome is not None
        )
    if accounted.outcome is None and accounted.exit_status == NO_HOME:
        return TryOutcome(Outcome.STAGE_OUT, f"the job could not write in the run folder ({words})")
    if accounted.outcome in {None, Outcome.OK}:
        evidence = f"it ended ({words}) and {left}"
        since = datetime.now(UTC) - accounted.ended_at if accounted.ended_at else VISIBLE_AFTER
        if timedelta() <= since < VISIBLE_AFTER and not known.cancelled:
            return TryOutcome(outcome=None, evidence=f"{evidence}, but files of its node may still arrive")
        return TryOutcome(outcome=Outcome.LOST, evidence=evidence)
    return TryOutcome(outcome=accounted.outcome, evidence=f"accounting: {words}")


def _words(accounted: Accounted) -> str:
    status = "" if accounted.exit_status is None else f"exit status {accounted.exit_status}"
    return accounted.evidence or status or "no words"


T = TypeVar("T")
LOG_TAIL_BYTES = 16 * 2**10  # how much of a log is read: its end shows how the try ended


def read_tries(home: str, point: Point, accounts: Accounts, numbers: list[int]) -> Iterator[Try]:
    """Yield a point's tries, the latest first, and then those by hand.

    If the point was submitted again and has not begun, a placeholder with number 0 comes first.
    `try_that_counts` decides which try counts.

    The scheduler may run a task again by itself: then one task has several tries and several accounts, both
    in order. Its last try goes with the last account, and so on backwards; an account of a start that failed
    (``queue_error``), or of none, goes with no try. If there are fewer accounts than times that the scheduler
    began it, the latest are still to come.
    """
    every = [read_try(home, number, point) for number in numbers]
    read = [tried for tried in every if not tried.by_hand]
    tasks = [_task_of(tried, accounts, point, latest=place == 0) for place, tried in enumerate(read)]
    superseded = bool(every) and accounts.submitted.get(point.index) not in {None, *tasks}
    if superseded:
        yield not_started(point, accounts)
    later: Counter[JobTask] = Counter()
    for tried, task in zip(read, tasks, strict=True):
        own = [one for one, its in zip(read, tasks, strict=True) if task is not None and its == task]
        accounted = _account(_begun_runs(accounts, task), own, later[task] if task else 0)
        known = _task_facts(accounts, task, superseded=superseded)
        if task:
            known = replace(known, requeued=_began_again(own, later[task]))
            later[task] += 1
        verdict = decide_outcome(tried, accounted, known)
        verdict = _with_log(verdict, tried, log_path(Path(home).parents[1], point, task))
        verdict = _with_walltime(verdict, accounted, accounts, task)
        yield replace(
            tried,
            verdict=verdict,
            task=task,
            node=_node(tried, accounted),
            account=accounted,
            alone=_alone(point, task, known),
        )
        superseded = True
    for tried in every:
        if tried.by_hand:
            yield replace(tried, verdict=decide_outcome(tried), node=_node(tried, None))


def try_that_counts(tries: Sequence[Try]) -> Try:
    """Return the try that counts: the one that succeeded, else the latest.

    A try by hand counts only while no other try of the point has begun: a person runs it where and when they
    like, so it is no measurement of the sweep.
    """
    if len(tries) == 1:
        return tries[0]
    own = [tried for tried in tries if not tried.by_hand]
    among = own if any(tried.number for tried in own) else tries
    return next((tried for tried in among if tried.verdict.outcome is Outcome.OK), among[0])


def log_path(run: Path, point: Point, task: JobTask | None) -> Path | None:
    """Return where the log of a point's task is, or will be; ``None`` if that is not known."""
    scheduler = SCHEDULERS.get(task.scheduler) if task else None
    name = scheduler.log_name(point.run_id, task.job_id, task.task) if scheduler and task else ""
    return run / LOGS_FOLDER / name if name else None


def _with_log(verdict: TryOutcome, tried: Try, path: Path | None) -> TryOutcome:
    """Return a verdict on a try that left no record, with what its log reports: the last source."""
    if tried.record is not None or path is None or verdict.outcome not in {Outcome.LOST, Outcome.BUG}:
        return verdict
    text = _tail(path)
    reported = reported_outcome(text) if verdict.outcome is Outcome.LOST else None
    if reported:
        return replace(verdict, outcome=reported[0], evidence=f"{verdict.evidence}; log: {reported[1]}")
    if words := last_words(text):
        return replace(verdict, evidence=f"{verdict.evidence}; end of the log: {words}")
    return verdict


def _with_walltime(
    verdict: TryOutcome, accounted: Accounted | None, accounts: Accounts, task: JobTask | None
) -> TryOutcome:
    """Return a verdict on a try that ran out of walltime, with the walltime; a batch that hung did not."""
    walltime_s = accounts.walltimes_s.get(task) if task else None
    if verdict.outcome is not Outcome.TIMEOUT or verdict.hung or walltime_s is None:
        return verdict
    killed = accounted is not None and accounted.outcome is Outcome.TIMEOUT
    words = "reached" if killed else "was warned before the end of"
    evidence = f"{words} its walltime of {format_walltime(walltime_s)}: {verdict.evidence}"
    return replace(verdict, evidence=evidence)


def _tail(path: Path) -> str:
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - LOG_TAIL_BYTES))
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _alone(point: Point, task: JobTask | None, known: TaskFacts) -> bool:
    """Return whether a task ran one point: the job of a search runs many, but on this machine none does."""
    here = task is not None and runs_here(task.scheduler)
    return here or not (known.packed or not point.kind.own_task)


def _task_of(tried: Try, accounts: Accounts, point: Point, *, latest: bool) -> JobTask | None:
    """Return the task that ran a try: by its own files, else, for the latest try, by the journal."""
    if tried.record is not None and tried.record.job.job_id:
        job = tried.record.job
        return JobTask(job.scheduler, job.job_id, int(job.task_id)) if job.task_id.isdecimal() else None
    if tried.begin is not None:
        begin = tried.begin
        return JobTask(begin.scheduler, begin.job, begin.task) if begin.task is not None else None
    return accounts.submitted.get(point.index) if latest else None


def _begun_runs(accounts: Accounts, task: JobTask | None) -> tuple[Accounted, ...]:
    runs = accounts.runs.get(task, ()) if task else ()
    return tuple(run for run in runs if run.outcome is not Outcome.QUEUE_ERROR and not run.never_began)


def _account(runs: Sequence[Accounted], own: Sequence[Try], later: int) -> Accounted | None:
    """Return the account of one of a task's own tries, given the number of later tries."""
    late = max(0, len(own) - len(runs)) if any(tried.restart for tried in own) else 0
    return runs[late - 1 - later] if 0 <= later - late < len(runs) else None


def _began_again(own: Sequence[Try], later: int) -> bool:
    return later > 0 and own[later - 1].restart > own[later].restart


def _task_facts(accounts: Accounts, task: JobTask | None, *, superseded: bool) -> TaskFacts:
    if task is None:
        return TaskFacts(superseded=superseded)
    return TaskFacts(
        gone=accounts.gone.get(task, ""),
        cancelled=accounts.journal.cancelled.get(task, ""),
        packed=task in accounts.packed,
        superseded=superseded,
        here=runs_here(task.scheduler),
    )


def _node(tried: Try, accounted: Accounted | None) -> str:
    record = tried.record
    names = (
        accounted.node if accounted else "",  # the scheduler's name for it, which --exclude accepts
        record.environment.get("HOSTNAME", "") if record else "",  # as in the begin file
        record.host if record else "",
        tried.begin.host if tried.begin else "",
        tried.exit.host if tried.exit else "",
    )
    return next(filter(None, names), "")


def not_started(point: Point, accounts: Accounts, earlier: JobTask | None = None) -> Try:
    """Return what is known of a point that has no try folder of its last task, or of an earlier one."""
    task = earlier or accounts.submitted.get(point.index)
    accounted = accounts.runs.get(task, (None,))[-1] if task else None
    verdict = decide_outcome(None, accounted, _task_facts(accounts, task, superseded=False))
    verdict = _with_walltime(verdict, accounted, accounts, task)
    if task is None:
        verdict = replace(verdict, evidence="not submitted")
    elif accounted is None and verdict.outcome is not Outcome.CANCELLED:
        words = f"{task.scheduler} job {task.job_id}, task {task.task}: {verdict.evidence}"
        verdict = TryOutcome(outcome=verdict.outcome, evidence=words)
    node = accounted.node if accounted else ""
    return Try(number=0, verdict=verdict, task=task, node=node, account=accounted)


def read_try(home: str, number: int, point: Point) -> Try:
    """Return what one try folder holds; a file that cannot be read is a `problem`, never an error."""
    folder = f"{home}/{TRY_PREFIX}{number}"
    problems: list[str] = []
    # First the file that is written last: a try may end meanwhile, and one with an exit file has its record.
    exit_ = _read_file(f"{folder}/{EXIT_FILE}", read_exit, problems)
    record = _read_file(f"{folder}/{RECORD_FILE}", lambda path: _read_record(path, point), problems)
    if record and record.outcome is Outcome.OK and not kind_for(point).is_home(home, folder):
        record = None  # it came home before the results, and these never did
    return Try(
        number=number,
        record=record,
        exit=exit_,
        begin=_read_file(f"{folder}/{BEGIN_FILE}", read_begin, []) if record is None else None,  # optional
        problem="; ".join(problems),
        folder=folder,
    )


def _read_file(path: str, read: Callable[[str], T], problems: list[str]) -> T | None:
    """Return what a file holds; ``None`` if it is not home, or cannot be read: then add the problem."""
    try:
        return read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        problems.append(f"{path}: cannot be read: {error.strerror}")
    except JobkitError as error:
        problems.append(error.message)
    return None


def _read_record(path: str, point: Point) -> Record:
    record = from_dict(Record, _with_point(parse_object(read_text(path), path), point), where=path)
    if _identity(record.point) != _identity(point):
        of = record.point
        raise JobkitError(f"{path}: of another point ({of.run_id} {of.point_id}), number {of.index}")
    return record


def _with_point(data: dict[str, Any], point: Point) -> dict[str, Any]:
    """Return a record's JSON with its point as already read, if it is the same: a third less to read."""
    own = data.get("point")
    if not isinstance(own, dict):
        return data
    same = (own.get("run_id"), own.get("index"), own.get("point_id")) == _identity(point)
    return {**data, "point": point} if same else data


def _identity(point: Point) -> tuple[str, int, str]:
    """Return what distinguishes points: in old runs two trials of one batch share an id."""
    return point.run_id, point.index, point.point_id
