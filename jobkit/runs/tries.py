"""Decide the outcome of a try; how far it is, and how long it took.

The record decides, else the exit file, else the accounting, else the words of a log; nothing is guessed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from jobkit.core import layout
from jobkit.core.errors import JobkitError
from jobkit.core.frozen import keyed
from jobkit.core.records import RESULTS, Batch, Outcome, Point, Record
from jobkit.core.units import format_moment, moment
from jobkit.runs.journal import JobTask
from jobkit.schedulers.registry import SCHEDULERS
from jobkit.schedulers.types import Accounted


def reported_outcome(text: str) -> tuple[Outcome, str] | None:
    """Return the outcome that the end of a log reports, and its line; ``None`` if no line does.

    A task that ran twice writes into one log, so the last line counts.
    """
    lines = [line.strip() for line in text.splitlines()]
    patterns = [  # from the most specific to the least
        *(pair for scheduler in SCHEDULERS.values() for pair in scheduler.LOG_OUTCOMES),
        # the job script's message, if it could not write its exit file
        (re.compile(r"job(?:-\d+)?\.sh: (?P<outcome>[a-z_]+): "), Outcome.LOST),
        (re.compile(r"No space left on device|Disk quota exceeded"), Outcome.SCRATCH_FULL),
    ]
    for pattern, outcome in patterns:
        for line in reversed(lines):
            if match := pattern.search(line):
                word = match.groupdict().get("outcome")  # of the job script
                return Outcome(word) if word in set(Outcome) else outcome, line[-300:]
    return None


def is_fault(line: str) -> bool:
    of_others = (  # Python, the job script, bash, programs, the system
        r"Traceback \(most recent call last\)|^Fatal Python error"
        r"|(?:job(?:-\d+)?|find|follow|fetch)\.sh: |: line \d+: |\b[Ee]rror: "
        r"|^(?:Killed|Aborted|Bus error|Segmentation fault)|No space left on device|Disk quota exceeded"
    )
    of_schedulers = any(scheduler.LOG_FAULT.search(line) for scheduler in SCHEDULERS.values())
    return of_schedulers or re.search(of_others, line) is not None


def last_words(text: str) -> str:
    """Return the last line of a log that is not empty: of a traceback the error, of a crash the signal."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    # how bash reports a process that a signal ended: behind it, the command as written in the script
    signal = r"(?P<signal>[A-Z][a-z]+(?: [a-z]+)*(?: +\(core dumped\))?)"
    if crash := re.search(rf": line \d+: +\d+ {signal}(?: {{2,}}| *\( )", last):
        return f"the worker crashed: {' '.join(crash['signal'].split())}"
    return last[-300:]


OVERRULING = frozenset(
    {Outcome.TIMEOUT, Outcome.CANCELLED, Outcome.PREEMPTED, Outcome.NODE_FAIL, Outcome.RAM_OOM},
)
"""Outcomes of the accounting that overrule a provisional one: it knows best who sent the signal."""
KILLED = 137
"""128 + SIGKILL: walltime, memory or a person; the exit status does not show which."""


NO_HOME = 73
"""The status of a job script that cannot write in the run folder (sysexits.h, EX_CANTCREAT)."""
VISIBLE_AFTER = timedelta(seconds=60)
"""A shared file system may show so late what another machine wrote (nfs(5), ``acdirmax``)."""


@keyed
class Try:
    """A try: what its folder holds, what is known of its task, and its outcome."""

    number: int  # of the try, from 1; 0 for a task that left no try folder
    record: Record | None = None  # ``None`` if its file is not home or cannot be read
    exit: layout.Exit | None = None  # ``None`` if its file is not home or cannot be read
    begin: layout.Begin | None = None  # who ran it; ``None`` if that is not known, or if there is a record
    problem: str = ""  # why a file that is there cannot be read, else empty
    folder: str = ""  # where they are; empty if no try has begun
    outcome: Outcome | None = None  # ``None`` while it is still to come
    evidence: str = ""  # what its outcome follows from, in a line for a person
    provisional: bool = False  # whether the accounting may still overrule its outcome
    hung: bool = False  # whether a batch hung, as in `Record`
    task: JobTask | None = None  # the task that ran it, if it is known
    node: str = ""  # where it ran, as far as is known
    # what the scheduler's accounting, or its queue, reports of it; ``None`` if nothing
    account: Accounted | None = None
    alone: bool = True  # whether its task ran no other point, so that the time of the account is its own

    @property
    def by_hand(self) -> bool:
        """Whether a person ran it: ``bash job.sh K``."""
        by = self.record.job.scheduler if self.record else self.begin.scheduler if self.begin else ""
        return by == layout.BY_HAND

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

    def ended(self, outcome: Outcome | None, evidence: str, *, provisional: bool = False) -> Try:
        return replace(self, outcome=outcome, evidence=evidence, provisional=provisional)


