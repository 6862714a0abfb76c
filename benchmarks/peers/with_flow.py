"""``python -m benchmarks.peers.with_flow init|submit|states|results FOLDER POINTS`` (signac-flow)."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from flow import FlowProject
from flow.environment import DefaultSlurmEnvironment


class Sweep(FlowProject):  # type: ignore[misc]  # flow has no types
    """A project of one operation, which is never done."""


@Sweep.post(lambda job: "done" in job.document)  # type: ignore[untyped-decorator]  # the same
@Sweep.operation  # type: ignore[untyped-decorator]  # the same
def work(job: object) -> None:
    """Do what a point would: nothing runs here."""


def _project() -> Sweep:
    project: Sweep = Sweep.get_project()
    project._environment = DefaultSlurmEnvironment  # noqa: SLF001 - detection would look at this machine's name
    return project


def init(points: int) -> int:
    """Make the project and a job for each point; jobkit does this when it submits."""
    project = Sweep.init_project()
    for size in range(1, points + 1):
        project.open_job({"batch_size": size}).init()
    return points


def submit(points: int) -> int:
    """Submit every job: one sbatch each."""
    _project().submit()
    return points


def states(points: int) -> int:
    """Ask for the state of every job."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        _project().print_status(file=nowhere, err=nowhere, detailed=True)
    return points


def results(points: int) -> int:
    """Read the document of every job, and count them."""
    found = len([dict(job.document) for job in _project()])
    if found != points:
        raise RuntimeError(f"{found} jobs of {points}")
    return found


def main() -> None:
    """Do one of the four, and print how long the work alone took."""
    _, verb, folder, points = sys.argv
    os.chdir(folder)
    act = {"init": init, "submit": submit, "states": states, "results": results}[verb]
    start = time.perf_counter()
    counted = act(int(points))
    sys.stdout.write(json.dumps({"work_s": time.perf_counter() - start, "points": counted}))


if __name__ == "__main__":
    main()
