from __future__ import annotations

import time
from dataclasses import replace

from jobkit.core.measurements import Attribution, Energy
from jobkit.runs.results import Span, attributed, overlap_words, overlaps

OF_ONE = Energy(span_s=100, counter_j=9_000, power_j=9_100, idle_w=70, attribution=Attribution.OWN)


def at(place: str, began: int, ended: int) -> Span:
    return Span(place, f"2026-01-02T10:00:{began:02}+00:00", f"2026-01-02T10:00:{ended:02}+00:00")


def test_overlaps_are_counted_at_one_place_only() -> None:
    packed = [at("host a", 0, 5), at("host a", 5, 9), at("host a", 9, 12)]
    assert overlaps(packed) == [0, 0, 0]
    assert overlap_words(packed, overlaps(packed)) == ""
    shared = [at("host a", 0, 6), at("host a", 5, 9), at("host b", 0, 59), at("card 1", 0, 59)]
    unknown = [Span("host a", None, None), Span("host a", "noon", ""), at("host a", 7, 7)]
    assert overlaps([*shared, *unknown]) == [1, 1, 0, 0, None, None, None]
    both = [*shared, at("host b", 3, 4)]
    assert "4 of 5 points ran at the same time as another point on one of 2 hosts" in overlap_words(
        both, overlaps(both)
    )


def test_overlaps_of_a_large_sweep_take_no_time() -> None:
    spans = [
        Span(f"host {n % 50}", f"2026-01-02T10:{n % 60:02}:00", "2026-01-02T12:00:00") for n in range(20_000)
    ]
    began = time.process_time()
    assert min(overlap or 0 for overlap in overlaps(spans)) > 300
    assert time.process_time() - began < 1


def test_points_at_the_same_time_are_the_reason_if_there_is_none_before() -> None:
    shared = attributed(OF_ONE, 2)
    assert shared.attribution is Attribution.NOT_ATTRIBUTABLE
    assert shared.reason == "2 other points ran at the same time on the GPU"
    mig = replace(OF_ONE, attribution=Attribution.NOT_ATTRIBUTABLE, reason="MIG")
    assert attributed(mig, 2) == mig
