"""Kinds of models and tokenizers: equal to the library by hand, or not by the encoder, with the reason.

All kinds, at every budget and batch size: ``python -m benchmarks.models``.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.models import EMBEDDER, NEAR, TAGGER, build, outcome, quiet
from jobkit.planning import models
from jobkit.worker.workloads.base import workload_class
from jobkit.worker.workloads.extras import token_counts
from jobkit.worker.workloads.extras.encoder_workloads import stride_of
from tests.support.tiny_models import TEXTS

pytestmark = [pytest.mark.xdist_group("torch"), pytest.mark.slow]


@pytest.fixture(autouse=True)
def frameworks() -> None:
    pytest.importorskip("sentence_transformers", minversion="6")
    quiet()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "state", "why"),
    [
        ("tagger longformer", "exact", ""),
        ("tagger modernbert-padding-in-json", "exact", ""),
        ("tagger roberta-split-special", "exact", ""),
        ("tagger bert-max-64", "exact", ""),
        ("tagger llama-without-pad", "exact", ""),
        ("tagger without-a", "exact", ""),
        ("tagger fnet", "off", "takes no mask"),
        ("tagger bert-old-settings", "exact", ""),
        ("tagger bert-unknown-setting", "off", "the tokenizer has a setting drops_words"),
        ("tagger bert-without-mask", "off", "BertTokenizer makes the inputs input_ids"),
        ("embedder unknown-setting", "off", "a setting whitens"),
        ("embedder processing-max-40", "exact", ""),
        ("embedder processing-no-special", "off", "processing_kwargs add_special_tokens"),
        ("embedder split-special", "exact", ""),
        ("embedder qwen3-chat", "off", "a setting chat_template"),
        ("embedder qwen3-without-pad", "exact", ""),
        ("embedder static", "off", "module StaticEmbedding"),
        ("embedder splade", "refused", "it is SparseEncoder"),
    ],
)
def test_no_kind_differs_in_silence(kind: str, state: str, why: str, tmp_path: Path) -> None:
    found, reason = outcome(*build(kind, tmp_path), quick=True)
    assert found == state, reason
    assert why in reason


@pytest.mark.parametrize("kind", ["tagger bert-padding-in-json", "embedder padding-in-json"])
@pytest.mark.parametrize("shortcuts", ["exact", "off"])
def test_a_load_finds_before_the_check_what_it_finds_after_it(
    kind: str, shortcuts: str, tmp_path: Path
) -> None:
    workload, folder = build(kind, tmp_path)
    opened: Any = workload_class(workload)()
    opened.load(folder, "cpu", {"precision": "fp32", "shortcuts": shortcuts, "batch_size": 9}, 1)
    before = opened.process(TEXTS[-9:])
    opened.check_shortcuts(TEXTS[-9:])
    after = opened.process(TEXTS[-9:])
    assert (before.load, before.entities) == (after.load, after.entities)
    assert workload == TAGGER or abs(before.vectors - after.vectors).max() < NEAR


def test_an_entity_of_no_length_is_returned_twice_as_by_the_pipeline(tmp_path: Path) -> None:
    texts = sorted(TEXTS, key=len)[:-1]
    _, folder = build("tagger roberta", tmp_path)
    opened = workload_class(TAGGER)()
    opened.load(folder, "cpu", {"precision": "fp32", "shortcuts": "exact"}, 1)
    found = opened.process(texts).entities
    assert {count for one, count in Counter(found).items() if one.start == one.end} == {1, 2}
    checked = opened.check_shortcuts(texts, texts)  # type: ignore[attr-defined] # not of the Protocol
    assert checked == ""
    opened.encoded = lambda *_: ([*dict.fromkeys(found)], 0)  # type: ignore[attr-defined]
    assert "entities differ" in opened.check_shortcuts(texts)  # type: ignore[attr-defined]


def test_the_pooling_of_the_spec_is_that_of_the_vectors(tmp_path: Path) -> None:
    import numpy as np
    import torch

    _, folder = build("embedder cross-encoder", tmp_path)
    found = models.find(EMBEDDER, {"path": str(folder), "pooling": "cls"}, tmp_path, tmp_path)
    opened = workload_class(EMBEDDER)()
    opened.load(folder, "cpu", {"precision": "fp32", "shortcuts": "exact", **found.options}, 1)
    assert opened.effective()["shortcuts"] == "exact"
    text = TEXTS[-1]
    from transformers import AutoModel, AutoTokenizer

    with torch.no_grad():
        hidden = AutoModel.from_pretrained(folder)(
            **AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
        )
    assert np.allclose(opened.process([text]).vectors[0], hidden.last_hidden_state[0, 0], atol=1e-5)


def test_code_of_a_folder_runs_if_the_spec_trusts_it(tmp_path: Path) -> None:
    _, folder = build("embedder own-code", tmp_path)
    assert json.loads((folder / "modules.json").read_text())[0]["type"] == "mine.Mine"
    found = models.find(EMBEDDER, {"path": str(folder), "trust_remote_code": True}, tmp_path, tmp_path)
    opened = workload_class(EMBEDDER)()
    opened.load(folder, "cpu", {"shortcuts": "exact", **found.options}, 1)
    assert opened.effective()["shortcuts"] == "off: the model has a module Mine"
    assert len(opened.process(TEXTS[:2]).vectors) == 2


@pytest.mark.parametrize(
    ("kind", "file", "keys"),
    [
        ("tagger bert", "", {}),
        ("tagger modernbert", "", {}),
        ("tagger roberta-split-special", "", {}),
        ("embedder mpnet", "", {}),
        ("embedder xlm-roberta", "", {}),
        ("embedder qwen3-without-pad", "", {}),
        ("embedder prompt-default", "", {}),
        ("embedder static", "", {}),
        ("tagger bert", "tokenizer_config.json", {"do_lower_case": False}),
        ("tagger bert", "tokenizer_config.json", {"tokenizer_class": None}),
        ("tagger bert", "tokenizer_config.json", {"mask_token": "[NEW]"}),
        ("tagger bert", "tokenizer.json", {"pre_tokenizer": {"type": "Whitespace"}}),
        ("tagger bert", "tokenizer.json", {"post_processor": None}),
        ("tagger roberta-split-special", "tokenizer.json", {"normalizer": {"type": "Lowercase"}}),
        ("embedder qwen3-without-pad", "tokenizer_config.json", {"add_bos_token": False}),
        ("embedder xlm-roberta", "sentence_bert_config.json", {"do_lower_case": True}),
    ],
)
def test_tokens_are_counted_without_transformers_unless_a_file_leaves_a_doubt(
    kind: str, file: str, keys: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload, folder = build(kind, tmp_path)
    if path := folder / file if file else None:
        path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | keys), encoding="utf-8")
    files = token_counts.of_tagger(folder, stride_of) if workload == TAGGER else None
    assert (token_counts.count(TEXTS, files or token_counts.of_embedder(folder, {})) is None) == bool(file)
    if not file:
        made: Any = workload_class(workload)
        model = models.find(workload, {"path": str(folder)}, Path(), folder)
        found = made.lengths(TEXTS, model)
        monkeypatch.setattr(token_counts, "count", lambda *_: None)
        assert found == made.lengths(TEXTS, model)


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("qwen3-left", {"Transformer", "Qwen3RMSNorm", "Qwen3Attention"}),
        ("modernbert", {"ModernBertAttention"}),
        ("gemma3", {"Gemma3Attention"}),
        ("xlm-roberta", set()),
    ],
)
def test_modules_run_in_another_way_only_where_they_find_the_same(
    kind: str, changed: set[str], tmp_path: Path
) -> None:
    _, folder = build(f"embedder {kind}", tmp_path)
    opened: Any = workload_class(EMBEDDER)()
    opened.load(folder, "cpu", {"precision": "fp32", "shortcuts": "exact"}, 1)
    assert {type(module).__name__ for module in opened._changed} == changed
    assert opened.check_shortcuts(TEXTS[-40:]) == ""


def test_positions_that_turn_otherwise_keep_their_steps() -> None:
    import torch
    from transformers.models.cohere import modeling_cohere as pairs
    from transformers.models.gpt_oss import modeling_gpt_oss as halves
    from transformers.models.llama import modeling_llama as usual

    from jobkit.worker.workloads.extras.encoder import fuse

    sizes = {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    attentions = [
        pairs.CohereAttention(pairs.CohereConfig(**sizes), 0),
        halves.GptOssAttention(halves.GptOssConfig(head_dim=16, **sizes), 0),
        usual.LlamaAttention(usual.LlamaConfig(**sizes), 0),
    ]
    assert fuse(torch.nn.ModuleList(attentions)) == attentions[2:]
    states, angles = torch.rand(1, 5, 32), torch.rand(1, 5, 16)
    turns = [angles.cos(), angles.sin()]
    found = attentions[2](states, turns, None)[0]
    del attentions[2].forward
    assert torch.allclose(found, attentions[2](states, turns, None)[0], atol=1e-6)


def test_a_norm_that_is_another_one_keeps_its_steps() -> None:
    import torch

    from jobkit.worker.workloads.extras.encoder import fuse

    class OwnRMSNorm(torch.nn.Module):  # type: ignore[misc]
        """As Gemma's: it multiplies by one more than its weight, which is large in one place."""

        def __init__(self) -> None:
            super().__init__()
            self.weight, self.eps = torch.nn.Parameter(torch.zeros(8, dtype=torch.bfloat16)), 1e-6
            self.weight.data[0] = 150

        def forward(self, states: Any) -> Any:
            return torch.nn.functional.rms_norm(states, (8,), 1 + self.weight, self.eps)

    norms = [
        OwnRMSNorm(),
        torch.nn.RMSNorm(8, eps=1e-6, elementwise_affine=False),
        torch.nn.RMSNorm(8, eps=1e-6),
    ]
    assert fuse(torch.nn.Sequential(*norms)) == norms[2:]
