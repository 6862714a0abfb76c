from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobkit.answers.loads import Cut, Lengths, Loads
from jobkit.core.errors import JobkitError
from jobkit.core.knobs import CUT_BY
from jobkit.core.records import ModelRef
from jobkit.planning.sample import SEED, generate
from jobkit.worker.workloads.base import Entity, Heavy, Result
from jobkit.worker.workloads.model import language_of
from jobkit.worker.workloads.stanza_ner import StanzaNer, _entity

pytestmark = pytest.mark.xdist_group("torch")  # one worker imports it, for all tests of this group

Load = Callable[..., StanzaNer]
SAMPLE = generate(SEED, 12)
ODD = [
    "One.",
    "\u0085",
    "A\u00a0b — “½”\n  c…",
    "x" * 1_200,
    "No end",
    "“Where is Beatrice\n Kelford?” asked Captain Ashley.",
    "Mr. Smith went. He came back!\n",
]
TEXT = [*SAMPLE.paragraphs, *ODD]
"""One has a sentence so long that the others of a batch are mostly padding."""


@pytest.fixture(scope="module")
def load(tiny_model: ModelRef) -> Load:
    """Return a function that loads the tiny stand-in with some knobs."""

    def loaded(**params: int | str) -> StanzaNer:
        workload = StanzaNer()
        workload.load(Path(tiny_model.path), "cpu", params, 1)
        return workload

    return loaded


def run(workload: StanzaNer, paragraphs: Sequence[str] = TEXT) -> tuple[list[Entity], list[Result]]:
    """Return all entities, numbered over the text, and the result of every call."""
    size = workload.items_per_call()
    entities: list[Entity] = []
    results: list[Result] = []
    for first in range(0, len(paragraphs), size):
        results.append(workload.process(paragraphs[first : first + size]))
        entities += (row._replace(paragraph=row.paragraph + first) for row in results[-1].entities)
    return entities, results


@pytest.fixture(scope="module")
def expected(load: Load) -> tuple[list[Entity], int]:
    """Return the entities of the text, and how many tokens it has."""
    entities, results = run(load(batch_size=12))
    for entity in entities:
        assert TEXT[entity.paragraph][entity.start : entity.end] == entity.text
    assert any("\n" in entity.text for entity in entities)
    gold, found = set(SAMPLE.gold), {row for row in entities if row.paragraph < len(SAMPLE.paragraphs)}
    assert 2 * len(gold & found) / (len(gold) + len(found)) >= 0.9
    return entities, sum(result.tokens or 0 for result in results)


@pytest.fixture(scope="module")
def lengths(tiny_model: ModelRef) -> Lengths:
    return Lengths(paragraphs=tuple(map(tuple, StanzaNer.lengths(TEXT, tiny_model))))


def planned(lengths: Lengths, params: dict[str, Any]) -> tuple[int, float]:
    """Return the largest load of a setting and the share that is no padding, as they are before a run."""
    if budget := params.get("padded"):
        loads = Loads(lengths, by_length=params.get("order") == "sorted", window=1)
        made = loads.under_budget(budget, params["paragraphs_per_call"])
        assert made.load <= budget
        return made.load, made.efficiency
    size = params.get("batch_size", 32)
    loads = Loads(lengths, Cut(**{name: params.get(name, size) for name in CUT_BY}))
    return loads.own(size), loads.chunks(size).efficiency


