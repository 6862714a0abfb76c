"""Memory of points: the largest batch that is predicted, and its doubts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from jobkit.answers.gpus import usable_bytes
from jobkit.answers.loads import Lengths, Loads
from jobkit.answers.memory import (
    ALLOCATED,
    NEED,
    NOTHING,
    RAM,
    Memory,
    Prediction,
    Wanted,
    memory_by_setting,
    memory_of,
)
from jobkit.answers.memory import Memory as Found
from jobkit.answers.memory_line import Fit, Observation, fit_memory
from jobkit.answers.setting import other_knobs
from jobkit.core.measurements import MemoryReadings, ShortcutCheck
from jobkit.core.records import Batch, Outcome, Record
from jobkit.core.units import GIB
from jobkit.runs.trials import Trial
from tests.support.builders import GPU, MODEL, batch, grid, need, record, summary, with_shortcuts

FIXED, SLOPE = 2e8, 10_000.0


def memory(*loads: float, text: Loads | None = None) -> Memory:
    """Return memory that lies a little off a line, load 100 for each paragraph of the batch."""
    off = (2e6, -3e6, 1e6, 2e6, -2e6)
    told = [
        Observation(load, FIXED + SLOPE * load + off[number % 5], str(load))
        for number, load in enumerate(loads or (2_000, 4_000, 6_000, 8_000, 10_000))
    ]
    return Memory(
        kind=NEED,
        line=fit_memory(told),
        load_by_batch={int(one.load / 100): int(one.load) for one in told},
        loads=text,
    )


def text(paragraphs: int = 1_000, source: str = "tokenizer") -> Loads:
    """Return the loads of a text of which every paragraph is one sentence of 100."""
    return Loads(Lengths(paragraphs=((100,),) * paragraphs, source=source))


def test_a_load_far_beyond_the_evidence_is_no_doubt_once_it_has_run() -> None:
    told = replace(memory(), loads=text())
    (doubt,) = told.predict(FIXED + SLOPE * 60_000).doubts
    assert doubt.endswith("times the largest load measured: far beyond the evidence")
    ran = Trial(index=9, load=60_000, outcome=Outcome.OK, measured_bytes=1, capacity_bytes=1e9)
    assert replace(told, wanted=Wanted(tried=[ran])).predict(FIXED + SLOPE * 60_000).doubts == ()


def test_memory_in_which_the_shortcuts_cannot_be_checked_holds_no_batch() -> None:
    plain = memory(text=text())
    checked = replace(plain, check_bytes=450_000_000)
    why = "the check of shortcuts alone takes 0.42 GiB"
    for capacity in (449_999_999, 0, -1):
        assert checked.predict(capacity) == Prediction(capacity_bytes=capacity, reason=why)
    assert checked.predict(450_000_000) == plain.predict(450_000_000)
    assert plain.predict(-1).reason == ""


@pytest.mark.fault
def test_a_curve_is_reported_with_the_batch_size_that_decides() -> None:
    """FAULT: memory grows faster than a line.

    HOW: five exact points with a term in the square of the load.
    REPORTED: the bound follows a curve; jobkit reports this, and which further batch size to measure.
    LOST: nothing; a curve that adds less than about fifty times the scatter is not detected.
    """
    loads = (2_000, 4_000, 6_000, 8_000, 10_000)
    bent = fit_memory([Observation(load, FIXED + SLOPE * load + 0.1 * load**2, str(load)) for load in loads])
    told = replace(memory(), line=bent)
    found = replace(told, loads=text()).predict(1e9)
    assert found.safe_batch < found.largest_batch
    said = "memory grows faster than a straight line over what was measured, so the bound follows a curve"
    assert found.doubts[0] == f"{said}: a sweep with batch_size 200 as well shows how much faster"
    assert replace(told, loads=text()).predict(2.5e8).doubts[0] == said


def test_a_workload_without_lengths_falls_back_to_the_batch_size_and_says_what_that_costs() -> None:
    loads, sizes = Loads(Lengths.unknown(1_000)), (2_000, 4_000, 6_000, 8_000, 10_000)
    told = replace(memory(), load_by_batch={size: size for size in sizes})
    found = replace(told, loads=loads).predict(FIXED + SLOPE * 500)
    assert (found.largest_batch, found.safe_batch) == (int(found.largest_load), int(found.safe_load))
    (doubt,) = found.doubts
    assert doubt.startswith("the load is the batch size")


SIZES = (10, 20, 30, 40, 50)
LOAD = 1_000
"""For each paragraph of a batch."""


def line(load: float) -> int:
    return int(2e8 + 10_000 * load)


def went_well(*, needs: bool = True, repeats: int = 1) -> list[Record]:
    """Return records of five batch sizes on one card, whose need lies on a line."""
    found = []
    for point in grid(SIZES, repeats):
        load = LOAD * point.numbers["batch_size"]
        peaks = MemoryReadings(
            context_bytes=GIB // 2,
            allocated_peak_bytes=line(load),
            reserved_peak_bytes=int(1.25 * line(load)) if load == 30_000 else int(1.1 * line(load)),
            device_idle_bytes=100,
        )
        told = replace(record(point), memory=peaks, summary=summary(load // LOAD, 8.0, load))
        found.append(replace(told, needs=(need(load, line(load)),) if needs else ()))
    return found


def ran_out(batch_size: int, *, load: int | None, cap_bytes: int | None = None) -> Record:
    """Return the record of a point that ran out of the card's memory, or of a cap."""
    point = replace(grid([batch_size])[0], cap_bytes=cap_bytes)
    return replace(record(point), outcome=Outcome.GPU_OOM, summary=None, failed_load=load)


