"""The fixtures ``fake_slurm`` and ``fake_sge``: see the README next to this file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes.cluster import FakeCluster


@contextmanager
def _cluster(scheduler: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    cluster = FakeCluster(scheduler, folder / f"fake-{scheduler}")
    monkeypatch.setenv("PATH", f"{cluster.bin}:{os.environ['PATH']}")
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def fake_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """Have a fake Slurm: its commands are on PATH, its tasks really run."""
    with _cluster("slurm", tmp_path, monkeypatch) as cluster:
        yield cluster


@pytest.fixture
def fake_sge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """Have a fake Grid Engine: its commands are on PATH, its tasks really run."""
    cell = tmp_path / "fake-sge-root" / "default"
    (cell / "common").mkdir(parents=True)
    (cell / "common" / "act_qmaster").write_text("submit\n", encoding="ascii")
    monkeypatch.setenv("SGE_ROOT", str(cell.parent))
    monkeypatch.delenv("SGE_CELL", raising=False)
    with _cluster("sge", tmp_path, monkeypatch) as cluster:
        yield cluster
