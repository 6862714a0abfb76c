"""The registry of figures: how each is read, and that one entry puts it into every output."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from jobkit.core.figures import ENERGY, NET_ENERGY, by_key, choosable, format_figure, reported
from jobkit.core.measurements import NOT_ATTRIBUTABLE, Energy, MemoryReadings, Metric
from jobkit.core.records import Record
from jobkit.core.units import GIB
from tests.support.builders import point, record

OF_ONE = Energy(span_s=100, counter_j=9_000, idle_w=70)


def reporting(**values: float) -> Record:
    return replace(record(point()), metrics={name: Metric(value=v, unit="1") for name, v in values.items()})


def test_figures_have_the_names_of_the_spec() -> None:
    energy = Energy(span_s=8.0, counter_j=881.0)
    one_try = replace(record(point()), energy=energy, memory=MemoryReadings(process_peak_bytes=3 * GIB))
    assert one_try.summary
    found = {name: one_try.value(figure) for name, figure in choosable().items()}
    assert found == {
        "items_per_s": one_try.summary.items_per_s,
        "work_s": 8.0,
        "batch_p95": one_try.summary.batch_p95_s,
        "joules_per_1000": pytest.approx(1000),
        "gpu_memory": 3 * GIB,
    }
    assert one_try.value(by_key("f1")) is None
    assert reporting(f1=0.9).value(by_key("f1")) == 0.9
    assert replace(one_try, summary=None).value(by_key("work_s")) is None
    nothing = replace(one_try, summary=replace(one_try.summary, items=0, items_per_s=0.0))
    assert [nothing.value(by_key(key)) for key in ("items_per_s", "joules_per_1000")] == [None, None]


@pytest.mark.parametrize("value", [math.nan, math.inf, -1e101, 10**400])
def test_a_value_with_which_nothing_can_be_computed_is_left_out(value: float) -> None:
    assert reported(reporting(f1=value, other=2)) == {"other": Metric(value=2.0, unit="1")}
    assert reported(None) == {}


def test_figures_in_words() -> None:
    assert format_figure(1234567.0) == "1.235e+06"
    assert format_figure(0.91234, "1", 0.00512) == "0.9123 ± 0.0051"
    assert format_figure(12.5, "ms") == "12.5 ms"
    assert format_figure(3 * GIB, "bytes", GIB / 2) == "3.00 GiB ± 512.0 MiB"


@pytest.mark.parametrize(
    ("energy", "found"),
    [
        (OF_ONE, (9_000, 2_000)),
        (replace(OF_ONE, attribution="unknown"), (9_000, 2_000)),  # of an earlier version
        (replace(OF_ONE, attribution=NOT_ATTRIBUTABLE), (None, None)),
        (replace(OF_ONE, idle_w=None), (9_000, None)),
        (replace(OF_ONE, idle_w=90), (9_000, None)),
        (replace(OF_ONE, counter_j=None), (None, None)),
        (None, (None, None)),
    ],
)
def test_what_is_attributable_and_what_is_net_of_it(
    energy: Energy | None, found: tuple[float | None, float | None]
) -> None:
    one_try = replace(record(point()), energy=energy)
    assert (one_try.value(ENERGY), one_try.value(NET_ENERGY)) == found
