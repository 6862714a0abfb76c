"""The work on a shard: read it in windows, and write its rows in order. Standard library only."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Sequence
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.records import Outcome
from jobkit.extensions.corpus.plan import read_corpus, read_planned
from jobkit.extensions.corpus.readers import Paragraph, read_pieces
from jobkit.extensions.corpus.rows import RowsFile, as_vectors
from jobkit.worker.failure import TryFailed, describe_error
from jobkit.worker.paragraphs import Todo, Window
from jobkit.worker.record import PointWork, TryState
from jobkit.worker.workloads.base import Result, Row

SHARD_WINDOW = 10_000  # paragraphs of a window of a shard, if the setting has no ``sort_window``
WINDOW_CHARACTERS = 16 * 2**20  # a window ends before it holds more: long paragraphs do not take all memory


class ShardWork(PointWork):
    def read(self, state: TryState) -> Todo:
        """Return the point's shard of the corpus; only its first window is read."""
        point, run_dir = state.task.point, state.task.run_dir or Path()
        with reading_corpus():
            shard = read_planned(run_dir, point.index)
            corpus = read_corpus(run_dir)
        state.items_total, state.characters_total = shard.paragraphs, shard.characters
        size = point.sort_window or SHARD_WINDOW
        windows = shard_windows(read_pieces(corpus, shard.pieces), size)
        first = next(windows)
        gc.freeze()  # a collection in a forked worker would copy the pages of the plan
        return Todo(first, windows, size)

    def output(self, folder: Path) -> RowsFile:
        return RowsFile(folder)

    def rows(self, result: Result, columns: Sequence[str], items: Sequence[int]) -> list[Row]:
        """Return the vectors of a call as one row, else the workload's own rows, else the entities."""
        if result.vectors is not None:
            return [(items, as_vectors(result.vectors, len(items), columns))]
        rows: Sequence[Row] = result.entities if result.rows is None else result.rows
        if any(len(row) != 1 + len(columns) for row in rows[:1]):
            names = ", ".join(columns)
            raise TryFailed(Outcome.BUG, f"process() returned the row {rows[0]!r}; its columns are {names}")
        return [(items[number], *values) for number, *values in rows]


WORK = ShardWork()


def shard_windows(paragraphs: Iterator[Paragraph], size: int) -> Iterator[Window]:
    first, some, characters = 0, list[Paragraph](), 0
    with reading_corpus():
        for paragraph in paragraphs:
            if some and (len(some) == size or characters + len(paragraph.text) > WINDOW_CHARACTERS):
                yield _shard_window(first, some)
                first, some, characters = first + len(some), [], 0
            some.append(paragraph)
            characters += len(paragraph.text)
    if some:
        yield _shard_window(first, some)


@contextlib.contextmanager
def reading_corpus() -> Iterator[None]:
    """Turn what is wrong with the corpus or its plan into the outcome of the try."""
    try:
        yield
    except TryFailed:
        raise
    except (JobkitError, OSError) as error:
        raise TryFailed(Outcome.STAGE_IN, describe_error(error)) from error


def _shard_window(first: int, paragraphs: Sequence[Paragraph]) -> Window:
    return Window(first, [paragraph.text for paragraph in paragraphs], paragraphs)
