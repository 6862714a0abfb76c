from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.json_codec import from_json
from jobkit.extensions.corpus.plan import Rows
from jobkit.extensions.corpus.reading import Paragraph
from jobkit.extensions.corpus.rows import RowsWriter

PARAGRAPH = Paragraph("a.txt", 4, "One\ntwo\n", 100, (3,), piece=2)


def test_rows_have_offsets_into_the_document_and_a_manifest(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with RowsWriter(path, ("text", "start", "end")) as writer:
        writer.write(PARAGRAPH, ("One", 0, 3))
        writer.write(PARAGRAPH, ("tw\ud800", 4, None))
        rows = writer.close(17)
    first, second = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert first == {"document": "a.txt", "paragraph": 4, "text": "One", "start": 100, "end": 103}
    assert (second["start"], second["end"]) == (105, None)
    assert rows.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (rows.rows, rows.paragraphs, rows.size_bytes) == (2, 17, path.stat().st_size)
    assert rows.types == ("str", "int", "int null")
    assert rows.pieces == (0, 0, rows.size_bytes)
    assert from_json(Rows, (tmp_path / "rows.json").read_text(), where="rows.json") == rows


def test_no_manifest_stays_of_an_earlier_process_or_of_one_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with RowsWriter(path, ("text",)) as writer:
        writer.close(0)
    assert (tmp_path / "rows.json").exists()
    with pytest.raises(ValueError, match="argument"), RowsWriter(path, ("text",)) as writer:
        writer.write(PARAGRAPH, ())
    assert not (tmp_path / "rows.json").exists()


@pytest.mark.parametrize("columns", [("paragraph",), ("a", "a")])
def test_a_column_is_named_once(tmp_path: Path, columns: tuple[str, ...]) -> None:
    with pytest.raises(JobkitError, match="each name once"):
        RowsWriter(tmp_path / "rows.jsonl", columns)


def test_an_empty_shard_has_a_manifest(tmp_path: Path) -> None:
    with RowsWriter(tmp_path / "rows.jsonl", ()) as writer:
        assert writer.close(3).rows == 0
    assert (tmp_path / "rows.jsonl").read_bytes() == b""
