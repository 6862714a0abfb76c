"""Stanza's tagger with batches that jobkit cuts, and with ``shortcuts: exact`` less work.

It imports Stanza, torch and numpy. The classes are subclasses of Stanza's that share the state of the objects
that a pipeline has loaded, so no weight is loaded twice and nothing of Stanza is patched. Stanza's own
ways to extend it do not serve: ``register_processor_variant("ner", ...)`` fails in 1.15.0, because a
variant has no attribute ``trainers``, and a subclass with ``@register_processor("ner")`` runs twice.

Each class of a shortcut leaves out, or does for a whole batch, what one function of Stanza does; what it
returns is the same. The functions are equal in all versions of `VERSIONS`, line by line.
docs/stanza-shortcuts.md has the gain of each.

``viterbi_decode`` of ``stanza/models/common/crf.py`` takes one sentence, in numpy. Here each step takes all
sentences that are long enough. The sums are the same ones in the same order, of 32-bit floats, so the scores
are equal to the last bit. Of equal scores both take the tag with the lowest number: ``numpy.argmax`` and
``torch.max`` return the first index of a maximum (https://docs.pytorch.org/docs/stable/generated/torch.max.html).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import stanza
import torch
from stanza.models.common.char_model import CharacterLanguageModel
from stanza.models.common.crf import CRFLoss
from stanza.models.common.data import get_long_tensor
from stanza.models.common.doc import MULTI_NER, NER, Document
from stanza.models.common.utils import unsort
from stanza.models.common.vocab import VOCAB_PREFIX_SIZE
from stanza.models.ner import trainer as stock
from stanza.models.ner.data import DataLoader
from stanza.models.ner.model import NERTagger
from stanza.models.ner.utils import merge_tags
from stanza.models.tokenization.data import TokenizationDataset
from stanza.models.tokenization.utils import output_predictions, update_pred_regex
from stanza.pipeline import tokenize_processor
from stanza.pipeline.ner_processor import NERProcessor
from torch import nn
from torch.nn.utils.rnn import PackedSequence

# -- the tagger, with batches that jobkit cuts


def seen_as(cls: Any, original: Any) -> Any:  # noqa: ANN401 - Stanza is untyped
    """Return an object of a class that shares all attributes of an object of a base class of it."""
    made = cls.__new__(cls)
    vars(made).update(vars(original))
    return made


class StanzaBatches(DataLoader):  # type: ignore[misc]  # Stanza is untyped
    """Stanza's batches of a document, with as many sentences as each is to have.

    ``DataLoader.chunk_batches`` of ``stanza/models/ner/data.py`` takes a fixed number.
    """

    def __init__(self, document: Any, sizes: Sequence[int], trainer: Any, config: Any) -> None:  # noqa: ANN401
        self._sizes = sizes
        super().__init__(
            document,
            max(sizes, default=1),
            config,
            vocab=trainer.vocab,
            evaluation=True,
            preprocess_tags=False,
            bert_tokenizer=trainer.model.bert_tokenizer,
        )

    def chunk_batches(self, data: Sequence[Any]) -> list[list[Any]]:
        """Return the batches."""
        left = iter(data)
        return [list(islice(left, size)) for size in self._sizes]


class Tagger(NERProcessor):  # type: ignore[misc]  # Stanza is untyped
    """Stanza's tagger with batches that jobkit cuts: takes the place of the processor in a pipeline."""

    BATCHES: ClassVar[type[StanzaBatches]] = StanzaBatches

    @classmethod
    def of(cls, processor: Any, cut: Any) -> Any:  # noqa: ANN401 - Stanza is untyped
        """Return a tagger with the models of a processor that is loaded."""
        tagger = seen_as(cls, processor)
        tagger.cut = cut
        return tagger

    cut: Any  # a `SentenceCut` of the workload

    def process(self, document: Any) -> Any:  # noqa: ANN401 - Stanza is untyped
        """Tag the sentences of a document: Stanza itself cuts a fixed number of sentences in text order."""
        if not (self.cut.budget or self.cut.by_length):
            return super().process(document)
        document.sentences = self.cut.arranged(document.sentences)
        self.tag(document)
        document.build_ents()
        return document

    def tag(self, document: Any) -> None:  # noqa: ANN401 - Stanza is untyped
        """Attach a tag to every token of a document; where several models disagree, the first one counts."""
        found = self.predictions(document, self.cut.sizes_of(document.sentences))
        merged = [merge_tags(*tags) for tags in zip(*found, strict=True)]
        document.set([NER], [tag for tags in merged for tag in tags], to_token=True)
        all_tags = [tags for rows in zip(*found, strict=True) for tags in zip(*rows, strict=True)]
        document.set([MULTI_NER], all_tags, to_token=True)

    def predictions(self, document: Any, sizes: Sequence[int]) -> list[list[Any]]:  # noqa: ANN401
        """Return the tags of every sentence, by each model."""
        with torch.no_grad():
            return [
                [
                    tags
                    for batch in self.BATCHES(document, sizes, trainer, config)
                    for tags in trainer.predict(batch)
                ]
                for trainer, config in zip(self.trainers, self.configs, strict=True)
            ]

    def again(self, sentences: Sequence[Any]) -> Callable[[], object]:
        """Return a function that tags these sentences, which are tokenised, as one batch."""
        document = Document([sentence.to_dict() for sentence in sentences])
        return partial(self.predictions, document, [len(sentences)] if sentences else [])


