from __future__ import annotations

import json
import re
from dataclasses import fields, replace

import pytest

from jobkit.answers.loads import NONE, PUNCTUATION, TOKENIZER
from jobkit.core.blocks import as_text
from jobkit.core.units import GIB
from jobkit.extensions.preflight import Item, PaddedSize, Preflight, SettingLoad, as_json, blocks
from jobkit.worker.workloads.base import CHARACTERS

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


def test_json_has_every_field_with_its_number_whole() -> None:
    told = json.loads(as_json(FOUND))
    assert set(told) == {"schema", *(field.name for field in fields(Preflight))}
    assert told["sizes"][1]["gpu_bytes"] == int(1.5 * GIB)
    assert set(told["sizes"][1]) == {field.name for field in fields(PaddedSize)}


def without_gpu(found: Preflight) -> Preflight:
    return replace(found, sizes=tuple(replace(size, gpu_bytes=None) for size in found.sizes))


def test_an_estimate_says_so() -> None:
    assert "ESTIMATED from punctuation" in as_text(blocks(replace(FOUND, source=PUNCTUATION)))


def test_a_workload_without_lengths_says_what_that_costs() -> None:
    sizes = tuple(replace(size, efficiency=None, efficiency_sorted=None) for size in FOUND.sizes)
    found = without_gpu(replace(FOUND, source=NONE, unit="paragraphs", items=None, longest=(), sizes=sizes))
    page = as_text(blocks(found))
    assert "This workload reports no lengths" in page
    assert "%" not in page
    assert "load: the most paragraphs of a batch" in page


def test_a_text_of_one_item_a_paragraph_speaks_of_paragraphs() -> None:
    page = as_text(blocks(replace(FOUND, items=881)))
    assert "\n881 paragraphs, 164,138 characters\n" in page
    assert "This one 941-character paragraph sets" in page
    assert "  941  paragraph 176: The" in page


def test_other_knobs_have_a_list() -> None:
    settings = (
        SettingLoad(params={"batch_size": 50, "tokenizer_batch": 8}, load=47_050, batches=1, efficiency=None),
        SettingLoad(params={}, load=30_112, batches=70, efficiency=0.5),
        SettingLoad(
            params={"padded_chars": 900, "order": "sorted"}, load=941, batches=9, efficiency=1, alone=1
        ),
    )
    page = as_text(blocks(replace(FOUND, settings=settings)))
    assert "  batch_size 50, tokenizer_batch 8: 1 batch, load 47,050\n" in page
    assert "  the workload as it comes: 70 batches, load 30,112, 50.0 % of the padded" in page
    assert "  padded_chars 900, order sorted: 9 batches, load 941," in page
    assert "    longer than that, so a batch each: paragraph 176, sentence 0 (941)\n" in page


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
