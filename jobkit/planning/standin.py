"""Stand-ins for models that are not available: of Stanza a trained one, of encoders one of random weights.

Stanza's is a tokenizer and tagger trained on generated text, built on first use. ``tiny`` is for trials on a
CPU; ``full`` has the English model's dimensions, and so its memory and speed. Its entities mean nothing
outside text of the kind of `jobkit.planning.sample`. It is trained in a separate process, the only one here
that imports torch and stanza: the memory of a GPU that this process used is free again before anything is
measured.

torch and stanza are imported inside the functions. Every part is in the file in which Stanza looks
for it: ``<folder>/en/<part>/jobkit.pt``.

One with random weights is a named architecture that was not trained, for memory and speed only: both follow
from the shapes of the weights. But an untrained head calls nearly every token an entity, and to write these
out takes longer than the network: so the head of a tagger is biased to ``O``, for about 3 entities a
paragraph. The weights follow from a seed. The vocabulary of a tokenizer is made from jobkit's sample text, so
a word of another text becomes more tokens than with a vocabulary made from much text. The dimensions of
BERT-base are those of Devlin et al. 2019 (https://arxiv.org/abs/1810.04805), of MiniLM-L6 those of the files
of ``sentence-transformers/all-MiniLM-L6-v2``; the vocabularies have 28,996 (cased) and 30,522 (uncased)
entries. spaCy's are the defaults of its component ``ner``.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, field
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jobkit.core.errors import JobkitError
from jobkit.core.files import write_atomically
from jobkit.core.frozen import frozen, keyed
from jobkit.core.json_codec import parse_json
from jobkit.core.paths import cache_lock, share_with_group
from jobkit.core.terminal import Say, shell_path
from jobkit.core.units import format_about
from jobkit.planning.sample import Sample, generate, join_paragraphs, sample_text
from jobkit.planning.workload_traits import run_in_child
from jobkit.worker.workloads.base import Entity
from jobkit.worker.workloads.stanza_ner import StanzaNer

LONGEST_TRAINED_CHARS = 120
"""Sentences longer than this are not trained on: they cost much and teach nothing new."""
EMPTY_SHARE, COMMON_SHARE = 0.15, 0.5
"""The share of sentences without an entity, and with common entities only, that is trained on."""

_TOKEN = re.compile(r"(?:Mr|Mrs|Dr)\.|\d+(?:,\d{3})*|[^\W\d_]+(?:\u2019[^\W\d_]+)*|[^\w\s]|_")


def word_counts(sample: Sample) -> Counter[str]:
    return Counter(token.lower() for text in sample.paragraphs for token in _TOKEN.findall(text))


def tagged_sentences(sample: Sample) -> Iterator[list[dict[str, Any]]]:
    """Yield sentences that teach something, as Stanza's token dictionaries with BIES tags."""
    gold: dict[int, list[Entity]] = {}
    for entity in sample.gold:
        gold.setdefault(entity.paragraph, []).append(entity)
    for number, (text, sentences) in enumerate(zip(sample.paragraphs, sample.sentences, strict=True)):
        for start, end in sentences:
            inside = [entity for entity in gold.get(number, []) if start <= entity.start < end]
            common = {entity.label for entity in inside} <= {"PERSON", "GPE", "DATE"}
            share = (COMMON_SHARE if common else 1.0) if inside else EMPTY_SHARE
            if end - start > LONGEST_TRAINED_CHARS or random.random() >= share:  # noqa: S311
                continue
            tokens = []
            for at, token in enumerate(_TOKEN.finditer(text, start, end), 1):
                tag = "O"
                for entity in inside:
                    if entity.start <= token.start() < entity.end:
                        first, last = token.start() == entity.start, token.end() == entity.end
                        tag = ("S-" if last else "B-") if first else "E-" if last else "I-"
                        tag += entity.label
                        break
                tokens.append({"id": (at,), "text": token.group(), "ner": tag})
            yield tokens


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


LANGUAGE = "en"  # whose model it replaces
PACKAGE = "jobkit"
PARTS = ("tokenize", "ner", "pretrain", "forward_charlm", "backward_charlm")
SAVED_BATCH_SIZE = 32
"""Stanza's own default, and what a pipeline uses by default."""


