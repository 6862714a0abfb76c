"""A pytest fixture for the tests of other projects: ``pytest_plugins = ["jobkit.practice.fixtures"]``."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobkit.practice import cluster
from jobkit.practice.cluster import Cluster


@pytest.fixture(scope="session")
def practice_cluster() -> Iterator[Callable[[str], Cluster]]:
    """Return ``practice_cluster(scheduler)``, which starts Slurm (``slurm``) or Grid Engine (``sge``).

    It returns when a job can start, and the scheduler's commands find the cluster from then on. All is gone
    after the last test of this process; with pytest-xdist each worker has a cluster of its own.
    """
    folder = Path(tempfile.mkdtemp(prefix="practice-"))  # short: the path of a socket has a limit
    with pytest.MonkeyPatch.context() as patch:

        def start(scheduler: str) -> Cluster:
            started = cluster.up(folder, scheduler)
            for name, value in cluster.variables([started]).items():
                patch.setenv(name, value)
            return started

        try:
            yield start
        finally:
            cluster.down(folder)
            shutil.rmtree(folder)
