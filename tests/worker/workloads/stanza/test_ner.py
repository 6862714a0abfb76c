from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobkit.answers.loads import Lengths, Loads
from jobkit.core.errors import JobkitError
from jobkit.core.records import ModelRef
from jobkit.planning.sample import SEED, Sample, generate
from jobkit.worker.workloads.base import Entity, Heavy, Result
from jobkit.worker.workloads.stanza_batches import sentence_lengths
from jobkit.worker.workloads.stanza_ner import DEFAULT_BATCH_SIZE, StanzaNer, _entity, language_of

pytestmark = pytest.mark.xdist_group("torch")  # one worker imports it, for all tests of this group

Load = Callable[..., StanzaNer]


@pytest.fixture(scope="module")
def load(tiny_model: ModelRef) -> Load:
    """Return a function that loads the tiny stand-in with some knobs."""

    def loaded(**params: int | str) -> StanzaNer:
        workload = StanzaNer()
        workload.load(Path(tiny_model.path), "cpu", params, 1)
        return workload

    return loaded


@pytest.fixture(scope="module")
def sample() -> Sample:
    return generate(SEED)


def run(workload: StanzaNer, paragraphs: Sequence[str]) -> tuple[list[Entity], list[Result]]:
    """Return all entities, numbered over the text, and the result of every call."""
    size = workload.items_per_call()
    entities: list[Entity] = []
    results: list[Result] = []
    for first in range(0, len(paragraphs), size):
        results.append(workload.process(paragraphs[first : first + size]))
        entities += (row._replace(paragraph=row.paragraph + first) for row in results[-1].entities)
    return entities, results


@pytest.fixture(scope="module")
def short() -> Sample:
    """Return a text with a long sentence, next to which the others of a batch are mostly padding."""
    return generate(SEED, 60)


@pytest.fixture(scope="module")
def expected(load: Load, short: Sample) -> list[Entity]:
    """Return the entities of the short text, with small batches."""
    return run(load(batch_size=7), short.paragraphs)[0]


@pytest.mark.untraced
def test_entities_do_not_depend_on_the_batch_size(load: Load, short: Sample, expected: list[Entity]) -> None:
    assert run(load(batch_size=30), short.paragraphs)[0] == expected
    gold = set(short.gold)
    right = len(gold & set(expected))
    assert 2 * right / (len(gold) + len(expected)) >= 0.9


@pytest.mark.untraced
def test_order_and_budget_change_batches_and_no_entity(
    load: Load, tiny_model: ModelRef, short: Sample, expected: list[Entity]
) -> None:
    """The loads are those that the lengths of the text show before the run."""
    paragraphs, budget = short.paragraphs, 3_000
    rows = tuple(map(tuple, sentence_lengths(paragraphs, tiny_model)))
    for order in ("load", "sorted"):
        workload = load(padded_chars=budget, paragraphs_per_call=25, order=order)
        entities, results = run(workload, paragraphs)
        assert sorted(entities) == sorted(expected)
        loads = Loads(Lengths(paragraphs=rows), by_length=order == "sorted", window=1)
        made = loads.under_budget(budget, 25)
        assert max(result.load for result in results) == made.load <= budget
        text = sum(map(sum, rows)) / sum(result.padded_chars or 0 for result in results)
        assert text == pytest.approx(made.efficiency)
        heavy = workload.heaviest()[0]
        assert heavy.load == made.load
        heavy.again()
    by_length, _ = run(load(batch_size=15, order="sorted"), paragraphs)
    assert sorted(by_length) == sorted(expected)


def test_the_tokenizer_keeps_to_the_budget(load: Load, sample: Sample) -> None:
    workload = load(padded_chars=3_000, paragraphs_per_call=30)
    shapes: list[tuple[int, ...]] = []
    trainer = workload._pipeline.processors["tokenize"].trainer
    predict = trainer.predict

    def watched(batch: Any, *args: Any, **more: Any) -> Any:
        shapes.append(tuple(batch[0].shape))
        return predict(batch, *args, **more)

    trainer.predict = watched
    paragraphs = [text for text in sample.paragraphs if len(text) < 1_000][:30]
    workload.process(paragraphs)
    assert shapes
    assert all(rows * columns <= 3_000 for rows, columns in shapes)


def test_offsets_hold_where_it_is_hard(load: Load, sample: Sample) -> None:
    indented = [text for text in sample.paragraphs if text.startswith(" ")]
    entities, _ = run(load(batch_size=20), indented)
    assert len(entities) > 20
    assert any("\n" in entity.text for entity in entities)
    for entity in entities:
        assert indented[entity.paragraph][entity.start : entity.end] == entity.text


