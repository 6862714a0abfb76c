"""`jobkit doctor` on real schedulers: here, and in a job."""

from __future__ import annotations

import re

import pytest

from tests.cluster.lab import ClusterLab
from tests.support.commands import ended_well

SPEC = """\
name: mine
workload: count
device: cpu
resources: {gpus: 1, cpus: 1, memory: 200MiB, walltime: "00:02:00"}
"""


def test_here_and_in_a_job(lab: ClusterLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBKIT_CONFIG", str(lab.home / "config"))
    done = ended_well(lab.jobkit("doctor", lab.spec(SPEC), *lab.place, "--submit", "--all"))
    assert "missing" not in done.stdout
    assert re.search(r"^In a job, on (n\d|localhost)$", done.stdout, re.MULTILINE)
    assert re.search(rf"ok +job +{lab.scheduler} job \d+ ran, \d+ s after it was submitted", done.stdout)
    assert list((lab.home / "runs").iterdir()) == []
