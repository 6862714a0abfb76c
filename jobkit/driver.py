"""The detached local run: ``python -m jobkit.driver RUN`` runs all points, then what the policy says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from jobkit import journal
from jobkit.launch import EXIT_INTERRUPTED
from jobkit.local import drive, ended_by_signals
from jobkit.retries import follow


def main() -> int:
    """Drive the run folder that the command line names; return the exit code."""
    run_dir = Path(sys.argv[1])
    try:
        with ended_by_signals():
            drive(run_dir, lambda _: None)
    except KeyboardInterrupt:
        journal.note(run_dir, "cancelled", job_id=str(os.getpid()), cluster="", status=0, said="interrupted")
        return EXIT_INTERRUPTED
    return follow(run_dir)


if __name__ == "__main__":
    sys.exit(main())
