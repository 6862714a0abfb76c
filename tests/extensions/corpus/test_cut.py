from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.extensions.corpus.plan import cut_loads


def sums(loads: list[float], number: int) -> list[float]:
    return [sum(loads[start:end]) for start, end in pairwise(cut_loads(loads, number))]


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=60), st.integers(1, 30))
def test_every_piece_is_in_one_shard(loads: list[int], number: int) -> None:
    bounds = cut_loads(loads, number)
    assert bounds[0] == 0
    assert bounds[-1] == len(loads)
    assert all(start < end for start, end in pairwise(bounds))


@pytest.mark.parametrize("number", [1, 2, 8, 37])
def test_shards_of_small_pieces_are_equal(number: int) -> None:
    chance = random.Random(1)  # noqa: S311 - not cryptography
    loads = [float(chance.randint(100, 2000)) for _ in range(100 * number)]
    found = sums(loads, number)
    assert len(found) == number
    assert max(found) / min(found) < 1.05


def test_a_giant_is_a_shard_of_its_own_and_the_others_are_equal() -> None:
    loads = [1.0] * 500 + [1000.0] + [1.0] * 300 + [400.0]
    found = sums(loads, 10)
    assert 1000 in found
    assert 400 in found
    others = [load for load in found if load < 400]
    assert sum(others) == 800
    assert max(others) <= 1.25 * min(others)


def test_more_shards_than_pieces_and_no_load() -> None:
    assert cut_loads([5, 5, 5], 9) == [0, 1, 2, 3]
    assert cut_loads([0, 0], 2) == [0, 2]
    assert cut_loads([3], 1) == [0, 1]
    assert cut_loads([9, 1], 1) == [0, 2]
