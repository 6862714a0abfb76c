"""Points that ran at the same time at the same place, and so slowed each other down. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from jobkit.core.measurements import Attribution, Energy
from jobkit.core.records import Record
from jobkit.core.units import format_count


@dataclass(frozen=True, slots=True)
class Span:
    """Where and when a point ran: ``place`` is its GPU, or on a CPU its host; times are ISO 8601."""

    place: str
    started_at: object
    ended_at: object

    @property
    def seconds(self) -> tuple[float, float] | None:
        """Begin and end; ``None`` if one is not known."""
        try:
            began, ended = (
                datetime.fromisoformat(str(at)).timestamp() for at in (self.started_at, self.ended_at)
            )
        except (ValueError, OverflowError):
            return None
        return (began, ended) if began < ended else None


def span(uuid: str | None, host: object, started_at: object, ended_at: object) -> Span:
    return Span(f"GPU {uuid}" if uuid else f"host {host}", started_at, ended_at)


def span_of(record: Record) -> Span:
    uuid = record.gpu.uuid if record.gpu else None
    return span(uuid, record.host, record.started_at, record.ended_at)


def overlaps(spans: Sequence[Span]) -> list[int | None]:
    """Return for each point how many others ran at the same time at the same place; ``None`` if unknown.

    Points that follow each other, such as those that are packed in one job, do not overlap.
    """
    times = [span.seconds for span in spans]
    began: dict[str, list[float]] = defaultdict(list)
    ended: dict[str, list[float]] = defaultdict(list)
    for span, known in zip(spans, times, strict=True):
        if known:
            began[span.place].append(known[0])
            ended[span.place].append(known[1])
    for moments in (*began.values(), *ended.values()):
        moments.sort()
    return [
        bisect_left(began[span.place], known[1]) - bisect_right(ended[span.place], known[0]) - 1
        if known
        else None
        for span, known in zip(spans, times, strict=True)
    ]


def attributed(energy: Energy, others: int | None) -> Energy:
    """Return the energy of a point, not attributable if others ran on its GPU at that time, or may have."""
    if not others or energy.attribution is Attribution.NOT_ATTRIBUTABLE:
        return energy
    reason = f"{format_count(others, 'other point')} ran at the same time on the GPU"
    return replace(energy, attribution=Attribution.NOT_ATTRIBUTABLE, reason=reason)


def overlap_words(spans: Sequence[Span], others: Sequence[float | None]) -> str:
    """Return a warning if points slowed each other down, without a full stop; empty if none did."""
    places = [span.place for span, number in zip(spans, others, strict=True) if number]
    if not places:
        return ""
    there = sorted(set(places))
    where = there[0] if len(there) == 1 else f"one of {len(there)} hosts or GPUs"
    return (
        f"{len(places)} of {format_count(len(spans), 'point')} ran at the same time as another point on "
        f"{where}: their speeds may not be comparable; `max_parallel: 1` in the spec keeps points apart "
        "(`resources.exclusive: true` keeps other jobs away, too, and is charged as whole nodes)"
    )
