"""The encoder finds what the framework's own way finds, on texts that are hard to cut and to aggregate."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.paragraphs import split_paragraphs
from jobkit.core.records import ModelRef
from jobkit.planning import models
from jobkit.planning.sample import sample_text
from jobkit.worker.workloads.base import workload_class
from jobkit.worker.workloads.own import open_workload

pytestmark = [pytest.mark.xdist_group("torch"), pytest.mark.slow]
TAGGER, EMBEDDER = "hf-token-classification", "sentence-embedding"
PARAGRAPHS = split_paragraphs(sample_text(40))
HARD = [
    "",
    "   ",
    "\n\t ",
    "\U0001f600 Paris \U0001f600\U0001f600",
    "a",
    "Zu\u0308rich\u2014Gene\u0300ve\u2019s",
    "[SEP] Rome [CLS]",
    "x" * 3_000,
    " unhappinesses antidisestablishmentarianism",
    "\U0001d518 text",
    " ".join(PARAGRAPHS[:16]),
    " ".join(PARAGRAPHS[16:31]) + " ",
    "the tail is New York",
]
TEXT = [*HARD, *PARAGRAPHS[:12]]


@pytest.fixture(scope="module")
def tagger(kept_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the tiny tagger, one that tags nearly every token, and one without marked subwords."""
    pytest.importorskip("transformers")
    from safetensors.torch import load_file, save_file

    biased = Path(_built(TAGGER, kept_cache).path)
    folders = {"biased": biased}
    for name in ("unbiased", "unmarked"):
        folders[name] = tmp_path_factory.mktemp(name)
        for file in biased.iterdir():
            (folders[name] / file.name).write_bytes(file.read_bytes())
        weights = load_file(biased / "model.safetensors")
        weights["classifier.bias"] *= 0
        save_file(weights, folders[name] / "model.safetensors", {"format": "pt"})
    file = folders["unmarked"] / "tokenizer.json"
    data = json.loads(file.read_text())
    data["model"]["continuing_subword_prefix"] = ""
    file.write_text(json.dumps(data))
    return folders


def _built(workload: str, cache: Path) -> ModelRef:
    return models.build(workload, models.stand_in(workload, "tiny", cache), cache, say=print)


def loaded(workload: str, model: Path, **params: int | str) -> Any:
    opened = workload_class(workload)()
    opened.load(model, "cpu", {"precision": "fp32", "shortcuts": "exact", **params}, 1)
    return opened


