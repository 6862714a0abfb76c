"""How the contenders of the comparison search: which batch sizes they try, and what they find."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.edge import SCAN, Search, Trial, below, bisection, doubling


def passes_up_to(edge: int) -> Callable[[int], Trial]:
    return lambda batch: Trial(batch, 10 * batch, batch <= edge, 0.5)


def tried(search: Search) -> list[int]:
    return [trial.batch for trial in search.trials]


@given(st.integers(0, 500), st.integers(1, 500))
def test_bisection_and_doubling_with_halving_find_the_edge(edge: int, most: int) -> None:
    found = bisection(passes_up_to(edge), most)
    assert found.found == min(edge, most)
    assert edge < 2 or doubling(passes_up_to(edge), most, then_halve=True).found == min(edge, most)
    assert len(found.trials) <= most.bit_length()
    assert len(set(tried(found))) == len(found.trials)


@pytest.mark.parametrize(
    ("edge", "most", "best", "batches"),
    [(11, 881, 11, [2, 4, 8, 16, 12, 10, 11]), (10_000, 30, 30, [2, 4, 8, 16, 32]), (0, 30, 1, [2])],
)
def test_doubling_goes_up_to_the_first_that_fails_or_one_size_beyond_the_text(
    edge: int, most: int, best: int, batches: list[int]
) -> None:
    found = doubling(passes_up_to(edge), most, then_halve=True)
    assert (found.found, tried(found)) == (best, batches)
    assert doubling(passes_up_to(300), 881, then_halve=False).found == 256


def test_holes_are_looked_for_below_the_edge_and_a_search_is_charged_a_start_for_each_trial() -> None:
    sizes = below(1000, 900)
    assert (sizes[0], min(sizes) >= 749, len(sizes) <= 1.5 * SCAN + 1) == (1000, True, True)
    said = Search("bisection", 2, [Trial(2, 20, True, 0.5), Trial(3, 30, False, 0.25)], extra_s=1).summary(8)  # noqa: FBT003 - in order
    assert (said["trials"], said["out_of_memory"], said["found"]) == (2, 1, 2)
    assert (said["work_s"], said["with_starts_s"]) == (1.75, 17.75)
