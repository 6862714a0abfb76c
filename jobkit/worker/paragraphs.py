"""Cut a text into paragraphs, sentences, calls, and the windows of a try.

A window is read, ordered and cut into calls. When its last call has ended its rows are written, and it is
dropped. The next window is read and cut in a thread, and its calls are handed out while the last calls of the
window before still run, so that no worker waits. So memory holds three windows, whatever the size.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobkit.core.errors import JobkitError
from jobkit.core.frozen import frozen
from jobkit.core.knobs import BATCH_SIZE, SORTED
from jobkit.core.paragraphs import JSONL_ENDINGS, BadLineError, Fields, parse_line, split_paragraphs
from jobkit.core.records import Outcome, Point

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\bMr\.)(?<!\bMrs\.)(?<!\bMs\.)(?<!\bDr\.)(?<!\bSt\.)(?<!\bProf\.)(?<!\b[A-Z]\.)"
    r"[\"')\u201d\u2019]*\s+(?![a-z])"
)
"""White space after a full stop, ! or ?; not after a title or an initial, nor before a small letter."""


@frozen
class Call:
    """Paragraphs that the workload gets at once, and their numbers in the text, from 0."""

    items: tuple[int, ...]
    paragraphs: tuple[str, ...]
    place: str = ""  # of its first paragraph, in words

    @property
    def first(self) -> int:
        """The number of its first paragraph, which no other call has."""
        return self.items[0]


def sorted_places(longest: Sequence[int], window: int | None) -> list[int]:
    """Return the numbers of paragraphs, longest sentence first; within windows, if ``window`` is given."""
    size = window or max(len(longest), 1)
    windows = (range(start, min(start + size, len(longest))) for start in range(0, len(longest), size))
    return [place for part in windows for place in sorted(part, key=lambda at: (-longest[at], at))]


def longest_sentences(paragraphs: Sequence[str], lengths: Path | None) -> list[int]:
    """Return the longest sentence's length of each paragraph: from the run's file, else by punctuation."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, KeyError):  # then as without it
        data = json.loads(lengths.read_text(encoding="utf-8")) if lengths else {}
        if data.get("source") == "tokenizer" and len(data["paragraphs"]) == len(paragraphs):
            return [max(row, default=0) for row in data["paragraphs"]]
    return [max(map(len, split_sentences(paragraph)), default=0) for paragraph in paragraphs]


def load_of(lengths: Sequence[int], *, pads: bool = True) -> int:
    """Return the load of a batch: items x longest, or of a framework that does not pad the sum."""
    return len(lengths) * max(lengths, default=0) if pads else sum(lengths)


def cut_by_budget(lengths: Iterable[int], budget: int, *, pads: bool = True) -> list[int]:
    """Return how many consecutive items each batch holds, so that the load of a batch is within a budget.

    An item longer than the budget is a batch of its own.
    """
    sizes: list[int] = []
    count = longest = total = 0
    for length in lengths:
        load = (count + 1) * max(longest, length) if pads else total + length
        if count and load > budget:
            sizes.append(count)
            count = longest = total = 0
        count, longest, total = count + 1, max(longest, length), total + length
    return [*sizes, count] if count else sizes


def split_sentences(paragraph: str) -> list[str]:
    """Return the sentences of a paragraph, judged by punctuation."""
    return [sentence for sentence in SENTENCE_END.split(paragraph) if sentence]


def read_paragraphs(path: Path, name: str = "") -> list[str]:
    r"""Return the paragraphs of a UTF-8 text; those of all documents if ``name`` or the path is JSONL's.

    A byte order mark is dropped, ``\r\n`` and ``\r`` become ``\n``.
    """
    name, hint = name or str(path), "see `text` in the spec"
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise JobkitError(f"text {path}: {error.strerror}", hint=hint) from error
    except UnicodeDecodeError as error:
        raise JobkitError(f"text {path}: not UTF-8 at byte {error.start}", hint=hint) from error
    documents = _documents(text, name) if name.lower().endswith(JSONL_ENDINGS) else [text]
    paragraphs = [paragraph for document in documents for paragraph in split_paragraphs(document)]
    if not paragraphs:
        raise JobkitError(f"text {path}: holds no paragraph", hint=hint)
    return paragraphs


def _documents(text: str, name: str) -> Iterator[str]:
    for number, line in enumerate(text.split("\n"), 1):
        try:
            if line.strip():
                yield parse_line(line.encode(), Fields()).text.replace("\r\n", "\n").replace("\r", "\n")
        except BadLineError as error:
            old = shlex.quote(name)
            rename = f'to rename a field: sed \'s/"NAME":/"text":/\' {old} > NEW.jsonl'
            ways = f"the text of a line is its field `text`; {rename}; name plain text .txt"
            if "not JSON" in str(error):
                ways = f"correct it, or leave such lines out: jq -cR 'fromjson?' {old} > NEW.jsonl"
            hint = f"{ways}; then name it in the spec: text: NEW.jsonl"
            raise JobkitError(f"text {name}:{number}: {error}", hint=hint) from error


