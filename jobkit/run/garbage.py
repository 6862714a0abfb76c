"""Python's garbage collector, which runs between the calls of a workload and not during them.

The collector looks at all objects again and again while a call makes new ones: on a GPU that took 29 % of
the time of stock Stanza (docs/measurements.md). Between two calls most of them are garbage, and what
was loaded is frozen, so one look is enough.
"""

from __future__ import annotations

import gc

DUE = 50_000
"""New objects from which on a collection is worth its time."""


def only_between_calls(workload: object) -> None:
    """Freeze what is loaded and leave collecting to `collect`, unless the workload says ``GC = False``."""
    if getattr(workload, "GC", True):
        gc.collect()
        gc.freeze()
        gc.disable()


def collect() -> None:
    """Collect what a call has left, if that is much; do nothing if Python collects by itself."""
    if not gc.isenabled() and gc.get_count()[0] >= DUE:
        gc.collect()
