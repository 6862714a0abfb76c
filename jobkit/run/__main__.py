"""The worker: the job script calls ``python -m jobkit.run`` for each try."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.layout import LENGTHS_FILE, read_point
from jobkit.core.records import RESULTS, Job, Outcome
from jobkit.run.failure import Signals
from jobkit.run.record import Task
from jobkit.run.work import run

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_STOPPED = 143
"""128 + SIGTERM, as a shell would report it."""


def main() -> int:
    """Run one try and return the worker's exit status."""
    arguments = _parser().parse_args()
    job = Job(
        scheduler=arguments.scheduler,
        job_id=arguments.job,
        task_id=arguments.task,
        restart=arguments.restart,
    )
    try:
        point = read_point(arguments.points, arguments.point)
    except JobkitError as error:
        sys.stderr.write(f"jobkit: {error}\n")
        return EXIT_FAILED
    task = Task(
        point=point,
        try_number=arguments.try_number,
        inputs=arguments.inputs,
        out=arguments.out,
        job=job,
        lengths=arguments.points.with_name(LENGTHS_FILE),
    )
    outcome = run(task, Signals(arguments.signal_file))
    with contextlib.suppress(OSError):  # the log may be on a full disk
        sys.stderr.write(f"jobkit: point {point.index} {point.point_id}: {outcome}\n")
    if outcome in RESULTS:
        return EXIT_OK
    return EXIT_STOPPED if outcome in {Outcome.TIMEOUT, Outcome.CANCELLED} else EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m jobkit.run", description=__doc__)
    parser.add_argument("--points", type=Path, required=True, help="the run's points.jsonl")
    parser.add_argument("--point", type=int, required=True, help="line of the point, from 1")
    parser.add_argument("--try", type=int, default=1, dest="try_number", help="number of this try, from 1")
    parser.add_argument("--inputs", type=Path, required=True, help="folder with text and model on this node")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder whose files the job script copies home"
    )
    parser.add_argument("--signal-file", type=Path, help="where the job script names its signal")
    parser.add_argument("--scheduler", default="hand")
    parser.add_argument("--job", default="")
    parser.add_argument("--task", default="")
    parser.add_argument("--restart", type=int, default=0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
