from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jobkit.core.blocks import as_text
from jobkit.core.records import Record
from jobkit.report.recommend.advice import Advice, recommend
from jobkit.report.recommend.output import as_json, blocks
from jobkit.runs.agreement import Agreement
from tests.support.builders import grid
from tests.support.recommendations import RATES, SCATTER, material, measured

SAME, OTHER = Agreement(100, 0, 1.0), Agreement(100, 12, 0.99649)


def sweep(faster: Mapping[str, float]) -> list[Record]:
    """Return the records of a sweep in which each precision is faster than usual by a factor."""
    records = []
    for one in grid(sorted(RATES), 3):
        for number, (precision, factor) in enumerate(faster.items()):
            params = {**one.params, "precision": precision}
            index = 100 * number + one.index
            rate = factor * (RATES[one.numbers["batch_size"]] + SCATTER[one.repeat - 1])
            planned = replace(one, params=params, precision=precision, index=index, point_id=f"p{index}")
            records.append(measured(planned, rate, (-1) ** index / 1000))
    return records


def found(agreement: Agreement | None, faster: Mapping[str, float], *, min_f1: float = 1.0) -> Advice:
    """Return what is recommended if the second precision agrees so."""
    records = sweep(faster)
    agreements = {one.point.index: SAME if one.point.precision == "fp32" else agreement for one in records}
    known = {index: agreement for index, agreement in agreements.items() if agreement}
    return recommend(replace(material(records), agreements=known), min_f1=min_f1)


def said(answer: Advice) -> str:
    return " ".join(as_text(blocks(answer, why=True)).split())


FASTER = {"fp32": 1.0, "bf16": 1.4}


def test_a_precision_whose_entities_differ_is_not_taken_and_named() -> None:
    answer = found(OTHER, FASTER)
    assert answer.recommended.params == {"batch_size": 175, "precision": "fp32"}
    assert answer.fastest.params["precision"] == "fp32"
    words = said(answer)
    assert "Not taken: batch_size 220, precision bf16, 42 % faster" in words
    assert "12 entities of it or of fp32 are not in the other (F1 0.9964); --min-f1 0.9964 takes it." in words
    assert {one.accepted for one in answer.precisions} == {False}
    assert '"precisions"' in as_json(answer)


def test_the_user_may_accept_it() -> None:
    answer = found(OTHER, FASTER, min_f1=0.9964)
    assert answer.recommended.params == {"batch_size": 175, "precision": "bf16"}
    words = said(answer)
    assert "Of this precision, 12 entities of it or of fp32 are not in the other (F1 0.9964)." in words
    assert "Not taken" not in words


def test_the_same_entities_are_taken_without_a_word_of_the_user() -> None:
    answer = found(SAME, FASTER)
    assert answer.recommended.params["precision"] == "bf16"
    assert "Of this precision, the entities are those of fp32, 100 in all." in said(answer)


def test_as_fast_and_the_same_is_no_reason_to_leave_fp32() -> None:
    answer = found(SAME, {"bf16": 1.0, "fp32": 1.0})
    assert answer.recommended.params == {"batch_size": 175, "precision": "fp32"}


def test_what_could_not_be_compared_is_not_taken() -> None:
    answer = found(None, FASTER)
    assert answer.recommended.params["precision"] == "fp32"
    assert "because it has no entities that could be compared with those of fp32." in said(answer)


def test_a_slower_precision_is_not_mentioned() -> None:
    assert "Not taken" not in said(found(OTHER, {"fp32": 1.0, "fp16": 0.5}))


def test_without_fp32_any_is_taken_with_a_warning() -> None:
    answer = found(None, {"bf16": 1.0, "fp16": 1.2})
    assert answer.recommended.params["precision"] == "fp16"
    assert "so jobkit compared the entities of fp16 with nothing" in said(answer)
