"""jobkit: which batch size, what to request from the scheduler, how long the corpus takes.

The functions named here are imported when they are first used: ``import jobkit`` costs nothing.
docs/python-api.md shows each.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobkit.core.errors import (
        BusyError,
        InvalidSpecError,
        JobkitError,
        NotFoundError,
        RefusedError,
        UnknownError,
    )
    from jobkit.handle import Run, apply, load, sweep, tune
    from jobkit.handle import Run as Loaded
    from jobkit.planning.job_script import render
    from jobkit.planning.points import plan
    from jobkit.planning.prepare import prepare
    from jobkit.spec.sweep_spec import SweepSpec, load_spec
    from jobkit.worker.measure.emit import emit

__all__ = [
    "BusyError",
    "InvalidSpecError",
    "JobkitError",
    "Loaded",
    "NotFoundError",
    "RefusedError",
    "Run",
    "SweepSpec",
    "UnknownError",
    "apply",
    "emit",
    "load",
    "load_spec",
    "plan",
    "prepare",
    "render",
    "sweep",
    "tune",
]

_HOMES = {
    "BusyError": "core.errors",
    "InvalidSpecError": "core.errors",
    "JobkitError": "core.errors",
    "Loaded": "handle",
    "NotFoundError": "core.errors",
    "RefusedError": "core.errors",
    "Run": "handle",
    "SweepSpec": "spec.sweep_spec",
    "UnknownError": "core.errors",
    "apply": "handle",
    "emit": "worker.measure.emit",
    "load": "handle",
    "load_spec": "spec.sweep_spec",
    "plan": "planning.points",
    "prepare": "planning.prepare",
    "render": "planning.job_script",
    "sweep": "handle",
    "tune": "handle",
}


def __getattr__(name: str) -> object:
    """Import what is asked for by name."""
    if name in _HOMES:
        own = "Run" if name == "Loaded" else name  # its name in version 0.1
        return getattr(importlib.import_module(f"jobkit.{_HOMES[name]}"), own)
    raise AttributeError(f"module 'jobkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return what a user may name."""
    return sorted([*globals(), *__all__])
