"""Decide the outcome of a try: by its record, else its exit file, else the accounting. Pure; no guesses."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jobkit.core.job_files import BY_HAND, Begin, Exit
from jobkit.core.records import RESULTS, Outcome, Record
from jobkit.core.units import format_moment
from jobkit.schedulers.types import Accounted

OVERRULING = frozenset(
    {Outcome.TIMEOUT, Outcome.CANCELLED, Outcome.PREEMPTED, Outcome.NODE_FAIL, Outcome.RAM_OOM},
)
"""Outcomes of the accounting that overrule a provisional one: it knows best who sent the signal."""

SIGNALS = {"USR1": Outcome.TIMEOUT, "XCPU": Outcome.TIMEOUT, "KILL": Outcome.LOST}
"""The walltime warnings that jobkit requests, and a kill -9 of the job script, for an unknown reason;
any other signal is ``cancelled``, provisionally."""

STAGES = {
    "stage_in": Outcome.STAGE_IN,
    "environment": Outcome.ENVIRONMENT,
    "stage_out": Outcome.STAGE_OUT,
}
"""The outcome of a job script that failed in this step and names no outcome itself."""

KILLED = 137
"""128 + SIGKILL: walltime, memory or a person; the exit status does not show which."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a try, and why.

    Attributes
    ----------
    outcome
        ``None`` while it is still to come.
    evidence
        What it follows from, in a line for a person.
    provisional
        Whether the accounting may still overrule it.
    hung
        Whether a batch hung, as in `Record`.
    """

    outcome: Outcome | None
    evidence: str
    provisional: bool = False
    hung: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TryFiles:
    """What one try folder holds.

    Attributes
    ----------
    number
        Of the try, from 1.
    record, exit
        ``None`` if the file is not home, or cannot be read.
    begin
        Who ran it; ``None`` if that is not known, or if there is a record.
    problem
        Why a file that is there cannot be read, else empty.
    folder
        Where they are; empty if no try has begun.
    """

    number: int
    record: Record | None = None
    exit: Exit | None = None
    begin: Begin | None = None
    problem: str = ""
    folder: str = ""

    @property
    def by_hand(self) -> bool:
        """Whether a person ran it: ``bash job.sh K``."""
        by = self.record.job.scheduler if self.record else self.begin.scheduler if self.begin else ""
        return by == BY_HAND

    @property
    def restart(self) -> int:
        """How often the scheduler had begun its task before."""
        return self.record.job.restart if self.record else self.begin.restart if self.begin else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What else is known of the task that ran a try.

    Attributes
    ----------
    gone
        Since when the queue has not held it, if nothing else reports its end; else empty.
    cancelled
        When jobkit took it back; else empty.
    packed
        Whether the task runs several points.
    superseded
        Whether a later try of the point has begun.
    requeued
        Whether the scheduler began the same task again after this try, by itself or because of a person.
    here
        Whether a process of this machine ran it, and no scheduler: there is no queue.
    """

    gone: str = ""
    cancelled: str = ""
    packed: bool = False
    superseded: bool = False
    requeued: bool = False
    here: bool = False


NO_HOME = 73
"""The status of a job script that cannot write in the run folder (sysexits.h, EX_CANTCREAT)."""


def decide_outcome(
    tried: TryFiles | None, accounted: Accounted | None = None, known: Circumstances | None = None
) -> Verdict:
    """Return the outcome of a try, and why.

    Parameters
    ----------
    tried
        Its files; ``None`` for a point that has no try folder.
    accounted
        The accounting of the task that ran it, if it is known.
    known
        What else is known of that task.
    """
    known = known or Circumstances()
    verdict = _judge(tried, accounted, known)
    if not known.requeued or verdict.outcome in RESULTS:
        return verdict
    return replace(verdict, evidence=f"{verdict.evidence}; the scheduler began the task again")


def _judge(tried: TryFiles | None, accounted: Accounted | None, known: Circumstances) -> Verdict:
    if tried is None:
        verdict = _by_accounting(
            accounted, "left no try folder", "not started, or its folder is not copied home yet"
        )
        return _not_begun(verdict, accounted, known)
    if tried.record is not None:
        return _overruled(_by_record(tried.record, tried.exit), accounted)
    if tried.exit is not None:
        verdict = _by_exit(tried.exit, accounted)
    else:
        verdict = _by_accounting(
            accounted, "left no record", "no record yet: running, or not copied home yet"
        )
        verdict = _without_end(_cancelled(verdict, known), known)
    if not tried.problem:
        return verdict
    # A record is written once, at the end: one that cannot be read is no try still to come.
    outcome = verdict.outcome or Outcome.LOST
    return replace(verdict, outcome=outcome, evidence=f"{tried.problem}; {verdict.evidence}")


def _not_begun(verdict: Verdict, accounted: Accounted | None, known: Circumstances) -> Verdict:
    """Return the outcome of a point that left nothing, by what else is known of its task."""
    verdict = _cancelled(verdict, known)
    if known.packed and accounted is not None and accounted.ended and verdict.outcome is Outcome.LOST:
        return Verdict(Outcome.STOPPED, f"its job ended before its turn came ({_words(accounted)})")
    if verdict.outcome is None and known.cancelled:
        return Verdict(Outcome.CANCELLED, f"by jobkit at {format_moment(known.cancelled)}, before it began")
    if verdict.outcome is None and known.here and known.gone and not known.superseded:
        return replace(verdict, evidence="it did not begin: the process of the run is gone")
    return _without_end(verdict, known)


