"""Replay rules for the request of the next job on public traces, and on an export of an accounting.

``python -m benchmarks.past_jobs_public FOLDER [--json FILE]``: FOLDER has ``trace_*.csv`` of Nextflow, as
``data/`` of https://github.com/dos-group/sizey, or ``*.txt`` of ``sacct --parsable2`` with its header
(docs/waste.md has the command). Jobs of names of their own count as one name, as in ``jobkit waste``.
For each job in the order of submission a rule sees what those of its name and request used that had ended by
then. A job with too little is killed, and runs again with half as much more memory, or twice the walltime,
until it has enough: all of its hours count.
"""

# ruff: noqa: T201 - it prints what it found
from __future__ import annotations

import argparse
import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from heapq import heappop, heappush
from pathlib import Path
from statistics import fmean

from jobkit.core.errors import JobkitError
from jobkit.core.units import GIB
from jobkit.extensions.past_jobs.groups import MEMORY, WALLTIME, History, JudgedResource, Used
from jobkit.schedulers.protocol import PastJob, without_impossible
from jobkit.schedulers.slurm_past import read

HOUR_S = 3600.0


@dataclass(frozen=True)
class Task:
    """A job of a workflow, and the size of what it read, if that is known."""

    workflow: str
    job: PastJob
    read_bytes: float | None = None


def nextflow(path: Path) -> Iterator[Task]:
    """Yield the tasks of a trace that have a request, a peak and a duration."""
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            known = {key: float(value) for key, value in row.items() if value and _is_number(value)}
            if not all(known.get(key) for key in ("memory", "peak_rss", "realtime", "submit", "complete")):
                continue
            seconds = known["realtime"] / 1000
            times = (_iso(known[key] / 1000) for key in ("submit", "submit", "complete"))
            submitted, began, over = times
            job = PastJob(
                scheduler="slurm",
                job_id=row["task_id"],
                name=row["process"],
                user="",
                queue="",
                state=row["status"],
                ended=True,
                well=row["exit"] == "0",
                submitted=submitted,
                began=began,
                over=over,
                elapsed_s=seconds,
                walltime_s=known.get("time", 0) / 1000 or None,
                memory_bytes=int(known["memory"]),
                held_bytes=int(known["peak_rss"]),
                cpus=int(known.get("cpus", 1)),
                cpu_s=seconds * known["%cpu"] / 100 if "%cpu" in known else None,
            )
            yield Task(path.stem.removeprefix("trace_"), job, known.get("rchar"))


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def tasks_of(folder: Path) -> list[Task]:
    """Return all tasks of a folder."""
    found = [task for path in sorted(folder.glob("trace_*.csv")) for task in nextflow(path)]
    for path in sorted(folder.glob("*.txt")):
        with path.open(encoding="utf-8", errors="replace") as stream:
            jobs = (without_impossible(job) for job in read(stream, "") if not job.follows)
            fit = (job for job in jobs if job.well and job.held_bytes and job.memory_bytes)
            groups = History("slurm", fit).groups()
        found += [Task(path.stem, replace(job, name=each.name)) for each in groups for job in each.jobs]
    return found


class Seen:
    """What the jobs that have ended used of one resource, and what they read."""

    def __init__(self) -> None:
        self.used = Used()
        self.values: list[float] = []
        self.read: list[float | None] = []


Rule = Callable[[Seen, JudgedResource, Task], float | None]
"""Returns what a task requests; ``None`` for what it asked."""


def ours(seen: Seen, resource: JudgedResource, _: Task) -> float | None:
    return seen.used.request(resource) if len(seen.values) >= resource.least else None


def largest(seen: Seen, resource: JudgedResource, _: Task) -> float | None:
    return resource.round_up(max(seen.values)) if seen.values else None


def percentile(seen: Seen, resource: JudgedResource, _: Task) -> float | None:
    ranked = sorted(seen.values)
    return resource.round_up(1.15 * ranked[math.ceil(0.95 * len(ranked)) - 1]) if ranked else None