@keyed
class TaskFacts:
    """What else is known of the task that ran a try."""

    gone: str = ""  # since when the queue has not held it, if nothing else reports its end; else empty
    cancelled: str = ""  # when jobkit took it back; else empty
    packed: bool = False  # whether the task runs several points
    superseded: bool = False  # whether a later try of the point has begun
    # whether the scheduler began the same task again after this try, by itself or because of a person
    requeued: bool = False
    here: bool = False  # whether a process of this machine ran it, and no scheduler: there is no queue


def decide_outcome(tried: Try, known: TaskFacts | None = None) -> Try:
    """Return a try, or a task without a try folder, with its outcome and the evidence."""
    known = known or TaskFacts()
    if tried.record is not None:
        record = tried.record
        signal = f"signal {record.signal}" if record.signal else ""
        kept = f"files kept in {tried.exit.kept}" if tried.exit and tried.exit.scratch else ""
        evidence = "; ".join(filter(None, (record.message, signal, kept))) or "by its record"
        own = tried.ended(record.outcome, evidence, provisional=record.provisional)
        decided = _overruled(replace(own, hung=record.hung))
    elif tried.exit is not None:
        decided = _by_exit(tried, tried.exit)
    else:
        decided = _without_end(_by_accounting(tried, known), known)
    if tried.problem and tried.record is None:
        # A record is written once, at the end: one that cannot be read is no try still to come.
        outcome = decided.outcome or Outcome.LOST
        decided = replace(decided, outcome=outcome, evidence=f"{tried.problem}; {decided.evidence}")
    if not known.requeued or decided.outcome in RESULTS:
        return decided
    return replace(decided, evidence=f"{decided.evidence}; the scheduler began the task again")


def _without_end(tried: Try, known: TaskFacts) -> Try:
    """Return a try that left neither record nor exit file, by what else is known of its task.

    qacct does not distinguish ``qdel`` from ``kill -9`` (measured, Grid Engine 8.1.9).
    """
    lost, begun = tried.outcome is Outcome.LOST, bool(tried.number)
    at = format_moment(known.gone) if known.gone else ""
    gone = f"its process is gone, seen at {at}" if known.here else f"not in the queue since {at}"
    over = lost or (tried.outcome is None and (not begun or (bool(at) and not known.superseded)))
    if known.cancelled and over:
        how = f"; {tried.evidence}" if lost else f", and {gone}" if begun else ", before it began"
        return tried.ended(Outcome.CANCELLED, f"by jobkit at {format_moment(known.cancelled)}{how}")
    if lost and known.packed and not begun and tried.account:
        words = _words(tried.account)
        return tried.ended(Outcome.STOPPED, f"its job ended before its turn came ({words})")
    if tried.outcome is not None or not (known.superseded or at):
        return tried
    if known.superseded:
        return tried.ended(Outcome.LOST, "it was run again, and nothing reports how this try ended")
    if known.here and not begun:
        return replace(tried, evidence="it did not begin: the process of the run is gone")
    evidence = f"{gone}, and no record, exit file or accounting reports why"
    if not begun:  # Slurm's accounting has no line of a task of an array that was cancelled so
        evidence += "; it had not begun: perhaps it was cancelled with the scheduler's own command"
    return tried.ended(Outcome.LOST, evidence, provisional=True)


