"""Which files a corpus has; what cannot be read of them is named, all of it at once, or left out."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
import zstandard

from jobkit.answers.speed import CorpusVolume
from jobkit.core.errors import JobkitError
from jobkit.extensions.corpus import readers
from jobkit.extensions.corpus import scan as scanning
from jobkit.extensions.corpus.scan import Scan, find_sources, scan
from jobkit.planning.texts import read_corpora
from tests.support.corpora import jsonl, plan, read_all


def test_files_and_folders_in_the_order_of_the_paths(here: Path) -> None:
    """Endings are read in small and in capital letters; what is not read is named, hidden files last."""
    kinds = {"C.TXT.Gz": ("text", "gz"), "a/D.JsonL": ("jsonl", ""), "a/e.ndjson.zst": ("jsonl", "zst")}
    unread = ("a/notes.md", "loop.txt", "m.odt", "x.tar.gz", "z", ".git/", ".hidden.txt")
    for name in (*kinds, "z.txt", *unread[:1], *unread[2:4], ".hidden.txt", ".git/y.txt", "../OWN.TXT"):
        Path("b", name).parent.mkdir(parents=True, exist_ok=True)
        Path("b", name).write_text("x", encoding="utf-8")
    Path("b/loop.txt").symlink_to("loop.txt")
    Path("b/z").symlink_to("a")
    found = find_sources(["OWN.TXT", "b/"])
    assert [one.name for one in found.files] == ["OWN.TXT", *(f"b/{name}" for name in kinds), "b/z.txt"]
    assert [one.path for one in found.files] == [str(here / one.name) for one in found.files]
    assert [(one.kind, one.compression) for one in found.files[1:4]] == [*kinds.values()]
    assert {one.size_bytes for one in found.files} == {1}
    assert found.unread == tuple(f"b/{name}" for name in unread)
    assert find_sources([str(here / "b")]).unread == found.unread


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("-", "jobkit cannot read standard input a second time"),
        ("/dev/stdin", "jobkit cannot read standard input a second time"),
        ("", "no corpus"),
        ("a.txt ./a.txt", "given twice"),
        ("missing.txt", "No such file"),
        ("fifo", "neither a file nor a folder"),
        ("empty", "a folder without a file that is read"),
        ("other", "a folder without a file that is read: other/m.ODT.GZ, other/x.tar.gz"),
        ("other/x.tar.gz", r"not read: jobkit reads .txt, (.|\n)*tar -xf other/x.tar.gz -C unpacked"),
        ("other/m.ODT.GZ", r"not read: (.|\n)*ln -s m.ODT.GZ other/m.ODT.txt.GZ"),
    ],
)
def test_what_is_refused(path: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    Path("empty").mkdir()
    Path("other").mkdir()
    Path("other/x.tar.gz").touch()
    Path("other/m.ODT.GZ").touch()
    Path("a.txt").touch()
    with pytest.raises(JobkitError, match=reason) as caught:
        find_sources(path.split())
    assert caught.value.hint or "twice" in reason


def test_the_folders_of_a_corpus_hold_all_its_files_and_what_links_lead_to(tmp_path: Path) -> None:
    for name in ("a/1.txt", "a/deep/2.txt", "far/c.txt", "b/d.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x", encoding="utf-8")
    (tmp_path / "b" / "c.txt").symlink_to(tmp_path / "far" / "c.txt")
    corpus = scan(find_sources([str(tmp_path / name) for name in ("a", "b")])).corpus
    assert corpus.folders() == [str(tmp_path / name) for name in ("a", "b", "far")]


def test_a_corpus_of_documents_is_as_large_for_recommend_as_apply_reads_it(tmp_path: Path) -> None:
    path, other = tmp_path / "a.jsonl", tmp_path / "b.txt"
    path.write_text(json.dumps({"id": "1", "text": "One.\n\nTwo."}) + "\n", encoding="utf-8")
    one = CorpusVolume(name=str(path), paragraphs=2, characters=len("One.\nTwo."))
    assert read_corpora([str(path)], ()) == one
    other.write_text("Three.\n", encoding="utf-8")
    both = read_corpora([str(path), str(other)], ())
    assert (both.name, both.paragraphs) == (f"{path} and 1 more path", 3)
    assert read_corpora(["2e6"], ()).paragraphs == 2_000_000
    (tmp_path / "c.txt").write_bytes(b"caf\xe9")
    with pytest.raises(
        JobkitError, match=r"c.txt:1: not UTF-8 at byte 3, it seems to be cp1252(.|\n)*--encoding cp1252"
    ):
        read_corpora([str(tmp_path)], ())
    found = read_corpora([str(tmp_path)], (), skip_bad=True)
    assert (found.paragraphs, "without what cannot be read in" in found.name) == (3, True)


def reasons(folder: Path, *names: str) -> list[str]:
    """Return the lines of the refusal, without the folder."""
    with pytest.raises(JobkitError) as caught:
        scan(find_sources([str(folder / name) for name in names] or [str(folder)]))
    return [line.strip().replace(f"{folder}/", "") for line in caught.value.message.splitlines()[1:]]


def left(folder: Path) -> tuple[Scan, list[tuple[str, str]]]:
    """Return what is read without all that is bad, and its paragraphs."""
    run = folder.parent / "run"
    run.mkdir()
    read = scan(find_sources([str(folder)]), skip_bad=True)
    found = read_all(run, plan(run, read, 3))
    assert len(found) == read.corpus.paragraphs
    return read, [(one.document, one.text) for one in found]


LINES = """{"id": "a", "text": "one"}
{"id": "b", "text": 5}
nothing
{"id": "a", "text": "again"}

