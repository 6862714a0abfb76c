"""The tokens of texts by a folder's tokenizer.json: transformers, and torch with it, is not imported.

Transformers makes most of its tokenizers anew, out of the vocabulary of tokenizer.json and of settings in
tokenizer_config.json (``tokenization_utils_tokenizers.py``, read in 5.23.0). So it counts the tokens of a
folder with a setting that is not one of `SILENT`, or that contradicts tokenizer.json.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jobkit.core.knobs import PROMPT
from jobkit.worker.workloads.model import NO_LIMIT

TOGETHER = 4_096
"""Texts whose tokens are held at a time."""
SILENT = {
    # of padding, decoding, chats and names, and those that are looked at below
    *("model_max_length", "padding_side", "pad_token_type_id", "model_input_names", "padding", "truncation"),
    *("clean_up_tokenization_spaces", "spaces_between_special_tokens", "errors", "chat_template"),
    *("name_or_path", "processor_class", "tokenizer_class", "backend", "is_local", "local_files_only"),
    *("special_tokens_map_file", "tokenizer_file", "use_fast", "auto_map", "model_specific_special_tokens"),
    *("added_tokens_decoder", "additional_special_tokens", "extra_special_tokens", "split_special_tokens"),
    *("max_length", "stride", "truncation_strategy", "truncation_side", "never_split", "do_basic_tokenize"),
    *("do_lower_case", "strip_accents", "tokenize_chinese_chars", "add_prefix_space", "trim_offsets"),
    *("keep_accents", "remove_space", "use_default_system_prompt", "extra_ids", "pad_to_multiple_of"),
}
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
UNKNOWN = 3
"""The number of the unknown token of XLM-R."""
OF_QWEN = "dcf453f17fd94008"
"""The digest of how Qwen2's class cuts a text into words."""
OWN_ENDS = ("BertTokenizer", "MPNetTokenizer", "RobertaTokenizer", "XLMRobertaTokenizer")
"""Classes that put their own two special tokens around a text."""
USUAL = "sentence_transformers.models.Transformer"
EMBEDDER_FILE = "sentence_bert_config.json"
OF_EMBEDDER = {"max_seq_length", "do_lower_case", "transformer_task", "module_output_name", "modality_config"}
PROCESSORS = ("preprocessor_config.json", "processor_config.json")
"""Files of a model that takes more than text."""
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
    modules = [] if asked.get("pooling") else _read(folder / "modules.json", [])
    first = folder / modules[0].get("path", "") if modules else folder
    of_library = _read(folder / "config_sentence_transformers.json")
    prompts = of_library.get("prompts") or {}
    prompt = prompts.get(of_library.get("default_prompt_name")) or ""
    if (named := asked.get(PROMPT)) is not None:
        prompt = prompts.get(named, named)
    kind = modules[0].get("type", "") if modules else USUAL
    if kind.endswith(".StaticEmbedding"):
        return Files(first, special=False, prompt=prompt)
    settings = _read(first / EMBEDDER_FILE)
    others = [file for file in first.glob("sentence_*_config.json") if file.name != EMBEDDER_FILE]
    others += [first / name for name in PROCESSORS if (first / name).exists()]
    modality = settings.get("modality_config") or {"text": None}
    unusual = not (kind.startswith("sentence_transformers.") and kind.endswith(".Transformer"))
    unusual |= bool(settings.keys() - OF_EMBEDDER or settings.get("do_lower_case") or others)
    if unusual or modality.keys() != {"text"}:
        return None
    if (most := settings.get("max_seq_length")) is None:
        named = _read(first / "tokenizer_config.json").get("model_max_length")
        positions = _read(first / "config.json").get("max_position_embeddings")
        most = min((int(one) for one in (named, positions) if one and one > 0), default=None)
    return Files(first, prompt=prompt, most=most)