@pytest.mark.parametrize(
    ("params", "effective"),
    [
        ({"batch_size": 7}, {"batch_size": 7, "paragraphs_per_call": 7, "sentences_per_ner_batch": 7}),
        ({"batch_size": 500}, {"batch_size": 19, "paragraphs_per_call": 19}),
        ({"batch_size": 10, "sentences_per_ner_batch": 4}, {"batch_size": 10, "sentences_per_ner_batch": 4}),
        ({"paragraphs_per_call": 10, "sentences_per_ner_batch": 11}, {"paragraphs_per_call": 10}),
        ({"batch_size": 19, "tokenizer_batch": 3}, {"batch_size": 19, "tokenizer_batch": 3}),
        ({"padded": 3_000, "paragraphs_per_call": 14, "order": "load"}, {"paragraphs_per_call": 14}),
        ({"padded": 3_000, "paragraphs_per_call": 14, "order": "sorted"}, {"paragraphs_per_call": 14}),
    ],
    ids=str,
)
def test_a_setting_changes_batches_as_planned_and_no_entity(
    load: Load,
    expected: tuple[list[Entity], int],
    lengths: Lengths,
    params: dict[str, Any],
    effective: dict[str, int],
) -> None:
    workload = load(**params)
    assert (set(workload.effective().values()), workload.heaviest()) == ({None}, [])
    entities, results = run(workload)
    assert (entities, sum(result.tokens or 0 for result in results)) == expected
    found = workload.effective()
    assert {name: found[name] for name in effective} == effective
    assert ("batch_size" in found) == ("batch_size" in params)
    rows, (largest, efficiency) = lengths.paragraphs, planned(lengths, params)
    assert max(result.load for result in results) == largest
    assert sum(map(sum, rows)) / sum(result.padded_chars or 0 for result in results) == pytest.approx(
        efficiency
    )
    assert sum(result.sentences or 0 for result in results) == sum(map(len, rows))
    assert max(result.longest_sentence_chars or 0 for result in results) == max(map(max, filter(None, rows)))
    parts = workload.heaviest()
    shapes = [padded(workload, part) for part in parts]
    assert [sentences * chars for sentences, chars in shapes] == [part.load for part in parts]
    assert parts[0].load == largest
    counts = [round(share * shapes[0][0]) for share in (1.0, 0.85, 0.7)]
    assert [sentences for sentences, _ in shapes] == list(dict.fromkeys(counts))
    assert len({chars for _, chars in shapes}) == 1, "the longest sentence is in each part"


def padded(workload: StanzaNer, heavy: Heavy) -> tuple[int, int]:
    """Return sentences and characters of the one batch that doing it again pads."""
    workload._shapes.clear()
    heavy.again()
    [shape] = workload._shapes
    return shape


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


def test_the_longest_is_the_one_that_pads_the_most(load: Load) -> None:
    blanks, dense = "Ada" + " " * 60 + "went.", "Beatrice Kelford went home, and so did I."
    workload = load(batch_size=3)
    result = workload.process([blanks, dense, "He did."])
    assert {padded(workload, one)[1] for one in workload.heaviest()} == {result.longest_sentence_chars}


def test_the_heaviest_batch_of_a_call_is_tagged_alone_and_leaves_nothing(load: Load) -> None:
    workload, untouched = load(batch_size=12), load(batch_size=12)
    workload.tag_heaviest(TEXT[:12])
    heaviest = workload.attempted_load()
    result = workload.process(TEXT[:12])
    assert heaviest == result.load
    assert result.entities == untouched.process(TEXT[:12]).entities
    sentences = [one for paragraph in workload.tokenised(TEXT[:12]) for one in paragraph]
    [whole, *_] = workload.again(sentences, result.longest_sentence_chars or 0)
    assert padded(workload, whole) == (result.sentences, result.longest_sentence_chars)


def test_the_load_of_a_batch_that_failed_is_known(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = load(paragraphs_per_call=20, sentences_per_ner_batch=10)
    assert workload.attempted_load() == 0
    workload.process(TEXT)
    shapes = list(workload._shapes)
    model = workload._pipeline.processors["ner"].trainers[0].model
    forward, calls = model.forward, iter(range(2))

    def fails(*args: Any, **kwargs: Any) -> Any:
        if next(calls, None) is None:
            raise MemoryError
        return forward(*args, **kwargs)

    monkeypatch.setattr(model, "forward", fails)
    with pytest.raises(MemoryError):
        workload.process(TEXT)
    assert workload.attempted_load() == shapes[2][0] * shapes[2][1]


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
    for needs_a_model in (lambda: StanzaNer().load(None, "cpu", {}, 1), lambda: StanzaNer.lengths([], None)):
        with pytest.raises(JobkitError, match="needs a model"):
            needs_a_model()
    folder = tmp_path / "model"
    shutil.copytree(tiny_model.path, folder)
    assert language_of(folder) == "en"
    (folder / "resources.json").write_text('{"en": {}, "de": {}}')
    (folder / "de").mkdir()
    with pytest.raises(JobkitError, match="holds de, en, where one"):
        language_of(folder)


def test_defaults_and_a_text_without_sentences(load: Load) -> None:
    workload = load()
    assert workload.items_per_call() == 32
    assert {"torch", "stanza", "numpy"} <= set(workload.versions())
    workload.tag_heaviest([])
    assert workload.attempted_load() == 0
    result = workload.process(["Ada went home."])
    assert [heavy.load for heavy in workload.heaviest()] == [result.load], "one sentence has no parts"