@keyed
class StandinSize:
    # widths of the character models, of the tagger's LSTM, and of a word vector
    charlm_hidden: int
    ner_hidden: int
    word_dim: int
    # sizes of the vocabularies, filled up if the text has fewer: the character models decode into characters,
    # words are rows of a table
    characters: int
    words: int
    ner_steps: int  # training steps, of 16 sentences and of 16 stretches of text
    ner_rate: float  # the tagger's learning rate, for Adam
    tokenizer_steps: int


@keyed
class StandinOrder:
    folder: Path
    sample: Sample
    size: StandinSize
    device: str
    say: Say

    def path(self, part: str) -> Path:
        """Return the file of a part, and make its folder."""
        path = part_path(self.folder, part)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def part_path(folder: Path, part: str) -> Path:
    return folder / LANGUAGE / part / f"{PACKAGE}.pt"


def make_character_models(order: StandinOrder) -> Any:  # noqa: ANN401 - Stanza is untyped
    """Write the two character models and return their vocabulary.

    They are not trained: an LSTM of random weights distinguishes words by their letters well enough for the
    tagger on top, and costs as much as a trained LSTM.
    """
    import torch
    from stanza.models.common.char_model import CharacterLanguageModel
    from stanza.models.common.vocab import CharVocab

    # the characters of the text and of ASCII, filled up with others to the required size
    known = {"\n", *map(chr, range(32, 127))}.union(*map(set, order.sample.paragraphs))
    others = (chr(code) for code in range(0xA1, 0x3000) if chr(code).isprintable())
    fill = islice((char for char in others if char not in known), max(0, order.size.characters - len(known)))
    vocabulary = CharVocab([[*sorted(known), *fill]])
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
                    # The factor of the random recurrent weights of the character models. The factor of the
                    # input's weights is half the root of the width, which makes them of one size for every
                    # width. At torch's own scale the outputs are so similar that the tagger memorises whole
                    # words (F1 0.46) instead of learning from their letters.
                    weights.mul_(4.0)
        model.save(str(order.path(part)))
    return vocabulary


def make_word_vectors(order: StandinOrder) -> Any:  # noqa: ANN401 - Stanza is untyped
    """Write random vectors for the text's words, commonest first, and return them loaded."""
    import torch
    from stanza.models.common.pretrain import Pretrain, PretrainedWordVocab
    from stanza.models.common.vocab import VOCAB_PREFIX

    words = [word for word, _ in word_counts(order.sample).most_common(order.size.words)]
    words += [f"w{number}" for number in range(order.size.words - len(words))]
    vectors = torch.randn(len(words) + len(VOCAB_PREFIX), order.size.word_dim)
    saved = {"vocab": PretrainedWordVocab(words).state_dict(), "emb": vectors}
    torch.save(saved, order.path("pretrain"), _use_new_zipfile_serialization=False)
    return Pretrain(str(order.path("pretrain")))


def train_ner(order: StandinOrder, *, characters: Any, vectors: Any) -> None:  # noqa: ANN401 - Stanza is untyped
    from stanza.models import ner_tagger
    from stanza.models.common.doc import Document
    from stanza.models.ner.data import DataLoader
    from stanza.models.ner.trainer import Trainer

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
    arguments: dict[str, Any] = ner_tagger.parse_args(["--charlm", *_argv(options)])
    vocabulary = _ner_vocabulary(order.sample, characters, vectors)
    trainer = Trainer(args=arguments, vocab=vocabulary, pretrain=vectors, device=order.device)
    document = Document(list(tagged_sentences(order.sample)))
    loader = DataLoader(document, arguments["batch_size"], arguments, vocab=vocabulary, evaluation=False)
    steps, batches, began_s = order.size.ner_steps, iter(loader), time.monotonic()
    for step in range(1, steps + 1):
        if step == 11:  # the tagger is the longest part
            left_s = (time.monotonic() - began_s) / 10 * (steps - 10)
            order.say(f"tagger: about {format_about(left_s)} to go, by the first 10 of {steps} steps")
        if (batch := next(batches, None)) is None:
            loader.reshuffle()
            batches = iter(loader)
            batch = next(batches)
        loss = trainer.update(batch)
        if step == steps * 2 // 3:
            trainer.optimizer.param_groups[0]["lr"] = order.size.ner_rate / 4
        if step % 100 == 0 or step == steps:
            order.say(f"tagger: step {step} of {steps}, loss {loss:.2f}")
    arguments["batch_size"] = SAVED_BATCH_SIZE
    trainer.save(str(order.path("ner")))


