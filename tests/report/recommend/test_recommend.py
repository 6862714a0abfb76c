from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from jobkit.answers.gpus import GPUS, GpuKind, gpu_kinds
from jobkit.answers.loads import Lengths, Loads
from jobkit.answers.memory import memory_of
from jobkit.answers.observations import NEED, RAM
from jobkit.answers.speed import CorpusVolume
from jobkit.core.errors import JobkitError
from jobkit.core.measurements import MemoryReadings
from jobkit.core.records import Outcome, Record
from jobkit.core.units import GIB
from jobkit.report.recommend import types
from jobkit.report.recommend.advice import memory_of_setting, recommend
from jobkit.report.recommend.types import Recommendation, RecommendOptions, RunData
from jobkit.runs.trials import Trial
from tests.support.builders import ITEMS, grid, record
from tests.support.recommendations import (
    BYTES_PER_LOAD,
    CONTEXT_BYTES,
    FIXED_BYTES,
    LENGTHS,
    LOADS,
    material,
    measured,
    records,
)

NOTHING = RecommendOptions()


def told(
    *said: Record, wishes: RecommendOptions = NOTHING, lengths: Lengths | None = LENGTHS
) -> Recommendation:
    return recommend(material(said or records(), lengths), wishes)


def true_largest(card_bytes: int) -> int:
    """Return the largest batch by the line that the needs were made with."""
    return LOADS.largest_batch((card_bytes - CONTEXT_BYTES - FIXED_BYTES) / BYTES_PER_LOAD)


def on_cpu(sizes: Sequence[int] = (40, 85, 130, 175, 220)) -> list[Record]:
    found = []
    for one in grid(sizes, device="cpu"):
        load = LOADS.own(one.numbers["batch_size"])
        told = record(one)
        assert told.summary
        peak = MemoryReadings(maxrss_bytes=GIB + 4_000 * load)
        found.append(replace(told, summary=replace(told.summary, load_max=load), memory=peak))
    return found


def test_the_smallest_within_five_percent_is_recommended() -> None:
    found = told()
    assert found.batch.recommended.params == {"batch_size": 175}
    assert found.batch.fastest.params == {"batch_size": 220}
    assert found.batch.times
    assert found.batch.times.differs is False
    assert found.batch.binds == types.THROUGHPUT
    assert (found.measured.points, len(found.batch.settings), found.measured.kind) == (15, 5, NEED)
    assert found.measured.capacity_bytes == GPUS["h200"].usable_bytes
    assert found.measured.overhead_bytes == CONTEXT_BYTES


@pytest.mark.parametrize("name", ["mig-1g.5gb", "mig-2g.10gb"])
def test_the_largest_batch_of_a_card_is_near_the_truth_and_never_above(name: str) -> None:
    (card,) = told(wishes=RecommendOptions(gpus=gpu_kinds(name))).cards
    truth = true_largest(card.usable_bytes)
    assert 0.97 * truth < card.prediction.safe_batch <= truth
    assert abs(card.prediction.largest_batch / truth - 1) < 0.01
    assert (card.name, card.fits, card.link) == (name, True, GPUS[name].link)


