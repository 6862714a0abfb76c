"""The project's own sample text: English-looking, generated, the same bytes everywhere.

It has a novel's distribution of paragraph lengths (881 of them, median 119 characters, longest
about 1,070), lines wrapped at 72 columns, indented paragraphs, quoted speech, one sentence of
900 characters and more, and gold entity spans. Only ``random.Random(seed).random()`` is drawn
from, whose sequence Python guarantees; the words are in ``sample_grammar.txt``.
"""

from __future__ import annotations

import functools
import hashlib
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from jobkit.core.files import write_atomically
from jobkit.core.frozen import frozen
from jobkit.core.paths import cache_write_errors, make_folder, share_with_group
from jobkit.worker.workloads.base import Entity, as_tsv

SEED = 1867
"""Its text has the longest sentence in the first fifth, so that the load grows with the batch size."""
PARAGRAPHS = 881
COLUMNS = 72
LONG_SENTENCE_CHARS = 920

PARAGRAPH_CHARS = (
    (0, 5),
    (5, 24),
    (25, 62),
    (50, 119),
    (75, 233),
    (90, 420),
    (97, 640),
    (99.5, 900),
    (100, 1070),
)
"""Percentiles of the lengths of a novel's paragraphs: (percent, characters), linear in between."""
SENTENCE_CHARS = ((0, 12), (25, 45), (50, 75), (80, 130), (95, 230), (99, 400), (100, 520))
"""Percentiles of the lengths of its sentences: most are short, and a batch pads to the few long ones."""
TINY_CHARS = (14, 30)
"""A sentence shorter than the first is always an exclamation, one longer than the second never."""
SPEECH_CHARS = 100
SPEECH_SHARE = 0.5
INDENTS = ((0.04, (4, 4)), (0.08, (2, 0)), (1.0, (0, 0)))
"""(cumulative share of paragraphs, (spaces before the first line, before each later line))."""
TRIES = 12
"""Sentences made for the end of a paragraph; the one of the best length is used."""

_GRAMMAR = Path(__file__).with_name("sample_grammar.txt")
_SLOT = re.compile(r"\{([\w:]+)\}")


class LabelledSpan(NamedTuple):
    """A labelled stretch of a text, offsets in characters."""

    label: str
    start: int
    end: int


@frozen
class SampleText:
    """A text with its entities and, at the level of a paragraph, its sentences."""

    text: str
    entities: tuple[LabelledSpan, ...] = ()
    sentences: tuple[tuple[int, int], ...] = ()


@frozen
class Sample:
    # as `jobkit.core.paragraphs.split_paragraphs` reads them back, each ending in a newline
    paragraphs: tuple[str, ...]
    # every entity in text order; ``paragraphs[e.paragraph][e.start:e.end] == e.text``
    gold: tuple[Entity, ...]
    # for every paragraph the ``(start, end)`` of its sentences, without the white space between them
    sentences: tuple[tuple[tuple[int, int], ...], ...]


@functools.cache
def generate(seed: int, paragraphs: int = PARAGRAPHS) -> Sample:
    """Return the text of a seed: `SEED` is that of the sample, training and evaluation have their own."""
    dice = random.Random(seed)  # noqa: S311 - not cryptography
    author = _Author(dice, _rules())
    step = 100 / max(paragraphs - 1, 1)
    goals = [_percentile(PARAGRAPH_CHARS, index * step) for index in range(paragraphs)]
    for upper in range(len(goals) - 1, 0, -1):  # `random.shuffle` may differ between Pythons
        other = int(dice.random() * (upper + 1))
        goals[upper], goals[other] = goals[other], goals[upper]
    pieces = [author.paragraph(goal) for goal in goals]
    gold = (
        Entity(number, piece.text[start:end], label, start, end)
        for number, piece in enumerate(pieces)
        for label, start, end in piece.entities
    )
    return Sample(
        paragraphs=tuple(piece.text for piece in pieces),
        gold=tuple(gold),
        sentences=tuple(piece.sentences for piece in pieces),
    )


def sample_text(paragraphs: int = PARAGRAPHS) -> str:
    r"""Return the sample text, paragraphs separated by blank lines, line ends ``\n``."""
    return join_paragraphs(generate(SEED, paragraphs).paragraphs)


def join_paragraphs(paragraphs: Iterable[str]) -> str:
    return "\n".join(paragraphs)


def sample_path(folder: Path, text: str) -> Path:
    return folder / f"sample-{hashlib.sha256(text.encode()).hexdigest()[:12]}.txt"


def generator_version() -> str:
    """Return a checksum of this module and its grammar: another version may make another text."""
    return hashlib.sha256(Path(__file__).read_bytes() + _GRAMMAR.read_bytes()).hexdigest()[:12]


def write_sample(folder: Path, paragraphs: int = PARAGRAPHS) -> Path:
    """Write the sample text into a folder unless it is there, with its gold entities next to it.

    The file is ``sample-DIGITS.txt``, with the first 12 digits of its sha256; the gold is
    ``sample-DIGITS.gold.tsv``.
    """
    sample = generate(SEED, paragraphs)
    text = join_paragraphs(sample.paragraphs)
    path = sample_path(folder, text)
    gold = path.with_suffix(".gold.tsv")
    with cache_write_errors(folder):
        make_folder(folder)
        for file, wanted in ((gold, as_tsv(sample.gold)), (path, text)):
            if not file.exists() or file.read_bytes() != wanted.encode():
                write_atomically(file, wanted)
                share_with_group(file)
    return path


