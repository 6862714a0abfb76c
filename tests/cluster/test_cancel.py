"""Points that wait and points that run are cancelled, on the real daemons, and run again."""

from __future__ import annotations

import json
from pathlib import Path

from jobkit.core.records import Outcome
from jobkit.runs.reader import read_status
from jobkit.runs.status import PointStanding, RunStatus
from tests.cluster.daemons import Wait
from tests.cluster.lab import FaultySweep
from tests.support.commands import ended_well

ALL = range(1, 7)
HANG = dict.fromkeys(ALL, "hangs")
CANCELLED = Outcome.CANCELLED


def seen(run: Path) -> RunStatus:
    (found,) = read_status([run])
    return found


def running(run: Path) -> set[int]:
    """Return the points that run and have a batch home."""
    running = {point.point.index for point in seen(run).points if point.standing is PointStanding.RUNNING}
    return {
        index for index in running if list(run.glob(f"results/batch_size-{index}-r1/try-*/batches.jsonl"))
    }


def record(run: Path, index: int) -> dict[str, object]:
    path = run / "results" / f"batch_size-{index}-r1" / "try-1" / "record.json"
    found: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    return found


def test_points_that_wait_and_points_that_run_are_cancelled_and_run_again(
    faulty: FaultySweep, wait_until: Wait
) -> None:
    faulty.fail(HANG)
    faulty.sweep("--set", "max_parallel=2", policy="{}")
    lab, run = faulty.lab, faulty.lab.run_dir()
    wait_until(lambda: running(run) == {1, 2}, 60)

    done = ended_well(lab.jobkit("cancel", run, "1", "batch_size-6-r1"))
    assert "6 points: 2 running, 4 waiting" in done.stderr
    assert "cancelled: 2 points\nrunning points copy their results to the run folder" in done.stderr
    wait_until(lambda: running(run) == {2, 3}, 60)
    assert faulty.outcomes() == [CANCELLED, None, None, None, None, CANCELLED]
    assert record(run, 1)["summary"]["batches"] == 1  # type: ignore[index]  # JSON
    assert not list(run.glob("results/batch_size-6-r1/*"))

    done = lab.jobkit("cancel", run, "--except", "3")
    assert "cancelled: 3 points" in done.stderr
    wait_until(lambda: running(run) == {3}, 60)
    assert faulty.outcomes() == [CANCELLED, CANCELLED, None, CANCELLED, CANCELLED, CANCELLED]

    done = ended_well(lab.jobkit("cancel", run))
    assert "cancelled: 1 point\n" in done.stderr
    wait_until(lambda: not seen(run).queued, 60)
    assert faulty.outcomes() == [CANCELLED] * 6
    assert [job["role"] for job in faulty.lab.submitted()] == ["points", "follow"], (
        "nothing was submitted again"
    )
    lab.clears_scratch()
    collected = lab.jobkit("collect", run, "--format", "json")
    assert [point["outcome"] for point in json.loads(collected.stdout)["points"]] == ["cancelled"] * 6
    assert "nothing to cancel" in lab.jobkit("cancel", run).stderr

    faulty.fail({})
    done = lab.jobkit("resume", run)
    assert "again: 6 points" in done.stderr
    faulty.becomes_ok(60)
    tries = {path.parent.name.split("-")[1] for path in run.glob("results/*/try-2")}
    assert tries == {"1", "2", "3"}, "what never began has one try"
