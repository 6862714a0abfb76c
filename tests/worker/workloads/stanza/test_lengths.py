from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.answers.loads import Cut, Lengths, Loads
from jobkit.core.errors import JobkitError
from jobkit.core.knobs import CUT_BY
from jobkit.core.records import ModelRef
from jobkit.planning.sample import SEED, generate
from jobkit.worker.workloads.stanza_batches import columns
from jobkit.worker.workloads.stanza_ner import StanzaNer

pytestmark = pytest.mark.xdist_group("torch")  # one worker imports it, and reads the text once

ODD = ["One.", "\u0085", "A\u00a0b — “½”\n  c…", "x" * 1_200, "No end", "Mr. Smith went. He came back!\n"]


@pytest.fixture(scope="module")
def paragraphs() -> list[str]:
    return [*generate(SEED).paragraphs[:40], *ODD]


@pytest.fixture(scope="module")
def loads(tiny_model: ModelRef, paragraphs: list[str]) -> Loads:
    return Loads(Lengths(paragraphs=tuple(map(tuple, StanzaNer.lengths(paragraphs, tiny_model)))))


def test_a_sentence_is_a_start_and_every_token_with_one_more() -> None:
    assert columns(["I", "am", "."]) == 1 + 2 + 3 + 2


@pytest.mark.parametrize(
    "params",
    [
        {"batch_size": 7},
        {"batch_size": 30},
        {"batch_size": 1_000},
        {"paragraphs_per_call": 20, "sentences_per_ner_batch": 11},
    ],
)
def test_the_loads_are_those_that_the_tagger_pads(
    params: dict[str, int], loads: Loads, paragraphs: list[str], tiny_model: ModelRef
) -> None:
    workload = StanzaNer()
    workload.load(Path(tiny_model.path), "cpu", params, 1)
    size = workload.items_per_call()
    results = [workload.process(paragraphs[at : at + size]) for at in range(0, len(paragraphs), size)]
    size_of = params.get("batch_size", 32)
    cut = Cut(**{name: params.get(name, size_of) for name in CUT_BY})
    assert Loads(loads.lengths, cut).own(size_of) == max(result.load for result in results)
    assert sum(map(len, loads.lengths.paragraphs)) == sum(result.sentences or 0 for result in results)
    longest = max(max(row, default=0) for row in loads.lengths.paragraphs)
    assert longest == max(result.longest_sentence_chars or 0 for result in results)
    assert loads.efficiency(size) <= 1


def test_padding_is_what_the_tagger_sums(loads: Loads, paragraphs: list[str], tiny_model: ModelRef) -> None:
    workload = StanzaNer()
    workload.load(Path(tiny_model.path), "cpu", {"batch_size": 25}, 1)
    padded = sum(
        workload.process(paragraphs[at : at + 25]).padded_chars or 0 for at in range(0, len(paragraphs), 25)
    )
    characters = sum(map(sum, loads.lengths.paragraphs))
    assert loads.efficiency(25) == pytest.approx(characters / padded)


def test_a_model_is_needed() -> None:
    with pytest.raises(JobkitError, match="needs a model"):
        StanzaNer.lengths(["One."], None)
