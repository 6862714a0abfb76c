"""The walltime and the memory that points need that ran out of them, as words of `jobkit resume`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jobkit.core.errors import JobkitError
from jobkit.core.layout import SPEC_FILE, read_batches
from jobkit.core.records import Outcome
from jobkit.core.units import format_size, format_walltime
from jobkit.outcome.timing import task_s
from jobkit.outcome.tries import TryResult
from jobkit.status.progress import Progress, progress_of
from jobkit.status.standing import PointStanding, RunStanding, given_to

WALLTIME, MEMORY = "resources.walltime", "resources.memory"
MARGIN, STEP_S = 1.25, 60
"""How much more walltime than the pace asks for, in whole minutes."""
WARNING_S = 60
"""The default of ``warning_s`` in a site file."""


@dataclass(frozen=True, slots=True)
class Need:
    """What points need of what they ran out of.

    Attributes
    ----------
    key
        Of the spec.
    value
        Enough of it; empty if that is not known.
    because
        The measured reason; if the value is not known, why not.
    """

    key: str
    value: str
    because: str

    @property
    def option(self) -> str:
        """The option of `jobkit resume`; a word in capitals stands for what is not known."""
        unknown = {WALLTIME: "HH:MM:SS", MEMORY: "SIZE"}
        return f"--set {self.key}={self.value or unknown[self.key]}"


def is_limited(point: PointStanding) -> bool:
    """Return whether a point ran out of walltime or memory; a batch that hung did not."""
    return point.outcome is Outcome.RAM_OOM or (point.outcome is Outcome.TIMEOUT and not point.verdict.hung)


def needed_by(run: RunStanding, points: Sequence[PointStanding]) -> list[Need]:
    """Return what points need that ran out of walltime or memory, each key once.

    The walltime is that of the measured pace and a quarter more, the memory what the policy of the spec
    gives after a try without enough. Unknown of one point is unknown of all.
    """
    late = [point for point in points if point.outcome is Outcome.TIMEOUT and is_limited(point)]
    full = [point for point in points if point.outcome is Outcome.RAM_OOM]
    return [*([_walltime(late)] if late else []), *([_memory(run, full)] if full else [])]


def progress_of_try(tried: TryResult) -> Progress | None:
    """Return how far a try is, or how far it came; ``None`` if no batch is home."""
    return progress_of(read_batches(tried.files.folder)[0]) if tried.files.folder else None


def _walltime(late: Sequence[PointStanding]) -> Need:
    paces = [(_whole_s(point), point) for point in late]
    unknown = [point for whole_s, point in paces if whole_s is None]
    if unknown:
        name = unknown[0].point.point_id
        return Need(WALLTIME, "", f"HH:MM:SS: more than before; how far {name} came is not known")
    whole_s, slowest = max((whole_s or 0.0, point.point.index) for whole_s, point in paces)
    point = next(point for point in late if point.point.index == slowest)
    enough_s = math.ceil(_with_warning(MARGIN * whole_s) / STEP_S) * STEP_S
    return Need(WALLTIME, format_walltime(enough_s), f"{_far(point)}; a quarter more, and time to copy")


def _with_warning(work_s: float) -> float:
    """Return the walltime of some work, which the warning ends a minute, or a quarter, before it."""
    return min(work_s * 4 / 3, work_s + WARNING_S)


def _far(point: PointStanding) -> str:
    progress, spent_s = progress_of_try(point.counts), task_s(point.counts)
    of = f" of {progress.batches_total:,}" if progress and progress.batches_total else ""
    return f"{progress.batches if progress else 0:,}{of} batches took {spent_s or 0:,.0f} s"


def _whole_s(point: PointStanding) -> float | None:
    """Return how long the whole of a point takes at the pace of the try; ``None`` if that is not known."""
    progress = progress_of_try(point.counts)
    spent_s = task_s(point.counts, shared=point.counts.task in point.shared_tasks)
    if progress is None or progress.left_s is None or not spent_s or not progress.work_s:
        return None
    at_once = max(1.0, progress.work_s / spent_s)  # of several workers
    return spent_s + progress.left_s / at_once


def _memory(run: RunStanding, full: Sequence[PointStanding]) -> Need:
    sizes = [_memory_bytes(run, point) for point in full]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return Need(MEMORY, "", "SIZE: more than before; the spec of the run cannot be read")
    return Need(MEMORY, format_size(max(known)), "as the policy adds after a lack of memory")


def _memory_bytes(run: RunStanding, point: PointStanding) -> int | None:
    """Return the memory that the policy gives a point now; ``None`` if the spec cannot be read."""
    from jobkit.spec.policy import growth  # here: only a lack of memory needs the spec
    from jobkit.spec.sweep_spec import load_spec
    from jobkit.status.retry import changed, comparable_tries

    every = given_to(run)
    given = every.get(point.task, ()) if point.task else ()
    try:
        spec = load_spec(run.folder / SPEC_FILE, given)
    except JobkitError:
        return None
    return changed(spec, growth(spec.policy, comparable_tries(point, every, given))).resources.memory
