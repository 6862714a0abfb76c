"""``python -m jobkit``: the command where only the interpreter is known, as in a job script."""

from __future__ import annotations

from jobkit.cli import main

if __name__ == "__main__":
    main()
