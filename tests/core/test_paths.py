from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.records import ModelRef
from jobkit.planning.models import fetch
from jobkit.planning.standin import make_stand_in
from jobkit.planning.texts import find_text, text_lengths


@pytest.fixture
def in_the_way(tmp_path: Path) -> Path:
    """Return a cache folder that cannot be made: root may write in any folder, but not in a file."""
    path = tmp_path / "cache"
    path.write_text("a file", encoding="utf-8")
    return path


@pytest.mark.slow
def test_whatever_needs_the_cache_says_so(in_the_way: Path) -> None:
    for need in (
        lambda: find_text("sample:9", base=in_the_way.parent, cache=in_the_way),
        lambda: find_text("http://localhost:9/x", base=in_the_way.parent, cache=in_the_way),
        lambda: make_stand_in("stanza-ner", "tiny", in_the_way, say=print),
        lambda: fetch("en", in_the_way, None, say=print),
    ):
        with pytest.raises(JobkitError, match="cannot be written") as caught:
            need()
        assert "JOBKIT_CACHE" in caught.value.hint


def test_lengths_that_cannot_be_kept_are_found_all_the_same(
    in_the_way: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ModelRef(path="/m", name="en", size="tiny", stand_in=True, fingerprint="f", size_bytes=1)
    monkeypatch.setattr("jobkit.planning.texts.run_in_child", lambda *_, **__: [[1]] * 9)
    text = find_text("sample:9", base=tmp_path, cache=tmp_path / "other")
    said: list[str] = []
    found = text_lengths("stanza-ner", text, model, cache=in_the_way, say=said.append)
    assert len(found.paragraphs) == 9
    assert "could not keep the lengths" in said[-1]
    assert "JOBKIT_CACHE" in said[-1]
