"""A node's clock that is ``CLOCK_OFF_S`` seconds off, for all of Python: first on a job's PYTHONPATH."""

from __future__ import annotations

import datetime as dt
import os


class Off(dt.datetime):
    """Tells another time."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Off:
        """Return the time that the node believes it is."""
        off = dt.timedelta(seconds=float(os.environ.get("CLOCK_OFF_S") or 0))
        return cls.fromtimestamp(super().now().timestamp(), tz) + off


dt.datetime = Off  # type: ignore[misc]
