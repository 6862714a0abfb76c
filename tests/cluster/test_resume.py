"""Failed points run again, by `jobkit resume` or by the job that follows, on the real daemons."""

from __future__ import annotations

import random
import re

import pytest

from jobkit.core.layout import Exit
from jobkit.core.records import Outcome
from jobkit.launch import sweep as submit
from jobkit.planning.prepare import Options, prepare
from tests.cluster.daemons import Wait
from tests.cluster.lab import FAULTY, SGE, SLURM, WORKLOADS, FaultySweep
from tests.support.builders import record, write_exit, write_record

AGAIN = "again: 1 point, with [34]00MiB of memory"
"""By the policy, or by what the try held, if the accounting had a sample of it."""


@SLURM
def test_only_what_failed_runs_again_and_every_try_is_kept(faulty: FaultySweep) -> None:
    faulty.fail({2: "memory", 5: "killed"})
    said = faulty.sweep("--wait")
    assert [said.count(f"{words}: ") for words in ("ram_oom", "lost", "ok")] == [1, 1, 0], said
    ok = Outcome.OK
    assert faulty.outcomes() == [ok, Outcome.RAM_OOM, ok, ok, Outcome.LOST, ok]
    faulty.fail({})
    done = faulty.lab.jobkit("resume", faulty.lab.run_dir(), "--only", "failed", "--wait")
    assert done.returncode == 0, done.stderr
    assert "6 points: 4 done, 2 failed (1 ram_oom, 1 lost)" in done.stderr
    assert re.search(AGAIN, done.stderr)
    assert faulty.outcomes() == [ok] * 6
    tries = sorted(path.parent.name for path in faulty.lab.run_dir().glob("results/*/try-2"))
    assert tries == ["batch_size-2-r1", "batch_size-5-r1"]
    lists = {path.name: path.read_text() for path in faulty.lab.run_dir().glob("tasks-*.txt")}
    assert sorted(lists.values()) == ["2\n", "5\n"]
    again = faulty.lab.jobkit("resume", faulty.lab.run_dir())
    assert (again.returncode, len(faulty.lab.submitted())) == (0, 3)
    assert "nothing to run again" in again.stderr


def test_the_job_that_follows_does_it_with_nobody_there(faulty: FaultySweep) -> None:
    faulty.fail({3: "memory once"})
    said = faulty.sweep(policy="{ram_oom: {memory: x2, tries: 1}}")
    assert "next: jobkit status" in said
    faulty.becomes_ok(120)
    again = [event for event in faulty.lab.submitted() if event["role"] == "points" and event["round"] == 2]
    assert len(again) == 1
    assert "400M" in (faulty.lab.run_dir() / "job-2.sh").read_text() or faulty.lab.scheduler == "sge"


@SGE
@pytest.mark.fault
def test_two_bugs_alike_stop_the_sweep(faulty: FaultySweep) -> None:
    """FAULT: every point fails by the same bug.

    HOW: real: a workload that raises, Grid Engine.
    REPORTED: `bug` for the first two, `stopped` for the others, which end at once.
    LOST: nothing; `jobkit resume` runs all of them once the bug is fixed.
    """
    faulty.fail(dict.fromkeys(range(1, 7), "bug"))
    faulty.sweep("--wait", "--set", "max_parallel=1")
    assert faulty.outcomes() == [Outcome.BUG] * 2 + [Outcome.STOPPED] * 4
    faulty.fail({})
    done = faulty.lab.jobkit("resume", faulty.lab.run_dir())
    assert "again: 6 points" in done.stderr


@SGE
@pytest.mark.fault
def test_where_nodes_may_not_submit_it_is_left_to_a_person(faulty: FaultySweep, wait_until: Wait) -> None:
    """FAULT: nodes may not submit, so the job that follows the sweep cannot run a point again.

    HOW: fake: a submit command on the node that refuses; the rest is real, Grid Engine.
    REPORTED: the journal's `left` and `jobkit status` name the points; `jobkit resume` submits them.
    LOST: nothing.
    """
    lab = faulty.lab
    lab.refuse_on_nodes()
    faulty.fail({3: "memory"})
    faulty.sweep(policy="{ram_oom: {tries: 1}}")
    wait_until(lambda: any(event["event"] == "left" for event in lab.events()), 120)
    (left,) = [event for event in lab.events() if event["event"] == "left"]
    assert left["points"] == [3]
    assert "this host is no submit host" in str(left["why"])
    faulty.fail({})
    done = lab.jobkit("resume", lab.run_dir())
    assert re.search(AGAIN, done.stderr), done.stderr
    faulty.becomes_ok(60)


@SLURM
def test_of_a_thousand_points_just_the_37_that_failed_run_again(faulty: FaultySweep) -> None:
    lab = faulty.lab
    text = FAULTY % ("{follow_up: false}", WORKLOADS, faulty.file)
    text = (
        text.replace("odd:Faulty", "count")
        .replace("[1, 2, 3, 4, 5, 6]", str(list(range(1, 101))))
        .replace("repeats: 1", "repeats: 10")
    )
    options = Options(scheduler=lab.scheduler, site=str(lab.home / "lab.yaml"), runs_dir=lab.home / "runs")
    prepared = prepare(lab.spec(text + "max_parallel: null\n"), options, build=True)
    submit.write_run(prepared)
    failed = random.Random(37).sample(range(1, 1001), 37)  # noqa: S311 - any 37 will do
    for one in prepared.points:
        if one.index in failed:
            write_exit(prepared.run_dir, one, Exit(status=1, stage="run", signal="TERM"))
        else:
            write_record(prepared.run_dir, record(one))
    done = lab.jobkit("resume", prepared.run_dir)
    assert done.returncode == 0, done.stderr
    assert "1,000 points: 963 done, 37 cancelled" in done.stderr
    (job,) = faulty.lab.submitted()
    assert (job["first"], job["last"], job["round"]) == (1, 37, 2)
    listed = [int(line) for line in (prepared.run_dir / str(job["list"])).read_text().split()]
    assert listed == sorted(failed)
    faulty.becomes_ok(120)
    assert len(list(prepared.run_dir.glob("results/*/try-2"))) == 37
    assert len(list(prepared.run_dir.glob("results/*/try-3"))) == 0
