"""Rows, and the one file that is made of them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import resource
import stat
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from jobkit.core.errors import JobkitError
from jobkit.core.files import append_line, try_lock
from jobkit.core.json_codec import to_json
from jobkit.core.layout import PLAN_FILE
from jobkit.extensions.corpus.formats import ROW_FORMATS
from jobkit.extensions.corpus.merge import merge
from jobkit.extensions.corpus.plan import read_corpus, read_plan
from jobkit.extensions.corpus.readers import Paragraph
from jobkit.extensions.corpus.rows import RowsFile
from jobkit.extensions.corpus.scan import find_sources, scan
from jobkit.extensions.corpus.winners import claim, claim_all, read_winners
from tests.support.corpora import jsonl, plan, points_of, read_all, read_shard, work, write_result


def test_no_manifest_stays_of_an_earlier_process_or_of_one_that_fails(tmp_path: Path) -> None:
    write_result(tmp_path, ("text",), [], ())
    assert (tmp_path / "rows.jsonl").read_bytes() == b""
    assert json.loads((tmp_path / "rows.json").read_text())["rows"] == 0
    with pytest.raises(ValueError, match="argument"):
        write_result(tmp_path, ("text",), [(0,)], [Paragraph("a.txt", 4, "One\n", 100)])
    assert not (tmp_path / "rows.json").exists()


@pytest.mark.parametrize("columns", [("paragraph",), ("a", "a")])
def test_a_column_is_named_once(tmp_path: Path, columns: tuple[str, ...]) -> None:
    with pytest.raises(JobkitError, match="each name once"):
        RowsFile(tmp_path).open(columns)


def lines(*values: object) -> list[bytes]:
    return [json.dumps({"document": "d", "paragraph": 0, "x": value}).encode() + b"\n" for value in values]


def written(name: str, *values: object, types: str = "str") -> bytes:
    file = io.BytesIO()
    columns = {"document": {"str"}, "paragraph": {"int"}, "x": types.split()}
    ROW_FORMATS[name](file, lines(*values), columns)
    return file.getvalue()


def test_cells_of_tsv() -> None:
    found = written("tsv", *(None, [1, "é"], True, 1.5)).decode().splitlines()
    assert found == ["document\tparagraph\tx", "d\t0\t", 'd\t0\t"[1, ""é""]"', "d\t0\ttrue", "d\t0\t1.5"]


@given(st.lists(st.text(st.sampled_from("a \r\n\t\"'\\#é\u2028")), min_size=1))
def test_pandas_reads_back_what_is_in_a_tsv(values: list[str]) -> None:
    frame = pd.read_csv(io.BytesIO(written("tsv", *values)), sep="\t", dtype=str, keep_default_na=False)
    assert frame["x"].tolist() == values


@pytest.mark.parametrize(
    ("types", "values", "kind"),
    [
        ("int", [1, 2], "int64"),
        ("int null", [1, None], "int64"),
        ("float int", [1, 2.5], "double"),
        ("bool", [True, False], "bool"),
        ("null", [None], "string"),
        ("int str", [1, "x"], "string"),
        ("other", [[1]], "string"),
    ],
)
def test_types_of_parquet(types: str, values: list[object], kind: str) -> None:
    table = parquet.read_table(io.BytesIO(written("parquet", *values, types=types)))
    assert str(table.schema.field("x").type) == kind
    found = table.column("x").to_pylist()
    texts = [
        json.dumps(value) if kind == "string" and not isinstance(value, str | None) else value
        for value in values
    ]
    assert found == texts


def test_no_row_at_all_and_a_number_too_large_for_parquet() -> None:
    assert [written(name) for name in ("jsonl", "conll")] == [b"", b""]
    assert [written(name) for name in ("tsv", "csv")] == [
        b"document\tparagraph\tx\n",
        b"document,paragraph,x\n",
    ]
    assert parquet.read_table(io.BytesIO(written("parquet"))).num_rows == 0
    with pytest.raises(JobkitError, match="--format parquet"):
        written("parquet", 2**70, types="int")


COLUMNS = ("label", "start", "end", "extra")
NUMBER = 5


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_bytes("\ufeffWörter hier\r\nund da\r\n\r\n".encode() * 20)
    (folder / "b.txt.gz").write_bytes(gzip.compress(b"Packed words\n\n \n" * 20))
    documents: list[dict[str, object]] = [
        {"id": f"d\t{n}", "text": "Ein Satz.\r\n\r\nNoch \u2028 einer"} for n in range(20)
    ]
    (folder / "c.jsonl").write_text(jsonl(documents), encoding="utf-8")
    return folder


@pytest.fixture
def run(tmp_path: Path, texts: Path) -> Path:
    """Return a run in which every shard has been worked through."""
    run = tmp_path / "run"
    run.mkdir()
    points = points_of(run, plan(run, scan(find_sources([str(texts)])), NUMBER))
    for point in points:
        work(run, point.index, columns=COLUMNS)
        claim(run, point, 1)
    return run


def test_others_can_read_a_merge_as_the_umask_permits_and_nothing_else(run: Path) -> None:
    secret = run / "sweep.yaml"
    secret.write_text("", encoding="utf-8")
    run.chmod(0o700)
    before = os.umask(0o027)
    try:
        merge(run, run / "merged.jsonl")
    finally:
        os.umask(before)
    assert stat.S_IMODE(run.stat().st_mode) == 0o750
    readable = {path.name for path in run.iterdir() if path.stat().st_mode & stat.S_IRGRP}
    assert readable == {"merged.jsonl", "merged.documents.jsonl"}


@pytest.fixture
def undisturbed(tmp_path: Path, texts: Path) -> bytes:
    """Return the rows of one process that works through the corpus as one shard."""
    alone = tmp_path / "alone"
    alone.mkdir()
    plan(alone, scan(find_sources([str(texts)])), 1)
    rows = map(json.loads, (work(alone, 1, columns=COLUMNS) / "rows.jsonl").read_bytes().splitlines())
    files = ({**row, "file": "in/c.jsonl" if row["document"][0] == "d" else row["document"]} for row in rows)
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in files)


def test_every_document_has_a_line_with_its_paragraphs_and_rows(tmp_path: Path) -> None:
    """Also documents without a row or a paragraph, and once a document that several shards share."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "long.txt").write_text("word word\n\n...\n\n" * 40, encoding="utf-8")
    (folder / "silent.txt").write_text("...\n\n!\n", encoding="utf-8")
    (folder / "nothing.txt").write_text(" \n\n", encoding="utf-8")
    documents: list[dict[str, object]] = [
        {"id": f"d{n}", "text": ("-", "one\n\n?", "\r\n")[n % 3]} for n in range(9)
    ]
    (folder / "some.jsonl").write_text(jsonl(documents), encoding="utf-8")
    run = tmp_path / "run"
    run.mkdir()
    for point in points_of(run, plan(run, scan(find_sources([str(folder)])), 4)):
        work(run, point.index, columns=COLUMNS)
        claim(run, point, 1)
    merged = merge(run, tmp_path / "out.tsv", "tsv")
    lines = (tmp_path / "out.documents.jsonl").read_text(encoding="utf-8").splitlines()
    found = [tuple(json.loads(line).values()) for line in lines]
    assert found[:3] == [("in/long.txt", 80, 80), ("in/nothing.txt", 0, 0), ("in/silent.txt", 2, 0)]
    assert found[3:] == [(f"d{n}", *[(1, 0), (2, 1), (0, 0)][n % 3]) for n in range(9)]
    assert (merged.documents, merged.silent, merged.counts) == (12, 8, tmp_path / "out.documents.jsonl")
    assert merged.documents == read_corpus(run).documents
    assert sum(paragraphs for _, paragraphs, _ in found) == merged.paragraphs
    assert sum(rows for *_, rows in found) == merged.rows


