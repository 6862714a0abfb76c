from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from jobkit.planning.sample import Sample, generate
from jobkit.planning.standin import tagged_sentences, word_counts, write_labelled

pytestmark = pytest.mark.xdist_group("torch")  # as the other tests that import it


@pytest.fixture(scope="module")
def sample() -> Sample:
    return generate(7, 120)


def test_words_are_counted_in_lower_case_and_titles_are_whole(sample: Sample) -> None:
    counts = word_counts(sample)
    assert all(word == word.lower() for word in counts)
    text = "".join(sample.paragraphs)
    assert counts["mr."] == text.count("Mr.") > 0
    assert counts[","] < text.count(",")  # the others are inside numbers


def test_tags_are_begun_inside_ended_and_single() -> None:
    tags = [str(token["ner"]) for sentence in tagged_sentences(generate(3, 300)) for token in sentence]
    assert {tag[0] for tag in tags} == set("BIESO")
    for before, after in zip(["O", *tags], [*tags, "O"], strict=True):
        opened = before[0] in "BI"
        assert (after[0] in "IE") == opened
        assert not opened or before[2:] == after[2:]


def test_stanza_reads_back_the_sentences_that_were_labelled(tmp_path: Path, sample: Sample) -> None:
    from stanza.models.tokenization.data import TokenizationDataset

    read = TokenizationDataset({}, input_files=write_labelled(tmp_path, sample)).data
    assert len(read) == len(sample.paragraphs)
    for units, text, spans in zip(read, sample.paragraphs, sample.sentences, strict=True):
        ends = [0, *(at for at, (_, label) in enumerate(units, 1) if label == 2)]
        sentences = ["".join(character for character, _ in units[a:b]) for a, b in pairwise(ends)]
        assert ends[-1] == len(units)
        assert [" ".join(sentence.split()) for sentence in sentences] == [
            " ".join(text[start:end].split()) for start, end in spans
        ]


def test_every_token_ends_and_none_spans_a_space(tmp_path: Path, sample: Sample) -> None:
    paths = write_labelled(tmp_path, sample)
    text, labels = (Path(paths[kind]).read_text(encoding="utf-8") for kind in ("txt", "label"))
    assert len(text) == len(labels)
    ended = [mark in "12" for mark in labels]
    for at, character in enumerate(text):
        if character.isspace():
            assert not at or text[at - 1].isspace() or ended[at - 1]
            assert not ended[at]
