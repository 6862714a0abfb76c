"""What a run has brought home, for a Python session: its points as objects, and as a DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobkit.core.extras import missing_extra
from jobkit.core.json_codec import fields_of
from jobkit.runs.results import read_run
from jobkit.runs.status import PointResult

if TYPE_CHECKING:
    import pandas as pd

    from jobkit.report.tables import Collected


@dataclass(frozen=True)
class Results:
    """The results of a run folder; each attribute reads those that are home at that moment."""

    folder: Path

    def _home(self) -> Path:
        """Return the folder, with all that is home by now."""
        return self.folder

    @property
    def points(self) -> Sequence[PointResult]:
        """The points, in order: each with ``point``, ``verdict``, ``outcome``, ``record`` and its tries."""
        return read_run(self._home()).points

    @property
    def notes(self) -> Sequence[str]:
        """What in the folder could not be read, and why."""
        return read_run(self._home()).notes

    @property
    def tables(self) -> Collected:
        """The tables of ``jobkit collect``: points, sizes, groups; their numbers are float64."""
        from jobkit.report.tables import collect

        return collect([self._home()])

    @property
    def frame(self) -> pd.DataFrame:
        """One row a point: the columns of ``jobkit collect --format csv``, in bytes and seconds.

        Of a corpus one row a shard: its outcome, the number of its tries, and what it did. The types are
        ``Int64``, ``Float64``, ``boolean`` and ``string``; what is not known is ``<NA>``.
        """
        from jobkit.report.tables import typed

        if (tables := self.tables).rows:
            return typed([*tables.point_records()], tables.point_columns)
        rows = []
        for one in self.points:
            done = fields_of(one.record.summary) if one.record and one.record.summary else {}
            rows.append(
                {"point": one.point.point_id, "outcome": one.outcome, "tries": len(one.tries), **done}
            )
        return typed(rows, [*dict.fromkeys(name for row in rows for name in row)])

    def to_arrow(self) -> Any:  # noqa: ANN401 - pyarrow is untyped
        """Return `frame` as a ``pyarrow.Table``, which polars and DuckDB read as it is."""
        if lack := missing_extra("to_arrow", "parquet"):
            raise lack
        import pyarrow as pa

        return pa.Table.from_pandas(self.frame, preserve_index=False)

    def _repr_html_(self) -> str:
        """Return the tables and pictures of ``jobkit report``, which a notebook shows."""
        from jobkit.report.page import fragment

        return fragment(self.folder, self.tables)
