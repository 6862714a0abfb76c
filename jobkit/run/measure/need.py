"""How little memory a batch really needs: cap the allocator and try again. Standard library only.

Two figures tell it. The *reserve* is what the allocator takes for the batch by itself, from an
empty cache: under that much, the batch passes. Near a limit the allocator empties its cache and
tries again, which saves a batch under a still smaller cap. With expandable segments that smallest
cap, the *need*, follows the load in a line, 2 to 4 % below the reserve. Without them it does not:
whether emptying the cache helps changes from load to load (on an H200 batches of 1 GiB were saved
down to 0.85 of the reserve, larger ones not at all), so there the reserve is what can be relied on
and nothing is searched.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from jobkit.core.measurements import Need
from jobkit.core.records import Batch, Outcome
from jobkit.run.failure import Stopped, outcome_of
from jobkit.run.measure.device import Device
from jobkit.run.paragraphs import Call
from jobkit.run.workloads.base import Heavy, Workload

STEP_BYTES = 8 * 2**20
"""The search ends within this: the allocator takes 2 to 20 MiB at a time (CUDACachingAllocator.cpp),
and neighbouring loads scatter by 15 MiB about their line (measured)."""
FINEST_SHARE = 0.002
"""Nor is the search finer than this share of the memory."""
GRAIN_SHOWS_BYTES = 1.5 * 2**30
"""Below this the scatter is more than 1 % of the need, so parts of the batch are measured too."""
SEARCHED = "expandable_segments:True"
"""The allocator setting with which the need follows the load."""


class MeasuredPoint(Protocol):
    """What of a point the measuring depends on."""

    @property
    def order(self) -> str: ...  # noqa: D102 - as in `jobkit.core.records.Point`
    @property
    def allocator(self) -> str | None: ...  # noqa: D102 - as above
    @property
    def cap_bytes(self) -> int | None: ...  # noqa: D102 - as above


@dataclass(frozen=True, slots=True)
class Bracket:
    """The edge lies above ``failed_bytes`` and at or below ``passed_bytes``."""

    passed_bytes: int
    failed_bytes: int
    tries: int


def bracket(passes: Callable[[int], bool], low_bytes: int, high_bytes: int) -> Bracket:
    """Return the edge between the caps that fail and those that pass.

    Just below the upper end is tried first, for small batches need all that was reserved.

    Parameters
    ----------
    passes
        Whether the work succeeds under a cap in bytes.
    low_bytes
        A cap that is too small: what the tensors alone take, less one byte.
    high_bytes
        What was reserved when nothing was capped: a cap that suffices.
    """
    tries, finest = 0, max(STEP_BYTES, int(FINEST_SHARE * high_bytes))
    trial = high_bytes - finest
    while high_bytes - low_bytes > finest:
        tries += 1
        if passes(trial):
            high_bytes = trial
        else:
            low_bytes = trial
        trial = (low_bytes + high_bytes) // 2
    return Bracket(passed_bytes=high_bytes, failed_bytes=low_bytes, tries=tries)


def run_heaviest_first(device: Device, workload: Workload, call: Call) -> float:
    """Do the heaviest batch of a call by itself, from an empty cache; return the seconds it took.

    Inside a call the batches are done as the text has them, so the heaviest would come after
    lighter ones have cut up what the allocator holds: on an H200 a pass then ran out of memory
    under a cap that its heaviest batch alone kept (by 0.1 % with expandable segments, by 10 % with
    PyTorch's default). A workload that cannot (`tag_heaviest`) begins with the call.
    """
    if not hasattr(workload, "tag_heaviest"):
        return 0.0
    start = time.perf_counter()
    device.empty_cache()
    workload.tag_heaviest(call.paragraphs)
    device.synchronise()
    return time.perf_counter() - start


def heaviest(workload: Workload, batches: Sequence[Batch], todo: Sequence[Call]) -> Iterator[Heavy]:
    """Yield the batches of the largest load, as the workload tells them, else its worst call.

    It is asked only when the first is wanted, so that `measure_needs` answers for its failures.
    """
    if hasattr(workload, "heaviest"):
        yield from workload.heaviest()
    elif batches:
        worst = max(batches, key=lambda batch: batch.load)
        yield Heavy(worst.load, lambda: workload.process(todo[worst.index].paragraphs))


def measure_needs(device: Device, heavy_ones: Iterable[Heavy], point: MeasuredPoint) -> tuple[Need, ...]:
    """Return the need of each of these batches; of fewer where one cannot be measured.

    A signal ends the measuring, not the try: its batches are done.

    Parameters
    ----------
    point
        Its cap is put back at the end. In text order nothing is measured: there the need of a
        pass is not the need of its worst batch.
    """
    found: list[Need] = []
    try:
        for heavy in heavy_ones if point.order == "load" and device.torch else ():
            found.append(_need(device, heavy, point))
            if found[0].reserved_bytes > GRAIN_SHOWS_BYTES:
                break
    except Stopped:
        pass
    except Exception:  # noqa: BLE001 - what was worked is not lost for a measurement beside it
        traceback.print_exc()
    device.cap(point.cap_bytes)
    return tuple(found)


def _need(device: Device, heavy: Heavy, point: MeasuredPoint) -> Need:
    start = time.perf_counter()
    device.cap(point.cap_bytes)
    device.empty_cache()
    device.reset_peaks()
    heavy.again()
    allocated, reserved = device.known_peaks()
    searched = SEARCHED in (point.allocator or "")
    found = (
        bracket(lambda cap: _passes(device, heavy, cap), allocated - 1, reserved)
        if searched
        else Bracket(passed_bytes=reserved, failed_bytes=allocated - 1, tries=0)
    )
    return Need(
        load=heavy.load,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        passed_bytes=found.passed_bytes,
        failed_bytes=found.failed_bytes,
        tries=found.tries + 1,
        seconds=time.perf_counter() - start,
    )


def _passes(device: Device, heavy: Heavy, cap_bytes: int) -> bool:
    device.empty_cache()
    device.cap(cap_bytes)
    try:
        heavy.again()
        device.synchronise()
    except Exception as error:
        if outcome_of(error)[0] is not Outcome.GPU_OOM:
            raise
        return False
    return True
