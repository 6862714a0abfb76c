"""What a text tells before anything runs, and the page that shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobkit.answers.loads import NONE, PUNCTUATION, Loads
from jobkit.core.blocks import as_text
from jobkit.core.paths import CACHE_VARIABLE
from jobkit.core.records import ModelRef
from jobkit.core.units import GIB
from jobkit.extensions.preflight import blocks, preflight
from jobkit.planning.texts import find_text, text_lengths
from tests.support.builders import own_workload

SPEC = (
    "name: t\nworkload: count\ntext: text.txt\nscheduler: local\n"
    "sweep: {batch_size: [3, 200]}\nresources: {gpus: 0}\n"
)
MODEL = ("workload=stanza-ner", "model={size: full, fallback: stand-in}", "text=sample:60")
RECORDS = Path(__file__).parents[2] / "benchmarks" / "records" / "gpu"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """Return the spec of a text of 100 paragraphs, the 8th of which is long."""
    paragraphs = ["word " * (500 if n == 7 else 9 + n % 5) for n in range(100)]
    (tmp_path / "text.txt").write_text("\n\n".join(paragraphs), encoding="utf-8")
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return path


@pytest.mark.slow
def test_without_lengths_the_batch_size_is_the_load(spec: Path) -> None:
    found = preflight(spec, (f"workload={own_workload(spec.parent, 'lengths = None')}",))
    assert (found.source, found.items, found.longest) == (NONE, None, ())
    assert all(size.load == min(size.batch_size, 100) for size in found.sizes)
    assert found.sizes[0].efficiency is None
    assert "This workload reports no lengths" in as_text(blocks(found))


def test_in_haste_no_model_is_touched(spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    found = preflight(spec, MODEL, fast=True, gpu_memory_bytes=8 * GIB)
    assert (found.source, found.model, found.stand_in) == (PUNCTUATION, "en full", True)
    assert not (tmp_path / "cache" / "models").exists()
    assert found.gpu_memory_named
    sizes = [size.gpu_bytes for size in found.sizes]
    assert sizes == sorted(size for size in sizes if size is not None)
    assert preflight(spec, MODEL, fast=True).gpu_memory_bytes is None  # on a CPU there is no card
    on_gpu = preflight(spec, (*MODEL, "device=cuda"), fast=True)
    assert (on_gpu.gpu_memory_bytes, on_gpu.gpu_memory_named) == (24 * GIB, False)


def test_a_part_of_the_text_is_judged_alike_alone_and_next_to_others(spec: Path) -> None:
    alone = preflight(spec, ("sweep={padded: [600]}", "every=4"))
    both = preflight(spec, ("sweep={padded: [600]}", "sweep.every=[1, 4]"))
    whole, part = both.settings
    assert [one.batches for one in alone.settings] == [part.batches]
    assert part.batches < whole.batches
    assert (whole.alone, part.alone) == (1, 0)
    assert alone.longest == both.longest
    first = both.longest[0]
    assert (first.paragraph, first.beginning[:4]) == (7, "word")


def test_the_loads_are_those_of_the_records_of_a_gpu(kept_cache: Path, tiny_model: ModelRef) -> None:
    """The full-size stand-in has a tokenizer of its own; the largest loads come out the same."""
    text = find_text("sample", base=kept_cache, cache=kept_cache)
    loads = Loads(text_lengths("stanza-ner", text, tiny_model, cache=kept_cache, say=print))
    records = [json.loads(path.read_text()) for path in RECORDS.glob("*/results/*/*/record.json")]
    assert len(records) > 20
    for record in records:
        assert loads.own(record["point"]["params"]["batch_size"]) == record["summary"]["load_max"]
