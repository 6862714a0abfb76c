"""Shortcuts of Stanza: the same result as without, also with the oldest Stanza that they are written for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobkit.core.knobs import EXACT, OFF
from jobkit.core.records import ModelRef
from jobkit.planning.sample import SEED, generate
from jobkit.worker.workloads import stanza_ner
from jobkit.worker.workloads.base import Result
from jobkit.worker.workloads.stanza_ner import StanzaNer

pytestmark = pytest.mark.xdist_group("torch")

PARAGRAPHS = generate(SEED, 60).paragraphs
OLDEST = "1.10.0"
WITH_OLDEST = "JOBKIT_TESTS_WITH_OLDEST_STANZA"
"""Set in the process that runs these tests with `OLDEST`."""


def loaded(model: ModelRef, shortcuts: str = EXACT, **params: int | str) -> StanzaNer:
    """Return a workload with the tiny stand-in."""
    workload = StanzaNer()
    workload.load(Path(model.path), "cpu", {**params, "shortcuts": shortcuts}, 1)
    return workload


def processed(workload: StanzaNer, paragraphs: Sequence[str] = PARAGRAPHS) -> list[Result]:
    """Return the result of each call."""
    size = workload.items_per_call()
    calls = [paragraphs[first : first + size] for first in range(0, len(paragraphs), size)]
    return [workload.process(call) for call in calls]


@pytest.fixture(scope="module")
def stock(tiny_model: ModelRef) -> list[Result]:
    """Return what is found without shortcuts."""
    return processed(loaded(tiny_model, OFF, batch_size=60))


# -- the same result

SETTINGS: list[dict[str, int | str]] = [
    {"batch_size": 7},
    {"batch_size": 60},
    {"paragraphs_per_call": 25, "sentences_per_ner_batch": 4},
    {"paragraphs_per_call": 40, "sentences_per_ner_batch": 9, "order": "sorted"},
    {"paragraphs_per_call": 30, "padded_chars": 3_000},
    {"paragraphs_per_call": 30, "padded_chars": 3_000, "order": "sorted"},
    {"batch_size": 30, "tokenizer_batch": 11},
    {"batch_size": 30, "precision": "bf16"},
]


@pytest.mark.untraced
@pytest.mark.parametrize("params", SETTINGS, ids=str)
def test_all_figures_and_all_that_takes_effect_are_those_without(
    tiny_model: ModelRef, params: dict[str, int | str]
) -> None:
    without, exact = (loaded(tiny_model, shortcuts, **params) for shortcuts in (OFF, EXACT))
    found = processed(exact)
    assert found == processed(without)
    assert sum(len(result.entities) for result in found) > 50
    assert exact.effective() == {**without.effective(), "shortcuts": EXACT}


@pytest.mark.parametrize(
    "params",
    [{"order": "sorted", "sentences_per_ner_batch": 9}, {"order": "sorted", "padded_chars": 3_000}, {}],
    ids=str,
)
def test_without_shortcuts_the_rows_are_those_of_a_pipeline_of_stanza(
    tiny_model: ModelRef, params: dict[str, int | str]
) -> None:
    import stanza

    pipeline = stanza.Pipeline(
        lang="en",
        dir=tiny_model.path,
        processors=stanza_ner.PROCESSORS,
        download_method=None,
        device="cpu",
        verbose=False,
    )
    documents = pipeline.bulk_process(list(PARAGRAPHS))
    rows = [
        (number, entity.type, entity.start_char, entity.end_char)
        for number, document in enumerate(documents)
        for entity in document.ents
    ]
    [found] = processed(loaded(tiny_model, OFF, paragraphs_per_call=60, **params))
    assert [(row.paragraph, row.label, row.start, row.end) for row in found.entities] == rows


@pytest.fixture(scope="module")
def both(tiny_model: ModelRef) -> tuple[StanzaNer, StanzaNer]:
    """Return a workload without shortcuts, and one with them."""
    return loaded(tiny_model, OFF, batch_size=5), loaded(tiny_model, EXACT, batch_size=5)


ODD = st.text(
    st.sampled_from(
        "aZ .,“”\u2019\n\t—é\u0085\u0097\u00a0\u2028\u3000½\U0001d4b30\x00\x07\x1b\x7f\u200b\ufeff"
    ),
    max_size=40,
)


@settings(max_examples=40)
@given(paragraphs=st.lists(ODD, min_size=1, max_size=5))
def test_of_any_text_the_result_is_the_same(both: tuple[StanzaNer, StanzaNer], paragraphs: list[str]) -> None:
    without, exact = both
    assert exact.process(paragraphs) == without.process(paragraphs)


@pytest.mark.parametrize(
    "paragraphs",
    [
        ["x"],
        [" "],
        ["\n\n"],
        [""],
        ["\x00"],
        ["A", " b"],
        ["Ada." * 300, "."],
        ["w" * 1_500, "Ada went."],
        [],
    ],
    ids=lambda found: repr(found)[:20],
)
def test_of_an_odd_text_too(both: tuple[StanzaNer, StanzaNer], paragraphs: list[str]) -> None:
    without, exact = both
    assert exact.process(paragraphs) == without.process(paragraphs)


def test_a_character_has_its_features_also_where_a_paragraph_begins_and_ends(
    both: tuple[StanzaNer, StanzaNer],
) -> None:
    from stanza.models.tokenization.data import TokenizationDataset

    from jobkit.worker.workloads.stanza_shortcuts import Features

    tokenizers = [workload._pipeline.processors["tokenize"] for workload in both]
    datasets = [
        kind(tokenizer.config, input_text="x", vocab=tokenizer.vocab, evaluation=True)
        for kind, tokenizer in zip((TokenizationDataset, Features), tokenizers, strict=True)
    ]
    datasets[1].alphabet = tokenizers[1].alphabet
    for text in ("7", "Q", "Q7", " Ada, 3.", "qqq", "12 Qq\u0152"):
        cut = [dataset.para_to_sentences([(unit, 0) for unit in text]) for dataset in datasets]
        [ours], [theirs] = cut
        for one, other in zip(ours, theirs, strict=True):
            assert list(map(str, one)) == list(map(str, other)), text


# -- batches to tag again


def test_a_batch_is_tagged_again_as_without(both: tuple[StanzaNer, StanzaNer]) -> None:
    tags = []
    for workload in both:
        workload._heaviest = 0, []
        processed(workload)
        parts = workload.heaviest()
        tags.append([(part.load, part.again()) for part in parts])
        sentences = [one for many in workload.tokenised(PARAGRAPHS[:9]) for one in many]
        tags.append([(part.load, part.again()) for part in workload.again(sentences, 100)])
        workload.tag_heaviest(PARAGRAPHS[:20])
        tags.append([(workload.attempted_load(), None)])
    assert tags[:3] == tags[3:]
    assert [len(found) for found in tags[:3]] == [2, 3, 1]
    assert tags[0][0][0] > tags[0][1][0] > 0


# -- batches of the tokenizer


def whole_calls(model: ModelRef, **params: int | str) -> StanzaNer:
    """Return a workload that cuts the tokenizer's batches as on a GPU."""
    workload = loaded(model, EXACT, **params)
    workload._on_gpu = workload._whole_calls = True
    return workload