def _cancelled(verdict: Verdict, known: Circumstances) -> Verdict:
    """Return ``cancelled`` if jobkit cancelled the task, and the accounting only reports that it was killed.

    qacct does not distinguish ``qdel`` from ``kill -9`` (measured, Grid Engine 8.1.9).
    """
    if verdict.outcome is not Outcome.LOST or not known.cancelled:
        return verdict
    return Verdict(Outcome.CANCELLED, f"by jobkit at {format_moment(known.cancelled)}; {verdict.evidence}")


def _without_end(verdict: Verdict, known: Circumstances) -> Verdict:
    """Return a verdict on a try of which neither its files nor the accounting report an end."""
    if verdict.outcome is not None:
        return verdict
    if known.superseded:
        return Verdict(Outcome.LOST, "it was run again, and nothing reports how this try ended")
    if not known.gone:
        return verdict
    at = format_moment(known.gone)
    gone = f"its process is gone, seen at {at}" if known.here else f"not in the queue since {at}"
    if known.cancelled:
        return Verdict(Outcome.CANCELLED, f"by jobkit at {format_moment(known.cancelled)}, and {gone}")
    return Verdict(
        Outcome.LOST, f"{gone}, and no record, exit file or accounting reports why", provisional=True
    )


def _by_record(record: Record, exit_: Exit | None) -> Verdict:
    signal = f"signal {record.signal}" if record.signal else ""
    kept = f"files kept in {exit_.kept}" if exit_ and exit_.scratch else ""
    evidence = "; ".join(filter(None, (record.message, signal, kept))) or "by its record"
    return Verdict(record.outcome, evidence, provisional=record.provisional, hung=record.hung)


def _overruled(verdict: Verdict, accounted: Accounted | None) -> Verdict:
    """Return the accounting's outcome instead of a provisional one, if it may overrule it."""
    if not verdict.provisional or accounted is None or not accounted.ended:
        return verdict
    evidence = f"{verdict.evidence}; accounting: {_words(accounted)}"
    if accounted.outcome in OVERRULING:
        return Verdict(outcome=accounted.outcome, evidence=evidence)
    return replace(verdict, evidence=evidence) if verdict.outcome is Outcome.LOST else verdict


def _by_exit(exit_: Exit, accounted: Accounted | None) -> Verdict:
    """Return the outcome by the exit file, or by the accounting if that knows better."""
    evidence = _exit_words(exit_)
    if exit_.signal:
        outcome = exit_.outcome or SIGNALS.get(exit_.signal.removeprefix("SIG"), Outcome.CANCELLED)
        return _overruled(Verdict(outcome=outcome, evidence=evidence, provisional=True), accounted)
    if exit_.outcome is not None:
        return Verdict(outcome=exit_.outcome, evidence=evidence)
    if exit_.status != 0 and exit_.stage in STAGES:
        return Verdict(outcome=STAGES[exit_.stage], evidence=evidence)
    if accounted is not None and accounted.ended and accounted.outcome in OVERRULING:
        return Verdict(outcome=accounted.outcome, evidence=f"{evidence}; accounting: {_words(accounted)}")
    if exit_.status == KILLED:
        evidence += ": killed (walltime, memory, or a person); the accounting does not report by whom"
        unsure = accounted is None or not accounted.ended
        return Verdict(outcome=Outcome.LOST, evidence=evidence, provisional=unsure)
    outcome = Outcome.BUG if exit_.status else Outcome.LOST
    return Verdict(outcome=outcome, evidence=f"{evidence}, but no record was copied home")


def _exit_words(exit_: Exit) -> str:
    where = f"status {exit_.status} in step {exit_.stage or 'unknown'}"
    signal = f"signal {exit_.signal}" if exit_.signal else ""
    kept = f"results kept in {exit_.kept}" if exit_.scratch else ""
    return "; ".join(filter(None, (f"exit file: {exit_.message or where}", signal, kept)))


def _by_accounting(accounted: Accounted | None, left: str, silent: str) -> Verdict:
    """Return the outcome by the accounting, of a try that left neither record nor exit file."""
    if accounted is None:
        return Verdict(outcome=None, evidence=silent)
    words = _words(accounted)
    if not accounted.ended:
        # An outcome before the end is an error state of the queue, which a person may clear.
        return Verdict(outcome=accounted.outcome, evidence=words, provisional=accounted.outcome is not None)
    if accounted.outcome is None and accounted.exit_status == NO_HOME:
        return Verdict(Outcome.STAGE_OUT, f"the job could not write in the run folder ({words})")
    if accounted.outcome in {None, Outcome.OK}:
        return Verdict(outcome=Outcome.LOST, evidence=f"it ended ({words}) and {left}")
    return Verdict(outcome=accounted.outcome, evidence=f"accounting: {words}")


def _words(accounted: Accounted) -> str:
    status = "" if accounted.exit_status is None else f"exit status {accounted.exit_status}"
    return accounted.evidence or status or "no words"
