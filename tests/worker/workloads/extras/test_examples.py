"""The models of one's own in docs/workloads.md, as functions with budgets, on small random models."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobkit.core.paragraphs import split_paragraphs
from jobkit.core.records import ModelRef
from jobkit.planning import models
from jobkit.planning.sample import sample_text
from jobkit.worker.workloads import own
from jobkit.worker.workloads.base import vectors_of
from tests.pages.test_docs import page
from tests.support.tiny_models import TAGGERS, save

pytestmark = [pytest.mark.xdist_group("torch"), pytest.mark.slow]
TEXT = split_paragraphs(sample_text(40))
BUDGET, CALL = 600, 20
REFERENCE: dict[str, Any] = {"name": "", "size": "", "stand_in": False, "fingerprint": "", "size_bytes": 0}


def example(name: str, folder: Path) -> str:
    """Write the example that imports a name into a file; return the folder."""
    found = re.findall(r"```python\n(.*?)```", page("workloads.md"), re.DOTALL)
    imports = re.compile(rf"^(from|import) .*\b{name}\b", re.MULTILINE)
    [source] = [one for one in found if imports.search(one)]
    assert len([line for line in source.splitlines() if line]) <= 20
    (folder / "mine.py").write_text(source, encoding="utf-8")
    return str(folder)


def budgeted(function: str, folder: str, model: Path) -> tuple[Any, Any]:
    """Return the results of a call as one batch, and under a budget, sorted by lengths."""
    results = []
    cut: dict[str, int | str] = {"padded": BUDGET, "paragraphs_per_call": CALL, "order": "sorted"}
    whole: dict[str, int | str] = {"batch_size": CALL}
    for params in (whole, cut):
        workload = own.open_workload(f"mine.py:{function}", folder)
        workload.load(model, "cpu", params, 1)
        results.append(workload.process(TEXT[:CALL]))
    return results[0], results[1]


def test_a_pipeline_of_spacy_is_counted_without_padding(tmp_path: Path, kept_cache: Path) -> None:
    pytest.importorskip("spacy")
    described = models.stand_in("spacy-ner", "tiny", kept_cache)
    model = Path(models.build("spacy-ner", described, kept_cache, say=print).path)
    folder = example("spacy", tmp_path)
    whole, cut = budgeted("tag", folder, model)
    assert whole.entities == cut.entities
    assert own.traits("mine.py:tag", folder, say=print)[4:6] == ("tokens", False)
    assert cut.load <= BUDGET


def with_example(name: str, head: str, folder: Path, **more: Any) -> tuple[Any, Any]:
    """Return a model of sentence_transformers, of random weights, and the example that has it."""
    library = pytest.importorskip("sentence_transformers")
    save(TAGGERS["bert"], head, folder / "network", more)
    made = getattr(library, name)(str(folder / "network"), device="cpu", local_files_only=True)
    made.save_pretrained(str(folder / "model"))
    function = f"mine.py:{'score' if more else 'embed'}"
    workload: Any = own.open_workload(function, example(name, folder), queries=str(folder / "queries.txt"))
    workload.load(folder / "model", "cpu", {"batch_size": 4}, 1)
    return made, workload


@pytest.mark.parametrize(
    ("name", "head", "types"),
    [("MultiVectorEncoder", "Model", ""), ("SparseEncoder", "ForMaskedLM", "int64[*] fp32[*]")],
)
def test_arrays_are_those_that_the_library_finds_for_a_paragraph(
    name: str, head: str, types: str, tmp_path: Path
) -> None:
    library, workload = with_example(name, head, tmp_path)
    result = workload.process(TEXT[:6])
    assert not types or vectors_of(result, 6) == types
    assert f"`arrays {types}" in page("workloads.md")
    for paragraph, arrays in zip(TEXT, result.vectors.split(), strict=False):
        alone = library.encode_document([paragraph])[0]
        if types:
            dense = np.zeros(len(alone), np.float32)
            dense[arrays[0]] = arrays[1]
            np.testing.assert_allclose(dense, alone.to_dense().numpy(), atol=1e-4)
        else:
            np.testing.assert_allclose(arrays[0], alone.numpy(), atol=1e-4)


def test_a_reranker_scores_each_query_with_each_paragraph(tmp_path: Path) -> None:
    queries = ["Who was there?", "What did the doctor say?", "A ship"]
    (tmp_path / "queries.txt").write_text("\n\n".join(queries), encoding="utf-8")
    library, workload = with_example("CrossEncoder", "ForSequenceClassification", tmp_path, num_labels=1)
    found = workload.process(TEXT[:5])
    assert [row[:2] for row in found.rows] == [(at, query) for at in range(5) for query in queries]
    pairs = [(query, text) for text in TEXT[:5] for query in queries]
    alone = [float(library.predict([pair])[0]) for pair in pairs]
    assert [row[2] for row in found.rows] == pytest.approx(alone, abs=1e-4)
    rows = workload.lengths(TEXT[:5], ModelRef(**REFERENCE, path=str(tmp_path / "model")))
    assert [*map(len, rows)] == [3] * 5
    assert workload.load_of(TEXT[:5]) == max(
        len(some) * max(some)
        for flat in [[one for row in rows for one in row]]
        for some in [flat[at : at + 4] for at in range(0, 15, 4)]
    )


GLINER = """
import sys

