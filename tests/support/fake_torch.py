"""What `jobkit.worker.measure.memory` asks of torch on a GPU, by a card that is not there."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

GRAIN_BYTES = 2 * 2**20


class OutOfMemoryError(RuntimeError):
    """What torch calls it."""


class FakeTorch:
    """A card and its allocator: ``torch`` and ``torch.cuda`` in one.

    Parameters
    ----------
    total_bytes
        What the card holds.
    """

    __version__ = "2.0"

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.fraction = 1.0
        self.retries = 0
        self.emptied = 0
        self.waited = 0
        self.peak_bytes = 0
        self.uuid = "abc"

    @property
    def cuda(self) -> FakeTorch:
        return self

    @property
    def cap_bytes(self) -> int:
        """What the allocator may reserve: torch rounds down."""
        return int(self.fraction * self.total_bytes)

    def hold(self, size_bytes: int) -> None:
        """Allocate so much and let it go again; the allocator reserves a tenth more where it may."""
        least = -(-size_bytes * 105 // 100 // GRAIN_BYTES) * GRAIN_BYTES
        if least > self.cap_bytes:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")
        self.retries += size_bytes * 11 // 10 > self.cap_bytes
        self.peak_bytes = max(self.peak_bytes, size_bytes)

    def is_available(self) -> bool:
        return True

    def zeros(self, count: int, *, device: str) -> tuple[int, str]:
        return count, device

    def get_device_properties(self, _index: int) -> SimpleNamespace:
        return SimpleNamespace(total_memory=self.total_bytes, uuid=self.uuid)

    def set_per_process_memory_fraction(self, fraction: float) -> None:
        assert 0 <= fraction <= 1
        self.fraction = fraction

    def empty_cache(self) -> None:
        self.emptied += 1

    def reset_peak_memory_stats(self) -> None:
        self.peak_bytes = 0

    def synchronize(self) -> None:
        self.waited += 1

    def memory_allocated(self) -> int:
        return 1000

    memory_reserved = memory_allocated

    def memory_stats_as_nested_dict(self) -> Mapping[str, object]:
        reserved = min(self.peak_bytes * 11 // 10, self.cap_bytes)
        return {
            "allocated_bytes": {"all": {"peak": self.peak_bytes}},
            "reserved_bytes": {"all": {"peak": reserved}},
            "num_alloc_retries": self.retries,
        }
