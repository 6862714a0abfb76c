"""Vectors: the parts of shards, and the array that is made of them."""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import ipc, parquet

from jobkit.core.errors import JobkitError
from jobkit.core.json_codec import from_json
from jobkit.core.layout import CORPUS_FILE, try_folder
from jobkit.core.records import Point
from jobkit.extensions.corpus import work as shard_work
from jobkit.extensions.corpus.merge import default_format, merge
from jobkit.extensions.corpus.page import CorpusReport, result_blocks
from jobkit.extensions.corpus.plan import MANIFEST_FILE, ROWS_FILE, Rows, read_plan
from jobkit.extensions.corpus.readers import Paragraph
from jobkit.extensions.corpus.rows import RowsFile
from jobkit.extensions.corpus.scan import find_sources, scan
from jobkit.extensions.corpus.standing import CorpusState
from jobkit.extensions.corpus.winners import claim, part_files
from jobkit.worker.failure import TryFailed
from jobkit.worker.workloads.base import Ragged, Result
from tests.support.corpora import jsonl, plan, points_of, read_all, read_shard, write_result

WIDTH, SHARDS, WINDOW, CALL = 384, 3, 7, 3
SPARSE = ("indices", "values")


def embedded(texts: Sequence[str], dtype: str = "float32") -> Any:
    """Return a vector for each text, which follows from the text alone."""
    seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) for text in texts]
    return np.stack([np.random.default_rng(seed).standard_normal(WIDTH) for seed in seeds]).astype(dtype)


def sparse(text: str) -> tuple[Any, Any]:
    """Return the letters of a text and their shares; of a paragraph that says ``Two`` none."""
    letters, counts = np.unique(
        np.frombuffer(b"" if "Two" in text else text.encode(), "u1"), return_counts=True
    )
    return letters.astype(np.int64), counts / max(1, counts.sum())