@pytest.mark.rare
def test_a_forked_process_has_all_that_loading_and_tagging_import(tagger: dict[str, Path]) -> None:
    script = f"""
import sys
from pathlib import Path
from jobkit.worker.workloads.base import workload_class
workload = workload_class({TAGGER!r})()
workload.preload()
before = {{*sys.modules}}
workload.load(Path({str(tagger["biased"])!r}), "cpu", {{"shortcuts": "exact"}}, 1)
workload.process(["Rome"])
print(len({{*sys.modules}} - before), *{{"scipy", "sklearn"}} & {{*sys.modules}})
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < 50, "the pipeline imports 1,500 modules, and neither scipy nor sklearn"


@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
@pytest.mark.parametrize("kind", ["biased", "unbiased", "unmarked"])
@pytest.mark.parametrize("strategy", ["simple", "first", "average", "max"])
def test_the_entities_are_those_of_the_pipeline(strategy: str, kind: str, tagger: dict[str, Path]) -> None:
    opened = loaded(TAGGER, tagger[kind], aggregation=strategy, padded=3_000, paragraphs_per_call=50)
    found = opened.process(TEXT)
    assert sorted(found.entities) == sorted(opened.stock(TEXT, 4))
    assert len(found.entities) > len(TEXT)
    assert all(TEXT[one.paragraph][one.start : one.end] == one.text for one in found.entities)
    assert found.load <= 3_000
    assert opened.process(TEXT[:1]).entities == ()


def test_a_tagger_that_finds_something_else_is_refused(tagger: dict[str, Path]) -> None:
    opened = loaded(TAGGER, tagger["biased"])
    assert opened.check_shortcuts(TEXT) == ""
    assert "0 of" in opened.checked
    assert "the framework in batches of 8: 0 of" in opened.checked
    opened._pipeline = loaded(TAGGER, tagger["unbiased"])._pipeline
    assert "entities differ, F1 0." in opened.check_shortcuts(TEXT)


def test_another_precision_is_compared_with_fp32(tagger: dict[str, Path]) -> None:
    few = [*HARD[:7], *PARAGRAPHS[:8]]
    opened = loaded(TAGGER, tagger["unbiased"], precision="bf16")
    assert opened.check_shortcuts(few) == ""
    assert "; the framework in bf16: " in opened.checked
    damaged = loaded(TAGGER, tagger["unbiased"], precision="bf16")
    damaged.encoded = lambda *_: ([], 0)
    assert "entities differ" in damaged.check_shortcuts(few)
    rounding = loaded(TAGGER, tagger["unbiased"])
    whole = rounding.encoded
    rounding.encoded = lambda *call: (whole(*call)[0][1:], 0)
    said = rounding.check_shortcuts(few)
    assert said.startswith(f"{len(few) + 3} paragraphs"), "fp32 rounds alike; no token, one, special ones"
    rounding._effective["precision"] = "tf32"  # a CPU cannot multiply with it
    assert rounding.check_shortcuts(few) == ""
    assert "1 of" in rounding.checked


def test_the_vectors_are_those_of_encode_and_calls_are_prepared(
    kept_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sentence_transformers")
    monkeypatch.setattr("jobkit.worker.workloads.extras.encoder.TOGETHER", 8)
    folder = Path(_built(EMBEDDER, kept_cache).path)
    opened = loaded(EMBEDDER, folder, padded=2_000, paragraphs_per_call=50)
    assert opened.items_per_call() == 50
    first, second = tuple(TEXT), tuple(reversed(TEXT))
    opened.tag_heaviest(())
    opened.tag_heaviest(first)
    assert 0 < opened.attempted_load() <= 2_000
    opened.tokenize_ahead(first, second)
    results = [opened.process(first)]
    assert [*opened._encoder._ahead] == [second]
    opened.tokenize_ahead(second)
    results.append(opened.process(second))
    threads = threading.active_count()
    opened.tokenize_ahead()
    assert threading.active_count() < threads
    off = loaded(EMBEDDER, folder, shortcuts="off", batch_size=7).process(first)
    for vectors in (results[0].vectors, results[1].vectors[::-1]):
        assert vectors == pytest.approx(off.vectors, abs=2e-6)
    assert results[0].load <= 2_000
    assert opened.check_shortcuts(first) == ""


@pytest.fixture(scope="module")
def embedders(kept_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return embedders as LLMs are: the last token of texts that are padded on the left; and one of all else.

    A BERT counts its positions from the left end of a batch, so padding there changes what it gives.
    """
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SentenceTransformer
    from transformers import Qwen3Config, Qwen3Model

    with warnings.catch_warnings():  # of the name, which old and new versions have
        warnings.simplefilter("ignore")
        from sentence_transformers.models import LayerNorm

    bert, root = Path(_built(EMBEDDER, kept_cache).path), tmp_path_factory.mktemp("embedders")
    folders = {name: root / name for name in ("qwen", "bert", "more")}
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 2_000}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    Qwen3Model(Qwen3Config(**sizes, **heads)).save_pretrained(folders["qwen"])
    last = {"word_embedding_dimension": 64, "pooling_mode_lasttoken": True}
    for name in ("qwen", "bert"):
        kept = shutil.ignore_patterns("config.json", "*.safetensors") if name == "qwen" else None
        shutil.copytree(bert, folders[name], ignore=kept, dirs_exist_ok=True)
        (folders[name] / "1_Pooling").mkdir(exist_ok=True)
        (folders[name] / "1_Pooling" / "config.json").write_text(json.dumps(last))
        (folders[name] / "2_Normalize").mkdir(exist_ok=True)
        settings = json.loads((bert / "tokenizer_config.json").read_text()) | {"padding_side": "left"}
        (folders[name] / "tokenizer_config.json").write_text(json.dumps(settings))
    modules = [*SentenceTransformer(str(bert), device="cpu")][:2]
    prompts: Any = {"prompts": {"query": "find this: ", "passage": "of a book: "}}
    prompts |= {"default_prompt_name": "passage", "truncate_dim": 24}
    more = SentenceTransformer(modules=[*modules, LayerNorm(64)], device="cpu", **prompts)
    more.save(str(folders["more"]), create_model_card=False)
    config = folders["more"] / "config_sentence_transformers.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"truncate_dim": 24}))
    return folders