def tokenizer_shapes(workload: StanzaNer) -> list[tuple[int, int]]:
    """Return a list that gets the shape of each batch that enters the tokenizer."""
    shapes: list[tuple[int, int]] = []
    trainer = workload._pipeline.processors["tokenize"].trainer
    predict = trainer.predict

    def watched(batch: Any, *args: Any, **more: Any) -> Any:
        shapes.append(tuple(batch[0].shape))
        return predict(batch, *args, **more)

    trainer.predict = watched
    return shapes


def test_on_a_cpu_the_tokenizer_keeps_its_saved_batch_and_on_a_gpu_it_takes_calls(
    tiny_model: ModelRef, stock: list[Result]
) -> None:
    here, there = loaded(tiny_model, batch_size=60), whole_calls(tiny_model, batch_size=60)
    assert processed(here) == processed(there) == stock
    assert [one.effective()["tokenizer_batch"] for one in (here, there)] == [32, 60]


def test_a_setting_limits_the_tokenizers_calls(tiny_model: ModelRef, stock: list[Result]) -> None:
    limited = whole_calls(tiny_model, batch_size=60, tokenizer_batch=45)
    assert processed(limited) == stock
    assert limited.effective()["tokenizer_batch"] == 45
    budget = max(map(len, PARAGRAPHS)) * 7
    capped = whole_calls(tiny_model, paragraphs_per_call=60, padded_chars=budget)
    shapes = tokenizer_shapes(capped)
    assert processed(capped)[0].entities == stock[0].entities
    assert max(rows for rows, _ in shapes) in {6, 7}
    assert all(rows * columns <= budget for rows, columns in shapes)


