"""What happens in a run folder while it is read."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from jobkit.core import files


def meanwhile(patch: pytest.MonkeyPatch, before: int, happen: Callable[[], object]) -> None:
    """Let something happen just before the file of that number, from 0, is opened."""
    number, opened = count(), files.open_regular

    def open_later(path: Path | str, *flags: int) -> int:
        if next(number) == before:
            happen()
        return opened(path, *flags)

    patch.setattr(files, "open_regular", open_later)
