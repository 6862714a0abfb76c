"""Wait until the memory of a GPU is back at its baseline. Standard library and NVML.

The driver may free the memory of a process only after its end. The next try would count what is left as
idle, and see it disappear from its own figures. The baseline of a GPU is the least memory that any try of
the run has seen in use on it before it opened it: a file in the run folder, named after the GPU.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobkit.core import files
from jobkit.core.measurements import BASELINE_SLACK_BYTES
from jobkit.run.measure import memory, nvml

DEADLINE_S = 10.0
"""No try waits for longer."""
STEADY_S = 2.0
"""Memory that stays the same for so long belongs to another process: nothing is being freed."""
POLL_S = 0.05

Sizes = Mapping[str, int | None]
"""Bytes by the UUID of a GPU; ``None`` if they are not known."""


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a try waited, and for what.

    Attributes
    ----------
    seconds
        ``None`` if the try has no GPU, or NVML cannot tell which.
    baseline_bytes
        The sum over the GPUs; ``None`` if it is not known of one.
    """

    seconds: float | None = None
    baseline_bytes: int | None = None


def wait(folder: Path, uuids: Sequence[str]) -> Wait:
    """Wait until the memory in use on each GPU is back at its baseline.

    Without a baseline, two readings must agree. The wait ends at `DEADLINE_S`, or if nothing has changed
    for `STEADY_S`.

    Parameters
    ----------
    folder
        With the baselines of the run.
    uuids
        The GPUs of the try, which no process of it has opened yet.
    """
    if not uuids:
        return Wait()
    lowest = {uuid: _read(folder / uuid) for uuid in uuids}
    with nvml.nvml():  # open throughout: without another user of the driver, each start of it takes long
        seconds, used = _wait(uuids, lowest)
    now = {uuid: _least(lowest[uuid], used[uuid]) for uuid in uuids}
    for uuid, size_bytes in now.items():
        if size_bytes is not None and size_bytes != lowest[uuid]:
            _write(folder / uuid, size_bytes)
    return Wait(seconds, memory.total(now.values()))


def _wait(uuids: Sequence[str], lowest: Sizes) -> tuple[float, Sizes]:
    """Return how long it took, and what is in use then."""
    began_s = changed_s = time.monotonic()
    before: Sizes | None = None
    while True:
        used, now_s = nvml.used_bytes(uuids), time.monotonic()
        if used != before:
            changed_s = now_s
        if not _is_high(used, lowest) and (used == before or None not in lowest.values()):
            break
        if now_s - changed_s > STEADY_S or now_s - began_s > DEADLINE_S:
            break
        before = used
        time.sleep(POLL_S)
    return now_s - began_s, used


def _is_high(used: Sizes, lowest: Sizes) -> bool:
    """Return whether a GPU has more in use than its baseline, as far as both are known."""
    over = [memory.subtract(used[uuid], lowest[uuid]) for uuid in lowest]
    return any(excess is not None and excess > BASELINE_SLACK_BYTES for excess in over)


def _least(*sizes: int | None) -> int | None:
    return min((size for size in sizes if size is not None), default=None)


def _read(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(files.read_text(path))
    return None


def _write(path: Path, size_bytes: int) -> None:
    """Write a baseline; without room or permission the next try has none to wait for."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        files.write_atomically(path, f"{size_bytes}\n")
