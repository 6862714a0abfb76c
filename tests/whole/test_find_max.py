"""The largest batch by the commands that a user types, on this machine; and find.sh, run by bash."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.answers import search
from jobkit.core.files import append_line, read_lines, write_atomically
from jobkit.core.json_codec import from_json, to_json
from jobkit.core.layout import SEARCH_GOAL_FILE, TRIALS_FILE
from jobkit.core.measurements import MemoryReadings
from jobkit.core.records import Outcome, Point
from jobkit.core.units import GIB
from jobkit.planning.job_script import render_find
from jobkit.runs.results import read_run
from jobkit.runs.trials import SearchGoal, Trial, trials
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import SweepSpec
from tests.support.builders import record, write_record
from tests.support.commands import jobkit
from tests.whole.test_job_script import DEADLINE_S, WORKLOADS, ScriptRun, wait_until

CAPACITY = 150 * 2**20
SPEC = """\
name: hungry
workload: hungry:%s
text: text.txt
sweep: {batch_size: [5, 10, 15, 20]}
repeats: 1
scheduler: local
resources: {gpus: 0, cpus: 1, memory: 1GiB, walltime: "00:02:00"}
%s
"""
WANTED = "find_max: {memory: 150MiB}"


class Here:
    """A user's folder on a machine without a scheduler."""

    def __init__(self, folder: Path, find_max: str, workload: str = "Hungry") -> None:
        self.folder = folder
        (folder / "text.txt").write_text("\n\n".join(["w" * 99 + "."] * 120) + "\n", encoding="utf-8")
        (folder / "spec.yaml").write_text(SPEC % (workload, find_max), encoding="utf-8")

    def jobkit(self, *words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        around = {"PYTHONPATH": str(WORKLOADS), "JOBKIT_LEDGER": str(self.folder / "ledger.jsonl")}
        return jobkit(*words, cwd=self.folder, env={"COLUMNS": "200", **around, **env})

    def sweep(self, **env: str) -> subprocess.CompletedProcess[str]:
        return self.jobkit("sweep", "spec.yaml", **env)

    @property
    def run(self) -> Path:
        (found,) = (self.folder / "runs").iterdir()
        return found

    def rss(self, point: str) -> int:
        path = self.run / "results" / point / "try-1" / "record.json"
        return int(json.loads(path.read_text(encoding="utf-8"))["memory"]["maxrss_bytes"])

    def ledger(self) -> list[Mapping[str, object]]:
        path = self.folder / "ledger.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("workload", ["Hungry", "Unmeasured"])
def test_the_batch_that_is_found_holds_and_the_next_is_not_run(tmp_path: Path, workload: str) -> None:
    here = Here(tmp_path, WANTED, workload)
    done = here.sweep()
    assert done.returncode == 0, done.stdout + done.stderr
    (trial,) = trials(here.run)
    assert trial.held, trial
    assert 0.9 * CAPACITY < here.rss(f"batch_size-{trial.batch_size}-verify") <= CAPACITY
    assert abs(trial.error or 1) < 0.05
    assert f"batch_size {trial.batch_size} fits in 150.0 MiB of process memory: needed" in done.stdout
    assert [point.point.numbers["batch_size"] for point in read_run(here.run).points] == [
        *(5, 10, 15, 20),
        trial.batch_size,
    ]
    assert [line["held"] for line in here.ledger()] == [True]


def test_where_it_fails_a_smaller_one_holds(tmp_path: Path) -> None:
    here = Here(tmp_path, WANTED)
    done = here.sweep(HUNGRY_LIMIT_BYTES="60000000", HUNGRY_ONCE=str(tmp_path / "once"))
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = trials(here.run)
    assert (first.outcome, second.held) == (Outcome.RAM_OOM, True)
    assert second.load <= 0.95 * first.load
    assert [line["held"] for line in here.ledger()] == [False, True]
    tried = f"batch_size {first.batch_size} was tested for 150.0 MiB of process memory"
    assert f"{tried} and ended as ram_oom" in (done.stdout)
    assert "how much memory it needs" not in done.stdout, "it is an answer, and nothing to fix"


def test_without_the_wish_to_verify_nothing_more_is_run(tmp_path: Path) -> None:
    here = Here(tmp_path, "find_max: {memory: 150MiB, verify: false}")
    assert here.sweep().returncode == 0
    assert not (here.run / SEARCH_GOAL_FILE).exists()
    done = here.jobkit("verify", here.run)
    assert done.returncode == 0, done.stdout + done.stderr
    (trial,) = trials(here.run)
    assert (trial.held, trial.capacity_bytes) == (True, CAPACITY)
    assert done.stdout.startswith(f"batch_size {trial.batch_size} fits in 150.0 MiB of process memory")
    done = here.jobkit("verify", here.run, "--memory", "100MiB")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [trial.index for trial in trials(here.run)] == [5, 6]
    assert len(done.stdout.splitlines()) == 1
    done = here.jobkit("verify", here.run, "--memory", "1MiB")
    assert done.returncode == 4
    assert done.stdout == "the largest batch was not tested: not even a batch of 1 fits\n"
    again = here.jobkit("verify", here.run, "--memory", "1MiB")
    assert (again.returncode, again.stdout) == (4, done.stdout)


class Following(ScriptRun):
    """A run whose points are measured, and whose next batch never ends: 2 of 3 paragraphs a call."""

    def __init__(self, folder: Path) -> None:
        sweep = {"batch_size": [1, 3, 4, 5]}  # 2, which is the largest, has not been measured
        super().__init__(folder, workload="odd:Slow", sweep=sweep)
        points = [from_json(Point, line, where="points") for _, line in read_lines(self.dir / "points.jsonl")]
        for point in points:
            size = point.numbers["batch_size"]
            write_record(self.dir, replace(record(point), memory=MemoryReadings(maxrss_bytes=size * GIB)))
        wanted = SearchGoal(memory_bytes=round(2.1 * GIB), ram_bytes=0, ledger=str(folder / "ledger.jsonl"))
        write_atomically(self.dir / SEARCH_GOAL_FILE, to_json(wanted))
        spec = SweepSpec.model_validate({"name": "t", "workload": "odd:Slow", "sweep": sweep})
        script = render_find(spec, load_site("local-default", "local"), points[0], self.dir)
        (self.dir / "find.sh").write_text(script, encoding="utf-8")

    def follow(self, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", self.dir / "find.sh"],
            env={**os.environ, "PYTHONPATH": str(WORKLOADS), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.mark.parametrize(
    ("sent", "outcome"),
    [(signal.SIGUSR1, "timeout"), (signal.SIGINT, "cancelled")],
)
def test_a_signal_reaches_the_point_and_is_the_last(
    tmp_path: Path, sent: signal.Signals, outcome: str
) -> None:
    run = Following(tmp_path)
    told = tmp_path / "told"
    process = run.follow(ODD_TOLD=str(told))
    wait_until(told.exists)
    process.send_signal(sent)
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 143, said
    *_, tried = read_run(run.dir).points
    assert (tried.point.point_id, tried.verdict.outcome) == ("batch_size-2-verify", outcome)
    assert tried.chosen is not None
    assert tried.chosen.record is not None
    assert tried.chosen.record.summary is not None
    assert tried.chosen.record.summary.batches == 1, "what was done is home"
    assert len(trials(run.dir)) == 1
    assert search.next_trial(run.dir) is None
    assert trials(run.dir)[0].outcome == outcome
    assert run.left_on_scratch() == []


def test_by_hand_it_does_the_same_and_ends_well(tmp_path: Path) -> None:
    run = Following(tmp_path)
    job = run.dir / "points.jsonl"
    job.write_text(job.read_text(encoding="utf-8").replace("odd:Slow", "count"), encoding="utf-8")
    for point in read_run(run.dir).points:
        size = point.point.numbers["batch_size"]
        write_record(run.dir, replace(record(point.point), memory=MemoryReadings(maxrss_bytes=size * GIB)))
    process = run.follow()
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, said
    (trial,) = trials(run.dir)
    assert trial.held
    assert "find_max: batch_size 2 fits in 2.10 GiB of process memory" in said


def test_where_all_is_done_nothing_is_run(tmp_path: Path) -> None:
    run = Following(tmp_path)
    append_line(run.dir / TRIALS_FILE, to_json(Trial(message="too few")))
    process = run.follow()
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, said) == (0, "find_max: the largest batch was not tested: too few\n")
