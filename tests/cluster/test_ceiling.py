"""A ceiling on GPU-hours holds for each command that submits, and for the job that follows. Real daemons."""

from __future__ import annotations

from jobkit.core.errors import ExitCode
from jobkit.runs.reader import read_status
from jobkit.runs.status import PointStanding
from tests.cluster.daemons import BUSY, Wait
from tests.cluster.lab import COUNT, SGE, SLURM, ClusterLab, FaultySweep
from tests.support.builders import write_event

DEADLINE_S = 60 * BUSY
GPU = COUNT.replace("gpus: 0", "gpus: 1") + "device: cpu\n"  # it asks for a GPU, and uses none


@SGE
def test_a_ceiling_refuses_a_sweep_and_holds_when_it_goes_on(lab: ClusterLab) -> None:
    spec = lab.spec(GPU)
    refused = lab.sweep(spec, "--max-gpu-hours", "0.09")
    assert refused.returncode == ExitCode.USAGE
    assert "the ceiling is 0.09 GPU-hours, and this comes to 0.1 at most" in refused.stderr
    assert not (lab.home / "runs").exists()
    assert lab.sweep(spec, "--max-gpu-hours", "0.1").returncode == 0
    run = lab.run_dir()
    lab.jobkit("cancel", run)
    (seen,) = read_status([run])
    waits = [point for point in seen.points if point.standing is not PointStanding.DONE]
    low, high = (lab.jobkit("resume", run, "--max-gpu-hours", hours) for hours in ("0.001", "9"))
    assert (low.returncode, bool(waits)) == (ExitCode.USAGE, True), low.stderr
    assert "nothing was submitted" in low.stderr
    assert f"jobkit resume {run.name}" in low.stderr or "--max-gpu-hours N" in low.stderr
    assert "at most " in high.stderr
    assert high.returncode == 0, high.stderr
    assert [event["max_gpu_hours"] for event in lab.events() if event["event"] == "ceiling"] == [9.0]


@SLURM
def test_the_job_that_follows_leaves_a_retry_above_the_ceiling_to_a_person(
    faulty: FaultySweep, wait_until: Wait
) -> None:
    lab = faulty.lab
    faulty.fail({3: "memory once"})
    faulty.sweep("--set=resources.gpus=1", "--set=device=cpu", policy="{ram_oom: {tries: 1}}")
    write_event(lab.run_dir(), "ceiling", max_gpu_hours=0.01)  # as a person may set it meanwhile
    wait_until(lambda: any(event["event"] == "left" for event in lab.events()), DEADLINE_S)
    (left,) = [event for event in lab.events() if event["event"] == "left"]
    assert left["points"] == [3]
    assert "the ceiling is 0.01 GPU-hours" in str(left["why"])
    assert "0.01 GPU-hours" in lab.jobkit("status", lab.run_dir()).stdout
    assert lab.jobkit("resume", lab.run_dir(), "--max-gpu-hours", "1").returncode == 0
    faulty.becomes_ok(DEADLINE_S)


@SLURM
def test_a_ceiling_refuses_a_search_and_a_corpus(lab: ClusterLab) -> None:
    search = lab.spec(GPU + "tune: {workers: 1, repeats: 1, budget: 5m}\n", "tune.yaml")
    done = lab.jobkit("tune", search, *lab.place, "--max-gpu-hours", "0.1")  # 5 and 2 minutes of a GPU
    assert (done.returncode, "comes to 0.1167 at most" in done.stderr) == (ExitCode.USAGE, True), done.stderr
    (lab.home / "text.txt").write_text("One.\n\nTwo.\n\nThree.\n\nFour.\n", encoding="utf-8")
    spec = lab.spec(GPU.replace("[1, 10, 100]", "[1]"), "apply.yaml")
    words = ("apply", spec, "--corpus", lab.home / "text.txt", "--out", "tagged", "--shards", "2", *lab.place)
    done = lab.jobkit(*words, "--max-gpu-hours", "0.01")
    assert (done.returncode, "the ceiling is 0.01" in done.stderr) == (ExitCode.USAGE, True), done.stderr
    assert not (lab.home / "tagged").exists()
    assert not (lab.home / "runs").exists()
    assert lab.jobkit(*words, "--max-gpu-hours", "0.1", "--wait").returncode == 0
