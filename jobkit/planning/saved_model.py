"""What the files of a saved model say, and why a workload on an encoder refuses it before a job.

It reads JSON and names of files alone: transformers and sentence-transformers are not imported.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jobkit.core.errors import JobkitError
from jobkit.worker.workloads.model import MODULES, NO_LIMIT, SAVED, read_json, unlimited

EMBEDDER, TAGGER = "sentence-embedding", "hf-token-classification"
LIBRARY = "sentence_transformers."
BEGINS = ("Transformer", "StaticEmbedding", "CLIPModel")
"""The first modules of an embedder that the workload runs."""
TOKENIZER, OF_TEXT = "tokenizer_config.json", "sentence_bert_config.json"
Json = Mapping[str, Any]
Modules = Sequence[Mapping[str, str]]
NO_POOLING = "leave `pooling` out"


def refuse_keys(workload: str, asked: Mapping[str, object]) -> None:
    """Refuse keys of the spec's `model` that mean nothing to a workload."""
    for key, workloads in {"pooling": (EMBEDDER,), "trust_remote_code": (EMBEDDER, TAGGER)}.items():
        if asked.get(key) and workload not in workloads:
            hint = f"it is for {' and '.join(workloads)}"
            raise JobkitError(f"model.{key} is not for {workload}", hint=hint)


def refuse_unfit(workload: str, folder: Path, asked: Mapping[str, object]) -> None:
    """Refuse a folder that a workload cannot load, or would use for what it was not saved.

    ``asked``: the spec's `model`, with ``pooling`` and ``trust_remote_code``.
    """
    if workload in {EMBEDDER, TAGGER}:
        try:
            _refuse_unfit(workload, folder, asked)
        except (AttributeError, KeyError, TypeError) as error:
            message = f"{folder} is not as a library saves a model: {error}"
            raise JobkitError(message, hint="look at its JSON files, or save the model again") from error


def _refuse_unfit(workload: str, folder: Path, asked: Mapping[str, object]) -> None:
    modules: Modules = read_json(folder / "modules.json", []) if workload == EMBEDDER else []
    whole = folder / modules[0]["path"] if modules else folder
    config, tokens = read_json(whole / "config.json"), read_json(whole / TOKENIZER)
    [kind, *_] = config.get("architectures") or [""]
    if workload == EMBEDDER:
        modules = _of_embedder(folder, modules, kind, pooled=bool(asked.get("pooling")))
    elif kind and not kind.endswith("ForTokenClassification"):
        hint = "a model without a trained head tags at random: name one that was trained for entities"
        raise JobkitError(f"{folder} was not saved for token classification: it is {kind}", hint=hint)
    labels = config.get("id2label") or {}
    if workload == TAGGER and not all(isinstance(labels.get(str(at)), str) for at in range(len(labels))):
        raise TypeError("id2label in config.json does not name each label from 0 on")
    _refuse_weights(whole)
    _refuse_code(folder, whole, modules, config, trusted=bool(asked.get("trust_remote_code")))
    of_bytes = str(tokens.get("tokenizer_class")).startswith(("ByT5", "Canine", "Perceiver"))
    # Files of which a tokenizer has one, unless it is of bytes or has code of its own. Without any,
    # transformers makes a tokenizer that knows no word, and says nothing.
    known = ("tokenizer.json", "vocab*", "*.model", "*.spm", "*.tokenizer", "*.tiktoken", "tekken.json")
    if not (of_bytes or "auto_map" in tokens or any(any(whole.glob(name)) for name in known)):
        message = f"{whole} has no vocabulary of a tokenizer (tokenizer.json, vocab.txt, ...)"
        raise JobkitError(message, hint="save it next to the model: `tokenizer.save_pretrained(FOLDER)`")
    if not (modules and modules[0]["type"].endswith("StaticEmbedding")):
        _refuse_lengths(workload, whole, config, tokens)


