"""What is recommended: setting, batch, GPUs, precision, energy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from jobkit.answers.gpus import GPUS, GpuKind, gpu_kinds
from jobkit.answers.loads import Lengths, Loads
from jobkit.answers.memory import RAM
from jobkit.answers.speed import CorpusVolume
from jobkit.core.blocks import as_text
from jobkit.core.errors import JobkitError
from jobkit.core.measurements import NOT_ATTRIBUTABLE, Energy, MemoryReadings
from jobkit.core.records import Outcome, Record
from jobkit.core.units import GIB
from jobkit.report.recommend.advice import (
    MEMORY,
    SATURATION,
    SWEEP,
    Advice,
    memory_of_setting,
    recommend,
    uses,
)
from jobkit.report.recommend.material import RunData
from jobkit.report.recommend.output import blocks, cautions
from jobkit.runs.agreement import Agreement
from jobkit.runs.trials import Trial
from jobkit.spec.sweep_spec import Resources
from tests.support.builders import GPU, ITEMS, grid, point, record, summary
from tests.support.recommendations import (
    BYTES_PER_LOAD,
    CONTEXT_BYTES,
    FIXED_BYTES,
    LENGTHS,
    LOADS,
    RATES,
    SCATTER,
    SIZES,
    material,
    measured,
    records,
)


def told(*said: Record, lengths: Lengths | None = LENGTHS, **wishes: Any) -> Advice:
    return recommend(material(said or records(), lengths), **wishes)


def test_a_knob_without_effect_is_named_on_the_first_screen() -> None:
    inert = [replace(one, inert=("batch_size",), effective={"batch_size": 7}) for one in records()]
    assert "  batch_size had no effect: what ran is batch_size 7" in cautions(told(*inert))
    assert not any("had no effect" in line for line in cautions(told()))


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


def test_the_largest_batch_of_a_card_is_near_the_truth_and_never_above() -> None:
    found = told(gpus=gpu_kinds("mig-1g.5gb,mig-2g.10gb"))
    assert [card for card, _ in found.predictions] == [GPUS["mig-1g.5gb"], GPUS["mig-2g.10gb"]]
    for card, largest in found.predictions:
        truth = true_largest(card.usable_bytes)
        assert 0.97 * truth < largest.safe_batch <= truth
        assert abs(largest.largest_batch / truth - 1) < 0.01
        assert found.holds(largest)


def test_a_card_may_be_too_small_for_the_recommended_batch() -> None:
    small = GpuKind(name="1GiB", usable_bytes=GIB)
    tiny = GpuKind(name="tiny", usable_bytes=CONTEXT_BYTES // 2)
    found = told(gpus=(small, tiny))
    assert [found.holds(largest) for _, largest in found.predictions] == [False, False]
    assert 175 > found.predictions[0][1].safe_batch > found.predictions[1][1].safe_batch == 0


@pytest.mark.parametrize("lengths", [LENGTHS, None])
def test_a_trial_that_did_not_fit_caps_what_is_safe(lengths: Lengths | None) -> None:
    plain = told(lengths=lengths)
    size, there = 700, plain.memory.largest.capacity_bytes
    trial = Trial(index=16, batch_size=size, load=LOADS.own(size), capacity_bytes=there)

    def after(trial: Trial) -> Advice:
        return recommend(replace(material(records(), lengths), tried=(trial,)))

    found = after(replace(trial, outcome=Outcome.GPU_OOM))
    assert plain.memory.largest.safe_batch > size > found.largest.safe_batch > 0
    assert found.largest.safe_load < trial.load
    assert "batch_size 700 is not safe" in found.largest.doubts[0]
    assert (found.settings, found.recommended) == (plain.settings, plain.recommended)
    assert after(replace(trial, outcome=Outcome.LOST, killed=True)).largest == found.largest
    for harmless in (
        replace(trial, outcome=Outcome.OK, measured_bytes=1),
        replace(trial, outcome=Outcome.GPU_OOM, capacity_bytes=there / 2),
        replace(trial, outcome=Outcome.GPU_OOM, batch_size=10**9, load=10**15),
    ):
        assert after(harmless).largest == plain.largest


def test_the_largest_measured_may_be_the_whole_text() -> None:
    points = grid((40, 85, 130, 175, 220), 2)
    growing = [measured(point, point.numbers["batch_size"] + point.repeat) for point in points]
    assert told(*growing).binds == SATURATION


def test_what_is_recommended_is_safe_or_it_is_said() -> None:
    """Also with a margin: a batch that ran within the bound's reach may not run again."""
    growing = [measured(one, one.numbers["batch_size"]) for one in grid((40, 85, 130, 175, 220), 2)]
    small = [replace(one, gpu=replace(one.gpu, total_bytes=4 * GIB)) for one in growing if one.gpu]
    seen: list[tuple[int, str | None]] = []
    for percent in range(0, 100, 5):
        found = told(*small, gpus=(), margin=percent / 100)
        size, safe = found.recommended.size, found.memory.largest.safe_batch
        seen.append((size, found.binds))
        if size > safe:
            assert (size, found.binds) == (40, MEMORY)
            said = f"batch_size 40 ran, but takes more than is safe (batch_size {safe} is safe)"
            assert found.beware[0].startswith(said) or not safe
    assert seen[0] == (220, SWEEP)
    assert {(175, MEMORY), (130, MEMORY), (85, MEMORY), (40, MEMORY)} <= set(seen)


