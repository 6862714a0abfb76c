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
from tests.cluster.lab import COUNT, ClusterLab
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


def sweep_that_is_killed(lab: ClusterLab) -> Path:
    done = lab.sweep(lab.spec(COUNT + "policy: {follow_up: false}\n"), how=jobkit_process)
    assert done.returncode == -9
    assert [event["event"] for event in lab.events()] == ["submitting"], "intent stands before the act"
    return lab.run_dir()


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


@pytest.mark.fault
def test_an_array_that_was_taken_is_found_by_its_name(
    lab: ClusterLab, monkeypatch: pytest.MonkeyPatch, wait_until: Wait
) -> None:
    """FAULT: the client is killed after the scheduler accepted the array, before the client got the job id.

    HOW: real: kill -9 of `jobkit sweep`, Slurm and Grid Engine.
    REPORTED: "a submission was cut off; its job was found by its name"; nothing is submitted again.
    LOST: nothing; no point runs twice.
    """
    with monkeypatch.context() as patch:
        dies(lab, patch, after=True)
        run = sweep_that_is_killed(lab)
    young = lab.jobkit("resume", run)
    assert (young.returncode, lab.submitted()) == (3, []), "the submit command may still be at it"
    later(run)
    done = ended_well(lab.jobkit("resume", run))
    assert "was found by its name" in done.stderr
    assert "nothing to run again" in done.stderr
    assert [(one["found"], one["last"]) for one in lab.submitted()] == [("by its name", 6)]
    wait_until(lambda: all_ok(run), 60)
    assert len(list(run.glob("results/*/try-*"))) == 6


@pytest.mark.fault
def test_an_array_that_was_not_taken_is_submitted_by_resume(
    lab: ClusterLab, monkeypatch: pytest.MonkeyPatch, wait_until: Wait
) -> None:
    """FAULT: the client is killed between writing `submitting` to the journal and the submission.

    HOW: real: kill -9 of `jobkit sweep`, Slurm and Grid Engine.
    REPORTED: "a submission was cut off before the scheduler took it"; `jobkit resume` submits the points.
    LOST: nothing.
    """
    with monkeypatch.context() as patch:
        dies(lab, patch, after=False)
        run = sweep_that_is_killed(lab)
    later(run)
    done = ended_well(lab.jobkit("resume", run))
    assert "cut off before the scheduler took it" in done.stderr
    assert "begins: 6 points" in done.stderr
    wait_until(lambda: all_ok(run), 60)
    assert [one["round"] for one in lab.submitted()] == [2]
    assert len(list(run.glob("results/*/try-*"))) == 6