def test_without_a_limit_of_the_setting_jobkits_own_holds(
    tiny_model: ModelRef, stock: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stanza_ner, "TOKENIZER_CHARS", 9_000)
    workload = whole_calls(tiny_model, batch_size=60)
    shapes = tokenizer_shapes(workload)
    assert processed(workload) == stock
    assert all(rows * columns <= 9_000 for rows, columns in shapes)


# -- refused


def changed(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], None]) -> None:
    """Have each pipeline that is loaded changed."""
    import stanza

    make = stanza.Pipeline

    def pipeline(**options: Any) -> Any:
        made = make(**options)
        change(made)
        return made

    monkeypatch.setattr(stanza, "Pipeline", pipeline)


def refused(workload: StanzaNer, stock: list[Result]) -> str:
    """Return why the shortcuts are off, if it does as without them and the check agrees."""
    assert processed(workload) == stock
    off, _, reason = str(workload.effective()["shortcuts"]).partition(": ")
    assert off == OFF
    assert workload.check_shortcuts(PARAGRAPHS[:1]) == reason
    return reason


@pytest.mark.parametrize("version", ["1.16.0", "1.9.2", "2.0", "unknown"])
def test_with_another_version_they_are_off(
    tiny_model: ModelRef, stock: list[Result], monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr("stanza.__version__", version)
    reason = refused(loaded(tiny_model, batch_size=60), stock)
    assert reason.startswith(f"Stanza {version} is none of the versions")
    assert reason.endswith("1.10 to 1.15")


def test_with_another_signature_they_are_off(
    tiny_model: ModelRef, stock: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobkit.worker.workloads import stanza_shortcuts

    *others, (function, signature) = stanza_shortcuts.SIGNATURES
    monkeypatch.setattr(
        stanza_shortcuts, "SIGNATURES", (*others, (function, signature.replace("vocab, ", "")))
    )
    reason = refused(loaded(tiny_model, batch_size=60), stock)
    assert reason.startswith(
        "Stanza's output_predictions takes (output_file, trainer, data_generator, vocab,"
    )


@pytest.mark.parametrize(
    ("part", "name"),
    [
        (lambda processors: processors["tokenize"], "TokenizeProcessor"),
        (lambda processors: processors["ner"].trainers[0], "Trainer"),
        (lambda processors: processors["ner"].trainers[0].model, "NERTagger"),
        (lambda processors: processors["ner"].trainers[0].model.crits[0], "CRFLoss"),
        (lambda processors: processors["ner"].trainers[0].model.charmodel_backward, "CharacterLanguageModel"),
    ],
    ids=["tokenizer", "trainer", "tagger", "loss", "characters"],
)
def test_with_another_class_they_are_off(
    tiny_model: ModelRef,
    stock: list[Result],
    monkeypatch: pytest.MonkeyPatch,
    part: Callable[[Any], Any],
    name: str,
) -> None:
    def change(pipeline: Any) -> None:
        found = part(pipeline.processors)
        found.__class__ = type("Other", (type(found),), {})

    changed(monkeypatch, change)
    assert refused(loaded(tiny_model, batch_size=60), stock).endswith(f".Other is not Stanza's {name}")


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({"pretokenized": True}, "the tokenizer has pretokenized"),
        ({"speaker_delim": ("<", ">")}, "the tokenizer has speaker_delim"),
        ({"bert_model": object()}, "the tagger has a transformer"),
        ({"charlm": False}, "the tagger has no character language model"),
    ],
    ids=["pretokenized", "speakers", "transformer", "no characters"],
)
def test_what_they_know_nothing_of_is_refused(
    tiny_model: ModelRef, names: dict[str, Any], reason: str
) -> None:
    from jobkit.worker.workloads.stanza_shortcuts import refusal

    pipeline = loaded(tiny_model, OFF)._pipeline
    assert refusal(pipeline) == ""
    [(name, value)] = names.items()
    trainer = pipeline.processors["ner"].trainers[0]
    if name == "bert_model":
        trainer.model.bert_model = value
    elif name == "charlm":
        trainer.args[name] = value
    else:
        pipeline.processors["tokenize"]._config[name] = value
    assert refusal(pipeline) == reason


