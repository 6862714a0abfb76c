"""The state of runs on the real daemons: tasks that are held or in error, and queues in error."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobkit.runs.reader import ask_queue
from jobkit.schedulers import sge
from jobkit.schedulers.types import JobId, Queued, Remedy, State
from tests.cluster.daemons import SgeDaemons, Wait, said
from tests.cluster.lab import COUNT, RELEASE, SGE, ClusterLab, held_by
from tests.support.commands import ended_well


@pytest.fixture
def run(lab: ClusterLab) -> Iterator[Path]:
    """Submit a sweep whose tasks wait to be released; return its folder."""
    done = ended_well(lab.sweep(lab.spec(COUNT), "--set", f"resources.options={held_by(lab.scheduler)}"))
    assert lab.job() in done.stderr
    assert re.search(r"next: jobkit status \S+ --watch", done.stderr)
    yield lab.run_dir()
    lab.jobkit("cancel", lab.run_dir())


def told(lab: ClusterLab, *arguments: str | Path) -> dict[str, Any]:
    done = lab.jobkit("status", *arguments, "--json")
    assert done.returncode in {0, 4, 5}, done.stderr
    (data,) = [json.loads(line) for line in done.stdout.splitlines()]
    run: dict[str, Any] = data["runs"][0]
    return run


def states(run: dict[str, Any]) -> list[str]:
    return [str(point["state"]) for point in run["points"]]


@pytest.mark.fault
def test_what_is_held_or_in_error_is_fixed_by_what_is_advised(
    lab: ClusterLab, run: Path, wait_until: Wait
) -> None:
    """FAULT: a task is held, or in error (Eqw), so it and the job that follows would wait forever.

    HOW: real: a sweep submitted with a hold, Slurm and Grid Engine; a log that cannot be opened, Grid
    Engine.
    REPORTED: `jobkit status` names the points, the job that waits for them, and the commands (`scontrol
    release`, `qrls`, `qmod -cj`); pasted unchanged, these release all of them.
    LOST: nothing.
    """
    assert states(told(lab, run)) == ["held"] * 3
    job, wrong = lab.job(), lab.scheduler == "sge"
    if wrong:
        (run / "logs").rename(lab.home / "logs")
        (run / "logs").symlink_to(lab.home / "gone" / "logs")
    second = f"{job}.2" if wrong else f"{job}_2"
    subprocess.run([*RELEASE[lab.scheduler], second], check=True)
    state = "stuck" if wrong else "ok"
    wait_until(lambda: states(told(lab, run))[1] == state, 60)
    said = lab.jobkit("status", run)
    assert "waiting for a person: " in said.stdout
    assert "begins when the points have ended" in said.stdout
    if wrong:
        assert "Eqw: could not be started" in said.stdout
        assert "is stuck" in lab.jobkit("resume", run, "2").stderr
        point = lab.jobkit("status", run, "2").stdout
        assert "queue_error" in point
        assert f"qmod -cj {job}.2" in point
        (run / "logs").unlink()
        (lab.home / "logs").rename(run / "logs")
    for step in told(lab, run)["next"]:
        if not step["command"].startswith("jobkit "):
            subprocess.run(
                shlex.split(step["command"]), check=False
            )  # qmod -cj ends with 1 where all is well
    last = ended_well(lab.jobkit("status", run, "--watch"))
    assert "3 points: 3 done" in last.stdout
    assert last.stdout.count("3 points: ") > 1, "each change was told"


@pytest.mark.sge
def test_each_hold_of_grid_engine_names_who_releases_it(wait_until: Wait) -> None:
    submit = "qsub -terse -t 1-2 -r y -o /dev/null -j y -b y sleep 60"
    job = str(said(*submit.split())).partition(".")[0]

    def tasks(state: State) -> list[Queued]:
        return [task for task in ask_queue(sge, (JobId(job),), []) or () if task.state is state]

    wait_until(lambda: len(tasks(State.RUNNING)) == 2, 30)
    said("qhold", f"{job}.1")
    said("qhold", "-h", "o", f"{job}.2")
    said("qmod", "-rj", job)
    wait_until(lambda: len(tasks(State.HELD)) == 2, 30)
    mine, theirs = tasks(State.HELD)
    assert (mine.reason[:2], mine.start_at) == ("hR", "")
    said(*(sge.remedy(JobId(job), (1,), mine) or Remedy()).argv)
    wait_until(lambda: tasks(State.HELD) == [theirs], 30)
    (admin,) = re.findall(rf"qrls -h os {job}", sge.explain(theirs))
    said(*admin.split())
    wait_until(lambda: not tasks(State.HELD), 30)
    said("qdel", job)


@SGE
@pytest.mark.fault
def test_queues_in_error_are_named_with_what_clears_them(
    sge_alone: SgeDaemons, lab: ClusterLab, run: Path, wait_until: Wait
) -> None:
    """FAULT: the queue of Grid Engine that tasks need is in error; they wait until someone clears it.

    HOW: real: a prolog that fails, which sets a queue to error when a task begins in it.
    REPORTED: `jobkit status` names the queues in error and gives the administrator's command; after it, the
    tasks run.
    LOST: nothing.
    """
    del sge_alone
    queues = subprocess.run(["qconf", "-sql"], capture_output=True, text=True, check=True).stdout.split()
    for name in queues:
        subprocess.run(["qconf", "-mattr", "queue", "prolog", "/bin/false", name], check=True)
    try:
        subprocess.run([*RELEASE["sge"], lab.job()], check=True)
        wait_until(lambda: "until an administrator types: " in lab.jobkit("status", run).stdout, 120)
    finally:
        for name in queues:
            subprocess.run(["qconf", "-mattr", "queue", "prolog", "NONE", name], check=True)
    shown = lab.jobkit("status", run).stdout
    (clear,) = set(re.findall(r"until an administrator types: (qmod -cq .*)", shown))
    subprocess.run(shlex.split(clear), check=True)
    last = lab.jobkit("status", run, "--watch")
    assert "3 points: 3 done" in last.stdout, last.stdout
