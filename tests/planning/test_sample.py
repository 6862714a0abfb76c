from __future__ import annotations

import csv
import hashlib
from pathlib import Path
from statistics import mean, median

import pytest

from jobkit.core.paragraphs import split_paragraphs
from jobkit.planning import sample as text
from jobkit.planning.sample import SEED, Sample, generate, sample_text, write_sample
from jobkit.worker.paragraphs import read_paragraphs

SHA256 = "3893a1c6adf0f8557b80cd358db4ff686c1487e35e7d72f4fe1bb498d5a93570"


@pytest.fixture(scope="module")
def sample() -> Sample:
    return generate(SEED)


def test_the_same_bytes_everywhere() -> None:
    assert hashlib.sha256(sample_text().encode()).hexdigest() == SHA256


def test_other_seeds_give_other_text(sample: Sample) -> None:
    other = generate(SEED + 1)
    assert not {p for p in sample.paragraphs if len(p) > 60} & set(other.paragraphs)


def test_lengths_are_a_novels(sample: Sample) -> None:
    lengths = [len(paragraph) for paragraph in sample.paragraphs]
    assert len(lengths) == text.PARAGRAPHS == 881
    assert median(lengths) == pytest.approx(119, abs=3)
    assert mean(lengths) == pytest.approx(185.5, abs=4)
    assert min(lengths) == pytest.approx(5, abs=2)
    assert max(lengths) == pytest.approx(1070, abs=20)


def test_one_sentence_is_very_long_and_most_are_short(sample: Sample) -> None:
    lengths = sorted(end - start for spans in sample.sentences for start, end in spans)
    assert lengths[-1] >= text.LONG_SENTENCE_CHARS - 20
    assert median(lengths) < 80
    assert lengths[-20] > 250


@pytest.mark.parametrize("seed", [SEED, 1, 2])
def test_paragraphs_are_read_back_as_they_were_made(seed: int) -> None:
    made = generate(seed, 200).paragraphs
    assert split_paragraphs(text.join_paragraphs(made)) == list(made)


@pytest.mark.parametrize("seed", [SEED, 1, 2])
def test_gold_spans_are_the_text_at_their_offsets_and_in_order(seed: int) -> None:
    made = generate(seed, 300)
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


def test_hard_cases_are_there(sample: Sample) -> None:
    assert {"PERSON", "GPE", "ORG", "DATE", "CARDINAL", "ORDINAL", "WORK_OF_ART"} <= {
        entity.label for entity in sample.gold
    }
    assert sum("\n" in entity.text for entity in sample.gold) >= 30
    assert sum("\n    " in entity.text for entity in sample.gold) >= 1
    assert sum(paragraph.startswith(" ") for paragraph in sample.paragraphs) >= 30
    assert any("“" in paragraph for paragraph in sample.paragraphs)
    assert max(len(line) for line in sample_text().splitlines()) <= text.COLUMNS


def test_write_sample_writes_text_and_gold_and_fixes_a_damaged_text(tmp_path: Path, sample: Sample) -> None:
    path = write_sample(tmp_path / "texts")
    assert path.name == f"sample-{SHA256[:12]}.txt"
    assert read_paragraphs(path) == list(sample.paragraphs)
    assert b"\r" not in path.read_bytes()
    gold = path.with_suffix(".gold.tsv")
    with gold.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream, delimiter="\t"))
    assert rows[0] == ["paragraph", "text", "label", "start", "end"]
    assert rows[1:] == [[str(value) for value in entity] for entity in sample.gold]
    path.write_text("mine", encoding="utf-8")
    assert write_sample(tmp_path / "texts").read_text(encoding="utf-8") == sample_text()


@pytest.mark.parametrize("paragraphs", [2, 11, 12, 13, 23])
def test_any_number_of_paragraphs_has_the_shortest_and_the_longest(paragraphs: int) -> None:
    """11 steps of 100 / 11 percent come to more than 100 (12 paragraphs), and so do 22."""
    lengths = [len(paragraph) for paragraph in generate(SEED, paragraphs).paragraphs]
    assert len(lengths) == paragraphs
    assert min(lengths) == pytest.approx(5, abs=10)
    assert max(lengths) == pytest.approx(1070, abs=20)