def _rules() -> dict[str, tuple[list[str], ...]]:
    """Return the alternatives of each rule, as text and names of rules by turns."""
    text = _GRAMMAR.read_text(encoding="utf-8")
    joined = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\n ", "")
    named = (line.partition(": ") for line in joined.splitlines() if line)
    return {name: tuple(_SLOT.split(part.strip()) for part in body.split("|")) for name, _, body in named}


def _percentile(table: Sequence[tuple[float, int]], percent: float) -> int:
    for (low, at_low), (high, at_high) in pairwise(table):
        if percent <= high:
            return round(at_low + (at_high - at_low) * (percent - low) / (high - low))
    return table[-1][1]


@frozen
class _Author:
    dice: random.Random
    rules: Mapping[str, tuple[list[str], ...]]

    def expand(self, rule: str) -> SampleText:
        parts, entities = list[str](), list[LabelledSpan]()
        self._write(rule, 0, parts, entities)
        return SampleText("".join(parts), tuple(entities))

    def _write(self, rule: str, start: int, parts: list[str], entities: list[LabelledSpan]) -> int:
        """Append a rule's text, which begins at ``start``, and its entities; return where it ends."""
        alternatives, known, end = self.rules[rule], len(entities), start
        for index, part in enumerate(alternatives[int(self.dice.random() * len(alternatives))]):
            if index % 2:
                end = self._write(part, end, parts, entities)
            else:
                parts.append(part)
                end += len(part)
        if (label := rule.partition(":")[0]).isupper():
            entities[known:] = [LabelledSpan(label, start, end)]
        return end

    def sentence(self, goal: int) -> SampleText:
        chance = self.dice.random()
        low, high = TINY_CHARS
        if goal < low + (high - low) * chance:
            return _capitalised(self.expand("tiny"))
        if goal < SPEECH_CHARS and chance < SPEECH_SHARE:
            return _capitalised(self.expand("quote"))
        return self.narration(goal)

    def narration(self, goal: int) -> SampleText:
        pieces = [self.expand("clause")]
        length = len(pieces[0].text)
        while length + 20 < goal:
            pieces += [self.expand("and"), SampleText(" "), self.expand("clause")]
            length += sum(len(piece.text) for piece in pieces[-3:])
        return _capitalised(_concatenate([*pieces, self.expand("end")]))

    def paragraph(self, goal: int) -> SampleText:
        chance = self.dice.random()
        indent, hanging = next(indents for share, indents in INDENTS if chance < share)
        left = goal - 1 - indent - hanging * (goal // COLUMNS)
        sentences: list[SampleText] = []
        if goal >= PARAGRAPH_CHARS[-1][1]:
            sentences.append(self.narration(LONG_SENTENCE_CHARS))
            left -= len(sentences[0].text) + 1
        while left > (drawn := _percentile(SENTENCE_CHARS, 100 * self.dice.random())) + 30:
            sentences.append(self.sentence(drawn))
            left -= len(sentences[-1].text) + 1
        tries = [self.sentence(left) for _ in range(TRIES)]
        sentences.append(min(tries, key=lambda piece: abs(len(piece.text) - left)))
        return _laid_out(sentences, indent, hanging)


def _concatenate(pieces: Iterable[SampleText]) -> SampleText:
    text = ""
    entities: list[LabelledSpan] = []
    for piece in pieces:
        entities += (
            LabelledSpan(label, start + len(text), end + len(text)) for label, start, end in piece.entities
        )
        text += piece.text
    return SampleText(text, tuple(entities))


def _capitalised(piece: SampleText) -> SampleText:
    at = 1 if piece.text.startswith("“") else 0
    return SampleText(piece.text[:at] + piece.text[at].upper() + piece.text[at + 1 :], piece.entities)


def _laid_out(sentences: Sequence[SampleText], indent: int, hanging: int) -> SampleText:
    """Return sentences as one paragraph, wrapped and indented, with all offsets moved along."""
    places: list[int] = []  # the place of each character of the sentences joined by spaces
    text = " " * indent
    column = indent
    for word in re.findall(r" ?[^ ]+", " ".join(piece.text for piece in sentences)):
        rest = word
        if word.startswith(" ") and column + len(word) > COLUMNS:
            places.append(len(text))  # the space becomes the newline
            text += "\n" + " " * hanging
            column, rest = hanging, word[1:]
        places += range(len(text), len(text) + len(rest))
        text += rest
        column += len(rest)
    entities: list[LabelledSpan] = []
    spans: list[tuple[int, int]] = []
    at = 0
    for piece in sentences:
        spans.append((places[at], places[at + len(piece.text) - 1] + 1))
        for label, start, end in piece.entities:
            entities.append(LabelledSpan(label, places[at + start], places[at + end - 1] + 1))
        at += len(piece.text) + 1
    return SampleText(text + "\n", tuple(entities), tuple(spans))
