"""The same look from inside a job: submit it, wait for its answer, cancel it where none comes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator

from jobkit.core.errors import JobkitError
from jobkit.core.terminal import Say
from jobkit.core.units import format_clock
from jobkit.planning.prepare import run_id
from jobkit.schedulers.types import State
from jobkit.setup.check_node import MACHINE, PYTHON, check_node
from jobkit.setup.doctor import facts_in, script_for, under, wanted
from jobkit.setup.doctor_case import NAME, Case
from jobkit.setup.facts import ANSWER_FILE, Facts
from jobkit.setup.findings import Finding, Status, exit_code, fine, missing, unknown, warning
from jobkit.submit.errand import Errand, submit_errand

WALLTIME_S = 180
"""A minute's work; the rest is for a node that is slow to begin and to end."""
SKEW_S = 60
WHERE = "In a job"


def in_a_job(case: Case, before: Iterable[Finding], within_s: float, say: Say) -> Iterator[Finding]:
    """Yield the findings of a job on a node.

    Parameters
    ----------
    before
        The findings about the scheduler: if something is missing, nothing is submitted.
    within_s
        How long the job may wait in the queue before it is cancelled.
    say
        Prints the progress of the wait.
    """
    if case.local:
        message = "there is no scheduler: points run on this machine, which is checked above"
        yield from under(WHERE, [fine("job", message)])
        return
    if exit_code(before):
        yield from under(WHERE, [unknown("job", "not submitted: see what is missing above")])
        return
    try:
        errand = _submit(case)
    except (JobkitError, OSError) as error:
        yield from under(WHERE, [missing("job", str(error))])
        return
    try:
        say(f"\nsubmitted: {case.scheduler.NAME} job {errand.job}; waiting for it (Ctrl-C cancels it)")
        findings = _waited(case, errand, within_s, say)
    except KeyboardInterrupt:
        say(errand.cancel())
        raise
    yield from findings
    if not any(finding.status is Status.MISSING for finding in findings):
        shutil.rmtree(errand.run_dir, ignore_errors=True)


def _submit(case: Case) -> Errand:
    """Write the job's folder next to the run folders, and submit it."""
    run_dir = case.runs_dir / run_id(NAME)
    resources = case.spec.resources.model_copy(update={"walltime": WALLTIME_S, "mail": None})
    spec = case.spec.model_copy(update={"name": NAME, "resources": resources})
    return submit_errand(case.scheduler, run_dir, script_for(case, run_dir, spec))


def _waited(case: Case, job: Errand, within_s: float, say: Say) -> list[Finding]:
    """Return what the job found, or why nothing came of it."""
    before = ""
    for _ in job.wait_for(ANSWER_FILE):
        if trouble := _trouble(job, within_s):
            return list(under(WHERE, [trouble]))
        if (now := _progress(job)) != before:
            say(now)
            before = now
    return _told(case, job)


def _progress(job: Errand) -> str:
    if job.queued is None:
        return "  it has left the queue; waiting for its answer"
    why = f" ({job.queued.reason})" if job.queued.reason else ""
    return f"  {job.queued.state}{why}"


def _trouble(job: Errand, within_s: float) -> Finding | None:
    """Return why there is no use in waiting on, after the job was cancelled; ``None`` to wait on."""
    if job.queued is None and job.gone:
        return _gone(job)
    state = job.queued.state if job.queued else State.UNKNOWN
    if state in {State.ERROR, State.HELD}:
        why = job.scheduler.explain(job.queued) if job.queued else ""
        return missing("job", f"it will not begin: {why}; {job.cancel()}", _person(job))
    if state not in {State.RUNNING, State.ENDING} and job.waited_s > within_s:
        return _not_begun(job, within_s)
    if job.waited_s > within_s + 2 * WALLTIME_S:
        return missing("job", f"it began and did not answer; {job.cancel()}", f"its log: {job.run_dir}/logs")
    return None


def _not_begun(job: Errand, within_s: float) -> Finding:
    why = job.scheduler.explain(job.queued) if job.queued else "the queue does not say why"
    message = f"it did not begin within {format_clock(within_s)} ({why}); {job.cancel()}"
    return missing(
        "job", message, "jobkit doctor --submit --within 2h waits longer; or name a queue that is less busy"
    )


def _gone(job: Errand) -> Finding:
    """Return that the job has ended and left no answer at home, with what it left elsewhere."""
    log = next((line.strip() for line in reversed(job.log.splitlines()) if line.strip()), "")
    message = f"job {job.job} left the queue, and it wrote no answer to {job.run_dir}"
    if log:
        return missing("job", f"{message}; its log ends: {log}", f"less {job.run_dir}/logs/*")
    hint = "can the nodes write there? Name a folder that they see: --runs-dir FOLDER"
    return missing("job", f"{message}, and no log", f"{hint}; {_person(job)}")


def _person(job: Errand) -> str:
    argvs = job.scheduler.diagnostic_argvs((job.job,), job.run_dir.name)
    return f"what the scheduler says: {' '.join(argvs[-1])}"


def _told(case: Case, job: Errand) -> list[Finding]:
    """Return what the job's answer comes to."""
    seen_at = time.time()
    facts = facts_in(job.run_dir)
    where = f"{WHERE}, on {facts.said.get('host', 'a node')}"
    first = fine(
        "job", f"{job.scheduler.NAME} job {job.job} ran, {job.waited_s:.0f} s after it was submitted"
    )
    home = fine("home", f"it wrote its answer to {job.run_dir.parent}")
    rest = check_node(facts, wanted(case, on_node=True), (*MACHINE, *PYTHON))
    return list(under(where, [first, home, *_clock(facts, seen_at), *rest]))


def _clock(facts: Facts, seen_at: float) -> Iterator[Finding]:
    """Yield that the node's clock is off: times in records are the node's."""
    end = facts.number("end")
    if end is not None and abs(seen_at - end) > SKEW_S:
        message = f"the node's clock differs from this machine's by {abs(seen_at - end):.0f} s"
        yield warning("clock", message, "ask the cluster's support about NTP")