def test_the_same_name_is_found_behind_any_blank(load: Load) -> None:
    plain = "“Where is Beatrice Kelford?” asked Captain Ashley."
    odd = [
        plain,
        f"    {plain}\n",
        f"\t{plain}",
        f"\n \n{plain}\n\n",
        plain.replace("Beatrice ", "Beatrice\n  "),
    ]
    entities, _ = run(load(batch_size=5), odd)
    names = [(entity.paragraph, "".join(entity.text.split())) for entity in entities]
    assert names == [(number, name) for number in range(5) for name in ("BeatriceKelford", "Ashley")]


ODD = st.text(
    st.sampled_from("aZ .“”\u2019\n\t—é\u0085\u0097\u00a0\u2028\u3000½\U0001d4b30"), min_size=1, max_size=40
)


@pytest.fixture(scope="module")
def loaded(load: Load) -> StanzaNer:
    return load(batch_size=5)


@settings(max_examples=40, deadline=None)
@given(paragraphs=st.lists(ODD, min_size=1, max_size=5))
def test_any_text_goes_through_and_offsets_hold(loaded: StanzaNer, paragraphs: list[str]) -> None:
    for entity in loaded.process(paragraphs).entities:
        assert paragraphs[entity.paragraph][entity.start : entity.end] == entity.text


def test_figures_are_those_of_the_padded_batches(load: Load, sample: Sample) -> None:
    paragraphs = sample.paragraphs[:30]
    whole = load(paragraphs_per_call=30, sentences_per_ner_batch=10_000).process(paragraphs)
    assert whole.sentences
    assert whole.longest_sentence_chars
    assert whole.load == whole.padded_chars == whole.sentences * whole.longest_sentence_chars
    cut = load(paragraphs_per_call=30, sentences_per_ner_batch=8).process(paragraphs)
    assert (cut.sentences, cut.tokens) == (whole.sentences, whole.tokens)
    assert cut.longest_sentence_chars == whole.longest_sentence_chars
    assert cut.load == 8 * whole.longest_sentence_chars
    assert cut.padded_chars
    assert cut.load < cut.padded_chars < whole.padded_chars


def effective_after(workload: StanzaNer, paragraphs: Sequence[str]) -> Mapping[str, int | str | None]:
    run(workload, paragraphs)
    return workload.effective()


def test_batch_size_is_paragraphs_and_sentences(load: Load, sample: Sample) -> None:
    workload = load(batch_size=10)
    assert set(workload.effective().values()) == {None}
    effective = effective_after(workload, sample.paragraphs[:20])
    assert effective["batch_size"] == 10
    assert effective["paragraphs_per_call"] == 10
    assert effective["sentences_per_ner_batch"] == 10
    assert effective_after(load(batch_size=500), sample.paragraphs[:20])["batch_size"] == 20


def test_either_may_be_its_own_axis(load: Load, sample: Sample) -> None:
    paragraphs = sample.paragraphs[:20]
    effective = effective_after(load(batch_size=10, sentences_per_ner_batch=4), paragraphs)
    assert (effective["batch_size"], effective["sentences_per_ner_batch"]) == (10, 4)
    effective = effective_after(load(paragraphs_per_call=3), paragraphs)
    assert effective["paragraphs_per_call"] == 3
    assert "batch_size" not in effective


def test_the_tokenizers_batch_takes_effect(load: Load) -> None:
    paragraphs = ["Ada went home. He did."] * 40
    for size in (3, 11):
        effective = effective_after(load(batch_size=40, tokenizer_batch=size), paragraphs)
        assert effective["tokenizer_batch"] == size
    assert effective_after(load(batch_size=40), paragraphs)["tokenizer_batch"] == 32


@pytest.mark.parametrize(
    "params", [{"batch_size": 20}, {"paragraphs_per_call": 30, "sentences_per_ner_batch": 13}]
)
def test_the_heaviest_batch_and_its_parts_are_padded_as_they_say(
    load: Load, sample: Sample, params: dict[str, int]
) -> None:
    workload = load(**params)
    assert workload.heaviest() == []
    _, results = run(workload, sample.paragraphs[:60])
    parts = workload.heaviest()
    shapes = [padded(workload, part) for part in parts]
    assert [rows * columns for rows, columns in shapes] == [part.load for part in parts]
    assert parts[0].load == max(result.load for result in results)
    sentences = shapes[0][0]
    assert [rows for rows, _ in shapes] == [round(share * sentences) for share in (1.0, 0.85, 0.7)]
    assert len({columns for _, columns in shapes}) == 1, "the longest sentence is in each part"