def regression(seen: Seen, resource: JudgedResource, task: Task) -> float | None:
    """By the least squares on what a task reads (known only when it has run), and its largest residual."""
    pairs = [(x, y) for x, y in zip(seen.read, seen.values, strict=True) if x is not None]
    if len(pairs) < 2 or task.read_bytes is None:
        return None
    mean_x, mean_y = (fmean(values) for values in zip(*pairs, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in pairs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in pairs) / spread if spread else 0.0
    most = max(y - mean_y - slope * (x - mean_x) for x, y in pairs)
    return resource.round_up(max(0.0, mean_y + slope * (task.read_bytes - mean_x)) + 1.15 * most)


RULES: dict[str, Rule] = {
    "as asked": lambda *_: None,
    "jobkit": ours,
    "the largest so far": largest,
    "percentile 95 and 15 %": percentile,
    "a line over what the task reads": regression,
}


@dataclass
class Outcome:
    """What a rule did to the tasks of a workflow."""

    tasks: int = 0
    killed_by_memory: int = 0
    killed_by_walltime: int = 0
    gib_hours: float = 0.0
    cpu_hours: float = 0.0
    used_gib_hours: float = 0.0

    def __add__(self, other: Outcome) -> Outcome:
        mine, others = asdict(self), asdict(other)
        return Outcome(**{key: mine[key] + others[key] for key in mine})


def replayed(tasks: Iterable[Task], rule: Rule) -> dict[str, Outcome]:
    """Return the outcome of a rule by workflow."""
    groups: dict[tuple[object, ...], list[Task]] = {}
    for task in tasks:
        job = task.job
        key = (task.workflow, job.user, job.name, job.memory_bytes, job.walltime_s, job.cpus)
        groups.setdefault(key, []).append(task)
    found: dict[str, Outcome] = {}
    for group in groups.values():
        outcome = found.setdefault(group[0].workflow, Outcome())
        seen = {resource.name: Seen() for resource in (MEMORY, WALLTIME)}
        running: list[tuple[str, int, Task]] = []
        for number, task in enumerate(sorted(group, key=_submitted)):
            while running and running[0][0] <= _submitted(task):
                _note(seen, heappop(running)[2])
            heappush(running, (task.job.over, number, task))
            _run(outcome, rule, seen, task)
    return found


def _submitted(task: Task) -> str:
    return task.job.submitted or task.job.began


def _note(seen: dict[str, Seen], task: Task) -> None:
    for resource in (MEMORY, WALLTIME):
        if (used := resource.read(task.job)[1]) is not None:
            each = seen[resource.name]
            each.used.add(used)
            each.values.append(used)
            each.read.append(task.read_bytes)


def _run(outcome: Outcome, rule: Rule, seen: dict[str, Seen], task: Task) -> None:
    """Run a task until it has enough; what it asked for was enough."""
    sizes: list[list[float]] = []
    for resource in (MEMORY, WALLTIME):
        asked, used = (value or 0.0 for value in resource.read(task.job))
        asked = max(asked, used) or math.inf
        wanted = min(asked, rule(seen[resource.name], resource, task) or asked)
        tries = [wanted]
        while tries[-1] < used:
            tries.append(min(asked, resource.round_up(resource.more * tries[-1])))
        sizes.append(tries)
    memory, walltime = sizes
    job, hours = task.job, task.job.elapsed_s / HOUR_S
    outcome.tasks += 1
    outcome.killed_by_memory += len(memory) > 1
    outcome.killed_by_walltime += len(walltime) > 1
    # each resource by itself; a kill by memory is counted as late as can be, at the end of the task
    outcome.gib_hours += sum(memory) / GIB * hours
    outcome.cpu_hours += job.cpus * (hours + sum(walltime[:-1]) / HOUR_S)
    outcome.used_gib_hours += (job.held_bytes or 0) / GIB * hours


def total(found: dict[str, Outcome], names: Iterable[str]) -> Outcome:
    return sum((found[name] for name in names), Outcome())


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    try:
        tasks = tasks_of(options.folder)
    except JobkitError as error:
        parser.error(f"{error.message}: {error.hint}")
    if not tasks:
        parser.error(f"{options.folder}: no trace_*.csv and no *.txt of sacct with a request and a peak")
    found = {name: replayed(tasks, rule) for name, rule in RULES.items()}
    totals = {name: total(each, each) for name, each in found.items()}
    asked = totals["as asked"]
    print(f"{asked.tasks:,} tasks; they used {asked.used_gib_hours:,.4g} GiB-hours")
    print(f"{'rule':33} killed by memory  by walltime  GiB-hours    CPU-hours")
    for name, each in totals.items():
        share = each.gib_hours / asked.gib_hours - 1
        killed = (100 * each.killed_by_memory / each.tasks, 100 * each.killed_by_walltime / each.tasks)
        print(
            f"{name:33} {killed[0]:14.2f} % {killed[1]:10.2f} % {each.gib_hours:9,.4g} {100 * share:+4.0f} % "
            f"{each.cpu_hours:9,.4g}"
        )
    if options.json:
        data = {"rules": {name: asdict(each) for name, each in totals.items()}}
        data["workflows"] = {name: asdict(each) for name, each in found["jobkit"].items()}
        options.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
