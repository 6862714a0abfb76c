"""What a text tells before anything runs, and the page that shows it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.answers.loads import NONE, PUNCTUATION, TOKENIZER, Loads
from jobkit.core.blocks import as_text
from jobkit.core.paths import CACHE_VARIABLE, cache_dir
from jobkit.core.records import ModelRef
from jobkit.core.units import GIB
from jobkit.extensions.preflight import Item, PaddedSize, Preflight, SettingLoad, blocks, longest, preflight
from jobkit.planning.texts import find_text, text_lengths
from jobkit.worker.workloads.base import CHARACTERS
from tests.support.builders import own_workload

SPEC = "name: t\nworkload: count\ntext: text.txt\nsweep: {batch_size: [3, 200]}\nresources: {gpus: 0}\n"
RECORDS = Path(__file__).parents[2] / "benchmarks" / "records" / "gpu"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """Return the spec of a text of 100 paragraphs, the 8th of which is long."""
    paragraphs = ["word " * (500 if n == 7 else 9 + n % 5) for n in range(100)]
    (tmp_path / "text.txt").write_text("\n\n".join(paragraphs), encoding="utf-8")
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return path


@pytest.fixture
def kept(kept_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the command find the tiny stand-in that the tests share."""
    monkeypatch.setenv(CACHE_VARIABLE, str(kept_cache))
    return kept_cache


def test_what_the_text_tells(spec: Path) -> None:
    found = preflight(spec)
    assert (found.source, found.paragraphs, found.items, found.model) == (TOKENIZER, 100, 100, None)
    first = found.longest[0]
    assert (first.length, first.paragraph, first.item) == (2_501, 7, 0)
    assert first.beginning.startswith("word word ")
    by_size = {size.batch_size: size for size in found.sizes}
    assert {1, 2, 3, 5, 10, 20, 50, 100, 200} | set(found.measure) == set(by_size)
    assert by_size[100].load == by_size[200].load == found.saturation_load == 100 * 2_501
    assert (found.saturation, found.limit) == (100, 100)
    assert [size for size, one in by_size.items() if one.in_spec] == [3, 200]
    assert [size for size, one in by_size.items() if one.to_measure] == list(found.measure)
    assert by_size[3].first_paragraph == 6
    assert by_size[1].efficiency == 1
    assert all(size.gpu_bytes is None for size in found.sizes)


def test_auto_is_what_is_worth_measuring(spec: Path) -> None:
    found = preflight(spec, ("sweep.batch_size=auto",))
    assert len(found.measure) == 5
    assert [setting.params["batch_size"] for setting in found.settings] == list(found.measure)
    assert all(size.in_spec == size.to_measure for size in found.sizes)


def test_without_lengths_the_batch_size_is_the_load(spec: Path) -> None:
    found = preflight(spec, (f"workload={own_workload(spec.parent, 'lengths = None')}",))
    assert (found.source, found.items, found.longest) == (NONE, None, ())
    assert all(size.load == min(size.batch_size, 100) for size in found.sizes)
    assert found.sizes[0].efficiency is None


