from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.answers.loads import NONE, PUNCTUATION, TOKENIZER, Lengths, Loads
from jobkit.core.errors import JobkitError
from jobkit.core.records import ModelRef, TextRef
from jobkit.planning import texts as known_lengths
from jobkit.planning.models import NOT_BUILT
from jobkit.planning.sample import SEED, generate
from jobkit.planning.texts import (
    cached_lengths,
    estimated_lengths,
    find_text,
    lengths_or_estimate,
    paragraphs_of,
    text_lengths,
)
from tests.support.builders import own_workload


@pytest.fixture
def text(tmp_path: Path) -> TextRef:
    return find_text("sample:40", base=tmp_path, cache=tmp_path)


@pytest.fixture
def said() -> list[str]:
    return []


def test_the_sample_need_not_be_on_disk(tmp_path: Path, text: TextRef) -> None:
    nowhere = replace(text, path=str(tmp_path / "gone.txt"))
    assert paragraphs_of(nowhere) == paragraphs_of(text) == list(generate(SEED, 40).paragraphs)


def test_a_workload_without_lengths_has_none(tmp_path: Path, text: TextRef, said: list[str]) -> None:
    name = own_workload(tmp_path, "lengths = None")
    found = text_lengths(name, text, None, cache=tmp_path, say=said.append, folder=str(tmp_path))
    assert found == Lengths.unknown(40)
    assert found.source == NONE


def test_without_a_framework_they_are_found_at_once(tmp_path: Path, text: TextRef, said: list[str]) -> None:
    found = text_lengths("count", text, None, cache=tmp_path, say=said.append, fast=True)
    assert found.paragraphs == tuple((len(one),) for one in paragraphs_of(text))
    assert (found.source, said) == (TOKENIZER, [])
    assert cached_lengths("count", text, None, tmp_path) is None


def test_with_a_model_they_are_found_once_and_an_estimate_is_near(
    tmp_path: Path, tiny_model: ModelRef, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = find_text("sample:100", base=tmp_path, cache=tmp_path)
    assert cached_lengths("stanza-ner", text, tiny_model, tmp_path) is None
    found = text_lengths("stanza-ner", text, tiny_model, cache=tmp_path, say=said.append)
    assert len(said) == 1
    estimate = Loads(estimated_lengths(paragraphs_of(text)))
    for size in (10, 50, 100):
        assert estimate.load(size) == pytest.approx(Loads(found).load(size), rel=0.05)
    monkeypatch.setattr(known_lengths, "run_in_child", lambda *_, **__: pytest.fail("found again"))
    assert text_lengths("stanza-ner", text, tiny_model, cache=tmp_path, say=said.append) == found
    assert cached_lengths("stanza-ner", text, tiny_model, tmp_path) == found
    assert cached_lengths("stanza-ner", replace(text, sha256="0"), tiny_model, tmp_path) is None
    assert cached_lengths("stanza-ner", text, replace(tiny_model, fingerprint="0"), tmp_path) is None
    (kept,) = (tmp_path / "lengths").iterdir()
    kept.write_text("{}")
    assert cached_lengths("stanza-ner", text, tiny_model, tmp_path) is None


def test_without_its_model_or_in_haste_they_are_estimated(
    tmp_path: Path, text: TextRef, tiny_model: ModelRef, said: list[str]
) -> None:
    unbuilt = replace(tiny_model, fingerprint=NOT_BUILT)
    for model, fast in ((unbuilt, False), (tiny_model, True)):
        found = text_lengths("stanza-ner", text, model, cache=tmp_path, say=said.append, fast=fast)
        assert found.source == PUNCTUATION
    assert not (tmp_path / "lengths").exists()
    assert said == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            "raise RuntimeError('no such thing')",
            r"could not be computed: .*own\.py:6: RuntimeError: no such thing",
        ),
        ("return [[1]]", r"own\.py:4\): lengths\(\) returned lengths of 1 paragraphs, not 40"),
        ("return 7", r"own\.py:4\): lengths\(\) returned 7; expected: a list for each paragraph"),
        ("return [['1']] * 40", r"lengths\(\) returned \[\['1'\]"),
        ("import os; os.abort()", "its process was killed by signal 6"),
    ],
)
def test_a_workload_that_fails_to_tell_is_named(body: str, told: str, tmp_path: Path, text: TextRef) -> None:
    name, folder = own_workload(tmp_path, "@staticmethod", "def lengths(p, m):", f"    {body}"), str(tmp_path)
    with pytest.raises(JobkitError, match=told) as caught:
        text_lengths(name, text, None, cache=tmp_path, say=print, folder=folder)
    assert caught.value.hint
    with pytest.raises(JobkitError, match=told):
        lengths_or_estimate(name, text, None, cache=tmp_path, say=print, folder=folder)


def test_a_sweep_goes_on_with_an_estimate_if_the_model_fails(tmp_path: Path, text: TextRef) -> None:
    broken = ModelRef(
        path=str(tmp_path), name="en", size="tiny", stand_in=True, fingerprint="0", size_bytes=0
    )
    said: list[str] = []
    found = lengths_or_estimate("stanza-ner", text, broken, cache=tmp_path, say=said.append)
    assert found.source == PUNCTUATION
    assert "estimated" in said[-1]
