"""What `jobkit sweep` says that it is about to ask for."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.planning.prepare import Options, Prepared, prepare
from jobkit.submit import launch

SPEC = """\
name: t
workload: count
text: text.txt
sweep: {batch_size: [10, 20, 30, 40, 50]}
repeats: 3
resources: {gpus: 0, cpus: 2, memory: 1GiB}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("One.\n\nTwo.\n", encoding="utf-8")
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    return tmp_path


def ready(*overrides: str, scheduler: str = "slurm") -> Prepared:
    return prepare("spec.yaml", Options(overrides=overrides, scheduler=scheduler), build=True)


GPU = ("resources.gpus=1", "resources.gpu_type=v100")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            (),
            (
                "asking for 2 CPUs, 1GiB of memory and 00:10:00 a point, 4 at a time: "
                "at most 5.0 CPU-hours, retries not counted"
            ),
        ),
        (
            GPU,
            (
                "asking for 1 v100 GPU, 2 CPUs, 1GiB of memory and 00:10:00 a point, 4 at a time: "
                "at most 2.5 GPU-hours, retries not counted"
            ),
        ),
        (
            ("resources.gpus=2", "resources.cpus=1", "repeats=1", "max_parallel=null"),
            (
                "asking for 2 GPUs, 1 CPU, 1GiB of memory and 00:10:00 a point: "
                "at most 1.7 GPU-hours, retries not counted"
            ),
        ),
        (
            ("repeats=1", "resources.cpus=1", "resources.exclusive=true", "max_parallel=null"),
            (
                "asking for 1 CPU, 1GiB of memory, a node to itself and 00:10:00 a point: "
                "at most 0.83 CPU-hours, retries not counted"
            ),
        ),
        (
            (*GPU, "pack=4", "max_parallel=2", "policy.follow_up=false"),
            (
                "asking for 1 v100 GPU, 2 CPUs, 1GiB of memory and 00:10:00 a point, 4 points a job, "
                "2 jobs at a time: at most 2.5 GPU-hours"
            ),
        ),
        (
            (*GPU, "find_max={}", "policy.follow_up=false"),
            (
                "asking for 1 v100 GPU, 2 CPUs, 1GiB of memory and 00:10:00 a point, 4 at a time: "
                "at most 2.7 GPU-hours, the largest batch included"
            ),
        ),
        (
            ("repeats=1", "resources.cpus=1", "resources.walltime=6s", "policy.follow_up=false"),
            "asking for 1 CPU, 1GiB of memory and 00:00:06 a point, 4 at a time: at most 0.0083 CPU-hours",
        ),
        (
            ("repeats=1000", "policy.follow_up=false"),
            "asking for 2 CPUs, 1GiB of memory and 00:10:00 a point, 4 at a time: at most 1,666.7 CPU-hours",
        ),
    ],
)
def test_what_is_asked_for_and_what_it_comes_to(overrides: tuple[str, ...], said: str) -> None:
    assert launch.asked(ready(*overrides)) == said


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ((), "one point at a time, 00:10:00 each at most: at most 2.5 hours"),
        (("pack=5",), "one point at a time, 00:10:00 each at most: at most 2.5 hours"),
        (
            ("find_max={}",),
            "one point at a time, 00:10:00 each at most: at most 3.0 hours, the largest batch included",
        ),
    ],
)
def test_here_it_is_a_matter_of_hours(overrides: tuple[str, ...], said: str) -> None:
    assert launch.asked(ready(*overrides, scheduler="local")) == said


def test_the_points_are_counted_with_their_repeats() -> None:
    assert launch.headline(ready()).startswith("15 points (5 settings x 3) of count on slurm, site slurm-def")


def test_one_point_is_no_several() -> None:
    one = launch.headline(ready("sweep.batch_size=[10]", "repeats=1"))
    assert one.startswith("1 point (1 setting x 1) of count on slurm")


def program(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


def test_it_is_said_before_anything_is_submitted(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = home / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    program(folder, "scontrol", "echo MaxArraySize = 1001")
    program(folder, "sinfo", "exit 1")
    start = "sbatch: Job 5 to start at 2026-01-02T03:04:05 using 1 processors on nodes n1 in partition cpu"
    tested = f"*--test-only*) echo '{start}' >&2;;"
    program(folder, "sbatch", f'case "$*" in {tested} *) echo THE SUBMISSION >&2; exit 1;; esac')
    prepared = replace(ready(), follow_script=None)
    with pytest.raises(JobkitError) as refused:
        launch.on_cluster(prepared, wait=False)
    assert "THE SUBMISSION" in refused.value.message
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].startswith("15 points")
    assert lines[1].startswith("asking for 2 CPUs")
    assert lines[2] == "Slurm expects the first to start at 2026-01-02 03:04:05"


def test_what_to_type_next_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = home / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    program(folder, "scontrol", "echo MaxArraySize = 1001")
    program(folder, "sinfo", "exit 1")
    program(folder, "sbatch", 'case "$*" in *--test-only*) ;; *follow.sh*) echo 8;; *) echo 7;; esac')
    prepared = ready()
    assert launch.on_cluster(prepared, wait=False) == 0
    said = capfd.readouterr().err
    run = f"runs/{prepared.run_dir.name}"
    assert "submitted: slurm job 7; job 8 waits for it and runs again what the policy says\n" in said
    for line in (f"progress     jobkit status {run}", f"cancel       jobkit cancel {run}"):
        assert f"  {line}\n" in said