import torch
from gliner import GLiNER, GLiNERConfig
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from jobkit.core.paragraphs import split_paragraphs
from jobkit.planning.sample import sample_text

out = sys.argv[1]
special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
words = Tokenizer(models.WordPiece(unk_token="[UNK]"))
words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=special)
words.train_from_iterator([sample_text(50)], trainer)
ends = [("[CLS]", 2), ("[SEP]", 3)]
words.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
names = dict(zip(["pad_token", "unk_token", "cls_token", "sep_token"], special))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **names)
tokenizer.save_pretrained(out + "/encoder")
sizes = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(out + "/encoder")
config = GLiNERConfig(model_name=out + "/encoder", hidden_size=32, max_len=384, max_width=4, name="random")
for seed in range(50):  # with some random weights no word is a name
    torch.manual_seed(seed)
    model = GLiNER.from_config(config)
    if any(model.inference(split_paragraphs(sample_text(12)), ["person", "place"])):
        break
model.save_pretrained(out + "/model")
"""


@pytest.mark.installs
@pytest.mark.long
def test_gliner_tags_in_an_environment_of_its_own(tmp_path: Path) -> None:
    """The packages of this Python are there too; pip adds GLiNER, and an older transformers."""
    example("gliner", tmp_path)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "ner"], check=True)
    [site] = (tmp_path / "ner").glob("lib/python*/site-packages")
    (site / "here.pth").write_text("\n".join(one for one in sys.path if one) + "\n")
    python = str(tmp_path / "ner" / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, "gliner"], check=True, timeout=500)
    subprocess.run([python, "-c", GLINER, str(tmp_path)], check=True, timeout=300)
    (tmp_path / "spec.yaml").write_text(
        f"name: ner\nworkload: ./mine.py:tag\ntext: sample:12\nmodel: {{path: {tmp_path}/model}}\n"
        "sweep: {batch_size: [3, 6]}\nrepeats: 1\nscheduler: local\n"
        f"resources: {{gpus: 0, memory: 4GiB, walltime: 10m}}\nenvironment: {{venv: {tmp_path}/ner}}\n"
    )
    sweep = [sys.executable, "-m", "jobkit", "sweep", "spec.yaml"]
    done = subprocess.run(sweep, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "padded words" in next(tmp_path.glob("runs/*/lengths.json")).read_text()
    written = [one.read_text() for one in sorted(tmp_path.glob("runs/*/results/*/try-1/entities.tsv"))]
    assert written[0] == written[1]
    rows = [*csv.DictReader(io.StringIO(written[0], newline=""), dialect="excel-tab")]
    paragraphs = split_paragraphs(sample_text(12))
    assert rows
    for row in rows:
        assert paragraphs[int(row["paragraph"])][int(row["start"]) : int(row["end"])] == row["text"]
