"""The fixture ``fake_slurm``: see the README next to this file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.cluster import FakeCluster


@pytest.fixture
def fake_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """Have a fake Slurm: its commands are on PATH, its tasks really run."""
    cluster = FakeCluster(tmp_path / "fake-slurm")
    monkeypatch.setenv("PATH", f"{cluster.bin}:{os.environ['PATH']}")
    try:
        yield cluster
    finally:
        cluster.close()
