from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from jobkit.worker.paragraphs import Call, Todo, Window, cut_window
from tests.support.builders import point

SORTED = replace(point(params={"batch_size": 2}, device="cpu"), order="sorted")


def windows(texts: Sequence[str], size: int) -> Iterator[Window]:
    return (Window(first, texts[first : first + size]) for first in range(0, len(texts), size))


def todo_of(texts: Sequence[str], size: int, per_call: int = 2) -> Todo:
    """Return what there is to do of a text in windows, its first window cut."""
    more = windows(texts, size)
    todo = Todo(next(more), more, size)
    todo.cut(lambda window: cut_window(window, SORTED, per_call, None))
    return todo


def handed(todo: Todo) -> list[Call]:
    """Do all calls, one after the other."""
    todo.read_ahead()
    done = []
    while call := todo.next_call():
        done.append(call)
        todo.keep(call.first, ())
    return done


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(1, 12), st.integers(1, 5))
def test_each_paragraph_is_in_one_call_of_its_window(lengths: list[int], size: int, per_call: int) -> None:
    texts = ["a" * length for length in lengths]
    todo = todo_of(texts, size, per_call)
    calls = handed(todo)
    assert len(calls) == todo.count_calls(len(texts), per_call)
    assert sorted(item for call in calls for item in call.items) == list(range(len(texts)))
    assert all(len(call.items) <= per_call for call in calls)
    assert [{item // size for item in call.items} for call in calls] == [
        {number} for number in sorted(item // size for call in calls for item in call.items[:1])
    ]
    for call in calls:
        assert call.paragraphs == tuple(texts[item] for item in call.items)
        assert sorted(call.paragraphs, key=len, reverse=True) == [*call.paragraphs], "the longest come first"


def test_the_next_window_is_handed_out_while_calls_of_the_one_before_run() -> None:
    todo = todo_of(["a"] * 12, 4)
    todo.read_ahead()
    calls = [todo.next_call() for _ in range(5)]
    assert [call.items[0] // 4 if call else None for call in calls] == [0, 0, 1, 1, None]
    first, second, third, fourth = (call.first for call in calls if call)
    assert todo.keep(third, [(4, "c")]) == []
    assert todo.keep(fourth, []) == [], "the window before it comes first"
    assert todo.keep(second, [(2, "b")]) == []
    written = todo.keep(first, [(0, "a")])
    assert [(window.first, window.rows) for window in written] == [
        (0, [(2, "b"), (0, "a")]),
        (4, [(4, "c")]),
    ]
    call = todo.next_call()
    assert call
    assert call.first == 8