def _overruled(tried: Try) -> Try:
    """Return a try with the accounting's outcome instead of a provisional one, if it may overrule it."""
    accounted = tried.account
    if not tried.provisional or accounted is None or not accounted.ended:
        return tried
    evidence = f"{tried.evidence}; accounting: {_words(accounted)}"
    if accounted.outcome in OVERRULING:
        return replace(tried.ended(accounted.outcome, evidence), hung=False)
    return replace(tried, evidence=evidence) if tried.outcome is Outcome.LOST else tried


def _by_exit(tried: Try, exit_: layout.Exit) -> Try:
    """Return a try with the outcome by its exit file, or by the accounting if that knows better."""
    where = f"status {exit_.status} in step {exit_.stage or 'unknown'}"
    signal = f"signal {exit_.signal}" if exit_.signal else ""
    kept = f"results kept in {exit_.kept}" if exit_.scratch else ""
    evidence = "; ".join(filter(None, (f"exit file: {exit_.message or where}", signal, kept)))
    # The walltime warnings that jobkit requests, and a kill -9 of the job script, for an unknown reason; any
    # other signal is `cancelled`, provisionally
    signals = {"USR1": Outcome.TIMEOUT, "XCPU": Outcome.TIMEOUT, "KILL": Outcome.LOST}
    if exit_.signal:
        outcome = exit_.outcome or signals.get(exit_.signal.removeprefix("SIG"), Outcome.CANCELLED)
        return _overruled(tried.ended(outcome, evidence, provisional=True))
    if exit_.outcome is not None:
        return tried.ended(exit_.outcome, evidence)
    # The outcome of a job script that failed in this step and names no outcome itself
    stages = {
        "stage_in": Outcome.STAGE_IN,
        "environment": Outcome.ENVIRONMENT,
        "stage_out": Outcome.STAGE_OUT,
    }
    if exit_.status != 0 and exit_.stage in stages:
        return tried.ended(stages[exit_.stage], evidence)
    accounted = tried.account
    if accounted is not None and accounted.ended and accounted.outcome in OVERRULING:
        return tried.ended(accounted.outcome, f"{evidence}; accounting: {_words(accounted)}")
    if exit_.status == KILLED:
        evidence += ": killed (walltime, memory, or a person); the accounting does not report by whom"
        return tried.ended(Outcome.LOST, evidence, provisional=accounted is None or not accounted.ended)
    outcome = Outcome.BUG if exit_.status else Outcome.LOST
    return tried.ended(outcome, f"{evidence}, but no record was copied home")


def _by_accounting(tried: Try, known: TaskFacts) -> Try:
    """Return a try that left neither record nor exit file with the outcome by the accounting."""
    accounted = tried.account
    if accounted is None:
        begun = "no record yet: running, or" if tried.number else "not started, or its folder is"
        return tried.ended(None, f"{begun} not copied home yet")
    words = _words(accounted)
    if not accounted.ended:
        # An outcome before the end is an error state of the queue, which a person may clear.
        return tried.ended(accounted.outcome, words, provisional=accounted.outcome is not None)
    if accounted.outcome is None and accounted.exit_status == NO_HOME:
        return tried.ended(Outcome.STAGE_OUT, f"the job could not write in the run folder ({words})")
    if accounted.outcome not in {None, Outcome.OK}:
        return tried.ended(accounted.outcome, f"accounting: {words}")
    evidence = f"it ended ({words}) and left no {'record' if tried.number else 'try folder'}"
    evidence += f"; {NO_HOME} if it could not write in the run folder" if f" {NO_HOME} or " in words else ""
    since = datetime.now(UTC) - accounted.ended_at if accounted.ended_at else VISIBLE_AFTER
    if timedelta() <= since < VISIBLE_AFTER and not known.cancelled:
        return tried.ended(None, f"{evidence}, but files of its node may still arrive")
    return tried.ended(Outcome.LOST, evidence)


def _words(accounted: Accounted) -> str:
    status = "" if accounted.exit_status is None else f"exit status {accounted.exit_status}"
    return accounted.evidence or status or "no words"


def try_that_counts(tries: Sequence[Try]) -> Try:
    """Return the try that counts: the one that succeeded, else the latest.

    A try by hand counts only while no other try of the point has begun: a person runs it where and when they
    like, so it is no measurement of the sweep.
    """
    if len(tries) == 1:
        return tries[0]
    own = [tried for tried in tries if not tried.by_hand]
    among = own if any(tried.number for tried in own) else tries
    return next((tried for tried in among if tried.outcome is Outcome.OK), among[0])


