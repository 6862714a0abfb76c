"""The models of one's own in docs/workloads.md, as functions with budgets, on small random models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.paragraphs import split_paragraphs
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


def test_a_pipeline_of_spacy_is_counted_without_padding(tmp_path: Path, kept_cache: Path) -> None:
    pytest.importorskip("spacy")
    described = models.stand_in("spacy-ner", "tiny", kept_cache)
    model = Path(models.build("spacy-ner", described, kept_cache, say=print).path)
    folder = example("spacy", tmp_path)
    whole, cut = budgeted("tag", folder, model)
    assert whole.entities == cut.entities
    assert own.traits("mine.py:tag", folder, say=print)[4:6] == ("tokens", False)
    assert cut.load <= BUDGET