# -- the best tags of a batch


def decode(scores: Any, transitions: Any, lengths: Sequence[int]) -> list[list[int]]:  # noqa: ANN401 - torch is untyped
    """Return the best tags of each sentence.

    ``scores``: of shape sentences x words x tags, 32-bit floats; what is beyond the end of a sentence is not
        read.
    ``transitions``: from a tag (row) to the next one (column).
    ``lengths``: words of each sentence, the most first.
    """
    paths = best_paths(scores, transitions, lengths)
    return [path[:length].tolist() for path, length in zip(paths, lengths, strict=True)]


def best_paths(scores: Any, transitions: Any, lengths: Sequence[int]) -> Any:  # noqa: ANN401 - as above
    """Return the same as an array, with anything beyond the end of a sentence."""
    walk = _on_gpu if scores.is_cuda else _on_cpu
    active = (np.arange(max(lengths)) < np.array(lengths)[:, None]).sum(axis=0).tolist()
    tags, origins = walk(scores.detach(), transitions.detach(), active)
    paths = np.zeros((len(lengths), len(active)), dtype=np.int64)
    for word in range(len(active) - 1, -1, -1):
        rows = active[word]
        paths[:rows, word] = tags[:rows]
        if word:
            tags[:rows] = origins[word - 1][np.arange(rows), tags[:rows]]
    return paths


def _on_gpu(scores: Any, transitions: Any, active: Sequence[int]) -> tuple[Any, list[Any]]:  # noqa: ANN401 - as above
    """Return the best last tag of each sentence, and at each word but the first where each tag came from."""
    best, origins = scores[:, 0].clone(), []
    for word, rows in enumerate(active[1:], 1):
        reached, origin = (best[:rows].unsqueeze(2) + transitions).max(dim=1)
        torch.add(scores[:rows, word], reached, out=best[:rows])
        origins.append(origin)
    last = best.argmax(dim=1).cpu().numpy()
    if not origins:
        return last, []
    copied = torch.cat(origins).to(torch.int16).cpu().numpy()
    return last, np.split(copied, np.cumsum(active[1:-1]))


def _on_cpu(scores: Any, transitions: Any, active: Sequence[int]) -> tuple[Any, list[Any]]:  # noqa: ANN401 - as above
    """Return the same in numpy, with the tags to choose from next to each other in memory."""
    scores, into = scores.numpy(), np.ascontiguousarray(transitions.numpy().T)
    best, origins = scores[:, 0].copy(), []
    for word, rows in enumerate(active[1:], 1):
        sums = best[:rows, None, :] + into
        origin = sums.argmax(axis=2)
        reached = np.take_along_axis(sums, origin[:, :, None], axis=2)[:, :, 0]
        best[:rows] = scores[:rows, word] + reached
        origins.append(origin)
    return best.argmax(axis=1), origins


VERSIONS = ((1, 10), (1, 15))
"""The oldest and the newest Stanza that the shortcuts are written for and tested with, both inclusive."""