def log_path(run: Path, point: Point, task: JobTask | None) -> Path | None:
    """Return where the log of a point's task is, or will be; ``None`` if that is not known."""
    scheduler = SCHEDULERS.get(task.scheduler) if task else None
    name = scheduler.log_name(point.run_id, task.job_id, task.task) if scheduler and task else ""
    return run / layout.LOGS_FOLDER / name if name else None


def elapsed_s(tried: Try) -> float | None:
    """Return how long an ended try took: by its record, else by the accounting of a task of its own."""
    return worker_s(tried.record) if tried.record else _account_s(tried)


def task_s(tried: Try) -> float | None:
    """Return how long an ended try took in all, staging and environment included.

    It is the longest time that any source reports. The files ``begin`` and ``exit`` report it by when they
    were written, by the clock of the file system; in a copied run folder, what ``begin`` holds reports when
    the job began, to a second.
    """
    begin, spans = Path(tried.folder, layout.BEGIN_FILE), [_account_s(tried)]
    with suppress(OSError):
        if tried.folder:
            spans.append(Path(tried.folder, layout.EXIT_FILE).stat().st_mtime - begin.stat().st_mtime)
    if tried.record and (worked_s := worker_s(tried.record)) is not None:
        copied = all(seconds is None or seconds < worked_s for seconds in spans)
        spans.append(worked_s)
        with suppress(JobkitError, OSError):
            began = moment(layout.read_begin(begin).at) if copied else None
            ended = moment(tried.record.ended_at)
            spans.append((ended - began).total_seconds() if began and ended else None)
    return max((seconds for seconds in spans if seconds is not None), default=None)


def timed(tried: Try) -> Record | None:
    """Return the record of a try with the time and the memory of its job, by which the next is planned."""
    record, rss = tried.record, tried.account.max_rss_bytes if tried.account and tried.alone else None
    return replace(record, task_s=task_s(tried), accounted_rss_bytes=rss) if record else None


def _account_s(tried: Try) -> float | None:
    return tried.account.elapsed_s if tried.account and tried.alone else None


def worker_s(record: Record) -> float | None:
    """Return how long the worker ran; ``None`` if its record does not report it."""
    began, ended = moment(record.started_at), moment(record.ended_at)
    return max(0.0, (ended - began).total_seconds()) if began and ended else None


@keyed
class Progress:
    batches: int  # calls of the workload
    batches_total: int | None  # ``None`` if the batches do not report it
    characters: int  # as read
    characters_total: int | None
    work_s: float  # what those batches took

    @property
    def left_s(self) -> float | None:
        """Time for the rest at the speed so far, without loading and end; ``None`` if unknown."""
        if self.characters_total is None or self.characters <= 0 or not 0 < self.work_s < math.inf:
            return None
        left = max(0, self.characters_total - self.characters)
        return left * (self.work_s / self.characters)


def progress_of(batches: Sequence[Batch]) -> Progress | None:
    """Return how far a try is by the batches that are home; ``None`` if there is none."""
    if not batches:
        return None
    latest_first = batches[::-1]
    return Progress(
        batches=len(batches),
        batches_total=next((batch.batches_total for batch in latest_first if batch.batches_total), None),
        characters=sum(batch.characters for batch in batches),
        characters_total=next(
            (batch.characters_total for batch in latest_first if batch.characters_total), None
        ),
        work_s=math.fsum(batch.seconds for batch in batches),
    )


def progress_of_try(tried: Try) -> Progress | None:
    """Return how far a try is, or how far it came; ``None`` if no batch is home."""
    return progress_of(layout.read_batches(tried.folder)[0]) if tried.folder else None


def whole_s(tried: Try) -> float | None:
    """Return how long all the work of a try takes at its pace; ``None`` if that is not known."""
    progress, spent_s = progress_of_try(tried), task_s(tried)
    if progress is None or progress.left_s is None or not spent_s or not progress.work_s:
        return None
    at_once = max(1.0, progress.work_s / spent_s)  # of several workers
    return spent_s + progress.left_s / at_once
