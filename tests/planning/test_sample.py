from __future__ import annotations

import csv
import hashlib
from pathlib import Path

import pytest

from jobkit.core.paragraphs import split_paragraphs
from jobkit.planning import sample as text
from jobkit.planning.sample import SEED, Sample, generate, write_sample
from jobkit.worker.paragraphs import read_paragraphs

SHA256 = "3893a1c6adf0f8557b80cd358db4ff686c1487e35e7d72f4fe1bb498d5a93570"


@pytest.fixture(scope="module")
def sample() -> Sample:
    return generate(SEED)


@pytest.mark.parametrize("seed", [1, 2])
def test_paragraphs_are_read_back_and_gold_spans_are_the_text_at_their_offsets_in_order(seed: int) -> None:
    made = generate(seed, 200)
    assert split_paragraphs(text.join_paragraphs(made.paragraphs)) == list(made.paragraphs)
    assert made.gold
    for entity in made.gold:
        assert made.paragraphs[entity.paragraph][entity.start : entity.end] == entity.text
        assert entity.text == entity.text.strip()
    places = [(entity.paragraph, entity.start, entity.end) for entity in made.gold]
    assert places == sorted(set(places))


def test_sentences_cover_the_paragraph(sample: Sample) -> None:
    for paragraph, spans in zip(sample.paragraphs, sample.sentences, strict=True):
        rest = paragraph
        for start, end in reversed(spans):
            rest = rest[:start] + rest[end:]
        assert not rest.strip()


def test_the_same_bytes_are_written_everywhere_and_a_damaged_text_is_fixed(
    tmp_path: Path, sample: Sample
) -> None:
    path = write_sample(tmp_path / "texts")
    assert path.name == f"sample-{SHA256[:12]}.txt"
    written = path.read_bytes()
    assert hashlib.sha256(written).hexdigest() == SHA256
    assert max(map(len, written.decode().splitlines())) <= text.COLUMNS
    assert read_paragraphs(path) == list(sample.paragraphs)
    assert b"\r" not in written
    with path.with_suffix(".gold.tsv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream, delimiter="\t"))
    assert rows[0] == ["paragraph", "text", "label", "start", "end"]
    assert rows[1:] == [[str(value) for value in entity] for entity in sample.gold]
    path.write_text("mine", encoding="utf-8")
    assert write_sample(tmp_path / "texts").read_bytes() == written


@pytest.mark.parametrize("paragraphs", [2, 12, 23])
def test_any_number_of_paragraphs_has_the_shortest_and_the_longest(paragraphs: int) -> None:
    """11 steps of 100 / 11 percent come to more than 100 (12 paragraphs), and so do 22."""
    lengths = [len(paragraph) for paragraph in generate(SEED, paragraphs).paragraphs]
    assert len(lengths) == paragraphs
    assert min(lengths) == pytest.approx(5, abs=10)
    assert max(lengths) == pytest.approx(1070, abs=20)
