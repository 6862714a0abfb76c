"""The same look from inside a job: submit it, wait for its answer, cancel it where none comes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobkit.core import files
from jobkit.core.errors import JobkitError
from jobkit.core.layout import ACCOUNTING_FILE, JOURNAL_FILE
from jobkit.core.terminal import Say
from jobkit.core.units import format_clock
from jobkit.planning.prepare import run_id
from jobkit.schedulers.types import ONE_TASK, JobId, Queued, State
from jobkit.setup.case import NAME, Case
from jobkit.setup.check_node import MACHINE, PYTHON, check_node
from jobkit.setup.doctor import facts_in, script_for, under, wanted
from jobkit.setup.facts import ANSWER_FILE, Facts
from jobkit.setup.findings import Finding, Status, exit_code, fine, missing, unknown, warning
from jobkit.status import queue
from jobkit.submit import controller

WALLTIME_S = 180
"""A minute's work; the rest is for a node that is slow to begin and to end."""
LOOK_S = 0.5
FIRST_POLL_S, SLOWEST_POLL_S, BACK_OFF = 2.0, 15.0, 1.3
GONE_GRACE_S = 20.0
"""How long a file may take from a node to here: a file server keeps what it knew of a folder a while."""
SKEW_S = 60
WHERE = "In a job"


def in_a_job(case: Case, before: Iterable[Finding], within_s: float, say: Say) -> Iterator[Finding]:
    """Yield what a job on a node finds.

    Parameters
    ----------
    before
        What was found of the scheduler: where something is missing there, nothing is submitted.
    within_s
        How long it may wait in the queue before it is cancelled.
    say
        Told how the wait goes.
    """
    if case.local:
        said = "no scheduler here to give a job to: points run on this machine, which was looked at"
        yield from under(WHERE, [fine("job", said)])
        return
    if exit_code(before):
        yield from under(WHERE, [unknown("job", "not submitted: something that it needs is missing above")])
        return
    try:
        look_at = _submit(case)
    except (JobkitError, OSError) as error:
        yield from under(WHERE, [missing("job", str(error))])
        return
    try:
        say(f"\nsubmitted: {case.scheduler.NAME} job {look_at.job}; waiting for it (Ctrl-C cancels it)")
        found = _waited(look_at, within_s, say)
    except KeyboardInterrupt:
        say(look_at.cancel())
        raise
    yield from found
    if not any(one.status is Status.MISSING for one in found):
        shutil.rmtree(look_at.run_dir, ignore_errors=True)


@dataclass(slots=True)
class _Look:
    """A job that looks around, and what the queue said of it last."""

    case: Case
    run_dir: Path
    job: JobId
    began: float = field(default_factory=time.monotonic)
    last: Queued | None = None
    seen_at: float = field(default_factory=time.monotonic)

    @property
    def waited_s(self) -> float:
        """Seconds since it was submitted."""
        return time.monotonic() - self.began

    def answered(self) -> bool:
        """Tell whether its answer is home; a listing makes a file server's client look again."""
        return ANSWER_FILE in {path.name for path in self.run_dir.iterdir()}

    def cancel(self) -> str:
        """Cancel the job; return a line that says so, or how to do it."""
        scheduler = self.case.scheduler
        try:
            controller.cancel(scheduler, self.run_dir, [self.job])
        except JobkitError as error:
            return f"job {self.job} could not be cancelled: {error}"
        return f"job {self.job} was cancelled"


def _submit(case: Case) -> _Look:
    """Write the job's folder beside the run folders, and submit it."""
    run_dir = case.runs_dir / run_id(NAME)
    resources = case.spec.resources.model_copy(update={"walltime": WALLTIME_S, "mail": None})
    spec = case.spec.model_copy(update={"name": NAME, "resources": resources})
    script = script_for(case, run_dir, spec)
    (run_dir / "logs").mkdir(parents=True)
    for file in (JOURNAL_FILE, ACCOUNTING_FILE):
        (run_dir / file).touch()
    files.write_atomically(run_dir / "job.sh", script)
    taken = controller.submit_array(case.scheduler, run_dir, str(run_dir / "job.sh"), ONE_TASK)
    return _Look(case, run_dir, taken.job)