def test_rows_that_are_not_in_corpus_order_have_no_counts(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("One.\n", encoding="utf-8")
    [point] = points_of(tmp_path, plan(tmp_path, scan(find_sources([str(tmp_path / "in.txt")])), 1))
    another = next(read_shard(tmp_path, 1))._replace(document="gone")
    write_result(work(tmp_path, 1), ("label",), [(0, "x")], [another])
    assert claim(tmp_path, point, 1)
    with pytest.raises(JobkitError, match="'gone' are not in corpus order"):
        merge(tmp_path, tmp_path / "out.jsonl")


@pytest.mark.parametrize("short", ["out.jsonl", "out.documents.jsonl"])
def test_a_full_disk_leaves_nothing_half(run: Path, tmp_path: Path, short: str) -> None:
    merge(run, tmp_path / "out.jsonl")
    before, limit = {*tmp_path.iterdir()}, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / short).stat().st_size - 1, limit[1]))
    try:
        with pytest.raises(JobkitError, match="File too large"):
            merge(run, tmp_path / "new.jsonl")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert {*tmp_path.iterdir()} == before


def refused(run: Path, reason: str) -> JobkitError:
    output = run.parent / "out.jsonl"
    output.write_text("older", encoding="utf-8")
    with pytest.raises(JobkitError, match=reason) as caught:
        merge(run, output)
    assert output.read_text(encoding="utf-8") == "older"
    assert not list(run.parent.glob(".*.part"))
    return caught.value


