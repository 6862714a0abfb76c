"""``python -m benchmarks.peers.with_jobkit submit|states|results FOLDER SPEC_OR_RUN``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.controller import JOB_ID


def submit(folder: Path, spec: Path) -> int:
    """Plan, render, check and submit the sweep."""
    from functools import partial

    from jobkit.launch import launch
    from jobkit.launch.submission import write_run
    from jobkit.planning.prepare import Options, prepare
    from jobkit.runs.journal import read_journal

    run = prepare(spec, Options(runs_dir=folder), build=False, say=lambda _: None)
    launch.go(run, partial(write_run, run))
    journal = read_journal(run.run_dir)
    return sum(len(list(job.tasks())) for job in journal.submissions if job.role == "points")


def states(folder: Path, run: Path) -> int:
    """Ask the accounting about every point, and count those that have ended."""
    from jobkit.runs import reader as asking
    from jobkit.schedulers import slurm
    from jobkit.schedulers.types import JobId

    del folder
    told = asking.ask_accounting(slurm, (JobId(str(JOB_ID)),), "2026-01-02T03:04:05", run.name, [run])
    return sum(one.ended for one in told or ())


def results(folder: Path, run: Path) -> int:
    """Read the record of every point, and count those that went well."""
    from jobkit.runs.results import read_run

    del folder
    return sum(point.verdict.outcome == "ok" for point in read_run(run).points)


def main() -> None:
    """Do one of the three, and print how long the work alone took, imports included."""
    _, verb, folder, what = sys.argv
    start = time.perf_counter()
    counted = {"submit": submit, "states": states, "results": results}[verb](Path(folder), Path(what))
    sys.stdout.write(json.dumps({"work_s": time.perf_counter() - start, "points": counted}))


if __name__ == "__main__":
    main()
