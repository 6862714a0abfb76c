"""A folder of a user's own, for the tests of `jobkit doctor`."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def here(here: Path) -> Path:
    """Return the working directory: with a text, a configuration folder and a cache that is still missing."""
    (here / "config").mkdir()
    (here / "a.txt").write_text("One.\n\nTwo.\n", encoding="utf-8")
    return here
