"""The client dies while it submits: no array is lost, none is submitted twice, on the real daemons."""

from __future__ import annotations

import json
import os
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from jobkit.core.records import Outcome
from jobkit.runs.reader import read_status
from tests.cluster.daemons import Wait
from tests.cluster.lab import COUNT, ClusterLab, on
from tests.support.commands import ended_well, jobkit_process

SUBMIT = {"slurm": "sbatch", "sge": "qsub"}
ASKS = {"slurm": "--test-only", "sge": "-w"}
"""An option that makes of a submission a question."""


def dies(lab: ClusterLab, monkeypatch: pytest.MonkeyPatch, *, after: bool) -> None:
    """Put a submit command on PATH that kills jobkit, before or after it has really submitted."""
    real = shutil.which(SUBMIT[lab.scheduler])
    wrapper = lab.home / "bin" / SUBMIT[lab.scheduler]
    wrapper.parent.mkdir()
    taken = f'{real} "$@" >/dev/null' if after else ":"
    wrapper.write_text(
        f'#!/bin/bash\ncase " $* " in *" {ASKS[lab.scheduler]} "*) exec {real} "$@" ;; esac\n'
        f"{taken}\nkill -KILL $PPID\n"
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")


def later(run: Path) -> None:
    """Let a minute pass for the journal: a submission may be under way for half of one."""
    path = run / "journal.jsonl"
    line, *rest = path.read_text(encoding="utf-8").splitlines(keepends=True)
    event = json.loads(line)
    event["at"] = (datetime.fromisoformat(event["at"]) - timedelta(minutes=1)).isoformat()
    path.write_text("".join([json.dumps(event) + "\n", *rest]), encoding="utf-8")


def all_ok(run: Path) -> bool:
    (seen,) = read_status([run], ask=False)
    return all(point.outcome is Outcome.OK for point in seen.points)


@on("scheduler when", "slurm after", "sge after", "sge before")
@pytest.mark.fault
def test_no_array_is_lost_and_none_is_submitted_twice(
    lab: ClusterLab, monkeypatch: pytest.MonkeyPatch, wait_until: Wait, when: str
) -> None:
    """FAULT: the client is killed before the scheduler has the array, or before the client has the job id.

    HOW: real: kill -9 of `jobkit sweep`, Slurm and Grid Engine.
    REPORTED: accepted: "a submission was cut off; its job was found by its name", and nothing is submitted
    again. Not accepted: "a submission was cut off before the scheduler took it"; `jobkit resume` submits.
    LOST: nothing; no point runs twice.
    """
    with monkeypatch.context() as patch:
        dies(lab, patch, after=when == "after")
        done = lab.sweep(lab.spec(COUNT + "policy: {follow_up: false}\n"), how=jobkit_process)
    assert done.returncode == -9
    assert [event["event"] for event in lab.events()] == ["submitting"], "intent stands before the act"
    run = lab.run_dir()
    young = lab.jobkit("resume", run)
    assert (young.returncode, lab.submitted()) == (3, []), "the submit command may still be at it"
    later(run)
    done = ended_well(lab.jobkit("resume", run))
    if when == "after":
        assert "was found by its name" in done.stderr
        assert "nothing to run again" in done.stderr
        assert [(one["found"], one["last"]) for one in lab.submitted()] == [("by its name", 3)]
    else:
        assert "cut off before the scheduler took it" in done.stderr
        assert "begins: 3 points" in done.stderr
        assert [one["round"] for one in lab.submitted()] == [2]
    wait_until(lambda: all_ok(run), 60)
    assert len(list(run.glob("results/*/try-*"))) == 3
