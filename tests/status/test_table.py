from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.records import Outcome
from jobkit.outcome.journal import Role
from jobkit.outcome.remedies import Step
from jobkit.schedulers.types import State
from jobkit.status.progress import Progress, SkippedTime
from jobkit.status.standing import Standing
from jobkit.status.summary import PointStatus, RequestedGpus, RunStatus
from jobkit.status.table import cut, far_words, plain, render, steps
from tests.support.statuses import a_job, a_point, a_run, tried, waits

FAR = Progress(batches=12, batches_total=40, characters=1200, characters_total=4000, work_s=60.0)
H200 = "NVIDIA H200"
TAKEN = "each taken to last as long as what made it needless"


def lines(run: RunStatus, *, width: int = 120, most: int = 40) -> list[str]:
    return render(run, "runs/demo", width=width, most=most).splitlines()


def rows(run: RunStatus, *, width: int = 120, most: int = 40) -> list[str]:
    """Return the table alone."""
    found = lines(run, width=width, most=most)
    start = next(n for n, line in enumerate(found) if line.startswith("point "))
    return found[start : found.index("", start)]


def test_a_run_on_a_page() -> None:
    points = [
        replace(a_point(1, Standing.DONE, Outcome.OK), elapsed_s=62.0, gpu=H200),
        replace(a_point(2, Standing.FAILED, Outcome.STAGE_IN, why="exit file: no text"), gpu="h200"),
        replace(a_point(3, Standing.RUNNING), elapsed_s=45.0, progress=FAR, gpu="h200"),
        replace(a_point(4, Standing.RUNNING), elapsed_s=3.0, gpu="h200"),
        a_point(5, Standing.WAITING, why="Priority: others are before it", queued=waits(State.PENDING)),
    ]
    run = replace(a_run(points, [a_job(Role.FOLLOW, "waiting")]), to_go_s=1500.0, saved=SkippedTime(2, 120.0))
    assert lines(run) == [
        "demo-20260102-101530-3f9a: 5 points: 1 done, 1 failed (1 stage_in), 2 running, 1 waiting",
        "slurm, NVIDIA H200, about 25 min to go if 2 run at a time, as now",
        f"saved about 2 min of GPU time: 2 points were left out, {TAKEN}",
        "",
        "point  state     elapsed  node",
        "p001   ok           1:02  node1",
        "p002   stage_in           node1  no text",
        "p003   running      0:45  node1  12/40 batches, 2 min to go",
        "p004   running      0:03  node1  no batch is home yet",
        "p005   waiting                   Priority: others are before it",
        "",
        "job 79, which runs again what the policy says, begins when the points have ended",
        "",
        "next",
        "  jobkit status runs/demo 2        # all about p002, and why it failed",
        "  jobkit resume runs/demo          # runs again the point that failed",
        "  jobkit logs runs/demo 3 -f       # what p003 says",
        "  jobkit status runs/demo --watch  # follows it to its end",
        "  jobkit collect runs/demo         # the table of what is done",
    ]


def test_what_was_saved_where_there_are_no_gpus_is_job_time() -> None:
    run = replace(
        a_run([a_point(1, Standing.DONE, Outcome.OK)]), asked=RequestedGpus(), saved=SkippedTime(1, 30.0)
    )
    assert lines(run)[2].startswith("saved about 30 s of job time: 1 point was left out, ")


def test_one_point_runs_at_a_time() -> None:
    run = replace(a_run([a_point(1, Standing.RUNNING)]), to_go_s=30.0)
    assert lines(run)[1].endswith("about 30 s to go if 1 runs at a time, as now")


def test_cards_that_differ_have_a_column_and_tries_only_where_there_are_several() -> None:
    again = tuple(tried(n, Outcome.OK) for n in (2, 1))
    points = [
        replace(a_point(1, Standing.DONE, Outcome.OK), gpu=H200),
        replace(a_point(2, Standing.DONE, Outcome.OK, tries=again), gpu="NVIDIA A100"),
    ]
    assert rows(a_run(points)) == [
        "point  state  try  node   GPU",
        "p001   ok          node1  H200",
        "p002   ok       2  node1  A100",
    ]
    other = [points[0], replace(points[1], gpu="a100")]
    assert rows(a_run(other))[0].endswith("GPU"), "an a100 was asked for, and an H200 is another card"


def test_where_room_is_short_columns_go_before_words_do() -> None:
    why = "CUDA out of memory. Tried to allocate 3.00 GiB"
    again = tuple(tried(n, Outcome.BUG) for n in (2, 1))
    cards = [replace(a_point(n, Standing.DONE, Outcome.OK), gpu=gpu) for n, gpu in ((2, "A"), (3, "B"))]
    failed = replace(a_point(1, Standing.FAILED, Outcome.BUG, why=why, tries=again), elapsed_s=60.0)
    run = a_run([failed, *cards])
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
def test_no_row_is_wider_than_the_terminal_or_tells_it_what_to_do(words: list[str], width: int) -> None:
    points = [a_point(n, Standing.FAILED, Outcome.BUG, why=why) for n, why in enumerate(words, 1)]
    found = rows(a_run(points), width=width)
    assert len(found) == len(points) + 1
    assert all(len(line) <= width and line.isprintable() for line in found)


