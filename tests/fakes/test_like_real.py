"""The fakes pass the very tests that hold every command and parser to the real daemons.

They are collected here once more, with fakes in place of the daemons: the other half of the contract
stands in tests/cluster/test_schedulers_live.py, where the same tests run against real Slurm and real
Grid Engine.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.conftest import wait_until  # noqa: F401 - a fixture of theirs
from tests.cluster.test_schedulers_live import *  # noqa: F403 - all of them
from tests.fakes.cluster import FakeCluster


@pytest.fixture
def slurm(fake_slurm: FakeCluster) -> Iterator[None]:
    """Stand in for the real one."""
    yield
    assert fake_slurm.calls(), "the real one was asked"


@pytest.fixture
def sge(fake_sge: FakeCluster) -> Iterator[None]:
    """Stand in for the real one."""
    yield
    assert fake_sge.calls(), "the real one was asked"