def told(records: Sequence[Record], batches: Mapping[str, Sequence[Batch]] | None = None) -> Found:
    found = memory_of(records, batches)
    assert isinstance(found, Found), found
    return found


def fit_of(evidence: Found) -> Fit:
    assert isinstance(evidence.line, Fit), evidence.line
    return evidence.line


# -- on a GPU


def test_need_is_the_line_and_context_and_what_the_card_held_are_kept_free() -> None:
    found = told(went_well())
    assert (found.kind, found.slack, found.remarks) == (NEED, 1.0, ())
    assert fit_of(found).at(10_000) == pytest.approx(line(10_000))
    assert (found.gpu, found.limit_bytes) == (GPU.name, usable_bytes(GPU.name, GPU.total_bytes or 0))
    assert found.load_by_batch == {size: LOAD * size for size in SIZES}
    assert found.overhead_bytes == GIB // 2 + 100
    assert found.allocator_bytes(8 * GIB) == 8 * GIB - GIB // 2 - 100


def test_what_was_not_measured_is_allocated_times_the_worst_slack() -> None:
    found = told(went_well(needs=False))
    assert found.kind == ALLOCATED
    assert found.slack == pytest.approx(1.25)
    assert fit_of(found).at(10_000) == pytest.approx(1.25 * line(10_000))
    (remark,) = found.remarks
    assert remark.startswith("no point measured what its batches need: ")


def test_every_batch_counts_where_batches_are_reported() -> None:
    batches = {}
    for one in went_well():
        loads = (9_000, 10_000 + one.point.index)
        known = [replace(batch(0), load=load, allocated_peak_bytes=line(load) + 1_000_000) for load in loads]
        batches[one.point.point_id] = [replace(batch(0), load=7_777), *known]
    fit = fit_of(told(went_well(needs=False), batches))
    assert fit.at(9_000) == pytest.approx(1.25 * (line(9_000) + 1_000_000))
    assert fit_of(told(went_well(), batches)) == fit_of(told(went_well())), "the need is measured"


def test_a_context_that_nobody_knows_is_reported() -> None:
    blind = [replace(one, memory=replace(one.memory, context_bytes=None)) for one in went_well()]
    found = told(blind)
    assert found.overhead_bytes is None
    assert found.allocator_bytes(8 * GIB) == 8 * GIB
    assert "the size of the CUDA context is unknown" in found.remarks[0]


