"""The tokens of texts by a folder's tokenizer.json: transformers, and torch with it, is not imported.

Some tokenizers of transformers read this file. Others take its vocabulary, build the rest from settings in
tokenizer_config.json, and ignore what else it has (``tokenization_utils_tokenizers.py``, read in 5.23.0).
So `count` refuses a folder whose two files might not agree, and the caller asks transformers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jobkit.core.knobs import PROMPT
from jobkit.worker.workloads.model import NO_LIMIT, TOKENIZER_SETTINGS, read_json

CHANGING = {
    *("add_bos_token", "add_eos_token", "max_len", "vocab", "merges", "fix_mistral_regex", "clean_text"),
    *("max_input_chars_per_word", "wordpieces_prefix", "sp_model_kwargs", "legacy", "src_lang", "tgt_lang"),
    *("language_codes", "split_by_punct", "do_split_on_punc", "unk_id", "offset", "vocab_type", "auto_map"),
}
"""Settings of a tokenizer that may change how many tokens a text has."""
OF_BERT = {
    "do_lower_case": ("lowercase", True),
    "strip_accents": ("strip_accents", None),
    "tokenize_chinese_chars": ("handle_chinese_chars", True),
}
"""Settings of BERT's class by their names in its normalizer, and what they are if they are not named."""
USUAL_MODEL = {
    **dict.fromkeys(("dropout", "end_of_word_suffix"), None),
    **dict.fromkeys(("byte_fallback", "ignore_merges", "fuse_unk"), False),
    "max_input_chars_per_word": 100,
}
FIRST_POSITIONS = 2
"""Positions that no token has: RoBERTa counts them from 2."""


class Files(NamedTuple):
    """What the files of a model say of its tokenizer, and of how it takes a text."""

    folder: Path  # with tokenizer.json
    special: bool = True  # whether special tokens are added
    prompt: str = ""  # stands before each text
    most: int | None = None  # tokens of a piece; ``None`` for any number
    stride: int | None = None  # tokens that two pieces of a text have in common; ``None`` if it is cut


def of_embedder(folder: Path, asked: Mapping[str, Any]) -> Files | None:
    """Return the tokenizer's files of a sentence embedder; ``None`` if they leave a doubt.

    ``asked``: the options of a `ModelRef`.
    """
    modules = [] if asked.get("pooling") else read_json(folder / "modules.json", [])
    first = folder / modules[0].get("path", "") if modules else folder
    of_library = read_json(folder / "config_sentence_transformers.json")
    prompts = of_library.get("prompts") or {}
    prompt = prompts.get(of_library.get("default_prompt_name")) or ""
    if (named := asked.get(PROMPT)) is not None:
        prompt = prompts.get(named, named)
    kind = modules[0].get("type", "") if modules else "sentence_transformers.models.Transformer"
    if kind.endswith(".StaticEmbedding"):
        return Files(first, special=False, prompt=prompt)
    file = first / "sentence_bert_config.json"
    settings, others = (
        read_json(file),
        [other for other in first.glob("sentence_*_config.json") if other != file],
    )
    more_than_text = [first / "preprocessor_config.json", first / "processor_config.json"]
    others += filter(Path.exists, more_than_text)
    modality = settings.get("modality_config") or {"text": None}
    unusual = not (kind.startswith("sentence_transformers.") and kind.endswith(".Transformer"))
    known = {"max_seq_length", "do_lower_case", "transformer_task", "module_output_name", "modality_config"}
    unusual |= bool(settings.keys() - known or settings.get("do_lower_case") or others)
    if unusual or modality.keys() != {"text"}:
        return None
    if (most := settings.get("max_seq_length")) is None:
        named = read_json(first / "tokenizer_config.json").get("model_max_length")
        positions = read_json(first / "config.json").get("max_position_embeddings")
        most = min((int(one) for one in (named, positions) if one and one > 0), default=None)
    return Files(first, prompt=prompt, most=most)


def of_tagger(folder: Path, stride_of: Callable[[int], int]) -> Files | None:
    """Return the tokenizer's files of a tagger, whose long texts become pieces; or as `of_embedder`."""
    most = int(read_json(folder / "tokenizer_config.json").get("model_max_length") or NO_LIMIT + 1)
    if most > NO_LIMIT:
        config = read_json(folder / "config.json")
        most = (config.get("max_position_embeddings") or config.get("n_positions") or 0) - FIRST_POSITIONS
    return Files(folder, most=most, stride=stride_of(most)) if most > 0 else None


