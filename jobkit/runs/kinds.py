"""What differs between kinds of run: a sweep here, the others in extensions.

A room asks `kind_of` and calls a hook; it never asks which kind it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jobkit.core.extensions import extension_of, load

if TYPE_CHECKING:
    from jobkit.runs.standing import RunStanding


class RunKind:
    """The hooks of a sweep, which every other kind of run inherits.

    Attributes
    ----------
    command
        The command that makes such a run.
    look
        The command that shows its results while it is under way.
    """

    command = "sweep"
    look = "collect"

    def settle(self, folder: Path) -> str:
        """Do what the jobs of a run could not do; return the closing line of a run that is done."""
        del folder
        return ""

    def status_lines(self, run: RunStanding) -> Iterator[str]:
        """Yield what `jobkit status` says of the run besides its points."""
        del run
        yield from ()

    def status_data(self, run: RunStanding) -> Mapping[str, object]:
        """Return the same for ``jobkit status --json``."""
        del run
        return {}


def kind_of(folder: Path) -> RunKind:
    """Return the kind of a run folder."""
    return load(extension_of(folder), "run") or SWEEP


SWEEP = RunKind()
