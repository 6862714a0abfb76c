from __future__ import annotations

import os
from dataclasses import replace
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
from tests.support.corpora import plan, points_of, work


def call(*arguments: str | Path) -> int:
    status: int = merge.main([str(argument) for argument in arguments], standalone_mode=False)
    return status


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("One two\n\nthree", encoding="utf-8")
    run = tmp_path / "tagged corpus"
    run.mkdir()
    points_of(run, plan(run, scan(find_sources(["a.txt"])), 2))
    work(run, 1)
    return run


def test_a_merge_is_reported_in_a_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work(run, 2)
    assert call(run) == 0
    told = capsys.readouterr()
    assert told.out == "merged 3 rows of 2 paragraphs and 2 shards: tagged corpus/merged.jsonl\n"
    assert told.err.splitlines()[-1].startswith("done: ")
    assert len((run / "merged.jsonl").read_text().splitlines()) == 3
    assert call("tagged corpus", "--format", "tsv", "--output", "rows.tsv") == 0
    assert capsys.readouterr().out.endswith(": rows.tsv\n")


def test_the_format_is_that_of_apply_unless_another_is_asked_for(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work(run, 2)
    write_plan(run, replace(read_corpus(run), format="tsv"), read_plan(run))
    assert call(run) == 0
    assert capsys.readouterr().out.endswith("/merged.tsv\n")
    assert call(run, "--format", "jsonl") == 0
    assert capsys.readouterr().out.endswith("/merged.jsonl\n")


def test_a_report_of_a_corpus_says_what_is_next_until_it_is_merged(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said() -> str:
        assert report.main([str(run)], standalone_mode=False) == 0
        return capsys.readouterr().err

    assert "next: jobkit status 'tagged corpus'" in said()
    work(run, 2)
    for point in read_points(run)[0]:
        write_record(run, record(point))
    assert "next: jobkit merge 'tagged corpus'" in said()
    assert call(run) == 0
    assert "next:" not in capsys.readouterr().err + said()


@pytest.mark.usefixtures("run")
def test_what_is_missing_is_named_with_the_command_that_goes_on() -> None:
    with pytest.raises(JobkitError, match="1 shard has no result yet: shard-00002") as caught:
        call("tagged corpus")
    assert caught.value.hint == "jobkit resume 'tagged corpus'"
    assert caught.value.exit_code == 5


@pytest.fixture
def second_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put scheduler programs on PATH that list the second shard as running."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name, line in {"squeue": "100_2|RUNNING|None||0:10|n1|t", "sacct": ""}.items():
        (bin_ / name).write_text(f"#!/bin/sh\necho '{line}'\n", encoding="utf-8")
        (bin_ / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")


@pytest.mark.usefixtures("second_runs")
def test_while_shards_run_the_hint_is_to_wait(run: Path) -> None:
    write_submitted(run, "slurm", "100", first=1, last=2, round=1)
    with pytest.raises(JobkitError, match="shard-00002") as caught:
        call("tagged corpus")
    assert "jobkit resume" not in caught.value.hint
    assert "jobkit status 'tagged corpus' --watch" in caught.value.hint
    assert caught.value.exit_code == 5


@pytest.mark.usefixtures("run", "second_runs")
def test_a_shard_that_does_not_go_on_is_to_be_resumed_while_another_runs(tmp_path: Path) -> None:
    apart = tmp_path / "apart"
    apart.mkdir()
    points_of(apart, plan(apart, scan(find_sources(["a.txt"])), 2))
    write_submitted(apart, "slurm", "100", first=2, last=2, round=1)
    with pytest.raises(JobkitError, match="2 shards have no result yet") as caught:
        call(apart)
    assert caught.value.hint.endswith("--watch follows them; for the others: jobkit resume apart")


def test_standard_output_is_refused(run: Path) -> None:
    with pytest.raises(JobkitError, match="whole or not at all"):
        call(run, "--output", "-")


def test_the_formats_are_those_that_can_be_written() -> None:
    for command in (merge, apply):
        (option,) = (one for one in command.params if one.name == "fmt")
        assert isinstance(option.type, click.Choice)
        assert tuple(option.type.choices) == formats.FORMATS
