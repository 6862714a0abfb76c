"""How long tries took."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from jobkit.core.layout import BEGIN_FILE, EXIT_FILE
from jobkit.core.records import Record
from jobkit.outcome.tries import TryResult
from jobkit.outcome.verdict import TryFiles
from jobkit.schedulers.types import Accounted


def elapsed_s(tried: TryResult, *, shared: bool = False) -> float | None:
    """Return how long a try took that has ended: by its record, else by the accounting.

    Parameters
    ----------
    shared
        Whether its task ran other points too: then the accounting's time is not its own.
    """
    record = tried.files.record
    if record is None:
        return None if shared or tried.account is None else tried.account.elapsed_s
    return worker_s(record)


def worker_s(record: Record) -> float | None:
    """Return how long the worker ran; ``None`` if its record does not say when."""
    began, ended = moment(record.started_at), moment(record.ended_at)
    return max(0.0, (ended - began).total_seconds()) if began and ended else None


def task_s(files: TryFiles, folder: Path | str, account: Accounted | None = None) -> float | None:
    """Return how long a try that has ended took in all: staging and environment are in it.

    It is the longest that any source reports. The files ``begin`` and ``exit`` report it by when they
    were written, by the clock of the file system; in a run folder that was copied they do not.

    Parameters
    ----------
    folder
        Of the try.
    account
        Of its task, if that ran no other point.
    """
    worked_s = worker_s(files.record) if files.record else None
    spans = (worked_s, _files_s(folder), account.elapsed_s if account else None)
    return max((seconds for seconds in spans if seconds is not None), default=None)


def _files_s(folder: Path | str) -> float | None:
    try:
        return Path(folder, EXIT_FILE).stat().st_mtime - Path(folder, BEGIN_FILE).stat().st_mtime
    except OSError:
        return None


def moment(text: str) -> datetime | None:
    """Return a moment; one without a zone is the local time of a scheduler; ``None`` where it is none."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        return None
