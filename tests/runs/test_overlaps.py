from __future__ import annotations

from dataclasses import replace

from jobkit.core.records import Record
from jobkit.runs.results import overlap_words, overlaps
from tests.support.builders import point, record

CPU = record(point(device="cpu"))


def at(host: str, began: int, ended: int) -> Record:
    times = (f"2026-01-02T10:00:{second:02}+00:00" for second in (began, ended))
    return replace(CPU, host=host, started_at=next(times), ended_at=next(times))


def test_overlaps_are_counted_at_one_place_only() -> None:
    packed = [at("host a", 0, 5), at("host a", 5, 9), at("host a", 9, 12)]
    assert overlaps(packed) == [0, 0, 0]
    assert overlap_words(packed, overlaps(packed)) == ""
    on_gpu = replace(record(point()), started_at=packed[0].started_at, ended_at=packed[-1].ended_at)
    shared = [at("host a", 0, 6), at("host a", 5, 9), at("host b", 0, 59), on_gpu]
    unknown = [None, replace(packed[0], started_at="noon"), at("host a", 7, 7)]
    assert overlaps([*shared, *unknown]) == [1, 1, 0, 0, None, None, None]
    both = [*shared, at("host b", 3, 4)]
    assert "4 of 5 points ran at the same time as another point on one of 2 hosts" in overlap_words(
        both, overlaps(both)
    )
