"""Predict, try, step down: on run folders of real records, with trials simulated by the test."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.answers import search
from jobkit.answers.loads import Lengths
from jobkit.core.files import append_line, read_lines, write_atomically
from jobkit.core.json_codec import from_json, to_json
from jobkit.core.layout import LENGTHS_FILE, POINTS_FILE, SEARCH_GOAL_FILE, TRIALS_FILE, Exit
from jobkit.core.measurements import MemoryReadings
from jobkit.core.records import Outcome, Point, Record
from jobkit.core.units import GIB
from jobkit.report.rows import never_began, read_sources
from jobkit.runs.journal import Role
from jobkit.runs.results import read_run
from jobkit.runs.search_loop import next_point
from jobkit.runs.trials import ALLOCATOR, PROCESS, SearchGoal, describe_trials, finished, trials
from jobkit.worker.measure import nvml
from tests.support.builders import (
    GPU,
    ITEMS,
    grid,
    need,
    record,
    write_answer,
    write_begin,
    write_exit,
    write_record,
    write_records,
    write_submitted,
)

SIZES = (10, 20, 30, 40, 50)
BYTES_PER_LOAD = GIB // 100 / 900
"""Of the records of `tests.support.builders` on a CPU: 0.01 GiB and a load of 900 for each paragraph."""


def ram(size: int) -> int:
    return size * GIB // 100


def measured(point: Point) -> Record:
    """Return a record slightly off the line, so that the bound is above it; each worker needs as much."""
    size = point.numbers.get("batch_size") or round(point.numbers["padded"] / 900)
    whole = replace(record(replace(point, params={"batch_size": size})), point=point)
    off = 2**16 if point.index % 2 else -(2**16)
    if point.device == "cpu":
        each = ram(size) + off
        return replace(whole, memory=MemoryReadings(maxrss_bytes=each, rss_peak_bytes=point.workers * each))
    return replace(whole, needs=(need(900 * size, ram(size) + off),))


def want(run: Path, memory_bytes: int | None, after: int = 0) -> None:
    wanted = SearchGoal(memory_bytes=memory_bytes, ram_bytes=2 * GIB, after=after)
    write_atomically(run / SEARCH_GOAL_FILE, to_json(wanted))


def run_of(
    folder: Path,
    *,
    sizes: Sequence[int] = SIZES,
    memory_bytes: int | None = GIB,
    lengths: bool = True,
    knob: str = "batch_size",
    **of: Any,
) -> Path:
    """Return a run folder whose points succeeded, and whose largest batch is wanted."""
    points = [replace(point, **{"device": "cpu", **of}) for point in grid(sizes)]
    if knob == "padded":
        points = [replace(point, params={knob: 900 * point.numbers["batch_size"]}) for point in points]
    run = write_records(folder / "run", map(measured, points))
    if lengths:
        write_atomically(run / LENGTHS_FILE, Lengths(paragraphs=((900,),) * ITEMS).to_json())
    want(run, memory_bytes)
    return run


def points_of(run: Path) -> list[Point]:
    return [from_json(Point, line, where="points") for _, line in read_lines(run / POINTS_FILE)]


def ends(run: Path, point: Point, outcome: Outcome, size_bytes: int | None = None) -> None:
    """Bring a trial's record home."""
    told = replace(measured(point), outcome=outcome)
    if size_bytes is not None:
        told = replace(told, memory=MemoryReadings(maxrss_bytes=size_bytes))
    write_record(run, told)


def planned(run: Path) -> Point:
    point = next_point(run, search.propose_trial)
    assert point is not None
    return point