def test_an_overlap_and_a_gap_in_the_plan_are_refused(run: Path) -> None:
    lines = (run / PLAN_FILE).read_text(encoding="utf-8").splitlines(keepends=True)
    shard, *others = read_plan(run)
    append_line(run / PLAN_FILE, to_json(replace(shard, index=6, pieces=shard.pieces[:1])))
    *_, point = points_of(run, [shard, *others, replace(shard, index=6)])
    work(run, 6, columns=COLUMNS)
    assert claim(run, point, 1)
    refused(run, "shards 1 and 6 both have results of the same part")
    (run / PLAN_FILE).write_text("".join(lines[:2] + lines[3:]), encoding="utf-8")
    refused(run, r"the plan has \d+ paragraphs, the corpus 80")


def test_changed_inputs_are_refused_all_at_once(run: Path, texts: Path) -> None:
    changed = bytearray((texts / "a.txt").read_bytes())
    changed[7] ^= 1
    (texts / "a.txt").write_bytes(changed)
    with (texts / "b.txt.gz").open("ab") as file:
        file.write(b"\0")
    (texts / "c.jsonl").unlink()
    size = (texts / "b.txt.gz").stat().st_size
    error = refused(run, "the corpus has changed")
    assert [line.rsplit("/", 1)[1] for line in error.message.splitlines()[1:]] == [
        "a.txt: different content (SHA-256)",
        f"b.txt.gz: {size} bytes instead of {size - 1}",
        "c.jsonl: No such file or directory",
    ]


def test_damaged_and_missing_rows_are_refused(run: Path) -> None:
    rows = run / "results" / "shard-00002" / "try-1" / "rows.jsonl"
    data = rows.read_bytes()
    rows.write_bytes(data.replace(b"W", b"V", 1).replace(b"P", b"Q", 1))
    refused(run, "are gone or damaged: shard-00002")
    rows.unlink()
    assert "jobkit resume" in refused(run, "are gone or damaged: shard-00002").hint


def test_a_winner_that_does_not_fit_the_plan_is_refused(run: Path) -> None:
    winner = read_winners(run)[2]
    path = run / "winners" / "shard-00002.json"
    path.write_text(to_json(replace(winner, paragraphs=3)), encoding="utf-8")
    refused(run, "the result of shard 2 has 3 paragraphs where the plan has")
    path.write_text(to_json(replace(winner, pieces=(*winner.pieces, 0, 9))), encoding="utf-8")
    refused(run, "rows of no piece")
    path.write_text(to_json(replace(winner, columns=("a",), types=("int",))), encoding="utf-8")
    refused(run, "different columns")


