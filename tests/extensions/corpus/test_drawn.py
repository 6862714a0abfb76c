"""``text:`` of a spec takes what a corpus takes: a folder, tables, archives; all of it, or a part drawn."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from jobkit.core.errors import JobkitError
from jobkit.core.records import TextRef
from jobkit.extensions.corpus import drawn
from jobkit.planning.texts import find_text, is_sample, paragraphs_of
from jobkit.worker.paragraphs import read_paragraphs
from tests.support.corpora import jsonl


def found(name: str, here: Path, number: int | None = None, seed: int = 0, *, write: bool = True) -> TextRef:
    return find_text(name, base=here, cache=here / "cache", write=write, number=number, seed=seed)


@pytest.fixture
def corpus(here: Path) -> Path:
    """Return a folder of five kinds of file, with 2 + 40 + 20 + 2 + 4 paragraphs."""
    folder = here / "in"
    folder.mkdir()
    (folder / "a.txt").write_bytes("\ufeffOne\r\n lines.\r\n\r\nTwo".encode())
    (folder / "b.jsonl").write_text(jsonl([{"body": f"b{n}\n\nc{n}\n"} for n in range(20)]), encoding="utf-8")
    parquet.write_table(
        pa.table({"content": [f"p{n}" for n in range(20)]}), folder / "c.parquet", row_group_size=3
    )
    (folder / "d.csv").write_text('text,n\n"x\n\ny",1\n', encoding="utf-8")
    (folder / "e.json.gz").write_bytes(gzip.compress(jsonl([{"text": f"e{n}"} for n in range(4)]).encode()))
    return folder


def test_all_paragraphs_of_a_folder_and_of_each_kind_of_file(corpus: Path, here: Path) -> None:
    text = found("in", here, write=False)
    paragraphs = paragraphs_of(text)
    assert text.name == "in"
    assert Path(text.path).parent == here / "cache" / "texts"
    assert not is_sample(text)
    assert paragraphs[:3] == ["One\n lines.\n", "Two\n", "b0\n"]
    assert len(paragraphs) == 68
    for name, number in (("b.jsonl", 40), ("c.parquet", 20), ("d.csv", 2), ("e.json.gz", 4)):
        assert len(paragraphs_of(found(f"in/{name}", here))) == number
    assert found("in/a.txt", here).path == str(corpus / "a.txt")


def test_a_draw_is_the_same_for_a_seed_and_over_all_files(corpus: Path, here: Path) -> None:
    whole = paragraphs_of(found("in", here))
    first, again = (found("in", here, 34) for _ in range(2))
    assert first == again
    assert first.name == "in: 34 drawn, seed 0"
    some = read_paragraphs(Path(first.path))
    assert len(some) == len(set(some)) == 34
    assert some == [paragraph for paragraph in whole if paragraph in set(some)]
    assert {paragraph[0] for paragraph in some} >= {"b", "c", "p"}
    others = {found("in", here, 34, seed=1).sha256, found("in", here, 33).sha256, first.sha256}
    assert len(others) == 3
    (corpus / "b.jsonl").unlink()
    (corpus / "c.parquet").unlink()
    assert set(paragraphs_of(found("in", here, 4))) < {*whole}
    os.rename(corpus / "a.txt", here / "letters")  # noqa: PTH104 - a name without an ending
    assert paragraphs_of(found("letters", here, 2)) == whole[:2]


def test_what_is_no_text_is_refused(corpus: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str, number: int | None = None) -> JobkitError:
        with pytest.raises(JobkitError) as caught:
            found(name, here, number)
        assert "--corpus" not in str(caught.value)
        assert " --skip-bad" not in str(caught.value).replace(
            "apply --skip-bad does", ""
        )  # no option of a sweep
        return caught.value

    assert refused("sample", 9).hint.endswith("text: sample:9")
    assert "has 4 paragraphs, not 5" in refused("in/e.json.gz", 5).message
    (here / "pointer.txt").write_text("version https://git-lfs.github.com/spec/v1\n", encoding="utf-8")
    assert refused("pointer.txt").hint == "git lfs pull"
    (here / "empty").mkdir()
    assert "a folder without a file that is read" in refused("empty").message
    monkeypatch.setattr(drawn, "MOST_BYTES", 100)
    assert refused("in").hint.startswith("text_sample: 1000")
    assert len(paragraphs_of(found("in", here, 5))) == 5
    (corpus / "f.csv").write_text("words\nx\n", encoding="utf-8")
    assert "a column of text has one of the names text," in refused("in", 5).hint
