from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.answers.ledger import CorpusEntry, Entry, corpora, corpus_summary, entries, note, subject, summary
from tests.support.builders import MODEL, point, record, with_shortcuts

ENTRY = Entry(
    at="2026-01-02T10:16:30+00:00",
    run_id="demo-1",
    index=6,
    workload="stanza-ner",
    model=MODEL.fingerprint,
    gpu="NVIDIA H200",
    torch="2.5.0",
    cuda="12.4",
    allocator=None,
    order="load",
    batch_size=300,
    load=90_000,
    capacity_bytes=16e9,
    expected_bytes=15e9,
    bound_bytes=15.9e9,
    measured_bytes=15_000_000_000,
    outcome="ok",
    held=True,
)

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


def told(known: list[Entry]) -> str | None:
    return summary(known, replace(record(point()), versions={"torch": "2.5.0", "cuda": "12.4"}))


def test_an_entry_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "data" / "jobkit" / "ledger.jsonl"
    assert entries(path) == []
    for one in (ENTRY, ENTRY, replace(ENTRY, index=7), replace(ENTRY, run_id="demo-2")):
        note(path, one)
    assert len(path.read_text(encoding="utf-8").splitlines()) == 3
    assert entries(path) == [ENTRY, replace(ENTRY, index=7), replace(ENTRY, run_id="demo-2")]


def test_a_ledger_that_cannot_be_written_does_no_harm_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    note(tmp_path / "file" / "ledger.jsonl", ENTRY)
    assert f"not written: {tmp_path}/file: File exists" in capsys.readouterr().err.replace(
        "/ledger.jsonl", ""
    )
    (tmp_path / "folder").mkdir()
    note(tmp_path / "folder", ENTRY)
    assert entries(tmp_path / "folder") == []


def test_a_spoilt_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"at": 3}\nnonsense\n[]\n', encoding="utf-8")
    note(path, ENTRY)
    assert entries(path) == [ENTRY]


def test_what_became_of_the_predictions_of_a_kind() -> None:
    assert told([]) is None
    others = [
        replace(ENTRY, **of)
        for of in ({"gpu": "NVIDIA A40"}, {"model": None}, {"workload": "count"}, {"precision": "bf16"})
    ]
    assert told(others) is None
    assert told([ENTRY]) == "1 prediction, 0 unsafe, worst 0.0 %, 0 above the bound"
    over = replace(ENTRY, expected_bytes=15.285e9)
    failed = replace(ENTRY, measured_bytes=None, held=False)
    assert told([ENTRY, over, failed]) == "3 predictions, 1 unsafe, worst 1.9 %, 1 above its bound"
    assert told([failed]) == "1 prediction, 1 unsafe, 1 above its bound"
    lucky = replace(ENTRY, capacity_bytes=80e9, measured_bytes=16_000_000_000)
    assert told([lucky, failed]) == "2 predictions, 1 unsafe, worst 6.2 %, 2 above the bound"


def test_a_prediction_with_shortcuts_shows_nothing_about_those_without() -> None:
    versions = {"torch": "2.5.0", "cuda": "12.4"}
    plain = replace(record(point()), versions=versions)
    exact, refused = with_shortcuts(plain), with_shortcuts(plain, "why")
    entry = replace(ENTRY, shortcuts="exact")
    assert [subject(one)["shortcuts"] for one in (plain, exact, refused)] == [None, "exact", None]
    assert summary([entry], exact)
    assert summary([entry], refused) == summary([entry], plain) is None
    assert summary([ENTRY], refused) == summary([ENTRY], plain)
    assert summary([ENTRY], exact) is None


def test_memory_and_time_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    for one in (ENTRY, CORPUS, replace(CORPUS, took_s=300.0), replace(CORPUS, run_id="demo-10")):
        note(path, one)
    assert entries(path) == [ENTRY]
    assert corpora(path) == [CORPUS, replace(CORPUS, run_id="demo-10")]


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
