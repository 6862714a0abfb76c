"""What `jobkit status` prints of a run and of a point, as text and as JSON."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.layout import CORPUS_FILE, Begin, Exit
from jobkit.core.records import JobFacts, Outcome
from jobkit.core.units import moment
from jobkit.runs.hints import progress_of_try
from jobkit.runs.journal import Role
from jobkit.runs.reader import read_standings
from jobkit.runs.standing import PointState, PointStatus, Requested, RunStanding
from jobkit.runs.status_text import (
    cut,
    listed_tries,
    log_of,
    plain,
    point_json,
    render,
    render_point,
    run_json,
    stand_in_warning,
)
from jobkit.runs.tries import Try
from jobkit.schedulers.types import Accounted, State
from tests.support.builders import (
    GPU,
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
from tests.support.statuses import HALF, a_point, a_run, tried, waits, with_job


def lines(run: RunStanding, *, width: int = 120, most: int = 40) -> list[str]:
    return render(run, "runs/demo", width=width, most=most).splitlines()


def rows(run: RunStanding, *, width: int = 120, most: int = 40) -> list[str]:
    """Return the table alone."""
    found = lines(run, width=width, most=most)
    start = next(n for n, line in enumerate(found) if line.startswith("point "))
    return found[start : found.index("", start)]


def done(index: int, gpu: str = GPU.name, tries: int = 1) -> PointStatus:
    of = point(index)
    home = replace(record(of), gpu=replace(GPU, name=gpu))
    every = [tried(number, Outcome.OK, record=home) for number in range(tries, 0, -1)]
    return a_point(index, PointState.DONE, Outcome.OK, tries=every)


def test_a_run_on_a_page() -> None:
    running = waits(State.RUNNING, elapsed_s=45)
    points = [
        done(1),
        a_point(2, PointState.FAILED, Outcome.STAGE_IN, why="exit file: no text"),
        a_point(3, PointState.RUNNING, batches=HALF, queued=running),
        a_point(4, PointState.RUNNING, queued=running),
        a_point(5, PointState.WAITING, queued=waits(State.PENDING, "Priority")),
    ]
    run = with_job(a_run(points), Role.FOLLOW, State.PENDING, "Dependency")
    assert lines(run) == [
        "demo-20260102-101530-3f9a: 5 points: 1 done, 1 failed (1 stage_in), 2 running, 1 waiting",
        "slurm, NVIDIA H200, about 54 s to go if 2 run at a time, as now",
        "warning: STAND-IN model, in place of en full: its results are not those of en",
        "",
        "point  state     elapsed  node",
        "p001   ok           1:00  node1",
        "p002   stage_in           node1  no text",
        "p003   running      0:45  node1  2/40 batches, 1 s to go",
        "p004   running      0:45  node1  no batch is copied home yet",
        "p005   waiting                   Priority: other jobs are ahead of it",
        "",
        "next: jobkit status runs/demo 2   # all about p002, and why it failed",
    ]


@pytest.mark.parametrize(
    ("gpus", "saved"), [(2, "2 min of GPU time: 1 point was"), (0, "60 s of job time: ")]
)
def test_what_pruning_saved_is_gpu_time_or_job_time(gpus: int, saved: str) -> None:
    out = tried(1, Outcome.GPU_OOM, record=record(point(1)))
    exit_ = Exit(status=0, stage="gate", outcome=Outcome.PRUNED, because="p001")
    left_out = replace(tried(1, Outcome.PRUNED), exit=exit_)
    points = [
        a_point(1, PointState.DONE, Outcome.GPU_OOM, tries=[out]),
        a_point(2, PointState.DONE, Outcome.PRUNED, tries=[left_out]),
    ]
    assert f"pruning saved about {saved}" in lines(a_run(points, request=lambda: Requested(gpus)))[3]
    more = [*points, replace(points[1], point=point(3))]
    assert "2 points were" in lines(a_run(more))[3]


def test_gpus_that_differ_have_a_column_and_tries_only_if_there_are_several() -> None:
    run = a_run([done(1), done(2, "NVIDIA A100", tries=2)])
    assert rows(run) == [
        "point  state  elapsed  try  node   GPU",
        "p001   ok        1:00       node1  H200",
        "p002   ok        1:00    2  node1  A100",
    ]
    other = a_run([done(1), a_point(2, PointState.RUNNING)], request=lambda: Requested(1, "a100"))
    assert rows(other)[0].endswith("GPU"), "the spec requests an a100, and an H200 is another GPU"


def test_if_room_is_short_columns_go_before_words_do() -> None:
    why = "CUDA out of memory. Tried to allocate 3.00 GiB"
    again = [tried(n, Outcome.BUG, evidence=why, record=replace(record(point(1)), gpu=None)) for n in (2, 1)]
    run = a_run([a_point(1, PointState.FAILED, Outcome.BUG, tries=again), done(2, "A"), done(3, "B")])
    heads = {width: rows(run, width=width)[0].split() for width in (120, 62, 58, 50, 40)}
    assert heads == {
        120: ["point", "state", "elapsed", "try", "node", "GPU"],
        62: ["point", "state", "elapsed", "node"],
        58: ["point", "state", "elapsed"],
        50: ["point", "state"],
        40: ["point", "state"],
    }
    assert rows(run, width=40)[1].endswith("…")


@given(st.lists(st.text(max_size=60), min_size=1, max_size=6), st.integers(40, 200))
def test_no_row_is_wider_than_the_terminal_or_controls_it(words: list[str], width: int) -> None:
    points = [a_point(n, PointState.FAILED, Outcome.BUG, why=why) for n, why in enumerate(words, 1)]
    found = rows(a_run(points), width=width)
    assert len(found) == len(points) + 1
    assert all(len(line) <= width and line.isprintable() for line in found)


def many() -> list[PointStatus]:
    def waiting(index: int, reason: str) -> PointStatus:
        return a_point(index, PointState.WAITING, queued=waits(State.PENDING, reason))

    points = [a_point(n, PointState.DONE, Outcome.OK) for n in range(1, 31)]
    points += [a_point(n, PointState.DONE, Outcome.GPU_OOM, why="no room") for n in range(31, 34)]
    points += [a_point(n, PointState.FAILED, Outcome.BUG, why="broken") for n in range(34, 74)]
    points += [a_point(n, PointState.RUNNING) for n in range(74, 76)]
    points += [waiting(n, "Priority") for n in range(76, 96)]
    points += [waiting(96, "Resources")]
    points += [a_point(97, PointState.WAITING, queued=waits(State.HELD, "JobHeldUser"))]
    points += [a_point(98, PointState.STUCK, queued=waits(State.ERROR, "BadConstraints"))]
    points += [a_point(n, PointState.FAILED, Outcome.CANCELLED) for n in (99, 100)]
    points += [a_point(101, PointState.MISSING)]
    return points


def test_of_many_points_only_what_a_person_wants_to_see_is_listed() -> None:
    found = rows(a_run(many()))
    assert found[0].split() == ["point", "state", "node"]
    assert [line.split()[:2] for line in found[1:4]] == [["p098", "stuck"], ["p097", "held"], ["p034", "bug"]]
    assert [line.split()[:4] for line in found[-9:]] == [
        ["20", "more", "bug"],
        ["p074", "running", "node1", "no"],
        ["p075", "running", "node1", "no"],
        ["30", "points", "ok"],
        ["3", "points", "gpu_oom"],
        ["20", "points", "waiting", "Priority:"],
        ["1", "point", "waiting", "Resources:"],
        ["2", "points", "cancelled"],
        ["1", "point", "missing"],
    ]
    assert len(found) == 1 + 2 + 20 + 9
    assert len(rows(a_run(many()), most=1000)) == 102


def test_what_could_not_be_read_is_named_and_the_rest_counted() -> None:
    run = a_run([a_point(1, PointState.DONE, Outcome.OK)], notes=tuple(f"line {n}" for n in range(1, 8)))
    found = lines(run)
    assert found[found.index("line 1") :][:6] == [
        *(f"line {n}" for n in range(1, 6)),
        "and 2 more that could not be read",
    ]


@given(st.text(max_size=50), st.integers(1, 60))
def test_any_text_is_one_line_that_a_terminal_only_shows(text: str, width: int) -> None:
    shown = plain(text)
    assert shown.isprintable()
    assert plain(shown) == shown
    assert len(cut(shown, width)) <= width


def test_the_reason_why_results_are_not_home_is_shown_whole() -> None:
    why = "exit file: No space left on device; results kept in /scratch/" + "long/" * 30 + "out"
    run = a_run([a_point(1, PointState.FAILED, Outcome.STAGE_OUT, why=why)])
    assert why.removeprefix("exit file: ") in render(run, "runs/demo", width=80, most=40)


def test_what_is_not_known_of_a_run_is_left_out() -> None:
    run = a_run([a_point(1, PointState.MISSING)], submissions=(), request=Requested)
    assert lines(run)[2:4] == ["", "point  state"]
    older = a_run([a_point(1, PointState.RUNNING, batches=[batch(0)])])
    assert rows(older)[1].endswith("  1 batch"), "of an older jobkit: without a total"


def test_a_corpus_that_is_not_planned_yet_names_the_stand_in_of_its_order(tmp_path: Path) -> None:
    assert stand_in_warning(a_run([], folder=tmp_path)) == ""
    (tmp_path / "apply.json").write_text('{"caveat": "STAND-IN model, in place of en tiny"}')
    assert stand_in_warning(a_run([], folder=tmp_path)) == "warning: STAND-IN model, in place of en tiny"


def test_the_queues_that_points_got_are_counted_if_they_differ() -> None:
    def in_queue(index: int, queue: str) -> PointStatus:
        begin = Begin(scheduler="slurm", job="7", task=index, restart=0, round=1, queue=queue)
        return a_point(index, PointState.RUNNING, batches=HALF, tries=[Try(number=1, begin=begin)])

    points = [in_queue(1, "short"), in_queue(2, "short"), in_queue(3, "long")]
    assert "they landed: 2 in short, 1 in long" in lines(a_run(points))
    assert not any("landed" in line for line in lines(a_run(points[:2])))


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
        tried(2, Outcome.STAGE_OUT, evidence="exit file: so it is"), begin=begin, exit=exit_, account=account
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
    write_exit(run, planned, Exit(status=1, stage="stage_out", message="disk full", scratch="/scratch/x"))
    write_record(run, replace(record(planned), try_number=2))
    (run / "logs").mkdir()
    (run / "logs" / "77_1.out").touch()
    standing, of = read(run)
    told = json.loads(json.dumps(point_json(standing, of, with_tries=True)))["all_tries"]
    where = ("exit_status", "stage", "message", "scratch", "accounting")
    assert [[each[field] for field in where] for each in told] == [
        [None] * 5,
        [1, "stage_out", "disk full", "/scratch/x", None],
    ]
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
    queued = waits(State.PENDING, "Priority", start_at="2026-01-02T12:00:00", node="n7")
    found = of(a_point(1, PointState.WAITING, queued=queued))
    assert (found["start_at"], found["node"]) == ("2026-01-02T12:00:00", "n7"), "by the queue"


def test_each_source_of_a_try_has_a_line_only_for_what_it_knows() -> None:
    home = replace(record(point()), outcome=Outcome.TIMEOUT, message="too long", signal="USR1")
    home = replace(home, job=replace(home.job, restart=1))
    found = shown(failed(tried(1, Outcome.TIMEOUT, evidence="x", record=home)))
    assert "  record      timeout; too long; signal USR1; on NVIDIA H200" in found
    assert any(", started again 1 time, " in line for line in found)
    bare = replace(record(point()), gpu=None, message="killed")
    cancelled = tried(1, Outcome.CANCELLED, record=bare)
    found = shown(failed(replace(cancelled, verdict=replace(cancelled.verdict, provisional=True))))
    assert "try 1: cancelled (provisional)" in found
    assert "  record      ok; killed" in found
    lost = replace(tried(1, Outcome.LOST, task=None), problem="record.json: not JSON", node="")
    account = Accounted(job_id="77", task=1, ended=True, outcome=None)
    found = shown(failed(replace(lost, exit=Exit(status=0, stage="", scratch="/s"), account=account)))
    assert {
        "  record      record.json: not JSON",
        "  exit file   status 0 in step unknown",
        "  kept in     /s on that node's scratch",
        "  accounting  no words",
    } <= set(found)
    assert not any(line.startswith("  ran") for line in found)


def test_a_line_is_cut_at_a_word_and_not_within_a_number_or_before_its_unit() -> None:
    for width in range(20, 60):
        found = cut("ram_oom  sacct: MaxRSS 1,205.6 MiB of ReqMem 150.0 MiB, FAILED", width)
        assert len(found) <= width
        assert re.fullmatch(r"[^0-9]*(1,205\.6 MiB[^0-9]*)?(150\.0 MiB.*)?", found)
    assert cut("kept in /scratch/a/long/folder/of/a/node", 24) == "kept in /scratch/a/long…"
