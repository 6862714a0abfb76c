"""How long tries took."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.job_files import read_begin
from jobkit.core.layout import BEGIN_FILE, EXIT_FILE
from jobkit.core.records import Record
from jobkit.core.units import moment
from jobkit.outcome.tries import TryResult
from jobkit.outcome.verdict import TryFiles


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
    they were written, by the clock of the file system. In a run folder that was copied they do not: then
    what ``begin`` holds reports when the job began, to a second.
    """
    spans = [_files_s(tried.files.folder), _account_s(tried, shared=shared)]
    worked_s = worker_s(tried.files.record) if tried.files.record else None
    if worked_s is not None:
        copied = all(seconds is None or seconds < worked_s for seconds in spans)
        spans += [worked_s, _until_s(tried.files) if copied else None]
    return max((seconds for seconds in spans if seconds is not None), default=None)


def timed(tried: TryResult) -> Record | None:
    """Return the record of a try with the time of its job, from which a time to come is predicted."""
    record = tried.files.record
    return replace(record, task_s=task_s(tried)) if record else None


def _account_s(tried: TryResult, *, shared: bool) -> float | None:
    return None if shared or tried.account is None or not tried.alone else tried.account.elapsed_s


def worker_s(record: Record) -> float | None:
    """Return how long the worker ran; ``None`` if its record does not report it."""
    began, ended = moment(record.started_at), moment(record.ended_at)
    return max(0.0, (ended - began).total_seconds()) if began and ended else None


def _until_s(files: TryFiles) -> float | None:
    """Return how long it was from the begin of the job to the end of the worker, by the node's clock."""
    with suppress(JobkitError, OSError):
        began = moment(read_begin(Path(files.folder, BEGIN_FILE)).at)
        ended = moment(files.record.ended_at) if files.record else None
        return (ended - began).total_seconds() if began and ended else None
    return None


def _files_s(folder: str) -> float | None:
    if not folder:
        return None
    try:
        return Path(folder, EXIT_FILE).stat().st_mtime - Path(folder, BEGIN_FILE).stat().st_mtime
    except OSError:
        return None