def test_in_haste_no_model_is_touched(spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    model = ("workload=stanza-ner", "model={size: full, fallback: stand-in}", "text=sample:50")
    found = preflight(spec, model, fast=True, gpu_memory_bytes=8 * GIB)
    assert (found.source, found.model, found.stand_in) == (PUNCTUATION, "en full", True)
    assert not (tmp_path / "cache" / "models").exists()
    assert found.gpu_memory_named
    sizes = [size.gpu_bytes for size in found.sizes]
    assert sizes == sorted(size for size in sizes if size is not None)
    assert preflight(spec, model, fast=True).gpu_memory_bytes is None  # on a CPU there is no card
    on_gpu = preflight(spec, (*model, "device=cuda"), fast=True)
    assert (on_gpu.gpu_memory_bytes, on_gpu.gpu_memory_named) == (24 * GIB, False)


def test_the_loads_are_those_of_the_records_of_a_gpu(kept: Path, tiny_model: ModelRef) -> None:
    """The full-size stand-in has a tokenizer of its own; the largest loads come out the same."""
    text = find_text("sample", base=kept, cache=kept)
    loads = Loads(text_lengths("stanza-ner", text, tiny_model, cache=cache_dir(), say=print))
    records = [json.loads(path.read_text()) for path in RECORDS.glob("*/results/*/*/record.json")]
    assert len(records) > 20
    for record in records:
        assert loads.own(record["point"]["params"]["batch_size"]) == record["summary"]["load_max"]


def test_other_knobs_have_their_loads_reported(spec: Path) -> None:
    sweep = "sweep={paragraphs_per_call: [10, 50], sentences_per_ner_batch: 20}"
    model = ("workload=stanza-ner", "model={size: full, fallback: stand-in}", "text=sample:60")
    found = preflight(spec, (sweep, *model), fast=True)
    assert [setting.params for setting in found.settings] == [
        {"paragraphs_per_call": size, "sentences_per_ner_batch": 20} for size in (10, 50)
    ]
    assert not any(size.in_spec for size in found.sizes)


def test_the_longest_are_named_by_place_and_beginning() -> None:
    paragraphs = ["Hm. This is a longer one, as they go. It ends.\n", "One sentence only.\n"]
    assert [
        (one.length, one.paragraph, one.item, one.beginning)
        for one in longest(paragraphs, [[4, 40, 9], [19]])
    ] == [
        (40, 0, 1, "This is a longer one, as they go. It ends."),
        (19, 1, 0, "One sentence only."),
        (9, 0, 2, "It ends."),
    ]
    (first, *_) = longest(["Ah! Oh! " + "It was long, long ago " * 9], [[9, 200]])
    assert first.beginning.startswith(("It was long", "Oh! It was long")), "punctuation sees other sentences"
    assert first.beginning.endswith(" ...")
    assert longest(["..."], [[3]])[0].beginning == "..."
    assert longest([], []) == []


SIZE = PaddedSize(
    batch_size=50,
    load=47_050,
    own_load=47_050,
    first_paragraph=150,
    from_batch_size=50,
    efficiency=0.28,
    efficiency_sorted=0.823,
    gpu_bytes=int(1.5 * GIB),
    in_spec=True,
    to_measure=False,
)
FOUND = Preflight(
    text="sample",
    workload="stanza-ner",
    model="en full",
    stand_in=True,
    caveat="STAND-IN model",
    device="cuda",
    source=TOKENIZER,
    unit=CHARACTERS,
    paragraphs=881,
    items=2_121,
    characters=164_138,
    longest=(
        Item(length=941, paragraph=176, item=0, beginning="The clerks laughed, ..."),
        Item(length=535, paragraph=319, item=2, beginning="Nobody found the gull"),
    ),
    saturation=2_121,
    saturation_load=1_995_861,
    limit=881,
    measure=(40, 85),
    why="batch_size 40, 85: loads",
    gpu_memory_bytes=24 * GIB,
    gpu_memory_named=False,
    sizes=(replace(SIZE, batch_size=1, load=941, gpu_bytes=GIB, in_spec=False, to_measure=True), SIZE),
    settings=(SettingLoad(params={"batch_size": 50}, load=47_050, batches=43, efficiency=0.279),),
)


def test_what_a_reader_is_shown() -> None:
    page = as_text(blocks(FOUND))
    assert page.startswith(
        "stanza-ner: sample, model en full (STAND-IN model)\n881 paragraphs, 2,121 sentences, "
    )
    assert "This one 941-character sentence sets the memory" in page
    assert "; the next longest has 535:\n" in page
    assert "     535  paragraph 319, sentence 2: Nobody found the gull\n" in page
    assert re.search(r"^ +1 +941 +28\.0 +82\.3 +1\.0   >$", page, re.MULTILINE)
    assert re.search(r"^ +50  47,050 +28\.0 +82\.3 +1\.5  \*$", page, re.MULTILINE)
    assert "Past a batch size of 2,121 nothing changes: the load stays 1,995,861.\n" in page
    assert "A call holds the whole text from 881 on" in page
    assert "--set 'sweep.batch_size=[40, 85]'\n" in page


def without_gpu(found: Preflight) -> Preflight:
    return replace(found, sizes=tuple(replace(size, gpu_bytes=None) for size in found.sizes))


def test_a_workload_without_lengths_says_what_that_costs() -> None:
    sizes = tuple(replace(size, efficiency=None, efficiency_sorted=None) for size in FOUND.sizes)
    found = without_gpu(replace(FOUND, source=NONE, unit="paragraphs", items=None, longest=(), sizes=sizes))
    page = as_text(blocks(found))
    assert "This workload reports no lengths" in page
    assert "%" not in page
    assert "load: the most paragraphs of a batch" in page


def test_a_text_of_one_item_a_paragraph_speaks_of_paragraphs_and_other_knobs_have_a_list() -> None:
    sorted_ = {"padded_chars": 900, "order": "sorted"}
    settings = (
        SettingLoad(params={"batch_size": 50, "tokenizer_batch": 8}, load=47_050, batches=1, efficiency=None),
        SettingLoad(params={}, load=30_112, batches=70, efficiency=0.5),
        SettingLoad(params=sorted_, load=941, batches=9, efficiency=1, alone=1),
    )
    page = as_text(blocks(replace(FOUND, items=881, settings=settings)))
    assert "\n881 paragraphs, 164,138 characters\n" in page
    assert "This one 941-character paragraph sets" in page
    assert "  941  paragraph 176: The" in page
    assert "  batch_size 50, tokenizer_batch 8: 1 batch, load 47,050\n" in page
    assert "  the workload as it comes: 70 batches, load 30,112, 50.0 % of the padded" in page
    assert "  padded_chars 900, order sorted: 9 batches, load 941," in page
    assert "    longer than that, so a batch each: paragraph 176" in page


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (replace(FOUND, gpu_memory_named=True), ""),
        (replace(FOUND, device="cpu"), ""),
        (without_gpu(FOUND), "how much of your GPU"),
        (without_gpu(replace(FOUND, gpu_memory_named=True)), "--gpu-memory changes nothing"),
    ],
)
def test_what_is_not_known_of_the_card_is_reported(found: Preflight, told: str) -> None:
    page = as_text(blocks(found))
    assert told in page
    assert (told == "") == (page.splitlines()[-1].startswith("  or choose now"))


def test_without_sizes_nothing_is_offered() -> None:
    page = as_text(blocks(replace(FOUND, measure=(), saturation=881)))
    assert "or say so now" not in page
    assert "A call holds" not in page
