"""What `jobkit sweep` says of its request and of the jobs that were accepted, or refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.commands.sweep import sweep as sweep_command
from jobkit.core.errors import JobkitError
from jobkit.launch import launch
from jobkit.launch.job import Job, announce, find_job, follow_job
from jobkit.planning.prepare import Options, Prepared, prepare
from jobkit.schedulers.types import ONE_TASK, JobId
from jobkit.spec.policy import Policy
from tests.support.builders import grid, record, write_records, write_submitted
from tests.support.programs import Programs
from tests.support.programs import queue as queue  # noqa: PLC0414 - a fixture is found by its name here

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
    ("overrides", "phrases"),
    [
        ((), ("2 CPUs, 1GiB of memory and 00:10:00 a point, 4 at", "5.0 CPU-hours, retries not counted")),
        (GPU, ("1 v100 GPU, 2 CPUs, ", "at most 2.5 GPU-hours")),
        (("resources.gpus=2", "max_parallel=null"), ("2 GPUs, 4 CPUs, ", "00:10:00 a point: ", "5.0 GPU-")),
        (("resources.exclusive=true", "resources.cpus=1"), ("requesting 1 CPU, ", "a node to itself")),
        ((*GPU, "pack=4", "max_parallel=2"), ("4 points a job, 2 jobs at a time", "2.5 GPU-hours")),
        ((*GPU, "find_max={}", "policy.follow_up=false"), ("2.7 GPU-hours, the largest batch included",)),
        (("repeats=1000",), ("at most 1,666.7 CPU-hours",)),
    ],
)
def test_what_is_requested_and_what_it_comes_to(overrides: tuple[str, ...], phrases: tuple[str, ...]) -> None:
    line = launch.request_line(ready(*overrides))
    assert [phrase for phrase in phrases if phrase not in line] == []
    assert ("retries not counted" in line) == ("policy.follow_up=false" not in overrides)


@pytest.mark.parametrize(("overrides", "hours"), [((), 2.5), (("pack=5",), 2.5), (("find_max={}",), 3.0)])
def test_here_it_is_a_matter_of_hours(overrides: tuple[str, ...], hours: float) -> None:
    line = launch.request_line(ready(*overrides, scheduler="local"))
    assert line.startswith(f"one point at a time, 00:10:00 each at most: at most {hours} hours")


def test_the_points_are_counted_with_their_repeats() -> None:
    assert launch.headline(ready()).startswith("15 points (5 settings x 3) of count on slurm (from --sch")
    assert launch.headline(ready("repeats=auto")).startswith("50 points (5 settings x at most 10) of count")


@pytest.fixture
def cluster(queue: Programs) -> Programs:
    """Return a Slurm that takes arrays."""
    queue.add("scontrol", "echo MaxArraySize = 1001")
    queue.add("sinfo", "exit 1")
    return queue


def test_it_is_said_before_anything_is_submitted(
    cluster: Programs, capfd: pytest.CaptureFixture[str]
) -> None:
    start = "sbatch: Job 5 to start at 2026-01-02T03:04:05 using 1 processors on nodes n1 in partition cpu"
    tested = f"*--test-only*) echo '{start}' >&2;;"
    cluster.add("sbatch", f'case "$*" in {tested} *) echo THE SUBMISSION >&2; exit 1;; esac')
    prepared = replace(ready(), follow_script=None)
    with pytest.raises(JobkitError) as refused:
        launch.on_cluster(prepared, wait=False)
    assert "THE SUBMISSION" in refused.value.message
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].startswith("15 points")
    assert lines[1].startswith("requesting 2 CPUs")
    assert lines[2].startswith("Slurm estimates a start at 2026-01-02 03:04:05: ")


def test_a_dry_run_here_names_the_driver_that_does_it_all() -> None:
    prepared = ready("find_max={}", scheduler="local")
    (argv,) = launch.submit_commands(prepared)
    assert argv[1:] == ("-m", "jobkit.launch.resume", str(prepared.run_dir))


def test_what_to_type_next_is_named(cluster: Programs, capfd: pytest.CaptureFixture[str]) -> None:
    cluster.add("sbatch", 'case "$*" in *--test-only*) ;; *follow.sh*) echo 8;; *) echo 7;; esac')
    prepared = ready()
    assert launch.on_cluster(prepared, wait=False) == 0
    said = capfd.readouterr().err
    run = f"runs/{prepared.run_dir.name}"
    assert said.endswith(f"submitted: slurm job 7\nrun folder: {run}\nnext: jobkit status {run} --watch\n")


@pytest.mark.usefixtures("queue")
def test_of_a_corpus_that_is_planned_already_every_shard_is_awaited(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_records(home / "run", map(record, grid([1], 2)))
    write_submitted(run, "slurm", "77", first=1, last=2)
    launch.wait_for_points(run, (), Policy())
    assert "2/2 points" in capsys.readouterr().err


def test_a_dry_run_reports_what_would_be_refused(
    cluster: Programs, capfd: pytest.CaptureFixture[str]
) -> None:
    """The message comes first, and again after the script, which scrolls the first away."""
    cluster.add("sbatch", "echo 'sbatch: error: invalid partition' >&2; exit 1")
    argv = ["spec.yaml", "--dry-run", "--scheduler", "slurm"]
    assert sweep_command.main(argv, standalone_mode=False) == 0
    page, messages = capfd.readouterr()
    assert messages.count("the scheduler would refuse this sweep: ") == 2
    assert "\n#   sbatch --parsable --array=1-15%4" in page
    assert "# 15 points: 5 settings, 3 repeats; workload count; device cpu" in page.splitlines()
    assert "# scheduler slurm (from --scheduler), site slurm-default" in page.splitlines()
    assert not Path("runs").exists()


def test_the_jobs_that_were_accepted_are_one_line() -> None:
    arrays = [Job(script="job.sh", array=ONE_TASK, id=JobId(number)) for number in ("7", "8")]
    find, follow = replace(find_job(6), id=JobId("9", "lab")), replace(follow_job(1), id=JobId("10"))
    refused = replace(follow_job(1), refused="no dependencies here")
    lines: list[str] = []
    announce("slurm", [*arrays, find, follow], "; waiting for it", lines.append)
    announce("slurm", [*arrays, refused], "", lines.append)
    assert lines[0].startswith("submitted: slurm job 7, 8; job 9")
    assert lines[0].endswith("; waiting for it")
    assert "10" not in lines[0], "the job that runs failed points again is named only if it was refused"
    assert lines[1] == "submitted: slurm job 7, 8"
    assert "no dependencies here" in lines[2]
