"""The three workloads with an extra, each with its tiny stand-in: loads, effective knobs, equal output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.batch_equality import compared, outputs
from jobkit.answers.loads import Lengths, Loads
from jobkit.core.errors import JobkitError
from jobkit.core.extras import EXTRAS
from jobkit.core.paragraphs import split_paragraphs
from jobkit.core.records import FOLDER, ModelRef
from jobkit.planning import models, standin
from jobkit.planning.sample import sample_text
from jobkit.planning.standin import ARCHITECTURES
from jobkit.worker.workloads.base import EXTRA_OF, workload_class
from jobkit.worker.workloads.model import fingerprint

pytestmark = [
    pytest.mark.xdist_group("torch"),
    pytest.mark.slow,
]  # one worker imports it, for all tests of this group
FRAMEWORKS = TAGGER, EMBEDDER, SPACY = tuple(EXTRA_OF)[1:]
PARAGRAPHS = split_paragraphs(sample_text(40))
LONG = " ".join(PARAGRAPHS[:20])
TEXT = [*PARAGRAPHS[:20], LONG]
TOLERANCE = 1e-5
"""Of a logit or a number of a vector: about a hundred times the rounding of 32-bit floats near 1."""


@pytest.fixture(scope="module", params=FRAMEWORKS)
def model(request: pytest.FixtureRequest, kept_cache: Path) -> tuple[str, ModelRef]:
    """Return each workload with its tiny stand-in, built unless the cache has it."""
    workload = str(request.param)
    pytest.importorskip(EXTRAS[EXTRA_OF[workload]][0])
    described = models.stand_in(workload, "tiny", kept_cache)
    return workload, models.build(workload, described, kept_cache, say=print)


def loaded(workload: str, model: ModelRef, **params: int | str) -> Any:
    opened = workload_class(workload)()
    opened.load(Path(model.path), "cpu", params, 1)
    return opened


def test_the_lengths_give_the_load_that_is_measured_and_the_heaviest_batch_runs_again(
    model: tuple[str, ModelRef],
) -> None:
    workload, ref = model
    made: Any = workload_class(workload)
    lengths = Lengths(paragraphs=tuple(map(tuple, made.lengths(TEXT, ref))), pads=getattr(made, "PADS", True))
    for batch in (3, 16):
        opened = loaded(workload, ref, batch_size=batch)
        assert (opened.attempted_load(), list(opened.heaviest())) == (0, [])
        calls = [TEXT[at : at + batch] for at in range(0, len(TEXT), batch)]
        load = max(opened.process(call).load for call in calls)
        assert load == Loads(lengths).own(batch)
        assert opened.items_per_call() == opened.effective()["batch_size"] == batch
    heavy = opened.heaviest()
    assert [one.load for one in heavy] == sorted({one.load for one in heavy}, reverse=True)
    assert heavy[0].load == load
    for one in heavy:
        one.again()
    assert opened.attempted_load() > 0
    assert {EXTRAS[EXTRA_OF[workload]][0], "torch", "numpy"} <= set(opened.versions())


def test_the_output_is_the_same_at_every_batch_size(model: tuple[str, ModelRef]) -> None:
    workload, ref = model
    first = outputs(workload, ref, TEXT, 1, "cpu")
    found = compared(workload, first, outputs(workload, ref, TEXT, 16, "cpu"))
    assert found.get("largest_difference", 0) < TOLERANCE
    assert found.get("labels_differ_above_rounding", 0) == 0
    assert found.get("differ", 0) == 0
    assert max(found.values()) >= len(TEXT)  # something was compared


def test_what_is_found_is_where_it_says(model: tuple[str, ModelRef]) -> None:
    workload, ref = model
    result = loaded(workload, ref).process(TEXT)
    if workload == EMBEDDER:
        assert (result.vectors.shape, str(result.vectors.dtype)) == ((len(TEXT), 64), "float32")
        stored = loaded(workload, ref, vectors="fp16")
        assert str(stored.process(TEXT).vectors.dtype) == "float16"
        assert stored.effective()["vectors"] == "fp16"
        return
    assert result.entities
    for entity in result.entities:
        assert TEXT[entity.paragraph][entity.start : entity.end] == entity.text
    ends = [entity.end for entity in result.entities if entity.paragraph == len(TEXT) - 1]
    assert max(ends) > len(LONG) * 0.95  # the end of a text longer than the model's maximum is tagged too


def test_the_precision_takes_effect(model: tuple[str, ModelRef]) -> None:
    workload, ref = model
    for word, kind in {"fp32": "torch.float32", "bf16": "torch.bfloat16"}.items():
        if workload != SPACY:  # it offers no choice
            opened = loaded(workload, ref, precision=word)
            opened.process(TEXT[:3])
            assert {str(weights.dtype) for weights in opened._network.parameters()} == {kind}
            assert opened.effective()["precision"] == word


def test_a_stand_in_has_random_weights_of_a_seed_and_is_needed(
    model: tuple[str, ModelRef], tmp_path: Path
) -> None:
    workload, ref = model
    assert ref.stand_in
    assert ref.caveat == f"RANDOM weights, architecture {ARCHITECTURES[workload, 'tiny'].name}"
    again = tmp_path / "again"
    standin.build_random(str(again), workload, "tiny", say=print)
    assert fingerprint(again, "", FOLDER) == ref.fingerprint
    with pytest.raises(JobkitError, match="needs a model"):
        workload_class(workload)().load(None, "cpu", {}, 1)


def test_a_pipeline_without_a_recognizer_is_refused(tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy")
    spacy.blank("en").to_disk(tmp_path)
    with pytest.raises(JobkitError, match="has no component, not ner"):
        workload_class(SPACY)().load(tmp_path, "cpu", {}, 1)
