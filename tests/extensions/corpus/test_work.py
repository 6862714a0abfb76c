"""A shard of a corpus, worked through by the worker: its rows, and what becomes of them."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobkit.core import json_codec
from jobkit.core.layout import POINTS_FILE, RECORD_FILE
from jobkit.core.records import Outcome, Point, Record
from jobkit.extensions.corpus.plan import ROWS_FILE
from jobkit.extensions.corpus.rows import PARTS_FILE
from jobkit.extensions.corpus.vectors import read_vectors
from jobkit.worker.workloads.base import Entity
from tests.support.builders import by_hand, point
from tests.support.corpora import read_shard
from tests.support.disks import disk
from tests.support.shards import read_rows, write_shards
from tests.worker.test_supervisor import batches, ended
from tests.worker.test_supervisor import restored as restored  # noqa: PLC0414 - a fixture is found by its name here

WORKLOADS = Path(__file__).parents[2] / "workloads"
SETTING = replace(
    point(params={"batch_size": 3}, device="cpu"),
    workload="count",
    model=None,
    order="sorted",
    sort_window=7,
    threads=1,
)
TOLD = replace(SETTING, workload="told:Told", workload_folder=str(WORKLOADS), order="text")
COUNTED = [f"Paragraph {n} has {'very ' * (n % 7)}few words." for n in range(50)]
DOCUMENTS = {"one.txt": "\n\n".join(COUNTED), "two.txt": "Été.\r\n\r\n\r\nA second\r\nparagraph.\r\n"}


def tried(folder: Path, of: Point, *, out: Path | None = None) -> Record:
    """Run one try of a shard and return its record."""
    out = out or folder / f"out-{len(list(folder.glob('out-*'))) + 1}"
    out.mkdir(exist_ok=True)
    return ended(by_hand(of, folder, out, run_dir=folder / "run"))


def planned(folder: Path, of: Point = SETTING, *texts: str, shards: int = 1) -> list[Point]:
    """Plan a corpus, by default `DOCUMENTS`."""
    (folder / "run").mkdir()
    documents = {"told.txt": "\n\n".join(texts)} if texts else DOCUMENTS
    return write_shards(folder / "run", documents, of, shards)


@pytest.mark.slow
def test_record_and_progress_are_those_of_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [shard] = planned(tmp_path)
    found = tried(tmp_path, shard)
    done = batches(tmp_path / "out-1")
    assert found.summary
    assert (found.summary.items, found.summary.items_total) == (52, 52)
    assert found.summary.batches == found.summary.batches_total == len(done) == 7 * 3 + 1
    assert {batch.batches_total for batch in done} == {22}
    assert {batch.characters_total for batch in done} == {sum(batch.characters for batch in done)}
    assert found.summary.work_s >= sum(batch.seconds for batch in done), "reading is part of the work"
    assert found.memory.rss_peak_bytes
    monkeypatch.setattr("jobkit.extensions.corpus.work.WINDOW_CHARACTERS", 1)
    tried(tmp_path, shard)
    assert {batch.items for batch in batches(tmp_path / "out-2")} == {1}, "long paragraphs, small windows"


@pytest.mark.slow
def test_the_rows_do_not_depend_on_how_they_are_made(tmp_path: Path) -> None:
    [shard] = planned(tmp_path)
    tried(tmp_path, shard)
    expected = (tmp_path / "out-1" / ROWS_FILE).read_bytes()
    changes: list[dict[str, Any]] = [
        {"sort_window": 1, "workers": 3, "fork": True},
        {"sort_window": None},
        {"order": "text"},
        {"order": "load", "params": {"batch_size": 50}},
    ]
    for number, change in enumerate(changes, 2):
        found = tried(tmp_path, replace(shard, **change))
        assert found.outcome is Outcome.OK, found.message
        assert (tmp_path / f"out-{number}" / ROWS_FILE).read_bytes() == expected, change
    (tmp_path / "parts").mkdir()
    for part in planned(tmp_path / "parts", shards=3):
        tried(tmp_path / "parts", part)
    assert b"".join((tmp_path / f"parts/out-{n}" / ROWS_FILE).read_bytes() for n in (1, 2, 3)) == expected


@pytest.mark.slow
def test_vectors_do_not_depend_on_how_they_are_made(tmp_path: Path) -> None:
    [shard] = planned(tmp_path, replace(SETTING, workload="tests.workloads.columns:Lengths"))
    changes: list[dict[str, Any]] = [{}, {"workers": 3}, {"order": "text", "sort_window": None}]
    for number, change in enumerate(changes, 1):
        found = tried(tmp_path, replace(shard, **change))
        assert found.outcome is Outcome.OK, found.message
        out = tmp_path / f"out-{number}"
        assert [*out.glob("part-*")] == [out / (out / ROWS_FILE).readlink()]
        vectors = np.concatenate([*read_vectors(out / "part-00001.arrow", 0, 52)])
        texts = [paragraph.text for paragraph in read_shard(tmp_path / "run", 1)]
        assert vectors[:, 0].tolist() == list(map(len, texts)), change


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("Nothing", "returned no vectors here, vectors of fp32[21] before"),
        ("Fewer", "returned 2 vectors for 3 paragraphs"),
        ("Other", "returned vectors of fp32[20] here, vectors of fp32[21] before"),
        ("Half", "returned vectors of fp16[21] here, vectors of fp32[21] before"),
        ("Outside", "returned a row of paragraph -1, counted from 0, for 3 paragraphs"),
    ],
)
def test_the_first_call_that_returns_something_else_fails_with_its_paragraph(
    tmp_path: Path, word: str, message: str
) -> None:
    setting = replace(SETTING, workload="tests.workloads.columns:Changing", order="text", sort_window=12)
    texts = [*COUNTED[:30], f"{word} from here on.", *COUNTED[31:]]
    for workers in (1, 2) if word == "Nothing" else (1,):
        (tmp_path / str(workers)).mkdir()
        [shard] = planned(tmp_path / str(workers), replace(setting, workers=workers), *texts)
        found = tried(tmp_path / str(workers), shard)
        assert found.outcome is Outcome.BUG
        assert f"document told.txt, paragraph 31: the workload {message}" in found.message
        assert not list(tmp_path.glob("*/out-1/rows.json"))


@pytest.mark.slow
def test_the_rows_of_a_workload_without_columns_are_its_entities(tmp_path: Path) -> None:
    [shard] = planned(tmp_path, replace(SETTING, workload="tests.workloads.columns:Longest"))
    assert tried(tmp_path, shard).outcome is Outcome.OK
    rows = read_rows(tmp_path / "out-1")
    assert [row["paragraph"] for row in rows] == [*range(50), 0, 1]
    for row in rows:
        given = DOCUMENTS[row["document"]]
        assert given[row["start"] : row["end"]] == row["text"]
    assert rows[-1]["text"] == "paragraph", "after lines that end as those of DOS"
    assert Entity._fields[1:] == tuple(rows[0])[2:]


# -- failures


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_corpus_that_has_changed_is_reported_and_no_rows_are_left(tmp_path: Path, workers: int) -> None:
    [shard] = planned(tmp_path, replace(SETTING, workers=workers))
    path = tmp_path / "one.txt"
    path.write_text(path.read_text().replace("Paragraph 49", "Paragraph 94"))
    found = tried(tmp_path, shard)
    assert found.outcome is Outcome.STAGE_IN
    assert re.search(r"one\.txt: bytes \d+ to \d+: changed since the corpus was planned", found.message)
    assert found.summary
    assert 0 < found.summary.items <= 40, "the pieces before it are as they were"
    assert not list((tmp_path / "out-1").glob("rows.json*"))


@pytest.mark.parametrize("gone", ["one.txt", "run/plan.jsonl"])
def test_a_corpus_or_a_plan_that_is_gone_is_reported_before_any_work(tmp_path: Path, gone: str) -> None:
    [shard] = planned(tmp_path)
    (tmp_path / gone).unlink()
    found = tried(tmp_path, shard)
    assert found.outcome is Outcome.STAGE_IN
    assert gone in found.message
    assert found.load_s is None


@pytest.mark.slow
def test_a_signal_leaves_the_windows_that_are_done_and_no_manifest(tmp_path: Path) -> None:
    [shard] = planned(tmp_path, replace(TOLD, workers=2), *COUNTED[:20], "Term.", "Wait.", "Wait.")
    found = tried(tmp_path, shard)
    assert (found.outcome, found.signal, found.provisional) == (Outcome.CANCELLED, "TERM", True)
    out = tmp_path / "out-1"
    left = json.loads((out / PARTS_FILE).read_text())["part"]
    assert left["paragraphs"] in {7, 14}
    assert hashlib.sha256((out / left["file"]).read_bytes()).hexdigest() == left["sha256"]
    assert not list(out.glob("rows.json*"))


@pytest.mark.slow
def test_on_a_full_disk_the_record_is_kept_and_no_row(tmp_path: Path) -> None:
    texts = [f"Number {n} of many." for n in range(20_000)]
    [shard] = planned(tmp_path, replace(SETTING, sort_window=500, params={"batch_size": 500}), *texts)
    with ExitStack() as mounts:
        small = mounts.enter_context(disk(tmp_path / "small", 1))
        found = tried(tmp_path, shard, out=small)
        assert found.outcome is Outcome.SCRATCH_FULL
        assert found.summary
        assert found.summary.items > 0
        assert not list(small.glob("rows.json*"))


# -- memory


@pytest.mark.slow
@pytest.mark.rare
def test_memory_does_not_grow_with_the_shard(tmp_path: Path) -> None:
    """The most resident memory of one process, of a shard and of one twelve times as large."""
    setting = replace(SETTING, sort_window=2000, params={"batch_size": 100})
    rss: list[int] = []
    for count in (5_000, 60_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        planned(folder, setting, *(f"Number {n:06} of many." for n in range(count)))
        words = f"-m jobkit.worker --points run/{POINTS_FILE} --point 1 --inputs . --out ."
        subprocess.run([sys.executable, *words.split()], cwd=folder, check=True)
        found = json_codec.from_json(Record, (folder / RECORD_FILE).read_text(), where="record")
        assert found.summary
        assert found.summary.items == count
        # maxrss_bytes has the memory of the process that started it, too.
        rss.append(found.memory.rss_peak_bytes or 0)
    assert rss[1] - rss[0] < 4 * 2**20, "55,000 paragraphs are 6 MiB as objects of Python"