def count(texts: Sequence[str], files: Files | None) -> list[list[int]] | None:
    """Return the tokens of each piece of each text; ``None`` if the files leave a doubt. All CPUs count."""
    made = _tokenizer(files) if files else None
    if not files or not made:
        return None
    rows: list[list[int]] = []
    together = 4_096  # texts whose tokens are held at a time
    for first in range(0, len(texts), together):
        some = [files.prompt + text for text in texts[first : first + together]]
        for one in made.encode_batch_fast(some, add_special_tokens=files.special):
            more = one.overflowing if files.stride is not None else ()
            rows.append([len(one), *map(len, more)])
    return rows


def _tokenizer(files: Files) -> Any:  # noqa: ANN401 - tokenizers is untyped
    from tokenizers import Tokenizer

    try:
        of_file = read_json(files.folder / "tokenizer.json")
        config = read_json(files.folder / "tokenizer_config.json")
        if files.special and (not config or any(_doubts(config, of_file, files.folder))):
            return None
        made = Tokenizer.from_file(str(files.folder / "tokenizer.json"))
    except Exception:  # noqa: BLE001 - tokenizers raises no other class; the library says what is wrong
        return None
    made.no_padding()
    own_ends = {"BertTokenizer", "MPNetTokenizer", "RobertaTokenizer", "XLMRobertaTokenizer"}
    if files.special and _class_of(config) in own_ends and len(made.encode("")) != 2:
        return None
    if files.special:
        made.encode_special_tokens = bool(config.get("split_special_tokens"))
        made.no_truncation()
    if files.most:
        made.enable_truncation(files.most, stride=files.stride or 0)
    return made


def _doubts(config: Mapping[str, Any], of_file: Mapping[str, Any], folder: Path) -> Iterator[bool]:
    """Yield whether the settings may make another tokenizer than tokenizer.json has."""
    tokens = {key for key in config.keys() - CHANGING if key.endswith("_token")}
    named_files = {key for key in config if key.endswith(("_file", "_tokens"))}
    yield bool(config.keys() & CHANGING or config.keys() - TOKENIZER_SETTINGS - tokens - named_files)
    yield config.get("truncation_side", "right") != "right"
    yield not _agrees(_class_of(config), config, of_file)
    known = {token["content"] for token in of_file.get("added_tokens") or ()}
    named = [config[key] for key in tokens if config[key]]
    named += config.get("additional_special_tokens") or ()
    more = config.get("extra_special_tokens") or ()
    named += more.values() if isinstance(more, Mapping) else more
    named += (config.get("added_tokens_decoder") or {}).values()
    named += read_json(folder / "added_tokens.json")
    for value in read_json(folder / "special_tokens_map.json").values():
        named += value if isinstance(value, list) else [value]
    yield not known.issuperset(one["content"] if isinstance(one, Mapping) else one for one in named)


def _class_of(config: Mapping[str, Any]) -> str:
    return str(config.get("tokenizer_class")).removesuffix("Fast")  # one class in 5, two in 4


def _agrees(kind: str, config: Mapping[str, Any], of_file: Mapping[str, Any]) -> bool:
    """Return whether a class of tokenizers has what tokenizer.json has: it reads it, or builds the same."""
    normalizer, split, model = (of_file.get(key) or {} for key in ("normalizer", "pre_tokenizer", "model"))
    blank, parts = config.get("add_prefix_space"), split.get("pretokenizers", ())
    usual = {name: model.get(name) or value for name, value in USUAL_MODEL.items()} == USUAL_MODEL
    usual &= model.get("continuing_subword_prefix") in {None, "", "##"}
    by_bytes = {"type": "ByteLevel", "add_prefix_space": bool(blank), "trim_offsets": True, "use_regex": True}
    if kind in {"TokenizersBackend", "PreTrainedTokenizer"}:
        return not blank and not config.keys() & OF_BERT.keys()
    if kind in {"BertTokenizer", "MPNetTokenizer"}:
        wanted = {name: config.get(key, value) for key, (name, value) in OF_BERT.items()}
        wanted |= {"type": "BertNormalizer", "clean_text": True}
        return usual and normalizer == wanted and split == {"type": "BertPreTokenizer"}
    if kind == "RobertaTokenizer":
        return usual and not normalizer and split == by_bytes
    if kind == "XLMRobertaTokenizer":
        wanted = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
        made = [{"type": "WhitespaceSplit"}, wanted]
        of_text = normalizer.get("type") in {None, "Precompiled"} and model.get("unk_id") == 3
        return usual and of_text and blank in {None, True} and list(parts) == made
    if kind == "Qwen2Tokenizer":
        digest = hashlib.sha256(json.dumps(split, sort_keys=True).encode()).hexdigest()[:16]
        return usual and normalizer == {"type": "NFC"} and not blank and digest == "dcf453f17fd94008"
    return False
