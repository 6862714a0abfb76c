"""What the files of a saved model say, and why a workload on an encoder refuses it before a job.

It reads JSON and names of files alone: transformers and sentence-transformers are not imported.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jobkit.core.errors import JobkitError
from jobkit.worker.workloads.model import NO_LIMIT, SAVED, unlimited

EMBEDDER, TAGGER = "sentence-embedding", "hf-token-classification"
LIBRARY = "sentence_transformers."
BEGINS = ("Transformer", "StaticEmbedding", "CLIPModel")
"""The first modules of an embedder that the workload runs."""
FROM_ZERO = ("bert", "distilbert", "electra", "albert", "gpt2", "deberta", "nystromformer")
AFTER_PADDING = ("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "longformer")
"""Model types with a table of positions: from 0, or from the number after that of the padding token."""
RELATIVE = ("t5", "mt5", "umt5", "longt5", "xlnet")
"""Model types whose configuration names no number of positions."""
OTHER_WEIGHTS = {"*.onnx": "ONNX", "*.xml": "OpenVINO", "*.h5": "TensorFlow", "*.msgpack": "Flax"}
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""The names of weights in one file; with ``.index.json`` of their list of files."""
POINTER = b"version https://git-lfs"
NO_WEIGHTS = ("adapter", "training_args", "optimizer")
"""How names begin that end as those of weights."""
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
        except (AttributeError, TypeError) as error:
            message = f"{folder} is not as a library saves a model: {error}"
            raise JobkitError(message, hint="look at its JSON files, or save the model again") from error


def _refuse_unfit(workload: str, folder: Path, asked: Mapping[str, object]) -> None:
    modules: list[dict[str, str]] = read(folder / "modules.json", []) if workload == EMBEDDER else []
    kinds = [module.get("type", "") for module in modules]
    whole = folder / modules[0].get("path", "") if modules else folder
    config = read(whole / "config.json")
    [kind, *_] = config.get("architectures") or [""]
    if workload == EMBEDDER:
        of_library = read(folder / "config_sentence_transformers.json")
        saved, _ = of_library.get("model_type", SAVED), {**(of_library.get("prompts") or {})}
        if _refuse_embedder(folder, kinds, kind if saved == SAVED else saved, bool(asked.get("pooling"))):
            kinds = []
    elif kind and not kind.endswith("ForTokenClassification"):
        hint = "a model without a trained head tags at random: name one that was trained for entities"
        raise JobkitError(f"{folder} was not saved for token classification: it is {kind}", hint=hint)
    _refuse_weights(whole)
    if not asked.get("trust_remote_code"):
        _refuse_code(folder, kinds, config)
    if not (kinds and kinds[0].endswith("StaticEmbedding")):
        _refuse_lengths(workload, whole, config)


def _refuse_embedder(folder: Path, kinds: Sequence[str], kind: str, pooled: bool) -> bool:  # noqa: FBT001
    """Refuse what was not saved as a sentence embedder; return whether its modules are left out."""
    is_saved = bool(kinds) and kind not in {"CrossEncoder", "SparseEncoder", "MultiVectorEncoder"}
    if not is_saved and not pooled:
        message = f"{folder} was not saved as a sentence embedder: it is {kind or 'something else'}"
        hint = "`model.pooling: mean` is the mean of its tokens; or write a function: jobkit help workloads"
        raise JobkitError(message, hint=hint)
    if is_saved and pooled:
        raise JobkitError(f"model.pooling: {folder} has a pooling of its own", hint=NO_POOLING)
    name = kinds[0].rpartition(".")[2] if is_saved else BEGINS[0]
    if name not in BEGINS and kinds[0].startswith(LIBRARY):
        message = f"{folder} begins with the module {name}, which {EMBEDDER} does not run"
        raise JobkitError(message, hint="write a function that calls `encode`: jobkit help workloads")
    return not is_saved


