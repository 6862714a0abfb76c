from __future__ import annotations

from dataclasses import replace

from jobkit.core.job_files import Begin, Exit
from jobkit.core.records import Job, Outcome
from jobkit.outcome.journal import Task
from jobkit.outcome.timing import moment
from jobkit.outcome.tries import TryResult
from jobkit.outcome.verdict import TryFiles
from jobkit.schedulers.types import Accounted, State
from jobkit.status.standing import Standing
from jobkit.status.summary import PointStatus, TryStatus
from jobkit.status.table import render_point
from tests.status.test_table import FAR
from tests.support.builders import point, record
from tests.support.statuses import a_point, a_run, tried, waits

TASK = Task("slurm", "77", 1)


def told(one: PointStatus, *tries: TryStatus, mine: bool = True) -> list[str]:
    run = replace(a_run([one]), mine=mine)
    return render_point(run, one, tries, "runs/demo", width=120).splitlines()


def home(of: TryResult, **known: object) -> TryStatus:
    folder = f"runs/demo/results/p001/try-{of.files.number}" if of.files.number else ""
    bare = TryStatus(tried=of, folder=folder, files=(), log="", progress=None, elapsed_s=None)
    return replace(bare, **known)  # type: ignore[arg-type]


def test_a_try_that_was_killed_tells_every_source() -> None:
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
    )
    one = replace(
        tried(2, Outcome.STAGE_OUT, evidence="exit file: it says so", task=TASK),
        files=TryFiles(number=2, begin=begin, exit=exit_),
        account=account,
    )
    failed = a_point(1, Standing.FAILED, Outcome.STAGE_OUT, why="exit file: it says so", tries=(one,))
    seen = home(one, files=("begin", "exit"), log="runs/demo/logs/77_1.out", progress=FAR, elapsed_s=61.0)
    found = told(failed, seen)
    began = f"{moment('2026-01-02T10:20:00+00:00'):%Y-%m-%d %H:%M:%S}"
    ran = f"slurm job 77, task 1, round 3, started again 2 times, on node1, from {began}, for 1:01"
    assert found == [
        "p001: point 1 of 1 of demo-20260102-101530-3f9a",
        "batch_size 50, repeat 1",
        "stage_out: exit file: it says so",
        "",
        "try 2: stage_out",
        "  because     exit file: it says so",
        f"  ran         {ran}",
        "  batches     12/40 batches",
        "  record      none is home",
        "  exit file   status 137 in step run; stage_out; results could not be copied; signal TERM",
        "  accounting  sacct: OUT_OF_MEMORY; exit status 137; at most 8.00 GiB resident",
        "  kept in     node1:/scratch/x on that node's scratch",
        "  log         logs/77_1.out",
        "  files       results/p001/try-2/ begin exit",
        "",
        "next",
        "  jobkit logs runs/demo 1    # what it said",
        "  jobkit resume runs/demo 1  # once there is room in the run folder, run it again",
    ]


def test_a_record_is_told_with_its_card_and_its_signal() -> None:
    home_ = replace(record(point()), outcome=Outcome.TIMEOUT, message="too long", signal="USR1")
    home_ = replace(home_, job=replace(home_.job, restart=1))
    one = replace(tried(1, Outcome.TIMEOUT, evidence="x", task=TASK), files=TryFiles(number=1, record=home_))
    found = told(a_point(1, Standing.FAILED, Outcome.TIMEOUT, tries=(one,)), home(one))
    assert "  record      timeout; too long; signal USR1; on NVIDIA H200" in found
    assert any(", started again 1 time, " in line for line in found)


