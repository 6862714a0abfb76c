"""A plain function in a file: swept, applied to a corpus, and run by several workers, by what is typed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from jobkit.core.layout import read_points
from jobkit.core.records import Outcome
from jobkit.runs.results import read_run
from tests.support.commands import jobkit

TAGGER = """\
COLUMNS = ["words", "beam"]


def load():
    return str.split


def tag(paragraphs, loaded, beam=5):
    if beam == 13:
        raise ValueError("unlucky")
    return [{"words": len(loaded(text)), "beam": beam} for text in paragraphs]
"""
SPEC = """\
name: own
workload: ./tagger.py:tag
text: text.txt
sweep: {batch_size: [2], beam: [5, 13]}
repeats: 1
workers: 2
scheduler: local
device: cpu
resources: {gpus: 0, cpus: 1, memory: 500MiB, walltime: 5m}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with a point that succeeds and one whose function fails."""
    folder = tmp_path_factory.mktemp("own")
    for name, text in (
        ("tagger.py", TAGGER),
        ("own.yaml", SPEC),
        ("text.txt", "One two.\n\nThree.\n\nFour.\n"),
    ):
        (folder / name).write_text(text, encoding="utf-8")
    done = jobkit("sweep", "own.yaml", cwd=folder)
    assert done.returncode == 4, done.stderr
    (found,) = (folder / "runs").iterdir()
    return found


def test_the_record_has_the_digest_and_the_run_folder_the_file(run: Path) -> None:
    good, bad = read_run(run).points
    assert good.record
    assert bad.record
    (file,) = good.record.point.files
    assert (run / "files" / "tagger.py").read_text() == TAGGER
    assert file.sha256 == hashlib.sha256(TAGGER.encode()).hexdigest()
    assert good.record.effective == {"batch_size": 2, "beam": 5}
    assert good.record.versions["tagger.py"] == file.sha256[:12]
    assert bad.record.outcome is Outcome.BUG
    assert bad.record.message.endswith(f"{run.parents[1]}/tagger.py:10: ValueError: unlucky")


def test_the_log_has_the_users_lines_and_none_of_jobkits(run: Path) -> None:
    (log,) = (path.read_text() for path in (run / "logs").glob("*_2.out"))
    assert 'raise ValueError("unlucky")' in log
    assert "jobkit/worker/" not in log


def test_several_workers_apply_the_copy_of_the_run_to_a_corpus(run: Path) -> None:
    folder = run.parents[1]
    (folder / "tagger.py").write_text("def tag(paragraphs): return None\n", encoding="utf-8")
    words = ("--corpus", "text.txt", "--out", "done")
    applied = jobkit("apply", run, *words, cwd=folder)
    assert applied.returncode == 0, applied.stderr
    assert "tagger.py has changed" in applied.stderr
    assert jobkit("merge", "done", "--output", "rows.jsonl", cwd=folder).returncode == 0
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert [(row["paragraph"], row["words"], row["beam"]) for row in rows] == [
        (0, 2, 5),
        (1, 1, 5),
        (2, 1, 5),
    ]
    (point,), _ = read_points(folder / "done")
    assert point.files[0].sha256 == hashlib.sha256(TAGGER.encode()).hexdigest()


def test_what_is_staged_must_be_what_was_planned(run: Path) -> None:
    (run / "files" / "tagger.py").write_text("raise SystemExit\n", encoding="utf-8")
    again = jobkit("resume", run, "2", cwd=run.parents[1])
    assert "the run goes on with its own copy" in again.stderr
    bad = read_run(run).points[1]
    assert bad.record
    assert bad.record.outcome is Outcome.STAGE_IN
    assert "tagger.py is not the file that was planned" in bad.record.message
