"""Which precisions a recommendation may take, by how their entities agree with those of fp32. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jobkit.core.knobs import FP32, PRECISION
from jobkit.core.records import Outcome, Record
from jobkit.core.units import format_count, format_f1
from jobkit.fit.speed import Speed
from jobkit.outcome.agreement import Agreement


@dataclass(frozen=True, slots=True, kw_only=True)
class OfPrecision:
    """A setting of another precision than fp32, in a run that has fp32 too.

    Attributes
    ----------
    setting
        Its knobs in words, as in `jobkit.fit.speed.Speed`.
    agreement
        Of the repeat that agrees least with fp32; ``None`` if one could not be compared.
    accepted
        Whether it may be recommended.
    """

    setting: str
    agreement: Agreement | None
    accepted: bool

    @property
    def words(self) -> str:
        """How its entities agree with those of fp32."""
        if self.agreement is None:
            return "its entities could not be compared with those of fp32"
        if not self.agreement.differ:
            return f"the entities are those of fp32, {self.agreement.entities:,} in all"
        differ = format_count(self.agreement.differ, "entity", "entities")
        return f"{differ} of it or of fp32 are not in the other (F1 {format_f1(self.agreement.f1)})"


def of_precisions(
    speeds: Iterable[Speed], records: Sequence[Record], agreements: Mapping[int, Agreement], min_f1: float
) -> tuple[OfPrecision, ...]:
    """Return the settings of other precisions than fp32; none if fp32 did not succeed.

    Parameters
    ----------
    speeds
        Of the settings that succeeded.
    records
        Of the points.
    agreements
        By the point's index.
    min_f1
        The least agreement that is accepted.
    """
    words = {speed.params.get(PRECISION) for speed in speeds}
    if FP32 not in words:
        return ()
    return tuple(
        _of(speed, _least([agreements.get(index) for index in _indices(speed, records)]), min_f1)
        for speed in speeds
        if speed.params.get(PRECISION) != FP32
    )


def _of(speed: Speed, least: Agreement | None, min_f1: float) -> OfPrecision:
    accepted = least is not None and least.f1 >= min_f1
    return OfPrecision(setting=speed.setting, agreement=least, accepted=accepted)


def _indices(speed: Speed, records: Iterable[Record]) -> list[int]:
    return [
        record.point.index
        for record in records
        if record.outcome is Outcome.OK and record.params == speed.params
    ]


def _least(agreements: Iterable[Agreement | None]) -> Agreement | None:
    """Return the agreement with the least F1; ``None`` if one is missing."""
    known = [(agreement.f1, agreement) if agreement else (-1.0, None) for agreement in agreements]
    return min(known, key=lambda pair: pair[0], default=(0.0, None))[1]


def without_refused(speeds: Iterable[Speed], precisions: Iterable[OfPrecision]) -> tuple[Speed, ...]:
    """Return the settings that may be recommended."""
    refused = {precision.setting for precision in precisions if not precision.accepted}
    return tuple(speed for speed in speeds if speed.setting not in refused)


def lines(speeds: Sequence[Speed], chosen: Speed, precisions: Iterable[OfPrecision]) -> Iterator[str]:
    """Yield how the entities of the recommended setting agree with fp32, and what is faster and refused."""
    named = {precision.setting: precision for precision in precisions}
    if own := named.get(chosen.setting):
        yield f"Of this precision, {own.words}"
    allowed = without_refused(speeds, named.values())
    faster = [speed for speed in speeds if speed not in allowed and speed.rate > chosen.rate]
    if faster and chosen.rate:
        best = max(faster, key=lambda speed: speed.rate)
        share = 100 * (best.rate / chosen.rate - 1)
        refused = named[best.setting]
        yield f"Not taken: {best.setting}, {share:.0f} % faster, because {refused.words}{_accept(refused)}"


def _accept(refused: OfPrecision) -> str:
    return f"; --min-f1 {format_f1(refused.agreement.f1)} takes it" if refused.agreement else ""


def caution(chosen: Speed, records: Sequence[Record], precisions: Sequence[OfPrecision]) -> str:
    """Return a warning if the recommended precision was compared with nothing; else an empty string."""
    record = next((record for record in records if record.params == chosen.params), None)
    precision = record.precision if record else None
    if precision in {None, FP32} or any(own.setting == chosen.setting for own in precisions):
        return ""
    why = "no point with precision fp32 has succeeded"
    return f"{why}, so the entities of {precision} were compared with nothing"
