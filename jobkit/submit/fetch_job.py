"""Fetch a model as a job on a CPU queue, and see how it ends."""

from __future__ import annotations

import time
from pathlib import Path

from jobkit.core import files
from jobkit.core.errors import JobkitError
from jobkit.core.job_files import read_exit
from jobkit.core.layout import ACCOUNTING_FILE, EXIT_FILE, JOURNAL_FILE
from jobkit.core.paths import CACHE_VARIABLE, cache_dir
from jobkit.planning.prepare import run_id
from jobkit.planning.script import FETCH_BODY, render_errand
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import by_name, choose_scheduler, runs_here
from jobkit.schedulers.types import ONE_TASK, JobId
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import SweepSpec
from jobkit.status import queue
from jobkit.submit import controller

POLL_S = 2.0
GONE_GRACE_S = 20.0
RESOURCES = {"gpus": 0, "cpus": 1, "memory": "4GiB", "walltime": "01:00:00"}
"""What the systems before jobkit asked for their install job, and an hour."""


def submit_fetch(
    name: str, words: list[str], *, scheduler: str, site: str, runs_dir: Path
) -> tuple[Path, JobId]:
    """Submit a job that runs ``jobkit models fetch`` on a node.

    Parameters
    ----------
    name
        Of the model; the run folder is called after it.
    words
        The arguments of the command.
    scheduler, site
        As in a spec, ``auto`` too.
    runs_dir
        Where the run folder goes.

    Returns
    -------
    tuple of Path and JobId
        The run folder, with script, journal and log, and the job.

    Raises
    ------
    JobkitError
        Where there is no scheduler, or it refuses (exit code 3).
    """
    chosen, _ = choose_scheduler(scheduler)
    if runs_here(chosen):
        raise JobkitError("there is no scheduler here to give the job to", hint="leave --as-job out")
    where = load_site(site, chosen)
    spec = SweepSpec.model_validate(
        {
            "name": f"fetch-{name}",
            "workload": "count",
            "resources": RESOURCES | {"queue": where.cpu_queue},
            "environment": {"variables": {CACHE_VARIABLE: str(cache_dir())}},
        }
    )
    run_dir = runs_dir.absolute() / run_id(spec.name)
    script = render_errand(spec, where, run_dir, FETCH_BODY, fetch=words)
    (run_dir / "logs").mkdir(parents=True)
    for file in (JOURNAL_FILE, ACCOUNTING_FILE):
        (run_dir / file).touch()
    files.write_atomically(run_dir / "job.sh", script)
    taken = controller.submit_array(by_name(chosen), run_dir, str(run_dir / "job.sh"), ONE_TASK)
    return run_dir, taken.job


def wait_for_fetch(run_dir: Path, job: JobId, scheduler: Scheduler) -> tuple[bool, str]:
    """Return whether the fetch went well, and what its log says, once it has ended.

    A job that has left the queue without an exit file is given a while, then counts as failed.
    """
    seen_at = time.monotonic()
    while not (run_dir / EXIT_FILE).is_file() and time.monotonic() - seen_at < GONE_GRACE_S:
        queued = queue.ask_queue(scheduler, (job,), run_dir)
        if queued is None or queued:
            seen_at = time.monotonic()
        time.sleep(POLL_S)
    logs = sorted((run_dir / "logs").iterdir())
    said = "".join(path.read_text(encoding="utf-8", errors="replace") for path in logs)
    if not (run_dir / EXIT_FILE).is_file():
        return False, said or "the job left the queue and said nothing"
    return read_exit(run_dir / EXIT_FILE).status == 0, said
