"""A purge takes files out of the folder of a corpus: it is merged whole, or refused with the way out."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.layout import Exit, try_folder
from jobkit.core.records import JobFacts, Outcome, Point
from jobkit.extensions.corpus import standing
from jobkit.extensions.corpus.winners import claim, read_winners, winner_path
from jobkit.launch import local
from tests.support.applied import expected_rows, measured_record, measured_run, merged, write_corpus
from tests.support.builders import write_begin, write_exit, write_record
from tests.support.commands import jobkit
from tests.support.corpora import read_shard, write_result

RUN, PRISTINE = Path("tagged"), Path("pristine")
ROWS = "results/shard-00001/try-1/rows.jsonl"


@contextmanager
def runner(
    run: Path, _spec: object, round_: int, _tick: object, job: str
) -> Iterator[Callable[[Point], None]]:
    """Do what the job script of a shard does, without a process."""

    def run_point(point: Point) -> None:
        if winner_path(run, point.point_id).exists():
            return
        number = 1
        while (folder := Path(try_folder(run, point.point_id, number))).exists():
            number += 1
        folder.mkdir(parents=True)
        write_begin(run, point, number, scheduler="local", job=job, task=point.index, round=round_)
        (run / "logs").mkdir(exist_ok=True)
        (run / "logs" / f"{job}_{point.index}.out").write_text("a log\n")
        try:
            paragraphs = [*read_shard(run, point.index)]
        except JobkitError as error:
            failed = Exit(status=1, stage="run", outcome=Outcome.STAGE_IN, message=error.message)
            write_exit(run, point, failed, number)
            return
        rows: list[Any] = [(n, len(re.findall(r"\w+", one.text))) for n, one in enumerate(paragraphs)]
        write_result(folder, ("words",), rows, paragraphs)
        facts = JobFacts(scheduler="local", job_id=job, task_id=str(point.index))
        write_record(run, replace(measured_record(point, 1.0), try_number=number, job=facts))
        write_exit(run, point, Exit(status=0, stage="done"), number)
        claim(run, point, number)

    yield run_point


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Apply a corpus of three shards, and return its rows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "_runner", runner)
    monkeypatch.setenv("JOBKIT_LEDGER", str(tmp_path / "ledger.jsonl"))
    measured_run(tmp_path / "run")
    texts = write_corpus(tmp_path / "letters.txt")
    said("apply", "run", "--corpus", "letters.txt", "--out", "tagged", "--shards", "3")
    shutil.copytree(RUN, PRISTINE)
    return expected_rows("letters.txt", texts)


def said(*words: str, status: int = ExitCode.DONE) -> str:
    done = jobkit(*words)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_rows_that_are_gone_are_seen_and_their_shard_runs_again(whole: list[dict[str, object]]) -> None:
    (RUN / ROWS).unlink()
    gone, way = "rows of 1 shard are gone or damaged: shard-00001", "jobkit resume tagged --rows-gone"
    shown = said("status", "tagged", status=ExitCode.FAILED)
    assert gone in shown
    assert "2 of 3 shards" in shown
    assert f"next: {way}" in shown
    assert (
        json.loads(said("status", "tagged", "--json", status=ExitCode.FAILED))["runs"][0]["corpus"]["done"]
        == 2
    )
    assert way in said("merge", "tagged", status=ExitCode.TO_COME)
    assert f"{gone}; to run" in said("resume", "tagged", status=ExitCode.FAILED)
    assert len(read_winners(RUN)) == len(list(RUN.glob("results/*/try-*"))) == 3, (
        "resume alone changes nothing"
    )
    said("merge", "tagged", "--allow-missing", status=ExitCode.TO_COME)
    rest = [row for row in whole if row in merged(RUN / "merged.partial.jsonl")]
    assert merged(RUN / "merged.partial.jsonl") == rest != whole
    assert "again: 1 shard" in said("resume", "tagged", "--rows-gone")
    said("merge", "tagged")
    assert merged(RUN / "merged.jsonl") == whole
    assert [one.try_number for one in read_winners(RUN).values()] == [2, 1, 1]
    assert len(json.loads((RUN / "provenance.json").read_text())["jobs"]) == 2
    shutil.copy(PRISTINE / ROWS, RUN / ROWS)
    assert "rows of try 1 of shard-00001 are back, and count for nothing" in said("status", "tagged")
    assert "nothing to run again" in said("resume", "tagged", "--rows-gone")


def test_a_word_that_is_refused_changes_nothing_and_a_named_shard_is_the_one(
    whole: list[dict[str, object]],
) -> None:
    (RUN / ROWS).rename("kept")
    (RUN / ROWS.replace("00001", "00002")).rename("kept-2")
    for words in (["--set", "resources.memori=1GiB"], ["--set", "setting.batch_size=3"], ["shard-00009"]):
        said("resume", "tagged", *words, "--rows-gone", status=ExitCode.USAGE)
    assert len(read_winners(RUN)) == 3
    said("resume", "tagged", "2", "--rows-gone", status=ExitCode.FAILED)  # of the other one
    shutil.move("kept", RUN / ROWS)
    said("merge", "tagged")
    assert merged(RUN / "merged.jsonl") == whole
    assert [one.try_number for one in read_winners(RUN).values()] == [1, 2, 1]


def test_rows_that_come_back_before_their_shard_has_run_count_for_nothing(
    whole: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the claim was made without links."""
    path = winner_path(RUN, "shard-00001")
    path.with_suffix(".claim").mkdir()
    shutil.copy(path, path.with_suffix(".claim") / path.name)
    (RUN / ROWS).unlink()

    def refuse(*_: object) -> None:
        raise JobkitError("no job begins")

    with monkeypatch.context() as patch:
        patch.setattr(local, "_runner", refuse)
        said("resume", "tagged", "--rows-gone", status=ExitCode.USAGE)
    shutil.copy(PRISTINE / ROWS, RUN / ROWS)
    assert "2 done, 1 missing" in said("status", "tagged", status=ExitCode.TO_COME)
    said("resume", "tagged")
    said("merge", "tagged")
    assert (merged(RUN / "merged.jsonl"), read_winners(RUN)[1].try_number) == (whole, 2)