def _refuse_weights(folder: Path) -> None:
    files = [path for end in ("*.safetensors", "*.bin") for path in folder.glob(end)]
    files = [path for path in files if not path.name.startswith(NO_WEIGHTS)]
    if not any((folder / name).exists() for name in WEIGHTS):
        named = [read(folder / f"{name}.index.json").get("weight_map", {}).values() for name in WEIGHTS]
        files += [folder / name for name in sorted({*(named[0] or named[1])})]
    for file in files:
        if not file.is_file():
            raise JobkitError(f"{file} is missing", hint="copy all files of the model again")
        with file.open("rb") as stream:
            if stream.read(len(POINTER)) == POINTER:
                raise JobkitError(f"{file} is a pointer of Git LFS, not the weights", hint="git lfs pull")
    if files:
        return
    if base := read(folder / "adapter_config.json").get("base_model_name_or_path"):
        hint = "load it with peft, then save `model.merge_and_unload()` as a whole model"
        raise JobkitError(f"{folder} is an adapter of {base}, and no whole model", hint=hint)
    others = [word for pattern, word in OTHER_WEIGHTS.items() if any(folder.rglob(pattern))]
    has = f"weights of {' and '.join(others)} alone" if others else "no weights"
    hint = "save the model with PyTorch: `save_pretrained(FOLDER)` writes model.safetensors"
    raise JobkitError(f"{folder} has {has}, not those of PyTorch (*.safetensors, *.bin)", hint=hint)


def _refuse_code(folder: Path, kinds: Sequence[str], config: Mapping[str, Any]) -> None:
    """Refuse a model that needs Python code of its folder: no class of transformers has its type."""
    needed = [kind for kind in kinds if not kind.startswith(LIBRARY)]
    type_ = str(config.get("model_type", "")).replace("-", "_")
    spec = importlib.util.find_spec("transformers")
    models = Path(spec.origin).with_name("models") if spec and spec.origin else Path()
    native = (models / type_ / "__init__.py").is_file()
    if config.get("auto_map") and not (type_ and native):
        needed += map(str, config["auto_map"].values())
    if needed:
        message = f"{folder} needs Python code that comes with it: {needed[0]}"
        raise JobkitError(message, hint="read it; to run it, set `model.trust_remote_code: true`")


def _refuse_lengths(workload: str, folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse a model that names no largest number of tokens, or more than it has positions."""
    positions = config.get("max_position_embeddings") or config.get("n_positions") or 0
    if not isinstance(positions, int):
        raise TypeError(f"{positions!r} is no number of positions")
    named = read(folder / "tokenizer_config.json").get("model_max_length") or NO_LIMIT + 1
    most, where = named, ("tokenizer_config.json", "model_max_length")
    if workload == EMBEDDER:
        most = min(named, positions) if positions > 0 else named
        if limit := read(folder / "sentence_bert_config.json").get("max_seq_length"):
            most, where = limit, ("sentence_bert_config.json", "max_seq_length")
    kind = config.get("model_type")
    if workload == TAGGER and kind in RELATIVE and most > NO_LIMIT and positions <= 0:
        raise unlimited(folder)
    if kind in (*FROM_ZERO, *AFTER_PADDING):
        padding = 1 if kind == "mpnet" else config.get("pad_token_id") or 0  # that of mpnet is fixed
        usable = positions - (padding + 1 if kind in AFTER_PADDING else 0)
        if NO_LIMIT >= most > usable > 0:
            hint = f'write "{where[1]}": {usable} into its {where[0]}'
            raise JobkitError(f"{folder} takes {most:,} tokens, and has positions for {usable:,}", hint=hint)


def read(path: Path, default: Any = None) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return what a JSON file holds; ``default``, or an empty mapping, if there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {} if default is None else default
    except (OSError, ValueError, RecursionError) as error:
        hint = "write it as JSON in UTF-8, or save the model again"
        raise JobkitError(f"{path} cannot be read as JSON: {error}", hint=hint) from error
