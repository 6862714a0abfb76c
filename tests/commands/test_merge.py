from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.layout import read_points
from jobkit.extensions.corpus.plan import read_corpus, read_plan, write_plan
from jobkit.extensions.corpus.scan import find_sources, scan
from tests.support.builders import record, write_record, write_submitted
from tests.support.commands import jobkit
from tests.support.corpora import plan, points_of, work
from tests.support.programs import Programs
from tests.support.programs import queue as queue  # noqa: PLC0414 - a fixture is found by its name here


@pytest.fixture
def run(here: Path) -> Path:
    (here / "a.txt").write_text("One two\n\nthree", encoding="utf-8")
    run = here / "tagged corpus"
    run.mkdir()
    points_of(run, plan(run, scan(find_sources(["a.txt"])), 2))
    work(run, 1)
    return run


def test_a_merge_is_reported_in_a_line_and_has_the_format_of_apply(run: Path) -> None:
    work(run, 2)
    done = jobkit("merge", run)
    assert done.stdout == "merged 3 rows of 2 paragraphs and 2 shards: tagged corpus/merged.jsonl\n"
    assert "\ndone: " in done.stderr
    assert len((run / "merged.jsonl").read_text().splitlines()) == 3
    data = json.loads(jobkit("merge", run, "--json").stdout)
    assert (data["outputs"], data["rows"], data["missing"]) == ([str(run / "merged.jsonl")], 3, {})
    assert data["notes"][-1] in done.stderr
    assert " ".join(data["methods"].split()) in " ".join(done.stderr.split())
    assert data["bibtex"] in done.stderr
    words = ("--format", "tsv", "--format", "parquet", "--with-text", "--output", "rows.tsv")
    done = jobkit("merge", "tagged corpus", *words)
    assert done.stdout.endswith(": rows.tsv, rows.parquet\n")
    assert Path("rows.tsv").read_text().endswith("\na.txt\t1\tthree\t9\t14\tthree\n")
    write_plan(run, replace(read_corpus(run), format="tsv"), read_plan(run))
    assert jobkit("merge", run).stdout.endswith("/merged.tsv\n")
    assert jobkit("merge", run, "--format", "jsonl").stdout.endswith("/merged.jsonl\n")


def test_a_report_of_a_corpus_says_what_is_next_until_it_is_merged(run: Path) -> None:
    assert "next: jobkit status 'tagged corpus'" in jobkit("report", run).stderr
    work(run, 2)
    for point in read_points(run)[0]:
        write_record(run, record(point))
    assert "next: jobkit merge 'tagged corpus'" in jobkit("report", run).stderr
    assert "next:" not in jobkit("merge", run).stderr + jobkit("report", run).stderr


def test_the_results_that_there_are_can_be_merged(run: Path) -> None:
    partial = json.loads(jobkit("merge", run, "--allow-missing", "--json").stdout)
    assert "1 shard has no result yet" in partial["notes"][0]
    assert partial["notes"][-1].startswith("missing: 1 paragraph of 1 document")
    done = jobkit("merge", run, "--allow-missing")
    assert (done.returncode, "missing: 1 paragraph of 1 document: a.txt" in done.stderr) == (5, True)
    assert len((run / "merged.partial.jsonl").read_text().splitlines()) == 2
    counts = json.loads((run / "merged.partial.documents.jsonl").read_text())
    assert counts == {"document": "a.txt", "paragraphs": 2, "rows": 2, "missing": 1}
    work(run, 2)
    assert jobkit("merge", run, "--allow-missing").returncode == 0
    assert "missing" not in (run / "merged.documents.jsonl").read_text()


def missing(run: Path, said: str, *options: str) -> str:
    """Return the hint of a merge that is refused because shards are missing."""
    done = jobkit("merge", run, *options)
    assert (done.returncode, said in done.stderr) == (5, True), done.stderr
    return " ".join(done.stderr.partition("hint: ")[2].split())


def test_what_is_missing_is_named_with_the_command_that_goes_on(run: Path) -> None:
    hint = missing(run, "1 shard has no result yet: shard-00002")
    assert hint == "jobkit resume 'tagged corpus'"


@pytest.mark.slow
def test_while_shards_run_the_hint_is_to_wait_and_to_resume_the_others(run: Path, queue: Programs) -> None:
    queue.holds("100_2|RUNNING|None|n1|0:10|N/A", name="t")
    write_submitted(run, "slurm", "100", first=1, last=2, round=1)
    hint = missing(run, "shard-00002")
    assert "jobkit resume" not in hint
    assert "jobkit status 'tagged corpus' --watch" in hint

    apart = run.with_name("apart")
    apart.mkdir()
    points_of(apart, plan(apart, scan(find_sources(["a.txt"])), 2))
    write_submitted(apart, "slurm", "100", first=2, last=2, round=1)
    hint = missing(apart, "2 shards have no result yet", "--allow-missing")
    assert hint.endswith("--watch follows them; for the other shards: jobkit resume apart")


def test_standard_output_is_refused(run: Path) -> None:
    done = jobkit("merge", run, "--output", "-")
    assert (done.returncode, "whole or not at all" in done.stderr) == (2, True)


def test_ten_times_the_corpus_is_written_only_if_a_person_wants_it(here: Path) -> None:
    (here / "a.txt").write_text("word " * 50, encoding="utf-8")
    run = here / "tagged"
    run.mkdir()
    points_of(run, plan(run, scan(find_sources(["a.txt"])), 1))
    work(run, 1)
    done = jobkit("merge", run, "--with-text")
    assert (done.returncode, "12,500 bytes of text, 50 times the corpus" in done.stderr) == (2, True)
    assert ("--context 100" in done.stderr, "--with-text=all" in done.stderr) == (True, True)
    assert not [*run.glob("*merged*")]
    assert jobkit("merge", run, "--with-text=all", "--context", "9").returncode == 0
    row = json.loads((run / "merged.jsonl").read_text().splitlines()[0])
    assert [*row][-2:] == ["context", "paragraph_text"]
    assert (row["context"], len(row["paragraph_text"])) == ("word word", 250)
    work(run, 1, columns=("label",))
    (run / "winners" / "shard-00001.json").unlink()
    assert "no start and end" in jobkit("merge", run, "--context", "9").stderr
