from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.extensions.corpus.sources import find_sources


def test_files_and_folders_in_the_order_of_the_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b/z.txt", "b/a/x.jsonl.gz", "b/a/notes.md", "b/.hidden.txt", "b/.git/y.txt", "own.text"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("x", encoding="utf-8")
    found = find_sources(["own.text", "b/"])
    assert [one.name for one in found] == ["own.text", "b/a/x.jsonl.gz", "b/z.txt"]
    assert [one.path for one in found] == [str(tmp_path / one.name) for one in found]
    assert [(one.kind, one.compression) for one in found] == [("text", ""), ("jsonl", "gz"), ("text", "")]
    assert {one.size_bytes for one in found} == {1}
    assert [one.name for one in find_sources([str(tmp_path / "b")])] == ["b/a/x.jsonl.gz", "b/z.txt"]


def test_zst_is_known_by_its_ending(tmp_path: Path) -> None:
    (tmp_path / "a.txt.zst").touch()
    assert find_sources([str(tmp_path)])[0].compression == "zst"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("-", "standard input cannot be read a second time"),
        ("/dev/stdin", "standard input cannot be read a second time"),
        ("missing.txt", "No such file"),
        ("fifo", "neither a file nor a folder"),
        ("empty", "a folder without a .txt or .jsonl file"),
    ],
)
def test_what_is_refused(path: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    Path("empty").mkdir()
    with pytest.raises(JobkitError, match=reason) as caught:
        find_sources([path])
    assert caught.value.hint


def test_no_path_and_one_given_twice(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    with pytest.raises(JobkitError, match="no corpus"):
        find_sources([])
    with pytest.raises(JobkitError, match="given twice"):
        find_sources([str(tmp_path), str(tmp_path / "a.txt")])
