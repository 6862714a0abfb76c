"""Shortcuts of Stanza: the same result as without, also with the oldest Stanza that they are written for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobkit.core.knobs import EXACT, OFF
from jobkit.core.records import ModelRef
from jobkit.planning.sample import SEED, generate
from jobkit.worker.workloads.base import Result
from jobkit.worker.workloads.model import PROCESSORS
from jobkit.worker.workloads.stanza_ner import StanzaNer

pytestmark = pytest.mark.xdist_group("torch")

PARAGRAPHS = generate(SEED, 12).paragraphs
"""One of them is much longer than all others."""
UNFINISHED = generate(SEED, 60).paragraphs[1]
"""The tiny stand-in leaves an entity without its last tag, which Stanza corrects."""
SHORT = ["Ada went home. He did."] * 40
OLDEST = "1.10.0"
WITH_OLDEST = "JOBKIT_TESTS_WITH_OLDEST_STANZA"
"""Set in the process that runs these tests with `OLDEST`."""


def loaded(model: ModelRef, shortcuts: str = EXACT, **params: int | str) -> StanzaNer:
    """Return a workload with the tiny stand-in; by default a call has all paragraphs."""
    workload = StanzaNer()
    given = {"batch_size": len(PARAGRAPHS), **params, "shortcuts": shortcuts}
    workload.load(Path(model.path), "cpu", given, 1)
    return workload


def processed(workload: StanzaNer) -> list[Result]:
    """Return the result of each call."""
    size = workload.items_per_call()
    return [workload.process(PARAGRAPHS[first : first + size]) for first in range(0, len(PARAGRAPHS), size)]


@pytest.fixture(scope="module")
def stock(tiny_model: ModelRef) -> list[Result]:
    """Return what is found without shortcuts, which is what a pipeline of Stanza finds."""
    import stanza

    [found] = processed(loaded(tiny_model, OFF))
    pipeline = stanza.Pipeline(
        lang="en",
        dir=tiny_model.path,
        processors=PROCESSORS,
        download_method=None,
        device="cpu",
        verbose=False,
    )
    documents = enumerate(pipeline.bulk_process(list(PARAGRAPHS)))
    rows = [(n, one.type, one.start_char, one.end_char) for n, document in documents for one in document.ents]
    assert [(row.paragraph, row.label, row.start, row.end) for row in found.entities] == rows
    assert len(rows) > 20
    return [found]


@pytest.fixture(scope="module")
def both(tiny_model: ModelRef) -> tuple[StanzaNer, StanzaNer]:
    """Return a workload without shortcuts, and one with them."""
    return loaded(tiny_model, OFF), loaded(tiny_model)


# -- the same result


@pytest.mark.parametrize(
    "params",
    [
        {"batch_size": 7},
        {"paragraphs_per_call": 12, "sentences_per_ner_batch": 9, "order": "sorted"},
        {"paragraphs_per_call": 12, "padded": 3_000},
        {"paragraphs_per_call": 12, "padded": 3_000, "order": "sorted"},
        {"tokenizer_batch": 5, "precision": "bf16"},
    ],
    ids=str,
)
def test_all_figures_and_all_that_takes_effect_are_those_without(
    tiny_model: ModelRef, stock: list[Result], params: dict[str, int | str]
) -> None:
    without, exact = (loaded(tiny_model, shortcuts, **params) for shortcuts in (OFF, EXACT))
    found = processed(exact)
    assert found == processed(without)
    if "paragraphs_per_call" in params:
        assert found[0].entities == stock[0].entities
    assert sum(len(result.entities) for result in found) > 20
    assert exact.effective() == {**without.effective(), "shortcuts": EXACT}


ODD = st.text(
    st.sampled_from(
        "aZ .,“”\u2019\n\t—é\u0085\u0097\u00a0\u2028\u3000½\U0001d4b30\x00\x07\x1b\x7f\u200b\ufeff"
    ),
    max_size=40,
)


@settings(max_examples=25)
@given(paragraphs=st.lists(ODD, min_size=1, max_size=5))
def test_of_any_text_the_result_is_the_same_and_offsets_hold(
    both: tuple[StanzaNer, StanzaNer], paragraphs: list[str]
) -> None:
    without, exact = both
    found = exact.process(paragraphs)
    assert found == without.process(paragraphs)
    for entity in found.entities:
        assert paragraphs[entity.paragraph][entity.start : entity.end] == entity.text


def test_of_an_odd_text_too(both: tuple[StanzaNer, StanzaNer]) -> None:
    """Nothing, blanks, one character, a long paragraph, a token that Stanza replaces."""
    without, exact = both
    short: list[list[str]] = [[], [""], [" "], ["\n\n"], ["x"], ["\x00"], ["A", " b"]]
    long = [" ".join(PARAGRAPHS), "Ada went.", " ".join(PARAGRAPHS[:9]), "Ada's " * 350]
    addresses = ["Ask ada.l@x.org or http://www.x.org/a.b. U.S. 3.5", 'www.x.com, "a b"@c.de', "x.gov"]
    for paragraphs in (*short, ["Ada." * 300, "."], ["w" * 1_500, "Ada went."], addresses, long):
        assert exact.process(paragraphs) == without.process(paragraphs), repr(paragraphs)[:20]


def test_a_batch_is_tagged_again_as_without(both: tuple[StanzaNer, StanzaNer]) -> None:
    tags = []
    for workload in both:
        workload._heaviest = 0, []
        processed(workload)
        parts = workload.heaviest()
        sentences = [one for many in workload.tokenised(PARAGRAPHS[:9]) for one in many]
        parts = [*parts, *workload.again(sentences, 100)]
        workload.tag_heaviest(PARAGRAPHS[:9])
        tags.append([workload.attempted_load(), *((part.load, part.again()) for part in parts)])
    assert tags[0] == tags[1]
    assert len(tags[0]) == 1 + 3 + 3


# -- batches of the tokenizer


def whole_calls(model: ModelRef, **params: int | str) -> tuple[StanzaNer, list[tuple[int, int]]]:
    """Return a workload that cuts the tokenizer's batches as on a GPU, and the shapes that it will cut."""
    workload = loaded(model, EXACT, **params)
    workload._on_gpu = workload._whole_calls = True
    shapes: list[tuple[int, int]] = []
    trainer = workload._pipeline.processors["tokenize"].trainer
    predict = trainer.predict

    def watched(batch: Any, *args: Any, **more: Any) -> Any:
        shapes.append(tuple(batch[0].shape))
        return predict(batch, *args, **more)

    trainer.predict = watched
    return workload, shapes


