from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobkit.worker.workloads.base import DEFAULT_BATCH_SIZE, Entity, Workload, workload_class


def count(batch_size: int | None = None) -> Workload:
    workload = workload_class("count")()
    workload.load(None, "cpu", {} if batch_size is None else {"batch_size": batch_size}, 1)
    return workload


def test_counts_words_and_names_the_longest() -> None:
    result = count(2).process(["  one three\n two", "…\n"])
    assert result.tokens == 3
    assert result.entities == (Entity(0, "three", "WORD", 6, 11),)
    assert result.rows == ((0, 3), (1, 0))
    assert (result.load, result.padded_chars) == (2 * 16, 2 * 16)


def test_effective_is_the_largest_call() -> None:
    workload = count(7)
    assert (workload.items_per_call(), count().items_per_call()) == (7, DEFAULT_BATCH_SIZE)
    assert "python" in workload.versions()
    assert workload.effective() == {"batch_size": None}
    for size in (3, 5, 2):
        workload.process(["a"] * size)
    assert workload.effective() == {"batch_size": 5}


@given(st.lists(st.text(), max_size=5))
def test_offsets_hold_for_any_text(paragraphs: list[str]) -> None:
    for entity in count().process(paragraphs).entities:
        assert paragraphs[entity.paragraph][entity.start : entity.end] == entity.text
