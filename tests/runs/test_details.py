from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from jobkit.core.layout import CORPUS_FILE, Begin, Exit
from jobkit.core.records import JobFacts, Outcome
from jobkit.core.units import moment
from jobkit.runs.hints import progress_of_try
from jobkit.runs.reader import read_standings
from jobkit.runs.standing import PointState, PointStatus, RunStanding
from jobkit.runs.status_text import listed_tries, log_of, point_json, render_point
from jobkit.runs.tries import Try
from jobkit.schedulers.types import Accounted, State
from tests.support.builders import (
    batch,
    grid,
    point,
    record,
    write_batches,
    write_begin,
    write_exit,
    write_points,
    write_record,
    write_submitted,
)
from tests.support.programs import Programs
from tests.support.programs import queue as queue  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.statuses import HALF, a_point, a_run, tried, waits


def shown(of: PointStatus, *, mine: bool = True) -> list[str]:
    return render_point(a_run([of], mine=mine), of, "runs/demo").splitlines()


def failed(of: Try) -> PointStatus:
    return a_point(1, PointState.FAILED, of.verdict.outcome, tries=(of,))


def test_a_try_that_was_killed_shows_every_source() -> None:
    begin = Begin(
        scheduler="slurm", job="77", task=1, restart=2, round=3, host="node1", at="2026-01-02T10:20:00+00:00"
    )
    exit_ = Exit(
        status=137,
        stage="run",
        signal="TERM",
        message="results could not be copied",
        outcome=Outcome.STAGE_OUT,
        scratch="/scratch/x",
        host="node1",
    )
    account = Accounted(
        job_id="77",
        task=1,
        ended=True,
        outcome=Outcome.RAM_OOM,
        exit_status=137,
        evidence="sacct: OUT_OF_MEMORY",
        max_rss_bytes=2**33,
        elapsed_s=61.0,
    )
    killed = replace(
        tried(2, Outcome.STAGE_OUT, evidence="exit file: so it is"),
        begin=begin,
        exit=exit_,
        account=account,
    )
    began = f"{moment('2026-01-02T10:20:00+00:00'):%Y-%m-%d %H:%M:%S}"
    ran = f"slurm job 77, task 1, round 3, started again 2 times, on node1, from {began}, for 1:01"
    assert shown(failed(killed)) == [
        "p001: point 1 of 1 of demo-20260102-101530-3f9a",
        "batch_size 50, repeat 1",
        "stage_out: exit file: so it is",
        "",
        "try 2: stage_out",
        "  because     exit file: so it is",
        f"  ran         {ran}",
        "  record      not in the run folder",
        "  exit file   status 137 in step run; stage_out; results could not be copied; signal TERM",
        "  accounting  sacct: OUT_OF_MEMORY; exit status 137; at most 8.00 GiB resident",
        "  kept in     node1:/scratch/x on that node's scratch",
        "",
        "next: jobkit resume runs/demo 1   # once there is room in the run folder, run it again",
    ]


def test_a_try_beside_the_one_that_decided_the_point_is_not_called_after_it() -> None:
    """A worker that outlived its node's daemon has written nothing yet."""
    beside = tried(2, evidence="no record yet: running, or not copied home yet")
    point = a_point(1, PointState.DONE, Outcome.OK, tries=[beside, tried(1, Outcome.OK)])
    text = render_point(a_run([point]), point, "runs/demo")
    assert "try 2: no outcome" in text
    assert "running" not in text.partition("try 2")[2].partition("try 1")[0]


def test_a_record_is_shown_with_its_gpu_and_its_signal() -> None:
    home = replace(record(point()), outcome=Outcome.TIMEOUT, message="too long", signal="USR1")
    home = replace(home, job=replace(home.job, restart=1))
    found = shown(failed(tried(1, Outcome.TIMEOUT, evidence="x", record=home)))
    assert "  record      timeout; too long; signal USR1; on NVIDIA H200" in found
    assert any(", started again 1 time, " in line for line in found)


def test_a_record_without_a_gpu_and_a_provisional_outcome() -> None:
    bare = replace(record(point()), gpu=None, message="killed")
    cancelled = replace(tried(1, Outcome.CANCELLED, record=bare), node="")
    cancelled = replace(cancelled, verdict=replace(cancelled.verdict, provisional=True))
    found = shown(failed(cancelled))
    assert "try 1: cancelled (provisional)" in found
    assert "  record      ok; killed" in found


def test_a_try_that_left_nothing_but_a_file_that_cannot_be_read() -> None:
    exit_ = Exit(status=0, stage="", scratch="/s")
    lost = replace(tried(1, Outcome.LOST, task=None), problem="record.json: not JSON", exit=exit_)
    account = Accounted(job_id="77", task=1, ended=True, outcome=None)
    found = shown(failed(replace(lost, node="", account=account)))
    for line in (
        "  record      record.json: not JSON",
        "  exit file   status 0 in step unknown",
        "  kept in     /s on that node's scratch",
        "  accounting  no words",
    ):
        assert line in found
    assert not any(line.startswith("  ran") for line in found)


