"""Which setting is recommended by another figure than the speed, and which constraints leave out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from jobkit.answers.objective import Bound, Objective
from jobkit.answers.speed import CorpusVolume, speeds_of
from jobkit.core.blocks import as_text
from jobkit.core.errors import JobkitError
from jobkit.core.measurements import Metric
from jobkit.core.records import Record
from jobkit.report.recommend.advice import Advice, judge, recommend, refuse_none
from jobkit.report.recommend.output import blocks
from tests.report.test_own_figures import without_items
from tests.support.builders import GPU
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


def test_within_the_scatter_the_speed_counts_and_points_without_the_metric_are_counted() -> None:
    for values, said in (
        (ALIKE, "with 95 % confidence); no difference is shown."),
        (ALIKE, "batch_size 85 is 1.25 times as fast, and no difference in f1 is shown."),
        (dict.fromkeys(SIZES, (0.9, 0.9, 0.9)), "The same f1 as 4 other settings: speed decides."),
        (dict.fromkeys(SIZES, (0.9, 0.9, 0.9)), "Take batch_size 175"),
        ({**APART, 175: ()}, "f1 has no value in 3 of 12 points: left out of its means."),
    ):
        assert said in text(reporting(values))


SECONDS = [*reporting({40: (1, 1, 1)}, "s"), *reporting({85: (900, 900, 900)}, "ms")]


@pytest.mark.parametrize(
    ("tries", "of", "message"),
    [
        ([], {"metric": "f2"}, "no point reports the metric 'f2'.* did you mean 'f1'?"),
        ([], {"metric": "joules_per_1000"}, "no point has measured joules_per_1000.*items_per_s, work_s"),
        (SECONDS, {"metric": "f1"}, "f1 has several units, which cannot be compared: ms, s"),
        ([], {"bounds": {"f1": Bound(min=0.95)}}, "no setting keeps .*size 40: f1 0.91 is under 0.95"),
    ],
)
def test_what_cannot_choose_is_an_error(tries: list[Record], of: dict[str, Any], message: str) -> None:
    with pytest.raises(JobkitError) as caught:
        advice(tries or reporting(APART), Objective(**of))
    assert re.search(message, f"{caught.value.message} {caught.value.hint}", re.DOTALL)


def test_a_setting_that_breaks_a_constraint_is_named_and_not_taken() -> None:
    tries = reporting(APART)
    said = text(tries, Objective(bounds={"f1": Bound(min=0.75)}))
    assert "Take batch_size 85: 258" in said
    assert "Not taken: batch_size 130, because f1 0.71 is under 0.75." in said
    settings, none = speeds_of(tries), Objective(bounds={"f1": Bound(min=0.95)})
    with pytest.raises(JobkitError, match="and 1 more"):
        refuse_none("run", judge("run", settings, tries, none), settings * 3)


def test_without_items_the_time_of_one_run_decides() -> None:
    tries = [without_items(one) for one in reporting(APART)]
    said = text(tries, corpus=CorpusVolume(name="letters", paragraphs=10**6))
    assert "not known, because the workload reports no items; 4.277 ± 0.15 s (n=3) for a run." in said
    assert "the time is that of one run and not of your corpus" in said
    by_time = text(tries, Objective(bounds={"f1": Bound(max=0.72)}))
    assert "Take batch_size 130: work_s 3.102 ± 0.081 s (n=3), the lowest mean." in by_time


def test_a_setting_that_is_better_but_not_safe_is_not_taken() -> None:
    tries = reporting({size: (size / 1000,) * 3 for size in SIZES})
    small = [replace(one, gpu=replace(GPU, total_bytes=2**31)) for one in tries]
    assert advice(small).recommended.size < max(SIZES)
    assert "the highest mean that is safe." in text(small)
