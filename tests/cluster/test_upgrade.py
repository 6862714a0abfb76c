"""Jobs wait for days and users upgrade: a run of an earlier version goes on, on the real daemons."""

from __future__ import annotations

from benchmarks.upgrade import upgrade
from tests.cluster.lab import ClusterLab


def test_runs_of_an_earlier_version_go_on(lab: ClusterLab) -> None:
    upgrade(lab.home, lab.scheduler, str(lab.home / "lab.yaml"))
