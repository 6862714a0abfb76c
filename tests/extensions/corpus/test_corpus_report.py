from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.core.blocks import as_text
from jobkit.core.errors import JobkitError
from jobkit.core.layout import PLAN_FILE, WINNERS_FOLDER, Exit
from jobkit.core.terminal import NoWrap
from jobkit.extensions.corpus import corpus_report
from jobkit.extensions.corpus.corpus_report import read_corpus_report
from jobkit.extensions.corpus.merge import merge
from jobkit.extensions.corpus.standing import live_points
from tests.support.applied import measured_run, request, win, write_corpus, write_planned
from tests.support.builders import write_begin, write_exit


@pytest.fixture
def tagged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a corpus of three shards, of which none has begun."""
    monkeypatch.chdir(tmp_path)
    run = measured_run(tmp_path / "runs" / "demo-20260102-101530-3f9a")
    write_corpus(tmp_path / "a.txt")
    write_planned(request(run, ["a.txt"], tmp_path / "tagged"))
    return tmp_path / "tagged"


def answer(run: Path) -> str:
    return as_text(corpus_report.answer(read_corpus_report(run)))


def test_a_promise_is_compared_once_a_shard_is_done(tagged: Path) -> None:
    assert "promised" not in answer(tagged)
    assert "3 of 3 shards not done" in answer(tagged)
    assert "jobkit status tagged" in answer(tagged)
    win(tagged, 1)
    said = answer(tagged)
    assert "2 of 3 shards not done" in said
    assert "The shards took " in said
    assert "times the promise, over 1 shard." in said


def test_a_corpus_that_is_done_is_counted_by_document_once_it_is_merged(tagged: Path) -> None:
    win(tagged, 1, 2, 3)
    found = read_corpus_report(tagged)
    assert found.title == "done, 3 shards"
    assert "60 of 60 paragraphs of 1 document are done." in as_text(corpus_report.answer(found))
    assert "jobkit merge tagged" in as_text(corpus_report.answer(found))
    assert "file" in as_text([corpus_report.count_block(found)])
    merge(tagged, tagged / "merged.jsonl")
    counted = corpus_report.count_block(read_corpus_report(tagged))
    rows = sum(one.rows for one in read_corpus_report(tagged).counts)
    assert [column.cells for column in counted.columns] == [["a.txt"], ["60"], [str(rows)]]
    assert rows == read_corpus_report(tagged).data["rows"]


def test_what_failed_has_its_reason_and_a_command(tagged: Path) -> None:
    point = live_points(tagged)[1]
    write_begin(tagged, point, at="2026-01-02T10:15:30+00:00")
    write_exit(tagged, point, Exit(status=1, stage="environment", message="no venv"))
    found = read_corpus_report(tagged)
    (block,) = corpus_report.failed(found)
    assert block.title == "1 shard environment: shard-00002"
    assert any("no venv" in line for line in block.before)
    assert any(isinstance(line, NoWrap) and "jobkit resume" in line for line in block.before)
    assert [one.outcome for one in corpus_report.tries(found)] == ["environment"]


def test_damaged_lines_are_notes(tagged: Path) -> None:
    win(tagged, 1, 2, 3)
    merge(tagged, tagged / "merged.jsonl")
    counts = tagged / "merged.documents.jsonl"
    counts.write_text(counts.read_text(encoding="utf-8") + '{"document": "b"}\n[\n', encoding="utf-8")
    first, *others = (tagged / PLAN_FILE).read_text(encoding="utf-8").splitlines()
    (tagged / PLAN_FILE).write_text("\n".join([first[:40], *others, ""]), encoding="utf-8")
    found = read_corpus_report(tagged)
    assert [one.document for one in found.counts] == ["a.txt"]
    assert any("the plan of shard-00001 cannot be read" in note for note in found.notes)
    assert any("merged.documents.jsonl" in note for note in found.notes)
    assert "over 2 shards" in as_text(corpus_report.answer(found))
    (winner,) = (tagged / WINNERS_FOLDER).glob("shard-00002*")
    winner.write_text("{", encoding="utf-8")
    found = read_corpus_report(tagged)
    assert found.data == {}
    assert any("compared with nothing" in note for note in found.notes)


def test_a_corpus_that_is_not_planned_has_no_report(tagged: Path) -> None:
    (tagged / "apply.json").write_text("{}", encoding="utf-8")
    (tagged / "points.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(JobkitError, match="not planned yet"):
        read_corpus_report(tagged)
