"""What `jobkit status` prints of a run and of a point, as text and as JSON."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.layout import Begin, Exit
from jobkit.core.records import JobFacts, Outcome
from jobkit.runs.journal import Role
from jobkit.runs.reader import read_status
from jobkit.runs.status import PointStanding, PointStatus, RunStatus
from jobkit.runs.status_text import cut, listed_tries, point_json, render, render_point, stand_in_warning
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
from tests.support.statuses import HALF, a_point, a_run, tried, waits, with_job


def lines(run: RunStatus, *, width: int = 120, most: int = 40) -> list[str]:
    return render(run, "runs/demo", width=width, most=most).splitlines()


def rows(run: RunStatus, *, width: int = 120, most: int = 40) -> list[str]:
    """Return the table alone."""
    found = lines(run, width=width, most=most)
    start = next(n for n, line in enumerate(found) if line.startswith("point "))
    return found[start : found.index("", start)]


def test_a_run_on_a_page() -> None:
    running = waits(State.RUNNING, elapsed_s=45)
    points = [
        a_point(1, PointStanding.DONE, Outcome.OK, tries=[tried(1, Outcome.OK, record=record(point(1)))]),
        a_point(2, PointStanding.FAILED, Outcome.STAGE_IN, why="exit file: no text"),
        a_point(3, PointStanding.RUNNING, batches=HALF, queued=running),
        a_point(4, PointStanding.RUNNING, queued=running),
        a_point(5, PointStanding.WAITING, queued=waits(State.PENDING, "Priority")),
    ]
    run = with_job(a_run(points), Role.FOLLOW, State.PENDING, "Dependency")
    assert lines(run) == [
        "demo-20260102-101530-3f9a: 5 points: 1 done, 1 failed (1 stage_in), 2 running, 1 waiting",
        "slurm job 77, NVIDIA H200, about 54 s to go if 2 run at a time, as now",
        "warning: STAND-IN model, in place of en full: its results are not those of en",
        "",
        "point  state     elapsed  node",
        "p001   ok           1:00  node1",
        "p002   stage_in           node1  no text",
        "p003   running      0:45  node1  2/40 batches, 1 s to go",
        "p004   running      0:45  node1  no progress is copied home yet",
        "p005   waiting                   Priority: other jobs are ahead of it",
        "",
        "next: jobkit status runs/demo 2   # all about p002, and why it failed",
    ]


def test_when_a_run_ends_is_not_known_if_a_point_takes_longer_than_others_and_reports_nothing() -> None:
    done = a_point(1, PointStanding.DONE, Outcome.OK, tries=[tried(1, Outcome.OK, record=record(point(1)))])
    late = a_point(2, PointStanding.RUNNING, queued=waits(State.RUNNING, elapsed_s=100))
    text = render(a_run([done, late]), "runs/demo", width=120, most=40)
    assert "end of the run is not known; running longer than other points, without a report: p002\n" in text
    assert "to go" not in text


@given(st.lists(st.text(max_size=60), min_size=1, max_size=6), st.integers(40, 200))
def test_no_row_is_wider_than_the_terminal_or_controls_it(words: list[str], width: int) -> None:
    points = [a_point(n, PointStanding.FAILED, Outcome.BUG, why=why) for n, why in enumerate(words, 1)]
    found = rows(a_run(points), width=width)
    assert len(found) == len(points) + 1
    assert all(len(line) <= width and line.isprintable() for line in found)


def many() -> list[PointStatus]:
    points = [a_point(n, PointStanding.DONE, Outcome.OK) for n in range(1, 31)]
    points += [a_point(n, PointStanding.FAILED, Outcome.BUG, why="broken") for n in range(31, 71)]
    points += [a_point(71, PointStanding.RUNNING)]
    for n, state, reason in ((72, State.PENDING, "Priority"), (73, State.HELD, "JobHeldUser")):
        points += [a_point(n, PointStanding.WAITING, queued=waits(state, reason))]
    points += [a_point(74, PointStanding.STUCK, queued=waits(State.ERROR, "BadConstraints"))]
    return [*points, a_point(75, PointStanding.MISSING)]


def test_many_points_are_a_line_for_each_state_the_most_urgent_first() -> None:
    assert [line.split(maxsplit=3) for line in rows(a_run(many()))[1:]] == [
        ["1", "point", "stuck", "p074: BadConstraints: no node has what it requests"],
        ["40", "points", "bug", "for instance p031: broken"],
        ["1", "point", "running", "p071: no progress is copied home yet"],
        ["30", "points", "ok"],
        ["1", "point", "waiting", "p072: Priority: other jobs are ahead of it"],
        ["1", "point", "held", "p073: JobHeldUser: held by its owner"],
        ["1", "point", "missing", "p075: never submitted"],
    ]
    assert len(rows(a_run(many()), most=1000)) == 76


def test_what_could_not_be_read_is_named_and_why_results_are_not_home() -> None:
    run = a_run([a_point(1, PointStanding.DONE, Outcome.OK)], notes=tuple(f"line {n}" for n in range(1, 8)))
    found = lines(run)
    assert found[found.index("line 5") :][:2] == ["line 5", "and 2 more notes"]
    why = "exit file: No space left on device; results kept in /scratch/" + "long/" * 30 + "out"
    run = a_run([a_point(1, PointStanding.FAILED, Outcome.STAGE_OUT, why=why)])
    assert why.removeprefix("exit file: ") in render(run, "runs/demo", width=80, most=40)


def test_a_corpus_that_is_not_planned_yet_names_the_stand_in_of_its_order(tmp_path: Path) -> None:
    assert stand_in_warning(a_run([], folder=tmp_path)) == ""
    (tmp_path / "apply.json").write_text('{"caveat": "STAND-IN model, in place of en tiny"}')
    assert stand_in_warning(a_run([], folder=tmp_path)) == "warning: STAND-IN model, in place of en tiny"


def shown(of: PointStatus, *, mine: bool = True) -> list[str]:
    return render_point(a_run([of], mine=mine), of, "runs/demo").splitlines()


def test_a_try_shows_every_source_and_is_not_called_after_the_one_that_decided() -> None:
    begin = Begin(scheduler="slurm", job="77", task=1, restart=2, round=3, host="node1")
    exit_ = Exit(status=137, stage="run", signal="TERM", message="no copy", scratch="/x", host="node1")
    account = Accounted(job_id="77", task=1, ended=True, outcome=None, exit_status=137, max_rss_bytes=2**33)
    killed = tried(2, Outcome.STAGE_OUT, evidence="\x1b[2Jgone\nand more")
    killed = replace(killed, begin=begin, exit=exit_, account=account)
    found = shown(a_point(1, PointStanding.FAILED, killed.outcome, tries=(killed,)))
    assert all(line.isprintable() for line in found)
    assert {
        "  because     \\x1b[2Jgone and more",
        "  ran         slurm job 77, task 1, round 3, started again 2 times, on node1",
        "  record      not in the run folder",
        "  exit file   status 137 in step run; no copy; signal TERM",
        "  accounting  no words; exit status 137; at most 8.00 GiB resident",
        "  kept in     node1:/x on that node's scratch",
    } <= set(found)
    # A worker that outlived its node's daemon has written nothing yet.
    beside = tried(2, evidence="no record yet: running, or not copied home yet")
    point = a_point(1, PointStanding.DONE, Outcome.OK, tries=[beside, tried(1, Outcome.OK)])
    text = render_point(a_run([point]), point, "runs/demo")
    assert "try 2: no outcome" in text
    assert "running" not in text.partition("try 2")[2].partition("try 1")[0]


def test_what_to_type_about_a_point() -> None:
    held = shown(a_point(1, PointStanding.WAITING, queued=waits(State.HELD, "JobHeldUser")))
    assert held[4] == "no try: held"
    assert held[-1].split("#")[0].split() == ["next:", "scontrol", "release", "77_1"]
    missing = a_point(1, PointStanding.MISSING)
    assert shown(missing)[-1].split("#")[0].split() == ["next:", "jobkit", "resume", "runs/demo", "1"]
    assert shown(missing, mine=False)[-1] == "no try: missing"
    running = shown(a_point(1, PointStanding.RUNNING, batches=HALF))
    assert running[-1].startswith("next: jobkit logs runs/demo 1 -f ")


def test_tries_by_hand_stand_among_the_others_and_are_marked() -> None:
    by_hand = replace(record(point()), job=JobFacts(scheduler="hand", job_id="9"))
    own = [tried(number, Outcome.TIMEOUT) for number in (3, 1)]
    hand = tried(2, Outcome.OK, record=by_hand, task=None)
    of = a_point(1, PointStanding.FAILED, Outcome.TIMEOUT, tries=(*own, hand))
    assert [each.number for each in listed_tries(of)] == [3, 2, 1]
    assert "try 2, by hand (it counts only while no other try has begun): ok" in shown(of)


def read(run: Path) -> tuple[RunStatus, PointStatus]:
    (standing,) = read_status([run])
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


def of(point: PointStatus, *, with_tries: bool = False) -> dict[str, object]:
    return point_json(a_run([point]), point, with_tries=with_tries)


def test_what_is_not_known_is_null_and_never_nan() -> None:
    missing = of(a_point(1, PointStanding.MISSING))
    unknown = ("scheduler", "job", "task", "node", "elapsed_s", "start_at")
    assert {missing[key] for key in unknown} == {None}
    endless = [replace(batch(0), seconds=math.inf, characters_total=10**6)]
    queued = waits(State.RUNNING, elapsed_s=math.nan)
    odd = of(a_point(1, PointStanding.RUNNING, batches=endless, queued=queued))
    assert (odd["left_s"], odd["elapsed_s"]) == (None, None)
    queued = waits(State.PENDING, "Priority", start_at="2026-01-02T12:00:00", node="n7")
    found = of(a_point(1, PointStanding.WAITING, queued=queued))
    assert (found["start_at"], found["node"]) == ("2026-01-02T12:00:00", "n7"), "by the queue"


def test_a_line_is_cut_at_a_word_and_not_within_a_number_or_before_its_unit() -> None:
    for width in range(20, 60):
        found = cut("ram_oom  sacct: MaxRSS 1,205.6 MiB of ReqMem 150.0 MiB, FAILED", width)
        assert len(found) <= width
        assert re.fullmatch(r"[^0-9]*(1,205\.6 MiB[^0-9]*)?(150\.0 MiB.*)?", found)
    assert cut("kept in /scratch/a/long/folder/of/a/node", 24) == "kept in /scratch/a/long…"