def padded(workload: StanzaNer, heavy: Heavy) -> tuple[int, int]:
    """Return sentences and characters of the one batch that doing it again pads."""
    workload._shapes.clear()
    heavy.again()
    [shape] = workload._shapes
    return shape


def test_the_longest_is_the_one_that_pads_the_most(load: Load) -> None:
    blanks, dense = "Ada" + " " * 60 + "went.", "Beatrice Kelford went home, and so did I."
    workload = load(batch_size=3)
    result = workload.process([blanks, dense, "He did."])
    assert {padded(workload, one)[1] for one in workload.heaviest()} == {result.longest_sentence_chars}


def test_the_heaviest_batch_of_a_call_is_tagged_alone_and_leaves_nothing(load: Load, sample: Sample) -> None:
    workload, untouched = load(batch_size=20), load(batch_size=20)
    paragraphs = sample.paragraphs[:20]
    workload.tag_heaviest(paragraphs)
    heaviest = workload.attempted_load()
    result = workload.process(paragraphs)
    assert heaviest == result.load
    assert result.entities == untouched.process(paragraphs).entities


def test_tokenised_sentences_are_tagged_as_what_they_were_cut_from(load: Load, sample: Sample) -> None:
    workload = load(batch_size=12)
    paragraphs = sample.paragraphs[:12]
    result = workload.process(paragraphs)
    sentences = [one for paragraph in workload.tokenised(paragraphs) for one in paragraph]
    assert len(sentences) == result.sentences
    [whole, *_] = workload.again(sentences, result.longest_sentence_chars or 0)
    assert padded(workload, whole) == (result.sentences, result.longest_sentence_chars)


def test_the_load_of_a_batch_that_failed_is_known(
    load: Load, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = load(paragraphs_per_call=40, sentences_per_ner_batch=10)
    assert workload.attempted_load() == 0
    whole = workload.process(sample.paragraphs[:40])
    shapes = list(workload._shapes)
    model = workload._pipeline.processors["ner"].trainers[0].model
    forward, calls = model.forward, iter(range(2))

    def fails(*args: Any, **kwargs: Any) -> Any:
        if next(calls, None) is None:
            raise MemoryError
        return forward(*args, **kwargs)

    monkeypatch.setattr(model, "forward", fails)
    with pytest.raises(MemoryError):
        workload.process(sample.paragraphs[:40])
    assert workload.attempted_load() == shapes[2][0] * shapes[2][1]
    assert max(rows * columns for rows, columns in shapes) == whole.load


def test_offsets_that_do_not_fit_are_an_error_never_a_row() -> None:
    token = SimpleNamespace(start_char=0, end_char=3, text="Ada")
    entity = SimpleNamespace(start_char=0, end_char=3, type="PERSON", tokens=[token])
    assert _entity(4, "Ada", entity) == Entity(4, "Ada", "PERSON", 0, 3)
    with pytest.raises(
        ValueError, match="paragraph 4 of the call, 0:3: 'Bob' stands where Stanza found 'Ada'"
    ):
        _entity(4, "Bob", entity)


def test_a_folder_must_hold_one_language(tmp_path: Path, tiny_model: ModelRef) -> None:
    with pytest.raises(JobkitError, match=r"no readable resources\.json"):
        language_of(tmp_path)
    with pytest.raises(JobkitError, match="needs a model"):
        StanzaNer().load(None, "cpu", {}, 1)
    folder = tmp_path / "model"
    shutil.copytree(tiny_model.path, folder)
    assert language_of(folder) == "en"
    (folder / "resources.json").write_text('{"en": {}, "de": {}}')
    (folder / "de").mkdir()
    with pytest.raises(JobkitError, match="holds de, en, where one"):
        language_of(folder)


def test_defaults_and_a_text_without_sentences(load: Load) -> None:
    workload = load()
    assert workload.items_per_call() == DEFAULT_BATCH_SIZE
    assert {"torch", "stanza", "numpy"} <= set(workload.versions())
    workload.tag_heaviest([])
    assert workload.attempted_load() == 0
    result = workload.process(["Ada went home."])
    assert [heavy.load for heavy in workload.heaviest()] == [result.load], "one sentence has no parts"
