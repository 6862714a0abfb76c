"""Workloads with a framework to import: one that can be imported in advance, and some that cannot."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from jobkit.core.knobs import Value
from jobkit.worker.workloads.count import Count
from tests.workloads.broken import Waits
from tests.workloads.oncard import OnCard


class Framework(Waits):
    """Counts the processes that import it: each appends its process id to the file ``FRAMEWORK``."""

    imported_by: ClassVar[int] = 0

    @classmethod
    def preload(cls) -> None:
        """Import, once a process or its parent."""
        if not cls.imported_by:
            cls.imported_by = os.getpid()
            with Path(os.environ["FRAMEWORK"]).open("a", encoding="ascii") as stream:
                stream.write(f"{os.getpid()}\n")

    def load(self, model: Path | None, device: str, params: Mapping[str, Value], threads: int) -> None:
        """Wait, if the test wants this."""
        assert type(self).imported_by
        super().load(model, device, params, threads)


class Missing(Count):
    """Its framework is not installed."""

    @staticmethod
    def preload() -> None:
        """Fail, as an import does."""
        raise ModuleNotFoundError("No module named 'framework'", name="framework")


class Without(Count):
    """Has nothing that could be imported in advance."""

    preload = None  # type: ignore[assignment]


class SlowOnCard(OnCard):
    """Takes the seconds of ``FAKE_IMPORT_S`` to import."""

    @staticmethod
    def preload() -> None:
        """Import, once a process or its parent."""
        if "slow_framework" not in sys.modules:
            sys.modules["slow_framework"] = ModuleType("slow_framework")
            time.sleep(float(os.environ["FAKE_IMPORT_S"]))