def of_tagger(folder: Path, stride_of: Callable[[int], int]) -> Files | None:
    """Return the tokenizer's files of a tagger, whose long texts become pieces; or as `of_embedder`."""
    most = int(_read(folder / "tokenizer_config.json").get("model_max_length") or NO_LIMIT + 1)
    if most > NO_LIMIT:
        config = _read(folder / "config.json")
        most = (config.get("max_position_embeddings") or config.get("n_positions") or 0) - FIRST_POSITIONS
    return Files(folder, most=most, stride=stride_of(most)) if most > 0 else None


def count(texts: Sequence[str], files: Files | None) -> list[list[int]] | None:
    """Return the tokens of each piece of each text; ``None`` if the files leave a doubt. All CPUs count."""
    made = _tokenizer(files) if files else None
    if not files or not made:
        return None
    rows: list[list[int]] = []
    for first in range(0, len(texts), TOGETHER):
        some = [files.prompt + text for text in texts[first : first + TOGETHER]]
        for one in made.encode_batch_fast(some, add_special_tokens=files.special):
            more = one.overflowing if files.stride is not None else ()
            rows.append([len(one), *map(len, more)])
    return rows


def _tokenizer(files: Files) -> Any:  # noqa: ANN401 - tokenizers is untyped
    from tokenizers import Tokenizer

    try:
        of_file = _read(files.folder / "tokenizer.json")
        config = _read(files.folder / "tokenizer_config.json")
        if files.special and (not config or any(_doubts(config, of_file, files.folder))):
            return None
        made = Tokenizer.from_file(str(files.folder / "tokenizer.json"))
    except Exception:  # noqa: BLE001 - tokenizers raises no other class; the library says what is wrong
        return None
    made.no_padding()
    own_ends = files.special and _class_of(config) in OWN_ENDS
    if own_ends and len(made.encode("")) != 2:  # noqa: PLR2004 - one before, and one after the text
        return None
    if files.special:
        made.encode_special_tokens = bool(config.get("split_special_tokens"))
        made.no_truncation()
    if files.most:
        made.enable_truncation(files.most, stride=files.stride or 0)
    return made


def _doubts(config: Mapping[str, Any], of_file: Mapping[str, Any], folder: Path) -> Iterator[bool]:
    """Yield whether the settings may make another tokenizer than tokenizer.json has."""
    tokens = {key for key in config if key.endswith("_token") and not key.startswith("add_")}
    yield bool(config.keys() - SILENT - tokens)
    yield config.get("truncation_side", "right") != "right" or bool(config.get("auto_map"))
    yield not _made_alike(_class_of(config), config, of_file)
    known = {token["content"] for token in of_file.get("added_tokens") or ()}
    named = [config[key] for key in tokens if config[key]]
    named += config.get("additional_special_tokens") or ()
    more = config.get("extra_special_tokens") or ()
    named += more.values() if isinstance(more, Mapping) else more
    named += (config.get("added_tokens_decoder") or {}).values()
    named += _read(folder / "added_tokens.json")
    for value in _read(folder / "special_tokens_map.json").values():
        named += value if isinstance(value, list) else [value]
    yield not known.issuperset(one["content"] if isinstance(one, Mapping) else one for one in named)


def _class_of(config: Mapping[str, Any]) -> str:
    return str(config.get("tokenizer_class")).removesuffix("Fast")  # one class in 5, two in 4


def _made_alike(kind: str, config: Mapping[str, Any], of_file: Mapping[str, Any]) -> bool:
    """Return whether a class has the tokenizer of tokenizer.json: some read it, others make one anew."""
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
        of_text = normalizer.get("type") in {None, "Precompiled"} and model.get("unk_id") == UNKNOWN
        return usual and of_text and blank in {None, True} and list(parts) == made
    if kind == "Qwen2Tokenizer":
        digest = hashlib.sha256(json.dumps(split, sort_keys=True).encode()).hexdigest()[:16]
        return usual and normalizer == {"type": "NFC"} and not blank and digest == OF_QWEN
    return False


def _read(path: Path, default: Any = None) -> Any:  # noqa: ANN401 - whatever JSON holds
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {} if default is None else default
