"""The best tags of a batch, next to those that Stanza finds sentence by sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = [pytest.mark.xdist_group("torch"), pytest.mark.slow]

HALVES = st.integers(-2, 2).map(lambda number: number / 2)
"""Few values, so that many sums are equal."""
ANY = st.floats(-1e4, 1e4, width=32)
GARBAGE = st.sampled_from([math.nan, math.inf, -math.inf, 3e38, 0.0])

Batch = tuple[Any, Any, list[int]]


@st.composite
def batches(draw: st.DrawFn, values: st.SearchStrategy[float]) -> Batch:
    """Return scores with garbage in their padding, transitions, and the words of each sentence."""
    import torch

    tags = draw(st.integers(2, 8))
    lengths = sorted(draw(st.lists(st.integers(1, 12), min_size=1, max_size=5)), reverse=True)
    words = draw(st.integers(lengths[0], lengths[0] + 1))

    def table(rows: int) -> Any:
        cells = draw(st.lists(values, min_size=rows * tags, max_size=rows * tags))
        return torch.tensor(cells, dtype=torch.float32).reshape(rows, tags)

    scores = torch.full((len(lengths), words, tags), draw(GARBAGE))
    for row, length in enumerate(lengths):
        scores[row, :length] = table(length)
    return scores, table(tags), lengths


def by_stanza(scores: Any, transitions: Any, lengths: Sequence[int]) -> list[list[int]]:
    """Return the tags of each sentence as ``Trainer.predict`` of Stanza finds them."""
    from stanza.models.common.crf import viterbi_decode

    rows = zip(scores.numpy(), lengths, strict=True)
    return [list(map(int, viterbi_decode(row[:length], transitions.numpy())[0])) for row, length in rows]


def walked(walk: Callable[..., Any], batch: Batch) -> tuple[list[int], list[list[list[int]]]]:
    """Return the last tags, and where each tag came from, by one of the two ways to find them."""
    scores, transitions, lengths = batch
    active = [sum(length > word for length in lengths) for word in range(max(lengths))]
    last, origins = walk(scores, transitions, active)
    return last.tolist(), [rows.tolist() for rows in origins]


@pytest.mark.parametrize("values", [HALVES, ANY, st.just(0.0)], ids=["ties", "any", "all equal"])
@settings(max_examples=40)
@given(data=st.data())
def test_each_sentence_has_the_tags_that_stanza_finds_and_on_a_gpu_too(
    values: st.SearchStrategy[float], data: st.DataObject
) -> None:
    from jobkit.worker.workloads import stanza_shortcuts as shortcuts

    batch = data.draw(batches(values))
    assert shortcuts.decode(*batch) == by_stanza(*batch)
    assert walked(shortcuts._on_gpu, batch) == walked(shortcuts._on_cpu, batch)
