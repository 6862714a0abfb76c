"""A corpus as it is reported: its answer, its page, and what is known of it at its end."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import yaml

import jobkit
from jobkit.core.blocks import as_text
from jobkit.core.layout import PLAN_FILE, WINNERS_FOLDER
from jobkit.core.paths import ledger_path
from jobkit.extensions.corpus import page as corpus_report
from jobkit.extensions.corpus.ledger import corpora
from jobkit.extensions.corpus.merge import merge
from jobkit.extensions.corpus.page import read_corpus_report
from jobkit.extensions.corpus.provenance import bibtex, closing_line, methods, read_promise
from jobkit.extensions.corpus.standing import finish
from jobkit.report.page import page
from tests.report.test_page import Parsed
from tests.support.applied import win


def test_before_a_shard_is_done_there_is_no_promise_to_compare_and_no_picture(tagged: Path) -> None:
    said = as_text(corpus_report.answer(read_corpus_report(tagged)))
    assert "3 of 3 shards not done" in said
    assert "promise" not in said
    assert "<svg" not in page([tagged]).html


def test_a_corpus_that_is_done_is_counted_by_document_once_it_is_merged(tagged: Path) -> None:
    win(tagged, 1, 2, 3)
    found = read_corpus_report(tagged)
    assert found.title == "done, 3 shards"
    assert "60 of 60 paragraphs of 1 document are done." in as_text(corpus_report.answer(found))
    assert "jobkit merge tagged" in as_text(corpus_report.answer(found))
    assert "file" in as_text([corpus_report.count_block(found)])
    merge(tagged, tagged / "merged.jsonl")
    found = read_corpus_report(tagged)
    rows = sum(one.rows for one in found.counts)
    cells = [column.cells for column in corpus_report.count_block(found).columns]
    assert cells == [["letters.txt"], ["60"], [str(rows)]]
    assert rows == found.data["rows"]
    (by_label,) = corpus_report.result_blocks(found)
    assert [column.cells[0] for column in by_label.columns] == ["word", "291"]
    assert len(by_label.columns[0].cells) == 20


def test_damaged_lines_are_notes(tagged: Path) -> None:
    win(tagged, 1, 2, 3)
    merge(tagged, tagged / "merged.jsonl")
    counts = tagged / "merged.documents.jsonl"
    counts.write_text(counts.read_text(encoding="utf-8") + '{"document": "b"}\n[\n', encoding="utf-8")
    first, *others = (tagged / PLAN_FILE).read_text(encoding="utf-8").splitlines()
    (tagged / PLAN_FILE).write_text("\n".join([first[:40], *others, ""]), encoding="utf-8")
    found = read_corpus_report(tagged)
    assert [one.document for one in found.counts] == ["letters.txt"]
    assert any("cannot read the plan of shard-00001" in note for note in found.notes)
    assert any("merged.documents.jsonl" in note for note in found.notes)
    assert "over 2 shards" in as_text(corpus_report.answer(found))
    (winner,) = (tagged / WINNERS_FOLDER).glob("shard-00002*")
    winner.write_text("{", encoding="utf-8")
    found = read_corpus_report(tagged)
    assert found.data["shards"] == 1
    assert any("has not claimed shard-00002" in note for note in found.notes)


def test_the_citation_is_the_same_everywhere() -> None:
    root = Path(__file__).parents[3]
    cited = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = project["name"], project["description"], project["license"]
    assert (cited["title"], cited["abstract"], cited["license"]) == known
    (author,) = cited["authors"]
    assert f"Copyright (c) 2026 {author['name']}" in (root / "LICENSE").read_text(encoding="utf-8")
    entry = bibtex({"versions": {"jobkit": ["1.0"]}})
    assert (entry[:9], entry[-1], "{1.0}" in entry) == ("@software", "}", True)
    assert f"{{{{{author['name']}}}}}" in entry
    assert all(cited.get(key, "") in entry for key in ("url", "repository-code", "doi"))


def test_what_a_methods_section_needs_is_written_once_when_the_last_shard_is_done(
    tagged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBKIT_LEDGER", str(tagged.parent / "ledger.jsonl"))
    path = tagged / "provenance.json"
    win(tagged, 1, 2)
    assert (finish(tagged), path.exists()) == ({}, False)
    win(tagged, 3)
    data, text = finish(tagged), path.read_text()
    assert closing_line(data).startswith("60 paragraphs of 1 file are done, ")
    assert (finish(tagged), path.read_text(), json.loads(text)) == (data, text, data)
    setting, time = data["setting"], data["time"]
    assert (setting["batch_size"], setting["source"]) == (50, "from run")
    assert (data["shards"], data["tries"], data["workload"]) == (3, 3, "count")
    (source,) = data["corpus"]["files"]
    assert (source["name"], len(source["sha256"])) == ("letters.txt", 64)
    assert time["predicted_low_s"] <= time["predicted_s"] <= time["predicted_high_s"]
    assert data["versions"]
    assert data["energy"] == {"joules": None, "predicted_j": None, "shards_without_joules": 3}
    assert read_promise(tagged.parent / "elsewhere").speed is None
    [entry] = corpora(ledger_path())
    assert (entry.run_id, entry.paragraphs, entry.shards) == (data["run"], 60, 3)
    assert (entry.expected_s, entry.took_s) == (time["predicted_s"], time["took_s"])
    assert jobkit.load(tagged).frame[["outcome", "tries"]].to_numpy().tolist() == [["ok", 1]] * 3
    assert methods(data).startswith("We processed 60 paragraphs (")
    assert "with the workload count under jobkit " in methods(data)
    assert "Nothing is left out. " in methods(data)
    read_as = {**source, "encoding": "cp1252", "columns": {"text": "letter"}}
    assert "(letters.txt, column letter, cp1252)" in methods(
        {**data, "corpus": {**data["corpus"], "files": [read_as]}}
    )
    assert methods(data) in Parsed(page([tagged]).html).words
    model = {
        "name": "en",
        "size": "full",
        "sha256": "0" * 64,
        "caveat": "STAND-IN model, in place of en full",
    }
    lacking = {**data["corpus"], "left_out": [{}], "not_read": ["a", "b"], "quarantined": 3, "empty": 2}
    ner = {"workload": "stanza-ner", "versions": {"stanza": ["1"]}}
    said = methods({**data, **ner, "model": model, "corpus": lacking})
    assert "qi2020stanza" in bibtex(ner)
    for part in (
        "model en full (SHA-256 0000",
        "1 place that",
        "57 of 60 paragraphs",
        "named entities",
        "2 documents without text",
        "3 paragraphs in quarantine",
        "2 files of",
        "STAND-IN",
    ):
        assert part in said
    assert entry.held == (closing_line(data).find("outside") < 0)
