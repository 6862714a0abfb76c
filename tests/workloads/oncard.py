"""A workload on the GPU of `tests/workloads/card`, which is not there; for the tests of several workers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from jobkit.core.knobs import Value
from jobkit.worker.workloads.base import Heavy
from tests.workloads.held import BYTES_PER_LOAD, Tells
from tests.workloads.told import Told


class OnCard(Tells):
    """Counts, and holds memory for each unit of load; its heaviest batch needs a GPU without others.

    With ``ON_CARD_TERM`` it stops its supervisor then.
    """

    def load(self, model: Path | None, device: str, params: Mapping[str, Value], threads: int) -> None:
        """Take the GPU that torch has."""
        import torch

        super().load(model, device, params, threads)
        type(self).card = torch

    def heaviest(self) -> Sequence[Heavy]:
        """Return the last call."""
        return [Heavy(self.attempted, self.hold_alone)]

    def hold_alone(self) -> None:
        """Hold the memory again, if no other process is on the GPU."""
        import pynvml

        running = pynvml.nvmlDeviceGetComputeRunningProcesses(self.card.uuid)
        if len(running) != 1:
            raise ValueError(f"not alone: {running}")
        if "ON_CARD_TERM" in os.environ:
            os.kill(os.getppid(), signal.SIGTERM)
            time.sleep(600)
        self.card.hold(BYTES_PER_LOAD * self.attempted)


class ToldOnCard(Told):
    """Does what its paragraphs tell, in a process that has opened the GPU."""

    NEEDS_MODEL: ClassVar[bool] = True
