"""Documents in tables, other encodings and long paragraphs: each text with its place, or what is wrong."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather, parquet

from jobkit.core.errors import JobkitError
from jobkit.extensions.corpus import scan as scanning
from jobkit.extensions.corpus import tables
from jobkit.extensions.corpus.readers import READERS, given_offset
from jobkit.extensions.corpus.scan import Scan, find_sources, scan
from jobkit.extensions.corpus.streams import BrokenError
from jobkit.extensions.corpus.tables import USUAL
from jobkit.worker.paragraphs import SENTENCE_END
from tests.extensions.corpus.test_bad import left, reasons
from tests.extensions.corpus.test_scan import borders
from tests.support.corpora import HARD, jsonl, plan, read_all, reference

GROUP = 3  # rows


def as_csv(path: Path, ids: Sequence[object], texts: Sequence[str | None], delimiter: str = ";") -> None:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\r\n")
    writer.writerows(
        [["note", "Body", "id"], *(["a, b", text, name] for name, text in zip(ids, texts, strict=True))]
    )
    path.write_bytes(b"\xef\xbb\xbf" + out.getvalue().encode())


def table_of(ids: Sequence[object], texts: Sequence[str | None]) -> pa.Table:
    return pa.table(
        {"Body": pa.array(texts, pa.string()).dictionary_encode(), "n": [0] * len(ids), "id": ids}
    )


def as_parquet(path: Path, ids: Sequence[object], texts: Sequence[str | None]) -> None:
    parquet.write_table(table_of(ids, texts), path, row_group_size=GROUP)


def as_stream(path: Path, ids: Sequence[object], texts: Sequence[str | None]) -> None:
    table = table_of(ids, texts)
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=GROUP)


def as_feather(path: Path, ids: Sequence[object], texts: Sequence[str | None]) -> None:
    feather.write_feather(table_of(ids, texts), str(path), chunksize=GROUP)


def as_jsonl(path: Path, ids: Sequence[object], texts: Sequence[str | None]) -> None:
    documents = zip(ids, texts, strict=True)
    path.write_text(jsonl([{"id": name, "Body": text} for name, text in documents]), encoding="utf-8")


KINDS = {
    "csv": as_csv,
    "jsonl": as_jsonl,
    "parquet": as_parquet,
    "arrow": as_stream,
    "feather": as_feather,
}


def check(folder: Path, path: Path, texts: Sequence[str], ids: Sequence[object], shards: int = 3) -> Scan:
    """Check the paragraphs of all shards, and where they are, against the texts."""
    read = scan(find_sources([str(path)]), processes=1)
    found = read_all(folder, plan(folder, read, shards))
    whole = [text.replace("\r\n", "\n").replace("\r", "\n") for text in texts]
    names = [str(name) for name in ids]
    expected = [
        (name, at, one)
        for name, text in zip(names, whole, strict=True)
        for at, one in enumerate(reference(text))
    ]
    assert [(one.document, one.number, one.text) for one in found] == expected
    for one in found:
        part = texts[names.index(one.document)][given_offset(one, 0) : given_offset(one, len(one.text))]
        assert part.replace("\r\n", "\n").replace("\r", "\n") == one.text
    source = read.corpus.sources[0]
    silent = {*names} - {one.document for one in found}
    assert (read.corpus.documents, read.corpus.empty) == (len(names), len(silent))
    counts = dict(READERS[source.kind].documents(read.corpus, 0, ()))
    assert counts == {name: len(reference(text)) for name, text in zip(names, whole, strict=True)}
    return read


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(st.lists(HARD, min_size=1, max_size=8), st.integers(1, 40), st.integers(0, 60), st.integers(1, 5))
def test_tables_in_any_blocks(kind: str, texts: list[str], block: int, piece: int, shards: int) -> None:
    """A quoted line end may be on any border of a block or a piece; a range has some row groups, or none."""
    texts = [*texts, "x"]
    with TemporaryDirectory() as folder, borders(block, piece), pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_LONG_BYTES", block)
        path = Path(folder, f"a.{kind}")
        KINDS[kind](path, range(len(texts)), texts)
        read = check(Path(folder), path, texts, range(len(texts)), shards)
        assert read.corpus.sources[0].columns is not None
        assert read.corpus.sources[0].columns.text == "Body"


def test_every_trap_of_a_table_is_read(folder: Path) -> None:
    """An empty file, no row, a null, a column of numbers, other delimiters, the usual names, no id."""
    (folder / "a.csv").touch()
    (folder / "b.tsv.bz2").write_bytes(bz2.compress(b'content\tn\n"a ""tab""\t\n\nhere"\t5\n12\t5\n\n'))
    (folder / "c.csv.xz").write_bytes(lzma.compress(b"Text|ID\r\none|7\r\n|8\r\n", preset=9) + b"\0" * 8)
    (folder / "c.csv.gz").write_bytes(gzip.compress(b""))
    as_parquet(folder / "d.parquet", [], [])
    parquet.write_table(pa.table({"text": pa.array([], pa.string())}), folder / "e.parquet")
    as_feather(folder / "f.feather", [5, None, 6], ["five", "no id", None])
    (folder / "g.csv").write_bytes(b"id,text\n9,nine\n" + b'10,"' + b"line\n\n" * 100_000 + b'"\n')
    read, kept = left(folder)
    assert kept[:6] == [
        ("in/b.tsv.bz2:2", 'a "tab"\t\n'),
        ("in/b.tsv.bz2:2", "here"),
        ("in/b.tsv.bz2:5", "12"),
        ("7", "one"),
        ("5", "five"),
        ("in/f.feather:2", "no id"),
    ]
    assert kept[6:] == [("9", "nine"), *[("10", "line\n")] * 100_000]
    assert read.corpus.skipped == ()
    assert read.corpus.documents == 9


def test_a_quote_that_is_not_closed_costs_little_more_than_its_bytes() -> None:
    """The reader of CSV would hold four bytes for each character, and each line is an object."""
    head, line, number = [b"id,text\n", b'7,"seven\n'], b'1,one ""line"" of some\n', 2**17  # 3 MiB
    columns = tables.csv_columns(head, USUAL, tabs=False)
    assert columns
    tracemalloc.start()
    try:
        lines = (*head, *[line] * number)
        *_, last = tables.csv_rows(lines, columns, header=True, most=2**26)
        assert tracemalloc.get_traced_memory()[1] < 6 * len(line) * number
    finally:
        tracemalloc.stop()
    assert (str(last.document), last.lines) == ("not CSV: unexpected end of data", number + 1)
    with pytest.raises(BrokenError, match="a row of more than 2 MiB"):
        list(tables.csv_rows(lines, columns, header=True, most=2**21))


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.feather"])
def test_without_pyarrow_the_extra_is_named(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / name).touch()
    for module in [one for one in sys.modules if one.partition(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(JobkitError, match=rf"{name} needs the Python module pyarrow") as caught:
        scan(find_sources([str(folder)]), skip_bad=True)
    assert "[parquet]" in caught.value.hint


def test_every_kind_of_bad_table(folder: Path) -> None:
    good = pa.table({"text": ["x"], "id": ["a"]})
    parquet.write_table(good, folder / "a.parquet")
    for name, table in {
        "b.parquet": pa.table({"text": [1, 2]}),
        "c.parquet": pa.table({"words": ["x"], "n": [1]}),
        "d.parquet": pa.table({"text": ["x"], "id": [0.5]}),
        "e.parquet": pa.table({"text": [{"deep": "x"}]}),
        "f.parquet": pa.table({"text": pa.array([b"\xff", b"fine"]).cast(pa.binary()).view(pa.string())}),
    }.items():
        parquet.write_table(table, folder / name)
    whole = (folder / "a.parquet").read_bytes()
    for name, data in {
        "g.parquet": whole[:-9],
        "h.parquet": b"",
        "i.arrow": b"",
        "j.feather": b"FEA1 of an earlier age",
        "k.arrow": whole,
        "p.csv": b"text,id\rold,Mac\r",
        "l.csv": b'text,id\nfine,l\n"a" b,2\none,2,3\nx,a\n\xff,4\n',
        "m.csv": b'text,id\n"never ends,1\n',
        "n.csv": b"a,b\n1,2\n",
        "o.jsonl": b'{"text": {"deep": "x"}}\n{"text": null}\n{"id": "a", "text": "again"}\n',
    }.items():
        (folder / name).write_bytes(data)
    found = reasons(folder)
    assert [line for line in found if line[0] in "bcdefln"] == [
        "b.parquet: the column 'text' is int64, not text",
        "c.parquet: no column text, content, body and 7 more: it has words, n",
        "d.parquet: the column 'id' is double, neither text nor whole numbers",
        "e.parquet: the column 'text' is struct<deep: string>, not text",
        "f.parquet:1: not UTF-8 at byte 0 of the text",
        "l.csv:3: not CSV: ',' expected after '\"'",
        "l.csv:4: 3 columns, and 2 in the header",
        "l.csv:5: the id 'a' (id) is also that of in/a.parquet:1",
        "l.csv:6: not UTF-8 at byte 0 of the row, it seems to be cp1252",
        "n.csv: no column text, content, body and 7 more: it has a, b",
    ]
    assert [line.split(": ")[0] for line in found if line[0] in "ghijkmop"] == [
        *("g.parquet", "h.parquet", "i.arrow", "j.feather", "k.arrow", "m.csv:2"),
        *("o.jsonl:1", "o.jsonl:3", "p.csv"),
    ]
    _, kept = left(folder)
    assert kept == [("a", "x"), ("in/f.parquet:2", "fine"), ("l", "fine")]
    parquet.write_table(pa.table([["x"], ["y"]], ["x", "x"]), folder / "b.parquet")
    with pytest.raises(
        JobkitError, match=r"two columns 'x': it has x, x(.|\n)*no column 'x': it has text, id"
    ):
        scan(find_sources([str(folder / name) for name in ("b.parquet", "l.csv")]), text_field="x")


def test_ids_of_other_types_are_text(folder: Path) -> None:
    one = UUID("926f8fb2-0c83-4a5a-ae2a-314dde567616")
    raw = pa.array([one.bytes], pa.binary(16))
    ids = {
        "a-uuid": (pa.ExtensionArray.from_storage(pa.uuid(), raw), str(one)),
        "b-json": (pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"n": 1}'])), '{"n": 1}'),
        "c-words": (pa.array(["d"]).dictionary_encode(), "d"),
        "d-bytes": (raw, one.hex),
        "e-letters": (pa.array([b"abc4"], pa.binary(4)), "abc4"),
    }
    for name, (column, _) in ids.items():
        table = pa.table({"letter_id": column, "text": [name]})
        parquet.write_table(table, folder / f"{name}.parquet")
        feather.write_feather(table, folder / f"{name}.feather", compression="uncompressed")
    for ending in ("parquet", "feather"):
        read = scan(find_sources([str(path) for path in sorted(folder.glob(f"*.{ending}"))]))
        run = folder.parent / ending
        run.mkdir()
        found = read_all(run, plan(run, read, 2))
        assert [(one.text, one.document) for one in found] == [
            (name, text) for name, (_, text) in ids.items()
        ]


def test_a_table_that_changes_and_a_large_group(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = [f"Text {number}" for number in range(1000)]
    parquet.write_table(pa.table({"text": texts, "id": range(1000)}), path, row_group_size=900)
    read = check(tmp_path, path, texts, range(1000))
    shards = plan(tmp_path, read, 5)
    parquet.write_table(pa.table({"text": [*texts[:-1], "other"], "id": range(1000)}), path)
    with pytest.raises(
        JobkitError, match=r"a.parquet: rows 9\d\d to 1000: changed since the corpus was planned"
    ):
        read_all(tmp_path, shards)
    path.write_bytes(b"PAR1 no more")
    with pytest.raises(JobkitError, match=r"a.parquet: not Parquet: "):
        read_all(tmp_path, shards)


def test_a_saved_data_set_has_the_files_of_its_state(folder: Path) -> None:
    (folder / "train").mkdir()
    for name in ("data-00000-of-00002", "data-00001-of-00002", "cache-5"):
        as_stream(folder / "train" / f"{name}.arrow", [name], [f"of {name}"])
    state = {"_data_files": [{"filename": f"data-0000{n}-of-00002.arrow"} for n in range(2)]}
    (folder / "train" / "state.json").write_text(json.dumps(state), encoding="utf-8")
    (folder / "train" / "dataset_info.json").write_text("{}", encoding="utf-8")
    (folder / "dataset_dict.json").write_text('{"splits": ["train"]}', encoding="utf-8")
    read, kept = left(folder)
    assert [text for _, text in kept] == ["of data-00000-of-00002", "of data-00001-of-00002"]
    assert read.corpus.unread == ("in/dataset_dict.json", "in/train/cache-5.arrow")
    (folder / "train" / "data-00001-of-00002.arrow").unlink()
    with pytest.raises(JobkitError, match=r"lists data-00001-of-00002.arrow, which is not there"):
        find_sources([str(folder)])
    (folder / "train" / "state.json").write_text("[]", encoding="utf-8")
    with pytest.raises(JobkitError, match="not that of a saved data set"):
        find_sources([str(folder)])


WORDS = (
    "Le café était fermé, et la forêt n'avait pas été protégée. Les élèves ont mangé à la cantine.\r\n\r\n"
)


def test_encodings_by_name_and_each_by_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "RANGE_BYTES", 50)
    documents = json.dumps({"text": WORDS}, ensure_ascii=False) + "\n"
    for name, text, encoding in [
        ("a.txt", WORDS * 3, "cp1252"),
        ("b.txt.gz", WORDS * 2, "cp1252"),
        ("c.csv", f'id;text\n1;"{WORDS}"\n', "utf-16"),
        ("d.jsonl", documents, "cp1252"),
        ("e.txt", WORDS, "utf-8"),
        ("f.txt", "Привет, как дела? Это простой текст на русском языке.", "koi8-r"),
    ]:
        data = text.encode(encoding)
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (folder / "g.txt").write_bytes(("é" * 50).encode() + b"\xff")
    assert reasons(folder, "g.txt") == ["g.txt:1: not UTF-8 at byte 100"], "damage is no other encoding"
    (folder / "g.txt").unlink()
    read = scan(find_sources([str(folder)]), encoding="auto")
    names = ["cp1252", "cp1252", "utf_16", "cp1252", "", "koi8_r"]
    assert [source.encoding for source in read.corpus.sources] == names
    found = read_all(folder, plan(folder, read, 3))
    assert [one.document for one in found][:5] == ["in/a.txt"] * 3 + ["in/b.txt.gz"] * 2
    assert {one.text for one in found[:-1]} == {WORDS.replace("\r\n", "\n")[:-1]}
    whole = (folder / "a.txt").read_bytes().decode("cp1252")
    assert [whole[one.offset :][:7] for one in found[:3]] == ["Le café"] * 3
    assert scan(find_sources([str(folder / "a.txt")]), encoding="latin-1").corpus.paragraphs == 3
    with pytest.raises(JobkitError, match=r"a.txt: not ascii at byte 6"):
        scan(find_sources([str(folder / "a.txt")]), encoding="ascii")
    for name in ("no-such", "base64", "rot13"):
        with pytest.raises(JobkitError, match=f"--encoding {name}: no encoding of text"):
            scan(find_sources([str(folder)]), encoding=name)


@given(
    st.lists(st.sampled_from(["One. ", "Two!\r\n  ", "dr. ", "a b ", "é” ", "Next?\n", "\n\n"]), max_size=60),
    st.integers(1, 30),
    st.integers(0, 40),
)
@settings(max_examples=60)
def test_long_paragraphs_are_cut_where_a_piece_may_begin(words: list[str], most: int, piece: int) -> None:
    """Whatever a piece holds, the cuts and their offsets are those of the whole document."""
    text = "".join([*words, "End."])
    with TemporaryDirectory() as name, borders(2**20, piece):
        folder, found = Path(name), list[list[tuple[int, str]]]()
        (folder / "a.txt").write_bytes(text.encode())
        (folder / "b.jsonl").write_text(json.dumps({"text": text}), encoding="utf-8")
        for path in (folder / "a.txt", folder / "b.jsonl"):
            read = scan(find_sources([str(path)]), split=most)
            cuts = read_all(folder, plan(folder, read, 3))
            assert read.corpus.characters == sum(len(one.text) for one in cuts)
            assert [one.number for one in cuts] == [*range(len(cuts))]
            found.append([(one.offset, one.text) for one in cuts])
        assert found[0] == found[1]
        for offset, part in found[0]:
            assert text[offset:].replace("\r\n", "\n").startswith(part)
            assert len(part) <= most or not SENTENCE_END.search(part.rstrip())
        assert "".join(part for _, part in found[0]).split() == text.split()
