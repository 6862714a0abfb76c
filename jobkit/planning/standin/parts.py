"""The parts of a stand-in model, made and trained: character models, word vectors, NER, tokenizer.

torch and stanza are imported inside the functions. Every part is in the file in which Stanza looks
for it: ``<folder>/en/<part>/jobkit.pt``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jobkit.core.terminal import Say
from jobkit.planning.sample import Sample
from jobkit.planning.standin import labels

LANGUAGE = "en"
PACKAGE = "jobkit"
PARTS = ("tokenize", "ner", "pretrain", "forward_charlm", "backward_charlm")
TYPES = (
    *("PERSON", "NORP", "FAC", "ORG", "GPE", "LOC", "PRODUCT", "EVENT", "WORK_OF_ART", "LAW", "LANGUAGE"),
    *("DATE", "TIME", "PERCENT", "MONEY", "QUANTITY", "ORDINAL", "CARDINAL"),
)
"""The eighteen of OntoNotes: with these the tagger's last layer has the English model's size."""
RECURRENT_GAIN = 4.0
"""The factor of the random recurrent weights of the character models. The factor of the input's weights is
half the root of the width, which makes them of one size for every width. At torch's own scale the outputs
are so similar that the tagger memorises whole words (F1 0.46) instead of learning from their letters."""
SAVED_BATCH_SIZE = 32
"""Stanza's own default, and what a pipeline uses by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The dimensions of a stand-in and how long it is trained.

    Attributes
    ----------
    charlm_hidden, ner_hidden, word_dim
        Widths of the character models, of the tagger's LSTM, and of a word vector.
    characters, words
        Sizes of the vocabularies, filled up if the text has fewer: the character models decode
        into characters, words are rows of a table.
    ner_steps, tokenizer_steps
        Training steps, of 16 sentences and 16 stretches of text.
    ner_rate
        The tagger's learning rate, for Adam.
    """

    charlm_hidden: int
    ner_hidden: int
    word_dim: int
    characters: int
    words: int
    ner_steps: int
    ner_rate: float
    tokenizer_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The model to build: from which text, how large, in which folder, on which device."""

    folder: Path
    sample: Sample
    size: Size
    device: str
    say: Say

    def path(self, part: str) -> Path:
        """Return the file of a part, its folder made."""
        path = part_path(self.folder, part)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def part_path(folder: Path, part: str) -> Path:
    """Return the file in which Stanza looks for a part of the model in a folder."""
    return folder / LANGUAGE / part / f"{PACKAGE}.pt"


def seed(number: int) -> None:
    """Seed Python's, numpy's and torch's random numbers."""
    import numpy as np
    import torch

    random.seed(number)
    np.random.seed(number)  # noqa: NPY002 - Stanza draws from it
    torch.manual_seed(number)


def make_character_models(order: Order) -> Any:  # noqa: ANN401 - Stanza is untyped
    """Write the two character models and return their vocabulary.

    They are not trained: an LSTM of random weights distinguishes words by their letters well
    enough for the tagger on top, and costs as much as a trained LSTM.
    """
    import torch
    from stanza.models.common.char_model import CharacterLanguageModel
    from stanza.models.common.vocab import CharVocab

    vocabulary = CharVocab([_characters(order)])
    arguments = {
        "char_emb_dim": 100,
        "char_hidden_dim": order.size.charlm_hidden,
        "char_num_layers": 1,
        "char_dropout": 0.05,
        "char_rec_dropout": 0.0,
        "char_unit_dropout": 1e-5,
    }
    for part, forward in (("forward_charlm", True), ("backward_charlm", False)):
        model = CharacterLanguageModel(arguments, {"char": vocabulary}, pad=False, is_forward_lm=forward)
        with torch.no_grad():
            for name, weights in model.charlstm.named_parameters():
                if "weight_ih" in name:
                    weights.mul_(order.size.charlm_hidden**0.5 / 2)
                elif "weight_hh" in name:
                    weights.mul_(RECURRENT_GAIN)
        model.save(str(order.path(part)))
    return vocabulary


def _characters(order: Order) -> list[str]:
    """Return the text's characters and ASCII's, filled up with further ones to the required size."""
    known = {"\n", *map(chr, range(32, 127))}.union(*map(set, order.sample.paragraphs))
    others = (chr(code) for code in range(0xA1, 0x3000) if chr(code).isprintable())
    fill = islice((char for char in others if char not in known), max(0, order.size.characters - len(known)))
    return [*sorted(known), *fill]


def make_word_vectors(order: Order) -> Any:  # noqa: ANN401 - Stanza is untyped
    """Write random vectors for the text's words, commonest first, and return them loaded."""
    import torch
    from stanza.models.common.pretrain import Pretrain, PretrainedWordVocab
    from stanza.models.common.vocab import VOCAB_PREFIX

    words = [word for word, _ in labels.word_counts(order.sample).most_common(order.size.words)]
    words += [f"w{number}" for number in range(order.size.words - len(words))]
    vectors = torch.randn(len(words) + len(VOCAB_PREFIX), order.size.word_dim)
    saved = {"vocab": PretrainedWordVocab(words).state_dict(), "emb": vectors}
    torch.save(saved, order.path("pretrain"), _use_new_zipfile_serialization=False)
    return Pretrain(str(order.path("pretrain")))


