from __future__ import annotations

import json
import math
from dataclasses import replace

from jobkit.core.job_files import Exit
from jobkit.core.records import Outcome
from jobkit.outcome.journal import Role
from jobkit.outcome.verdict import TryFiles
from jobkit.schedulers.types import Accounted, State
from jobkit.status.output import point_json, run_json
from jobkit.status.progress import Progress, SkippedTime
from jobkit.status.standing import Standing
from jobkit.status.summary import TryStatus
from tests.support.statuses import a_job, a_point, a_run, tried, waits

FAR = Progress(batches=3, batches_total=9, characters=300, characters_total=900, work_s=1.5)


def test_a_run_for_programs() -> None:
    running = replace(a_point(2, Standing.RUNNING), elapsed_s=4.0, progress=FAR, gpu="h200")
    run = a_run([a_point(1, Standing.DONE, Outcome.OK), running], [a_job(Role.FOLLOW, "waiting")])
    run = replace(run, to_go_s=9.5, saved=SkippedTime(1, 30.0))
    told = json.loads(json.dumps(run_json(run, "runs/demo"), allow_nan=False))
    assert told["standings"] == {
        "done": 1, "failed": 0, "running": 1, "waiting": 0, "stuck": 0, "unsettled": 0, "missing": 0
    }  # fmt: skip
    assert (told["run"], told["folder"]) == ("demo-20260102-101530-3f9a", "runs/demo")
    assert (told["to_go_s"], told["saved_s"], told["gpus"], told["exit_code"]) == (9.5, 30.0, 1, 5)
    assert told["jobs"] == [
        {"role": "follow", "round": 1, "scheduler": "slurm", "job": "79", "state": "waiting", "why": ""}
    ]
    assert told["next"][0] == {"command": "jobkit logs runs/demo 2 -f", "does": "what p002 says"}
    second = told["points"][1]
    assert {key: second[key] for key in ("state", "outcome", "job", "task", "node", "gpu")} == {
        "state": "running", "outcome": None, "job": "77", "task": 2, "node": "node1", "gpu": "h200"
    }  # fmt: skip
    assert (second["batches"], second["batches_total"], second["left_s"]) == (3, 9, 3.0)


def test_what_is_not_known_is_null_and_never_nan() -> None:
    missing = point_json(replace(a_point(1, Standing.MISSING), elapsed_s=math.nan))
    assert {missing[key] for key in ("scheduler", "job", "task", "node", "gpu", "elapsed_s", "start_at")} == {
        None
    }
    odd = replace(a_point(1, Standing.RUNNING), progress=replace(FAR, work_s=math.inf))
    assert point_json(odd)["left_s"] is None


def test_when_a_task_is_to_begin_and_where_it_runs_are_the_queues_words() -> None:
    queued = replace(waits(State.PENDING, "Priority"), start_at="2026-01-02T12:00:00", node="n7")
    told = point_json(a_point(1, Standing.WAITING, queued=queued))
    assert (told["start_at"], told["node"]) == ("2026-01-02T12:00:00", "n7")
    assert point_json(a_point(1, Standing.WAITING, queued=waits(State.PENDING)))["node"] is None


def test_the_tries_of_a_point_for_programs() -> None:
    exit_ = Exit(status=1, stage="stage_out", message="disk full", scratch="/scratch/x")
    account = Accounted(job_id="77", task=1, ended=True, outcome=None, evidence="sacct: FAILED")
    one = tried(1, Outcome.STAGE_OUT, evidence="exit file")
    full = replace(one, files=TryFiles(number=1, exit=exit_), account=account)
    home = TryStatus(
        tried=full, folder="runs/demo/t", files=("exit",), log="x.out", progress=FAR, elapsed_s=2.0
    )
    bare = TryStatus(tried=replace(one, node=""), folder="", files=(), log="", progress=None, elapsed_s=None)
    told = json.dumps(point_json(a_point(1, Standing.FAILED, Outcome.STAGE_OUT), [home, bare]))
    first, second = json.loads(told)["all_tries"]
    assert (first["exit_status"], first["scratch"], first["accounting"]) == (1, "/scratch/x", "sacct: FAILED")
    assert (first["log"], first["files"], first["batches"]) == ("x.out", ["exit"], 3)
    empty = {"exit_status", "stage", "message", "scratch", "accounting", "log", "folder", "node", "elapsed_s"}
    assert {second[key] for key in empty} == {None}