def _waited(job: _Look, within_s: float, say: Say) -> list[Finding]:
    """Return what the job found, or why nothing came of it."""
    pause, asked_at, told = FIRST_POLL_S, job.began, ""
    while not job.answered():
        if time.monotonic() - asked_at >= pause:
            trouble = _ask(job, within_s)
            if trouble is not None:
                return list(under(WHERE, [trouble]))
            asked_at, pause = time.monotonic(), min(pause * BACK_OFF, SLOWEST_POLL_S)
            if (now := _progress(job)) != told:
                say(now)
                told = now
        time.sleep(LOOK_S)
    return _told(job)


def _progress(job: _Look) -> str:
    if job.last is None:
        return "  it has left the queue; waiting for its answer"
    why = f" ({job.last.reason})" if job.last.reason else ""
    return f"  {job.last.state}{why}"


def _ask(job: _Look, within_s: float) -> Finding | None:
    """Ask the queue once; return why there is no use in waiting on, and cancel the job then."""
    case = job.case
    queued = queue.ask_queue(case.scheduler, (job.job,), [job.run_dir])
    if queued is None or queued:
        job.seen_at = time.monotonic()
    if queued is not None:
        job.last = queued[0] if queued else None
    if queued == () and time.monotonic() - job.seen_at > GONE_GRACE_S and not job.answered():
        return _gone(job)
    state = job.last.state if job.last else State.UNKNOWN
    if state in {State.ERROR, State.HELD}:
        why = case.scheduler.explain(job.last) if job.last else ""
        return missing("job", f"it will not begin: {why}; {job.cancel()}", _person(job))
    if state not in {State.RUNNING, State.ENDING} and job.waited_s > within_s:
        return _not_begun(job, within_s)
    if job.waited_s > within_s + 2 * WALLTIME_S:
        return missing("job", f"it began and did not answer; {job.cancel()}", f"its log: {job.run_dir}/logs")
    return None


def _not_begun(job: _Look, within_s: float) -> Finding:
    why = job.case.scheduler.explain(job.last) if job.last else "the queue does not say why"
    said = f"it did not begin within {format_clock(within_s)} ({why}); {job.cancel()}"
    return missing(
        "job", said, "jobkit doctor --submit --within 2h waits longer; or name a queue that is less busy"
    )


def _gone(job: _Look) -> Finding:
    """Return that the job has ended and left no answer at home, with what it left elsewhere."""
    log = _last_line(sorted((job.run_dir / "logs").iterdir()))
    said = f"job {job.job} left the queue, and no answer came home to {job.run_dir}"
    if log:
        return missing("job", f"{said}; its log ends: {log}", f"less {job.run_dir}/logs/*")
    mend = "can the nodes write there? Name a folder that they see: --runs-dir FOLDER"
    return missing("job", f"{said}, nor a log", f"{mend}; {_person(job)}")


def _person(job: _Look) -> str:
    argvs = job.case.scheduler.diagnostic_argvs((job.job,), job.run_dir.name)
    return f"what the scheduler says: {' '.join(argvs[-1])}"


def _last_line(logs: Sequence[Path]) -> str:
    lines = [
        line for path in logs for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _told(job: _Look) -> list[Finding]:
    """Return what the job's answer comes to."""
    seen_at = time.time()
    facts = facts_in(job.run_dir)
    where = f"{WHERE}, on {facts.said.get('host', 'a node')}"
    first = fine(
        "job", f"{job.case.scheduler.NAME} job {job.job} ran, {job.waited_s:.0f} s after it was submitted"
    )
    home = fine("home", f"it wrote its answer to {job.run_dir.parent}")
    rest = check_node(facts, wanted(job.case, on_node=True), (*MACHINE, *PYTHON))
    return list(under(where, [first, home, *_clock(facts, seen_at), *rest]))


def _clock(facts: Facts, seen_at: float) -> Iterator[Finding]:
    """Yield that the node's clock is off: times in records are the node's."""
    end = facts.number("end")
    if end is not None and abs(seen_at - end) > SKEW_S:
        said = f"the node's clock differs from this machine's by {abs(seen_at - end):.0f} s"
        yield warning("clock", said, "ask the cluster's support about NTP")
