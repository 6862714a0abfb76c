"""Measure how little memory a batch needs: cap the allocator and try again. Standard library only.

There are two figures. The *reserve* is what the allocator takes for the batch alone, starting from an
empty cache: the batch passes under that cap. Near a limit the allocator empties its cache and tries
again, which saves a batch under a still smaller cap. With expandable segments that smallest cap, the
*need*, follows the load in a line, 2 to 4 % below the reserve. Without them it does not: whether
emptying the cache helps changes from load to load (on an H200 batches of 1 GiB were saved down to 0.85
of the reserve, larger batches not at all). So without them only the reserve is reliable, and jobkit
searches nothing.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from jobkit.core.measurements import Need
from jobkit.core.records import Batch, Outcome, PointKind
from jobkit.worker.failure import Stopped, outcome_of
from jobkit.worker.measure.device import Device
from jobkit.worker.paragraphs import Call
from jobkit.worker.workloads.base import Heavy, Workload

STEP_BYTES = 8 * 2**20
"""The search ends within this: the allocator takes 2 to 20 MiB at a time (CUDACachingAllocator.cpp), and
neighbouring loads scatter by 15 MiB about their line (measured)."""
FINEST_SHARE = 0.002
"""Nor is the search finer than this share of the memory."""
GRAIN_SHOWS_BYTES = 1.5 * 2**30
"""Below this the scatter is more than 1 % of the need, so parts of the batch are measured too."""
SEARCHED = "expandable_segments:True"
"""The allocator setting with which the need follows the load."""


class MeasuredPoint(Protocol):
    """The fields of a point on which the measurement depends; see `jobkit.core.records.Point`."""

    @property
    def order(self) -> str: ...
    @property
    def allocator(self) -> str | None: ...
    @property
    def cap_bytes(self) -> int | None: ...
    @property
    def kind(self) -> PointKind: ...


class Bracket(NamedTuple):
    """The need is above ``failed_bytes`` and at most ``passed_bytes``."""

    passed_bytes: int
    failed_bytes: int
    tries: int


def bracket(passes: Callable[[int], bool], low_bytes: int, high_bytes: int) -> Bracket:
    """Search the edge between the caps that fail (``low_bytes``) and those that pass (``high_bytes``).

    It starts just below the upper end, because small batches need all that was reserved.
    """
    tries, finest = 0, max(STEP_BYTES, int(FINEST_SHARE * high_bytes))
    cap_bytes = high_bytes - finest
    while high_bytes - low_bytes > finest:
        tries += 1
        if passes(cap_bytes):
            high_bytes = cap_bytes
        else:
            low_bytes = cap_bytes
        cap_bytes = (low_bytes + high_bytes) // 2
    return Bracket(high_bytes, low_bytes, tries)


def run_heaviest_first(device: Device, workload: Workload, call: Call) -> float:
    """Run the heaviest batch of a call alone, from an empty cache; return the seconds it took.

    Inside a call the batches run in text order, so the heaviest would come after lighter ones have
    fragmented the allocator's memory: on an H200 a pass then ran out of memory under a cap that its
    heaviest batch alone kept (by 0.1 % with expandable segments, by 10 % with PyTorch's default). A
    workload without `tag_heaviest` begins with the call.
    """
    if not hasattr(workload, "tag_heaviest"):
        return 0.0
    start = time.perf_counter()
    device.empty_cache()
    workload.tag_heaviest(call.paragraphs)
    device.synchronise()
    return time.perf_counter() - start


def heaviest(workload: Workload, batch: Batch, call: Call) -> Iterator[Heavy]:
    """Yield the heaviest batches that the workload reports, else its heaviest call.

    As a generator it runs inside `measure_needs`, which handles failures of the workload.
    """
    if hasattr(workload, "heaviest"):
        yield from workload.heaviest()
    else:
        yield Heavy(batch.load, lambda: workload.process(call.paragraphs))


def measure_needs(device: Device, heavy_batches: Iterable[Heavy], point: MeasuredPoint) -> tuple[Need, ...]:
    """Return the need of each batch; fewer if a measurement fails. It restores the cap of ``point``.

    A signal ends the measurement and not the try, whose batches are done. In text order nothing is measured,
    because there the need of a pass is not the need of its heaviest batch; nor for a kind of point without
    `measures_need`.
    """
    needs: list[Need] = []
    wanted = point.order != "text" and point.kind.measures_need and device.torch
    try:
        for heavy in heavy_batches if wanted else ():
            needs.append(_need(device, heavy, point))
            if needs[0].reserved_bytes > GRAIN_SHOWS_BYTES:
                break
    except Stopped:
        pass
    except Exception:  # noqa: BLE001 - a failed measurement must not lose the work
        traceback.print_exc()
    device.cap(point.cap_bytes)
    return tuple(needs)


def _need(device: Device, heavy: Heavy, point: MeasuredPoint) -> Need:
    start = time.perf_counter()
    device.cap(point.cap_bytes)
    device.empty_cache()
    device.reset_peaks()
    heavy.again()
    allocated, reserved = device.known_peaks()
    edge = Bracket(reserved, allocated - 1, tries=0)
    if SEARCHED in (point.allocator or ""):
        edge = bracket(lambda cap: _passes(device, heavy, cap), allocated - 1, reserved)
    return Need(
        load=heavy.load,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        passed_bytes=edge.passed_bytes,
        failed_bytes=edge.failed_bytes,
        tries=edge.tries + 1,
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
