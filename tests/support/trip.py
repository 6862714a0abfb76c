"""How far a command travels: what of jobkit it enters and builds in its own process.

``python -m tests.support.trip FILE COMMAND ...`` runs the command and writes to FILE, as JSON, the functions
and the modules that it enters, and the types of which it builds objects. The body of a class, which runs when
its module is imported, counts as a function. Work in a child process is not seen.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import jobkit
from jobkit import cli

PACKAGE = f"{Path(jobkit.__file__).parent}/"


@dataclass(frozen=True)
class Trip:
    """What a command entered and built so far."""

    functions: set[str] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)
    types: set[str] = field(default_factory=set)

    def follow(self, frame: FrameType, event: str, _argument: object) -> None:
        """Keep what a call enters; Python calls this at each (sys.setprofile)."""
        code = frame.f_code
        if event != "call":
            return
        if code.co_name == "__init__" and "self" in frame.f_locals:  # a dataclass's own is in no file
            built = type(frame.f_locals["self"])
            if built.__module__.startswith("jobkit."):
                self.types.add(f"{built.__module__}.{built.__qualname__}")
        if code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            module = code.co_filename.removeprefix(PACKAGE)
            self.modules.add(module)
            self.functions.add(f"{module} {code.co_qualname}")


def main() -> None:
    """Run the command, write its trip, and end as it ends."""
    file, *sys.argv[1:] = sys.argv[1:]
    trip = Trip()
    threading.setprofile(trip.follow)
    sys.setprofile(trip.follow)
    try:
        cli.main()
    finally:
        sys.setprofile(None)
        found = {name: sorted(what) for name, what in vars(trip).items()}
        Path(file).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
