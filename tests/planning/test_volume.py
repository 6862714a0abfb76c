from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.answers.speed import CorpusVolume
from jobkit.core.errors import JobkitError
from jobkit.core.paths import CACHE_VARIABLE
from jobkit.core.records import ModelRef
from jobkit.planning.texts import find_text, read_corpus, text_lengths
from tests.support.recommendations import records


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))


def test_a_corpus_is_a_file_or_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("letters.txt").write_text("One.\n\nThree four.\n", encoding="utf-8")
    found = read_corpus("letters.txt", records())
    assert (found.name, found.paragraphs, found.characters) == ("letters.txt", 2, 17)
    assert found.loads is None, "its lengths were never asked for"
    assert read_corpus("letters.txt", []).loads is None
    Path("1984").write_text("It was a bright cold day.\n", encoding="utf-8")
    assert read_corpus("1984", records()).paragraphs == 1, "a file with the name of a number is a file"
    for text in ("2000000", "2,000,000", "2_000_000", "2.0E6", "2E+6"):
        assert read_corpus(text, records()) == CorpusVolume(paragraphs=2_000_000)
    with pytest.raises(JobkitError, match="not downloaded yet") as caught:
        read_corpus("http://localhost:9/a.txt", records())
    assert "curl -LO http://localhost:9/a.txt" in caught.value.hint


def test_a_corpus_whose_lengths_were_found_brings_its_loads(
    tiny_model: ModelRef, kept_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(kept_cache))
    text = find_text("sample", base=Path(), cache=kept_cache)  # as make model did
    lengths = text_lengths("stanza-ner", text, tiny_model, cache=kept_cache, say=print)
    told = [replace(record, point=replace(record.point, model=tiny_model)) for record in records()]
    found = read_corpus("sample", told)
    assert found.loads is not None
    assert found.loads.lengths == lengths
    assert lengths.source == "tokenizer"


def test_what_is_neither_a_number_nor_a_text_says_what_may_stand_there() -> None:
    for text, why in {
        "0": "is not between 1 and 1,000,000,000,000 paragraphs",
        "1.5": "is not a whole number",
        "1,2,3": "text '1,2,3': there is no",
    }.items():
        with pytest.raises(JobkitError, match=f"--corpus {re.escape(text)}:? {why}") as caught:
            read_corpus(text, records())
        assert "2e6" in caught.value.hint
