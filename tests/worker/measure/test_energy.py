from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jobkit.core.measurements import Energy
from jobkit.worker.measure.sampler import EnergyReading, Meter, idle_power


def card(*counts: float | None, pids: tuple[int, ...] = (), mig: bool = False) -> Any:
    """Return a GPU with what its counter answers, one after the other."""
    counter = iter(counts)
    return SimpleNamespace(
        energy_j=lambda: next(counter), processes=lambda: dict.fromkeys(pids), has_mig=lambda: mig
    )


def metered(*cards: Any, own: set[int] | None = None) -> Energy:
    """Return the energy of two seconds, in which each card had its processes."""
    meter = Meter(cards, 5)
    meter.note([card.processes() for card in cards], own or set(), lambda: None)
    return meter.energy(7)


def test_without_a_counter_of_each_gpu_the_energy_is_unknown() -> None:
    """A driver that is loaded again during the work counts from 0."""
    both = metered(card(10, 900), card(0, 5))
    assert (both.span_s, both.counter_j, both.power_mean_w) == (2, 895, 447.5)
    assert metered(card(0, None)).counter_j is metered(card(900, 10)).counter_j is None
    assert metered(card(0, 5), card(None, None)).counter_j is None


@pytest.mark.parametrize(
    ("cards", "found"),
    [
        ([card(0, 9, pids=(7, 8)), card(0, 1, pids=(8,))], 10),
        ([card(0, 9, pids=(7, 99))], None),
        ([card(0, 9, pids=(99, 7)), card(0, 1)], None),
        ([card(0, 9, pids=(99,))], 9),
        ([card(0, 9, pids=(7,), mig=True)], None),
    ],
    ids=["own", "another process", "on one of two", "none of the job listed, as in a container", "MIG"],
)
def test_energy_is_of_the_job_unless_others_used_a_gpu(cards: list[Any], found: float | None) -> None:
    energy = metered(*cards, own={7, 8})
    assert (energy.joules, energy.counter_j is None) == (found, False)


def test_a_stranger_that_has_ended_or_is_a_new_child_is_not_foreign() -> None:
    meter, own = Meter([card(0, 9, pids=(7, 51))], 0), {7}  # 50 has ended
    meter.note([(7, 50, 51)], own, lambda: own.add(51))  # 51 was started since
    assert meter.energy(1).joules == 9


A, B = "GPU-a", "GPU-b"


def at(at_s: float, joules: float) -> EnergyReading:
    return EnergyReading(at_s, joules)


def test_idle_power_is_read_up_to_the_first_worker_that_opens_a_gpu() -> None:
    first = {A: at(0, 1000), B: at(0, 5)}
    last = [{A: at(4, 1300)}, {A: at(2, 1100), B: at(3, 35)}]
    assert idle_power([A], first, last) == (50, 2)
    assert idle_power([A, B], first, last) == (60, 2)


def test_idle_power_may_not_be_known() -> None:
    """Busy at first, busy at last, over too short a time, without a GPU."""
    begin, short = {A: at(0, 0)}, {A: at(0.5, 99)}
    for first, last in (({}, {A: at(9, 9)}), (begin, {}), (begin, short)):
        assert idle_power([A], first, [last]) is None
    assert idle_power([], {}, []) is None
