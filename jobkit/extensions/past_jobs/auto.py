"""What ``resources.memory: auto`` and ``walltime: auto`` request: the newest answer for the name of a run."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from datetime import datetime, timedelta

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.paths import user_name
from jobkit.core.units import format_count
from jobkit.extensions.past_jobs.ask import ask
from jobkit.extensions.past_jobs.groups import LIMITED, MEMORY, Used, barely_sampled
from jobkit.schedulers.protocol import PastJob, Whose
from jobkit.schedulers.registry import runs_here


def decided(name: str, scheduler: str, asked: Mapping[str, int]) -> dict[str, dict[str, object]]:
    """Return what a run requests by key, between floor and ceiling, and a line on it.

    The floor is the most that a job used, the ceiling the most that one requested, or the default. Jobs that
    had too little count with more, as when they run again. Without enough jobs it is the default.
    """
    if not asked:
        return {}
    jobs, source = _jobs(name, scheduler)
    found: dict[str, dict[str, object]] = {}
    for resource in (each for each in LIMITED if each.name in asked):
        key, words = resource.name, resource.words
        used, requested = list[float](), [float(asked[key])]
        for job in jobs:
            lacked, wanted, held = job.outcome is resource.lack, resource.read(job)[0], resource.needed(job)
            requested += [wanted * (resource.more if lacked else 1)] if wanted else []
            used += [held] if held is not None and (job.well or lacked) else []
        floor, ceiling = int(max(used, default=0)), int(max(requested))
        few = resource is MEMORY and barely_sampled(jobs)
        if len(used) >= resource.least and not few:
            request = max(floor, min(ceiling, Used(used).request(resource)))
            line = f"auto is {words(request)}, by {format_count(len(used), 'job')} {source}"
            line += f"; floor {words(floor)}, ceiling {words(ceiling)}"
        else:
            request, least = asked[key], format_count(resource.least, "job")
            line = f"auto is the default, {words(request)}: it takes {least}, and {len(used)} ended {source}"
            line += ", too short for samples of their memory" if few else ""
        found[key] = {"request": request, "floor": floor, "ceiling": ceiling, "source": source, "line": line}
    return found


def _jobs(name: str, scheduler: str) -> tuple[list[PastJob], str]:
    """Return my jobs of runs of a name in the order of submission, and what was asked."""
    if runs_here(scheduler):
        return [], "here, where no accounting is"
    since = datetime.now().astimezone().date() - timedelta(days=30)
    source = f"called {name}-* since {since}"
    try:
        # The end of the name of a run's jobs: date, time, four digits
        pattern = glob.escape(name) + "-[0-9]*-[0-9]*-????"
        found = ask(Whose(user=user_name()), since=since, name=pattern, scheduler=scheduler)
    except JobkitError as error:
        return [], f"{source} ({error.message})" if error.exit_code is ExitCode.REFUSED else source
    return sorted(found.jobs, key=lambda job: job.submitted or job.began), source
