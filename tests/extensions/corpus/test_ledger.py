from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.extensions.corpus.ledger import CorpusEntry, corpora, corpus_summary, note
from tests.support.builders import MODEL

CORPUS = CorpusEntry(
    at="2026-01-03T08:00:00+00:00",
    run_id="demo-9",
    workload="stanza-ner",
    model=MODEL.fingerprint,
    gpu="NVIDIA H200",
    paragraphs=528_600,
    shards=4,
    expected_s=250.0,
    low_s=210.0,
    high_s=290.0,
    took_s=270.0,
)


OF_MEMORY = (
    '{"at": "2026-01-02T10:16:30+00:00", "run_id": "demo-1", "index": 6, "workload": "stanza-ner", '
    '"model": null, "gpu": null, "batch_size": 300, "load": 90000, "capacity_bytes": 16e9, "held": true}\n'
)
"""As an earlier version wrote it of a batch that was tried."""


def test_a_ledger_that_cannot_be_written_does_no_harm_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    note(tmp_path / "file" / "ledger.jsonl", CORPUS)
    assert f"not written: {tmp_path}/file: File exists" in capsys.readouterr().err.replace(
        "/ledger.jsonl", ""
    )
    (tmp_path / "folder").mkdir()
    note(tmp_path / "folder", CORPUS)
    assert corpora(tmp_path / "folder") == []


def test_an_entry_is_written_once_behind_lines_that_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "data" / "jobkit" / "ledger.jsonl"
    assert corpora(path) == []
    for one in (CORPUS, replace(CORPUS, took_s=300.0), replace(CORPUS, run_id="demo-10")):
        note(path, one)
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) == 2
    path.write_text(f'{{"at": 3}}\nnonsense\n[]\n{OF_MEMORY}{text}', encoding="utf-8")
    note(path, CORPUS)
    assert corpora(path) == [CORPUS, replace(CORPUS, run_id="demo-10")]
    assert path.read_text(encoding="utf-8").endswith(f"{OF_MEMORY}{text}")


def test_how_long_earlier_corpora_took() -> None:
    long = replace(CORPUS, took_s=300.0)
    quick = replace(CORPUS, took_s=175.0)

    def words(*known: CorpusEntry) -> str | None:
        return corpus_summary(known, "stanza-ner", MODEL.fingerprint)

    assert words() is None
    assert words(replace(CORPUS, workload="count"), replace(CORPUS, model=None)) is None
    assert (CORPUS.held, long.held, quick.held) == (True, False, False)
    one = "1 corpus with this model, 0 outside of the interval, at worst 8 % longer than predicted"
    three = "3 corpora with this model, 2 outside of the interval, at worst 30 % shorter than predicted"
    assert (words(CORPUS), words(CORPUS, long, quick)) == (one, three)
