"""jobkit: which batch size, what to request from the scheduler, how long the corpus takes.

The functions named here are imported when they are first used: ``import jobkit`` costs nothing.
docs/python-api.md shows each.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobkit.core.errors import JobkitError
    from jobkit.planning.job_script import render
    from jobkit.planning.points import plan
    from jobkit.planning.prepare import prepare
    from jobkit.report.loaded import Loaded, load
    from jobkit.spec.sweep_spec import load_spec
    from jobkit.worker.measure.emit import emit

__all__ = ["JobkitError", "Loaded", "emit", "load", "load_spec", "plan", "prepare", "render"]

_HOMES = {
    "JobkitError": "core.errors",
    "Loaded": "report.loaded",
    "emit": "worker.measure.emit",
    "load": "report.loaded",
    "load_spec": "spec.sweep_spec",
    "plan": "planning.points",
    "prepare": "planning.prepare",
    "render": "planning.job_script",
}


def __getattr__(name: str) -> object:
    """Import what is asked for by name."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"jobkit.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'jobkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return what a user may name."""
    return sorted([*globals(), *__all__])