{"id": "c"}
[1]
{"id": 7, "text": "seven"}
{"id": "7", "text": "also seven"}
{"id": true, "text": "x"}
{"id": "d", "text": "\\ud800"}
{"text": "no id"}
{"id": "\\ud83d\\ude00", "text": "a pair"}
"""


def test_every_kind_of_bad_line(folder: Path) -> None:
    (folder / "a.jsonl").write_bytes(LINES.encode() + b'{"id": "e", "text": "\xff"}\n' + b"[" * 100_000)
    found = reasons(folder)
    assert found == [
        "a.jsonl:2: the field 'text' is not text",
        "a.jsonl:3: not JSON: Expecting value: line 1 column 1 (char 0) (and 1 more such place)",
        "a.jsonl:4: the id 'a' (id) is also that of in/a.jsonl:1 (and 1 more such place)",
        "a.jsonl:6: no field 'text': it has id",
        "a.jsonl:7: not a JSON object",
        "a.jsonl:10: the field 'id' is neither text nor a whole number",
        "a.jsonl:11: half of a surrogate pair: \\ud800",
        "a.jsonl:14: not UTF-8 at byte 21 of the line, it seems to be cp1252",
    ]
    read, kept = left(folder)
    assert kept == [("a", "one"), ("7", "seven"), ("in/a.jsonl:12", "no id"), ("😀", "a pair")]
    assert [bad.line for bad in read.corpus.skipped] == [2, 3, 4, 6, 7, 9, 10, 11, 14, 15]
    assert {bad.source for bad in read.corpus.skipped} == {"in/a.jsonl"}
    assert read.corpus.documents == 4


def test_every_kind_of_bad_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "LONGEST_BYTES", 2**20)
    whole = gzip.compress(b"a text\n" * 1000)
    flipped = bytearray(whole)
    flipped[20] ^= 255
    packed = zstandard.ZstdCompressor(write_checksum=True).compress(b"a text\n" * 1000)
    torn = bytearray(packed)
    torn[-1] ^= 255
    for name, data in {
        "a.txt": b"fine\n\nbad \xc3(\n",
        "b.txt": "Größe".encode("utf-16"),
        "c.txt.gz": whole[:-5],
        "d.txt.gz": whole + b"\0\0\0" + b"no archive",
        "e.txt.gz": bytes(flipped),
        "f.txt.zst": packed[: len(packed) // 2],
        "g.txt.zst": bytes(torn),
        "h.txt": b"word " * 2**20,
        "i.jsonl": b"x" * 2**21,
        "j.txt.gz": b"",
        "k.txt": b"good",
        "l.txt.gz": whole + b"\0\0\0" + whole,
    }.items():
        (folder / name).write_bytes(data)
    found = reasons(folder)
    assert [line.split(": ")[0] for line in found] == [
        *("a.txt:3", "b.txt:1", "c.txt.gz", "d.txt.gz", "e.txt.gz"),
        *("f.txt.zst", "g.txt.zst", "h.txt", "i.jsonl", "j.txt.gz"),
    ]
    assert found[:2] == [
        "a.txt:3: not UTF-8 at byte 10, it seems to be cp1252",
        "b.txt:1: not UTF-8 at byte 0, it seems to be utf_16",
    ]
    assert found[2].endswith("the archive ends early")
    assert "the archive is broken" in found[3]
    assert found[7].endswith("a paragraph of more than 1 MiB")
    assert found[8].endswith("a line of more than 1 MiB")
    read, kept = left(folder)
    assert [name for name, _ in kept] == ["in/k.txt", "in/l.txt.gz"]
    assert len(read.corpus.skipped) == 10
    assert read.corpus.documents == 2


def test_a_bad_range_of_a_large_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "RANGE_BYTES", 50)
    (folder / "a.txt").write_bytes(b"good\n\n" * 20 + b"bad\xff\n\n" + b"good\n\n" * 20 + b"bad\xff")
    (folder / "b.jsonl").write_text(jsonl([{"id": n % 11, "text": f"text {n}"} for n in range(13)]) + "bad\n")
    assert reasons(folder) == [
        "a.txt:41: not UTF-8 at byte 123, it seems to be cp1252",
        "b.jsonl:12: the id '0' (id) is also that of in/b.jsonl:1 (and 1 more such place)",
        "b.jsonl:14: not JSON: Expecting value: line 1 column 1 (char 0)",
    ]
    _, kept = left(folder)
    assert kept == [(str(number), f"text {number}") for number in range(11)]


def test_two_files_of_one_name_and_an_id_like_a_file(here: Path) -> None:
    for name in ("one/in/a.txt", "two/in/a.txt"):
        Path(name).parent.mkdir(parents=True)
        Path(name).write_text("x", encoding="utf-8")
    Path("b.jsonl").write_text(jsonl([{"id": "in/a.txt", "text": "y"}]), encoding="utf-8")
    Path("in").mkdir()
    Path("in/a.txt").write_bytes(b"\xff")
    bad = ["in/a.txt:1: not UTF-8 at byte 0, it seems to be cp1252"]
    assert reasons(here, "in", "b.jsonl") == bad, "a bad file has no id"
    found = reasons(here, "one/in", "two/in", "b.jsonl")
    assert found == [
        "two/in/a.txt: one/in/a.txt has the same name: name the folders above them",
        "b.jsonl:1: the id 'in/a.txt' (id) is also that of in/a.txt",
    ]


def test_an_id_like_that_of_a_document_without_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "RANGE_BYTES", 50)
    documents: list[dict[str, object]] = [
        {"text": "x"},
        {"id": "in/c.jsonl:9", "text": "z"},
        {"id": "", "text": "an empty id is none"},
    ]
    (folder / "c.jsonl").write_text(jsonl([*documents, {"id": "in/c.jsonl:1", "text": "y"}]))
    (folder / "d.jsonl").write_text(jsonl([{"id": "in/c.jsonl:3", "text": "of another file"}]))
    assert reasons(folder) == [
        "c.jsonl:4: the id 'in/c.jsonl:1' (id) is also that of in/c.jsonl:1",
        "d.jsonl:1: the id 'in/c.jsonl:3' (id) is also that of in/c.jsonl:3",
    ]
    _, kept = left(folder)
    assert [name for name, _ in kept] == ["in/c.jsonl:1", "in/c.jsonl:9", "in/c.jsonl:3"]


def test_a_long_paragraph_wherever_it_lies(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "LONGEST_BYTES", 2**20)
    long = b"word " * (2**18 - 2)  # 1.25 MiB
    for name, before, after in [
        ("a", b"", b"\n\nz"),
        ("b", b"a\n\n" * 2**19, b"\n\nz" * 2**19),
        ("c", b"a\n\n", b""),
    ]:
        (folder / f"{name}.txt").write_bytes(before + long + after)
    (folder / "d.txt").write_bytes(b"a\n\n" + b"w" * (2**20 - 1) + b"\n\nz")
    assert reasons(folder) == [f"{name}.txt: a paragraph of more than 1 MiB" for name in "abc"]


def test_jsonl_with_a_bom_and_blank_lines(folder: Path) -> None:
    (folder / "a.jsonl").write_bytes(b'\xef\xbb\xbf\n\n{"text": "one"}\n \n\n{"text": "two"}\n\n')
    (folder / "b.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "three"}\r\n\r\n')
    (folder / "c.jsonl").write_bytes(b'\xef\xbb\xbf\r\n{"text": "four"}')
    read, kept = left(folder)
    assert kept == [
        ("in/a.jsonl:3", "one"),
        ("in/a.jsonl:6", "two"),
        ("in/b.jsonl:1", "three"),
        ("in/c.jsonl:2", "four"),
    ]
    assert read.corpus.skipped == ()


def test_a_file_that_cannot_be_read_or_grows(folder: Path) -> None:
    (folder / "a.txt").write_text("x", encoding="utf-8")
    (folder / "b.txt").write_text("y", encoding="utf-8")
    found = find_sources([str(folder)])
    (folder / "a.txt").unlink()
    (folder / "b.txt").write_text("longer", encoding="utf-8")
    with pytest.raises(JobkitError) as caught:
        scan(found)
    assert "a.txt: cannot be read: No such file or directory" in caught.value.message
    assert "b.txt: the file changed while jobkit read it: 1 bytes, then 6" in caught.value.message
    assert "--skip-bad" in caught.value.hint


def test_long_lists_are_cut_and_no_corpus_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.jsonl").write_text("x\n" * 5, encoding="utf-8")
    for number in range(30):
        (folder / f"{number}.csv").write_text("letter,words\n1,x\n", encoding="utf-8")
    assert [line.partition(": ")[0] for line in reasons(folder)] == ["0.csv", "a.jsonl:1"]
    assert reasons(folder)[0].endswith("(and 29 more such places in 29 other files too)")
    monkeypatch.setattr(scanning, "_SHOWN", 1)
    assert reasons(folder)[-1] == "and 1 kinds more"
    monkeypatch.setattr(scanning, "MOST_BAD", 3)
    with pytest.raises(JobkitError, match=r"more than 3 places(.|\n)*no column text") as caught:
        scan(find_sources([str(folder)]))
    assert "--text-field FILE=NAME" in caught.value.hint
    for path in folder.glob("*.csv"):
        path.unlink()
    (folder / "a.jsonl").write_text("\n \n", encoding="utf-8")
    with pytest.raises(JobkitError, match="no paragraph"):
        scan(find_sources([str(folder)]))


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 330454481\n"


def test_a_git_lfs_pointer_is_refused_in_every_format(folder: Path) -> None:
    names = ("a.txt", "b.jsonl", "c.csv", "d.parquet", "e.feather", "f.txt.gz", "g.json.gz", "h.zst")
    for name in names:
        (folder / name).write_bytes(POINTER)
    assert reasons(folder) == [f"{name}: a git-lfs pointer in place of the file" for name in names]
    with pytest.raises(JobkitError) as caught:
        scan(find_sources([str(folder)]))
    assert "git lfs pull" in caught.value.hint


def test_archives_whose_first_bytes_are_json_lines(folder: Path) -> None:
    """An id such as that of their documents without one is doubled, as of other JSONL."""
    line = json.dumps({"body": "one " * 30_000, "name": "t1"}).encode() + b"\n"
    (folder / "a.json.gz").write_bytes(gzip.compress(line))
    (folder / "RC_2019-04.zst").write_bytes(zstandard.compress(line * 2))
    (folder / "b.json").write_bytes(b'{"body": "named alone"}\n')
    (folder / "pretty.json.gz").write_bytes(gzip.compress(b'{\n "text": "x"}\n'))
    (folder / "c.bz2").write_bytes(b"broken")
    found = find_sources([str(folder)])
    assert [(one.name, one.kind) for one in found.files] == [
        ("in/RC_2019-04.zst", "jsonl"),
        ("in/a.json.gz", "jsonl"),
    ]
    assert found.unread == ("in/b.json", "in/c.bz2", "in/pretty.json.gz")
    _, kept = left(folder)
    assert [name for name, _ in kept] == ["in/RC_2019-04.zst:1", "in/RC_2019-04.zst:2", "in/a.json.gz:1"]
    assert scan(find_sources([str(folder / "b.json")])).corpus.documents == 1
    with pytest.raises(JobkitError, match="jq -c"):
        find_sources([str(folder / "pretty.json.gz")])
    (folder / "d.jsonl").write_text(jsonl([{"id": "in/RC_2019-04.zst:2", "text": "x"}]), encoding="utf-8")
    assert reasons(folder) == [
        "d.jsonl:1: the id 'in/RC_2019-04.zst:2' (id) is also that of in/RC_2019-04.zst:2"
    ]


def fields_of(folder: Path, **asked: str) -> dict[str, str]:
    """Return by file the ids of its documents, after a text."""
    run = folder.parent / f"run-{len([*folder.parent.iterdir()])}"
    run.mkdir()
    found = read_all(run, plan(run, scan(find_sources([str(folder)]), **asked), 2))  # type: ignore[arg-type]
    return {one.text.strip(): one.document for one in found}


def test_fields_of_mixed_files(folder: Path) -> None:
    (folder / "a.csv").write_text("letter_id,transcription,note\nL1,one,x\nL2,two,y\n", encoding="utf-8")
    (folder / "b.jsonl").write_text(
        jsonl([{"doc_id": 1, "chunk_id": f"c{n}", "chunk": f"chunk {n}"} for n in range(2)]), encoding="utf-8"
    )
    (folder / "c.jsonl").write_text(jsonl([{"id": 5, "text": "five", "note": "n"}]), encoding="utf-8")
    usual = {"one": "L1", "two": "L2", "chunk 0": "c0", "chunk 1": "c1", "five": "5"}
    assert fields_of(folder) == usual
    assert fields_of(folder, text_field="chunk\ntext\n*.csv=transcription") == usual
    notes = {"x": "in/a.csv:2", "y": "in/a.csv:3", "chunk 0": "c0", "chunk 1": "c1", "n": "5"}
    assert fields_of(folder, text_field="note\nb.jsonl=chunk", id_field="in/a.csv=file-row") == notes
    assert fields_of(folder, id_field="c.jsonl=file-row") == {**usual, "five": "in/c.jsonl:1"}
    with pytest.raises(
        JobkitError, match=r"b.jsonl:1: no field 'note': it has doc_id, chunk_id, chunk \(and 1"
    ):
        fields_of(folder, text_field="note")


def test_ids_that_are_unique_in_a_file_only(folder: Path) -> None:
    """Of a guessed column they count for nothing; of a usual one the refusal names column and value."""
    for name in "ab":
        (folder / f"{name}.csv").write_text(f"page_id,text\n1,{name}1\n2,{name}2\n", encoding="utf-8")
    guessed = {"a1": "in/a.csv:2", "a2": "in/a.csv:3", "b1": "in/b.csv:2", "b2": "in/b.csv:3"}
    assert fields_of(folder) == guessed
    (folder / "c.jsonl").write_text(
        jsonl([{"doc_id": 1, "_id": {"$oid": n}, "text": f"c{n}"} for n in (1, 2)]), encoding="utf-8"
    )
    assert fields_of(folder) == {**guessed, "c1": "in/c.jsonl:1", "c2": "in/c.jsonl:2"}
    (folder / "c.jsonl").unlink()
    for path in folder.iterdir():
        path.write_text(path.read_text().replace("page_id", "id"), encoding="utf-8")
    with pytest.raises(JobkitError, match=r"b.csv:2: the id '1' \(id\) is also") as caught:
        fields_of(folder)
    assert "--id file-row" in caught.value.hint
    assert fields_of(folder, id_field="file-row") == guessed
