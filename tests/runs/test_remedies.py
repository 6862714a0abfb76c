"""Every hint about an outcome, typed as it stands: the point then goes well."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from jobkit import cli
from jobkit.core.records import Outcome
from jobkit.core.torch_build import INDEX
from jobkit.runs.hints import REMEDIES, FixKind, Step, remedy
from jobkit.runs.reader import read_standings
from jobkit.runs.standing import PointState, PointStatus
from jobkit.runs.status_text import next_steps
from jobkit.worker import failure
from tests.support.copiers import stand_in
from tests.support.swept import Sweep
from tests.support.swept import sweep as sweep  # noqa: PLC0414 - a fixture is found by its name here
from tests.whole.test_scheduler_faults import Lab
from tests.whole.test_scheduler_faults import sge_lab as sge_lab  # noqa: PLC0414 - the same
from tests.whole.test_scheduler_faults import slurm_lab as slurm_lab  # noqa: PLC0414 - the same

CHOICES = {"HH:MM:SS": "01:00:00", "FOLDER": str(Path(sys.executable).parents[1])}
"""What a person puts for the words of a hint."""
SPEC = """\
name: t
workload: own:Own
text: text.txt
model: {{size: tiny, fallback: stand-in}}
scheduler: local
site: {site}
sweep: {{batch_size: [1, 2, 3, 4, 5, 6, 7, 8, 9]}}
repeats: 1
resources: {{gpus: 0, cpus: 1, memory: 200MiB, walltime: 2m}}
policy: {{follow_up: false, bug: {{stop_after: 2}}}}
"""
OWN = """\
import os, pathlib, time
from jobkit.worker.workloads.function import Count

class Own(Count):
    NEEDS_MODEL = True

    def load(self, model, device, params, threads):
        does = pathlib.Path(__file__).with_name(f"does-{params['batch_size']}")
        exec(does.read_text() if does.exists() else "")
        super().load(model, device, params, threads)