def test_only_what_runs_has_something_to_go() -> None:
    now, before = tried(2, task=TASK), tried(1, Outcome.PREEMPTED, task=TASK)
    running = a_point(1, Standing.RUNNING, tries=(now, before))
    found = told(running, *(home(one, progress=FAR) for one in (now, before)))
    assert [line for line in found if "batches" in line] == [
        "  batches     12/40 batches, 2 min to go",
        "  batches     12/40 batches",
    ]
    left = a_point(1, Standing.UNSETTLED, tries=(now,))
    assert "  batches     12/40 batches" in told(left, home(now, progress=FAR))


def test_a_record_without_a_card_and_a_provisional_outcome() -> None:
    bare = replace(record(point()), gpu=None, message="killed")
    one = replace(tried(1, Outcome.CANCELLED), files=TryFiles(number=1, record=bare), node="")
    one = replace(one, verdict=replace(one.verdict, provisional=True))
    found = told(a_point(1, Standing.FAILED, Outcome.CANCELLED, tries=(one,)), home(one))
    assert "try 1: cancelled (provisional)" in found
    assert "  record      ok; killed" in found


def test_a_try_that_left_nothing_but_a_file_that_cannot_be_read() -> None:
    files = TryFiles(number=1, problem="record.json: not JSON", exit=Exit(status=0, stage="", scratch="/s"))
    one = replace(
        tried(1, Outcome.LOST),
        files=files,
        node="",
        account=Accounted(job_id="77", task=1, ended=True, outcome=None),
    )
    found = told(a_point(1, Standing.FAILED, Outcome.LOST, tries=(one,)), home(one))
    assert "  record      record.json: not JSON" in found
    assert "  exit file   status 0 in step unknown" in found
    assert "  kept in     /s on that node's scratch" in found
    assert "  accounting  no words" in found
    assert not any(line.startswith("  ran") for line in found)


def test_of_a_point_that_has_not_begun_its_task_is_told_and_what_lets_it_go_on() -> None:
    held = a_point(1, Standing.WAITING, why="held by you", queued=waits(State.HELD, "JobHeldUser"))
    found = told(held, home(held.look.counts))
    assert found[2] == "held: held by you"
    assert found[4] == "no try: held"
    assert found[-1].split() == ["scontrol", "release", "77_1", "#", "lets", "1", "point", "go", "on"]


def test_a_point_that_was_never_submitted_can_be() -> None:
    missing = a_point(1, Standing.MISSING)
    assert told(missing, home(missing.look.counts))[-1].split()[:4] == [
        "jobkit",
        "resume",
        "runs/demo",
        "1",
    ]
    assert told(missing, home(missing.look.counts), mine=False)[-1] == "no try: missing"


def test_a_point_that_was_left_out_can_be_run_and_one_that_is_done_cannot() -> None:
    pruned = a_point(1, Standing.DONE, Outcome.PRUNED)
    assert "resume runs/demo 1 " in told(pruned, home(pruned.look.counts))[-1]
    done = a_point(1, Standing.DONE, Outcome.OK)
    assert told(done, home(done.look.counts))[-1] == "  jobkit logs runs/demo 1  # what it said"


def test_words_from_elsewhere_do_not_tell_the_terminal_what_to_do() -> None:
    one = tried(1, Outcome.BUG, evidence="\x1b[2Jgone\nand more", task=TASK)
    failed = a_point(1, Standing.FAILED, Outcome.BUG, why="\x1b[2Jgone", tries=(one,))
    found = told(failed, home(one))
    assert "  because     \\x1b[2Jgone and more" in found
    assert all(line.isprintable() for line in found)


def test_a_try_by_hand_says_that_it_is_one() -> None:
    own = tried(1, Outcome.TIMEOUT, evidence="x", task=TASK)
    run = replace(record(point()), job=Job(scheduler="hand", job_id="9"), try_number=2)
    by_hand = replace(tried(2, Outcome.OK), files=TryFiles(number=2, record=run))
    found = told(a_point(1, Standing.FAILED, Outcome.TIMEOUT, tries=(own,)), home(own), home(by_hand))
    assert "try 2, by hand (it counts only while no other try has begun): ok" in found
