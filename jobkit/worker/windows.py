"""The work of a try: a text whole, or in windows of so many paragraphs.

A window is read, ordered and cut into calls. When its last call has ended its rows are written, and it is
dropped. The next window is read and cut in a thread, and its calls are handed out while the last calls of the
window before still run, so that no worker waits. So memory holds three windows, whatever the size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobkit.core.knobs import BATCH_SIZE, SORTED
from jobkit.core.records import Point
from jobkit.worker import process
from jobkit.worker.paragraphs import Call, calls, longest_sentences, sorted_places
from jobkit.worker.workloads.base import Row

WARM_UP_PARAGRAPHS = 4
OPEN_WINDOWS = 2
"""Windows whose calls wait or run; the next one is being read meanwhile."""


@dataclass(slots=True)
class Window:
    """Paragraphs that are ordered and cut into calls together."""

    first: int  # the number of the first paragraph, from 0
    texts: Sequence[str]  # the paragraphs
    places: Sequence[Any] = ()  # for the output, where each paragraph was found; empty for a text
    waiting: deque[Call] = field(default_factory=deque)
    left: int = 0  # the number of calls that have not ended
    rows: list[Row] = field(default_factory=list)  # the rows of calls that have ended


class Todo:
    """The calls of a try, handed out one by one.

    ``more``: the windows after the first; ``None`` if there are none.
    ``size``: the paragraphs of each window but the last; ``None`` if there is one window.
    """

    def __init__(self, first: Window, more: Iterator[Window] | None = None, size: int | None = None) -> None:
        self.warm_up_texts = first.texts[:WARM_UP_PARAGRAPHS]
        self._open = deque([first])
        self._more = more
        self._size = size
        self._cut: Callable[[Window], None]
        self._reader: ThreadPoolExecutor | None = None
        self._ahead: Future[Window | None]

    def cut(self, cut: Callable[[Window], None]) -> None:
        """Cut the first window into calls; the others are cut by ``cut``, too, when they have been read."""
        self._cut = cut
        cut(self._open[0])

    @property
    def texts(self) -> Sequence[str]:
        return self._open[0].texts

    @property
    def calls(self) -> Sequence[Call]:
        return self._open[0].waiting if self._open else ()

    @property
    def reads(self) -> bool:
        return self._more is not None

    def count_calls(self, paragraphs: int, items_per_call: int) -> int:
        size = self._size or paragraphs
        whole, rest = divmod(paragraphs, size)
        return whole * -(-size // items_per_call) + -(-rest // items_per_call)

    def read_ahead(self) -> None:
        """Begin to read the windows to come; from now on this process cannot be forked."""
        if self._more:
            self._reader = ThreadPoolExecutor(1)
            with process.signals_blocked():  # the thread inherits this: signals are for the main thread
                self._ahead = self._reader.submit(self._read)

    def next_call(self) -> Call | None:
        """Return the next call; ``None`` if there is none, or none before a window has ended."""
        if not (self._open and self._open[-1].waiting) and len(self._open) < OPEN_WINDOWS:
            self._open_next()
        newest = self._open[-1].waiting if self._open else None
        return newest.popleft() if newest else None

    def keep(self, first_item: int, rows: Iterable[Row]) -> list[Window]:
        """Keep the rows of a call that has ended; return the windows that are done now, in order."""
        [window] = [one for one in self._open if one.first <= first_item < one.first + len(one.texts)]
        window.rows += rows
        window.left -= 1
        done = []
        while self._open and not self._open[0].left:
            done.append(self._open.popleft())
        return done

    def close(self) -> Sequence[Window]:
        if self._reader:
            self._reader.shutdown(wait=False, cancel_futures=True)
        return self._open

    def _read(self) -> Window | None:
        """Return the next window with its calls; ``None`` after the last one."""
        window = next(self._more or iter(()), None)
        if window:
            self._cut(window)
        return window

    def _open_next(self) -> None:
        if self._reader and (window := self._ahead.result()):
            self._ahead = self._reader.submit(self._read)
            self._open.append(window)


def cut_window(window: Window, point: Point, items_per_call: int, lengths: Path | None) -> None:
    """Cut a window into the calls of a workload; for ``lengths`` see `longest_sentences`."""
    knobs = (point.numbers.get(name) for name in ("sentences_per_ner_batch", BATCH_SIZE))
    places: Sequence[int] = range(len(window.texts))
    if point.order == SORTED:
        places = sorted_places(longest_sentences(window.texts, lengths), point.sort_window)
    todo = calls(
        window.texts,
        items_per_call,
        cap=next((value for value in knobs if value), None),
        largest_first=point.order != "text",
        places=[place for place in places if place % point.every == 0],
        first=window.first,
    )
    window.waiting, window.left = deque(todo), len(todo)
