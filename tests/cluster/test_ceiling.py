"""A ceiling on GPU-hours holds for each command that submits, and for the job that follows. Real daemons."""

from __future__ import annotations

from jobkit.core.errors import ExitCode
from tests.cluster.daemons import BUSY, Wait
from tests.cluster.lab import COUNT, SLURM, ClusterLab, FaultySweep
from tests.support.builders import write_event

DEADLINE_S = 60 * BUSY
GPU = COUNT.replace("gpus: 0", "gpus: 1") + "device: cpu\n"  # it asks for a GPU, and uses none


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
    low, high = (lab.jobkit("resume", lab.run_dir(), "--max-gpu-hours", hours) for hours in ("0.001", "1"))
    assert (low.returncode, "nothing was submitted" in low.stderr) == (ExitCode.USAGE, True), low.stderr
    assert high.returncode == 0, high.stderr
    assert [event["max_gpu_hours"] for event in lab.events() if event["event"] == "ceiling"] == [0.01, 1.0]
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
