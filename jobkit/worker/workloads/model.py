"""The model of a workload: its files, its format of numbers, its versions, its heaviest batch in parts.

Standard library only: this module is imported on the compute node. Torch is imported by what needs it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobkit.core.errors import JobkitError
from jobkit.core.files import write_atomically
from jobkit.core.knobs import BF16, CUDA, FP16, FP32, PROMPT, TF32, Value
from jobkit.core.records import FOLDER, ModelRef, Outcome
from jobkit.worker.failure import TryFailed

PROCESSORS = "tokenize,ner"
"""The processors of Stanza that the tagger needs."""
RESOURCES_FILE = "resources.json"


def check_model(inputs: Path, planned: ModelRef) -> None:
    """Compare the model with the planned model, once for all tasks that share the inputs."""
    mark = inputs / "verified"  # holds the fingerprint once that has been computed
    if mark.is_file() and mark.read_text(encoding="ascii") == planned.fingerprint:
        return
    folder = inputs / "model"
    if planned.kind != FOLDER and (missing := missing_files(folder, planned.name)):
        raise TryFailed(Outcome.MODEL_MISSING, f"model {planned.path}: {missing}")
    actual = fingerprint(folder, planned.name, planned.kind, planned.options)
    if actual != planned.fingerprint:
        message = f"{planned.path} is not the model that was planned: fingerprint {actual[:12]}"
        raise TryFailed(Outcome.STAGE_IN, f"{message}, not {planned.fingerprint[:12]}")
    with contextlib.suppress(OSError):  # without the mark, the next task computes it again
        write_atomically(mark, planned.fingerprint)


def missing_files(folder: Path, name: str) -> str:
    """Return which files of a Stanza model a folder lacks; empty if Stanza can load it."""
    try:
        needed = needed_files(folder, name)
    except OSError:
        return f"no {RESOURCES_FILE}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{RESOURCES_FILE} does not list {name}"
    missing = [path for path in needed if not (folder / path).is_file()]
    return f"no {', '.join(missing)}" if missing else ""


def folder_files(folder: Path) -> tuple[str, ...]:
    """Return the files of a model that is a whole folder; a job copies them, and no hidden file."""
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return tuple(str(path) for path in files if not any(part.startswith(".") for part in path.parts))


def fingerprint(folder: Path, name: str, kind: str, options: Mapping[str, Value] | None = None) -> str:
    """Return the sha256 over the files of a model, their names and their bytes, and over its options.

    A prompt stands before the texts, and changes nothing of the model.
    """
    asked = [f"{key}: {value}\n" for key, value in (options or {}).items() if key != PROMPT]
    whole = hashlib.sha256("".join(asked).encode())
    for file in sorted(folder_files(folder) if kind == FOLDER else needed_files(folder, name)):
        with (folder / file).open("rb") as stream:
            whole.update(f"{file}\n{hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()


def needed_files(folder: Path, name: str) -> tuple[str, ...]:
    """Return the files of a language's default tokenizer and tagger, and of their dependencies."""
    packages = json.loads((folder / RESOURCES_FILE).read_text(encoding="utf-8"))[name]
    default = packages["packages"]["default"]
    chosen = [(part, default[part]) for part in PROCESSORS.split(",")]
    if "mwt" in default:  # Stanza loads it with the tokenizer
        chosen.append(("mwt", default["mwt"]))
    built_on = [
        (needed["model"], needed["package"])
        for part, package in chosen
        for needed in packages[part][package].get("dependencies", ())
    ]
    return tuple(dict.fromkeys(f"{name}/{part}/{package}.pt" for part, package in (*chosen, *built_on)))


def model_folder(model: ModelRef | Path | None) -> Path:
    """Return the folder of a model."""
    if model is None:
        raise JobkitError("this workload needs a model", hint="see `model` in the spec")
    return Path(model.path) if isinstance(model, ModelRef) else model


SAVED = "SentenceTransformer"
"""What sentence-transformers calls an embedder that it saves."""
NO_LIMIT = 10**6
"""A tokenizer that names no maximum has one above this (``VERY_LARGE_INTEGER`` in transformers)."""


def unlimited(folder: Path) -> JobkitError:
    hint = 'write "model_max_length": 512, or what it was trained with, into its tokenizer_config.json'
    return JobkitError(f"{folder} names no largest number of tokens", hint=hint)


