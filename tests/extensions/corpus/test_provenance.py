"""What is known of a corpus at its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobkit.answers.ledger import corpora
from jobkit.core.paths import LEDGER_VARIABLE, ledger_path
from jobkit.extensions.corpus.provenance import closing_line, finish, read_promise
from tests.support.applied import measured_run, request, win, write_corpus, write_planned


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "letters.txt")
    write_planned(request(measured_run(tmp_path / "run"), ["letters.txt"], tmp_path / "tagged", shards=3))
    return tmp_path / "tagged"


def test_it_is_written_when_the_last_shard_is_done_and_once(run: Path) -> None:
    win(run, 1, 2)
    assert (finish(run), (run / "provenance.json").exists()) == ("", False)
    win(run, 3)
    said = finish(run)
    assert said.startswith("60 paragraphs of 1 file are done, ")
    text = (run / "provenance.json").read_text()
    (run / "winners").rename(run / "kept")
    (run / "kept").rename(run / "winners")
    assert finish(run) == said
    assert (run / "provenance.json").read_text() == text


def test_the_ledger_gets_the_time_of_a_corpus_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEDGER_VARIABLE, str(run.parent / "ledger.jsonl"))
    win(run, 1, 2, 3)
    finish(run)
    finish(run)
    [entry] = corpora(ledger_path())
    data = json.loads((run / "provenance.json").read_text())
    assert (entry.run_id, entry.paragraphs, entry.shards) == (data["run"], 60, 3)
    assert (entry.expected_s, entry.took_s) == (data["time"]["predicted_s"], data["time"]["took_s"])
    assert entry.held == (closing_line(data).find("outside") < 0)


def test_it_has_what_a_methods_section_needs(run: Path) -> None:
    win(run, 1, 2, 3)
    finish(run)
    data = json.loads((run / "provenance.json").read_text())
    assert data["setting"]["batch_size"] == 50
    assert data["setting"]["source"] == "from run"
    assert (data["shards"], data["tries"], data["workload"]) == (3, 3, "count")
    (source,) = data["corpus"]["files"]
    assert (source["name"], len(source["sha256"])) == ("letters.txt", 64)
    assert data["time"]["predicted_low_s"] <= data["time"]["predicted_s"] <= data["time"]["predicted_high_s"]
    assert data["versions"]
    assert data["energy"] == {"joules": None, "predicted_j": None, "shards_without_joules": 3}


def test_the_promise_is_what_was_measured(run: Path) -> None:
    promise = read_promise(run)
    assert promise.speed
    assert (promise.speed.repeats, promise.energy) == (3, None)
    assert read_promise(run / "elsewhere").speed is None
