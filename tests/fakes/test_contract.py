"""The fake keeps to what the real daemons showed: see contract.py."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.cluster import FakeCluster
from tests.fakes.contract import EXPECTED, observe


def test_the_fake_shows_what_the_real_one_showed(fake_slurm: FakeCluster, tmp_path: Path) -> None:
    fake_slurm.set(kill_wait_s=0.5)
    assert observe(tmp_path) == EXPECTED
    assert fake_slurm.calls()