def test_workers_share_what_their_contexts_leave() -> None:
    shared = [replace(one, point=replace(one.point, workers=4)) for one in went_well()]
    found = told(shared)
    assert (found.workers, found.context_bytes) == (4, GIB // 2)
    assert found.allocator_bytes(8 * GIB) == (8 * GIB - 4 * (GIB // 2) - 100) / 4
    each = GIB // 2 + fit_of(found).upper(50_000)
    most = found.most_workers(8 * GIB, 50_000)
    assert most is not None
    assert most * each + 100 <= 8 * GIB < (most + 1) * each + 100
    assert fit_of(found) == fit_of(told(went_well())), "the line is that of one process"
    assert isinstance(memory_of([*shared, *went_well()]), str), "never mixed"


def test_points_without_figures_are_passed_over() -> None:
    bare = replace(went_well()[0], summary=None, gpu=GPU, memory=MemoryReadings(), needs=())
    found = told([bare, *went_well()[1:]])
    assert (fit_of(found).points, 10 in found.load_by_batch) == (4, False)
    other = [replace(one, point=replace(one.point, params={"paragraphs_per_call": 9})) for one in went_well()]
    assert told(other).load_by_batch == {}


def test_other_ends_say_nothing() -> None:
    lost = [replace(one, outcome=Outcome.TIMEOUT) for one in went_well()]
    assert memory_of(lost) == memory_of([]) == "no point has succeeded yet"
    assert memory_of([ran_out(90, load=90_000)]) == "no point has succeeded yet"
    assert told([*went_well(), lost[0]]) == told(went_well())


# -- nothing is mixed


SMALLER, OTHER_CARD = replace(GPU, total_bytes=70 * GIB), replace(GPU, name="Tesla V100")


def in_its_point(one: Record, **change: Any) -> Record:
    return replace(one, point=replace(one.point, **change))


CHANGES: dict[str, Callable[[Record], Record]] = {
    "GPU": lambda one: replace(one, gpu=OTHER_CARD),
    "GPU memory": lambda one: replace(one, gpu=SMALLER),
    "allocator setting": lambda one: in_its_point(one, allocator="expandable_segments:True"),
    "order of work": lambda one: in_its_point(one, order="text"),
    "version of torch": lambda one: replace(one, versions={"torch": "1.13"}),
    "model": lambda one: in_its_point(one, model=replace(MODEL, fingerprint="other")),
    "workload": lambda one: in_its_point(one, workload="mine:Own"),
    "device": lambda one: in_its_point(one, device="cpu"),
    "precision": lambda one: replace(one, effective={**one.effective, "precision": "tf32"}),
    "shortcuts": lambda one: in_its_point(one, shortcuts="exact"),
}
"""Each changes one thing of a record."""


@pytest.mark.parametrize("name", CHANGES)
def test_what_differs_is_refused_by_name(name: str) -> None:
    first, *others = went_well()
    assert str(memory_of([CHANGES[name](first), *others])).startswith(
        f"the points differ in {name.removesuffix(' memory')}: "
    )


@pytest.mark.parametrize("swept", [True, False])
def test_memory_without_shortcuts_that_were_refused_is_a_line_of_its_own(*, swept: bool) -> None:
    plain = went_well()
    if swept:
        plain = [in_its_point(one, params={**one.point.params, "shortcuts": "exact"}) for one in plain]
    exact = [with_shortcuts(one) for one in plain]
    refused = [replace(with_shortcuts(one, "why"), inert=("shortcuts",) if swept else ()) for one in plain]
    assert other_knobs(refused[0]) == "shortcuts refused"
    assert other_knobs(exact[0]) == ("shortcuts exact" if swept else "")
    assert str(memory_of([refused[0], *exact[1:]])).startswith("the points differ in shortcuts: ")
    assert fit_of(told(refused)) == fit_of(told(exact))
    settings = memory_by_setting([*exact, *refused], {}, None)
    assert set(settings) == {other_knobs(exact[0]), "shortcuts refused"}


def test_a_setting_of_which_nothing_is_known_has_the_reason_in_place_of_a_line() -> None:
    lost = replace(went_well()[0], outcome=Outcome.BUG)
    other = replace(lost, point=replace(lost.point, params={**lost.point.params, "workers": 4}))
    assert memory_by_setting([lost], {}, None) == memory_by_setting([], {}, None) == NOTHING
    found = memory_by_setting([*went_well(), other], {}, None)
    assert not isinstance(found, str)
    assert found[""] == told(went_well())
    assert (found["workers 4"].largest.reason, found["workers 4"].records) == (NOTHING, ())


def test_a_point_that_ran_out_without_its_shortcuts_does_not_raise_the_line_with_them() -> None:
    exact = [with_shortcuts(one) for one in went_well()]
    ran = ran_out(900, load=400_000, cap_bytes=6 * GIB)
    failed = with_shortcuts(ran, "why")
    assert told([*exact, failed]).line == told(exact).line != told([*exact, with_shortcuts(ran)]).line


def test_the_largest_check_of_shortcuts_counts_of_the_memory_that_is_asked_for() -> None:
    checks = [
        ShortcutCheck(seconds=1, gpu_peak_bytes=gpu, rss_peak_bytes=7 * GIB) for gpu in (5, 9, None, 8, 1)
    ]
    on_gpu = [replace(one, check=check) for one, check in zip(went_well(), checks, strict=True)]
    assert (told(on_gpu).check_bytes, told(went_well()).check_bytes) == (9, 0)
    assert told([replace(on_cpu()[0], check=checks[0]), *on_cpu()[1:]]).check_bytes == 7 * GIB
    assert told(on_cpu()).check_bytes == 0


# -- out of memory


def test_a_point_that_ran_out_raises_the_line() -> None:
    found = told([*went_well(), ran_out(900, load=400_000, cap_bytes=6 * GIB)])
    assert fit_of(told(went_well())).at(400_000) < 6 * GIB
    assert fit_of(found).at(400_000) > fit_of(told(went_well())).at(400_000)
    assert fit_of(found).safe_load(6 * GIB) < 400_000
    assert found.remarks == ()


def test_without_a_cap_it_had_the_card_less_the_context() -> None:
    card = replace(GPU, total_bytes=6 * GIB)
    small = [replace(one, gpu=card) for one in went_well()]
    found = told([*small, replace(ran_out(900, load=400_000), gpu=card)])
    [bound] = fit_of(found).failed
    assert bound.above_bytes == 6 * GIB - GIB // 2 - 100


@pytest.mark.parametrize(
    "failed",
    [
        ran_out(900, load=None),
        replace(ran_out(900, load=4_000), gpu=None),
        CHANGES["GPU"](ran_out(900, load=4_000, cap_bytes=GIB)),
        CHANGES["allocator setting"](ran_out(900, load=4_000, cap_bytes=GIB)),
    ],
)
def test_one_of_which_too_little_is_known_is_reported_and_not_counted(failed: Record) -> None:
    found = told([*went_well(), failed])
    assert found.line == told(went_well()).line
    [remark] = found.remarks
    assert remark.startswith("the line leaves out 1 of 1 point out of memory")


# -- what a reader must know


def test_other_processes_and_an_emptied_cache_are_reported() -> None:
    first, *others = went_well()
    odd = replace(first, retries=2, gpu=replace(GPU, foreign_processes=2))
    shared, flushed = told([odd, *(replace(other, retries=0) for other in others)]).remarks
    assert shared.startswith("1 of 5 points ran next to other processes")
    assert flushed == "1 of 5 points passed only after the allocator had emptied its cache"


# -- on a CPU


def on_cpu() -> list[Record]:
    found = []
    for size, point in zip(SIZES, grid(SIZES, device="cpu"), strict=True):
        peak = MemoryReadings(maxrss_bytes=line(LOAD * size), rss_peak_bytes=5)
        found.append(replace(record(point), memory=peak, summary=summary(size, 8.0, LOAD * size)))
    return found


def test_on_a_cpu_it_is_the_memory_of_the_process_also_of_one_that_was_out_of_ram() -> None:
    found = told(on_cpu())
    assert (found.kind, found.overhead_bytes, found.limit_bytes) == (RAM, 0, None)
    assert fit_of(found).at(10_000) == pytest.approx(line(10_000))
    assert found.load_by_batch == {size: LOAD * size for size in SIZES}
    assert fit_of(told([replace(on_cpu()[0], memory=MemoryReadings()), *on_cpu()[1:]])).points == 4
    point, reached = grid([900], device="cpu")[0], MemoryReadings(maxrss_bytes=6 * GIB)
    failed = replace(
        record(point), outcome=Outcome.RAM_OOM, summary=None, failed_load=400_000, memory=reached
    )
    assert fit_of(told([*on_cpu(), failed])).safe_load(6 * GIB) < 400_000
    assert told([*on_cpu(), replace(failed, failed_load=None)]).line == found.line
