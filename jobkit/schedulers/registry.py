"""The schedulers that jobkit knows: a new one is a line here, in the order that ``auto`` looks."""

from __future__ import annotations

from collections.abc import Mapping

from jobkit.errors import JobkitError
from jobkit.nearest import nearest
from jobkit.schedulers import local, sge, slurm
from jobkit.schedulers.base import Scheduler

SCHEDULERS: Mapping[str, Scheduler] = {"slurm": slurm, "sge": sge, "local": local}


def own_option(scheduler: str, line: str) -> str | None:
    """Return what is wrong with a header line that sets what jobkit sets itself, else ``None``.

    A short option may have its value behind it without a blank (``-a1-3``); Grid Engine's have not.
    """
    own = SCHEDULERS[scheduler].OWN_OPTIONS if scheduler in SCHEDULERS else {}
    word = line.strip().partition("=")[0].split(None, 1)[0] if line.strip() else ""
    short = word[:2] if scheduler == "slurm" and not word.startswith("--") else word
    option = word if word in own else short if short in own else None
    if option is None:
        return None
    source = f", from {own[option]}" if own[option] else ""
    return f"{line.strip()!r}: jobkit sets {option} itself{source}"


def by_name(name: str) -> Scheduler:
    """Return the scheduler of that name.

    Raises
    ------
    JobkitError
        With the nearest name, where there is none.
    """
    if name in SCHEDULERS:
        return SCHEDULERS[name]
    raise JobkitError(f"scheduler: there is none called {name!r}{nearest(name, list(SCHEDULERS))}")