@pytest.fixture(params=["arrow", "npy"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the format of the parts: with pyarrow, and on a node without it."""
    if request.param == "npy":
        real = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: None if name == "pyarrow" else real(name)
        )
    return str(request.param)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run of three shards without a result: a text, and documents of JSON lines."""
    (tmp_path / "in").mkdir()
    text = "\r\n\r\n".join(f"Paragraph {n} of a text." for n in range(40))
    (tmp_path / "in" / "a.txt").write_bytes(text.encode())
    documents: list[dict[str, object]] = [{"id": f"d{n}", "text": f"One {n}.\n\nTwo."} for n in range(20)]
    documents.append({"id": "empty", "text": ""})
    (tmp_path / "in" / "b.jsonl").write_text(jsonl(documents), encoding="utf-8")
    run = tmp_path / "run"
    run.mkdir()
    points_of(run, plan(run, scan(find_sources([str(tmp_path / "in")])), SHARDS))
    return run


def tried(
    run: Path, index: int, *, dtype: str = "float32", columns: tuple[str, ...] = ("embedding",)
) -> Path:
    """Write the part of a shard window by window, each from calls in disorder; return the try's folder."""
    folder = Path(try_folder(run, f"shard-{index:05d}", 1))
    folder.mkdir(parents=True, exist_ok=True)
    output = RowsFile(folder)
    output.open(columns)
    paragraphs = list(read_shard(run, index))
    for first in range(0, len(paragraphs), WINDOW):
        places = paragraphs[first : first + WINDOW]
        order = np.random.default_rng(first).permutation(len(places)).tolist()
        calls = [order[at : at + CALL] for at in range(0, len(order), CALL)]
        output.write([_row(places, call, first, dtype, columns) for call in calls], first, places)
    output.close((), failed=False)
    return folder


def _row(
    places: Sequence[Paragraph], call: Sequence[int], first: int, dtype: str, columns: tuple[str, ...]
) -> tuple[Any, ...]:
    """Return what a call of a workload with vectors gives."""
    texts = [places[at].text for at in call]
    found: Any = Ragged.of(map(sparse, texts)) if columns == SPARSE else embedded(texts, dtype)
    found = found.reshape(-1, 2, WIDTH // 2) if columns == ("pair",) else found
    [row] = shard_work.WORK.rows(Result(vectors=found, load=0), columns, [first + at for at in call])
    return row


def all_points(run: Path) -> list[Point]:
    return points_of(run, list(read_plan(run)))


def finished(run: Path, **how: Any) -> list[Paragraph]:
    for point in all_points(run):
        tried(run, point.index, **how)
        assert claim(run, point, 1)
    return read_all(run, list(read_plan(run)))


def test_a_part_has_numbers_alone_and_the_manifest_its_contract(run: Path, kind: str) -> None:
    folder = tried(run, 2)
    texts = [paragraph.text for paragraph in read_shard(run, 2)]
    rows = from_json(Rows, (folder / MANIFEST_FILE).read_text(), where="manifest")
    [part] = rows.parts
    data = (folder / part.file).read_bytes()
    assert {path.name for path in folder.iterdir()} == {MANIFEST_FILE, ROWS_FILE, f"part-00001.{kind}"}
    assert (part.number, part.file, part.columns) == (1, f"part-00001.{kind}", ("embedding",))
    assert (part.rows, part.paragraphs, rows.paragraphs) == (len(texts),) * 3
    assert (part.size_bytes, part.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert (rows.size_bytes, rows.sha256, rows.types) == (part.size_bytes, part.sha256, ("fp32[384]",))
    if kind == "npy":
        found = np.load(folder / part.file)
    else:
        found = np.array(ipc.open_file(folder / part.file).read_all()["embedding"].to_pylist(), np.float32)
    assert np.array_equal(found, embedded(texts))


@pytest.mark.usefixtures("kind")
def test_a_report_has_number_width_type_and_norm(run: Path) -> None:
    norms = [float(np.linalg.norm(embedded([one.text]))) for one in finished(run)]
    report = CorpusReport(standing=CorpusState(run), results=(), data={}, counts=(), notes=())
    (block,) = result_blocks(report)
    assert block.title == f"{len(norms):,} vectors of fp32[384]"
    assert block.before[0].startswith(f"Norm: {np.mean(norms):.4g} on average, {min(norms):.4g} to ")
    Path(part_files(run, CorpusState(run).winners[1])[0][0]).unlink()
    assert next(result_blocks(report)).title == "The results cannot be read"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_parquet_has_each_vector_once_in_corpus_order(
    run: Path, tmp_path: Path, kind: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del kind
    paragraphs = finished(run, dtype=dtype)
    monkeypatch.undo()  # the login node has pyarrow
    assert default_format(run) == "parquet"
    merged = merge(run, tmp_path / "out.parquet", "parquet", "npy", with_text=True)
    assert (merged.rows, merged.vectors) == (80, f"fp{dtype[-2:]}[384]")
    assert np.array_equal(np.load(tmp_path / "out.npy"), embedded([one.text for one in paragraphs], dtype))
    counts = [json.loads(line) for line in merged.counts.read_text().splitlines()]
    assert (len(counts), sum(one["rows"] for one in counts), merged.silent) == (22, 80, 1), "counted once"
    assert counts[-1] == {"document": "empty", "paragraphs": 0, "rows": 0}
    file = parquet.ParquetFile(tmp_path / "out.parquet")
    table = file.read()
    assert file.num_row_groups == SHARDS
    names = {"float32": "float", "float16": "halffloat"}
    assert [str(field.type) for field in table.schema] == [
        *("string", "int64"),
        f"fixed_size_list<element: {names[dtype]}>[384]",
        "string",
        "string",
    ]
    assert table["paragraph_text"].to_pylist() == [one.text.removesuffix("\n") for one in paragraphs]
    keys = list(zip(table["document"].to_pylist(), table["paragraph"].to_pylist(), strict=True))
    assert keys == [(paragraph.document, paragraph.number) for paragraph in paragraphs]
    assert merged.places == tmp_path / "out.rows.tsv"
    with merged.places.open(encoding="utf-8", newline="") as stream:
        rows = [*csv.DictReader(stream, dialect="excel-tab")]
    assert [(row["document"], int(row["paragraph"])) for row in rows] == keys
    assert table["file"].to_pylist() == ["in/a.txt"] * 40 + ["in/b.jsonl"] * 40
    vectors = table["embedding"].combine_chunks().flatten().to_numpy().reshape(-1, WIDTH)
    assert np.array_equal(vectors, embedded([paragraph.text for paragraph in paragraphs], dtype))


def test_arrays_of_any_length_are_merged_as_lists_and_end_to_end(
    run: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paragraphs = finished(run, columns=SPARSE)
    monkeypatch.undo()
    folder = run / "results" / "shard-00002" / "try-1"
    rows = from_json(Rows, (folder / MANIFEST_FILE).read_text(), where="manifest")
    assert rows.types == ("int64[*]", "fp32[*]")
    assert (folder / ROWS_FILE).readlink() == Path(f"part-00001.{'npz' if kind == 'npy' else kind}")
    assert default_format(run) == "parquet"
    merged = merge(run, tmp_path / "out.parquet", "parquet", "npz", with_text=True)
    assert (merged.rows, merged.vectors, merged.places) == (80, "int64[*] fp32[*]", tmp_path / "out.rows.tsv")
    table = parquet.read_table(tmp_path / "out.parquet")
    with np.load(tmp_path / "out.npz") as file:
        arrays = dict(file)
    assert table["paragraph_text"].to_pylist() == [one.text.removesuffix("\n") for one in paragraphs]
    assert table["document"].to_pylist() == [one.document for one in paragraphs]
    ends = arrays["offsets"].tolist()
    assert (len(ends), ends[0], len(arrays["values"])) == (81, 0, ends[-1])
    for number, paragraph in enumerate(paragraphs):
        for name, found in zip(SPARSE, sparse(paragraph.text), strict=True):
            assert table[name][number].as_py() == found.astype(arrays[name].dtype).tolist()
            assert arrays[name][ends[number] : ends[number + 1]].tolist() == table[name][number].as_py()
    report = CorpusReport(standing=CorpusState(run), results=(), data={}, counts=(), notes=())
    (block,) = result_blocks(report)
    assert block.title == "80 arrays of int64[*] fp32[*]"
    assert re.match(r"Length: [\d.]+ on average, 0 to \d+ \(of 80\)", block.before[0])
    with pytest.raises(JobkitError, match=r"the results are arrays of int64\[\*\]") as caught:
        merge(run, tmp_path / "out.npy", "npy")
    assert "parquet or npz" in caught.value.hint


@pytest.mark.usefixtures("kind")
def test_arrays_of_one_shape_are_nested_lists(run: Path, tmp_path: Path, monkeypatch: Any) -> None:
    expected = embedded([one.text for one in finished(run, columns=("pair",))]).reshape(-1, 2, WIDTH // 2)
    monkeypatch.undo()
    assert merge(run, tmp_path / "out.parquet", "parquet", "npy").vectors == "fp32[2,192]"
    assert np.array_equal(np.load(tmp_path / "out.npy"), expected)
    rows = parquet.read_table(tmp_path / "out.parquet")["pair"].to_pylist()
    assert np.array_equal(np.array(rows, np.float32), expected)


def test_what_is_there_of_vectors_is_merged(run: Path, tmp_path: Path) -> None:
    paragraphs = finished(run)
    shard = list(read_shard(run, 2))
    (run / "winners" / "shard-00002.json").unlink()
    (run / "results" / "shard-00002" / "try-1" / MANIFEST_FILE).unlink()
    with pytest.raises(JobkitError, match="1 shard has no result yet"):
        merge(run, tmp_path / "out.npy", "npy")
    merged = merge(run, tmp_path / "out.npy", "npy", allow_missing=True)
    left = [paragraph for paragraph in paragraphs if paragraph not in shard]
    assert np.array_equal(np.load(tmp_path / "out.npy"), embedded([one.text for one in left]))
    assert merged.missing.total() == len(shard)
    counts = [json.loads(line) for line in merged.counts.read_text().splitlines()]
    assert sum(line["rows"] for line in counts) == len(left)


# -- failures


@pytest.mark.parametrize(
    ("found", "columns", "reason"),
    [
        (np.zeros((2, WIDTH), np.float32), "embedding", r"an array of float32 of shape \(2, 384\)"),
        (np.zeros(3, np.float32), "embedding", r"of shape \(3,\)"),
        (np.zeros((3, WIDTH), np.int64), "embedding", "an array of int64"),
        (np.zeros((3, 4)), "a b", "vectors are one column, and COLUMNS has a, b"),
        (Ragged.of([(np.zeros(2),), None, None]), "embedding", "without lengths of all"),
        (Ragged.of([(np.zeros(2), np.zeros(2))] * 3), "embedding", "COLUMNS has"),
    ],
)
def test_what_is_no_vector_for_each_paragraph_is_a_bug(found: object, columns: str, reason: str) -> None:
    with pytest.raises(TryFailed, match=reason):
        shard_work.WORK.rows(Result(vectors=found, load=0), tuple(columns.split()), range(3))


def test_vectors_are_of_one_type(run: Path, tmp_path: Path) -> None:
    finished(run)
    output = RowsFile(tmp_path)
    output.open(("embedding",))
    calls = [(range(3), np.zeros((3, WIDTH), np.float32)), (range(3, 5), np.zeros((2, WIDTH), np.float16))]
    with pytest.raises(TryFailed, match=r"returned fp32\[384\], another fp16\[384\]"):
        output.write(calls, 0, ())
    output.close((), failed=True)
    winner = run / "winners" / "shard-00002.json"
    winner.write_text(winner.read_text().replace("fp32[384]", "fp32[64]"))
    with pytest.raises(JobkitError, match=r"vectors of different types: fp32\[384\], fp32\[64\]"):
        merge(run, tmp_path / "out.npy", "npy")


def test_a_shard_without_its_vectors_is_named(run: Path, tmp_path: Path) -> None:
    """As an earlier version claimed them: a shard without any vector, and one of which the last is lost."""
    finished(run)
    path = run / "winners" / "shard-00002.json"
    winner = json.loads(path.read_text())
    part = winner["parts"][0] | {"rows": winner["rows"] - 1}
    path.write_text(json.dumps(winner | {"rows": winner["rows"] - 1, "parts": [part]}))
    with pytest.raises(
        JobkitError, match=r"shard 2 has \d+ rows, fp32\[384\]: not a vector of each"
    ) as caught:
        merge(run, tmp_path / "out.npy", "npy")
    assert "--rows-gone" in caught.value.hint
    path.unlink()
    folder, paragraphs = run / "results" / "shard-00002" / "try-1", list(read_shard(run, 2))
    manifest = folder / MANIFEST_FILE
    manifest.write_text(json.dumps({name: winner[name] for name in winner if name != "parts"} | {"rows": 1}))
    assert claim(run, all_points(run)[1], 1) is None
    (folder / ROWS_FILE).unlink()
    write_result(folder, ("embedding",), [], paragraphs)
    assert claim(run, all_points(run)[1], 1)
    for form in ("npy", "parquet", "jsonl"):
        with pytest.raises(JobkitError, match=r"shard-00001 and shard-00002 have .*: fp32\[384\], none"):
            merge(run, tmp_path / f"out.{form}", form)
    assert not list(tmp_path.glob("out.*"))


def test_vectors_are_no_text_and_rows_no_array(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(run)
    with pytest.raises(JobkitError, match="--format jsonl: the results are vectors") as caught:
        merge(run, tmp_path / "out.jsonl", "jsonl")
    assert "parquet or npy" in caught.value.hint
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(JobkitError, match="needs the Python module pyarrow") as caught:
        merge(run, tmp_path / "out.parquet", "parquet")
    assert "[parquet]" in caught.value.hint
    assert caught.value.hint.endswith("; or --format npy")
    assert not list(tmp_path.glob("out.*"))
    assert (run / CORPUS_FILE).is_file()
