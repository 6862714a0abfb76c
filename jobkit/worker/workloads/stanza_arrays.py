"""Stanza's tokenizer and tagger with a call as arrays: no object for a token, nothing looked up twice.

Stanza makes an object of every token and of every word, and a list of every character. Here a call is one
array of characters; tokens and sentences are places in it, and a batch is cut out of it and copied to the
device in one piece. Networks, batches and padding are those of `jobkit.worker.workloads.stanza_shortcuts`;
what makes and reads them follows Stanza's ``TokenizationDataset``, ``decode_predictions``, ``DataLoader``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from stanza.models.common.vocab import VOCAB_PREFIX_SIZE, CompositeVocab
from stanza.models.ner import trainer as stock
from stanza.models.ner.model import NERTagger
from stanza.models.ner.utils import decode_from_bioes
from stanza.models.tokenization.data import NEWLINE_WHITESPACE_RE, WHITESPACE_RE
from stanza.models.tokenization.utils import update_pred_regex
from stanza.pipeline.tokenize_processor import TOKEN_TOO_LONG_REPLACEMENT
from torch.nn.utils.rnn import PackedSequence

from jobkit.core.frozen import frozen
from jobkit.worker.workloads.base import Entity
from jobkit.worker.workloads.stanza_shortcuts import (
    BatchTrainer,
    Characters,
    Features,
    Tokenizer,
    best_paths,
    seen_as,
    with_parts,
)

Array = Any  # of numpy; Stanza and torch are untyped here

MAYBE_ADDRESS = re.compile(r"@|://|www\.|\.(?:gov|org|edu|net|com|co)")
"""What every match of Stanza's expression for addresses has in it."""


def ranges(first: Array, counts: Array) -> Array:
    """Return ``counts[0]`` numbers from ``first[0]`` on, then those of the next one."""
    return np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())


def longest_first(lengths: Array) -> Array:
    """Return the order in which Stanza's ``sort_all`` puts them."""
    return np.lexsort((np.arange(len(lengths)), lengths))[::-1]


class Numbers:
    """A number for each character, which a function finds for a character that is new."""

    def __init__(self, find: Callable[[str], int]) -> None:
        self.find = find
        self.known = np.full(0x110000, -1, dtype=np.int32)

    def of(self, codes: Array) -> Array:
        """Return the numbers of characters."""
        for code in np.unique(codes[self.known[codes] < 0]).tolist():
            self.known[code] = self.find(chr(code))
        return self.known[codes]


@frozen
class Tokens:
    """The tokens of a call, in the order of the text.

    ``codes``: characters. ``first``, ``widths``: where each token is in them. ``start``, ``end``: where it is
    in its paragraph. ``words``: their texts.
    ``sentences``: the number of the first token of each, and the number of tokens.
    ``paragraphs``: of each sentence. ``columns``: of each sentence, that it takes in a batch.
    """

    codes: Array
    first: Array
    widths: Array
    start: Array
    end: Array
    words: list[str]
    sentences: Array
    paragraphs: Array
    columns: Array


# -- the tokenizer