SIGNATURES: tuple[tuple[Callable[..., Any], str], ...] = (
    (CRFLoss.forward, "(self, inputs, masks, tag_indices)"),
    (CharacterLanguageModel.get_representation, "(self, chars, charoffsets, charlens, char_orig_idx)"),
    (CharacterLanguageModel.forward, "(self, chars, charlens, hidden=None)"),
    (DataLoader.__getitem__, "(self, key)"),
    (DataLoader.process_chars, "(self, sents)"),
    (stock.Trainer.predict, "(self, batch, unsort=True)"),
    (stock.unpack_batch, "(batch, device)"),
    (TokenizationDataset.para_to_sentences, "(self, para)"),
    (tokenize_processor.TokenizeProcessor.process, "(self, document)"),
    (update_pred_regex, "(raw, pred)"),
    (NERTagger.extract_static_embeddings, "(args, sents, vocab)"),
    (
        output_predictions,
        """(output_file, trainer, data_generator, vocab, mwt_dict, max_seqlen=1000, orig_text=None, \
no_ssplit=False, use_regex_tokens=True, num_workers=0, postprocessor=None)""",
    ),
)
"""The functions of Stanza that a shortcut replaces or calls, each with its signature."""


# -- what the shortcuts are written for


def refusal(pipeline: Any) -> str:  # noqa: ANN401 - Stanza is untyped
    """Return why the shortcuts are not for this Stanza, or not for these models; empty if they are."""
    return next(_refusals(pipeline), "")


