"""`jobkit verify` on a cluster, against a fake sbatch; on this machine: tests/test_find_max.py."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from jobkit import local, verification
from jobkit.errors import JobkitError
from jobkit.records import append_line, to_json, write_atomically
from jobkit.trials import TRIALS_FILE, WANTED_FILE, Trial
from jobkit.units import GIB
from tests.builders import grid, write_points

SPEC = """\
name: demo
workload: count
sweep: {batch_size: [10, 20, 30, 40]}
resources: {gpus: 0, memory: 2GiB}
scheduler: %s
site: %s-default
%s
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a run on Slurm, and a fake sbatch that takes what it gets."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("JOBKIT_LEDGER", str(tmp_path / "ledger.jsonl"))
    (tmp_path / "bin").mkdir()
    sbatch(tmp_path, "echo 77")
    return run_of(tmp_path, "slurm", "find_max: {memory: 1GiB}")


def sbatch(folder: Path, body: str) -> None:
    path = folder / "bin" / "sbatch"
    path.write_text(f'#!/bin/bash\necho "$@" >>{folder}/calls\n{body}\n', encoding="utf-8")
    path.chmod(0o755)


def run_of(folder: Path, scheduler: str, find_max: str = "") -> Path:
    found = write_points(folder / "runs" / "demo", grid((10, 20, 30, 40), device="cpu"))
    write_atomically(found / "sweep.yaml", SPEC % (scheduler, scheduler, find_max))
    return found


def wanted(run: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((run / WANTED_FILE).read_text(encoding="utf-8"))
    return found


def test_on_a_cluster_it_is_one_job(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verification.verify(run, memory=None) == 0
    assert (tmp_path / "calls").read_text() == f"--parsable --array=1-1 {run}/find.sh --offset 4\n"
    assert wanted(run)["memory_bytes"] == GIB
    assert wanted(run)["after"] == 0
    assert "#SBATCH --mem=2G\n" in (run / "find.sh").read_text(encoding="utf-8")
    assert "submitted: slurm job 77" in capsys.readouterr().err
    events = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    assert [(one["event"], one["first"] + one["offset"]) for one in events] == [
        ("submitting", 5),
        ("submitted", 5),
    ]


@pytest.mark.parametrize(("memory", "bytes_"), [(3 * GIB, 3 * GIB), ("device", None)])
def test_another_memory_may_be_asked_for(run: Path, memory: int | str, bytes_: int | None) -> None:
    verification.verify(run, memory=memory)
    assert wanted(run)["memory_bytes"] == bytes_


def test_a_spec_without_find_max_means_all_there_is(run: Path) -> None:
    write_atomically(run / "sweep.yaml", SPEC % ("slurm", "slurm", ""))
    verification.verify(run, memory=None)
    assert (wanted(run)["memory_bytes"], wanted(run)["ram_bytes"]) == (None, 2 * GIB)


def test_earlier_trials_are_not_counted_again(run: Path) -> None:
    for trial in (Trial(index=5), Trial(message="too few"), Trial(message="too few")):
        append_line(run / TRIALS_FILE, to_json(trial))
    verification.verify(run, memory=None)
    assert wanted(run)["after"] == 3


def test_a_refusal_has_its_exit_code(run: Path, tmp_path: Path) -> None:
    sbatch(tmp_path, 'echo "over quota" >&2; exit 1')
    with pytest.raises(JobkitError, match="over quota") as caught:
        verification.verify(run, memory=None)
    assert caught.value.exit_code == 3


def test_a_run_without_points_is_none(run: Path) -> None:
    write_atomically(run / "points.jsonl", "")
    with pytest.raises(JobkitError, match=r"points.jsonl: holds no point"):
        verification.verify(run, memory=None)


def test_here_ctrl_c_is_no_failure_of_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "find_largest", interrupted)
    assert verification.verify(run_of(tmp_path, "local"), memory=None) == 130
    assert "interrupted" in capsys.readouterr().err
