"""Failed points run again, by `jobkit resume` or by the job that follows, on the real daemons."""

from __future__ import annotations

import re

import pytest

from jobkit.core.records import Outcome
from jobkit.runs import on_end
from tests.cluster.daemons import Wait
from tests.cluster.lab import SGE, FaultySweep

AGAIN = "again: 1 point, with [68]00MiB of memory"
"""By the policy, or by what the try held, if the accounting had a sample of it."""


def test_the_job_that_follows_does_it_with_nobody_there(faulty: FaultySweep) -> None:
    faulty.fail({3: "memory once"})
    said = faulty.sweep(policy="{ram_oom: {memory: x2, tries: 1}}")
    assert "next: jobkit status" in said
    faulty.becomes_ok(120)
    again = [event for event in faulty.lab.submitted() if event["role"] == "points" and event["round"] == 2]
    assert len(again) == 1
    assert "800M" in (faulty.lab.run_dir() / "job-2.sh").read_text() or faulty.lab.scheduler == "sge"


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
    REPORTED: the journal's `left` and `jobkit status` name the points; `on_end` says that the run waits for a
    person; `jobkit resume` submits them.
    LOST: nothing.
    """
    lab = faulty.lab
    lab.refuse_on_nodes()
    faulty.fail({3: "memory"})
    faulty.sweep("--set", 'on_end.command=[sh, -c, "cat >told"]', policy="{ram_oom: {tries: 1}}")
    wait_until(lambda: any(event["event"] == "left" for event in lab.events()), 120)
    wait_until(lambda: on_end.states(lab.run_dir()) == {"command": "sent"}, 60)
    (left,) = [event for event in lab.events() if event["event"] == "left"]
    assert left["points"] == [3]
    assert "this host is no submit host" in str(left["why"])
    faulty.fail({})
    done = lab.jobkit("resume", lab.run_dir())
    assert re.search(AGAIN, done.stderr), done.stderr
    faulty.becomes_ok(60)