def is_over(run: Path) -> bool:
    return next_point(run, search.propose_trial) is None and finished(run)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the job that searches see no GPU: none is another than the points had."""
    monkeypatch.setattr(nvml, "visible_uuid", lambda _: None)


def test_the_safe_batch_is_tried_as_a_point_of_its_own_and_if_it_holds_it_is_the_last(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    assert "the largest batch has not been tested yet" in str(read_sources([run]).notes)
    point = planned(run)
    assert read_sources([run]).rows[-1].point == point
    (trial,) = trials(run)
    assert (point.index, point.point_id) == (6, f"batch_size-{trial.batch_size}-verify")
    assert points_of(run)[5:] == [point]
    assert (point.params, point.repeat, point.cap_bytes) == ({"batch_size": trial.batch_size}, 1, None)
    assert trial.under_way
    assert trial.load == 900 * trial.batch_size
    assert trial.expected_bytes == pytest.approx(BYTES_PER_LOAD * trial.load, rel=1e-3)
    assert trial.expected_bytes < trial.bound_bytes <= trial.capacity_bytes == GIB
    assert trial.bound_bytes + 900 * BYTES_PER_LOAD > GIB, "the next batch would not be safe"
    assert trial.memory == PROCESS
    assert next_point(run, search.propose_trial) is None, "it may still run"
    assert not finished(run)
    ends(run, point, Outcome.OK)
    assert is_over(run)
    before = {path: path.read_bytes() for path in (run / TRIALS_FILE, run / POINTS_FILE)}
    assert is_over(run)
    assert before == {path: path.read_bytes() for path in before}, "asked again, nothing changes"
    (trial,) = trials(run)
    assert (trial.held, trial.measured_bytes) == (True, measured(point).memory.maxrss_bytes)


@pytest.mark.parametrize("lengths", [True, False], ids=["lengths", "no lengths"])
def test_what_did_not_fit_is_followed_by_at_most_95_percent_three_times_in_all(
    tmp_path: Path, *, lengths: bool
) -> None:
    run = run_of(tmp_path, lengths=lengths)
    outcomes = [Outcome.RAM_OOM, Outcome.OK, Outcome.RAM_OOM]
    for outcome in outcomes:
        point = planned(run)
        last = trials(run)[-1]
        assert last.load == 900 * last.batch_size
        ends(run, point, outcome, GIB + 1)
    assert is_over(run)
    tried = trials(run)
    assert all(after.load <= 0.95 * before.load for before, after in itertools.pairwise(tried))
    assert [trial.outcome for trial in tried] == outcomes
    assert not any(trial.held for trial in tried)


@pytest.mark.parametrize("outcome", [Outcome.BUG, Outcome.CANCELLED, Outcome.OK])
def test_what_says_nothing_of_memory_ends_it_until_it_is_asked_for_anew(
    tmp_path: Path, outcome: Outcome
) -> None:
    """An old failure must not settle the new trial, a point of its own: nothing of it has run."""
    run = run_of(tmp_path)
    first = planned(run)
    write_record(run, replace(measured(first), outcome=outcome, memory=MemoryReadings()))
    assert is_over(run)
    assert (trials(run)[-1].outcome, trials(run)[-1].held) == (outcome, False)
    want(run, GIB, after=1)
    second = planned(run)
    assert (second.params, second.point_id) == (first.params, f"{first.point_id}-2")
    assert next_point(run, search.propose_trial) is None
    assert trials(run)[1].under_way
    assert [len(point.tries) for point in read_run(run).points] == [*[1] * 6, 0]


def test_a_worker_that_was_killed_is_taken_for_out_of_memory(tmp_path: Path) -> None:
    """On Slurm the kernel kills the worker alone; the job script lives and tells its status."""
    run = run_of(tmp_path)
    write_exit(run, planned(run), Exit(status=137, stage="run"))
    smaller = planned(run)
    first, second = trials(run)
    assert (first.outcome, first.killed) == (Outcome.LOST, True)
    assert second.load <= 0.95 * first.load
    ends(run, smaller, Outcome.OK)
    assert is_over(run)
    for number, exit_ in enumerate(
        (Exit(status=137, stage="run", signal="TERM"), Exit(status=1, stage="run"))
    ):
        run = run_of(tmp_path / str(number))
        write_exit(run, planned(run), exit_)
        assert next_point(run, search.propose_trial) is None
        assert not trials(run)[-1].killed, "it ended otherwise"


def test_what_the_run_has_measured_is_not_tried_again(tmp_path: Path) -> None:
    """Neither a batch of the sweep, nor one that a trial has proved; asked again, it is the same batch."""
    run = run_of(tmp_path)
    first = planned(run)
    ends(run, first, Outcome.OK)
    assert is_over(run)
    want(run, GIB, after=1)
    assert is_over(run)
    again = trials(run)[-1]
    assert again.proved
    assert f"batch_size {first.params['batch_size']} was measured already: it needed " in again.message
    whole = run_of(tmp_path / "whole", sizes=(10, 20, 40, ITEMS), memory_bytes=1000 * GIB)
    assert is_over(whole)
    assert trials(whole)[-1].proved
    assert len(points_of(whole)) == 4


def test_a_gpu_is_capped_and_judged_by_need_else_by_the_reserved_peak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "visible_uuid", lambda _: "GPU-1")
    monkeypatch.setattr(nvml, "read_gpu", lambda uuid: replace(GPU, uuid=uuid))
    run = run_of(tmp_path, device="cuda")
    point = planned(run)
    (trial,) = trials(run)
    assert (point.cap_bytes, trial.memory) == (GIB, ALLOCATOR)
    write_record(run, replace(measured(point), outcome=Outcome.GPU_OOM, needs=(), failed_load=trial.load))
    second = planned(run)
    assert trials(run)[-1].load <= 0.95 * trial.load
    write_record(run, measured(second))
    assert is_over(run)
    last = trials(run)[-1]
    assert (last.held, last.measured_bytes) == (True, measured(second).needs[0].passed_bytes)
    run = run_of(tmp_path / "reserved", device="cuda")
    peak = MemoryReadings(reserved_peak_bytes=GIB - 7)
    write_record(run, replace(measured(planned(run)), needs=(), memory=peak))
    assert is_over(run)
    assert trials(run)[-1].measured_bytes == GIB - 7
    monkeypatch.setattr(nvml, "read_gpu", lambda *_: replace(GPU, name="NVIDIA A40"))
    run = run_of(tmp_path / "other", device="cuda")
    assert next_point(run, search.propose_trial) is None
    assert "the points ran on NVIDIA H200, but this job was given NVIDIA A40" in trials(run)[0].message


@pytest.mark.parametrize("lengths", [True, False], ids=["lengths", "no lengths"])
def test_the_largest_budget_is_found_in_the_same_way(tmp_path: Path, *, lengths: bool) -> None:
    run = run_of(tmp_path, knob="padded", memory_bytes=GIB // 2, lengths=lengths)
    point = planned(run)
    (trial,) = trials(run)
    assert (trial.knob, trial.batch_size) == ("padded", 0)
    assert point.point_id == f"padded-{trial.size}-verify"
    assert point.params == {"padded": trial.size}
    assert trial.load <= trial.size < trial.load + 900, "a budget caps the load"
    assert trial.expected_bytes < trial.bound_bytes <= trial.capacity_bytes == GIB // 2
    assert BYTES_PER_LOAD * (trial.size + 900) > GIB // 2
    ends(run, point, Outcome.RAM_OOM)
    second = planned(run)
    assert trials(run)[-1].load <= 0.95 * trial.load
    ends(run, second, Outcome.OK)
    assert is_over(run)
    last = trials(run)[-1]
    assert last.held
    assert describe_trials([last])[0].startswith(f"padded {last.size:,} fits in 512.0 MiB of process")
    want(run, GIB // 2, after=2)
    assert planned(run).params == point.params, "what failed before does not bind a new search"


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("workers", [2, 3])
def test_workers_share_the_memory_of_a_gpu(tmp_path: Path, workers: int) -> None:
    """Each is capped at an equal part, and its need is compared with that part."""
    run = run_of(tmp_path, device="cuda", workers=workers)
    point = planned(run)
    (trial,) = trials(run)
    assert (point.workers, point.cap_bytes) == (workers, GIB // workers)
    assert trial.expected_bytes < trial.bound_bytes <= trial.capacity_bytes == GIB // workers
    alone = run_of(tmp_path / "alone", device="cuda", memory_bytes=GIB // workers)
    assert planned(alone).params == point.params, "as if it had the part for itself"
    failed = trial.load - 900
    write_record(run, replace(measured(point), outcome=Outcome.GPU_OOM, needs=(), failed_load=failed))
    assert planned(run).cap_bytes == GIB // workers
    assert trials(run)[-1].load < min(0.95 * trial.load, failed), "the line has learned of it"
    (said,) = describe_trials([replace(trial, outcome=Outcome.OK, measured_bytes=1)])
    assert f" of allocator memory of each of {workers} workers (plus the CUDA contexts)" in said
    assert said.endswith("an allocator setting that was not recorded"), "the records have no environment"


def test_workers_on_a_cpu_are_measured_together(tmp_path: Path) -> None:
    run = run_of(tmp_path, workers=2)
    point = planned(run)
    (trial,) = trials(run)
    assert (point.cap_bytes, trial.capacity_bytes) == (None, GIB)
    assert trial.expected_bytes == pytest.approx(2 * BYTES_PER_LOAD * trial.load, rel=1e-3)
    write_record(run, measured(point))
    assert is_over(run)
    last = trials(run)[-1]
    assert last.measured_bytes == 2 * (measured(point).memory.maxrss_bytes or 0)
    assert " of process memory of the 2 workers together: needed " in describe_trials([last])[0]


@pytest.mark.usefixtures("no_gpu")
def test_without_a_memory_it_is_all_of_the_card_or_what_the_job_asks_for(tmp_path: Path) -> None:
    run = run_of(tmp_path, device="cuda", memory_bytes=None)
    assert planned(run).cap_bytes is None
    assert GPU.total_bytes is not None
    assert 0.9 * GPU.total_bytes < trials(run)[0].capacity_bytes <= GPU.total_bytes - 3 * GIB // 4
    silent = run_of(tmp_path / "silent", device="cuda", memory_bytes=None)
    for one in points_of(silent):
        write_record(silent, replace(measured(one), gpu=replace(GPU, total_bytes=None)))
    assert next_point(silent, search.propose_trial) is None
    assert "set find_max.memory" in trials(silent)[0].message
    cpu = run_of(tmp_path / "cpu", memory_bytes=None)
    planned(cpu)
    assert trials(cpu)[0].capacity_bytes == 2 * GIB


def test_the_text_ends_the_batch_or_the_budget(tmp_path: Path) -> None:
    for name, lengths in (("known", True), ("unknown", False)):
        run = run_of(tmp_path / name, memory_bytes=1000 * GIB, lengths=lengths)
        assert planned(run).params == {"batch_size": ITEMS}
    run = run_of(tmp_path, knob="padded", memory_bytes=1000 * GIB)
    assert planned(run).params == {"padded": 100 * 900}, "a call of 100 paragraphs is one batch"


ONE_KNOB = "find_max needs a sweep of batch_size or padded in which no other knob varies"


@pytest.mark.parametrize(
    ("sizes", "memory_bytes", "knob", "why"),
    [
        ((10, 20, 30), GIB, "batch_size", "3 distinct loads measured, and a line with an error needs 4"),
        (SIZES, 2**20, "batch_size", "not even a batch of 1 fits"),
        (SIZES, 2**20, "padded", "not even a batch of the longest sentence fits"),
        ((), GIB, "batch_size", "no point has succeeded yet"),
        (SIZES, GIB, "another", ONE_KNOB),
    ],
)
def test_where_nothing_can_be_tried_it_says_why_once(
    tmp_path: Path, sizes: Sequence[int], memory_bytes: int, knob: str, why: str
) -> None:
    run = run_of(tmp_path, sizes=sizes, memory_bytes=memory_bytes, knob=knob)
    if knob == "another":
        odd = [replace(one, params={**one.params, "tokenizer_batch": one.index}) for one in points_of(run)]
        (run / POINTS_FILE).write_text("".join(to_json(one) + "\n" for one in odd), encoding="utf-8")
    assert is_over(run)
    assert is_over(run)
    assert [(trial.index, trial.message) for trial in trials(run)] == [(0, why)]
    assert len(points_of(run)) == len(sizes)


def test_the_command_prints_the_number_of_the_point_and_says_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tmp_path)
    monkeypatch.setattr(sys, "argv", ["search", str(run)])
    assert search.main() == 0
    out, err = capsys.readouterr()
    assert (out, err[:21]) == ("6\n", "find_max: batch_size ")
    ends(run, points_of(run)[-1], Outcome.OK)
    assert search.main() == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert " fits in " in err
    (run / SEARCH_GOAL_FILE).unlink()
    assert search.main() == 1
    assert "find_max.json: No such file" in capsys.readouterr().err


@pytest.mark.fault
def test_a_search_that_was_killed_between_its_two_lines_goes_on(tmp_path: Path) -> None:
    """FAULT: the search for the largest batch is killed between writing a trial and writing its point.

    HOW: real: the two files as such a kill leaves them.
    REPORTED: nothing: a trial without a point never began, so jobkit writes the same trial again.
    LOST: nothing.
    """
    run = run_of(tmp_path)
    before = (run / POINTS_FILE).read_bytes()
    point = next_point(run, search.propose_trial)
    (run / POINTS_FILE).write_bytes(before)
    assert trials(run) == []
    assert "being tried" not in str(read_sources([run]))
    assert next_point(run, search.propose_trial) == point
    assert [trial.index for trial in trials(run)] == [points_of(run)[-1].index]


@pytest.mark.fault
def test_a_trial_that_was_killed_before_it_began_is_not_being_tried(tmp_path: Path) -> None:
    """FAULT: the search for the largest batch is killed between writing a trial's point and its start.

    HOW: real: the files as such a kill leaves them, with the answer of Slurm's accounting.
    REPORTED: once the accounting reports the end of the job: that the trial never began, and the `jobkit
    resume` command that runs it.
    LOST: nothing.
    """
    run = run_of(tmp_path)
    point = planned(run)
    write_submitted(run, "slurm", "78", first=1, last=1, role=Role.FIND, round=1)
    assert "is being tested" in str(read_sources([run]).notes)
    row = f"78_1|FAILED|1:0|1||1G|1|n1|None|{point.run_id}\n"
    write_answer(run, "slurm", "accounting", row, argv=["sacct"])
    (note,) = (source for source in read_sources([run]).notes if "never began" in source)
    assert note.endswith(f"{run} {point.point_id} runs it")
    assert never_began(run, [point])
    write_begin(run, point)
    assert not never_began(run, [point]), "it began after it was read"
    write_submitted(run, "slurm", "79", first=point.index, last=point.index, round=2)
    assert "is being tested" in str(read_sources([run]).notes), "resumed"


def test_a_profile_is_no_evidence(tmp_path: Path) -> None:
    plain, more = run_of(tmp_path / "plain"), run_of(tmp_path / "more")
    profiled = replace(points_of(more)[0], index=6, point_id="batch_size-1-profile", profile="torch")
    append_line(more / POINTS_FILE, to_json(profiled))
    write_record(more, replace(measured(profiled), memory=MemoryReadings(maxrss_bytes=GIB)))
    expected, found = planned(plain), planned(more)
    assert (found.params, found.index) == (expected.params, 7)
