"""The work on a shard: read it in windows, and write its rows in order. Standard library only."""

from __future__ import annotations

import contextlib
import gc
import math
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import cast

from jobkit.core.errors import JobkitError
from jobkit.core.records import Outcome
from jobkit.core.units import format_count
from jobkit.extensions.corpus.plan import Corpus, Shard, read_corpus, read_planned
from jobkit.extensions.corpus.readers import Paragraph, read_pieces
from jobkit.extensions.corpus.rows import RowsFile, adopt, identity, joined
from jobkit.extensions.corpus.vectors import as_vectors
from jobkit.extensions.corpus.winners import read_winners
from jobkit.worker.failure import TryFailed, describe_error
from jobkit.worker.paragraphs import Todo, Window
from jobkit.worker.process import QUARANTINE_VARIABLE
from jobkit.worker.record import PointWork, TryState
from jobkit.worker.workloads.base import Result, Row

WINDOW_CHARACTERS = 16 * 2**20  # a window ends before it holds more: long paragraphs do not take all memory


_FINITE = frozenset({str, int, bool, type(None)})


def _finite(column: str, value: object, *, null: bool) -> object:
    """Return a value without NaN and infinity, which are no JSON: as None if ``null``, else refuse it."""
    if isinstance(value, float) and not math.isfinite(value):
        if null:
            return None
        raise JobkitError(f"column {column} is {value}", hint="`nan: null` in the spec writes null")
    if isinstance(value, list | tuple):
        return [_finite(column, one, null=null) for one in value]
    if isinstance(value, dict):
        return {key: _finite(column, one, null=null) for key, one in value.items()}
    return value


class ShardWork(PointWork):
    def read(self, state: TryState) -> Todo:
        """Return what earlier tries left of the point's shard; only its first window is read."""
        point, run_dir = state.task.point, state.task.run_dir or Path()
        output = cast("RowsFile", state.output)
        with reading_corpus():
            shard = read_planned(run_dir, point.index)
            corpus, of = read_corpus(run_dir), identity(run_dir, point.index)
            adopted, vain = adopt(run_dir, point, state.task.try_number, shard, of)
        output.go_on(shard, of, adopted, vain)
        state.vectors = joined(adopted).vectors if adopted else None
        done = sum(one.part.paragraphs for one in adopted)
        state.quarantined = sum(len(one.quarantine) for one in adopted)
        state.items_total = shard.paragraphs - done
        state.characters_total = round(shard.characters * state.items_total / shard.paragraphs)
        # paragraphs of a window of a shard, if the setting has no ``sort_window``
        size = point.sort_window or 10_000

        def due() -> tuple[int, int]:
            return output.window_characters, state.workers[0].items_per_call or 1

        windows = shard_windows(_rest(corpus, shard, done), size, done, due)
        first = next(windows)
        gc.freeze()  # a collection in a forked worker would copy the pages of the plan
        return Todo(first, windows, size)

    def output(self, folder: Path) -> RowsFile:
        return RowsFile(folder)

    def rows(
        self, result: Result, columns: Sequence[str], items: Sequence[int], nan: str | None = None
    ) -> list[Row]:
        """Return the vectors of a call as one row, else the workload's own rows, else the entities."""
        if result.vectors is not None:
            return [(items, as_vectors(result.vectors, len(items), columns))]

        def checked(name: str, value: object) -> object:
            return value if type(value) in _FINITE else _finite(name, value, null=nan is None)

        rows: Sequence[Row] = result.entities if result.rows is None else result.rows
        for row in (row for row in rows if len(row) != 1 + len(columns)):
            names = ", ".join(columns)
            raise TryFailed(Outcome.BUG, f"process() returned the row {row!r}; its columns are {names}")
        return [(items[number], *map(checked, columns, values)) for number, *values in rows]

    def quarantine(self, state: TryState, why: TryFailed) -> None:
        """Count a paragraph; above a share of the corpus the workload is at fault, and the try ends."""
        run_dir = state.task.run_dir or Path()
        state.quarantined += 1
        others = sum(winner.quarantined for winner in read_winners(run_dir).values())
        share, least = map(float, os.environ.get(QUARANTINE_VARIABLE, "0.001 10").split())
        most = max(least, share * read_corpus(run_dir).paragraphs)
        if others + state.quarantined > most:
            what = f"more than {format_count(int(most), 'paragraph')} would go to quarantine"
            raise TryFailed(Outcome.BUG, f"{what} (policy.quarantine): the workload is broken") from why


WORK = ShardWork()


def _rest(corpus: Corpus, shard: Shard, done: int) -> Iterator[Paragraph]:
    """Yield the paragraphs of a shard after the first ``done``, each with its piece of the shard."""
    ends = list(accumulate(piece.paragraphs for piece in shard.pieces))
    at = bisect_right(ends, done)
    before = ends[at - 1] if at else 0
    for paragraph in islice(read_pieces(corpus, shard.pieces[at:]), done - before, None):
        yield paragraph._replace(piece=paragraph.piece + at) if at else paragraph


def shard_windows(
    paragraphs: Iterator[Paragraph],
    size: int,
    first: int = 0,
    due: Callable[[], tuple[int, int]] = lambda: (WINDOW_CHARACTERS, 1),
) -> Iterator[Window]:
    """Yield windows of at most ``size`` paragraphs; the first of them is paragraph ``first``.

    ``due`` returns the characters after which a window ends, once its paragraphs are a multiple of a number.
    """
    some, characters, (enough, call) = list[Paragraph](), 0, due()
    with reading_corpus():
        for paragraph in paragraphs:
            full = len(some) == size or characters + len(paragraph.text) > WINDOW_CHARACTERS
            if some and (full or (characters >= enough and len(some) % call == 0)):
                yield _shard_window(first, some)
                first, some, characters, (enough, call) = first + len(some), [], 0, due()
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
