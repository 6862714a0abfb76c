"""jobkit: which batch size, what to request from the scheduler, how long the corpus takes.

The functions named here are imported when they are first used: ``import jobkit`` costs nothing.
docs/python-api.md shows each.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobkit.errors import JobkitError
    from jobkit.loaded import Loaded, load
    from jobkit.plan import plan
    from jobkit.prepare import prepare
    from jobkit.render import render
    from jobkit.spec import load_spec

__all__ = ["JobkitError", "Loaded", "load", "load_spec", "plan", "prepare", "render"]

_STAGES = ("plan", "prepare", "render")
"""Modules that can be called as the function of their name; see `jobkit.stages`."""
_HOMES = {"JobkitError": "errors", "Loaded": "loaded", "load": "loaded", "load_spec": "spec"}


def __getattr__(name: str) -> object:
    """Import what is asked for by name."""
    if name in _STAGES:
        return importlib.import_module(f"jobkit.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"jobkit.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'jobkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return what a user may name."""
    return sorted([*globals(), *__all__])
