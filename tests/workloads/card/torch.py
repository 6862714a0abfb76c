"""A torch with a GPU that is not there: first on a PYTHONPATH, with the NVML of `tests/workloads/nvml`.

A process that opens it becomes a client of the daemon of `tests/fakes/mps`, if there is one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from pathlib import Path

from tests.support.fake_torch import FakeTorch

GIB = 2**30
CONTEXT_BYTES = GIB // 4


class Card(FakeTorch):
    """The GPU that ``CUDA_VISIBLE_DEVICES`` names; writes what this process holds of it to ``FAKE_HELD``."""

    def __init__(self) -> None:
        super().__init__(16 * GIB)
        self.uuid = f"GPU-{os.environ['CUDA_VISIBLE_DEVICES']}"
        self.held_bytes = 0
        self.daemon = socket.socket(socket.AF_UNIX)

    def zeros(self, count: int, *, device: str) -> tuple[int, str]:
        """Open the GPU."""
        self._hold_on(0)
        with contextlib.suppress(OSError):  # without a daemon it works without
            self._attach(Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/none"), "control"))
        return super().zeros(count, device=device)

    def hold(self, size_bytes: int) -> None:
        """Reserve so much, and keep it in the cache."""
        super().hold(size_bytes)
        self._hold_on(max(self.held_bytes, size_bytes * 11 // 10))

    def empty_cache(self) -> None:
        """Return the cache."""
        super().empty_cache()
        self._hold_on(0)

    def memory_reserved(self) -> int:
        """Return the cache."""
        return self.held_bytes

    def _attach(self, control: Path) -> None:
        self.daemon.connect(str(control))
        self.daemon.send(f"client {os.getpid()}".encode())
        self.daemon.recv(7)

    def _hold_on(self, size_bytes: int) -> None:
        self.held_bytes = size_bytes
        held = Path(os.environ["FAKE_HELD"]) / f"{self.uuid}.{os.getpid()}"
        held.with_suffix(f"{held.suffix}-part").write_text(str(CONTEXT_BYTES + size_bytes), encoding="ascii")
        held.with_suffix(f"{held.suffix}-part").replace(held)


sys.modules[__name__] = Card()  # type: ignore[assignment]  # an object, as a module has no state to inherit
