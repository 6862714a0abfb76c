"""What is true of a generated text, in the form that Stanza's trainers read. Standard library only."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jobkit.planning.sample import Sample, join_paragraphs
from jobkit.run.workloads.base import Entity

LONGEST_TRAINED_CHARS = 120
"""Sentences longer than this are not trained on: they cost much and teach nothing new."""
COMMON = frozenset({"PERSON", "GPE", "DATE"})
EMPTY_SHARE, COMMON_SHARE = 0.15, 0.5
"""How many of the sentences without an entity, and with common ones only, are trained on."""

_TOKEN = re.compile(r"(?:Mr|Mrs|Dr)\.|\d+(?:,\d{3})*|[^\W\d_]+(?:\u2019[^\W\d_]+)*|[^\w\s]|_")


def word_counts(sample: Sample) -> Counter[str]:
    """Return how often the text has each word, in lower case."""
    return Counter(token.lower() for text in sample.paragraphs for token in _TOKEN.findall(text))


def tagged_sentences(sample: Sample) -> Iterator[list[dict[str, Any]]]:
    """Yield sentences to train on, as Stanza's token dictionaries with BIES tags.

    Long sentences are left out, and many of those that have little to teach.
    """
    gold: dict[int, list[Entity]] = {}
    for entity in sample.gold:
        gold.setdefault(entity.paragraph, []).append(entity)
    for number, (text, sentences) in enumerate(zip(sample.paragraphs, sample.sentences, strict=True)):
        for start, end in sentences:
            inside = [entity for entity in gold.get(number, []) if start <= entity.start < end]
            if end - start <= LONGEST_TRAINED_CHARS and random.random() < _share(inside):  # noqa: S311
                tokens = enumerate(_TOKEN.finditer(text, start, end), 1)
                yield [
                    {"id": (at,), "text": token.group(), "ner": _tag(token, inside)} for at, token in tokens
                ]


def _share(entities: Sequence[Entity]) -> float:
    if not entities:
        return EMPTY_SHARE
    return COMMON_SHARE if {entity.label for entity in entities} <= COMMON else 1.0


def _tag(token: re.Match[str], entities: Sequence[Entity]) -> str:
    for entity in entities:
        if entity.start <= token.start() < entity.end:
            first, last = token.start() == entity.start, token.end() == entity.end
            return ("S-" if first and last else "B-" if first else "E-" if last else "I-") + entity.label
    return "O"


def write_labelled(folder: Path, sample: Sample) -> dict[str, str]:
    """Write a text and its labels into a folder; return the files by the names of Stanza's loader.

    Each character has a label: 1 if a token ends there, 2 if a sentence does, else 0.
    """
    labels = []
    for text, sentences in zip(sample.paragraphs, sample.sentences, strict=True):
        marks = ["0"] * (len(text) - 1)
        for token in _TOKEN.finditer(text):
            marks[token.end() - 1] = "1"
        for _, end in sentences:
            marks[end - 1] = "2"
        labels.append("".join(marks) + "\n")
    (folder / "text").write_text(join_paragraphs(sample.paragraphs), encoding="utf-8")
    (folder / "labels").write_text(join_paragraphs(labels), encoding="utf-8")
    return {"txt": str(folder / "text"), "label": str(folder / "labels")}
