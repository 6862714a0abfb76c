"""A sweep that has a run already is not paid for twice."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core import files, json_codec
from jobkit.core.errors import JobkitError
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


def done(run: Prepared, point: Point, outcome: Outcome = Outcome.OK) -> None:
    found = record(replace(point, params={"batch_size": 1}))
    write_record(run.run_dir, replace(found, point=point, outcome=outcome))


def test_twice_the_same_command_is_one_run(home: Path) -> None:
    def sweep(*words: str) -> subprocess.CompletedProcess[str]:
        return jobkit("sweep", "spec.yaml", *words, cwd=home)

    (home / "spec.yaml").write_text(SPEC.replace("[1, 2, 3]", "[1, 2]"), encoding="utf-8")
    assert "has a run already" not in sweep("--dry-run").stderr
    assert sweep().returncode == 0
    (run,) = (home / "runs").iterdir()
    again = sweep()
    assert again.returncode == 2
    assert (
        f"this sweep has a run already: runs/{run.name}, 2 points: 2 done; nothing was submitted"
        in again.stderr
    )
    assert f"hint: jobkit collect runs/{run.name} prints its table; --new starts another run" in again.stderr
    dry = sweep("--dry-run")
    assert dry.returncode == 0
    assert dry.stdout.startswith("#!/bin/bash\n")
    assert "--new submits it again" in dry.stderr
    assert list((home / "runs").iterdir()) == [run]
    assert sweep("--new", "--set", "sweep.batch_size=[1]").returncode == 0
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
    del home
    run = written()
    name = f"runs/{run.run_dir.name}"
    with pytest.raises(JobkitError, match="3 points: 3 to come") as refused:
        guards.refuse_duplicate_sweep(ready())
    assert refused.value.hint.startswith(f"jobkit resume {name} runs what failed or is missing")
    write_submitted(run.run_dir, "slurm", "77", first=1, last=3)
    with pytest.raises(JobkitError, match="3 points: 3 to come") as refused:
        guards.refuse_duplicate_sweep(ready())
    assert refused.value.hint.startswith(f"jobkit status {name} shows its progress, jobkit collect")
    done(run, run.points[0])
    done(run, run.points[2], Outcome.TIMEOUT)
    with pytest.raises(JobkitError, match=r"3 points: 1 done, 1 failed \(1 timeout\), 1 to come") as refused:
        guards.refuse_duplicate_sweep(ready())
    assert "jobkit status" in refused.value.hint
    assert "jobkit resume" in refused.value.hint
    assert refused.value.exit_code == 2
    done(run, run.points[1], Outcome.CANCELLED)
    with pytest.raises(JobkitError, match=r"3 points: 1 cancelled, 1 done, 1 failed \(1 timeout\);"):
        guards.refuse_duplicate_sweep(ready())


def test_the_newest_is_named(home: Path) -> None:
    old, new = written(), written()
    for run, stamp in ((old, "t-20260102-101530-ffff"), (new, "t-20260103-101530-0000")):
        run.run_dir.rename(home / "runs" / stamp)
    assert guards.find_duplicate(ready()) == home / "runs" / "t-20260103-101530-0000"


@pytest.mark.parametrize("change", ["text", "model", "points"])
def test_what_differs_in_its_inputs_is_another_sweep(home: Path, change: str) -> None:
    run = written()
    assert guards.find_duplicate(ready()) == run.run_dir
    if change == "text":
        (home / "text.txt").write_text("One two.\n\nThrew.\n", encoding="utf-8")
    path = run.run_dir / POINTS_FILE
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if change == "model":
        rows[0]["model"] = {"path": "/m", "name": "en", "size": "tiny", "stand_in": True, "fingerprint": "1"}
        rows[0]["model"] |= {"size_bytes": 1}
    rows = rows[:2] if change == "points" else rows
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert guards.find_duplicate(ready()) is None


def test_a_trial_of_the_largest_batch_behind_the_points_makes_no_difference(home: Path) -> None:
    del home
    run = written()
    trial = replace(run.points[2], index=4, point_id="batch_size-9-verify")
    files.append_line(run.run_dir / POINTS_FILE, json_codec.to_json(trial))
    assert guards.find_duplicate(ready()) == run.run_dir


def test_a_text_that_moved_with_its_cache_is_the_same_text(home: Path) -> None:
    run = written()
    path = run.run_dir / POINTS_FILE
    path.write_text(path.read_text(encoding="utf-8").replace(str(home), "/elsewhere"), encoding="utf-8")
    assert guards.find_duplicate(ready()) == run.run_dir


def test_folders_that_are_no_runs_are_passed_over(home: Path) -> None:
    assert guards.find_duplicate(ready()) is None, "there is no folder of runs yet"
    run = written()
    (home / "runs" / "notes.txt").write_text("mine", encoding="utf-8")
    (home / "runs" / "empty").mkdir()
    (run.run_dir / "points.jsonl").unlink()
    assert guards.find_duplicate(ready()) is None