def test_without_lengths_the_load_grows_with_the_batch() -> None:
    found = told(lengths=None)
    other = told(lengths=Lengths.unknown(881))
    assert other.memory.largest == found.memory.largest, "batch sizes are not taken for loads"


def test_a_sweep_of_another_knob_has_no_largest_batch() -> None:
    changed = []
    for one in records():
        params = {"sentences_per_ner_batch": one.point.numbers["batch_size"]}
        changed.append(replace(one, point=replace(one.point, params=params)))
    found = told(*changed)
    assert found.memory.largest.reason.startswith("neither batch_size nor padded")
    assert found.recommended.setting == "sentences_per_ner_batch 175"
    unloaded = [replace(one, summary=replace(one.summary, load_max=0)) for one in records() if one.summary]
    assert told(*unloaded).memory.largest.reason == "the workload reports no load"


def test_a_budget_has_a_largest_budget() -> None:
    """The load never exceeds it, so the safe load is the safe budget."""
    changed = []
    for one in records():
        assert one.summary
        assert one.summary.load_max
        params: dict[str, int | str] = {"padded_chars": one.summary.load_max + 3, "order": "sorted"}
        changed.append(replace(one, point=replace(one.point, params=params, order="sorted")))
    found = told(*changed)
    largest = found.memory.largest
    assert (largest.knob, largest.reason) == ("padded", "")
    assert largest.safe_batch == int(largest.safe_load)
    assert found.recommended.size == found.recommended.params["padded"]
    assert not any("lengths of the text" in doubt for doubt in largest.doubts)


@pytest.mark.parametrize("first", ["1GiB", "64GiB"])
def test_on_a_cpu_it_is_the_ram_that_jobkit_requests(first: str) -> None:
    fast = [
        replace(one, summary=summary(size, 400 / size, LOADS.own(size)))
        for one, size in zip(on_cpu(), SIZES, strict=True)
    ]
    of = replace(material(fast), resources=Resources.model_validate({"memory": first}))
    found = recommend(of)
    assert (found.memory.kind, found.predictions) == (RAM, [])
    assert found.recommended.params == {"batch_size": 220}, "measured, though in more than the first request"
    assert found.binds == SWEEP
    assert found.request
    assert found.memory.limit_bytes == found.request.memory_bytes == 3 * GIB
    known = memory_of_setting(of, fast[-1])
    assert known
    assert known.limit_bytes == 3 * GIB
    held = Trial(index=6, batch_size=900, load=10**6, outcome=Outcome.OK, capacity_bytes=9 * GIB)
    assert recommend(replace(of, tried=(held,))).memory.limit_bytes == 9 * GIB


def test_of_a_cpu_what_its_points_cost() -> None:
    found = told(*on_cpu())
    assert found.cost["seconds"] == 5 * 60 * 2, "two threads each"
    with pytest.raises(JobkitError, match="ran on a CPU"):
        told(*on_cpu(), gpus=gpu_kinds("h100"))


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


LONG = Loads(Lengths(paragraphs=((9_000,),) * ITEMS))
SHORT = Loads(Lengths(paragraphs=((10,),) * ITEMS))


def beware(of: RunData, corpus: CorpusVolume | None = None) -> str:
    return "; ".join(recommend(of, corpus=corpus).beware)


def test_a_corpus_whose_items_are_longer() -> None:
    small = material([replace(one, gpu=replace(GPU, total_bytes=4 * GIB)) for one in records()])
    said = beware(small, CorpusVolume(name="long.txt", paragraphs=ITEMS, loads=LONG))
    assert "long.txt makes a load of 1,575,000 at this size, more than is safe: at most 31" in said
    assert "short.txt" not in beware(small, CorpusVolume(name="short.txt", paragraphs=ITEMS, loads=SHORT))


def test_several_machines_on_a_cpu() -> None:
    apart = [replace(one, host=f"node{one.point.index % 3}") for one in on_cpu()]
    assert "ran on 3 machines, whose speeds may differ: node0, node1, node2" in beware(material(apart))
    assert "machines" not in beware(material(on_cpu()))


def test_points_on_a_part_of_the_text_stand_for_all_of_it() -> None:
    parts = [replace(one, point=replace(one.point, every=8)) for one in records()]
    assert told(*parts).corpus.paragraphs == len(LENGTHS.paragraphs)
    assert told(*parts, lengths=None).corpus.paragraphs == 8 * ITEMS
    first, *others = parts
    closest = replace(first, point=replace(first.point, every=7))
    assert told(closest, *others, lengths=None).corpus.paragraphs == 7 * ITEMS, "a part is rounded up"


