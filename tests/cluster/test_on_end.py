"""The end of a run is told from a node, else from the login node. Real daemons."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from jobkit.runs import on_end
from tests.cluster.daemons import BUSY, Wait
from tests.cluster.lab import COUNT, SGE, SLURM, ClusterLab
from tests.runs.test_on_end import Server
from tests.runs.test_on_end import server as server  # noqa: PLC0414 - a fixture is found by its name here

DEADLINE_S = 60 * BUSY
ON_END = "on_end: {command: [./tell.sh], webhook: {%s}}\n"


def with_outlets(lab: ClusterLab, hook: str) -> Path:
    """Return a spec with both outlets; the command keeps what it gets, a line a message."""
    program = lab.home / "tell.sh"
    program.write_text(f"#!/bin/sh\ncat >>'{lab.home}/told'; echo >>'{lab.home}/told'\n", encoding="utf-8")
    program.chmod(0o755)
    return lab.spec(COUNT + ON_END % hook)


def told(lab: ClusterLab) -> list[str]:
    return [
        json.loads(line)["state"] for line in (lab.home / "told").read_text(encoding="utf-8").splitlines()
    ]


@SLURM
def test_the_job_that_follows_tells_the_end_of_a_sweep(
    lab: ClusterLab, server: Server, monkeypatch: pytest.MonkeyPatch, wait_until: Wait
) -> None:
    file = lab.home / "hook"
    file.touch(0o600)
    file.write_text(server.address, encoding="utf-8")
    monkeypatch.delenv("HOOK")
    assert lab.sweep(with_outlets(lab, "file: hook")).returncode == 0
    both = {"command": "sent", "webhook": "sent"}
    wait_until(lambda: on_end.states(lab.run_dir()) == both, DEADLINE_S)
    assert "on_end: command sent, webhook sent" in lab.jobkit("status", lab.run_dir()).stdout
    assert told(lab) == ["has ended"]
    (message,) = server.told
    assert re.search(r"count-\S+ has ended: 3 points: 3 done", message["text"])
    kept = [path.read_text(errors="replace") for path in lab.run_dir().rglob("*") if path.is_file()]
    assert not any("s3cret" in text for text in kept)


@SGE
def test_what_a_node_cannot_send_the_login_node_sends(
    lab: ClusterLab, server: Server, wait_until: Wait
) -> None:
    lab.sweep(with_outlets(lab, "env: HOOK"))  # Grid Engine's jobs have no variable of the shell
    wait_until(lambda: "webhook" in on_end.states(lab.run_dir()), DEADLINE_S)
    assert "kept: on_end.webhook: the variable HOOK: has no" in on_end.states(lab.run_dir())["webhook"]
    wait_until(lambda: "webhook sent" in lab.jobkit("status", lab.run_dir()).stdout, DEADLINE_S)
    assert (len(server.told), told(lab)) == (1, ["has ended"])