def _of_embedder(folder: Path, modules: Modules, kind: str, *, pooled: bool) -> Modules:
    """Refuse what was not saved as a sentence embedder, or cannot work; return the modules that work."""
    of_library = "config_sentence_transformers.json"
    settings = read_json(folder / of_library)
    kind = kind if (saved := settings.get("model_type", SAVED)) == SAVED else saved
    if not modules or kind in {"CrossEncoder", "SparseEncoder", "MultiVectorEncoder"}:
        if pooled:
            return []
        message = f"{folder} was not saved as a sentence embedder: it is {kind or 'something else'}"
        hint = "`model.pooling: mean` is the mean of its tokens; or write a function: jobkit help workloads"
        raise JobkitError(message, hint=hint)
    if pooled:
        raise JobkitError(f"model.pooling: {folder} has a pooling of its own", hint=NO_POOLING)
    name = modules[0]["type"].rpartition(".")[2]
    if name not in BEGINS and modules[0]["type"].startswith(LIBRARY):
        message = f"{folder} begins with the module {name}, which {EMBEDDER} does not run"
        raise JobkitError(message, hint="write a function that calls `encode`: jobkit help workloads")
    _refuse_number(of_library, "truncate_dim", settings.get("truncate_dim"), 1)
    named = settings.get("default_prompt_name", "query")
    if named not in {"query": "", "document": "", None: "", **settings.get("prompts", {})}:
        raise TypeError(f"{of_library} has no prompt for its default_prompt_name {named!r}")
    for module in modules:
        _refuse_module(folder, module["type"], module["path"])
    return modules


def _refuse_module(folder: Path, kind: str, path: str) -> None:
    """Refuse a module that a job would not have, or one of the library that it cannot load."""
    if any(part.startswith((".", "/")) for part in Path(path).parts):
        raise TypeError(f"its module in {path!r} is hidden, or outside, so that a job has no copy")
    name = kind.rpartition(".")[2] if kind.startswith(LIBRARY) else ""
    if name in {"Dense", "LayerNorm"}:
        _refuse_weights(folder / path)
    file, known = folder / path / (OF_TEXT if name in BEGINS else "config.json"), MODULES.get(name)
    if name == "Pooling" and not file.is_file():
        raise TypeError(f"{file} is missing")
    if known and (unknown := read_json(file).keys() - known):
        hint = "delete it there, or write a function that calls `encode`: jobkit help workloads"
        raise JobkitError(f"{file}: {name} has no setting {min(unknown)!r} that jobkit knows", hint=hint)


def _refuse_number(file: str, key: str, value: object, least: int) -> None:
    """Refuse a setting that is no whole number; a tokenizer without a maximum has 1e30."""
    if value not in (None, 1e30) and (type(value) is not int or value < least):
        raise TypeError(f"{file}: {key} is {value!r}, not a whole number from {least} on")


def _refuse_weights(folder: Path) -> None:
    files = [path for end in ("*.safetensors", "*.bin") for path in folder.glob(end)]
    # these names end as those of weights
    files = [path for path in files if not path.name.startswith(("adapter", "training_args", "optimizer"))]
    # The names of weights in one file; with `.index.json` of their list of files
    weights = ("model.safetensors", "pytorch_model.bin")
    if not any((folder / name).exists() for name in weights):
        named = [read_json(folder / f"{name}.index.json").get("weight_map", {}).values() for name in weights]
        files += [folder / name for name in sorted({*(named[0] or named[1])})]
    pointer = b"version https://git-lfs"
    for file in files:
        if not file.is_file():
            raise JobkitError(f"{file} is missing", hint="copy all files of the model again")
        with file.open("rb") as stream:
            if stream.read(len(pointer)) == pointer:
                raise JobkitError(f"{file} is a pointer of Git LFS, not the weights", hint="git lfs pull")
    if adapter := read_json(folder / "adapter_config.json"):
        hint = "save `model.merge_and_unload()` of peft; if the weights are whole, delete adapter_config.json"
        raise JobkitError(f"{folder} is an adapter of {adapter.get('base_model_name_or_path')}", hint=hint)
    if files:
        return
    other_weights = {"*.onnx": "ONNX", "*.xml": "OpenVINO", "*.h5": "TensorFlow", "*.msgpack": "Flax"}
    others = [word for pattern, word in other_weights.items() if any(folder.rglob(pattern))]
    has = f"weights of {' and '.join(others)} alone" if others else "no weights"
    hint = "save the model with PyTorch: `save_pretrained(FOLDER)` writes model.safetensors"
    raise JobkitError(f"{folder} has {has}, not those of PyTorch (*.safetensors, *.bin)", hint=hint)