def test_what_to_type_about_a_point() -> None:
    held = shown(a_point(1, PointState.WAITING, queued=waits(State.HELD, "JobHeldUser")))
    assert held[4] == "no try: held"
    assert held[-1].split("#")[0].split() == ["next:", "scontrol", "release", "77_1"]
    missing = a_point(1, PointState.MISSING)
    assert shown(missing)[-1].split("#")[0].split() == ["next:", "jobkit", "resume", "runs/demo", "1"]
    assert shown(missing, mine=False)[-1] == "no try: missing"
    assert "resume runs/demo 1 " in shown(a_point(1, PointState.DONE, Outcome.PRUNED))[-1]
    assert shown(a_point(1, PointState.DONE, Outcome.OK))[-1].startswith("next: jobkit logs runs/demo 1 ")
    assert shown(a_point(1, PointState.RUNNING, batches=HALF))[-1].startswith(
        "next: jobkit logs runs/demo 1 -f "
    )
    bug = shown(failed(tried(1, Outcome.BUG, evidence="x")))
    assert bug[-2:] == [
        "once it is fixed: jobkit resume runs/demo 1",
        "next: jobkit logs runs/demo 1   # read its log",
    ]


def test_a_shard_is_of_the_folder_that_a_person_named_and_has_no_repeat(tmp_path: Path) -> None:
    folder = tmp_path / "tagged"
    folder.mkdir()
    (folder / CORPUS_FILE).touch()
    one = a_point(1, PointState.DONE, Outcome.OK)
    one = replace(one, point=replace(one.point, shard=True))
    found = render_point(a_run([one], folder=folder), one, "tagged").splitlines()
    assert found[:2] == ["p001: shard 1 of 1 of tagged", "batch_size 50"]


def test_words_from_elsewhere_do_not_control_the_terminal() -> None:
    found = shown(failed(tried(1, Outcome.BUG, evidence="\x1b[2Jgone\nand more")))
    assert "  because     \\x1b[2Jgone and more" in found
    assert all(line.isprintable() for line in found)


def test_tries_by_hand_stand_among_the_others_and_are_marked() -> None:
    by_hand = replace(record(point()), job=JobFacts(scheduler="hand", job_id="9"))
    own = [tried(number, Outcome.TIMEOUT) for number in (3, 1)]
    hand = tried(2, Outcome.OK, record=by_hand, task=None)
    of = a_point(1, PointState.FAILED, Outcome.TIMEOUT, tries=(*own, hand))
    assert [each.number for each in listed_tries(of)] == [3, 2, 1]
    assert "try 2, by hand (it counts only while no other try has begun): ok" in shown(of)


def read(run: Path) -> tuple[RunStanding, PointStatus]:
    (standing,) = read_standings([run])
    return standing, standing.points[0]


def test_all_that_is_home_of_every_try_is_found(tmp_path: Path, queue: Programs) -> None:
    (planned,) = points = grid([50])
    run = write_points(tmp_path / "run", points)
    write_submitted(run, "slurm", "77", first=1, last=1)
    write_begin(run, planned)
    write_batches(
        run, planned, [replace(batch(n), batches_total=9, characters_total=90_000) for n in range(2)]
    )
    write_exit(run, planned, Exit(status=1, stage="run"))
    write_record(run, replace(record(planned), try_number=2))
    (run / "logs").mkdir()
    (run / "logs" / "77_1.out").touch()
    standing, of = read(run)
    told = json.loads(json.dumps(point_json(standing, of, with_tries=True)))["all_tries"]
    fields = ("try", "batches", "folder", "files", "log", "elapsed_s")
    assert [[each[field] for field in fields] for each in told] == [
        [2, None, f"{run}/results/p001/try-2", ["record.json"], f"{run}/logs/77_1.out", 60],
        [1, 2, f"{run}/results/p001/try-1", ["batches.jsonl", "begin", "exit"], f"{run}/logs/77_1.out", None],
    ]
    found = render_point(standing, of, "run").splitlines()
    assert "  batches     2/9 batches" in found, "it is over, so nothing is to go"
    assert "  files       results/p001/try-1/ batches.jsonl begin exit" in found
    assert queue.asked == {}


def test_tasks_that_left_no_try_stand_before_or_behind_the_tries(tmp_path: Path, queue: Programs) -> None:
    (planned,) = points = grid([50])
    run = write_points(tmp_path / "run", points)
    for job in ("76", "77", "80"):
        write_submitted(run, "slurm", job, first=1, last=1)
    write_begin(run, planned)
    write_exit(run, planned, Exit(status=1, stage="stage_in"))
    queue.holds("80_1|PENDING|Priority|||N/A")
    queue.says("sacct", "76_1|NODE_FAIL|0:0|3||1G|1|n1|None|demo-20260102-101530-3f9a")
    standing, of = read(run)
    waiting, begun, vanished = listed_tries(of)
    assert [each.task and each.task.job_id for each in (waiting, begun, vanished)] == ["80", "77", "76"]
    assert [each.number for each in (waiting, begun, vanished)] == [0, 1, 0]
    assert begun.verdict.outcome is Outcome.STAGE_IN
    assert (log_of(standing, of, waiting), progress_of_try(waiting)) == ("", None)
