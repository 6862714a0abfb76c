"""Turn a signal into an exception, once. Standard library only."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from jobkit.run.failure import Stopped

CAUGHT = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """The worker's signals.

    The job script catches what the scheduler sends, writes its name into a file, and sends
    TERM: so the worker needs to shield itself from nothing, and a signal that comes before
    Python is up is not lost.

    Parameters
    ----------
    named
        The file in which the script names the signal that it got.
    """

    def __init__(self, named: Path | None) -> None:
        self._named = named

    @contextlib.contextmanager
    def may_stop(self) -> Iterator[None]:
        """Let the first signal raise `Stopped` inside the block; before and after, none does."""
        before = {number: signal.signal(number, self._stop) for number in CAUGHT}
        try:
            if self._name() is not None:
                raise Stopped(self._name() or "")
            yield
        finally:
            for number in before:
                signal.signal(number, signal.SIG_IGN)

    def _name(self) -> str | None:
        with contextlib.suppress(OSError):
            if self._named:
                return self._named.read_text(encoding="ascii").strip() or None
        return None

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        for caught in CAUGHT:
            signal.signal(caught, signal.SIG_IGN)
        raise Stopped(self._name() or signal.Signals(number).name.removeprefix("SIG"))
