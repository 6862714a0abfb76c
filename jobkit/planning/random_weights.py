"""Stand-ins with random weights: a named architecture that was not trained, for memory and speed only.

A workload of transformers, sentence-transformers or spaCy uses one if its model is not available. Memory
and the speed of the network follow from the shapes of the weights and not from their values; what it finds
means nothing. But an untrained head calls nearly every token an entity, and to write these out takes longer
than the network: so the head of a tagger is biased to ``O``, for about 3 entities a paragraph. The weights
follow from a seed. The vocabulary of a tokenizer is made from jobkit's sample text, so a word of another text
becomes more tokens than with a vocabulary made from much text. The dimensions of BERT-base are those of
Devlin et al. 2019 (https://arxiv.org/abs/1810.04805), of MiniLM-L6 those of the files of
``sentence-transformers/all-MiniLM-L6-v2``; the vocabularies have 28,996 (cased) and 30,522 (uncased) entries.
spaCy's are the defaults of its component ``ner``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jobkit.core.files import write_atomically
from jobkit.core.terminal import Say
from jobkit.planning.sample import sample_text
from jobkit.planning.standin import CARD_FILE, build_once

SEED = 1847
SAMPLE_PARAGRAPHS = 1000
"""Paragraphs of the sample from which the vocabulary is made."""
LABELS = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC")
"""The labels of CoNLL 2003, which most English entity models of the hub have."""
SPACY_LABELS = ("PERSON", "ORG", "GPE", "DATE")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
O_BIAS = {"full": 1.18, "tiny": 0.38}
"""Of the head of a tagger, by size: with it the sample has about 3 entities a paragraph (measured)."""
SCORE_SPREAD = 0.5
"""Spread of spaCy's last layer. Before the training its weights are 0: all choices would have one score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    name: str
    size_bytes: int  # the approximate size on disk, for a plan made before the stand-in is built
    dimensions: Mapping[str, int] = field(default_factory=dict)  # for the framework's configuration


_TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
_BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
_MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}

ARCHITECTURES: Mapping[tuple[str, str], Architecture] = MappingProxyType(
    {
        ("hf-token-classification", "full"): Architecture(
            name="bert-base biased to O", size_bytes=432_000_000, dimensions={**_BASE, "vocab_size": 28_996}
        ),
        ("hf-token-classification", "tiny"): Architecture(
            name="bert-tiny biased to O", size_bytes=1_500_000, dimensions={**_TINY, "vocab_size": 2_000}
        ),
        ("sentence-embedding", "full"): Architecture(
            name="MiniLM-L6", size_bytes=92_000_000, dimensions={**_MINILM, "vocab_size": 30_522}
        ),
        ("sentence-embedding", "tiny"): Architecture(
            name="bert-tiny", size_bytes=1_500_000, dimensions={**_TINY, "vocab_size": 2_000}
        ),
        ("spacy-ner", "full"): Architecture(
            name="spaCy HashEmbedCNN 96x4", size_bytes=7_000_000, dimensions={"width": 96, "depth": 4}
        ),
        ("spacy-ner", "tiny"): Architecture(
            name="spaCy HashEmbedCNN 32x1", size_bytes=3_000_000, dimensions={"width": 32, "depth": 1}
        ),
    }
)


def random_path(workload: str, size: str, cache: Path) -> Path:
    kind = "biased" if workload == "hf-token-classification" else "random"
    return cache / "models" / f"{kind}-{workload}-{size}-{SEED}"


def make_random(workload: str, size: str, cache: Path, say: Say) -> None:
    folder, what = random_path(workload, size, cache), ARCHITECTURES[workload, size].name
    what = f"building {what} with random weights"
    build_once(folder, "jobkit.planning.random_weights:build", workload, size, what=what, gpus=False, say=say)


def build(path: str, workload: str, size: str, *, say: Say) -> None:
    """Write a stand-in into a folder; the file that says what the folder is comes last."""
    architecture, folder = ARCHITECTURES[workload, size], Path(path)
    say(f"building {architecture.name} with random weights (it is not trained)")
    if workload == "spacy-ner":
        _build_spacy(folder, architecture)
    else:
        import torch

        torch.manual_seed(SEED)
        if workload == "sentence-embedding":
            _build_embedder(folder, architecture)
        else:
            _build_tagger(folder, architecture, O_BIAS[size])
    _write(folder / CARD_FILE, {**asdict(architecture), "seed": SEED, "trained": False})


def _build_tagger(folder: Path, architecture: Architecture, bias: float) -> None:
    import torch
    from transformers import BertConfig, BertForTokenClassification

    tokenizer = _tokenizer(architecture, lowercase=False, most_tokens=512)
    config = BertConfig(
        **architecture.dimensions,
        id2label=dict(enumerate(LABELS)),
        label2id={label: at for at, label in enumerate(LABELS)},
    )
    model = BertForTokenClassification(config)
    torch.nn.init.constant_(model.classifier.bias[:1], bias)
    _save(folder, model, tokenizer)


def _build_embedder(folder: Path, architecture: Architecture) -> None:
    """Save a BERT with its tokenizer in the layout of sentence-transformers: mean over tokens, length 1."""
    from transformers import BertConfig, BertModel

    tokenizer = _tokenizer(architecture, lowercase=True, most_tokens=512)
    _save(folder, BertModel(BertConfig(**architecture.dimensions)), tokenizer)
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

    spacy.util.fix_random_seed(SEED)
    nlp = spacy.blank("en")
    config = nlp.get_factory_meta("ner").default_config
    tok2vec = {**config["model"]["tok2vec"], **architecture.dimensions}
    tagger: Any = nlp.add_pipe("ner", config={"model": {**config["model"], "tok2vec": tok2vec}})
    for label in SPACY_LABELS:
        tagger.add_label(label)
    nlp.initialize()
    generator = np.random.default_rng(SEED)
    for node in tagger.model.walk():
        if node.has_param("W") and not np.any(weights := node.get_param("W")):
            spread = generator.normal(0, SCORE_SPREAD, weights.shape)
            node.set_param("W", spread.astype(weights.dtype))
    nlp.to_disk(folder)


def _tokenizer(architecture: Architecture, *, lowercase: bool, most_tokens: int) -> Any:  # noqa: ANN401
    """Return a WordPiece tokenizer with the vocabulary of the sample: its characters, then its words."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    pad, unknown, begin, end, mask = SPECIAL
    normalizer, splitter = normalizers.BertNormalizer(lowercase=lowercase), pre_tokenizers.BertPreTokenizer()
    text = normalizer.normalize_str(sample_text(SAMPLE_PARAGRAPHS))
    size = architecture.dimensions["vocab_size"]
    entries = vocabulary((word for word, _ in splitter.pre_tokenize_str(text)), size)
    made = Tokenizer(models.WordPiece({entry: at for at, entry in enumerate(entries)}, unk_token=unknown))
    made.normalizer, made.pre_tokenizer, made.decoder = normalizer, splitter, decoders.WordPiece()
    numbers = [(word, made.token_to_id(word)) for word in (begin, end)]
    made.post_processor = processors.TemplateProcessing(single=f"{begin} $A {end}", special_tokens=numbers)
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        model_max_length=most_tokens,
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


def _save(folder: Path, model: Any, tokenizer: Any) -> None:  # noqa: ANN401 - transformers is untyped
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _write(path: Path, data: object) -> None:
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, json.dumps(data, indent=1) + "\n")
