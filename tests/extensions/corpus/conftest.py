from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.applied import measured_run, request, write_corpus, write_planned


@pytest.fixture
def tagged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a corpus of three shards, of which none has begun; nothing runs."""
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "letters.txt")
    write_planned(request(measured_run(tmp_path / "run"), ["letters.txt"]))
    return tmp_path / "tagged"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"