def _ner_vocabulary(sample: Sample, characters: Any, vectors: Any) -> Any:  # noqa: ANN401 - Stanza is untyped
    """Return the tagger's vocabularies.

    The tags are begin, inside, end and single of every type, and no entity. The vectors of words that the
    text has more than once are trained, too.
    """
    from stanza.models.common.vocab import CompositeVocab
    from stanza.models.ner.vocab import MultiVocab
    from stanza.models.pos.vocab import WordVocab

    common = sorted(word for word, count in word_counts(sample).items() if count > 1)
    # the eighteen types of OntoNotes: with these the tagger's last layer has the English model's size
    types = (
        *("PERSON", "NORP", "FAC", "ORG", "GPE", "LOC", "PRODUCT", "EVENT", "WORK_OF_ART", "LAW", "LANGUAGE"),
        *("DATE", "TIME", "PERCENT", "MONEY", "QUANTITY", "ORDINAL", "CARDINAL"),
    )
    tags = ["O", *(f"{place}-{kind}" for kind in types for place in "BIES")]
    return MultiVocab(
        {
            "char": characters,
            "delta": WordVocab([[[word] for word in common]], LANGUAGE, cutoff=1, lower=True),
            "tag": CompositeVocab([[((tag,),) for tag in tags]], LANGUAGE, idx=0, sep=None),
            "word": vectors.vocab,
        }
    )


def train_tokenizer(order: StandinOrder) -> None:
    from stanza.models import tokenizer
    from stanza.models.tokenization.data import DataLoader
    from stanza.models.tokenization.trainer import Trainer

    options = {
        "lang": LANGUAGE,
        "shorthand": f"{LANGUAGE}_{PACKAGE}",
        "max_seqlen": LONGEST_TRAINED_CHARS,
        "batch_size": 16,
        "lr0": 0.01,
    }
    arguments: dict[str, Any] = tokenizer.parse_args(["--no_use_mwt", *_argv(options)])
    features = tokenizer.DEFAULT_FEAT_FUNCS
    arguments |= {"feat_funcs": features, "feat_dim": len(features)}
    with TemporaryDirectory() as scratch:
        data = DataLoader(arguments, input_files=write_labelled(Path(scratch), order.sample))
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