def test_a_place_that_cannot_be_written_and_the_corpus_are_refused(run: Path, texts: Path) -> None:
    with pytest.raises(JobkitError, match="is a file of the corpus"):
        merge(run, texts / "a.txt")
    with pytest.raises(JobkitError, match="No such file"):
        merge(run, run / "nowhere" / "out.jsonl")


def test_parquet_has_typed_columns(run: Path, tmp_path: Path, undisturbed: bytes) -> None:
    texts = {
        (one.document, one.number): one.text.removesuffix("\n") for one in read_all(run, list(read_plan(run)))
    }
    rows = [json.loads(line) for line in undisturbed.splitlines()]
    rows = [row | {"paragraph_text": texts[row["document"], row["paragraph"]]} for row in rows]
    merged = merge(run, tmp_path / "out.csv", "parquet", "csv", "jsonl", "parquet", with_text=True)
    paths = [tmp_path / f"out.{form}" for form in ("parquet", "csv", "jsonl")]
    assert (list(merged.outputs), merged.counts) == (paths, tmp_path / "out.documents.jsonl")
    table = parquet.read_table(paths[0])
    assert table.to_pylist() == rows
    kinds = ["string", "int64", "string", *["int64"] * 3, "string", "string"]
    assert [str(field.type) for field in table.schema] == kinds
    with paths[1].open(encoding="utf-8", newline="") as stream:
        cells = [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows]
        assert list(csv.DictReader(stream)) == cells
    assert [json.loads(line) for line in paths[2].read_bytes().splitlines()] == rows


def test_conll_needs_tokens_and_xml_is_no_format(run: Path, tmp_path: Path) -> None:
    for form, why in {"conll": "have no sentence, token, tag", "xml": "no such format"}.items():
        with pytest.raises(JobkitError, match=why):
            merge(run, tmp_path / "out.conll", form)
    for shard in read_plan(run):
        (run / "winners" / f"shard-{shard.index:05d}.json").unlink()
        work(run, shard.index, columns=("sentence", "token", "tag"))
    claim_all(run, points_of(run, list(read_plan(run))))
    merge(run, tmp_path / "out.conll", "conll")
    lines = (tmp_path / "out.conll").read_text(encoding="utf-8").split("\n")
    assert lines[:7] == [
        "# newdoc id = in/a.txt",
        "# newpar id = 0",
        "Wörter\tO",
        "hier\tO",
        "und\tO",
        "da\tO",
        "",
    ]
    assert lines.count("# newdoc id = d 3") == 1
    assert lines[-3:] == ["einer\tO", "", ""]


def test_the_context_of_an_entity_is_cut_at_a_space(run: Path, tmp_path: Path) -> None:
    """Also where line ends have two characters as given, and where a value is no offset."""
    merge(run, tmp_path / "out.csv", "jsonl", "parquet", context=5)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert [row["context"] for row in rows[:4]] == ["Wörter hier", "hier\nund", "hier\nund da", "und da"]
    assert all(row["label"] in row["context"] for row in rows)
    found = parquet.read_table(tmp_path / "out.parquet")["context"].to_pylist()
    assert found == [row["context"] for row in rows]
    [point] = points_of(tmp_path, plan(tmp_path, scan(find_sources([str(tmp_path / "in/a.txt")])), 1))
    write_result(work(tmp_path, 1), ("start", "end"), [(0, None, 1)], [*read_shard(tmp_path, 1)])
    claim(tmp_path, point, 1)
    merge(tmp_path, tmp_path / "null.jsonl", context=4)
    assert json.loads((tmp_path / "null.jsonl").read_bytes())["context"] is None


def test_a_part_that_no_merge_writes_any_more_is_removed(run: Path, tmp_path: Path) -> None:
    killed, other = (tmp_path / f".out.jsonl.{letter * 32}.part" for letter in "ab")
    killed.touch()
    with other.open("wb") as file:
        assert try_lock(file.fileno())
        merge(run, tmp_path / "out.jsonl")
    assert (killed.exists(), other.exists()) == (False, True)