def language_of(model: Path) -> str:
    """Return the language of a folder with a model of Stanza."""
    try:
        languages = json.loads((model / RESOURCES_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise JobkitError(
            f"model {model}: no readable {RESOURCES_FILE}: {error}",
            hint="jobkit models fetch en",
        ) from error
    found = sorted(entry.name for entry in model.iterdir() if entry.is_dir() and entry.name in languages)
    if len(found) != 1:
        raise JobkitError(
            f"model {model}: holds {', '.join(found) or 'no language'}, where one language is expected",
            hint=f"stage one language's folder and {RESOURCES_FILE}, as job.sh does",
        )
    return found[0]


def read_json(path: Path, default: Any = None) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return what a JSON file holds; ``default``, or an empty mapping, if there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {} if default is None else default
    except (OSError, ValueError, RecursionError) as error:
        hint = "write it as JSON in UTF-8, or save the model again"
        raise JobkitError(f"{path} cannot be read as JSON: {error}", hint=hint) from error


# -- what an encoder knows of the files of a model; what it does not know is refused, by name

TOKENIZER_SETTINGS = {
    # honoured by an encoder, or here once the tokenizer is loaded
    *("model_max_length", "max_len", "padding_side", "truncation_side", "split_special_tokens"),
    *("pad_token_type_id", "model_input_names", "added_tokens_decoder", "do_lower_case", "do_basic_tokenize"),
    *("never_split", "strip_accents", "tokenize_chinese_chars", "wordpieces_prefix", "add_prefix_space"),
    *("trim_offsets", "remove_space", "keep_accents", "sp_model_kwargs", "legacy", "fix_mistral_regex"),
    *("extra_ids", "split_by_punct", "do_split_on_punc", "clean_text", "vocab_type", "unk_id", "offset"),
    *("vocab", "merges", "src_lang", "tgt_lang", "language_codes", "max_input_chars_per_word"),
    # of each call, of decoding, of chats, or names
    *("max_length", "stride", "truncation", "truncation_strategy", "padding", "pad_to_multiple_of"),
    *("clean_up_tokenization_spaces", "spaces_between_special_tokens", "errors", "chat_template"),
    *("use_default_system_prompt", "response_template", "response_schema", "name_or_path", "auto_map"),
    *("processor_class", "tokenizer_class", "backend", "files_loaded", "is_local", "local_files_only"),
    *("verbose", "use_fast", "from_slow", "device", "cache_dir", "model_specific_special_tokens"),
    *("model_type", "tokenizer_type", "_commit_hash"),
}
"""Settings of a tokenizer that an encoder follows, or that change nothing for it. It also follows the
parameters of the tokenizer's class, special tokens and files: a tokenizer that is loaded has them."""
EMBEDDER_SETTINGS = {
    *("__version__", "requirements", "model_type", "similarity_fn_name"),
    *("prompts", "default_prompt_name", "truncate_dim"),
}
"""Of config_sentence_transformers.json, what says nothing of a vector, or is honoured."""
MODULES: Mapping[str, set[str]] = {
    "Transformer": {
        *("transformer_task", "modality_config", "module_output_name", "processing_kwargs", "max_seq_length"),
        *("unpad_inputs", "query_length", "document_length", "query_expansion", "do_lower_case"),
        *("model_kwargs", "processor_kwargs", "config_kwargs", "model_args", "tokenizer_args", "config_args"),
    },
    "Pooling": {
        *("embedding_dimension", "word_embedding_dimension", "include_prompt", "pooling_mode"),
        *("pooling_mode_cls_token", "pooling_mode_max_tokens", "pooling_mode_mean_tokens"),
        *("pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"),
    },
    "LayerNorm": {"dimension"},
    "Dense": set(),
    "Normalize": set(),
}
"""The modules of sentence-transformers that take what the one before gave, and nothing of the text, with the
settings that they can have; none if the library passes over those that it does not know."""


# -- torch

DTYPES = {FP16: "float16", BF16: "bfloat16"}
"""The names of torch's types."""
OVERRIDE = "NVIDIA_TF32_OVERRIDE"
"""With 0 in this variable NVIDIA's libraries never use TF32, whatever a program sets (cuBLAS and cuDNN)."""


def parts_of(count: int) -> list[int]:
    """Return the sizes of the heaviest batch, of ``count`` items, and of its parts; none without items."""
    # one would not show that the need scatters about its line by the block size of the allocator
    return list(dict.fromkeys(max(1, round(share * count)) for share in (1.0, 0.85, 0.7) if count))


def set_tf32(precision: str, device: str) -> str:
    """Switch TF32 on for ``tf32`` and off for all others; return the precision that takes effect.

    Both switches are set, because torch's defaults differ: ``torch.backends.cuda.matmul.allow_tf32``
    is false and ``torch.backends.cudnn.allow_tf32``, which decides for the LSTMs, is true.
    """
    import torch

    wanted = precision == TF32
    torch.backends.cuda.matmul.allow_tf32 = wanted
    torch.backends.cudnn.allow_tf32 = wanted
    able = device == CUDA and os.environ.get(OVERRIDE) != "0"
    # Ampere has it first (CUDA C++ Programming Guide, appendix)
    if not wanted or (able and torch.cuda.get_device_capability()[0] >= 8):
        return precision
    return FP32


def torch_versions(*modules: Any) -> dict[str, str]:  # noqa: ANN401 - modules of frameworks
    """Return the versions of torch, of these modules, of numpy, and of CUDA and cuDNN if torch has them."""
    import numpy as np
    import torch

    versions = {module.__name__: module.__version__ for module in (torch, *modules, np)}
    if torch.version.cuda:
        versions |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    return {name: str(version) for name, version in versions.items() if version is not None}
