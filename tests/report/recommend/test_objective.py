"""Which setting is recommended by another figure than the speed, and which constraints leave out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from jobkit.answers.objective import Bound, Objective
from jobkit.answers.speed import CorpusVolume, speeds_of
from jobkit.core.blocks import as_text
from jobkit.core.errors import JobkitError
from jobkit.core.measurements import Metric
from jobkit.core.records import Record
from jobkit.report.recommend.advice import Advice, judge, recommend, refuse_none
from jobkit.report.recommend.output import blocks
from tests.support.recommendations import SIZES, material, records

HIGHEST = Objective(metric="f1", direction="max")
Values = Mapping[int, Sequence[float]]


def reporting(values: Values, unit: str = "1") -> list[Record]:
    """Return the records of a sweep whose repeats report these values of f1, by batch size."""
    found = []
    for one in records(tuple(values)):
        own = values[one.point.numbers["batch_size"]]
        metrics = {"f1": Metric(value=own[one.point.repeat - 1], unit=unit)} if own else {}
        found.append(replace(one, metrics=metrics))
    return found


def without_items(one: Record) -> Record:
    assert one.summary
    return replace(one, summary=replace(one.summary, items=0, items_total=0, items_per_s=0.0, characters=0))


def advice(
    tries: Sequence[Record], objective: Objective = HIGHEST, corpus: CorpusVolume | None = None
) -> Advice:
    return recommend(replace(material(tries), objective=objective), corpus=corpus)


def text(tries: Sequence[Record], objective: Objective = HIGHEST, corpus: CorpusVolume | None = None) -> str:
    return as_text(blocks(advice(tries, objective, corpus), why=True))


APART: Values = {40: (0.90, 0.91, 0.92), 85: (0.80, 0.81, 0.82), 130: (0.70, 0.71, 0.72)}
ALIKE: Values = {40: (0.90, 0.91, 0.92), 85: (0.89, 0.90, 0.93), 130: (0.70, 0.71, 0.72)}


def test_the_best_mean_is_recommended_next_to_the_next_best_and_the_fastest() -> None:
    said = text(reporting(APART))
    assert "Take batch_size 40: f1 0.91 ± 0.025 (n=3), the highest mean." in said
    assert "Next: batch_size 85, 0.81 ± 0.025 (n=3): 0.1 lower (0.07" in said
    assert "no difference in f1" not in said
    assert "Its speed: 206 ± 7 paragraphs/s (n=3)." in said
    assert "Fastest: batch_size 130, 284" in said
    assert "The limit is" not in said
    lowest = text(reporting(APART), replace(HIGHEST, direction="min"))
    assert "Take batch_size 130: f1 0.71 ± 0.025 (n=3), the lowest mean." in lowest
    assert "Next: batch_size 85, 0.81 ± 0.025 (n=3): 0.1 higher (0.07" in lowest


def test_a_difference_within_the_scatter_is_none_and_a_faster_setting_is_named() -> None:
    said = text(reporting(ALIKE))
    assert "lower (-0.05404 to 0.0607 with" in said
    assert "with 95 % confidence); no difference is shown." in said
    assert "batch_size 85 is 1.25 times as fast, and no difference in f1 is shown." in said


def test_of_equal_means_the_speed_decides() -> None:
    found = advice(reporting(dict.fromkeys(SIZES, (0.9, 0.9, 0.9))))
    assert found.recommended.params == {"batch_size": 175}
    assert "4 other settings have the same f1: speed decides." in as_text(blocks(found, why=True))


def test_points_without_the_metric_are_left_out_and_counted() -> None:
    tries = reporting({**APART, 175: ()})
    assert "f1 has no value in 3 of 12 points: left out of its means." in text(tries)
    assert advice(tries).recommended.params == {"batch_size": 40}


@pytest.mark.parametrize(
    ("metric", "message", "hint"),
    [
        ("f2", "no point reports the metric 'f2'", "did you mean 'f1'?"),
        ("joules_per_1000", "no point has measured joules_per_1000", "items_per_s, work_s"),
    ],
)
def test_a_metric_that_no_point_has_is_an_error(metric: str, message: str, hint: str) -> None:
    with pytest.raises(JobkitError, match=message) as caught:
        advice(reporting(APART), Objective(metric=metric, direction="min"))
    assert hint in caught.value.hint


def test_several_units_are_an_error() -> None:
    tries = [*reporting({40: (1, 1, 1)}, "s"), *reporting({85: (900, 900, 900)}, "ms")]
    with pytest.raises(JobkitError, match="f1 has several units, which cannot be compared: ms, s"):
        advice(tries)


def test_a_setting_that_breaks_a_constraint_is_named_and_not_taken() -> None:
    bounds = {"f1": Bound(min=0.75)}
    said = text(reporting(APART), Objective(bounds=bounds))
    assert "Take batch_size 85: 258" in said
    assert "Not taken: batch_size 130, because f1 0.71 is under 0.75." in said


def test_if_all_settings_break_a_constraint_that_is_an_error() -> None:
    tries, objective = reporting(APART), Objective(bounds={"f1": Bound(min=0.95)})
    with pytest.raises(JobkitError, match="no setting keeps the constraints") as caught:
        advice(tries, objective)
    assert "batch_size 40: f1 0.91 is under 0.95" in caught.value.message
    settings = speeds_of(tries)
    with pytest.raises(JobkitError, match="and 1 more"):
        refuse_none("run", judge("run", settings, tries, objective), settings * 3)


def test_without_items_the_time_of_one_run_decides() -> None:
    tries = [without_items(one) for one in reporting(APART)]
    said = text(tries, corpus=CorpusVolume(name="letters", paragraphs=10**6))
    assert (
        "Its speed: not known, because the workload reports no items; 4.277 ± 0.15 s (n=3) for a run." in said
    )
    assert "the time is that of one run and not of your corpus" in said
    by_time = text(tries, Objective(bounds={"f1": Bound(max=0.72)}))
    assert "Take batch_size 130: work_s 3.102 ± 0.081 s (n=3), the lowest mean." in by_time


def test_a_setting_that_is_better_but_not_safe_is_not_taken() -> None:
    tries = reporting({size: (size / 1000,) * 3 for size in SIZES})
    gpu = tries[0].gpu
    assert gpu
    small = [replace(one, gpu=replace(gpu, total_bytes=2**31)) for one in tries]
    found = advice(small)
    assert found.recommended.size < max(SIZES)
    assert "the highest mean that is safe." in as_text(blocks(found, why=True))
