"""The walltime and the memory that points need that ran out of them, as words of `jobkit resume`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from jobkit.core.errors import JobkitError
from jobkit.core.files import read_text
from jobkit.core.json_codec import from_json
from jobkit.core.layout import PROMISE_FILE, SPEC_FILE, read_batches
from jobkit.core.records import Outcome
from jobkit.core.units import GIB, format_about, format_list, format_memory, format_size, format_walltime
from jobkit.outcome.timing import task_s
from jobkit.outcome.tries import TryResult
from jobkit.status.progress import Progress, progress_of
from jobkit.status.shards import read_parts
from jobkit.status.standing import PointStanding, RunStanding, given_to

if TYPE_CHECKING:
    from jobkit.spec.sweep_spec import Resources

WALLTIME, MEMORY = "resources.walltime", "resources.memory"
MARGIN, STEP_S = 1.25, 60
"""How much more walltime than the pace asks for, in whole minutes."""
MOST_NAMES = 3
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

    The walltime is that of the measured pace and a quarter more. Of a point without one it is what the
    policy of the spec gives after a try without enough, and so is the memory; both are never less than what
    was measured before.
    """
    late = [point for point in points if point.outcome is Outcome.TIMEOUT and is_limited(point)]
    full = [point for point in points if point.outcome is Outcome.RAM_OOM]
    return [*([_walltime(run, late)] if late else []), *([_memory(run, full)] if full else [])]


def progress_of_try(tried: TryResult) -> Progress | None:
    """Return how far a try is, or how far it came; ``None`` if no batch is home."""
    return progress_of(read_batches(tried.files.folder)[0]) if tried.files.folder else None


def _walltime(run: RunStanding, late: Sequence[PointStanding]) -> Need:
    paces = [(point, _whole_s(point)) for point in late]
    found = [_unpaced(run, point) if whole_s is None else _paced(point, whole_s) for point, whole_s in paces]
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return Need(WALLTIME, "", "HH:MM:SS: more than before; the spec of the run cannot be read")
    seconds, because = max(known, key=itemgetter(0))
    names = [point.point.point_id for point, whole_s in paces if whole_s is None]
    more = f"; the time of {format_list(names, MOST_NAMES)} was not measured yet" if names else ""
    return Need(WALLTIME, format_walltime(seconds), because + more)


def _paced(point: PointStanding, whole_s: float) -> tuple[int, str]:
    """Return enough walltime for a point by its measured pace, and why."""
    return _enough_s(whole_s), f"{_far(point)}; a quarter more, and time to copy"


def _unpaced(run: RunStanding, point: PointStanding) -> tuple[int, str] | None:
    """Return the walltime of a point without a pace, and why; ``None`` if the spec cannot be read."""
    resources, planned_s = _by_policy(run, point), _planned_s(run, point)
    if resources is None:
        return None
    if planned_s is not None and _enough_s(planned_s) > resources.walltime:
        return _enough_s(
            planned_s
        ), f"{format_about(planned_s)} were planned; a quarter more, and time to copy"
    return resources.walltime, "as the policy adds after a timeout"


def _planned_s(run: RunStanding, point: PointStanding) -> float | None:
    """Return how long a shard takes by the plan of its corpus; ``None`` if that is not known."""
    part = read_parts(run.folder).get(point.point.index) if point.point.shard else None
    return part.expected_s if part else None


def _enough_s(work_s: float) -> int:
    return math.ceil(_with_warning(MARGIN * work_s) / STEP_S) * STEP_S


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
    known = [found.memory for point in full if (found := _by_policy(run, point))]
    if len(known) < len(full):
        return Need(MEMORY, "", "SIZE: more than before; the spec of the run cannot be read")
    size, held = max(known), max(_held_bytes(run, point) for point in full)
    if size < MARGIN * held:
        size = math.ceil(MARGIN * held / GIB) * GIB
        return Need(
            MEMORY, format_size(size), f"{format_memory(held)} were measured; a quarter more, in whole GiB"
        )
    return Need(MEMORY, format_size(size), "as the policy adds after a lack of memory")


def _held_bytes(run: RunStanding, point: PointStanding) -> int:
    """Return the most RAM that a try held with as many processes, also before a corpus; 0 if unknown."""

    def alike(other: PointStanding) -> bool:
        return (other.point.workers, other.point.gpus) == (point.point.workers, point.point.gpus)

    records = [other.record for other in run.points if other.outcome is Outcome.OK and alike(other)]
    held = [record.memory.ram_peak_bytes for record in records if record]
    return max((size for size in (_promised(run.folder), *held) if size), default=0)


@dataclass(frozen=True, slots=True)
class _Promise:
    """What ``promise.json`` has of memory: the most that a try of the setting held."""

    peak_bytes: int | None = None


def _promised(folder: Path) -> int | None:
    path = folder / PROMISE_FILE
    try:
        return from_json(_Promise, read_text(path), where=str(path)).peak_bytes
    except (OSError, JobkitError):
        return None


def _by_policy(run: RunStanding, point: PointStanding) -> Resources | None:
    """Return what the policy gives a point now; ``None`` if the spec cannot be read."""
    from jobkit.spec.policy import growth  # here: only a point that lacked something needs the spec
    from jobkit.spec.sweep_spec import load_spec
    from jobkit.status.retry import changed, comparable_tries

    every = given_to(run)
    given = every.get(point.task, ()) if point.task else ()
    try:
        spec = load_spec(run.folder / SPEC_FILE, given)
    except JobkitError:
        return None
    return changed(spec, growth(spec.policy, comparable_tries(point, every, given))).resources