def _argv(options: Mapping[str, object]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


RECIPE = 1
"""Raise it if the training changes in a way that the figures below do not show."""
CARD_FILE = "standin.json"
TRAINING_SEED, HELD_OUT_SEED = 1847, 1911
TRAINING_PARAGRAPHS = 4000
SIZES: Mapping[str, StandinSize] = {
    "tiny": StandinSize(
        charlm_hidden=64,
        ner_hidden=128,
        word_dim=50,
        characters=0,
        words=3000,
        ner_steps=500,
        ner_rate=0.008,
        tokenizer_steps=200,
    ),
    # The English model's: 250,000 word vectors and 944 characters follow from the sizes of
    # its files conll17.pt (107 MB) and 1billion.pt (22.7 MB).
    "full": StandinSize(
        charlm_hidden=1024,
        ner_hidden=256,
        word_dim=100,
        characters=944,
        words=250_000,
        ner_steps=600,
        ner_rate=0.001,
        tokenizer_steps=200,
    ),
}

SIZE_BYTES: Mapping[str, int] = {"tiny": 3_600_000, "full": 198_000_000}
"""The approximate size of each on disk, for a plan that is made before it is built."""


def standin_path(size: str, cache: Path) -> Path:
    """Return the folder of the stand-in of a size; its name changes with the training."""
    if size not in SIZES:
        hint = f"`model.size` may be {' or '.join(SIZES)}"
        raise JobkitError(f"there is no stand-in model of size {size!r}", hint=hint)
    made = (RECIPE, asdict(SIZES[size]), TRAINING_SEED, TRAINING_PARAGRAPHS)
    return cache / "models" / f"stand-in-{size}-{hashlib.sha256(repr(made).encode()).hexdigest()[:8]}"


def is_built(folder: Path) -> bool:
    return (folder / CARD_FILE).is_file()


def read_card(folder: Path) -> dict[str, Any]:
    """Return the file ``standin.json`` in the folder of a stand-in, as `_evaluate` makes it."""
    path = folder / CARD_FILE
    card = parse_json(path.read_text(encoding="utf-8"), str(path))
    if not isinstance(card, dict) or not isinstance(card.get("f1"), float):
        hint = f"rm -r {shell_path(folder)}; then jobkit models build"
        raise JobkitError(f"{path}: no card of a stand-in: lacks the number f1", hint=hint)
    return card


def train(path: str, size: str, *, say: Say) -> None:
    """Train a stand-in into a new folder, absolute; a ``full`` one on a GPU if there is one."""
    import numpy as np
    import torch

    folder = Path(path)
    device = "cuda" if size == "full" and torch.cuda.is_available() else "cpu"
    # How long `tiny` is trained: the time of `jobkit models build --size tiny`
    took = "when measured, this took 80 s on one core of an AMD EPYC; " if size == "tiny" else ""
    if size == "full" and device == "cpu":
        took = "`model.size: tiny` takes a minute or two and is enough to try jobkit; "
    say(f"training the stand-in model ({size}, on {device}): {took}the next time it comes from the cache")
    sample = generate(TRAINING_SEED, TRAINING_PARAGRAPHS)
    order = StandinOrder(folder=folder, sample=sample, size=SIZES[size], device=device, say=say)
    logging.getLogger("stanza").disabled = True  # importing its trainers sets it to DEBUG
    if size == "tiny":
        # A second thread does not speed up small matrices, and where other work runs on the cores the threads
        # wait for one another: ten minutes were seen instead of one.
        torch.set_num_threads(1)
    random.seed(TRAINING_SEED)
    np.random.seed(TRAINING_SEED)  # noqa: NPY002 - Stanza draws from it
    torch.manual_seed(TRAINING_SEED)
    characters = make_character_models(order)
    vectors = make_word_vectors(order)
    train_tokenizer(order)
    train_ner(order, characters=characters, vectors=vectors)
    _write_resources(folder)
    card = _evaluate(folder, size, device)
    write_atomically(folder / CARD_FILE, json.dumps(card) + "\n")
    say(f"stand-in model ({size}): F1 {card['f1']:.3f} on held-out generated text")


def _write_resources(folder: Path) -> None:
    """Write the ``resources.json`` by which Stanza finds the parts; it has no address to fetch from."""
    md5 = {part: hashlib.md5(part_path(folder, part).read_bytes()).hexdigest() for part in PARTS}  # noqa: S324
    packages: dict[str, object] = {part: {PACKAGE: {"md5": digest}} for part, digest in md5.items()}
    needed = [{"model": part, "package": PACKAGE} for part in PARTS[2:]]
    packages["ner"] = {PACKAGE: {"md5": md5["ner"], "dependencies": needed}}
    packages["packages"] = {"default": {"tokenize": PACKAGE, "ner": PACKAGE}}
    packages |= {"lang_name": "English (jobkit's stand-in)", "default_md5": ""}
    _write(folder / "resources.json", {LANGUAGE: packages, "url": ""})


def _evaluate(folder: Path, size: str, device: str) -> dict[str, Any]:
    """Tag text that the model has not seen, as a job would, and compare with the gold."""
    import torch

    held_out = generate(HELD_OUT_SEED)
    workload = StanzaNer()
    workload.load(folder, device, {"batch_size": 100}, torch.get_num_threads())
    entities: set[Entity] = set()
    for first in range(0, len(held_out.paragraphs), 100):
        result = workload.process(held_out.paragraphs[first : first + 100])
        entities.update(row._replace(paragraph=row.paragraph + first) for row in result.entities)
    right = len(entities & set(held_out.gold))
    return {
        "size": size,
        "recipe": RECIPE,
        "training_seed": TRAINING_SEED,
        "held_out_seed": HELD_OUT_SEED,
        # of entities, span and label exact
        "f1": 2 * right / (len(entities) + len(held_out.gold)),
        "device": device,
        "versions": dict(workload.versions()),
    }


# -- stand-ins with random weights

RANDOM_SEED = 1847
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@frozen
class Architecture:
    name: str
    size_bytes: int  # the approximate size on disk, for a plan made before the stand-in is built
    dimensions: Mapping[str, int] = field(default_factory=dict)  # for the framework's configuration


_TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
_BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
_MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}

