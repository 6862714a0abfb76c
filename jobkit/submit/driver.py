"""``python -m jobkit.submit.driver RUN``, a detached local run: all points, then what the policy says."""

from __future__ import annotations

import sys
from pathlib import Path

from jobkit.core.errors import ExitCode
from jobkit.submit.local import as_driver, drive
from jobkit.submit.resume import run_follow_up


def main() -> int:
    """Drive the run folder that the command line names; return the exit code."""
    run_dir = Path(sys.argv[1])
    try:
        with as_driver(run_dir) as job_id:
            drive(run_dir, lambda _: None, job_id)
        return run_follow_up(run_dir)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
