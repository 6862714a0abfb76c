from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from jobkit.core.measurements import Attribution
from jobkit.worker.measure import sampler
from jobkit.worker.measure.nvml import GpuHandle
from jobkit.worker.measure.sampler import EnergyReading, Meter, Owners, idle_power


class Card:
    """A GPU with what it answers, one after the other."""

    def __init__(
        self, *counts: float | None, watts: tuple[float | None, ...] = (), pids: tuple[int, ...] = ()
    ) -> None:
        self.counts, self.watts, self.pids = list(counts), list(watts), pids
        self.mig = False

    def energy_j(self) -> float | None:
        return self.counts.pop(0)

    def power_w(self) -> float | None:
        return self.watts.pop(0)

    def processes(self) -> Mapping[int, int | None]:
        return dict.fromkeys(self.pids)

    def has_mig(self) -> bool:
        return self.mig


def gpus(*cards: Card) -> list[GpuHandle]:
    return cast("list[GpuHandle]", cards)


def metered(*cards: Card, times: tuple[float, ...]) -> tuple[float | None, float | None]:
    """Return the energy by counter and by power, sampled at these times."""
    first, *between, last = times
    meter = Meter(gpus(*cards), first)
    for now in between:
        meter.sample_power(now)
    found = meter.energy(last, Attribution.OWN, "")
    assert found.span_s == last - first
    return found.counter_j, found.power_j


def test_the_integral_is_by_trapezoids_and_a_failed_sample_is_bridged() -> None:
    assert metered(Card(10, 900, watts=(100, 300, 300)), times=(5, 6, 8)) == (890, 200 + 600)
    assert metered(Card(0, 1, watts=(100, None, 300)), times=(0, 1, 4)) == (1, 800)


def test_without_a_counter_of_each_gpu_or_a_power_it_is_unknown() -> None:
    """A driver that is loaded again during the work counts from 0."""
    assert metered(Card(None, None, watts=(None, None)), times=(0, 1)) == (None, None)
    assert metered(Card(0, None, watts=(None, 100)), times=(0, 1)) == (None, None)
    assert metered(Card(900, 10, watts=(1, 1)), times=(0, 1)) == (None, 1)
    cards = Card(0, 5, watts=(1, 1)), Card(None, None, watts=(2, 2))
    assert metered(*cards, times=(0, 1)) == (None, 3)


def attributed(*cards: Card, own: set[int], sees_all: bool = True) -> tuple[Attribution, str]:
    owners = Owners(gpus(*cards), sees_all=sees_all)
    owners.note([card.pids for card in cards], own, lambda: None)
    return owners.attribution()


@pytest.mark.parametrize(
    ("cards", "sees_all", "word", "reason"),
    [
        ([(7, 8), (8,)], True, Attribution.OWN, ""),
        ([(7,)], False, Attribution.UNKNOWN, sampler.NAMESPACE),
        ([(7, 99)], True, Attribution.NOT_ATTRIBUTABLE, sampler.FOREIGN),
        ([(7, 99)], False, Attribution.NOT_ATTRIBUTABLE, sampler.FOREIGN),
        ([()], True, Attribution.UNKNOWN, sampler.UNLISTED),
        ([(7,), ()], True, Attribution.UNKNOWN, sampler.UNLISTED),
        ([(99, 7), ()], True, Attribution.NOT_ATTRIBUTABLE, sampler.FOREIGN),
    ],
)
def test_the_attribution_is_the_worst_of_a_gpu(
    cards: list[tuple[int, ...]],
    sees_all: bool,  # noqa: FBT001 - a parameter of the test
    word: Attribution,
    reason: str,
) -> None:
    found = attributed(*(Card(pids=pids) for pids in cards), own={7, 8}, sees_all=sees_all)
    assert found == (word, reason)


def test_energy_of_a_gpu_in_mig_mode_is_not_attributable() -> None:
    card = Card(pids=(7,))
    card.mig = True
    assert attributed(card, own={7}) == (Attribution.NOT_ATTRIBUTABLE, sampler.MIG)


def test_a_stranger_that_has_ended_or_is_a_new_child_is_not_foreign() -> None:
    card = Card(pids=(7,))
    owners = Owners(gpus(card), sees_all=True)
    own = {7}
    card.pids = (7, 51)  # 50 has ended
    owners.note([(7, 50, 51)], own, lambda: own.add(51))  # 51 was started since
    assert owners.attribution() == (Attribution.OWN, "")


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
    begin, short = {A: at(0, 0)}, {A: at(sampler.IDLE_LEAST_S / 2, 99)}
    for first, last in (({}, {A: at(9, 9)}), (begin, {}), (begin, short)):
        assert idle_power([A], first, [last]) is None
    assert idle_power([], {}, []) is None
