from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import click
import pytest

from jobkit.commands.apply import apply
from jobkit.commands.merge import merge
from jobkit.commands.report import report
from jobkit.core.errors import JobkitError
from jobkit.core.layout import read_points
from jobkit.extensions.corpus import formats
from jobkit.extensions.corpus.plan import read_corpus, read_plan, write_plan
from jobkit.extensions.corpus.scan import scan
from jobkit.extensions.corpus.sources import find_sources
from tests.support.builders import record, write_record, write_submitted
from tests.support.commands import called
from tests.support.corpora import plan, points_of, work
from tests.support.programs import Programs
from tests.support.programs import queue as queue  # noqa: PLC0414 - a fixture is found by its name here

call = partial(called, merge)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("One two\n\nthree", encoding="utf-8")
    run = tmp_path / "tagged corpus"
    run.mkdir()
    points_of(run, plan(run, scan(find_sources(["a.txt"])), 2))
    work(run, 1)
    return run


def test_a_merge_is_reported_in_a_line_and_has_the_format_of_apply(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work(run, 2)
    assert call(run) == 0
    told = capsys.readouterr()
    assert told.out == "merged 3 rows of 2 paragraphs and 2 shards: tagged corpus/merged.jsonl\n"
    assert told.err.splitlines()[-1].startswith("done: ")
    assert len((run / "merged.jsonl").read_text().splitlines()) == 3
    assert call("tagged corpus", "--format", "tsv", "--output", "rows.tsv") == 0
    assert capsys.readouterr().out.endswith(": rows.tsv\n")
    write_plan(run, replace(read_corpus(run), format="tsv"), read_plan(run))
    assert call(run) == 0
    assert capsys.readouterr().out.endswith("/merged.tsv\n")
    assert call(run, "--format", "jsonl") == 0
    assert capsys.readouterr().out.endswith("/merged.jsonl\n")


def test_a_report_of_a_corpus_says_what_is_next_until_it_is_merged(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said() -> str:
        assert called(report, run) == 0
        return capsys.readouterr().err

    assert "next: jobkit status 'tagged corpus'" in said()
    work(run, 2)
    for point in read_points(run)[0]:
        write_record(run, record(point))
    assert "next: jobkit merge 'tagged corpus'" in said()
    assert call(run) == 0
    assert "next:" not in capsys.readouterr().err + said()


def missing(run: Path | str, said: str) -> str:
    """Return the hint of a merge that is refused because shards are missing."""
    with pytest.raises(JobkitError, match=said) as caught:
        call(run)
    assert caught.value.exit_code == 5
    return caught.value.hint


@pytest.mark.usefixtures("run")
def test_what_is_missing_is_named_with_the_command_that_goes_on() -> None:
    hint = missing("tagged corpus", "1 shard has no result yet: shard-00002")
    assert hint == "jobkit resume 'tagged corpus'"


def test_while_shards_run_the_hint_is_to_wait_and_to_resume_the_others(run: Path, queue: Programs) -> None:
    queue.holds("100_2|RUNNING|None|n1|0:10|N/A", name="t")
    write_submitted(run, "slurm", "100", first=1, last=2, round=1)
    hint = missing("tagged corpus", "shard-00002")
    assert "jobkit resume" not in hint
    assert "jobkit status 'tagged corpus' --watch" in hint

    apart = run.with_name("apart")
    apart.mkdir()
    points_of(apart, plan(apart, scan(find_sources(["a.txt"])), 2))
    write_submitted(apart, "slurm", "100", first=2, last=2, round=1)
    hint = missing(apart, "2 shards have no result yet")
    assert hint.endswith("--watch follows them; for the others: jobkit resume apart")


def test_standard_output_is_refused(run: Path) -> None:
    with pytest.raises(JobkitError, match="whole or not at all"):
        call(run, "--output", "-")


def test_the_formats_are_those_that_can_be_written() -> None:
    for command in (merge, apply):
        (option,) = (one for one in command.params if one.name == "fmt")
        assert isinstance(option.type, click.Choice)
        assert tuple(option.type.choices) == formats.FORMATS
