"""The paragraphs of a shard as windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.records import Outcome
from jobkit.extensions.corpus import work
from jobkit.extensions.corpus.reading import Paragraph
from jobkit.extensions.corpus.work import shard_windows
from jobkit.worker.failure import TryFailed
from jobkit.worker.windows import Todo, cut_window
from tests.support.builders import point


def paragraphs(texts: Sequence[str]) -> Iterator[Paragraph]:
    return (Paragraph("a", number, text, 10 * number) for number, text in enumerate(texts))


def test_a_window_is_read_as_soon_as_it_is_wanted_and_no_further() -> None:
    given = paragraphs(["a"] * 40)
    made = shard_windows(given, 2)
    assert [next(made).first for _ in range(3)] == [0, 2, 4]
    assert next(given).number == 7, "one paragraph more shows that a window is whole"


def test_long_paragraphs_make_small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "WINDOW_CHARACTERS", 10)
    texts = ["a" * 6, "b" * 4, "c", "d" * 30, "e"]
    assert [len(window.texts) for window in shard_windows(paragraphs(texts), 100)] == [2, 1, 1, 1]
    assert [window.first for window in shard_windows(paragraphs(texts), 100)] == [0, 2, 3, 4]


def test_what_cannot_be_read_ends_the_work_when_its_window_is_wanted() -> None:
    def broken() -> Iterator[Paragraph]:
        yield from paragraphs(["a"] * 3)
        raise JobkitError("a.txt: changed since the corpus was planned", hint="give it back")

    more = shard_windows(broken(), 2)
    todo = Todo(next(more), more)
    todo.cut(lambda window: cut_window(window, point(device="cpu"), 2, None))
    todo.read_ahead()
    assert todo.next_call()
    with pytest.raises(TryFailed, match="changed since") as caught:
        todo.next_call()
    assert caught.value.outcome is Outcome.STAGE_IN
