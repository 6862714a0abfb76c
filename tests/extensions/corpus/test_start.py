"""`jobkit apply` here: the plan, the folder, going on, and what is refused."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.layout import read_points
from jobkit.core.paths import LEDGER_VARIABLE
from jobkit.core.units import MIB
from jobkit.extensions.corpus import start
from jobkit.extensions.corpus.plan import is_corpus_folder, read_corpus, read_plan
from jobkit.extensions.corpus.plan_text import plan_lines
from jobkit.extensions.corpus.shards import ShardOptions, plan_shards
from jobkit.launch import resume
from jobkit.planning.resolve import Options
from tests.support.applied import (
    CHARACTERS,
    expected_rows,
    measured_run,
    merged,
    plan,
    request,
    win,
    write_corpus,
    write_planned,
)
from tests.support.commands import jobkit


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(LEDGER_VARIABLE, str(tmp_path / "ledger.jsonl"))
    measured_run(tmp_path / "run")
    write_corpus(tmp_path / "letters.txt")
    return tmp_path


@pytest.fixture
def asked(home: Path) -> start.ApplyRequest:
    return request(home / "run", ["letters.txt"], home / "tagged")


def test_a_corpus_is_worked_through_here_and_merged(home: Path) -> None:
    words = ("apply", "run", "--corpus", "letters.txt", "--out", "tagged")
    preview = jobkit(*words, "--shards", "2", "--dry-run")
    assert preview.returncode == 0, preview.stderr
    lines = [line.split(maxsplit=1) for line in preview.stdout.splitlines() if line[:1].strip()]
    assert [one for one, *_ in lines][:6] == ["corpus", "setting", "shards", "CPU-hours", "ends", "request"]
    assert lines[1][1] == "batch_size 50 (from run)"
    assert lines[2][1].startswith("2 of about ")
    assert "(95 %: " in lines[3][1]
    assert "#!/bin/bash" not in preview.stdout
    assert jobkit(*words, "--shards", "2", "--script").stdout.startswith("#!/bin/bash")
    assert sorted(path.name for path in home.iterdir()) == ["letters.txt", "run"]
    done = jobkit(*words, "--shards", "2")
    assert done.returncode == 0, done.stderr
    assert "60 of 60 paragraphs, 2 of 2 shards" in done.stdout
    assert jobkit("merge", "tagged").returncode == 0
    assert merged(home / "tagged" / "merged.jsonl") == expected_rows(
        "letters.txt", (home / "letters.txt").read_text().split("\n\n")
    )
    again = jobkit(*words)
    assert again.returncode == 0, again.stderr
    another = jobkit(*words[:-1], "again", "--dry-run")
    assert "earlier    1 corpus with this model, " in another.stdout
    assert "is planned already" in again.stderr
    assert "nothing to run again" in again.stderr
    for command in (["collect"], ["recommend"], ["verify"], ["profile"], ["tune"]):
        refused = jobkit(*command, "tagged", *(["1"] if command == ["profile"] else []))
        assert (refused.returncode, "jobkit merge tagged" in refused.stderr) == (2, True), refused.stderr
    assert "skipped" in jobkit("collect", ".").stdout + jobkit("collect", ".").stderr


@pytest.mark.parametrize(
    ("given", "figures"),
    [
        ("memory=500MiB", ("500MiB", "600.0 MiB", "resources.memory=1GiB")),
        ("memory=600MiB", ()),
        ("walltime=00:00:09", ("00:00:09", "about 9 s", "resources.walltime=00:05:00")),
        ("walltime=00:00:12", ()),
    ],
)
def test_a_request_below_what_was_measured_is_a_warning_with_both_figures(
    home: Path, given: str, figures: tuple[str, ...]
) -> None:
    asked = request(home / "run", ["letters.txt"], home / "tagged", f"resources.{given}", shards=1)
    prospect = plan(asked).prospect
    piece = prospect.plan.shards[0].pieces[0]
    pieces = [replace(piece, characters=CHARACTERS)]
    setting = replace(prospect.setting, peak_bytes=600 * MIB)
    again = replace(prospect, setting=setting, plan=plan_shards(pieces, setting, ShardOptions()))
    warned = [line for line in plan_lines(again) if line.startswith("warning")]
    assert len(warned) == bool(figures)
    assert all(figure in warned[0] for figure in figures)


def test_the_plan_says_what_the_walltime_rests_on_without_an_interval(asked: start.ApplyRequest) -> None:
    prospect = plan(asked).prospect
    each = prospect.plan.each
    assert each

    def request_of(**changes: float | None) -> str:
        changed = replace(prospect.plan, each=replace(each, **changes))  # type: ignore[arg-type]
        return [*plan_lines(replace(prospect, plan=changed))][-1]

    assert "twice the expected time" not in request_of()
    assert "twice the expected time" in request_of(low_s=None, high_s=None)
    assert "for up to 40 min" in request_of(high_s=2400.0)


def test_a_shard_is_a_shard_in_every_line_about_a_corpus(asked: start.ApplyRequest) -> None:
    write_planned(asked)
    win(asked.out, 1)
    for words in (
        ("status", "tagged"),
        ("status", "tagged", "1"),
        ("status", "tagged", "9"),
        ("merge", "tagged"),
        ("cancel", "tagged", "2"),
        ("throttle", "tagged", "2"),
        ("resume", "tagged", "1"),
        ("resume", "tagged", "--only", "ok"),
        ("resume", "tagged"),
        ("status", "tagged"),
    ):
        done = jobkit(*words)
        said = done.stdout + done.stderr
        assert re.search(r"\bshard", said), (words, said)
        assert not re.search(r"\b(points?|repeat)\b", said, re.IGNORECASE), (words, said)


def test_the_folder_is_whole_or_not_there(asked: start.ApplyRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    part = asked.out.with_name(".tagged.part")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            write_planned(asked)
    assert (part.is_dir(), asked.out.exists()) == (True, False)
    planned = write_planned(asked)
    assert (part.exists(), is_corpus_folder(asked.out)) == (False, True)
    points, _ = read_points(asked.out)
    assert points == list(planned.prepared.points)
    assert [shard.index for shard in read_plan(asked.out)] == [1, 2, 3]
    assert {point.run_id for point in points} == {planned.prepared.inputs.run_id}
    assert points[0].run_id.startswith("demo-"), "and not the folder's name"


def test_the_format_is_kept_for_the_merge(
    asked: start.ApplyRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    write_planned(asked)
    assert read_corpus(asked.out).format == "jsonl"
    assert start.apply(replace(asked, fmt="tsv"), dry_run=True) == 0
    assert "jobkit merge tagged --format tsv" in capsys.readouterr().err


def test_what_differs_is_named_and_nothing_runs(asked: start.ApplyRequest, home: Path) -> None:
    write_planned(asked)
    other_run = measured_run(home / "other", sizes=(10,))
    cases = {
        "text_field: text there, body now": replace(asked, text_field="body"),
        "setting: batch_size 50 there, batch_size 10 now": replace(asked, word=other_run),
    }
    for words, other in cases.items():
        with pytest.raises(JobkitError, match="is of another corpus or setting") as refused:
            start.apply(other)
        assert words in refused.value.message
    (home / "more.txt").write_text("More.\n", encoding="utf-8")
    with pytest.raises(JobkitError, match=r"more\.txt: new"):
        start.apply(replace(asked, paths=("letters.txt", "more.txt")))
    text = (home / "letters.txt").read_text()
    (home / "letters.txt").write_text(text.replace("word", "wort"), encoding="utf-8")
    with pytest.raises(JobkitError, match="another SHA-256"):
        start.apply(asked)
    (home / "letters.txt").write_text(text, encoding="utf-8")
    with pytest.raises(JobkitError, match="runs with local") as refused:
        start.apply(replace(asked, options=Options(scheduler="slurm")))
    assert "--replan --set scheduler=slurm" in refused.value.hint


def test_a_place_with_something_else_is_refused(asked: start.ApplyRequest, home: Path) -> None:
    for out in (home / "run", home / "letters.txt"):
        with pytest.raises(JobkitError, match="is there already"):
            start.apply(replace(asked, out=out))
    asked.out.mkdir()
    write_planned(asked)


def test_all_that_cannot_be_read_is_reported_before_anything_is_written(
    asked: start.ApplyRequest, home: Path
) -> None:
    (home / "bad.txt").write_bytes(b"caf\xe9\n")
    (home / "bad.jsonl").write_text('{"text": "Good."}\nno json\n', encoding="utf-8")
    bad = replace(asked, paths=("letters.txt", "bad.txt", "bad.jsonl"))
    with pytest.raises(JobkitError, match=r"bad\.txt") as refused:
        start.apply(bad)
    assert "bad.jsonl:2" in refused.value.message
    assert not asked.out.exists()
    kept = plan(replace(bad, skip_bad=True)).prospect.corpus
    assert (kept.documents, len(kept.skipped)) == (2, 2)


def test_a_format_that_cannot_be_filled_is_refused_at_a_dry_run_too(asked: start.ApplyRequest) -> None:
    with pytest.raises(JobkitError, match="--format conll"):
        start.apply(replace(asked, fmt="conll"), dry_run=True)


def test_only_changed_keys_are_given_again(
    asked: start.ApplyRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[str, ...]] = []
    monkeypatch.setattr(resume, "run_again", lambda *words, **_: given.append(words[2]))
    write_planned(replace(asked, options=Options(overrides=("resources.memory=3GiB",))))
    words = ("resources.memory=3GiB", "resources.cpus=2")
    start.apply(replace(asked, options=Options(overrides=words)))
    assert given == [("resources.cpus=2",)]


def test_a_corpus_takes_every_path_up_to_the_next_option(home: Path) -> None:
    (home / "more.txt").write_text("More.\n", encoding="utf-8")
    tail = ("--out", "tagged", "--dry-run")
    for words in (
        ("apply", "run", "--corpus", "letters.txt", "more.txt"),
        ("apply", "--corpus", "letters.txt", "--corpus", "more.txt", "run"),
        ("apply", "--corpus", "letters.txt", "more.txt", "run"),
    ):
        done = jobkit(*words, *tail)
        assert "corpus     2 files" in done.stdout, done.stderr
    refused = jobkit("apply", "run", "--corpus", "-", *tail)
    assert (refused.returncode, "standard input" in refused.stderr) == (2, True)
    assert jobkit("apply", "run", *tail).returncode == 2
    assert jobkit("recommend", "run", "--corpus", "letters.txt", "more.txt").returncode == 0
    assert not os.path.lexists("tagged")
