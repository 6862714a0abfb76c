"""The models of one's own in docs/workloads.md, as functions with budgets, on small random models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from jobkit.answers.loads import Lengths, Loads
from jobkit.core.paragraphs import split_paragraphs
from jobkit.core.records import ModelRef
from jobkit.planning import models
from jobkit.planning.sample import sample_text
from jobkit.worker.workloads import own
from tests.pages.test_docs import page, section

pytestmark = [pytest.mark.xdist_group("torch"), pytest.mark.slow]
TEXT = split_paragraphs(sample_text(40))
BUDGET, CALL = 600, 20


def example(name: str, folder: Path) -> str:
    """Write the example that imports a package into a file; return the folder."""
    found = re.findall(
        r"```python\n(.*?)```", section(page("workloads.md"), "A model of your own"), re.DOTALL
    )
    [source] = [one for one in found if re.search(rf"^(from|import) {name}\b", one, re.MULTILINE)]
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


def test_a_modernbert_of_ones_own_gives_vectors_in_batches_of_a_budget(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = sorted({word for text in TEXT for word in re.findall(r"\w+|[^\w\s]", text)})
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: at for at, word in enumerate(["[PAD]", "[UNK]", *words])}, "[UNK]")
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    words_of = {"pad_token": "[PAD]", "unk_token": "[UNK]", "model_max_length": 128}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **words_of)
    fast.save_pretrained(tmp_path / "model")
    config = transformers.ModernBertConfig(
        vocab_size=len(words) + 2,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0),
    )
    transformers.ModernBertModel(config).save_pretrained(tmp_path / "model")
    folder = example("transformers", tmp_path)
    whole, cut = budgeted("embed", folder, tmp_path / "model")
    assert whole.vectors.shape == (CALL, 32)
    assert cut.vectors == pytest.approx(whole.vectors, abs=1e-5)
    ref = ModelRef(path=f"{tmp_path}/model", name="", size="", stand_in=False, fingerprint="", size_bytes=0)
    rows: Any = own.checked_class("mine.py:embed", folder)
    lengths = Lengths(paragraphs=tuple(map(tuple, rows.lengths(TEXT[:CALL], ref))))
    assert whole.load == Loads(lengths).own(CALL) > BUDGET
    assert cut.load == Loads(lengths, by_length=True).under_budget(BUDGET, CALL).load <= BUDGET
    assert own.traits("mine.py:embed", folder, say=print)[4] == "padded tokens"


def test_a_pipeline_of_spacy_is_counted_without_padding(tmp_path: Path, kept_cache: Path) -> None:
    pytest.importorskip("spacy")
    described = models.stand_in("spacy-ner", "tiny", kept_cache)
    model = Path(models.build("spacy-ner", described, kept_cache, say=print).path)
    folder = example("spacy", tmp_path)
    whole, cut = budgeted("tag", folder, model)
    assert whole.entities == cut.entities
    assert own.traits("mine.py:tag", folder, say=print)[4:6] == ("tokens", False)
    assert cut.load <= BUDGET
