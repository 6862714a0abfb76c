from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from jobkit.answers.speed import CorpusVolume
from jobkit.core.blocks import as_text
from jobkit.core.measurements import NOT_ATTRIBUTABLE, Energy
from jobkit.core.records import Record
from jobkit.report.recommend.advice import Advice, recommend, uses
from jobkit.report.recommend.output import blocks
from tests.support.builders import ITEMS, point, record
from tests.support.recommendations import material, records

WATTS: Mapping[int, float] = {40: 120, 85: 130, 130: 140, 175: 170, 220: 150}
"""By batch size: 220 takes less energy than 175, which is recommended."""
OF_ONE = Energy(span_s=100, counter_j=9_000, idle_w=70)


def drawing(one: Record, attribution: str = "") -> Record:
    """Return a record with the energy of its seconds."""
    assert one.summary
    span_s = one.summary.work_s
    joules = WATTS[one.point.numbers["batch_size"]] * span_s
    energy = Energy(span_s=span_s, counter_j=joules, idle_w=70, attribution=attribution)
    return replace(one, energy=energy)


def found(*told: Record, corpus: CorpusVolume | None = None) -> Advice:
    return recommend(material(told), gpus=(), corpus=corpus)


def lines(answer: Advice) -> list[str]:
    """Return the lines on energy."""
    text = as_text(blocks(answer, why=True))
    return [] if "Energy" not in text else text[text.index("Energy") :].partition("\n\n")[0].splitlines()


def test_the_energy_of_a_corpus_and_of_1000_paragraphs_is_said() -> None:
    answer = found(*map(drawing, records()), corpus=CorpusVolume(paragraphs=2_000_000))
    assert answer.energy
    assert answer.energy.recommended
    assert answer.energy.recommended.per_1000_j == pytest.approx(170 / 301 * 1000, rel=0.001)
    assert answer.energy.recommended.net_per_1000_j == pytest.approx(100 / 301 * 1000, rel=0.001)
    assert answer.energy.corpus_j == pytest.approx(2_000_000 * 170 / 301, rel=0.001)
    first, second, third = lines(answer)
    assert first == "Energy for 2,000,000 paragraphs, with batch_size 175: 1.13 MJ (0.31 kWh)."
    assert second.startswith(
        "  It is 565 J ± 14.0 J for 1,000 paragraphs by the energy counter (n=3), 332 J of it above idle."
    )
    least = "  Least energy: batch_size 220, 490 J for 1,000 paragraphs, 13 % less; it is 2 % faster."
    assert third == least


def test_energy_that_is_not_attributable_is_left_out() -> None:
    told = [drawing(one, NOT_ATTRIBUTABLE if one.point.repeat == 1 else "") for one in records()]
    assert "(n=2)" in lines(found(*told))[1]
    answer = found(*(drawing(one, NOT_ATTRIBUTABLE) for one in records()))
    assert lines(answer) == ["Energy: not known for the recommended setting."]


def test_the_energy_of_a_text_goes_by_its_characters_if_they_are_known() -> None:
    one = replace(record(point()), energy=OF_ONE)
    assert one.summary
    [use] = uses([one])
    assert use.of(ITEMS, None) == pytest.approx(9_000)
    assert use.of(ITEMS, 2 * 170_000) == pytest.approx(18_000)
    [unknown] = uses([replace(one, summary=replace(one.summary, characters=0))])
    assert unknown.of(ITEMS, 2 * 170_000) == pytest.approx(9_000)
