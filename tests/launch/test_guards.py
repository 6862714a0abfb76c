"""A sweep that has a run already is not paid for twice."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.json_codec import to_json
from jobkit.core.layout import POINTS_FILE
from jobkit.core.records import Outcome, Point
from jobkit.launch import guards, sweep
from jobkit.planning.prepare import Options, Prepared, prepare
from tests.support.builders import record, write_record, write_submitted
from tests.support.commands import JOBKIT, jobkit

SPEC = """\
name: t
workload: count
text: text.txt
sweep: {batch_size: [1, 2, 3]}
repeats: 1
resources: {gpus: 0}
scheduler: local
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("One two.\n\nThree.\n", encoding="utf-8")
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    return tmp_path


def ready(*overrides: str) -> Prepared:
    return prepare("spec.yaml", Options(overrides=overrides), build=True)


def written(*overrides: str) -> Prepared:
    """Return a run whose folder is written, and nothing submitted."""
    prepared = ready(*overrides)
    sweep.write_run(prepared)
    return prepared


def test_twice_the_same_command_is_one_run(home: Path) -> None:
    def sweep(*words: str) -> subprocess.CompletedProcess[str]:
        return jobkit("sweep", "spec.yaml", *words, cwd=home)

    (home / "spec.yaml").write_text(SPEC.replace("[1, 2, 3]", "[1]"), encoding="utf-8")
    assert "has a run already" not in sweep("--dry-run").stderr
    assert sweep().returncode == 0
    (run,) = (home / "runs").iterdir()
    again = sweep()
    assert again.returncode == 2
    assert (
        f"this sweep has a run already: runs/{run.name}, 1 point: 1 done; nothing was submitted"
        in again.stderr
    )
    assert f"hint: jobkit collect runs/{run.name} prints its table; --new starts another run" in again.stderr
    dry = sweep("--dry-run")
    assert dry.returncode == 0
    assert dry.stdout.startswith("#!/bin/bash\n")
    assert "--new submits it again" in dry.stderr
    assert list((home / "runs").iterdir()) == [run]
    assert sweep("--new").returncode == 0
    assert len(list((home / "runs").iterdir())) == 2
    assert "has a run already" not in sweep("--set", "repeats=2", "--dry-run").stderr


def test_twice_at_the_same_moment_is_one_run(home: Path) -> None:
    (home / "spec.yaml").write_text(SPEC.replace("[1, 2, 3]", "[1]"), encoding="utf-8")
    argv = [str(JOBKIT), "sweep", "spec.yaml"]
    both = [
        subprocess.Popen(argv, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [one.communicate(timeout=60)[1] for one in both]
    assert sorted(one.returncode for one in both) == [0, 2], said
    assert sum("this sweep has a run already" in words for words in said) == 1
    assert len(list((home / "runs").iterdir())) == 1


def test_how_far_it_is_and_what_to_type(home: Path) -> None:
    def refused() -> JobkitError:
        with pytest.raises(JobkitError) as caught:
            guards.refuse_duplicate_sweep(again)
        assert caught.value.exit_code == 2
        return caught.value

    def end(point: Point, outcome: Outcome) -> None:
        found = record(replace(point, params={"batch_size": 1}))
        write_record(run.run_dir, replace(found, point=point, outcome=outcome))

    again = ready()
    assert guards.find_duplicate(again) is None, "there is no folder of runs yet"
    run = written()
    name = f"runs/{run.run_dir.name}"
    assert "3 points: 3 to come" in refused().message
    assert refused().hint.startswith(f"jobkit resume {name} runs what failed or is missing")
    write_submitted(run.run_dir, "slurm", "77", first=1, last=3)
    assert "3 points: 3 to come" in refused().message
    assert refused().hint.startswith(f"jobkit status {name} shows its progress, jobkit collect")
    end(run.points[0], Outcome.OK)
    end(run.points[2], Outcome.TIMEOUT)
    assert "3 points: 1 done, 1 failed (1 timeout), 1 to come" in refused().message
    assert "jobkit status" in refused().hint
    assert "jobkit resume" in refused().hint
    end(run.points[1], Outcome.CANCELLED)
    assert "3 points: 1 cancelled, 1 done, 1 failed (1 timeout);" in refused().message
    newer = home / "runs" / "t-20990103-101530-0000"
    shutil.copytree(run.run_dir, newer)
    assert guards.find_duplicate(again) == newer


def test_what_differs_in_its_inputs_is_another_sweep(home: Path) -> None:
    run = written()
    (home / "runs" / "notes.txt").write_text("mine", encoding="utf-8")
    (home / "runs" / "empty").mkdir()
    path = run.run_dir / POINTS_FILE
    text = path.read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    tiny = {"path": "/m", "name": "en", "size": "tiny", "stand_in": True, "fingerprint": "1", "size_bytes": 1}
    trial = to_json(replace(run.points[2], index=4, point_id="batch_size-9-verify"))
    for points, same in (
        (text, True),
        (f"{text}{trial}\n", True),
        (text.replace(str(home), "/elsewhere"), True),  # its cache has moved
        ("".join(f"{json.dumps(row)}\n" for row in [rows[0] | {"model": tiny}, *rows[1:]]), False),
        ("".join(f"{json.dumps(row)}\n" for row in rows[:2]), False),
    ):
        path.write_text(points, encoding="utf-8")
        assert guards.find_duplicate(ready()) == (run.run_dir if same else None), points
    path.write_text(text, encoding="utf-8")
    (home / "text.txt").write_text("One two.\n\nThrew.\n", encoding="utf-8")
    assert guards.find_duplicate(ready()) is None
    path.unlink()
    assert guards.find_duplicate(ready()) is None