def train_ner(order: Order, *, characters: Any, vectors: Any) -> None:  # noqa: ANN401 - Stanza is untyped
    """Train the tagger on the gold entities of the text and write it."""
    from stanza.models.common.doc import Document
    from stanza.models.ner.data import DataLoader
    from stanza.models.ner.trainer import Trainer

    arguments = _ner_arguments(order)
    vocabulary = _ner_vocabulary(order.sample, characters, vectors)
    trainer = Trainer(args=arguments, vocab=vocabulary, pretrain=vectors, device=order.device)
    document = Document(list(labels.tagged_sentences(order.sample)))
    loader = DataLoader(document, arguments["batch_size"], arguments, vocab=vocabulary, evaluation=False)
    steps = order.size.ner_steps
    for step, batch in enumerate(islice(_again_and_again(loader), steps), 1):
        loss = trainer.update(batch)
        if step == steps * 2 // 3:
            trainer.optimizer.param_groups[0]["lr"] = order.size.ner_rate / 4
        if step % 100 == 0 or step == steps:
            order.say(f"tagger: step {step} of {steps}, loss {loss:.2f}")
    arguments["batch_size"] = SAVED_BATCH_SIZE
    trainer.save(str(order.path("ner")))


def _again_and_again(loader: Any) -> Iterator[Any]:  # noqa: ANN401 - Stanza is untyped
    while True:
        yield from loader
        loader.reshuffle()


def _ner_arguments(order: Order) -> dict[str, Any]:
    from stanza.models import ner_tagger

    shorthand = f"{LANGUAGE}_{PACKAGE}"
    options = {
        "shorthand": shorthand,
        "charlm_shorthand": shorthand,
        "charlm_forward_file": order.path("forward_charlm"),
        "charlm_backward_file": order.path("backward_charlm"),
        "wordvec_pretrain_file": order.path("pretrain"),
        "hidden_dim": order.size.ner_hidden,
        "word_emb_dim": order.size.word_dim,
        "batch_size": 16,
        "dropout": 0.1,
        "optim": "adam",
        "lr": order.size.ner_rate,
    }
    argv = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    arguments: dict[str, Any] = ner_tagger.parse_args(["--charlm", *argv])
    return arguments


def _ner_vocabulary(sample: Sample, characters: Any, vectors: Any) -> Any:  # noqa: ANN401 - Stanza is untyped
    """Return the tagger's vocabularies.

    The tags are every type begun, inside, ended and single, and no entity; the words whose
    vectors are trained along are those that the text has more than once.
    """
    from stanza.models.common.vocab import CompositeVocab
    from stanza.models.ner.vocab import MultiVocab
    from stanza.models.pos.vocab import WordVocab

    common = sorted(word for word, count in labels.word_counts(sample).items() if count > 1)
    tags = ["O", *(f"{place}-{kind}" for kind in TYPES for place in "BIES")]
    return MultiVocab(
        {
            "char": characters,
            "delta": WordVocab([[[word] for word in common]], LANGUAGE, cutoff=1, lower=True),
            "tag": CompositeVocab([[((tag,),) for tag in tags]], LANGUAGE, idx=0, sep=None),
            "word": vectors.vocab,
        }
    )


def train_tokenizer(order: Order) -> None:
    """Train the tokenizer and sentence splitter on the text and write it."""
    from stanza.models.tokenization.data import DataLoader
    from stanza.models.tokenization.trainer import Trainer

    arguments = _tokenizer_arguments()
    with TemporaryDirectory() as scratch:
        data = DataLoader(arguments, input_files=labels.write_labelled(Path(scratch), order.sample))
    arguments["vocab_size"] = len(data.vocab)
    trainer = Trainer(args=arguments, vocab=data.vocab, device=order.device)
    dropouts = {name: arguments[name] for name in ("unit_dropout", "feat_unit_dropout")}
    steps = order.size.tokenizer_steps
    for step in range(1, steps + 1):
        loss = trainer.update(data.next(**dropouts))
        if step % 100 == 0 or step == steps:
            order.say(f"tokenizer: step {step} of {steps}, loss {loss:.3f}")
    arguments["batch_size"] = SAVED_BATCH_SIZE
    trainer.save(str(order.path("tokenize")))


def _tokenizer_arguments() -> dict[str, Any]:
    from stanza.models import tokenizer

    options = {
        "lang": LANGUAGE,
        "shorthand": f"{LANGUAGE}_{PACKAGE}",
        "max_seqlen": labels.LONGEST_TRAINED_CHARS,
        "batch_size": 16,
        "lr0": 0.01,
    }
    argv = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    arguments: dict[str, Any] = tokenizer.parse_args(["--no_use_mwt", *argv])
    features = tokenizer.DEFAULT_FEAT_FUNCS
    return arguments | {"feat_funcs": features, "feat_dim": len(features)}