def many() -> list[PointStatus]:
    def waiting(index: int, reason: str) -> PointStatus:
        return a_point(index, Standing.WAITING, why=reason, queued=waits(State.PENDING, reason))

    points = [a_point(n, Standing.DONE, Outcome.OK) for n in range(1, 601)]
    points += [a_point(n, Standing.DONE, Outcome.GPU_OOM, why="no room") for n in range(601, 604)]
    points += [a_point(n, Standing.FAILED, Outcome.BUG, why="broken") for n in range(604, 644)]
    points += [a_point(n, Standing.RUNNING) for n in range(644, 648)]
    points += [waiting(n, "Priority") for n in range(648, 997)]
    points += [waiting(997, "Resources")]
    points += [a_point(998, Standing.WAITING, why="held", queued=waits(State.HELD, "JobHeldUser"))]
    points += [a_point(999, Standing.STUCK, why="why", queued=waits(State.ERROR, "BadConstraints"))]
    points += [a_point(1000, Standing.MISSING, why="never submitted")]
    return points


def test_of_many_points_only_what_wants_to_be_looked_at_is_listed() -> None:
    found = rows(a_run(many()))
    assert found[0].split() == ["point", "state", "node"]
    assert [line.split()[:2] for line in found[1:4]] == [["p999", "stuck"], ["p998", "held"], ["p604", "bug"]]
    assert [line.split() for line in found[-10:]] == [
        ["20", "more", "bug"],
        ["p644", "running", "node1", "no", "batch", "is", "home", "yet"],
        ["p645", "running", "node1", "no", "batch", "is", "home", "yet"],
        ["p646", "running", "node1", "no", "batch", "is", "home", "yet"],
        ["p647", "running", "node1", "no", "batch", "is", "home", "yet"],
        ["600", "points", "ok"],
        ["3", "points", "gpu_oom"],
        ["349", "points", "waiting", "Priority"],
        ["1", "point", "waiting", "Resources"],
        ["1", "point", "missing"],
    ]
    assert len(found) == 1 + 2 + 20 + 10


def test_of_many_points_those_that_were_cancelled_are_counted() -> None:
    cancelled = [a_point(n, Standing.FAILED, Outcome.CANCELLED, why="taken back") for n in range(2, 60)]
    found = rows(a_run([a_point(1, Standing.FAILED, Outcome.BUG), *cancelled]))
    assert [line.split()[:3] for line in found[1:]] == [
        ["p001", "bug", "node1"],
        ["58", "points", "cancelled"],
    ]


def test_all_are_listed_where_all_are_asked_for() -> None:
    assert len(rows(a_run(many()), most=1000)) == 1001


def test_what_could_not_be_read_is_named_and_the_rest_counted() -> None:
    run = a_run([a_point(1, Standing.DONE, Outcome.OK)], notes=tuple(f"line {n}" for n in range(1, 8)))
    found = lines(run)
    assert found[found.index("line 1") :][:6] == [
        *(f"line {n}" for n in range(1, 6)),
        "and 2 more that could not be read",
    ]


def test_a_run_that_was_never_submitted_has_nothing_in_common() -> None:
    run = a_run([a_point(1, Standing.MISSING)])
    bare = replace(run, seen=replace(run.seen, submissions=()))
    assert lines(bare)[1:3] == ["", "point  state"]


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (FAR, "12/40 batches, 2 min to go"),
        (replace(FAR, batches_total=None), "12 batches, 2 min to go"),
        (replace(FAR, batches=1, batches_total=None, characters_total=None), "1 batch"),
    ],
)
def test_how_far_a_try_is_in_words(progress: Progress, words: str) -> None:
    assert far_words(progress) == words
    assert far_words(progress, over=True) == words.partition(",")[0]


def test_comments_stand_below_where_there_is_no_room_beside() -> None:
    some = [Step("jobkit resume runs/demo", "does it all again"), Step("true", "nothing")]
    assert steps(some, 80)[2:] == [
        "  jobkit resume runs/demo  # does it all again",
        "  true                     # nothing",
    ]
    assert steps(some, 40)[2:] == [
        "  jobkit resume runs/demo",
        "      # does it all again",
        "  true",
        "      # nothing",
    ]
    assert steps([], 80) == []


@given(st.text())
def test_any_text_is_one_line_that_a_terminal_only_shows(text: str) -> None:
    shown = plain(text)
    assert shown.isprintable()
    assert plain(shown) == shown


@given(st.text(alphabet="abc …", max_size=50), st.integers(1, 60))
def test_a_line_is_cut_to_the_width(text: str, width: int) -> None:
    assert len(cut(text, width)) <= width
