"""``python -m benchmarks.peers.with_submitit submit|states|results FOLDER POINTS``."""

from __future__ import annotations

import json
import pickle
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import submitit
from submitit.slurm.slurm import SlurmJob

from benchmarks.controller import JOB_ID


def work(size: int) -> int:
    """Return what a point would: nothing runs here."""
    return size


def submit(folder: Path, points: int) -> int:
    """Submit one array of so many points."""
    executor = submitit.SlurmExecutor(folder=folder)
    executor.update_parameters(time=10, cpus_per_task=2)
    return len(executor.map_array(work, range(1, points + 1)))


def _jobs(folder: Path, points: int) -> list[SlurmJob[object]]:
    return [SlurmJob(folder=folder, job_id=f"{JOB_ID}_{k}", tasks=[0]) for k in range(points)]


def states(folder: Path, points: int) -> int:
    """Ask for the state of every point, and count those that are done."""
    jobs = _jobs(folder, points)
    jobs[0].watcher.update()
    return sum(job.get_info("cache").get("State") == "COMPLETED" for job in jobs)


def results(folder: Path, points: int) -> int:
    """Read what every point returned, and count them."""
    return len([job.results()[0] for job in _jobs(folder, points)])


def write_results(folder: Path, values: Sequence[object]) -> None:
    """Write the pickles that the tasks of an array would leave."""
    folder.mkdir(parents=True)
    for k, value in enumerate(values):
        (folder / f"{JOB_ID}_{k}_0_result.pkl").write_bytes(pickle.dumps(("success", value)))


def main() -> None:
    """Do one of the three, and print how long the work alone took."""
    _, verb, folder, points = sys.argv
    act = {"submit": submit, "states": states, "results": results}[verb]
    start = time.perf_counter()
    counted = act(Path(folder), int(points))
    sys.stdout.write(json.dumps({"work_s": time.perf_counter() - start, "points": counted}))


if __name__ == "__main__":
    main()
