from __future__ import annotations

import json
from pathlib import Path

from jobkit.answers.speed import CorpusVolume
from jobkit.planning.volume import read_corpora


def test_a_corpus_of_documents_is_as_large_as_apply_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"id": "1", "text": "One.\n\nTwo."}) + "\n", encoding="utf-8")
    one = CorpusVolume(name=str(path), paragraphs=2, characters=len("One.\nTwo."))
    assert read_corpora([str(path)], ()) == one
    other = tmp_path / "b.txt"
    other.write_text("Three.\n", encoding="utf-8")
    both = read_corpora([str(path), str(other)], ())
    assert (both.name, both.paragraphs) == (f"{path} and 1 more path", 3)


def test_a_number_and_a_plain_text_are_left_to_the_kernel(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("One.\n", encoding="utf-8")
    assert read_corpora(["2e6"], ()).paragraphs == 2_000_000
    assert read_corpora([str(path)], ()) == CorpusVolume(name=str(path), paragraphs=1, characters=5)