_CASED, _UNCASED, _SMALL = {"vocab_size": 28_996}, {"vocab_size": 30_522}, {"vocab_size": 2_000}
ARCHITECTURES: Mapping[tuple[str, str], Architecture] = {
    ("hf-token-classification", "full"): Architecture("bert-base biased to O", 432_000_000, _BASE | _CASED),
    ("hf-token-classification", "tiny"): Architecture("bert-tiny biased to O", 1_500_000, _TINY | _SMALL),
    ("sentence-embedding", "full"): Architecture("MiniLM-L6", 92_000_000, _MINILM | _UNCASED),
    ("sentence-embedding", "tiny"): Architecture("bert-tiny", 1_500_000, _TINY | _SMALL),
    ("spacy-ner", "full"): Architecture("spaCy HashEmbedCNN 96x4", 7_000_000, {"width": 96, "depth": 4}),
    ("spacy-ner", "tiny"): Architecture("spaCy HashEmbedCNN 32x1", 3_000_000, {"width": 32, "depth": 1}),
}


def random_path(workload: str, size: str, cache: Path) -> Path:
    kind = "biased" if workload == "hf-token-classification" else "random"
    return cache / "models" / f"{kind}-{workload}-{size}-{RANDOM_SEED}"


def make_stand_in(workload: str, size: str, cache: Path, say: Say) -> None:
    """Have a child process build a stand-in unless it is there; of several processes one builds it."""
    folder, what, words = standin_path(size, cache), f"the stand-in model ({size})", ["train", size]
    if (workload, size) in ARCHITECTURES:
        folder, words = random_path(workload, size, cache), ["build_random", workload, size]
        what = f"{ARCHITECTURES[workload, size].name} with random weights"
    if is_built(folder):
        return
    busy = partial(say, "another jobkit is building the stand-in model: waiting for it")
    with cache_lock(folder.with_name(f".{folder.name}.lock"), busy):
        if not is_built(folder):
            with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
                made, (function, *rest) = Path(scratch) / folder.name, words
                child, gpus = f"jobkit.planning.standin:{function}", words == ["train", "full"]
                run_in_child(child, str(made), *rest, say=say, what=f"building {what}", gpus=gpus)
                made.replace(folder)
                share_with_group(folder)


def build_random(path: str, workload: str, size: str, *, say: Say) -> None:
    """Write a stand-in into a folder; the file that says what the folder is comes last."""
    architecture, folder = ARCHITECTURES[workload, size], Path(path)
    say(f"building {architecture.name} with random weights (it is not trained)")
    # Of the head of a tagger, by size: with it the sample has about 3 entities a paragraph (measured)
    o_bias = {"full": 1.18, "tiny": 0.38}
    if workload == "spacy-ner":
        _build_spacy(folder, architecture)
    else:
        import torch

        torch.manual_seed(RANDOM_SEED)
        if workload == "sentence-embedding":
            _build_embedder(folder, architecture)
        else:
            _build_tagger(folder, architecture, o_bias[size])
    _write(folder / CARD_FILE, {**asdict(architecture), "seed": RANDOM_SEED, "trained": False})


