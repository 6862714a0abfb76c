"""What is printed: the page is held to it, and each sentence to its case."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.answers.gpus import GpuKind
from jobkit.answers.speed import CorpusVolume
from jobkit.commands.results import recommend as command
from jobkit.core.blocks import as_text
from jobkit.core.records import Record
from jobkit.core.units import GIB
from jobkit.report.recommend.advice import Advice, recommend
from jobkit.report.recommend.material import RunData
from jobkit.report.recommend.output import as_json, blocks
from tests.support.builders import GPU, grid
from tests.support.recommendations import material, measured, records

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "recommend.md").read_text(encoding="utf-8")


def text(of: RunData | None = None, **wishes: Any) -> str:
    return as_text(blocks(found(of, **wishes), why=True))


def found(of: RunData | None = None, **wishes: Any) -> Advice:
    return recommend(of or material(records()), **({"gpus": ()} | wishes))


def test_paragraphs_of_another_length_are_named_beside_those_measured() -> None:
    alike, short = (CorpusVolume(name="b.txt", paragraphs=10, characters=10 * size) for size in (150, 49))
    said = "49 characters on average, those measured 193: the interval does not cover that"
    assert [said in " ".join(text(corpus=one).split()) for one in (short, alike)] == [True, False]
    assert "Of paragraphs of 193 characters on average" in text(corpus=CorpusVolume(paragraphs=10))


def words() -> list[str]:
    """Return the words of the command on the page."""
    (line,) = re.findall(r"^jobkit recommend (.*) \| head -n", PAGE, re.MULTILINE)
    return shlex.split(line)


def head(output: str) -> str:
    """Return the lines of an output that the page shows."""
    (lines,) = re.findall(r"^jobkit recommend .* \| head -n (\d+)$", PAGE, re.MULTILINE)
    return "".join(output.splitlines(keepends=True)[: int(lines)])


def shown() -> str:
    """Return what the page says that it prints."""
    (block,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(block)


def write_page() -> None:
    """Write the block of the page again; run in an environment like the test's."""
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()) as out:
        os.environ |= {f"JOBKIT_{name}": f"{folder}/{name}" for name in ("CACHE", "CONFIG", "LEDGER")}
        os.chdir(ROOT)
        command.main(words(), standalone_mode=False)
    (ROOT / "docs" / "recommend.md").write_text(PAGE.replace(shown(), head(out.getvalue())), encoding="utf-8")


def test_the_page_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("JOBKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("JOBKIT_LEDGER", str(tmp_path / "ledger.jsonl"))
    command.main(words(), standalone_mode=False)
    printed = head(capsys.readouterr().out)
    assert printed == shown(), "python -m tests.report.recommend.test_output writes it anew"


def test_the_page_has_every_key() -> None:
    told = json.loads(as_json(found()))
    assert re.findall(r"^\| `(\w+)` \| (?!\d)", PAGE.partition("## For programs")[2], re.MULTILINE) == list(
        told
    )
    of_programs = PAGE.partition("## For programs")[2]
    deep = {key for part in ("measured", "batch", "corpus", "time", "cost") for key in told[part]}
    deep |= set(told["batch"]["largest"])
    assert deep <= set(re.findall(r"`(\w+)`", of_programs))


def test_the_proof_of_workers_is_of_the_memory_of_all_of_them() -> None:
    shared = [
        replace(one, point=replace(one.point, workers=4, params={**one.point.params, "workers": 4}))
        for one in records()
    ]
    kept = found(material(shared), gpus=(), margin=0.2)
    together = int(4 * 0.8 * kept.memory.largest.capacity_bytes / 2**20)
    assert f"jobkit verify runs/demo --gpu-memory {together}MiB --stand-in" in as_text(blocks(kept))


def test_the_proof_is_of_what_was_asked() -> None:
    small = [replace(record, gpu=replace(GPU, total_bytes=4 * GIB)) for record in records()]
    kept = 4 * GIB - 719_323_136
    said = text(material(small), gpus=(), margin=0.5)
    assert f"jobkit verify runs/demo --gpu-memory {kept // 2**21}MiB --stand-in\n" in said
    card = GpuKind(name="3GiB", usable_bytes=3 * GIB)
    said = text(gpus=(card,))
    assert f"    jobkit verify runs/demo --gpu-memory {(kept - GIB) // 2**20}MiB --stand-in\n" in said
    assert "Test its largest" not in text(gpus=(card, card))


def test_what_verify_cannot_prove_is_not_sent_there() -> None:
    several = []
    for one in records():
        params = {**one.point.params, "tokenizer_batch": one.point.repeat}
        several.append(replace(one, point=replace(one.point, params=params)))
    said = text(material(several))
    assert "unproved: jobkit verify tests no sweep" in said
    safe = re.findall(r"(?:Largest safe: batch_size [\d,]+ with|With) (tokenizer_batch \d)", said)
    assert sorted(safe) == ["tokenizer_batch 1", "tokenizer_batch 2", "tokenizer_batch 3"]
    tiny = [replace(record, gpu=replace(GPU, total_bytes=2**28)) for record in records()]
    assert "jobkit verify" not in text(material(tiny))


GROWING = [measured(one, one.numbers["batch_size"]) for one in grid((40, 85, 130, 175, 220))]


def on_gpu_of(size_bytes: int, told: Sequence[Record]) -> RunData:
    return material([replace(one, gpu=replace(GPU, total_bytes=size_bytes)) for one in told])


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (on_gpu_of(3 * GIB, GROWING), "The limit is memory: larger batches than this are not safe."),
        (on_gpu_of(GIB, GROWING), "40.0 paragraphs/s (n=1), the smallest that was measured, though no"),
        (replace(material(records()), resources=None), "Take batch_size 175"),
    ],
)
def test_what_no_committed_run_shows_is_printed(of: RunData, said: str) -> None:
    shown = text(of, gpus=None)
    assert said in shown
    assert not re.search(r"None|nan|\{|\[", shown)


if __name__ == "__main__":
    write_page()