"""
HERE: Mapping[Outcome, tuple[int, str]] = {
    Outcome.LOST: (1, "os.kill(os.getppid(), 9); time.sleep(60)"),
    Outcome.ENVIRONMENT: (2, "import no_such_package"),
    Outcome.NO_GPU: (3, "raise RuntimeError('No CUDA GPUs are available')"),
    Outcome.GPU_BUSY: (4, "raise RuntimeError('all CUDA-capable device(s) is/are busy or unavailable')"),
    Outcome.SCRATCH_FULL: (5, "raise OSError(28, 'No space left on device')"),
    Outcome.MODEL_MISSING: (6, "raise FileNotFoundError('en/ner/jobkit.pt')"),
    Outcome.BUG: (7, "raise ValueError('on purpose')"),
    Outcome.STOPPED: (9, ""),
}
"""What goes wrong here with which batch size; 7 and 8 fail the same way, so that 9 is stopped."""


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory, kept_cache: Path, tiny_model: object) -> Path:
    """Return the run folder of a sweep here of which every point failed in its own way."""
    assert tiny_model
    home = tmp_path_factory.mktemp("failed")
    (home / "own.py").write_text(OWN)
    (home / "text.txt").write_text("One.\n\nTwo.\n")
    (home / "site.yaml").write_text(
        f"name: here\nscheduler: local\nscratch: {home}/scratch\nsync_interval_s: 1\n"
    )
    (home / "spec.yaml").write_text(SPEC.format(site=home / "site.yaml"))
    for size, does in [*HERE.values(), (8, HERE[Outcome.BUG][1])]:
        (home / f"does-{size}").write_text(does)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JOBKIT_CACHE", str(kept_cache))
        patch.chdir("/")  # the folder of the spec, and not the one where it is typed, holds the workload
        arguments = ["sweep", str(home / "spec.yaml"), "--runs-dir", str(home / "runs")]
        assert cli._exit_code(arguments) == 4
    (run,) = (home / "runs").iterdir()
    return run


def point(run: Path, size: int) -> PointStatus:
    return read_standings([run])[0].points[size - 1]


def steps_of(one: PointStatus, run: Path) -> list[Step]:
    steps = next_steps(read_standings([run])[0], one, str(run))
    return [step for step in steps if step.kind is not FixKind.LOG]


def memory_of(script: Path) -> int:
    """Return the memory in MiB that a job script requests."""
    (megabytes,) = re.findall(r"--mem=(\d+)M", script.read_text(encoding="utf-8"))
    return int(megabytes)


def typed(steps: list[Step]) -> None:
    """Type the steps, in their order, as a person would; what looks at a node is tested elsewhere."""
    for step in steps:
        words = shlex.split(step.command)
        words = [next((w.replace(k, v) for k, v in CHOICES.items() if w.endswith(f"={k}")), w) for w in words]
        if words[:2] != ["jobkit", "doctor"]:
            assert words[0] == "jobkit"
            assert cli._exit_code(words[1:]) in {0, 4}, step


@pytest.mark.parametrize("outcome", HERE)
def test_what_failed_here(outcome: Outcome, failed: Path) -> None:
    size, _ = HERE[outcome]
    one = point(failed, size)
    told = one.counts.verdict.evidence
    assert one.outcome is outcome, told
    assert ("own.py:9: ValueError: on purpose" in told) == (outcome in {Outcome.BUG, Outcome.STOPPED})
    (failed.parents[1] / f"does-{size}").unlink(missing_ok=True)
    steps = steps_of(one, failed)
    if outcome is Outcome.ENVIRONMENT:
        steps = steps[:1]  # the second is the other way
    typed(steps)
    assert point(failed, size).outcome is Outcome.OK


HAPPENS: Mapping[Outcome, Callable[[Lab], object]] = {
    Outcome.RAM_OOM: lambda lab: lab.cluster.out_of_memory(lab.job, 1),
    Outcome.NODE_FAIL: lambda lab: lab.cluster.node_fails(lab.job, 2),
    Outcome.PREEMPTED: lambda lab: lab.cluster.preempt(lab.job, 3),
    Outcome.CANCELLED: lambda lab: cli._exit_code(["cancel", str(lab.run), "4"]),
}
"""What becomes of each of four points on a cluster."""


def test_what_failed_on_a_cluster(slurm_lab: Lab) -> None:
    lab = slurm_lab
    lab.cluster.set(kill_wait_s=1)
    lab.fail(b1="slow", b2="slow", b3="slow", b4="slow")
    assert lab.sweep(4, options="[--no-requeue]").returncode == 0
    lab.until(lambda: all(one.standing is PointState.RUNNING and one.tries for one in lab.look().points))
    for happen in HAPPENS.values():
        happen(lab)
    lab.until(lambda: [one.outcome for one in lab.look().points] == list(HAPPENS))
    lab.fail()
    for index in range(1, 5):
        typed(steps_of(lab.point(index), lab.run))
    lab.until(lambda: lab.outcomes() == [Outcome.OK] * 4)
    first, second = (memory_of(lab.run / name) for name in ("job.sh", "job-2.sh"))
    assert second == math.ceil(1.5 * first), "as the policy adds"


def test_a_point_that_took_too_long_gets_more_time(slurm_lab: Lab) -> None:
    slurm_lab.cluster.set(rate=60.0)  # a minute is a second: two are too short to begin
    slurm_lab.fail(b1="slow", b2="slow")
    assert slurm_lab.sweep().returncode == 0
    slurm_lab.until(lambda: slurm_lab.outcomes() == [Outcome.TIMEOUT] * 2)
    slurm_lab.until(lambda: all(one.standing is PointState.FAILED for one in slurm_lab.look().points))
    slurm_lab.fail()
    typed(steps_of(slurm_lab.point(1), slurm_lab.run))
    slurm_lab.until(lambda: slurm_lab.outcomes() == [Outcome.OK, Outcome.TIMEOUT])


def test_a_task_in_error_is_taken_back_and_submitted_again(sge_lab: Lab) -> None:
    sge_lab.cluster.fault("full")
    assert sge_lab.sweep().returncode == 0
    sge_lab.cluster.in_error(sge_lab.job, 2)
    assert sge_lab.point(2).outcome is Outcome.QUEUE_ERROR
    sge_lab.cluster.fix()
    typed(list(remedy(Outcome.QUEUE_ERROR, "", run=str(sge_lab.run), point=2, alone=True)))
    sge_lab.until(lambda: sge_lab.outcomes() == [Outcome.OK] * 2)
    assert len(sge_lab.cluster.jobs()) == 2


def test_a_point_that_was_left_out_can_be_submitted(sweep: Sweep) -> None:
    sweep.ended(*[Outcome.OK] * 5, Outcome.PRUNED)
    typed(steps_of(point(sweep.run, 6), sweep.run))
    assert (sweep.run / "tasks-2.txt").read_text() == "6\n"


def test_inputs_and_results_that_could_not_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("One.\n\nTwo.\n")
    (tmp_path / "site.yaml").write_text(f"name: x\nscheduler: local\nscratch: {tmp_path}/scratch\n")
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    keys = (
        "name: t\nworkload: count\ntext: text.txt\nscheduler: local\nsite: ./site.yaml\n"
        "sweep: {batch_size: 1}\nrepeats: 1\nresources: {gpus: 0}\npolicy: {follow_up: false}\n"
    )
    (tmp_path / "spec.yaml").write_text(keys)
    for outcome, pattern in ((Outcome.STAGE_IN, ".inputs/"), (Outcome.STAGE_OUT, "/out/")):
        program = stand_in(tmp_path / "bin", f'[[ "$*" != *{pattern}* ]] || exit 1')
        monkeypatch.setenv("PATH", path)
        assert cli._exit_code(["sweep", "spec.yaml", "--runs-dir", outcome]) == 4
        (run,) = (tmp_path / outcome).iterdir()
        one = point(run, 1)
        assert one.outcome is outcome, one.counts.verdict.evidence
        program.unlink()
        typed(steps_of(one, run))
        if outcome is Outcome.STAGE_OUT:
            kept = one.counts.verdict.evidence.partition("kept in ")[2].partition(":")[2].partition(";")[0]
            home = run / "results" / one.point.point_id / "try-1"
            shutil.copytree(Path(kept) / "out", home, dirs_exist_ok=True)
        assert point(run, 1).outcome is Outcome.OK


PYTHON_ = "/opt/my env/bin/python"
FORCED = f"install --force-reinstall torch --index-url {INDEX}"


@pytest.mark.parametrize(
    ("message", "commands"),
    [
        (
            f"the point requests CUDA, but torch 2.9+cpu in {PYTHON_} is a CPU build",
            [f"'{PYTHON_}' -m pip {FORCED}", "jobkit resume R"],
        ),
        (f"{failure.NO_GPU_REQUESTED} (resources.gpus: 0)", ["jobkit resume R --set resources.gpus=1"]),
        (f"{failure.NO_DRIVER} here", ["nvidia-smi", "jobkit resume R --set resources.queue=NAME"]),
        (f"{failure.NO_GPU_ASSIGNED} (x='')", ["jobkit doctor --submit", "jobkit resume R"]),
        (
            f"torch 2.9 for CUDA 13.0 {failure.OLD_DRIVER} 470",
            [
                "nvidia-smi",
                f"python -m pip {FORCED}",
                "jobkit resume R",
            ],
        ),
    ],
)
def test_why_there_is_no_gpu_decides(message: str, commands: list[str]) -> None:
    found = remedy(Outcome.NO_GPU, message, run="R", point=3)
    assert [step.command for step in found] == commands


@pytest.mark.parametrize(
    ("message", "command"),
    [
        ("python3 in the container cannot import jobkit on n1", "environment.container=IMAGE"),
        ("there is no image /x.sif on n1", "environment.container=IMAGE"),
        ("neither apptainer nor singularity is on PATH on n1", "environment.modules"),
    ],
)
def test_what_a_container_lacks_is_not_another_venv(message: str, command: str) -> None:
    steps = remedy(Outcome.ENVIRONMENT, message, run="RUN", point=1)
    typed = " ".join(step.command for step in steps)
    assert command in typed
    assert "environment.venv" not in typed


def test_a_node_without_mps_is_no_reason_for_another_environment() -> None:
    (step,) = remedy(Outcome.ENVIRONMENT, f"{failure.NO_MPS} no", run="R", point=3)
    assert step.command == "jobkit resume R --set resources.queue=NAME"
    assert len(remedy(Outcome.ENVIRONMENT, "no module", run="R", point=3)) > 1


def test_a_batch_that_hung_does_not_get_more_time() -> None:
    message = f"worker 1 {failure.HANG} of 4 paragraphs for 61 s (hang_s: 60)"
    commands = [step.command for step in remedy(Outcome.TIMEOUT, message, run="R", point=3)]
    assert commands == ["jobkit logs R 3", "jobkit resume R 3"]
    (step,) = remedy(Outcome.TIMEOUT, "stopped by SIGUSR1", run="R", point=3)
    assert step.command == "jobkit status R 3", "which computes the walltime"


def test_a_node_without_a_profiler_lacks_a_package() -> None:
    install, again = remedy(Outcome.ENVIRONMENT, f"{failure.NO_PROFILER} no", run="R", point=3)
    assert (install.command, again.command) == ("pip install 'jobkit[profile]'", "jobkit resume R")


def test_every_outcome_has_a_remedy_that_is_tried() -> None:
    """Fail for a new outcome, until it is in the table and in a test of this module."""
    cluster = {*HAPPENS, Outcome.TIMEOUT, Outcome.QUEUE_ERROR, Outcome.PRUNED}
    results = {outcome for outcome, steps in REMEDIES.items() if not steps}
    assert results == {Outcome.OK, Outcome.GPU_OOM}
    assert {*HERE, *cluster, Outcome.STAGE_IN, Outcome.STAGE_OUT} | results == set(Outcome) == set(REMEDIES)
