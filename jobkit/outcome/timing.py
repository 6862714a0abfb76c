"""How long tries took."""

from __future__ import annotations

from pathlib import Path

from jobkit.core.layout import BEGIN_FILE, EXIT_FILE
from jobkit.core.records import Record
from jobkit.core.units import moment
from jobkit.outcome.tries import TryResult


def elapsed_s(tried: TryResult, *, shared: bool = False) -> float | None:
    """Return how long a try took that has ended: by its record, else by the accounting.

    Parameters
    ----------
    shared
        Whether its task ran other points too: then the accounting's time is not its own.
    """
    if tried.files.record is None:
        return _account_s(tried, shared=shared)
    return worker_s(tried.files.record)


def task_s(tried: TryResult, *, shared: bool = False) -> float | None:
    """Return how long a try that has ended took in all, staging and environment included.

    It is the longest time that any source reports. The files ``begin`` and ``exit`` report it by when
    they were written, by the clock of the file system; in a run folder that was copied they do not.
    """
    worked_s = worker_s(tried.files.record) if tried.files.record else None
    spans = (worked_s, _files_s(tried.files.folder), _account_s(tried, shared=shared))
    return max((seconds for seconds in spans if seconds is not None), default=None)


def _account_s(tried: TryResult, *, shared: bool) -> float | None:
    return None if shared or tried.account is None else tried.account.elapsed_s


def worker_s(record: Record) -> float | None:
    """Return how long the worker ran; ``None`` if its record does not report it."""
    began, ended = moment(record.started_at), moment(record.ended_at)
    return max(0.0, (ended - began).total_seconds()) if began and ended else None


def _files_s(folder: str) -> float | None:
    if not folder:
        return None
    try:
        return Path(folder, EXIT_FILE).stat().st_mtime - Path(folder, BEGIN_FILE).stat().st_mtime
    except OSError:
        return None
