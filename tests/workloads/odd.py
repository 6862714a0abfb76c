"""Workloads that misbehave on purpose; run in real jobs by the tests of the job script."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from jobkit.run.count import Count
from jobkit.run.workload import Result


class Slow(Count):
    """Works one batch, tells that it has, then takes for ever."""

    seen: ClassVar[int] = 0

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Count; the third call (warm-up, a batch, this one) never ends."""
        type(self).seen += 1
        if self.seen == 3:
            Path(os.environ["ODD_TOLD"]).touch()
            time.sleep(600)
        return super().process(paragraphs)


class Broken(Count):
    """Raises what the environment says."""

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Raise."""
        del paragraphs
        raise {"memory": MemoryError, "bug": ValueError}[os.environ["ODD_RAISES"]]("on purpose")


class Exits(Count):
    """Ends the worker with a status of its own, no record, as a crash in C does."""

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Leave."""
        del paragraphs
        os._exit(int(os.environ["ODD_STATUS"]))
