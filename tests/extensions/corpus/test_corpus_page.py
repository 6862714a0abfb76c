"""The page of a corpus."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.extensions.corpus.corpus_page import MOST_TRIES, shard_picture
from jobkit.extensions.corpus.corpus_report import ShardTry, read_corpus_report
from jobkit.report.html.page import page
from tests.report.html.test_page import Parsed
from tests.support.applied import measured_run, request, win, write_corpus, write_planned


def test_a_corpus_has_its_own_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "a.txt")
    run = measured_run(tmp_path / "runs" / "demo-20260102-101530-3f9a")
    write_planned(request(run, ["a.txt"], tmp_path / "tagged"))
    assert "<svg" not in page([tmp_path / "tagged"]).html
    win(tmp_path / "tagged", 1, 2)
    parsed = Parsed(page([tmp_path / "tagged"]).html)
    assert parsed.open == []
    assert "tagged: 1 of 3 shards not done" in parsed.words
    assert len(parsed.all("svg")) == 1


def test_of_many_tries_about_400_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "a.txt")
    run = measured_run(tmp_path / "runs" / "demo-20260102-101530-3f9a")
    write_planned(request(run, ["a.txt"], tmp_path / "tagged"))
    found = read_corpus_report(tmp_path / "tagged")
    tries = [
        ShardTry(name=f"{n}", began_s=n, ended_s=n + 9.0 if n % 7 else None, outcome="ok")
        for n in range(2_000)
    ]
    picture = shard_picture(tries, found)
    assert picture.svg.count("<title>") == MOST_TRIES
    assert "One of every 5 tries is drawn." in picture.caption