def test_on_a_cpu_the_tokenizer_keeps_its_saved_batch_and_on_a_gpu_it_takes_calls(
    tiny_model: ModelRef,
) -> None:
    here, (there, _) = loaded(tiny_model, batch_size=40), whole_calls(tiny_model, batch_size=40)
    assert here.process(SHORT) == there.process(SHORT)
    assert [one.effective()["tokenizer_batch"] for one in (here, there)] == [32, 40]


def test_a_setting_limits_the_tokenizers_calls_and_else_jobkit(
    tiny_model: ModelRef, stock: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    limited, _ = whole_calls(tiny_model, tokenizer_batch=7)
    assert processed(limited) == stock
    assert limited.effective()["tokenizer_batch"] == 7
    budget = max(map(len, PARAGRAPHS)) * 7
    monkeypatch.setattr("jobkit.worker.workloads.stanza_ner.TOKENIZER_CHARS", budget)
    by_setting, on_a_cpu = (whole_calls(tiny_model, paragraphs_per_call=12, padded=budget) for _ in range(2))
    on_a_cpu[0]._whole_calls = False
    for workload, shapes in (by_setting, on_a_cpu, whole_calls(tiny_model)):
        assert processed(workload)[0].entities == stock[0].entities
        assert max(rows for rows, _ in shapes) in {6, 7}
        assert all(rows * columns <= budget for rows, columns in shapes)


# -- refused


def test_with_another_version_they_are_off(
    tiny_model: ModelRef, stock: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stanza.__version__", "1.16.0")
    workload = loaded(tiny_model)
    assert processed(workload) == stock
    reason = "Stanza 1.16.0 is none of the versions that they are written for, 1.10 to 1.15"
    assert workload.effective()["shortcuts"] == f"{OFF}: {reason}"
    assert workload.check_shortcuts(PARAGRAPHS[:1]) == reason


def test_what_they_are_not_written_for_is_refused(
    tiny_model: ModelRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of it alone, in a pipeline that is not refused without."""
    from jobkit.worker.workloads import stanza_shortcuts

    pipeline = loaded(tiny_model, OFF)._pipeline
    tokenizer, [trainer] = pipeline.processors["tokenize"], pipeline.processors["ner"].trainers
    model = trainer.model

    def refusal(target: Any, name: str, value: object) -> str:
        with monkeypatch.context() as patch:
            (patch.setitem if isinstance(target, dict) else patch.setattr)(target, name, value)
            return stanza_shortcuts.refusal(pipeline)

    for version in ("1.9.2", "2.0", "unknown"):
        assert refusal(sys.modules["stanza"], "__version__", version).startswith(f"Stanza {version} is none")
    *others, (function, signature) = stanza_shortcuts.SIGNATURES
    signatures = (*others, (function, signature.replace("vocab, ", "")))
    reason = refusal(stanza_shortcuts, "SIGNATURES", signatures)
    assert reason.startswith(
        "Stanza's output_predictions takes (output_file, trainer, data_generator, vocab,"
    )
    for part, name in ((tokenizer, "TokenizeProcessor"), (model.crits[0], "CRFLoss")):
        reason = refusal(part, "__class__", type("Other", (type(part),), {}))
        assert reason.endswith(f".Other is not Stanza's {name}")
    assert refusal(tokenizer._config, "pretokenized", True) == "the tokenizer has pretokenized"  # noqa: FBT003
    assert refusal(model, "bert_model", object()) == "the tagger has a transformer"
    assert refusal(trainer.args, "charlm", None) == "the tagger has no character language model"
    assert stanza_shortcuts.refusal(pipeline) == ""


def test_a_tokenizer_whose_features_need_more_than_a_character_stays_and_the_rest_is_exact(
    tiny_model: ModelRef,
    stock: list[Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from stanza.pipeline.tokenize_processor import TokenizeProcessor

    from jobkit.worker.workloads.stanza_shortcuts import Features

    monkeypatch.setattr(Features, "SINGLE", Features.SINGLE - {"numeric"})
    workload = loaded(tiny_model)
    assert type(workload._pipeline.processors["tokenize"]) is TokenizeProcessor
    assert processed(workload) == stock
    assert workload.effective()["shortcuts"] == EXACT
    assert workload.check_shortcuts(PARAGRAPHS) == ""


# -- the check


def test_the_check_finds_no_difference_and_leaves_the_shortcuts_on(
    tiny_model: ModelRef, stock: list[Result]
) -> None:
    workload, _ = whole_calls(tiny_model)
    before = dict(workload._pipeline.processors)
    assert workload.check_shortcuts([*PARAGRAPHS, UNFINISHED]) == ""
    assert workload._pipeline.processors == before
    assert processed(workload) == stock
    workload.process(SHORT)
    assert (workload.effective()["shortcuts"], workload.effective()["tokenizer_batch"]) == (EXACT, 40)
    assert loaded(tiny_model, OFF).check_shortcuts(PARAGRAPHS) == OFF, "there is nothing to check"


def test_the_check_names_how_many_paragraphs_have_other_tags(
    tiny_model: ModelRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobkit.worker.workloads.stanza_shortcuts import best_paths

    def wrong(scores: Any, transitions: Any, lengths: Sequence[int]) -> Any:
        found = best_paths(scores, transitions, lengths)
        longest = found[0]
        longest[0] = longest[0] - 1 if longest[0] == scores.shape[2] - 1 else longest[0] + 1
        return found

    workload = loaded(tiny_model, batch_size=1_000)
    monkeypatch.setattr("jobkit.worker.workloads.stanza_arrays.best_paths", wrong)
    said = workload.check_shortcuts(PARAGRAPHS)
    assert re.match(r"in 1 of 12 paragraphs their .* differ", said), said


# -- versions


@pytest.mark.slow
def test_stanza_is_the_newest_version_that_they_are_written_for_or_the_oldest_one() -> None:
    import stanza

    from jobkit.worker.workloads.stanza_shortcuts import VERSIONS

    oldest = WITH_OLDEST in os.environ
    minor = tuple(map(int, stanza.__version__.split(".")[:2]))
    assert minor == VERSIONS[0 if oldest else 1]
    assert (stanza.__version__ == OLDEST) == oldest
    assert ".".join(map(str, (*VERSIONS[0], 0))) == OLDEST


def oldest_stanza(cache: Path) -> Path:
    """Return a folder with `OLDEST` from the package index, in the cache of the checkout."""
    folder = cache / f"stanza-{OLDEST}"
    if folder.is_dir():
        return folder
    part = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    # compiled by pip: what warns of its syntax would be an error in a test
    options = ("--quiet", "--no-deps", "--compile", "--target", str(part))
    command = [sys.executable, "-m", "pip", "install", *options]
    subprocess.run([*command, f"stanza=={OLDEST}"], check=True, timeout=300)
    try:
        part.rename(folder)
    except OSError:  # another run of the tests was first
        shutil.rmtree(part)
    assert folder.is_dir()
    return folder


@pytest.mark.installs
@pytest.mark.slow
@pytest.mark.usefixtures("tiny_model")
def test_all_of_this_holds_with_the_oldest_version(kept_cache: Path) -> None:
    """In a process of its own, which runs all tests of this file but this one."""
    words = [sys.executable, "-m", "pytest", __file__, "-q", "-n", "0", "-p", "no:cacheprovider"]
    given = {**os.environ, "PYTHONPATH": str(oldest_stanza(kept_cache.parent)), WITH_OLDEST: "1"}
    done = subprocess.run(
        [*words, "-m", "not installs"], env=given, text=True, capture_output=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-8_000:]
    counted = re.search(r"(\d+) passed, 1 deselected in", done.stdout)
    assert counted, done.stdout[-8_000:]
    assert int(counted[1]) > 10
