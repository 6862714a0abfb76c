"""The schedulers that jobkit knows: a new one is a line here, in the order that ``auto`` looks."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from jobkit.errors import JobkitError
from jobkit.schedulers import local, sge, slurm
from jobkit.schedulers.base import Scheduler

SCHEDULERS: Mapping[str, Scheduler] = {"slurm": slurm, "sge": sge, "local": local}


def by_name(name: str) -> Scheduler:
    """Return the scheduler of that name.

    Raises
    ------
    JobkitError
        With the nearest name, where there is none.
    """
    if name in SCHEDULERS:
        return SCHEDULERS[name]
    near = difflib.get_close_matches(name, SCHEDULERS, n=1, cutoff=0.3)
    advice = f"did you mean {near[0]!r}? " if near else ""
    raise JobkitError(
        f"scheduler: there is none called {name!r}",
        hint=f"{advice}jobkit knows {', '.join(SCHEDULERS)}",
    )
