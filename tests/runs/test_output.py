from __future__ import annotations

import json
import math
from dataclasses import replace

from jobkit.core.layout import Exit
from jobkit.core.records import Outcome
from jobkit.runs.journal import Role
from jobkit.runs.standing import PointState, PointStatus
from jobkit.runs.status_text import point_json, run_json
from jobkit.schedulers.types import Accounted, State
from tests.support.builders import batch
from tests.support.statuses import HALF, a_point, a_run, tried, waits, with_job


def of(point: PointStatus, *, with_tries: bool = False) -> dict[str, object]:
    return point_json(a_run([point]), point, with_tries=with_tries)


def test_a_run_for_programs() -> None:
    running = a_point(2, PointState.RUNNING, batches=HALF, queued=waits(State.RUNNING, elapsed_s=4.0))
    run = a_run([a_point(1, PointState.DONE, Outcome.OK), running])
    run = with_job(run, Role.FOLLOW, State.PENDING, "Dependency")
    found = json.loads(json.dumps(run_json(run, "runs/demo"), allow_nan=False))
    assert found["standings"] == {
        "done": 1, "failed": 0, "running": 1, "waiting": 0, "stuck": 0, "unsettled": 0, "missing": 0
    }  # fmt: skip
    assert (found["run"], found["folder"]) == ("demo-20260102-101530-3f9a", "runs/demo")
    assert (found["to_go_s"], found["saved_s"], found["gpus"], found["exit_code"]) == (0.5, None, 1, 5)
    (job,) = found["jobs"]
    assert (job["role"], job["job"], job["state"]) == ("follow", "79", "waiting")
    assert found["next"][0]["command"] == "jobkit status runs/demo --watch"
    second = found["points"][1]
    fields = ("state", "outcome", "job", "task", "node", "gpu", "elapsed_s")
    assert [second[key] for key in fields] == ["running", None, "77", 2, "node1", "h200", 4]
    assert (second["batches"], second["batches_total"], second["left_s"]) == (2, 40, 0.5)


def test_what_is_not_known_is_null_and_never_nan() -> None:
    missing = of(a_point(1, PointState.MISSING))
    unknown = ("scheduler", "job", "task", "node", "elapsed_s", "start_at")
    assert {missing[key] for key in unknown} == {None}
    endless = [replace(batch(0), seconds=math.inf, characters_total=10**6)]
    queued = waits(State.RUNNING, elapsed_s=math.nan)
    odd = of(a_point(1, PointState.RUNNING, batches=endless, queued=queued))
    assert (odd["left_s"], odd["elapsed_s"]) == (None, None)


def test_when_a_task_is_to_begin_and_where_it_runs_come_from_the_queue() -> None:
    queued = waits(State.PENDING, "Priority", start_at="2026-01-02T12:00:00", node="n7")
    found = of(a_point(1, PointState.WAITING, queued=queued))
    assert (found["start_at"], found["node"]) == ("2026-01-02T12:00:00", "n7")
    assert of(a_point(1, PointState.WAITING, queued=waits(State.PENDING)))["node"] is None


def test_the_tries_of_a_point_for_programs() -> None:
    exit_ = Exit(status=1, stage="stage_out", message="disk full", scratch="/scratch/x")
    account = Accounted(job_id="77", task=1, ended=True, outcome=None, evidence="sacct: FAILED")
    bare = replace(tried(1, Outcome.LOST), node="")
    full = replace(tried(2, Outcome.STAGE_OUT), exit=exit_, account=account)
    point = a_point(1, PointState.FAILED, Outcome.STAGE_OUT, tries=[full, bare])
    first, second = json.loads(json.dumps(of(point, with_tries=True)))["all_tries"]
    assert (first["exit_status"], first["scratch"], first["accounting"]) == (1, "/scratch/x", "sacct: FAILED")
    empty = {"exit_status", "stage", "message", "scratch", "accounting", "log", "folder", "node", "elapsed_s"}
    assert {second[key] for key in empty} == {None}
