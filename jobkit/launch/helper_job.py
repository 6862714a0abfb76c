"""A job of one task that runs no point: submitted, and waited for until its answer is home.

`jobkit doctor --submit` checks a node by such a job, and `jobkit models fetch --as-job` fetches a model.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jobkit.core import files
from jobkit.core.errors import JobkitError
from jobkit.core.extensions import each
from jobkit.core.host import note_begun
from jobkit.core.layout import EXIT_FILE, make_run_folder, read_exit
from jobkit.core.paths import CACHE_VARIABLE, cache_dir
from jobkit.core.terminal import note
from jobkit.core.units import pauses
from jobkit.launch import scheduler_calls
from jobkit.launch.job import Job, ids
from jobkit.planning.job_script import FETCH_BODY, render_errand
from jobkit.planning.prepare import asked_by_shell, run_id
from jobkit.runs import reader
from jobkit.runs.journal import read_journal
from jobkit.runs.status import first_task
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import by_name, choose_scheduler, runs_here
from jobkit.schedulers.types import ONE_TASK, Queued, State
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import SweepSpec

FIRST_PAUSE_S, SLOWEST_PAUSE_S = 2.0, 15.0
GONE_GRACE_S = 20.0
"""Time for a file to get from a node to here: a client of a file server caches the listing of a folder."""


@dataclass(slots=True)
class Errand:
    """A job of one task, and the last answer of the queue about it."""

    scheduler: Scheduler
    run_dir: Path  # the folder of its script, journal, logs and answer
    job: Job
    submitted_at: float = field(default_factory=time.monotonic)
    queued: Queued | None = None  # what the queue last reported; ``None`` if it does not hold the job
    # when the queue last held the job, or gave no answer
    in_queue_at: float = field(default_factory=time.monotonic)

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self.submitted_at

    @property
    def gone(self) -> bool:
        """Whether it left the queue so long ago that its answer would be home."""
        return time.monotonic() - self.in_queue_at > GONE_GRACE_S

    @property
    def blocked(self) -> str:
        """Why it does not begin unless a person acts; empty if it may."""
        queued = self.queued
        if queued is None or queued.state not in {State.ERROR, State.HELD}:
            return ""
        return self.scheduler.explain(queued) or str(queued.state)

    @property
    def log(self) -> str:
        logs = sorted((self.run_dir / "logs").iterdir())
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in logs)

    def wait_for(self, answer: str) -> Iterator[None]:
        """Wait until the job has written a file into its folder; yield after each answer of the queue."""
        # Listing a folder makes the client of a file server look again; looking up one name does not.
        for pause_s in pauses(FIRST_PAUSE_S, SLOWEST_PAUSE_S):
            ask_at = time.monotonic() + pause_s
            while time.monotonic() < ask_at:
                if answer in {path.name for path in self.run_dir.iterdir()}:
                    return
                time.sleep(0.5)
            queued = reader.ask_queue(self.scheduler, ids([self.job]), [self.run_dir])
            if queued is not None:  # its number may be another job's
                queued = tuple(one for one in queued if one.name in {"", self.run_dir.name})
            if queued is None or queued:
                self.in_queue_at = time.monotonic()
            if queued is not None:
                self.queued = queued[0] if queued else None
            yield

    def cancel(self) -> str:
        """Cancel the job; return a line that reports it, or why that was not possible."""
        (job,) = ids([self.job])
        refused = scheduler_calls.cancel_tasks(self.scheduler, self.run_dir, job, (1,), whole=True)
        return f"job {job} could not be cancelled: {refused}" if refused else f"job {job} was cancelled"


def submit_errand(scheduler: Scheduler, run_dir: Path, script: str) -> Errand:
    """Submit a job of one task in a new folder, or return the open job of an earlier request."""
    for begun in (request.begun for request in each(lambda one: one.request) if request.begun):
        scheduler_calls.reconcile_submission(begun, note)
        known = read_journal(begun)
        for one in known.submissions:
            if first_task(one) not in known.cancelled:
                return Errand(scheduler, begun, Job(script="job.sh", array=ONE_TASK, id=one.job))
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    make_run_folder(run_dir, group=False)
    files.write_atomically(run_dir / "job.sh", script)
    note_begun(run_dir)
    job = scheduler_calls.submit_array(scheduler, run_dir, Job(script="job.sh", array=ONE_TASK))
    return Errand(scheduler, run_dir, job)


# -- fetch a model


def submit_fetch(name: str, words: list[str], *, scheduler: str, site: str, runs_dir: Path) -> Errand:
    """Submit a job that runs ``jobkit models fetch`` with these words on a node."""
    chosen, _ = choose_scheduler(scheduler)
    if runs_here(chosen):
        raise JobkitError("there is no scheduler here to submit the job to", hint="leave --as-job out")
    where = load_site(site, chosen)
    spec = SweepSpec.model_validate(
        {
            "name": f"fetch-{name}",
            "workload": "count",
            # What the systems before jobkit asked for their install job, and an hour
            "resources": {"gpus": 0, "cpus": 1, "memory": "4GiB", "walltime": "01:00:00"},
            "environment": {"variables": {CACHE_VARIABLE: str(cache_dir())}},
        }
    )
    resources, variables = asked_by_shell(spec.resources, chosen)
    for line in variables:
        note(line)
    spec = spec.model_copy(update={"resources": resources})
    run_dir = runs_dir.absolute() / run_id(spec.name)
    script = render_errand(spec, where, run_dir, FETCH_BODY, fetch=words)
    return submit_errand(by_name(chosen), run_dir, script)


def wait_for_fetch(errand: Errand) -> tuple[bool, str]:
    """Return whether the fetch succeeded, and its log, once it has ended.

    A job that has left the queue without an exit file is given a while, then counts as failed.
    """
    for _ in errand.wait_for(EXIT_FILE):
        if errand.queued is None and errand.gone:
            return False, errand.log or "the job left the queue and printed nothing"
        if errand.blocked:
            return False, f"the job will not begin: {errand.blocked}; {errand.cancel()}"
    return read_exit(errand.run_dir / EXIT_FILE).status == 0, errand.log
