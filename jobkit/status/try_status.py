"""The tries of one point with all that is home of them. Reads files only."""

from __future__ import annotations

from dataclasses import dataclass

from jobkit.core.records import RESULTS_FOLDER, TRY_PREFIX
from jobkit.outcome.log_files import log_path
from jobkit.outcome.tries import Tried, names, read_batches
from jobkit.status.progress import Progress, progress_of
from jobkit.status.status import PointStatus, RunStatus, shared_tasks
from jobkit.status.timing import elapsed_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TryStatus:
    """A try with all that is home of it.

    Attributes
    ----------
    folder
        Of the try; empty where it left none.
    files
        Their names.
    log
        Of its task; empty where there is none.
    progress
        By the batches that are home.
    elapsed_s
        How long it took; ``None`` where that is not known.
    """

    tried: Tried
    folder: str
    files: tuple[str, ...]
    log: str
    progress: Progress | None
    elapsed_s: float | None


def tries_of(status: RunStatus, one: PointStatus) -> tuple[TryStatus, ...]:
    """Return the tries of a point, the latest first; among them, as number 0, tasks that left none.

    Those by hand come last.
    """
    look = one.look
    waits = () if look.counts.files.number else (look.counts,)
    every = (*waits, *look.tries, *reversed(look.vanished), *look.by_hand)
    return tuple(_try(status, one, tried) for tried in every)


def _try(status: RunStatus, one: PointStatus, tried: Tried) -> TryStatus:
    home = f"{status.seen.folder}/{RESULTS_FOLDER}/{one.look.point.point_id}"
    folder = f"{home}/{TRY_PREFIX}{tried.files.number}" if tried.files.number else ""
    return TryStatus(
        tried=tried,
        folder=folder,
        files=tuple(sorted(names(folder))) if folder else (),
        log=_log(status, one, tried),
        progress=progress_of(read_batches(home, tried.files.number, [])) if folder else None,
        elapsed_s=elapsed_s(tried, shared=tried.task in shared_tasks(status.seen)),
    )


def _log(status: RunStatus, one: PointStatus, tried: Tried) -> str:
    path = log_path(status.seen.folder, one.look.point, tried.task)
    return str(path) if path is not None and path.is_file() else ""
