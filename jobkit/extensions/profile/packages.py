"""Whether the Python of the points has the profiler that a spec names."""

from __future__ import annotations

from jobkit.core.errors import JobkitError
from jobkit.extensions.profile.work import missing
from jobkit.spec.sweep_spec import SweepSpec


def refuse_missing_profiler(spec: SweepSpec) -> None:
    if why := missing(spec.profile):
        raise JobkitError(f"profile: {why}", hint="the profiler python needs no package")
