from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.layout import Begin, Exit
from jobkit.core.records import Outcome
from jobkit.runs.hints import FixKind, Step
from jobkit.runs.journal import Role
from jobkit.runs.progress import Progress
from jobkit.runs.standing import PointState, PointStatus, Requested, RunStanding
from jobkit.runs.status_text import cut, far_words, next_line, plain, render, stand_in_warning
from jobkit.runs.tries import Try
from jobkit.schedulers.types import State
from tests.support.builders import GPU, point, record
from tests.support.statuses import HALF, a_point, a_run, tried, waits, with_job

FAR = Progress(batches=12, batches_total=40, characters=1200, characters_total=4000, work_s=60.0)


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


def test_one_point_runs_at_a_time() -> None:
    run = a_run([a_point(1, PointState.RUNNING, batches=HALF)])
    assert lines(run)[1].endswith("about 1 s to go if 1 runs at a time, as now")


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


def test_a_run_that_was_never_submitted_has_nothing_in_common() -> None:
    run = a_run([a_point(1, PointState.MISSING)], submissions=(), request=Requested)
    assert lines(run)[2:4] == ["", "point  state"]


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


def test_of_several_steps_one_is_next_and_what_changes_the_run_stands_before_it() -> None:
    listed = [
        Step("jobkit logs runs/demo 1", "its log", FixKind.LOG),
        Step("jobkit resume runs/demo 1", "once it is fixed"),
        Step("jobkit collect runs/demo", "the table", FixKind.LOOK),
    ]
    assert next_line(listed) == [
        "",
        "once it is fixed: jobkit resume runs/demo 1",
        "next: jobkit logs runs/demo 1   # its log",
    ]
    assert next_line([]) == []


@pytest.mark.parametrize("width", range(20, 60))
def test_a_line_is_not_cut_within_a_number_or_before_its_unit(width: int) -> None:
    shown = cut("ram_oom  sacct: MaxRSS 1,205.6 MiB of ReqMem 150.0 MiB, FAILED", width)
    assert len(shown) <= width
    assert re.fullmatch(r"[^0-9]*(1,205\.6 MiB[^0-9]*)?(150\.0 MiB.*)?", shown)


def test_a_long_word_is_cut() -> None:
    assert cut("kept in /scratch/a/long/folder/of/a/node", 24) == "kept in /scratch/a/long…"


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