class ArrayTokenizer:
    """Cuts texts into tokens as the tokenizer of a pipeline does."""

    def __init__(self, processor: Any) -> None:  # noqa: ANN401
        config, self.trainer = processor.config, processor.trainer
        self.vocab = processor.vocab
        self.longest = config.get("max_seqlen", processor.MAX_SEQ_LENGTH_DEFAULT)
        self.splits = not config.get("no_ssplit", False)
        dictionary = processor.trainer.dictionary
        self.data = Features(config, input_text="", vocab=self.vocab, evaluation=True, dictionary=dictionary)
        self.data.alphabet = processor.alphabet
        self.numbers = Numbers(lambda unit: self.data.number(WHITESPACE_RE.sub(" ", unit)))
        self.blank = self.data.number(" ")
        self.device = next(self.trainer.model.parameters()).device
        self.tables: tuple[Any, ...] = ()
        self.known = 0  # characters in the tables

    def cut(self, texts: Sequence[str]) -> Tokens:
        """Return the tokens of texts."""
        codes, numbers, places, firsts = self._read("\n\n".join(texts))
        read = codes.tobytes().decode("utf-32-le", "surrogatepass")
        counts = np.append(firsts, len(places))[1:] - firsts
        marks = self._marks(read, numbers, firsts, counts)
        lasts = firsts + counts - 1
        ends = np.flatnonzero(marks)
        heads: Array = np.append(0, ends[:-1] + 1) if len(ends) else ends
        heads = heads + (numbers[heads] == self.blank)  # a blank before a token; there are no two
        some = heads <= ends
        heads, ends = heads[some], ends[some]
        pieces = np.searchsorted(lasts, ends)
        closes = pieces[1:] != pieces[:-1]
        if self.splits:
            closes |= ((marks[ends] == 2) | (marks[ends] == 4))[:-1]
        sentences = np.flatnonzero(np.concatenate([[len(ends) > 0], closes, [True]]))
        words = [read[first:end] for first, end in zip(heads.tolist(), (ends + 1).tolist(), strict=True)]
        widths, start, end = ends + 1 - heads, places[heads], places[ends] + 1
        for at in np.flatnonzero(widths > self.longest):
            words[at] = TOKEN_TOO_LONG_REPLACEMENT
            heads[at], widths[at] = len(codes), len(TOKEN_TOO_LONG_REPLACEMENT)
            codes = np.append(codes, [ord(unit) for unit in TOKEN_TOO_LONG_REPLACEMENT]).astype("<u4")
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        begins = np.cumsum(lengths + 2) - (lengths + 2)
        paragraphs = np.searchsorted(begins + lengths, end[sentences[1:] - 1])
        shift = np.repeat(begins[paragraphs], np.diff(sentences))
        columns = 1 + np.add.reduceat(widths + 1, sentences[:-1]) if len(ends) else widths
        start, end = start - shift, end - shift
        return Tokens(codes, heads, widths, start, end, words, sentences, paragraphs, columns)

    def _read(self, text: str) -> tuple[Array, Array, Array, Array]:
        """Return what the tokenizer gets: codes, their numbers and places in the text; where pieces begin."""
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        begins, stops = _pieces(text)
        numbers = self.numbers.of(codes)
        blank = numbers == self.blank
        inside = np.zeros(len(codes) + 1, dtype=np.int8)
        np.add.at(inside, begins, 1)
        np.add.at(inside, stops, -1)
        kept = np.cumsum(inside[:-1]).astype(bool)
        kept[1:] &= ~(blank[1:] & blank[:-1]) | _at(begins, len(codes))[1:]
        places = np.flatnonzero(kept)
        read = np.where(blank, ord(" "), codes)[places].astype("<u4")
        return read, numbers[places], places, np.searchsorted(places, begins)

    def _marks(self, read: str, numbers: Array, firsts: Array, counts: Array) -> Array:
        """Return what the network says of each character: 1 ends a token, 2 a sentence; 3 and 4 as these."""
        marks = np.zeros(len(numbers), dtype=np.int64)
        order, size = np.argsort(-counts, kind="stable"), self.trainer.args["batch_size"]
        for begin in range(0, len(order), size):
            rows = order[begin : begin + size]
            self._predict(numbers, firsts[rows], counts[rows], marks)
        last = firsts + counts - 1
        marks[last] = np.where(marks[last] > 2, 4, 2)
        if MAYBE_ADDRESS.search(read):
            for first, count in zip(firsts.tolist(), counts.tolist(), strict=True):
                piece = read[first : first + count]
                if MAYBE_ADDRESS.search(piece):
                    update_pred_regex(piece, marks[first : first + count])
        return marks

    def _predict(self, numbers: Array, firsts: Array, counts: Array, marks: Array) -> None:
        """Mark some pieces, the longest first, as one batch; a long piece in windows, as Stanza does.

        What is short is empty in later windows: it stays in the batch, because a network rounds by its shape.
        """
        most = max(1_000, self.longest)  # as many characters as Stanza's tokenizer takes at once
        done, lengths = np.zeros_like(counts), np.minimum(counts + 1, most)
        while (done < counts).any():
            left = np.minimum(counts - done, most)
            found = self._window(numbers, firsts, counts, done, lengths)
            breaks = (found == 2) | (found == 4)
            last = found.shape[1] - breaks[:, ::-1].argmax(axis=1)
            taken = np.where(~breaks.any(axis=1) | (done >= counts - most), left, last)
            marks[ranges(firsts + done, taken)] = found[np.arange(found.shape[1]) < taken[:, None]]
            done = done + taken
            lengths = np.full_like(counts, np.minimum(counts - done, most).max())

    def _window(self, numbers: Array, firsts: Array, counts: Array, done: Array, lengths: Array) -> Array:
        """Return what the network says of the next characters of each piece."""
        ids, features, first, last = self._tables()
        columns = np.arange(lengths[0])
        left = np.minimum(counts - done, lengths[0])
        there = columns < left[:, None]
        filled = np.full(there.shape, len(features) - 1, dtype=np.int64)
        filled[there] = numbers[ranges(firsts + done, left)]
        end = np.stack(np.nonzero(columns == (counts - done - 1)[:, None]))
        given = (filled, np.flatnonzero(done == 0), *end)
        places, begin, *ends = (torch.from_numpy(each).to(self.device) for each in given)
        values, texts = features[places], [*map(range, lengths.tolist())]
        values[begin, 0] += first
        values[tuple(ends)] += last
        with torch.no_grad():
            return self.trainer.predict((ids[places], None, values, texts)).argmax(axis=2)

    def _tables(self) -> tuple[Any, ...]:
        """Return each character's number and features, at last padding's; what a first and a last one add."""
        alphabet = self.data.alphabet
        if self.known != len(alphabet.numbers):
            self.known = len(alphabet.numbers)
            ids = np.append(alphabet.ids, self.vocab.unit2id("<PAD>"))
            features = np.vstack([alphabet.features, np.zeros_like(alphabet.features[:1])])
            floats = (each.astype(np.float32) for each in (features, alphabet.first, alphabet.last))
            self.tables = tuple(torch.from_numpy(each).to(self.device) for each in (ids, *floats))
        return self.tables


