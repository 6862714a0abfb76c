"""``python -m benchmarks [NAME ...]``: write records/NAME.json, and the tables of docs/measurements.md."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from benchmarks import measurements, raw
from benchmarks.archives import RECORDS

NAMES = ("commands", "planning", "submission", "reading", "overhead", "forked", "corpus", "apply", "harness")
"""The parts of `make bench`."""


def main() -> None:
    """Run the benchmarks named on the command line, or all, one after the other; then write the tables."""
    files = Path(__file__).parent.glob("*.py")
    known = sorted(file.stem for file in files if "\ndef measure(" in file.read_text(encoding="utf-8"))
    if unknown := set(sys.argv[1:]) - set(known):
        sys.exit(f"no benchmark: {' '.join(sorted(unknown))}; there are: {' '.join(known)}")
    for name in sys.argv[1:] or NAMES:
        sys.stderr.write(f"{name} ...\n")
        module = import_module(f"benchmarks.{name}")
        raw.write(RECORDS / f"{name}.json", module.TITLE, f"python -m benchmarks {name}", module.measure)
    measurements.main()


if __name__ == "__main__":
    main()
