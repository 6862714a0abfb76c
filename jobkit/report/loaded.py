"""A run folder for a Python session: its points as objects, and as a DataFrame."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from jobkit.core.errors import JobkitError
from jobkit.core.json_codec import fields_of
from jobkit.core.layout import is_run_folder
from jobkit.runs.results import read_run
from jobkit.runs.status import PointResult

if TYPE_CHECKING:
    import pandas as pd

    from jobkit.report.tables import Collected


@dataclass(frozen=True)
class Loaded:
    """A run as it was when it was loaded.

    Attributes
    ----------
    folder
        The run folder.
    points
        One `jobkit.runs.status.PointResult` a point, in order: ``point`` as planned, ``verdict``
        (outcome and evidence), ``chosen.record`` with everything that was measured.
    notes
        What in the folder could not be read, and why.
    """

    folder: Path
    points: tuple[PointResult, ...]
    notes: tuple[str, ...]

    @cached_property
    def tables(self) -> Collected:
        """The tables of ``jobkit collect``, read when first asked for: points, sizes, groups."""
        from jobkit.report.tables import collect

        return collect([self.folder])

    @property
    def frame(self) -> pd.DataFrame:
        """One row a point, in bytes and seconds: the columns of ``jobkit collect --format csv``.

        Of a corpus one row a shard: its outcome, the number of its tries, and what it did.
        """
        if not (frame := self.tables.points).empty:
            return frame
        import pandas as pd

        rows = []
        for one in self.points:
            done = fields_of(one.record.summary) if one.record and one.record.summary else {}
            rows.append(
                {"point": one.point.point_id, "outcome": one.outcome, "tries": len(one.tries), **done}
            )
        return pd.DataFrame(rows)

    def _repr_html_(self) -> str:
        """Return the tables and pictures of ``jobkit report``, which a notebook shows."""
        from jobkit.report.page import fragment

        return fragment(self.folder, self.tables)


def load(run: Path | str) -> Loaded:
    """Return what a run has brought home so far.

    Parameters
    ----------
    run
        The run folder.

    Raises
    ------
    JobkitError
        If it is none.
    """
    folder = Path(run)
    if not is_run_folder(folder):
        raise JobkitError(f"{run}: not a run folder", hint="name one folder below runs/")
    read = read_run(folder)
    return Loaded(folder, read.points, read.notes)