SAME, OTHER = Agreement(100, 0, 1.0), Agreement(100, 12, 0.99649)
FASTER = {"fp32": 1.0, "bf16": 1.4}


@pytest.mark.parametrize(
    ("agreement", "faster", "min_f1", "taken", "words"),
    [
        (OTHER, FASTER, 1.0, (175, "fp32"), "Not taken: batch_size 220, precision bf16, 42 % faster,"),
        (OTHER, FASTER, 1.0, (175, "fp32"), "are not in the other (F1 0.9964); --min-f1 0.9964 takes it."),
        (OTHER, FASTER, 0.9964, (175, "bf16"), "Of this precision, 12 entities of it or of fp32 are not in"),
        (SAME, FASTER, 1.0, (175, "bf16"), "Of this precision, the entities are those of fp32, 100 in all."),
        (SAME, {"bf16": 1.0, "fp32": 1.0}, 1.0, (175, "fp32"), "Take batch_size 175, precision fp32"),
        (None, FASTER, 1.0, (175, "fp32"), "it has no entities that could be compared with those of fp32."),
        (OTHER, {"fp32": 1.0, "fp16": 0.5}, 1.0, (175, "fp32"), "Take batch_size 175, precision fp32"),
        (None, {"bf16": 1.0, "fp16": 1.2}, 1.0, (175, "fp16"), "compared the entities of fp16 with nothing"),
    ],
)
def test_a_precision_is_taken_if_its_entities_agree_with_fp32_as_far_as_is_asked(
    agreement: Agreement | None,
    faster: Mapping[str, float],
    min_f1: float,
    taken: tuple[int, str],
    words: str,
) -> None:
    """Each is faster than fp32 by a factor."""
    records = []
    for one in grid(sorted(RATES), 3):
        for number, (precision, factor) in enumerate(faster.items()):
            params = {**one.params, "precision": precision}
            index = 100 * number + one.index
            rate = factor * (RATES[one.numbers["batch_size"]] + SCATTER[one.repeat - 1])
            planned = replace(one, params=params, precision=precision, index=index, point_id=f"p{index}")
            records.append(measured(planned, rate, (-1) ** index / 1000))
    agreements = {one.point.index: SAME if one.point.precision == "fp32" else agreement for one in records}
    known = {index: agreement for index, agreement in agreements.items() if agreement}
    answer = recommend(replace(material(records), agreements=known), min_f1=min_f1)
    assert (*answer.recommended.params.values(),) == taken
    said = " ".join(as_text(blocks(answer, why=True)).split())
    assert words in said
    assert ("Not taken" in said) == (taken[1] == "fp32" and faster is FASTER)


WATTS: Mapping[int, float] = {40: 120, 85: 130, 130: 140, 175: 170, 220: 150}
"""By batch size: 220 takes less energy than 175, which is recommended."""


def drawing(one: Record, attribution: str = "") -> Record:
    """Return a record with the energy of its seconds."""
    assert one.summary
    span_s = one.summary.work_s
    joules = WATTS[one.point.numbers["batch_size"]] * span_s
    energy = Energy(span_s=span_s, counter_j=joules, idle_w=70, attribution=attribution)
    return replace(one, energy=energy)


def energy_lines(answer: Advice) -> list[str]:
    text = as_text(blocks(answer, why=True))
    return text[text.index("Energy") :].partition("\n\n")[0].splitlines()


def test_the_energy_of_a_corpus_and_of_1000_paragraphs_is_said() -> None:
    answer = told(*map(drawing, records()), gpus=(), corpus=CorpusVolume(paragraphs=2_000_000))
    first, second, third = energy_lines(answer)
    assert first == "Energy for 2,000,000 paragraphs, with batch_size 175: 1.13 MJ (0.31 kWh)."
    assert second.startswith("  It is 565 J ± 14.0 J for 1,000 paragraphs by the energy counter (n=3), 332 J")
    assert third == "  Least energy: batch_size 220, 490 J for 1,000 paragraphs, 13 % less; it is 2 % faster."


def test_energy_that_is_not_attributable_is_left_out() -> None:
    some = [drawing(one, NOT_ATTRIBUTABLE if one.point.repeat == 1 else "") for one in records()]
    assert "(n=2)" in energy_lines(told(*some))[1]
    answer = told(*(drawing(one, NOT_ATTRIBUTABLE) for one in records()))
    assert energy_lines(answer) == ["Energy: not known for the recommended setting."]


def test_the_energy_of_a_text_goes_by_its_characters_if_they_are_known() -> None:
    one = replace(record(point()), energy=Energy(span_s=100, counter_j=9_000, idle_w=70))
    assert one.summary
    for characters, joules in ((one.summary.characters, 18_000), (0, 9_000)):
        [use] = uses([replace(one, summary=replace(one.summary, characters=characters))])
        assert use.of(ITEMS, 2 * 170_000) == pytest.approx(joules)
        assert use.of(ITEMS, None) == pytest.approx(9_000)