def _pieces(text: str) -> tuple[Array, Array]:
    """Return where the pieces begin and end that blank lines separate."""
    breaks = [0, *(at for found in NEWLINE_WHITESPACE_RE.finditer(text) for at in found.span()), len(text)]
    bounds = zip(breaks[::2], breaks[1::2], strict=True)
    pieces = [(begin, len(text[begin:end].rstrip())) for begin, end in bounds]
    found = np.array([(begin, begin + size) for begin, size in pieces if size], dtype=np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _at(places: Array, size: int) -> Array:
    found = np.zeros(size, dtype=bool)
    found[places] = True
    return found


# -- the tagger


@frozen
class ArrayBatch:
    """Sentences as the tagger gets them, the most words first; in place of their words."""

    tokens: Array  # the numbers of their tokens
    there: Array  # where a token is, by sentence and word
    counts: list[int]  # of words
    widest: list[int]  # of characters, the most first
    ids: Any  # on the device: by vocabulary, sentence and word
    chars: Any  # on the device: forward and backward
    places: Any  # on the device: row and columns in ``chars`` of each token, in packed order

    def __len__(self) -> int:
        return len(self.counts)


class ArrayCharacters(Characters):
    """A character language model that gets the places of all words of a batch."""

    def get_representation(
        self, chars: Array, charoffsets: Array, charlens: Array, char_orig_idx: Array
    ) -> Any:  # noqa: ANN401
        """Return the state after each word, packed."""
        (rows, columns), sizes = charoffsets
        with torch.no_grad():
            output, _, _ = self.forward(chars, charlens)
        return PackedSequence(output[rows, columns], sizes)


class ArrayModel(NERTagger):  # type: ignore[misc]  # Stanza is untyped
    """The network, which gets the numbers of words."""

    @staticmethod
    def extract_static_embeddings(args: Any, sents: Any, vocab: Any) -> tuple[Any, Any]:  # noqa: ANN401
        """Return the numbers of the words of a batch, and where there are none."""
        ids = sents.ids[vocab]
        return ids, torch.eq(ids, 0)


class ArrayTrainer(BatchTrainer):
    """The tagger, which returns the best tags as numbers."""

    def predict(self, batch: Any, unsort: bool = True) -> Any:  # noqa: ANN401, FBT001, FBT002 - as Stanza's
        """Return the tags of each token of a batch."""
        given, *_ = batch
        rows, *columns = given.places
        sizes = torch.from_numpy(given.there.sum(axis=0))
        offsets = [((rows, column), sizes) for column in columns]
        tags = torch.ones(
            (*given.there.shape, len(self.model.tag_clfs)), dtype=torch.int64, device=rows.device
        )
        self.model.eval()
        _, scores, transitions = self.model(
            given, None, None, tags, None, given.counts, None, given.chars, offsets, given.widest, None
        )
        chosen = self.args["predict_tagset"] if len(scores) > 1 else 0
        return best_paths(scores[chosen], transitions[chosen], given.counts)[given.there]


class ArrayTagger:
    """Finds the entities of texts."""

    def __init__(self, tokenizer: ArrayTokenizer, tagger: Any, trainer: Any) -> None:  # noqa: ANN401
        self.tokenizer, self.tagger, self.trainer = tokenizer, tagger, trainer
        self.device = tokenizer.device
        vocab, args = trainer.vocab, trainer.args
        lower = str.lower if tagger.configs[0].get("char_lowercase", False) else str
        self.chars = Numbers(lambda unit: int(vocab["char"].unit2id(lower(unit))))
        self.blank, self.start = (int(vocab["char"].unit2id(unit)) for unit in " \n")
        self.vocabs = [vocab[name] for name in ("word", "delta") if name in vocab]
        self.lower = str.lower if args.get("lowercase", True) else str
        self.words: dict[str, int] = {}
        chosen = args["predict_tagset"] if len(trainer.model.tag_clfs) > 1 else 0
        self.tags: list[str] = vocab["tag"].items(chosen)
        self.outside = self.tags.index("O") if "O" in self.tags else -1
        self.runs: dict[tuple[int, ...], list[tuple[int, int, str]]] = {}

    def tag(self, texts: Sequence[str]) -> tuple[Tokens, list[list[int]], Array]:
        """Return the tokens of texts, the sentences of each batch, and the tag of each token."""
        tokens = self.tokenizer.cut(texts)
        cut, columns = self.tagger.cut, tokens.columns
        order = np.argsort(-columns, kind="stable") if cut.by_length else np.arange(len(columns))
        sizes = cut.sizes(columns[order].tolist())
        batches = np.split(order, np.cumsum(sizes)[:-1]) if sizes else []
        tags, ids = np.zeros(len(tokens.words), dtype=np.int64), self._ids(tokens.words)
        with torch.no_grad():
            for chosen in batches:
                batch = self._batch(tokens, ids, chosen)
                tags[batch.tokens] = self.trainer.predict((batch, None, None, batch.chars))
        return tokens, [chosen.tolist() for chosen in batches], np.maximum(tags, VOCAB_PREFIX_SIZE)

    def _ids(self, words: Sequence[str]) -> Array:
        """Return the numbers of words by vocabulary."""
        if len(self.words) > 2**20:
            self.words.clear()
        known = self.words
        for word in {*words} - known.keys():
            low, high = (vocab.unit2id(self.lower(word)) for vocab in (self.vocabs * 2)[:2])
            known[word] = low | high << 32
        both = np.array([known[word] for word in words], dtype=np.int64)
        return np.stack([both & 0xFFFFFFFF, both >> 32])[: len(self.vocabs)]

    def _batch(self, tokens: Tokens, ids: Array, chosen: Array) -> ArrayBatch:
        sentences = tokens.sentences
        counts = sentences[chosen + 1] - sentences[chosen]
        order = longest_first(counts)
        chosen, counts = chosen[order], counts[order]
        numbers, owner = ranges(sentences[chosen], counts), np.repeat(np.arange(len(chosen)), counts)
        widths, bodies = tokens.widths[numbers], tokens.columns[chosen] - 1  # all columns but the first
        begins, after = np.cumsum(bodies) - bodies, np.cumsum(widths + 1)
        units = np.full(after[-1], self.blank, dtype=np.int64)
        units[~_at(after - 1, len(units))] = self.chars.of(
            tokens.codes[ranges(tokens.first[numbers], widths)]
        )
        # the column after each word: forward, and backward, where the words before it come after it
        forward = after - begins[owner]
        backward = bodies[owner] - (forward - widths - 1)

        by_chars = longest_first(bodies)
        rows = np.empty_like(by_chars)
        rows[by_chars] = np.arange(len(rows))
        lengths = bodies[by_chars]
        chars = np.full((2, len(lengths), lengths[0] + 1), self.blank, dtype=np.int64)
        chars[:, :, 0] = self.start
        inside = np.arange(lengths[0]) < lengths[:, None]
        at, long = ranges(np.zeros_like(lengths), lengths), np.repeat(lengths, lengths)
        first = np.repeat(begins[by_chars], lengths)
        chars[0, :, 1:][inside] = units[first + at]
        chars[1, :, 1:][inside] = units[first + (long - 2 - at) % long]  # the blank at the end stays there

        there = np.arange(counts[0]) < counts[:, None]
        filled = np.zeros((len(ids), *there.shape), dtype=np.int64)
        filled[:, there] = ids[:, numbers]
        place = np.zeros(there.shape, dtype=np.int64)
        place[there] = np.arange(len(numbers))
        packed = place.T[there.T]
        places = np.stack([rows[owner], forward, backward])[:, packed]
        whole = torch.from_numpy(np.concatenate([each.ravel() for each in (chars, filled, places)])).to(
            self.device
        )
        parts = whole.split([chars.size, filled.size, places.size])
        on_device = [part.view(each.shape) for part, each in zip(parts, (chars, filled, places), strict=True)]
        ids_of = dict(zip(self.vocabs, on_device[1], strict=True))
        widest = (lengths + 1).tolist()
        return ArrayBatch(numbers, there, counts.tolist(), widest, ids_of, on_device[0], on_device[2])

    def entities(self, texts: Sequence[str], tokens: Tokens, tags: Array) -> list[Entity]:
        """Return the entities of texts."""
        found, inside = list[Entity](), tags != self.outside
        first = _at(tokens.sentences[:-1], len(tags))
        begins = np.flatnonzero(inside & (first | ~np.append(False, inside[:-1])))
        ends = np.flatnonzero(inside & (np.append(first[1:], True) | ~np.append(inside[1:], False))) + 1
        sentences = np.searchsorted(tokens.sentences, begins, side="right") - 1
        numbers = tokens.paragraphs[sentences].tolist()
        for number, begin, end in zip(numbers, begins.tolist(), ends.tolist(), strict=True):
            for left, right, label in self._entities_of(tuple(tags[begin:end].tolist())):
                start, stop = int(tokens.start[begin + left]), int(tokens.end[begin + right])
                found.append(Entity(number, texts[number][start:stop], label, start, stop))
        return found

    def names(self, tags: Sequence[int]) -> list[str]:
        """Return the names of the tags of a sentence, or of a part of it without tokens that have none."""
        names: list[str] = stock.fix_singleton_tags([self.tags[tag] for tag in tags])
        return names

    def _entities_of(self, tags: tuple[int, ...]) -> list[tuple[int, int, str]]:
        """Return first and last token and type of each entity of a sequence of tags."""
        if tags not in self.runs:
            found = decode_from_bioes(self.names(tags))
            self.runs[tags] = [(one["start"], one["end"], one["type"]) for one in found]
        return self.runs[tags]

    def everything(self, texts: Sequence[str]) -> list[tuple[Any, Any]]:
        """Return the sentences of each text, with text, place and tag of each token; and its entities."""
        tokens, _, tags = self.tag(texts)
        rows: list[tuple[list[Any], list[Any]]] = [([], []) for _ in texts]
        bounds = pairwise(tokens.sentences.tolist())
        for number, (first, end) in zip(tokens.paragraphs.tolist(), bounds, strict=True):
            columns = (tokens.start[first:end].tolist(), tokens.end[first:end].tolist())
            names = self.names(tags[first:end].tolist())
            rows[number][0].append([*zip(tokens.words[first:end], *columns, names, strict=True)])
        for entity in self.entities(texts, tokens, tags):
            rows[entity.paragraph][1].append(entity[1:])
        return list(rows)


def array_tagger(processors: Any) -> ArrayTagger | None:  # noqa: ANN401 - by name
    """Return a tagger in place of processors of `stanza_shortcuts`; ``None`` if it does less than they do."""
    tokenizer, tagger = processors["tokenize"], processors["ner"]
    if type(tokenizer) is not Tokenizer or len(tagger.trainers) != 1:
        return None
    [trainer] = tagger.trainers
    settings, network, tags = tokenizer.trainer.args, tokenizer.trainer.model, trainer.vocab["tag"]
    special = settings.get("skip_newline") or settings.get("shorthand") == "la_ittb"
    special = (
        special or getattr(network, "charmodel", None) is not None or tokenizer.vocab.lang_replaces_spaces
    )
    if (
        special
        or tokenizer.config.get("num_workers")
        or type(tags) is not CompositeVocab
        or tags.sep is not None
    ):
        return None
    made = seen_as(ArrayTrainer, trainer)
    vars(made).pop("predict", None)  # that of the other one, watched
    directions = {
        name: seen_as(ArrayCharacters, getattr(trainer.model, name))
        for name in ("charmodel_forward", "charmodel_backward")
    }
    made.model = with_parts(seen_as(ArrayModel, trainer.model), **directions)
    return ArrayTagger(ArrayTokenizer(tokenizer), tagger, made)