# -- windows


@dataclass(slots=True)
class Window:
    """Paragraphs that are ordered and cut into calls together."""

    first: int  # the number of the first paragraph, from 0
    texts: Sequence[str]  # the paragraphs
    places: Sequence[Any] = ()  # for the output, where each paragraph was found; empty for a text
    waiting: deque[Call] = field(default_factory=deque)
    left: int = 0  # the number of calls that have not ended
    rows: list[tuple[Any, ...]] = field(default_factory=list)  # the rows of calls that have ended
    # paragraphs that have no rows, because no process can take them: number, outcome, message
    bad: list[tuple[int, Outcome, str]] = field(default_factory=list)

    def call(self, places: Iterable[int]) -> Call:
        """Return a call of the paragraphs at some places of the window."""
        first, *_ = at = tuple(places)
        place = self.places[first].place if self.places else f"paragraph {self.first + first + 1:,}"
        return Call(tuple(self.first + one for one in at), tuple(self.texts[one] for one in at), place)


class Todo:
    """The calls of a try, handed out one by one.

    ``more``: the windows after the first; ``None`` if there are none.
    ``size``: the paragraphs of each window but the last; ``None`` if there is one window.
    """

    def __init__(self, first: Window, more: Iterator[Window] | None = None, size: int | None = None) -> None:
        self.warm_up_texts = first.texts[:4]
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
            from concurrent.futures import ThreadPoolExecutor  # what only a shard needs

            self._reader = ThreadPoolExecutor(1)
            self._read_next(self._reader)

    def _read_next(self, reader: ThreadPoolExecutor) -> None:
        from jobkit.worker import process

        with process.signals_blocked():  # the thread inherits this: signals are for the main thread
            self._ahead = reader.submit(self._read)

    def pause(self) -> None:
        """End the thread that reads until it is needed again, so that this process can be forked."""
        if self._reader:
            self._reader.shutdown()
            self._reader = type(self._reader)(1)

    def next_call(self) -> Call | None:
        """Return the next call; ``None`` if there is none, or none before a window has ended."""
        # the calls of two windows wait or run; the next one is being read meanwhile
        if not (self._open and self._open[-1].waiting) and len(self._open) < 2:
            window = self._ahead.result() if self._reader else None
            if self._reader and window:
                self._read_next(self._reader)
                self._open.append(window)
        newest = self._open[-1].waiting if self._open else None
        return newest.popleft() if newest else None

    def window(self, item: int) -> Window:
        [window] = [one for one in self._open if one.first <= item < one.first + len(one.texts)]
        return window

    def halve(self, call: Call) -> list[Call]:
        """Put the halves of a call in its place."""
        window, middle = self.window(call.first), len(call.items) // 2
        window.left += 1
        halves = call.items[:middle], call.items[middle:]
        return [window.call(item - window.first for item in half) for half in halves]

    def keep(
        self, first_item: int, rows: Iterable[tuple[Any, ...]], *bad: tuple[int, Outcome, str]
    ) -> list[Window]:
        """Keep the rows of a call that has ended, or why it has none; return windows done now, in order."""
        window = self.window(first_item)
        window.rows += rows
        window.bad += bad
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


def cut_window(window: Window, point: Point, items_per_call: int, lengths: Path | None) -> None:
    """Cut a window into the calls of a workload; for ``lengths`` see `longest_sentences`.

    The call with the largest load comes first, unless the order is that of the text: then a lack of memory
    shows in seconds, and the allocator does not grow step by step.
    """
    places: Sequence[int] = range(len(window.texts))
    if point.order == SORTED:
        places = sorted_places(longest_sentences(window.texts, lengths), point.sort_window)
    places = [place for place in places if place % point.every == 0]
    starts = range(0, len(places), items_per_call)
    todo = [window.call(places[start : start + items_per_call]) for start in starts]
    sizes = [point.numbers.get(name) for name in ("sentences_per_ner_batch", BATCH_SIZE)]

    def load(call: Call) -> int:  # estimated by punctuation, in characters
        sentences = [len(sentence) for text in call.paragraphs for sentence in split_sentences(text)]
        step = next(filter(None, sizes), len(sentences)) or 1
        return max((load_of(sentences[at : at + step]) for at in range(0, len(sentences), step)), default=0)

    if point.order != "text":
        todo.sort(key=lambda call: (-load(call), call.first))
    window.waiting, window.left = deque(todo), len(todo)
