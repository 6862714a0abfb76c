from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.layout import CORPUS_FILE, PLAN_FILE
from jobkit.extensions.corpus import scan as tasks
from jobkit.extensions.corpus.plan import Shard, append_shards, read_corpus, read_planned
from jobkit.extensions.corpus.reading import Paragraph, given_offset, read_shard
from jobkit.extensions.corpus.scan import scan
from jobkit.extensions.corpus.sources import find_sources
from tests.support.corpora import jsonl, plan


def test_offsets_are_into_the_document_as_given() -> None:
    paragraph = Paragraph("d", 0, "a\nb\nc", 10, (1, 3))
    assert [given_offset(paragraph, at) for at in range(6)] == [10, 11, 13, 14, 16, 17]


def yielded(paragraphs: Iterator[Paragraph]) -> tuple[int, JobkitError]:
    """Return how many paragraphs come before the error."""
    found: list[Paragraph] = []
    with pytest.raises(JobkitError) as caught:
        found.extend(paragraphs)
    return len(found), caught.value


@pytest.mark.parametrize("packed", [False, True])
def test_nothing_of_a_changed_piece_is_read(tmp_path: Path, packed: bool) -> None:  # noqa: FBT001
    data = b"".join(b"Paragraph %d\n\n" % number for number in range(9))
    path = tmp_path / ("a.txt.gz" if packed else "a.txt")
    write = gzip.compress if packed else bytes
    path.write_bytes(write(data))
    plan(tmp_path, scan(find_sources([str(path)])), 1)
    path.write_bytes(write(data.replace(b"6", b"x")))
    number, error = yielded(read_shard(tmp_path, 1))
    assert number == 6
    assert f"{path}: bytes 78 to 90: changed since the corpus was planned" in error.message
    assert error.hint
    path.write_bytes(write(data[:40]))
    assert yielded(read_shard(tmp_path, 1))[0] == 3
    path.write_bytes(write(data)[:30])
    assert ("the archive ends early" if packed else "changed") in yielded(read_shard(tmp_path, 1))[1].message
    path.unlink()
    assert "No such file" in yielded(read_shard(tmp_path, 1))[1].message


def test_a_long_document_is_cut_between_paragraphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "piece_bytes", lambda _: 60)
    texts = ["short", "\r\n\r\n".join(f"A paragraph {n}" for n in range(7)), "", "last"]
    (tmp_path / "a.jsonl").write_text(jsonl([{"id": n, "text": text} for n, text in enumerate(texts)]))
    read = scan(find_sources([str(tmp_path / "a.jsonl")]))
    assert [piece.skip for piece in read.pieces] == [0, 0, 2, 4, 6, 0]
    shards = plan(tmp_path, read, 6)
    found = [paragraph for shard in shards for paragraph in read_shard(tmp_path, shard.index)]
    assert [(one.document, one.number) for one in found] == [
        ("0", 0),
        *(("1", n) for n in range(7)),
        ("3", 0),
    ]
    assert [one.offset for one in found if one.document == "1"] == [n * 17 for n in range(7)]
    together = list(read_shard(tmp_path, 3))
    append_shards(tmp_path, [Shard(index=7, pieces=(read.pieces[2], read.pieces[4]), load=1)])
    again = list(read_shard(tmp_path, 7))
    assert [one._replace(piece=0) for one in again[:2]] == together
    assert [one.piece for one in again] == [0, 0, 1]


def test_a_folder_that_is_no_apply(tmp_path: Path) -> None:
    for call in (lambda: read_corpus(tmp_path), lambda: read_planned(tmp_path, 1)):
        with pytest.raises(JobkitError, match="No such file") as caught:
            call()
        assert "jobkit apply" in caught.value.hint
    (tmp_path / CORPUS_FILE).write_text("{}")
    (tmp_path / PLAN_FILE).write_text("")
    with pytest.raises(JobkitError, match="not a Corpus"):
        read_corpus(tmp_path)
    with pytest.raises(JobkitError, match="no shard 1"):
        read_planned(tmp_path, 1)


def test_a_plan_of_another_version_is_an_error_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    read = scan(find_sources([str(tmp_path / "a.jsonl")]))
    plan(tmp_path, replace(read, corpus=replace(read.corpus, text_field="body")), 1)
    assert "a.jsonl:1: no field 'body'" in yielded(read_shard(tmp_path, 1))[1].message