@pytest.mark.parametrize(
    ("name", "params", "prompt"),
    [
        ("qwen", {}, ""),
        ("qwen", {"prompt": "Query: "}, "Query: "),
        ("more", {}, "of a book: "),
        ("more", {"prompt": "query"}, "find this: "),
        ("more", {"prompt": ""}, ""),
    ],
)
def test_padding_prompts_and_shorter_vectors_are_those_of_encode(
    name: str, params: dict[str, str], prompt: str, embedders: dict[str, Path]
) -> None:
    from sentence_transformers import SentenceTransformer

    by_hand = SentenceTransformer(str(embedders[name]), device="cpu", local_files_only=True)
    vectors = by_hand.encode(TEXT, prompt=prompt)
    assert vectors.shape[1] == (64 if name == "qwen" else 24)
    for size in ({"padded": 600}, {"padded": 4_000}, {"batch_size": 7}):
        opened = loaded(EMBEDDER, embedders[name], **size, **params)
        assert opened.effective()["shortcuts"] == "exact"
        assert opened.process(TEXT).vectors == pytest.approx(vectors, abs=1e-5)
    assert opened.check_shortcuts(TEXT) == ""
    ref = ModelRef(path=str(embedders[name]), name="", size="", stand_in=False, fingerprint="", size_bytes=0)
    [[tokens]] = opened.lengths(["Rome"], dataclasses.replace(ref, prompt=params.get("prompt")))
    assert tokens == len(by_hand.tokenizer(f"{prompt}Rome")["input_ids"])


def test_vectors_that_depend_on_the_batch_are_refused(embedders: dict[str, Path]) -> None:
    assert "; the framework in batches of 8: " in loaded(EMBEDDER, embedders["bert"]).check_shortcuts(TEXT)


@pytest.mark.parametrize("workload", [TAGGER, EMBEDDER])
def test_without_a_precision_the_weights_have_the_type_of_the_checkpoint(
    workload: str, kept_cache: Path, tmp_path: Path
) -> None:
    pytest.importorskip("sentence_transformers")
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(_built(workload, kept_cache).path, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    halves = {name: weight.bfloat16() for name, weight in weights.items()}
    save_file(halves, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text()) | {"dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config))
    opened = open_workload(workload, None)
    opened.load(folder, "cpu", {"shortcuts": "exact"}, 1)
    opened.process(TEXT)
    assert opened.effective()["precision"] == "bf16"
    assert loaded(workload, folder).effective()["precision"] == "fp32"


def test_a_new_process_on_a_gpu_is_warmed_up_with_a_whole_call(tagger: dict[str, Path]) -> None:
    opened = loaded(TAGGER, tagger["biased"], padded=500)
    texts = sorted(PARAGRAPHS, key=len, reverse=True)
    opened.tag_heaviest(texts)
    first, opened._is_warm, opened._device = len(opened._shapes), False, "cuda"
    opened._shapes.clear()
    opened.tag_heaviest(texts)
    whole = len(opened._shapes)
    opened._shapes.clear()
    opened.tag_heaviest(texts)
    assert first == len(opened._shapes) < whole
    assert sum(rows for rows, _ in opened._shapes) < len(texts)
    opened._shapes.clear()
    opened.process(texts)
    assert len(opened._shapes) == whole


def test_with_a_budget_both_ways_keep_it(tagger: dict[str, Path]) -> None:
    for shortcuts in ("exact", "off"):
        opened = open_workload(TAGGER, None)
        params = {"padded": 600, "paragraphs_per_call": 33, "shortcuts": shortcuts, "precision": "fp32"}
        opened.load(tagger["biased"], "cpu", params, 1)
        assert opened.items_per_call() == 33
        assert opened.process([*PARAGRAPHS[:32], " ".join(PARAGRAPHS)]).load <= 600, "pieces too"