def _refusals(pipeline: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    oldest, newest = VERSIONS
    version = tuple(int(part) for part in stanza.__version__.split(".")[:2] if part.isdecimal())
    if not oldest <= version <= newest:
        words = " to ".join(".".join(map(str, end)) for end in VERSIONS)
        yield f"Stanza {stanza.__version__} is none of the versions that they are written for, {words}"
    for function, signature in SIGNATURES:
        if (there := str(inspect.signature(function))) != signature:
            yield f"Stanza's {function.__qualname__} takes {there}, where {signature} is expected"
    tokenizer, tagger = pipeline.processors["tokenize"], pipeline.processors["ner"]
    yield from _other_classes(tokenize_processor.TokenizeProcessor, tokenizer)
    special = ("pretokenized", "speaker_delim", "postprocessor")
    yield from (f"the tokenizer has {name}" for name in special if tokenizer.config.get(name))
    for trainer in tagger.trainers:
        model = trainer.model
        yield from _other_classes(stock.Trainer, trainer)
        yield from _other_classes(NERTagger, model)
        yield from _other_classes(CRFLoss, *model.crits)
        if model.bert_model is not None:
            yield "the tagger has a transformer"
        if not trainer.args.get("charlm"):
            yield "the tagger has no character language model"
        yield from _other_classes(CharacterLanguageModel, model.charmodel_forward, model.charmodel_backward)


def _other_classes(expected: type, *things: object) -> Iterator[str]:
    for found in map(type, things):
        if found is not expected:
            yield f"{found.__module__}.{found.__qualname__} is not Stanza's {expected.__name__}"


# -- the tagger


class NoLoss(CRFLoss):  # type: ignore[misc]  # Stanza is untyped
    """The transitions between tags, without the loss.

    ``CRFLoss.forward`` of ``stanza/models/common/crf.py`` computes the loss of the tags in the input, word
    by word. Inference has no tags there, and ``Trainer.predict`` drops the loss.
    """

    def forward(self, inputs: Any, masks: Any, tag_indices: Any) -> tuple[float, Any]:  # noqa: ANN401
        """Return no loss, and the transitions."""
        return 0.0, self._transitions


class Characters(CharacterLanguageModel):  # type: ignore[misc]  # Stanza is untyped
    """A character language model without its decoder, which takes all words of a batch at once.

    ``CharacterLanguageModel.forward`` of ``stanza/models/common/char_model.py`` also predicts the next
    character at each place, which only training reads: `exact` replaces the decoder by the identity.
    ``get_representation`` picks the words of one sentence after the other. This one copies the same
    values, to the places where ``pack_sequence`` puts them.
    """

    def get_representation(
        self,
        chars: Any,  # noqa: ANN401 - torch is untyped
        charoffsets: Sequence[Sequence[int]],
        charlens: Sequence[int],
        char_orig_idx: Sequence[int],
    ) -> PackedSequence:
        """Return the state after each word, packed: the first word of all sentences, then the second."""
        with torch.no_grad():
            output, _, _ = self.forward(chars, charlens)
        places = [np.array([[row] * len(at), at]) for row, at in enumerate(charoffsets)]
        words = unsort(places, char_orig_idx)
        lengths = np.array([each.shape[1] for each in words])
        there = np.arange(lengths.max()) < lengths[:, None]
        filled = np.zeros((2, *there.shape), dtype=np.int64)
        filled[:, there] = np.concatenate(words, axis=1)
        rows, columns = torch.from_numpy(filled.transpose(0, 2, 1)[:, there.T]).to(output.device)
        return PackedSequence(output[rows, columns], torch.from_numpy(there.sum(axis=0)))


class NoWordCharacters(StanzaBatches):
    """Batches without the characters of each word.

    ``DataLoader.__getitem__`` of ``stanza/models/ner/data.py`` also pads the characters of each word, which
    only a model without character language models reads.
    """

    def __getitem__(self, key: int) -> tuple[Any, ...]:
        """Return a batch: the same values in the same order, ``None`` for those of the words."""
        words, chars, tags, order = _longest_first(*zip(*self.data[key], strict=True), key=len)
        forward, backward, places, places_back, _ = self.process_chars(chars)
        *sorted_chars, char_order = _longest_first(forward, backward, places, places_back, key=len)
        blank = self.vocab["char"].unit2id(" ")
        filled = [get_long_tensor(rows, len(rows), pad_id=blank) for rows in sorted_chars[:2]]
        return (
            words,
            None,
            None,
            torch.stack(filled),
            get_long_tensor(tags, len(tags)),
            order,
            None,
            char_order,
            [*map(len, words)],
            None,
            [*map(len, sorted_chars[0])],
            sorted_chars[2:],
        )


def _longest_first(*columns: Sequence[Any], key: Callable[[Any], int]) -> list[list[Any]]:
    """Return columns by the length in the first one, as Stanza's ``sort_all`` sorts, and the old places."""
    order = sorted(range(len(columns[0])), key=lambda at: (key(columns[0][at]), at), reverse=True)
    return [*([column[at] for at in order] for column in columns), order]


class BatchTrainer(stock.Trainer):  # type: ignore[misc]  # Stanza is untyped
    """The tagger, which finds the tags of a whole batch where the scores are.

    ``Trainer.predict`` of ``stanza/models/ner/trainer.py`` copies the scores and takes one sentence after
    the other. `decode` finds the same tags.
    """

    def predict(self, batch: Any, unsort: bool = True) -> list[list[str]]:  # noqa: ANN401, FBT001, FBT002 - as Stanza's
        """Return the tags of each sentence."""
        inputs, order, word_order, char_order, lengths, wordlens, charlens, charoffsets = stock.unpack_batch(
            batch, next(self.model.parameters()).device
        )
        words, wordchars, mask, chars, tags = inputs
        self.model.eval()
        _, scores, transitions = self.model(
            words,
            wordchars,
            mask,
            tags,
            word_order,
            lengths,
            wordlens,
            chars,
            charoffsets,
            charlens,
            char_order,
        )
        columns = [decode(each, other, lengths) for each, other in zip(scores, transitions, strict=True)]
        tags, chosen = [], self.args["predict_tagset"]
        for found in zip(*columns, strict=True):
            rows = zip(*([max(tag, VOCAB_PREFIX_SIZE) for tag in column] for column in found), strict=True)
            names = self.vocab["tag"].unmap(list(rows))
            tags.append(stock.fix_singleton_tags([x[chosen] if isinstance(x, list) else x for x in names]))
        return stock.utils.unsort(tags, order) if unsort else tags


class BatchTagger(Tagger):
    """The tagger with all of this; it builds the entities of a call once.

    ``NERProcessor.process`` of ``stanza/pipeline/ner_processor.py`` builds them for all documents together,
    to count them, and ``bulk_process`` for each document again.
    """

    BATCHES: ClassVar[type[StanzaBatches]] = NoWordCharacters

    def process(self, document: Any) -> Any:  # noqa: ANN401 - Stanza is untyped
        """Tag the sentences of a document."""
        document.sentences = self.cut.arranged(document.sentences)
        self.tag(document)
        return document


def _trainer(trainer: Any) -> Any:  # noqa: ANN401 - as above
    model = trainer.model
    directions = {
        name: with_parts(seen_as(Characters, getattr(model, name)), decoder=nn.Identity())
        for name in ("charmodel_forward", "charmodel_backward")
    }
    crits = nn.ModuleList(seen_as(NoLoss, crit) for crit in model.crits)
    made = seen_as(BatchTrainer, trainer)
    made.model = with_parts(seen_as(NERTagger, model), **directions, crits=crits)
    return made


def with_parts(module: Any, **parts: Any) -> Any:  # noqa: ANN401 - torch is untyped
    """Give a module other parts, which the one that it shares its state with does not get."""
    vars(module)["_modules"] = {**vars(module)["_modules"], **parts}
    return module


# -- the tokenizer


class Alphabet:
    """The characters of the texts so far, with what the tokenizer gets for each.

    ``numbers``: The place of each character in ``ids`` and ``features``.
    ``ids, features``: As Stanza computes them for a character in the middle of a paragraph.
    ``first, last``: What is added for the first and the last character of a paragraph.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.ids: Any = None
        self.features: Any = None
        self.first: Any = 0
        self.last: Any = 0

    def add(self, unit: str, ids: Any, features: Any) -> None:  # noqa: ANN401 - numpy is untyped here
        """Add a character, by what Stanza computes for a paragraph of three of them."""
        begin, middle, end = features
        self.first, self.last = begin - middle, end - middle
        self.numbers[unit] = len(self.numbers)
        self.ids = ids[1:2] if self.ids is None else np.append(self.ids, ids[1])
        self.features = middle[None] if self.features is None else np.vstack([self.features, middle])


class Features(TokenizationDataset):  # type: ignore[misc]  # Stanza is untyped
    """A text for the tokenizer, with the features of each character computed once.

    ``TokenizationDataset.para_to_sentences`` of ``stanza/models/tokenization/data.py`` computes them at each
    place. Those of `SINGLE` depend on the character, and on whether it is the first or the last one.
    """

    SINGLE: ClassVar = frozenset({"space_before", "capitalized", "numeric", "end_of_para", "start_of_para"})

    alphabet: Alphabet

    def number(self, unit: str) -> int:
        """Return the number of a character in the alphabet."""
        if unit not in self.alphabet.numbers:
            [(ids, _, features, _)] = super().para_to_sentences([(unit, 0)] * 3)
            self.alphabet.add(unit, ids, features)
        return self.alphabet.numbers[unit]

    def para_to_sentences(self, para: Sequence[tuple[str, int]]) -> list[Any]:
        """Return the paragraph as the one piece that inference makes of it."""
        alphabet, units = self.alphabet, [unit for unit, _ in para]
        places = [*map(self.number, units)]
        features = alphabet.features[places]
        features[0] += alphabet.first
        features[-1] += alphabet.last
        return [(alphabet.ids[places], np.zeros(len(units), dtype=np.int64), features, units)]


class Tokenizer(tokenize_processor.TokenizeProcessor):  # type: ignore[misc]  # Stanza is untyped
    """The tokenizer with `Features`: otherwise ``process`` of ``stanza/pipeline/tokenize_processor.py``."""

    alphabet: Alphabet

    def process(self, document: Any) -> Document:  # noqa: ANN401 - Stanza is untyped
        """Return a document cut into sentences and tokens."""
        text, longest = document.text, self.config.get("max_seqlen", self.MAX_SEQ_LENGTH_DEFAULT)
        dataset = Features(
            self.config,
            input_text=text,
            vocab=self.vocab,
            evaluation=True,
            dictionary=self.trainer.dictionary,
        )
        dataset.alphabet = self.alphabet
        with torch.no_grad():
            *_, sentences = output_predictions(
                None,
                self.trainer,
                dataset,
                self.vocab,
                None,
                longest,
                orig_text=text,
                no_ssplit=self.config.get("no_ssplit", False),
                num_workers=self.config.get("num_workers", 0),
            )
        for token in (token for sentence in sentences for token in sentence if len(token["text"]) > longest):
            token["text"] = tokenize_processor.TOKEN_TOO_LONG_REPLACEMENT
        return Document(sentences, text)


def _tokenizer(processor: Any) -> Any:  # noqa: ANN401 - Stanza is untyped
    """Return the tokenizer: Stanza's own if its features depend on more than a character."""
    args = processor.config
    if args.get("use_dictionary") or not Features.SINGLE.issuperset(args["feat_funcs"]):
        return processor
    made = seen_as(Tokenizer, processor)
    made.alphabet = Alphabet()
    return made


# -- both


def processors(pipeline: Any, cut: Any) -> dict[str, Any]:  # noqa: ANN401 - Stanza is untyped
    """Return what takes the place of a pipeline's processors: they share its weights."""
    tagger = BatchTagger.of(pipeline.processors["ner"], cut)
    tagger.trainers = [*map(_trainer, tagger.trainers)]
    return {"tokenize": _tokenizer(pipeline.processors["tokenize"]), "ner": tagger}
