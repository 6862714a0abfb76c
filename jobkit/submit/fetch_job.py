"""Fetch a model as a job on a CPU queue, and see how it ends."""

from __future__ import annotations

from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.job_files import read_exit
from jobkit.core.layout import EXIT_FILE
from jobkit.core.paths import CACHE_VARIABLE, cache_dir
from jobkit.planning.job_script import FETCH_BODY, render_errand
from jobkit.planning.prepare import run_id
from jobkit.schedulers.registry import by_name, choose_scheduler, runs_here
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import SweepSpec
from jobkit.submit.errand import Errand, submit_errand

RESOURCES = {"gpus": 0, "cpus": 1, "memory": "4GiB", "walltime": "01:00:00"}
"""What the systems before jobkit asked for their install job, and an hour."""


def submit_fetch(name: str, words: list[str], *, scheduler: str, site: str, runs_dir: Path) -> Errand:
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

    Raises
    ------
    JobkitError
        If there is no scheduler, or it refuses (exit code 3).
    """
    chosen, _ = choose_scheduler(scheduler)
    if runs_here(chosen):
        raise JobkitError("there is no scheduler here to submit the job to", hint="leave --as-job out")
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
    return submit_errand(by_name(chosen), run_dir, script)


def wait_for_fetch(errand: Errand) -> tuple[bool, str]:
    """Return whether the fetch succeeded, and its log, once it has ended.

    A job that has left the queue without an exit file is given a while, then counts as failed.
    """
    for _ in errand.wait_for(EXIT_FILE):
        if errand.queued is None and errand.gone:
            return False, errand.log or "the job left the queue and printed nothing"
    return read_exit(errand.run_dir / EXIT_FILE).status == 0, errand.log