@pytest.mark.usefixtures("whole")
def test_a_status_looks_at_some_of_many_shards_and_a_merge_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "MOST_LOOKED", 2)  # shards 1 and 3
    (RUN / ROWS.replace("00001", "00002")).unlink()
    said("status", "tagged")
    said("merge", "tagged", status=ExitCode.TO_COME)
    (RUN / ROWS).unlink()
    assert "shard-00001 (of 2 that were looked at)" in said("status", "tagged", status=ExitCode.FAILED)
    assert "rows of 2 shards are gone" in said("resume", "tagged", status=ExitCode.FAILED)


@pytest.mark.usefixtures("whole")
def test_a_file_server_that_fails_has_lost_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.stat

    def stale(path: Path, **how: Any) -> os.stat_result:
        if path.name == "rows.jsonl":
            raise OSError(116, "Stale file handle", str(path))
        return real(path, **how)

    monkeypatch.setattr(Path, "stat", stale)
    said("status", "tagged")
    assert "Stale file handle" in said("merge", "tagged", status=ExitCode.USAGE)
    assert "Stale file handle" in said("resume", "tagged", status=ExitCode.USAGE)
    assert len(read_winners(RUN)) == 3


WHOLE, RERUN, ROWS_GONE, NONE = (
    "is whole",
    "is whole, and no shard can run again",
    "lacks rows",
    "cannot be read",
)
OF_RUN = {
    WHOLE: (".driver.lock", "accounting.jsonl", "logs", "promise.json", "provenance.json", "winners"),
    RERUN: ("job.sh", "journal.jsonl", "sweep.yaml"),
    NONE: ("corpus.json", "plan.jsonl", "points.jsonl"),
    ROWS_GONE: ("results", "results/shard-00001", "results/shard-00001/try-1", ROWS),
}
OF_TRY = ("begin", "exit", "record.json", "rows.json")
TABLE = [(name, corpus) for corpus, names in OF_RUN.items() for name in names]
TABLE += [(f"results/shard-00001/try-1/{name}", WHOLE) for name in OF_TRY]


def test_each_kind_of_file_that_is_gone_alone(whole: list[dict[str, object]]) -> None:
    for name, corpus in TABLE:
        shutil.rmtree(RUN)
        shutil.copytree(PRISTINE, RUN)
        shutil.rmtree(RUN / name) if (RUN / name).is_dir() else (RUN / name).unlink()
        merges = {ROWS_GONE: ExitCode.TO_COME, NONE: ExitCode.USAGE}.get(corpus, ExitCode.DONE)
        said("merge", "tagged", status=merges)
        if corpus in {RERUN, NONE}:
            refused = said("resume", "tagged", "--rows-gone", status=ExitCode.USAGE)
            assert f"{name}: gone: without it" in refused
            assert "hint: restore it from a backup" in refused
        else:
            said("resume", "tagged", "--rows-gone")
        if corpus is not NONE:
            said("merge", "tagged")
            assert merged(RUN / "merged.jsonl") == whole, name


@pytest.mark.slow
def test_any_files_that_are_gone(whole: list[dict[str, object]]) -> None:
    """Each of 12 purges takes some of all files, or of all whose loss can be made good."""
    files = sorted(str(path.relative_to(PRISTINE)) for path in PRISTINE.rglob("*") if path.is_file())
    lasting = {*OF_RUN[NONE], *OF_RUN[RERUN], ".driver.lock"}  # without it, another machine may run shards
    for seed in range(12):
        chance = random.Random(seed)  # noqa: S311 - a seed
        gone = {name for name in files if chance.random() < (0.1, 0.4, 0.8)[seed % 3]}
        gone -= lasting if seed % 2 else set()
        shutil.rmtree(RUN)
        shutil.copytree(PRISTINE, RUN)
        for name in gone:
            (RUN / name).unlink()
        for words in ("status", "merge", "merge --allow-missing", "resume", "resume --rows-gone", "merge"):
            command, *options = words.split()
            done = jobkit(command, "tagged", *options)
            text = done.stdout + done.stderr
            assert done.returncode in {*ExitCode} - {ExitCode.BUG}, (seed, gone, text)
            way = command == "status" or "hint: " in text or "next: " in text
            assert done.returncode == 0 or way, (seed, gone, text)
            if (RUN / "merged.jsonl").exists():
                assert merged(RUN / "merged.jsonl") == whole, (seed, gone)
            if (RUN / "merged.partial.jsonl").exists():
                partial = merged(RUN / "merged.partial.jsonl")
                assert partial == [row for row in whole if row in partial], (seed, gone)
        assert done.returncode == 0 or gone & lasting, (seed, gone, text)
