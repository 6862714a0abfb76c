from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from jobkit.core.records import Outcome
from jobkit.worker import steps
from jobkit.worker.measure import memory
from jobkit.worker.workloads.base import Entity, Result
from jobkit.worker.workloads.count import Count
from tests.support.builders import point
from tests.worker.test_record import state
from tests.worker.test_supervisor import PLAIN, restored, tried

__all__ = ["restored"]


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    """Have Python collect by itself before and after a test."""
    gc.enable()
    yield
    gc.enable()
    gc.unfreeze()


class Knot:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.itself = self


class Looks(Count):
    """Looks in each call whether Python collects by itself, and counts the knots: it leaves one."""

    seen: ClassVar[list[tuple[bool, int]]] = []

    def process(self, paragraphs: Sequence[str]) -> Result:
        Knot()
        self.seen.append((gc.isenabled(), sum(type(one) is Knot for one in gc.get_objects())))
        if paragraphs == ["Bug.\n"]:
            raise ValueError
        return super().process(paragraphs)


class LooksAndKeeps(Looks):
    GC: ClassVar[bool] = False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "text", "outcome"),
    [
        (Looks, "Ada.\n\nBob.\n\nCy.\n", Outcome.OK),
        (Looks, "Bug.\n", Outcome.BUG),
        (LooksAndKeeps, "Ada.\n\nBob.\n", Outcome.OK),
    ],
)
def test_garbage_is_collected_between_calls_and_after_a_try_python_does_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workload: type[Looks], text: str, outcome: Outcome
) -> None:
    monkeypatch.setattr(steps, "DUE", 0)
    Looks.seen.clear()
    of = replace(PLAIN, workload=f"{__name__}:{workload.__name__}", workers=1)
    assert tried(tmp_path, of, text).outcome is outcome
    enabled, knots = zip(*Looks.seen, strict=True)
    assert set(enabled) == {workload is LooksAndKeeps}
    if (workload, outcome) == (Looks, Outcome.OK):
        assert knots == (1, 2, 1, 1), "that of the warm-up is collected after the first call"
    assert gc.isenabled()


class Blanks(Count):
    """Finds what a tokenizer of bytes finds: a name with the blank before it, and a blank."""

    def process(self, paragraphs: Sequence[str]) -> Result:
        found = Entity(0, " Rome ", "LOC", 2, 8), Entity(0, "\u00a0", "LOC", 8, 9), Entity(0, "In", "O", 0, 2)
        return replace(super().process(paragraphs), entities=found)


@pytest.mark.slow
@pytest.mark.parametrize("trim", [False, True])
def test_entities_have_no_blanks_at_their_ends_if_a_spec_wants_it(tmp_path: Path, *, trim: bool) -> None:
    of = replace(PLAIN, workload=f"{__name__}:{Blanks.__name__}", workers=1, trim=trim)
    assert tried(tmp_path, of, "In Rome.\n").outcome is Outcome.OK
    _, *rows = (tmp_path / "entities.tsv").read_text().splitlines()
    trimmed = ["0\tIn\tO\t0\t2", "0\tRome\tLOC\t3\t7"]
    assert rows == (trimmed if trim else [trimmed[0], "0\t Rome \tLOC\t2\t8", "0\t\u00a0\tLOC\t8\t9"])


@pytest.mark.slow
def test_rows_in_columns_of_their_own_have_one_sum_however_the_text_is_cut(tmp_path: Path) -> None:
    found = []
    for size, text in (1, "Ann.\n\nBea came.\n"), (2, "Ann.\n\nBea came.\n"), (2, "Ann ran.\n\nBea.\n"):
        of = replace(PLAIN, params={"batch_size": size}, workers=1)
        summary = tried(tmp_path, of, text).summary
        assert summary
        assert summary.rows == 2
        found.append(summary.rows_sum)
    assert found[0] == found[1] != found[2]


# -- before a fork

COUNT = replace(point(device="cpu"), workload="count", model=None, fork=True)


def test_nor_if_cuda_was_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "touched_cuda", lambda: True)
    assert "has touched CUDA" in steps.preload(state(of=COUNT).task)
