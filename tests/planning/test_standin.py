from __future__ import annotations

import fcntl
import json
from itertools import pairwise
from pathlib import Path

import pytest

from jobkit.core.records import ModelRef
from jobkit.planning import standin
from jobkit.planning.sample import SEED, Sample, generate
from jobkit.planning.standin import (
    PARTS,
    is_built,
    make_standin,
    part_path,
    read_card,
    standin_path,
    tagged_sentences,
    word_counts,
    write_labelled,
)

FLOOR_F1 = 0.90


def test_it_tags_text_that_it_has_not_seen(tiny_model: ModelRef) -> None:
    card = read_card(Path(tiny_model.path))
    assert len({card.training_seed, card.held_out_seed, SEED}) == 3
    assert (card.training_seed, card.held_out_seed) == (standin.TRAINING_SEED, standin.HELD_OUT_SEED)
    assert card.f1 >= FLOOR_F1
    assert card.sentences == pytest.approx(card.gold_sentences, rel=0.03)
    assert {"torch", "stanza"} <= set(card.versions)


def test_it_is_small_and_whole(tiny_model: ModelRef) -> None:
    folder = Path(tiny_model.path)
    assert is_built(folder)
    assert tiny_model.size_bytes < 20_000_000
    assert all(part_path(folder, part).is_file() for part in PARTS)


def test_it_has_no_address_to_fetch_from(tiny_model: ModelRef) -> None:
    resources = json.loads((Path(tiny_model.path) / "resources.json").read_text())
    assert resources["url"] == ""
    assert "mwt" not in resources["en"]


def test_what_is_built_is_not_built_again(
    tiny_model: ModelRef, kept_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    card = make_standin("tiny", kept_cache, said.append)
    assert card == read_card(Path(tiny_model.path))
    assert said == []
    assert capsys.readouterr() == ("", "")


def test_a_second_builder_waits_for_the_first(tiny_model: ModelRef, tmp_path: Path) -> None:
    made = standin_path("tiny", tmp_path)
    made.parent.mkdir(parents=True)
    lock = made.with_name(f".{made.name}.lock")
    said: list[str] = []
    with lock.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def say(line: str) -> None:
            said.append(line)
            made.symlink_to(tiny_model.path)  # as the first builder leaves it
            fcntl.flock(other, fcntl.LOCK_UN)

        assert make_standin("tiny", tmp_path, say) == read_card(Path(tiny_model.path))
    assert len(said) == 1
    assert "waiting" in said[0]


def test_full_has_the_english_models_dimensions() -> None:
    full = standin.SIZES["full"]
    assert (full.charlm_hidden, full.ner_hidden, full.word_dim) == (1024, 256, 100)


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