def _build_tagger(folder: Path, architecture: Architecture, bias: float) -> None:
    import torch
    from transformers import BertConfig, BertForTokenClassification

    tokenizer = _tokenizer(architecture, lowercase=False)
    # The labels of CoNLL 2003, which most English entity models of the hub have
    labels = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC")
    config = BertConfig(
        **architecture.dimensions,
        id2label=dict(enumerate(labels)),
        label2id={label: at for at, label in enumerate(labels)},
    )
    model = BertForTokenClassification(config)
    torch.nn.init.constant_(model.classifier.bias[:1], bias)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _build_embedder(folder: Path, architecture: Architecture) -> None:
    """Save a BERT with its tokenizer in the layout of sentence-transformers: mean over tokens, length 1."""
    from transformers import BertConfig, BertModel

    tokenizer = _tokenizer(architecture, lowercase=True)
    BertModel(BertConfig(**architecture.dimensions)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    parts = ("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")
    modules = [
        {"idx": at, "name": str(at), "path": part, "type": f"sentence_transformers.models.{kind}"}
        for at, (part, kind) in enumerate(parts)
    ]
    pooling = {
        "word_embedding_dimension": architecture.dimensions["hidden_size"],
        "pooling_mode_mean_tokens": True,
    }
    _write(folder / "modules.json", modules)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": 256, "do_lower_case": False})
    _write(folder / "1_Pooling" / "config.json", pooling)
    _write(folder / "2_Normalize" / "config.json", {})


def _build_spacy(folder: Path, architecture: Architecture) -> None:
    import numpy as np
    import spacy

    spacy.util.fix_random_seed(RANDOM_SEED)
    nlp = spacy.blank("en")
    config = nlp.get_factory_meta("ner").default_config
    tok2vec = {**config["model"]["tok2vec"], **architecture.dimensions}
    tagger: Any = nlp.add_pipe("ner", config={"model": {**config["model"], "tok2vec": tok2vec}})
    for label in ("PERSON", "ORG", "GPE", "DATE"):
        tagger.add_label(label)
    nlp.initialize()
    generator = np.random.default_rng(RANDOM_SEED)
    for node in tagger.model.walk():
        if node.has_param("W") and not np.any(weights := node.get_param("W")):
            # before the training the weights are 0: all choices would have one score
            spread = generator.normal(0, 0.5, weights.shape)
            node.set_param("W", spread.astype(weights.dtype))
    nlp.to_disk(folder)


def _tokenizer(architecture: Architecture, *, lowercase: bool) -> Any:  # noqa: ANN401
    """Return a WordPiece tokenizer with the vocabulary of the sample: its characters, then its words."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    pad, unknown, begin, end, mask = SPECIAL
    normalizer, splitter = normalizers.BertNormalizer(lowercase=lowercase), pre_tokenizers.BertPreTokenizer()
    text = normalizer.normalize_str(sample_text(1000))
    size = architecture.dimensions["vocab_size"]
    entries = vocabulary((word for word, _ in splitter.pre_tokenize_str(text)), size)
    made = Tokenizer(models.WordPiece({entry: at for at, entry in enumerate(entries)}, unk_token=unknown))
    made.normalizer, made.pre_tokenizer, made.decoder = normalizer, splitter, decoders.WordPiece()
    numbers = [(word, made.token_to_id(word)) for word in (begin, end)]
    made.post_processor = processors.TemplateProcessing(single=f"{begin} $A {end}", special_tokens=numbers)
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        model_max_length=512,
        pad_token=pad,
        unk_token=unknown,
        cls_token=begin,
        sep_token=end,
        mask_token=mask,
    )


def vocabulary(words: Iterable[str], size: int) -> list[str]:
    """Return at most ``size`` entries of a WordPiece vocabulary.

    The trainer of the library tokenizers is not used: from one text it makes another vocabulary each time
    (seen in 0.23.3).
    """
    counts = Counter(words)
    characters = sorted({character for word in counts for character in word})
    by_count = sorted(counts, key=lambda word: (-counts[word], word))
    pieces = (*SPECIAL, *characters, *(f"##{character}" for character in characters), *by_count)
    return [*dict.fromkeys(pieces)][:size]


def _write(path: Path, data: object) -> None:
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, json.dumps(data, indent=1) + "\n")
