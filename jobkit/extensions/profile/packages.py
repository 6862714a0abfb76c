"""Whether the Python of the points has the profiler that a spec names."""

from __future__ import annotations

import sys

from jobkit.core.errors import JobkitError
from jobkit.core.terminal import shell_quote
from jobkit.extensions.profile.work import missing
from jobkit.spec.sweep_spec import SweepSpec


def refuse_missing_profiler(spec: SweepSpec) -> None:
    if why := missing(spec.profile):
        command = f"{shell_quote(sys.executable)} -m pip install 'jobkit[profile]'"
        raise JobkitError(f"profile: {why}", hint=f"{command}; the profiler python needs no package")
