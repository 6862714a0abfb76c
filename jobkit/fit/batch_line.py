"""Peak memory as a straight line in the batch: the largest that fits, with plain warnings. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jobkit.fit.stats import Line

MAX_EXTRAPOLATION = 8.0
"""An estimate beyond this multiple of the largest measured size gets a warning."""

INTERCEPT_TOLERANCE = 0.05
"""A line may meet size 0 so far below the model's memory, as a share of it, and still be called straight."""

MIN_SIZES = 2
"""So many distinct sizes give a line, but nothing to judge it by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLine(Line):
    """A least-squares line of peak memory over the batch size or the load.

    Attributes
    ----------
    residual_bytes
        Standard deviation about the line; ``None`` if there are only two distinct sizes.
    points, sizes
        How many measurements, and how many distinct sizes among them.
    size_max
        The largest size measured.
    """

    residual_bytes: float | None
    points: int
    sizes: int
    size_max: float

    @property
    def no_error_bar(self) -> str:
        """Why the line has no error bar: it goes through two sizes; empty if it has one."""
        if self.residual_bytes is not None:
            return ""
        return f"2 {'points' if self.points == MIN_SIZES else 'sizes'}, no error bar"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The answer to "how large may it be", or the reason why there is none.

    Attributes
    ----------
    line
        ``None`` if there is no estimate; ``reason`` then has the cause.
    capacity_bytes
        What must not be exceeded; ``None`` if that is unknown.
    largest
        The largest size on the line; never capped, so that the warnings can name the excess.
    warnings
        Sentences without a full stop, the weightiest first.
    """

    line: BatchLine | None
    capacity_bytes: float | None
    largest: int | None = None
    warnings: tuple[str, ...] = ()
    reason: str = ""


def fit_line(sizes: Sequence[float], peaks_bytes: Sequence[float]) -> BatchLine | None:
    """Return the least-squares line through the measurements; ``None`` for fewer than two distinct sizes."""
    distinct = len(set(sizes))
    if distinct < MIN_SIZES:
        return None
    line = Line.through(sizes, peaks_bytes)
    squares = math.fsum((y - line.at(x)) ** 2 for x, y in zip(sizes, peaks_bytes, strict=True))
    return BatchLine(
        slope_bytes=line.slope_bytes,
        intercept_bytes=line.intercept_bytes,
        residual_bytes=math.sqrt(squares / (len(sizes) - MIN_SIZES)) if distinct > MIN_SIZES else None,
        points=len(sizes),
        sizes=distinct,
        size_max=max(sizes),
    )


def estimate(
    sizes: Sequence[float],
    peaks_bytes: Sequence[float],
    capacity_bytes: float | None,
    *,
    model_bytes: float = 0,
) -> Estimate:
    """Estimate the largest size whose peak memory fits a capacity.

    Parameters
    ----------
    sizes, peaks_bytes
        One measurement each: batch size or load, and the total peak (context, weights and
        activations) there.
    capacity_bytes
        What the GPU holds; ``None`` for the line alone.
    model_bytes
        Context and weights, if known: a line that meets size 0 below them bends.
    """
    line = fit_line(sizes, peaks_bytes)
    if line is None:
        reason = f"{len(set(sizes))} size measured: a line needs two" if sizes else "nothing measured"
        return Estimate(line=None, capacity_bytes=capacity_bytes, reason=reason)
    if capacity_bytes is None:
        return Estimate(line=line, capacity_bytes=None, reason="how much memory there is was not recorded")
    if line.slope_bytes <= 0:
        reason = "the peak does not grow with the size over the sizes measured"
        return Estimate(line=None, capacity_bytes=capacity_bytes, reason=reason)
    largest = math.floor(line.largest(capacity_bytes))
    warnings = _warnings(line, largest, model_bytes)
    return Estimate(line=line, capacity_bytes=capacity_bytes, largest=largest, warnings=warnings)


def _warnings(line: BatchLine, largest: int, model_bytes: float) -> tuple[str, ...]:
    """Return what a reader must know before trusting the line."""
    warnings = []
    if line.no_error_bar:
        warnings.append(line.no_error_bar)
    if line.intercept_bytes < (1 - INTERCEPT_TOLERANCE) * model_bytes or line.intercept_bytes < 0:
        warnings.append(
            "the line meets size 0 below the model's own memory, so memory grows faster than a line"
        )
    if largest > MAX_EXTRAPOLATION * line.size_max:
        warnings.append(
            f"{largest / line.size_max:.0f} times the largest size measured: far beyond the evidence"
        )
    return tuple(warnings)