def _refuse_code(folder: Path, whole: Path, modules: Modules, config: Json, *, trusted: bool) -> None:
    """Refuse a model that needs Python code that is not trusted, or that a job would not have."""
    needed = [module["type"] for module in modules if not module["type"].startswith(LIBRARY)]
    dense = [
        read_json(folder / one["path"] / "config.json") for one in modules if one["type"].endswith(".Dense")
    ]
    activations = [one.get("activation_function", "torch.") for one in dense]
    needed += [name for name in activations if not name.startswith("torch.")]
    type_ = str(config.get("model_type") or "-").replace("-", "_")
    spec = importlib.util.find_spec("transformers")  # it may have a class for this type
    native = spec and spec.origin and Path(spec.origin).with_name("models").joinpath(type_).is_dir()
    of_config = [str(name) for name in config.get("auto_map", {}).values() if trusted or not native]
    for name in of_config:
        if not (whole / f"{name.partition('.')[0]}.py").is_file():
            hint = "copy it next to config.json, and delete there what stands before `--`"
            raise JobkitError(f"{whole} needs Python code that is not in it: {name}", hint=hint)
    if (needed := needed + of_config) and not trusted:
        message = f"{folder} needs Python code that comes with it: {needed[0]}"
        raise JobkitError(message, hint="read it; to run it, set `model.trust_remote_code: true`")


def _refuse_lengths(workload: str, folder: Path, config: Json, tokens: Json) -> None:
    """Refuse a model that names no largest number of tokens, or more than it has positions."""
    positions = config.get("max_position_embeddings") or config.get("n_positions") or 0
    if not isinstance(positions, int):
        raise TypeError(f"{positions!r} is no number of positions")
    named = [(TOKENIZER, "model_max_length", tokens.get("model_max_length"))]
    limits = ("max_seq_length", "model_max_length", "max_length")
    if workload == EMBEDDER:
        settings = read_json(folder / OF_TEXT)
        parts = [settings, settings.get("processor_kwargs"), settings.get("tokenizer_args")]
        parts += (settings.get("processing_kwargs") or {}).values()
        named += [(OF_TEXT, key, part.get(key)) for part in parts if part for key in limits]
    for one in named:
        _refuse_number(*one, 3)  # two special tokens, and one more
    file, key, value = next((one for one in reversed(named) if one[2] is not None), named[0])
    most = value or NO_LIMIT + 1
    if workload == EMBEDDER and file == TOKENIZER and positions > 0:
        most = min(most, positions)
    kind = config.get("model_type")
    # Model types whose configuration names no number of positions
    relative = ("t5", "mt5", "umt5", "longt5", "xlnet")
    if workload == TAGGER and kind in relative and most > NO_LIMIT and positions <= 0:
        raise unlimited(folder)
    from_zero = ("bert", "distilbert", "electra", "albert", "gpt2", "deberta", "nystromformer")
    # Model types with a table of positions: from 0, or from the number after that of the padding token
    after_padding = ("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "longformer")
    if kind in (*from_zero, *after_padding):
        padding = 1 if kind == "mpnet" else config.get("pad_token_id") or 0  # that of mpnet is fixed
        usable = positions - (padding + 1 if kind in after_padding else 0)
        if NO_LIMIT >= most > usable > 0:
            hint = f'write "{key}": {usable} into its {file}'
            raise JobkitError(f"{folder} takes {most:,} tokens, and has positions for {usable:,}", hint=hint)
