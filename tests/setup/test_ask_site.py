"""A scheduler is asked with deadlines; its commands are small programs on PATH."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jobkit.schedulers.registry import by_name
from jobkit.setup.init import ask_site
from tests.fakes.cluster import FakeCluster


def put(folder: Path, name: str, body: str) -> None:
    """Put a program on PATH, the only one of its name."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def test_a_slurm_that_answers(fake_slurm: FakeCluster) -> None:
    told = ask_site(by_name("slurm"))

    assert (told.trouble, told.version) == ("", "22.05.8")
    assert told.queues is not None
    assert {queue.name for queue in told.queues} == {"cpu", "gpu", "low", "high"}
    assert told.queues[0].gpus == {"v100": 2}
    assert told.keeping.works
    assert len(fake_slurm.calls()) == 7


def test_a_grid_engine_that_answers(fake_sge: FakeCluster) -> None:
    told = ask_site(by_name("sge"))

    assert (told.trouble, told.one_node) == ("", ("smp",))
    assert told.gpus is not None
    assert told.gpus.name == "ngpus"
    assert len(fake_sge.calls()) == 7


@pytest.mark.parametrize(("scheduler", "calls"), [("slurm", 2), ("sge", 2)])
def test_a_controller_that_is_away_is_asked_once(
    scheduler: str, calls: int, request: pytest.FixtureRequest
) -> None:
    cluster: FakeCluster = request.getfixturevalue(f"fake_{scheduler}")
    cluster.fault("controller_away")
    told = ask_site(by_name(scheduler))

    assert told.trouble
    assert told.queues is None
    assert len(cluster.calls()) <= calls


def test_accounting_that_is_off_or_down(fake_slurm: FakeCluster) -> None:
    fake_slurm.fault("accounting_off")
    assert ask_site(by_name("slurm")).keeping.works is False
    fake_slurm.fix()
    fake_slurm.fault("accounting_down")
    assert ask_site(by_name("slurm")).keeping.works is False


def test_after_a_command_that_hangs_no_other_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sinfo", "sacct", "sacctmgr", "scontrol"):
        put(tmp_path, name, f'echo {name} "$@" >>{tmp_path}/calls')
    put(tmp_path, "scontrol", 'echo "$@" >>' + f'{tmp_path}/calls\n[ "$1" = ping ] || sleep 300')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("jobkit.setup.init.TIMEOUT_S", 2.0)
    began = time.monotonic()
    told = ask_site(by_name("slurm"))

    assert time.monotonic() - began < 60
    assert told.queues is None
    assert told.silent["config"] == "scontrol: no answer within 2 s"
    assert told.silent["nodes"].startswith("not asked: scontrol: no answer")
    assert len((tmp_path / "calls").read_text(encoding="utf-8").splitlines()) == 3


def test_without_the_commands_that_is_the_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert ask_site(by_name("slurm")).trouble == "scontrol: command not found"
    assert ask_site(by_name("sge")).trouble == "qconf: command not found"
    assert ask_site(by_name("local")).queues is None
