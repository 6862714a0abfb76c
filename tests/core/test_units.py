from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core import units
from jobkit.core.errors import JobkitError


@pytest.mark.parametrize(
    ("parse", "values"),
    [
        (units.parse_size, {"30G": 30 * 2**30, "30GB": 30 * 10**9, "1.5 GiB": 3 * 2**29, " 512M ": 2**29}),
        (units.parse_size, {f"{2**20}TiB": 2**60}),
        (units.parse_duration, {"48:00:00": 172_800, "1-12:00:00": 129_600, "90m": 5400, "45s": 45}),
        (units.parse_seconds, {"2s": 2.0, "0.5 s": 0.5, "500ms": 0.5, " 1ms ": 0.001}),
    ],
)
def test_values(parse: Callable[[str], float], values: dict[str, float]) -> None:
    assert {text: parse(text) for text in values} == values


def test_times_are_written_back() -> None:
    times = [2.0, 0.5, 0.001, 1000.001, 1_000_000.0]
    assert [units.parse_seconds(units.format_seconds(time)) for time in times] == times


@pytest.mark.parametrize(
    ("parse", "said", "texts"),
    [
        (units.parse_size, "size", ["30", "30g", "-1G", "0.1B", "1e3G", "٣G", "2000000TiB", "9" * 400 + "B"]),
        (units.parse_duration, "duration", ["", "10", "10:00", "00:60:00", "1-24:00:00", "0m", "1.5h", "1w"]),
        (units.parse_duration, "duration", ["3651d"]),
        (units.parse_seconds, "time", ["2", "2m", "-1s", "0ms"]),
    ],
)
def test_what_is_no_value(parse: Callable[[str], float], said: str, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(JobkitError, match=said):
            parse(text)


@given(st.integers(1, 2**60))
def test_a_size_survives_the_round_trip(size_bytes: int) -> None:
    assert units.parse_size(units.format_size(size_bytes)) == size_bytes


@given(st.integers(1, 9999 * 3600))
def test_a_walltime_survives_the_round_trip(duration_s: int) -> None:
    assert units.parse_duration(units.format_walltime(duration_s)) == duration_s


@pytest.mark.parametrize(
    ("duration_s", "clock", "about"),
    [
        (0.2, "0:01", "1 s"),
        (89, "1:29", "89 s"),
        (90, "1:30", "2 min"),
        (3600, "1:00:00", "60 min"),
        (5400, "1:30:00", "1 h 30 min"),
        (129_570, "35:59:30", "1 d 12 h"),
        (129_600, "36:00:00", "1 d 12 h"),
    ],
)
def test_a_duration_for_a_person(duration_s: float, clock: str, about: str) -> None:
    assert (units.format_clock(duration_s), units.format_about(duration_s)) == (clock, about)


def test_a_moment_is_reported_in_local_time_to_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/London")
    time.tzset()
    try:
        assert units.format_moment("2026-07-21T12:24:06.024+00:00") == "2026-07-21 13:24:06"
    finally:
        monkeypatch.undo()
        time.tzset()
    for text in ("noon", "0001-01-01T00:00:00+23:59", ""):
        assert units.format_moment(text) == text


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (units.format_size(1536 * 2**20), "1536MiB"),
        (units.format_size(1025), "1025B"),
        (units.format_bytes_gib(1500 * 2**30, 0), "1,500 GiB"),
        (units.format_memory(150 * 2**20), "150.0 MiB"),
        (units.format_energy(3.456), "3.46 J"),
        (units.format_energy(9_000), "9,000 J"),
        (units.format_energy(12_345), "12.3 kJ"),
        (units.format_energy(7_200_000), "7.20 MJ (2.00 kWh)"),
        (units.format_walltime(599.1), "00:10:00"),
        (units.format_compared(3.18), "3.18 s"),
        (units.format_compared(744), "12.4 min"),
        (units.format_compared(19_200), "5 h 20 min"),
    ],
)
def test_figures_have_their_units(shown: str, text: str) -> None:
    assert shown == text


def test_pauses_grow_to_the_slowest() -> None:
    first = list(itertools.islice(units.pauses(0.2, 2.0), 20))
    assert first[:4] == pytest.approx([0.2, 0.26, 0.338, 0.4394])
    assert first[-1] == 2.0
