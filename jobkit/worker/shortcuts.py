"""Compare shortcuts with the ordinary way of a workload, in a process that ends before the workers start."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from jobkit.core.knobs import EXACT, SHORTCUTS
from jobkit.core.measurements import ShortcutCheck
from jobkit.core.records import Outcome
from jobkit.worker import steps
from jobkit.worker.failure import NO_SHORTCUTS, TryFailed
from jobkit.worker.mps import MpsDaemon
from jobkit.worker.paragraphs import split_sentences
from jobkit.worker.record import TryState
from jobkit.worker.windows import Todo
from jobkit.worker.workloads.base import CHARACTERS, load_unit

ITEMS = 200
"""Of the text, on which both ways are compared: sentences by punctuation, or paragraphs."""


def check(state: TryState, todo: Todo, daemon: MpsDaemon | None = None) -> None:
    """Switch off the shortcuts of a try if they fail, or if the ordinary way finds something else."""
    if steps.settings_of(state.task).get(SHORTCUTS) != EXACT:
        return
    from jobkit.worker import pool  # what a try without a check does not need

    point, start = state.task.point, time.perf_counter()
    alone = TryState(replace(state.task, observed=False), state.started_at)
    alone.forked = state.forked or not steps.preload(point, state.task.inputs)
    try:
        with pool.started(alone, daemon) as workers:
            workers.ask({0: ("open", {})})
            workers.ask({0: ("load",)})
            whole = load_unit(point.workload) != CHARACTERS
            workers.ask({0: ("check", part(todo.texts[:: point.every], whole=whole))})
    except TryFailed as failed:
        raise TryFailed(failed.outcome, f"the check of {SHORTCUTS}: {failed.message}") from failed
    [measured] = alone.workers
    if measured.refused and point.kind.promised:
        raise TryFailed(Outcome.ENVIRONMENT, f"{NO_SHORTCUTS} {measured.refused}")
    state.check = ShortcutCheck(
        seconds=time.perf_counter() - start,
        gpu_peak_bytes=measured.readings.reserved_peak_bytes,
        rss_peak_bytes=measured.readings.maxrss_bytes,
        found=measured.checked,
    )
    opening = state.task.opening or measured.opening  # before a GPU was in use
    state.task = replace(state.task, refused=measured.refused, opening=opening)


def part(paragraphs: Sequence[str], *, whole: bool = False) -> list[str]:
    """Return the longest paragraph, and others from all over the text, up to the items to be checked.

    An item is a sentence; of a workload that takes paragraphs whole it is a paragraph.
    """

    def count(paragraph: str) -> int:
        return 1 if whole else len(split_sentences(paragraph))

    longest = max(range(len(paragraphs)), key=lambda place: len(paragraphs[place]))
    chosen, items = [paragraphs[longest]], count(paragraphs[longest])
    for place in _spread(len(paragraphs)):
        if place != longest:
            items += count(paragraphs[place])
            if items > ITEMS:
                break
            chosen.append(paragraphs[place])
    return chosen


def _spread(count: int) -> Iterator[int]:
    """Yield all places of ``count``, the first few from all over: each gap is halved in turn."""
    step = 2 ** (count - 1).bit_length()
    yield 0
    while step > 1:
        yield from range(step // 2, count, step)
        step //= 2