@pytest.mark.parametrize("numeric", [True, False])
def test_a_tokenizer_whose_features_need_more_than_a_character_stays_and_the_rest_is_exact(
    tiny_model: ModelRef,
    stock: list[Result],
    monkeypatch: pytest.MonkeyPatch,
    numeric: bool,  # noqa: FBT001 - a parameter of pytest
) -> None:
    from stanza.pipeline.tokenize_processor import TokenizeProcessor

    from jobkit.worker.workloads.stanza_shortcuts import Features

    def add_dictionary(pipeline: Any) -> None:
        tokenizer = pipeline.processors["tokenize"]
        tokenizer._config |= {
            "use_dictionary": True,
            "num_dict_feat": 0,
        }  # of which no character has a feature
        tokenizer.trainer.dictionary = {"words": set(), "prefixes": set(), "suffixes": set()}

    if numeric:
        monkeypatch.setattr(Features, "SINGLE", Features.SINGLE - {"numeric"})
    else:
        changed(monkeypatch, add_dictionary)
    workload = loaded(tiny_model, batch_size=60)
    assert type(workload._pipeline.processors["tokenize"]) is TokenizeProcessor
    assert processed(workload) == stock
    assert workload.effective()["shortcuts"] == EXACT
    assert workload.check_shortcuts(PARAGRAPHS) == ""


# -- the check


def test_the_check_finds_no_difference_and_leaves_the_shortcuts_on(
    tiny_model: ModelRef, stock: list[Result]
) -> None:
    workload = whole_calls(tiny_model, batch_size=60)
    before = dict(workload._pipeline.processors)
    assert workload.check_shortcuts(PARAGRAPHS) == ""
    assert workload._pipeline.processors == before
    assert processed(workload) == stock
    assert workload.effective()["shortcuts"] == EXACT
    assert workload.effective()["tokenizer_batch"] == 60


def test_the_check_names_how_many_paragraphs_have_other_tags(
    tiny_model: ModelRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobkit.worker.workloads import stanza_shortcuts
    from jobkit.worker.workloads.stanza_shortcuts import decode

    def wrong(scores: Any, transitions: Any, lengths: Sequence[int]) -> list[list[int]]:
        found = decode(scores, transitions, lengths)
        longest = found[0]
        longest[0] = longest[0] - 1 if longest[0] == scores.shape[2] - 1 else longest[0] + 1
        return found

    workload = loaded(tiny_model, batch_size=1_000)
    monkeypatch.setattr(stanza_shortcuts, "decode", wrong)
    said = workload.check_shortcuts(PARAGRAPHS)
    assert re.match(r"in 1 of 60 paragraphs their .* differ", said), said


def test_without_shortcuts_there_is_nothing_to_check(tiny_model: ModelRef) -> None:
    assert loaded(tiny_model, OFF).check_shortcuts(PARAGRAPHS) == OFF


# -- versions


def test_stanza_is_the_newest_version_that_they_are_written_for_or_the_oldest_one() -> None:
    import stanza

    from jobkit.worker.workloads.stanza_shortcuts import VERSIONS

    oldest = WITH_OLDEST in os.environ
    minor = tuple(map(int, stanza.__version__.split(".")[:2]))
    assert minor == VERSIONS[0 if oldest else 1]
    assert (stanza.__version__ == OLDEST) == oldest
    assert ".".join(map(str, (*VERSIONS[0], 0))) == OLDEST


@pytest.fixture(scope="session")
def oldest_stanza(kept_cache: Path) -> Path:
    """Return a folder with `OLDEST` from the package index, in the cache of the checkout."""
    folder = kept_cache.parent / f"stanza-{OLDEST}"
    if folder.is_dir():
        return folder
    part = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(part)]
    subprocess.run([*command, f"stanza=={OLDEST}"], check=True, timeout=300)
    try:
        part.rename(folder)
    except OSError:  # another run of the tests was first
        shutil.rmtree(part)
    assert folder.is_dir()
    return folder


@pytest.mark.slow
@pytest.mark.skipif(WITH_OLDEST in os.environ, reason="the process of this test")
@pytest.mark.usefixtures("tiny_model")
def test_all_of_this_holds_with_the_oldest_version(oldest_stanza: Path) -> None:
    words = [sys.executable, "-m", "pytest", __file__, "-q", "-n", "0", "-p", "no:cacheprovider"]
    given = {**os.environ, "PYTHONPATH": str(oldest_stanza), WITH_OLDEST: "1"}
    done = subprocess.run(words, env=given, text=True, capture_output=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-8_000:]
    counted = re.search(r"(\d+) passed, 1 skipped in", done.stdout)
    assert counted, done.stdout[-8_000:]
    assert int(counted[1]) > len(SETTINGS)