def test_a_card_may_be_too_small_for_the_recommended_batch() -> None:
    small = GpuKind(name="1GiB", usable_bytes=GIB)
    (card,) = told(wishes=RecommendOptions(gpus=(small,))).cards
    assert card.fits is False
    assert card.prediction.safe_batch < 175
    tiny = GpuKind(name="tiny", usable_bytes=CONTEXT_BYTES // 2)
    (card,) = told(wishes=RecommendOptions(gpus=(tiny,))).cards
    assert (card.fits, card.prediction.safe_batch) == (False, 0)


@pytest.mark.parametrize("lengths", [LENGTHS, None])
def test_a_trial_that_did_not_fit_caps_what_is_safe(lengths: Lengths | None) -> None:
    plain = told(lengths=lengths)
    size, there = 700, plain.batch.largest.capacity_bytes
    trial = Trial(index=16, batch_size=size, load=LOADS.own(size), capacity_bytes=there)

    def after(trial: Trial) -> Recommendation:
        return recommend(replace(material(records(), lengths), tried=(trial,)), NOTHING)

    found = after(replace(trial, outcome=Outcome.GPU_OOM)).batch
    assert plain.batch.largest.safe_batch > size > found.largest.safe_batch > 0
    assert found.largest.safe_load < trial.load
    assert "batch_size 700 is not safe" in found.largest.doubts[0]
    assert (found.settings, found.recommended) == (plain.batch.settings, plain.batch.recommended)
    assert after(replace(trial, outcome=Outcome.LOST, killed=True)).batch == found
    for harmless in (
        replace(trial, outcome=Outcome.OK, measured_bytes=1),
        replace(trial, outcome=Outcome.GPU_OOM, capacity_bytes=there / 2),
        replace(trial, outcome=Outcome.GPU_OOM, batch_size=10**9, load=10**15),
    ):
        assert after(harmless).batch == plain.batch


def test_the_largest_measured_may_be_the_whole_text() -> None:
    points = grid((40, 85, 130, 175, 220), 2)
    growing = [measured(point, point.numbers["batch_size"] + point.repeat) for point in points]
    assert told(*growing).batch.binds == types.SATURATION


def test_what_is_recommended_is_safe_or_it_is_said() -> None:
    """Also with a margin: a batch that ran within the bound's reach may not run again."""
    growing = [measured(one, one.numbers["batch_size"]) for one in grid((40, 85, 130, 175, 220), 2)]
    small = [replace(one, gpu=replace(one.gpu, total_bytes=4 * GIB)) for one in growing if one.gpu]
    seen: list[tuple[int, str | None]] = []
    for percent in range(0, 100, 5):
        found = told(*small, wishes=RecommendOptions(gpus=(), margin=percent / 100))
        size, safe = found.batch.recommended.size, found.batch.largest.safe_batch
        seen.append((size, found.batch.binds))
        if size > safe:
            assert (size, found.batch.binds) == (40, types.MEMORY)
            said = f"batch_size 40 ran, but takes more than is safe (batch_size {safe} is safe)"
            assert found.beware[0].startswith(said) or not safe
    assert seen[0] == (220, types.SWEEP)
    assert {(175, types.MEMORY), (130, types.MEMORY), (85, types.MEMORY), (40, types.MEMORY)} <= set(seen)


def test_without_lengths_the_load_grows_with_the_batch() -> None:
    found = told(lengths=None)
    other = told(lengths=Lengths.unknown(881))
    assert other.batch.largest == found.batch.largest, "batch sizes are not taken for loads"


def test_a_sweep_of_another_knob_has_no_largest_batch() -> None:
    changed = [
        replace(
            one, point=replace(one.point, params={"sentences_per_ner_batch": one.point.numbers["batch_size"]})
        )
        for one in records()
    ]
    found = told(*changed)
    assert found.batch.largest.reason.startswith("neither batch_size nor padded")
    assert found.batch.recommended.setting == "sentences_per_ner_batch 175"
    unloaded = [replace(one, summary=replace(one.summary, load_max=0)) for one in records() if one.summary]
    assert told(*unloaded).batch.largest.reason == "the workload reports no load"


def test_a_budget_has_a_largest_budget() -> None:
    """The load never exceeds it, so the safe load is the safe budget."""
    changed = []
    for one in records():
        assert one.summary
        assert one.summary.load_max
        params: dict[str, int | str] = {"padded_chars": one.summary.load_max + 3, "order": "sorted"}
        changed.append(replace(one, point=replace(one.point, params=params, order="sorted")))
    found = told(*changed)
    largest = found.batch.largest
    assert (largest.knob, largest.reason) == ("padded", "")
    assert largest.safe_batch == int(largest.safe_load)
    assert found.batch.recommended.size == found.batch.recommended.params["padded"]
    assert not any("lengths of the text" in doubt for doubt in largest.doubts)


def test_on_a_cpu_it_is_the_ram_that_was_asked_for() -> None:
    found = told(*on_cpu())
    assert (found.measured.kind, found.measured.capacity_bytes, found.cards) == (RAM, 8 * GIB, ())
    assert found.cost.seconds == 5 * 60 * 2, "two threads each"
    with pytest.raises(JobkitError, match="ran on a CPU"):
        told(*on_cpu(), wishes=RecommendOptions(gpus=gpu_kinds("h100")))


def test_records_that_say_nothing_together_are_refused() -> None:
    lost = [replace(one, outcome=Outcome.TIMEOUT) for one in records()]
    with pytest.raises(JobkitError, match="no point has succeeded") as caught:
        told(*lost)
    assert memory_of_setting(material(lost), lost[0]) is None
    assert "jobkit collect runs/demo" in (caught.value.hint or "")
    mixed = [replace(one, point=replace(one.point, order="text")) for one in records()[:3]]
    with pytest.raises(JobkitError, match="differ in order of work: load, text"):
        told(*records()[3:], *mixed)
    with pytest.raises(JobkitError, match="no point has measured work_s"):
        told(*(replace(one, summary=None) for one in records()))


def test_each_value_of_another_knob_has_a_line_of_its_own() -> None:
    """One line through both would be of neither."""
    both = []
    for one in records():
        for value in (1, 2):
            point = replace(one.point, params={**one.point.params, "sentences_per_ner_batch": 10 * value})
            more = tuple(replace(need, passed_bytes=150 * value * need.passed_bytes) for need in one.needs)
            both.append(replace(one, point=point, needs=more))
    lines = {}
    for value in (1, 2):
        alone = [one for one in both if one.point.numbers["sentences_per_ner_batch"] == 10 * value]
        lines[f"sentences_per_ner_batch {10 * value}"] = told(*alone).batch.largest
    found = told(*both).batch
    (other,) = found.lines
    assert {found.others: found.largest, other.others: other.largest} == lines
    assert other.largest.safe_batch != found.largest.safe_batch
    assert found.recommended.params["sentences_per_ner_batch"] == int(found.others.split()[-1])
    assert "another knob than batch_size" in str(memory_of(both))
    unused = [replace(one, inert=("sentences_per_ner_batch",)) for one in both]
    assert not isinstance(memory_of(unused), str), "a knob that does nothing needs no line of its own"


LONG = Loads(Lengths(paragraphs=((9_000,),) * ITEMS))
SHORT = Loads(Lengths(paragraphs=((10,),) * ITEMS))


def beware(of: RunData, corpus: CorpusVolume | None = None) -> str:
    return "; ".join(recommend(of, RecommendOptions(corpus=corpus)).beware)


def test_a_corpus_whose_items_are_longer() -> None:
    small = [
        replace(record, gpu=replace(record.gpu, total_bytes=4 * GIB)) for record in records() if record.gpu
    ]
    said = beware(material(small), CorpusVolume(name="long.txt", paragraphs=ITEMS, loads=LONG))
    assert "long.txt makes a load of 1,575,000 at this size, more than is safe: at most 31" in said
    assert "short.txt" not in beware(
        material(small), CorpusVolume(name="short.txt", paragraphs=ITEMS, loads=SHORT)
    )


def test_several_machines_on_a_cpu() -> None:
    apart = [replace(one, host=f"node{one.point.index % 3}") for one in on_cpu()]
    assert "ran on 3 machines, whose speeds may differ: node0, node1, node2" in beware(material(apart))
    assert "machines" not in beware(material(on_cpu()))


def test_points_on_a_part_of_the_text_stand_for_all_of_it() -> None:
    parts = [replace(one, point=replace(one.point, every=8)) for one in records()]
    assert told(*parts).corpus.paragraphs == len(LENGTHS.paragraphs)
    assert told(*parts, lengths=None).corpus.paragraphs == 8 * ITEMS
