"""A folder that a workload cannot use is refused before a job, with what it is and what to do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.records import ModelRef
from jobkit.planning import models
from jobkit.worker.workloads.model import fingerprint

EMBEDDER, TAGGER = "sentence-embedding", "hf-token-classification"
BERT = {"architectures": ["BertModel"], "model_type": "bert", "max_position_embeddings": 512}
WHOLE = {"config.json": BERT, "model.safetensors": "", "tokenizer.json": {}}
TAGS = {**BERT, "architectures": ["BertForTokenClassification"]}
BASE = "sentence_transformers.models."
KIND = "config_sentence_transformers.json"
Files = dict[str, Any]


def modules(*kinds: str, path: str = "") -> list[dict[str, str]]:
    return [
        {"type": kind, "path": f"{at}_{kind.rpartition('.')[2]}" if at else path, "name": str(at)}
        for at, kind in enumerate(kinds)
    ]


POOLING = "1_Pooling/config.json"
SAVED: Files = {
    **WHOLE,
    "modules.json": modules(f"{BASE}Transformer", f"{BASE}Pooling"),
    POOLING: {"word_embedding_dimension": 8, "pooling_mode_cls_token": True},
}


def found(workload: str, folder: Path, files: Files, **model: object) -> ModelRef:
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(data))
    return models.find(workload, {"path": str(folder), **model}, folder, folder)


@pytest.mark.parametrize(
    ("files", "kind"),
    [(WHOLE, "BertModel"), ({**SAVED, KIND: {"model_type": "CrossEncoder"}}, "CrossEncoder")],
)
def test_what_was_not_saved_as_an_embedder_is_one_with_a_pooling(
    files: Files, kind: str, tmp_path: Path
) -> None:
    with pytest.raises(JobkitError, match=f"not saved as a sentence embedder: it is {kind}") as caught:
        found(EMBEDDER, tmp_path, files)
    assert "model.pooling: mean" in caught.value.hint
    pooled = found(EMBEDDER, tmp_path, files, pooling="mean")
    assert pooled.options == {"pooling": "mean"}
    assert pooled.title == f"{tmp_path.name}, pooling 'mean'"
    assert pooled.fingerprint != found(EMBEDDER, tmp_path, files, pooling="cls").fingerprint


SHARDS = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
SHARDED = {"model-1.safetensors": "", "model.safetensors.index.json": SHARDS}
OWN = {**BERT, "model_type": "new", "auto_map": {"AutoModel": "modeling.New"}}
ROBERTA = {**BERT, "model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}
SETTINGS = "sentence_bert_config.json"
DENSE: Files = {
    **SAVED,
    "modules.json": modules(f"{BASE}Transformer", f"{BASE}Dense"),
    "1_Dense/config.json": {},
}
OWN_DENSE = {"1_Dense/config.json": {"activation_function": "mine.F"}, "1_Dense/model.safetensors": ""}
ADAPTER = {"adapter_config.json": {"base_model_name_or_path": "a/b"}}


def tags(**config: object) -> Files:
    return {**WHOLE, "config.json": {**TAGS, **config}}


def built_of(*kinds: str, path: str = "") -> Files:
    return {"modules.json": modules(*(f"{BASE}{kind}" for kind in kinds), path=path)}


REFUSED: list[tuple[str, Files, str, str]] = [
    (EMBEDDER, built_of("BoW", path="0_BoW"), "begins with the module BoW", "function"),
    (EMBEDDER, built_of("Router"), "begins with the module Router", "function"),
    (EMBEDDER, {**SAVED, "modules.json": modules("mine.T")}, "Python code .*: mine.T", "trust_remote_code"),
    (EMBEDDER, {**SAVED, "config.json": OWN, "modeling.py": ""}, "code .*: modeling.New", "trust_remote"),
    (TAGGER, {**WHOLE, "config.json": BERT}, "not saved for token classification: it is BertModel", "head"),
    (TAGGER, {"config.json": TAGS, "onnx/model.onnx": ""}, "weights of ONNX alone", "save_pretrained"),
    (TAGGER, {"config.json": TAGS}, "has no weights", "save_pretrained"),
    (EMBEDDER, {**SAVED, **ADAPTER}, "is an adapter of a/b", "merge_and_unload"),
    (EMBEDDER, {**SAVED, "config.json": ROBERTA}, "takes 514 tokens, .* for 512", 'length": 512'),
    (EMBEDDER, {**SAVED, SETTINGS: {"max_seq_length": 600}}, "takes 600", "max_seq_length"),
    (TAGGER, tags(model_type="t5", max_position_embeddings=None), "names no largest", "512"),
    (TAGGER, tags(max_position_embeddings="512"), "'512' is no number of positions", "JSON files"),
    (TAGGER, {**WHOLE, "config.json": []}, "not as a library saves a model", "JSON files"),
    (TAGGER, tags(id2label={"0": "O", "2": "B-X"}), "does not name each label", "JSON files"),
    (TAGGER, {"config.json": TAGS, "model.safetensors": ""}, "no vocabulary of a token", "save_pretrained"),
    (TAGGER, {"config.json": TAGS, **SHARDED}, r"model-2\.safetensors is missing", "copy all files"),
]
# of an embedder whose other files are as the library saves them
REFUSED += [
    (EMBEDDER, {**SAVED, **files}, message, "")
    for files, message in (
        ({POOLING: {"whitens": True}}, "1_Pooling/config.json: Pooling has no setting 'whitens'"),
        ({SETTINGS: {"drops": 1}}, f"{SETTINGS}: Transformer has no setting 'drops'"),
        ({KIND: {"default_prompt_name": "nix"}}, "no prompt for its default_prompt_name 'nix'"),
        ({KIND: {"prompts": None}}, "is not as a library saves a model"),
        ({KIND: {"truncate_dim": 0}}, "truncate_dim is 0, not a whole number from 1 on"),
        ({SETTINGS: {"max_seq_length": "128"}}, "max_seq_length is '128', not a whole number from 3 on"),
        ({SETTINGS: {"processing_kwargs": {"text": {"max_length": 600}}}}, "takes 600 tokens, and has"),
        ({SETTINGS: {"processor_kwargs": {"model_max_length": 600}}}, "takes 600 tokens, and has"),
        (built_of("Transformer", path="../x"), r"in '\.\./x' is hidden, or outside"),
        (built_of("Transformer", "Pooling", "Pooling"), "2_Pooling/config.json is missing"),
        (built_of("Transformer", "LayerNorm"), "1_LayerNorm has no weights"),
        (DENSE, "1_Dense has no weights"),
        (DENSE | OWN_DENSE, "needs Python code that comes with it: mine.F"),
        ({"config.json": OWN}, "needs Python code that is not in it: modeling.New"),
    )
]


@pytest.mark.parametrize(("workload", "files", "message", "hint"), REFUSED)
def test_a_folder_is_refused_by_what_it_is(
    workload: str, files: Files, message: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(JobkitError, match=message) as caught:
        found(workload, tmp_path, files)
    assert hint in caught.value.hint


def test_a_file_that_cannot_be_read_is_not_taken_for_another_kind(tmp_path: Path) -> None:
    found(TAGGER, tmp_path, {**WHOLE, "config.json": TAGS})
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(JobkitError, match=r"model\.safetensors is a pointer of Git LFS"):
        found(TAGGER, tmp_path, {})
    (tmp_path / "config.json").write_text('\ufeff{"architectures": ["BertForTokenClassification"]}')
    for workload in (TAGGER, EMBEDDER):
        with pytest.raises(JobkitError, match=r"config\.json cannot be read as JSON: .*BOM"):
            found(workload, tmp_path, {"modules.json": []})


def test_a_key_that_a_workload_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobkitError, match=f"pooling is not for {TAGGER}"):
        found(TAGGER, tmp_path, {**WHOLE, "config.json": TAGS}, pooling="mean")
    with pytest.raises(JobkitError, match="trust_remote_code is not for spacy-ner"):
        found("spacy-ner", tmp_path, {"config.cfg": "", "meta.json": {}}, trust_remote_code=True)
    with pytest.raises(JobkitError, match="has a pooling of its own"):
        found(EMBEDDER, tmp_path, SAVED, pooling="mean")
    asked = {"pooling": "cls", "fallback": "stand-in"}
    with pytest.raises(JobkitError, match="a stand-in has a pooling of its own"):
        models.find(EMBEDDER, {**asked, "size": "tiny"}, tmp_path, tmp_path)
    with pytest.raises(JobkitError, match="pooling is not for stanza-ner"):
        models.find("stanza-ner", asked, tmp_path, tmp_path)


def test_a_prompt_is_a_text_or_the_name_of_one(tmp_path: Path) -> None:
    saved = {**SAVED, KIND: {"prompts": {"query": "", "passage": "of a book: "}}}
    model = found(EMBEDDER, tmp_path, saved)
    for prompt in ("检索:", "query:", "passage", ""):
        named = models.with_prompt(EMBEDDER, model, prompt)
        assert named
        assert named.options == {"prompt": prompt}
        assert fingerprint(tmp_path, "", named.kind, named.options) == named.fingerprint, "as a job finds it"
    assert models.with_prompt(EMBEDDER, replace(model, stand_in=True), "query"), "it has no prompts"
    for prompt, said in {"pasage": "no prompt of .* has passage", "query": "'query' of .* is empty"}.items():
        with pytest.raises(JobkitError, match=said):
            models.with_prompt(EMBEDDER, model, prompt)


def test_what_the_library_takes_is_taken(tmp_path: Path) -> None:
    odd: Files = {
        KIND: {"default_prompt_name": "query", "truncate_dim": 10_000, "__version__": {"transformers": "99"}},
        "tokenizer_config.json": {"model_max_length": 1e30},
        SETTINGS: {"max_seq_length": None, "do_lower_case": False},
    }
    inside = {f"0_Transformer/{name}": data for name, data in WHOLE.items()}
    static = {**built_of("StaticEmbedding"), "model.safetensors": "", "tokenizer.json": {}}
    of_bytes = {"tokenizer_config.json": {"tokenizer_class": "ByT5Tokenizer"}, "model.safetensors": ""}
    layouts: list[tuple[str, Files, dict[str, object]]] = [
        (EMBEDDER, {**SAVED, **odd}, {}),
        (EMBEDDER, static, {}),
        (EMBEDDER, {**built_of("Transformer", path="0_Transformer"), **inside}, {}),
        (EMBEDDER, {**SAVED, "modules.json": modules("mine.T")}, {"trust_remote_code": True}),
        (TAGGER, tags(), {}),
        (TAGGER, {"config.json": TAGS, **of_bytes}, {}),
    ]
    for number, (workload, files, keys) in enumerate(layouts):
        (tmp_path / str(number)).mkdir()
        assert found(workload, tmp_path / str(number), files, **keys).options == keys
