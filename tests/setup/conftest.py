"""A folder of a user's own, for the tests of `jobkit doctor`."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory: with a text, a configuration folder and a cache that is still missing."""
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("JOBKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "a.txt").write_text("One.\n\nTwo.\n", encoding="utf-8")
    return tmp_path
