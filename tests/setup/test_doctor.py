"""What the doctor finds on this machine: fake schedulers, real shells, this Python."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from jobkit.launch.helper_job import submit_fetch
from jobkit.planning.prepare import Options
from jobkit.setup import doctor
from jobkit.setup.doctor import Case, open_case
from jobkit.setup.findings import Finding, Status
from jobkit.setup.init import ask_site
from tests.fakes.cluster import FakeCluster
from tests.whole.test_environments import FAKES

COUNT = "name: mine\nworkload: count\ntext: a.txt\nrepeats: 1\n"
RESOURCES = 'resources: {gpus: 1, cpus: 1, memory: 200MiB, walltime: "00:02:00"}\n'
pytestmark = pytest.mark.usefixtures("here")


def case_of(scheduler: str, more: str = "", **options: object) -> Case:
    Path("spec.yaml").write_text(f"{COUNT}{RESOURCES}{more}", encoding="utf-8")
    return open_case(Path("spec.yaml"), Options(scheduler=scheduler, **options))  # type: ignore[arg-type]


def by_names(found: Iterable[Finding]) -> dict[str, Finding]:
    return {one.name: one for one in found}


def asked(case: Case) -> dict[str, Finding]:
    return by_names(doctor.scheduler(case, ask_site(case.scheduler)))


def python_of(scheduler: str, more: str = "", **options: object) -> dict[str, Finding]:
    return by_names(doctor.python_here(case_of(scheduler, f"device: cpu\n{more}", **options)))


@pytest.mark.slow
def test_jobs_that_are_no_sweep_ask_for_what_the_shell_asks(
    fake_slurm: FakeCluster, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del fake_slurm
    monkeypatch.setenv("SBATCH_QOS", "high")
    case = case_of("slurm")
    fetch = submit_fetch("en", ["en"], scheduler="slurm", site="auto", runs_dir=here)
    for script in (doctor.script_for(case, here, case.spec), (fetch.run_dir / "job.sh").read_text()):
        assert "\n#SBATCH --qos=high\n" in script
    assert "SBATCH_QOS is high" in [one.said for one in case.opening]


def test_a_job_that_the_scheduler_refuses_is_reported_once_in_its_words(fake_slurm: FakeCluster) -> None:
    del fake_slurm
    found = asked(case_of("slurm", overrides=("resources.queue=gqu",)))
    assert "did you mean 'gpu'?" in found["partition"].said
    assert found["job"].status is Status.MISSING
    assert found["job"].said.startswith("sbatch refuses the job: ")
    assert found["job"].hint == "fix what is missing above first"

    of_itself = asked(case_of("slurm", overrides=("resources.constraint=ib",)))
    assert [one.name for one in of_itself.values() if one.status is Status.MISSING] == ["job"]
    assert "requests" in of_itself["job"].hint

    idle = asked(case_of("slurm", overrides=("resources.gpus=1", "device=cpu")))["GPUs in use"]
    assert (idle.status, idle.hint) == (Status.WARNING, "--set resources.gpus=0")


def test_a_controller_that_is_away_is_all_there_is_to_say(fake_slurm: FakeCluster) -> None:
    fake_slurm.fault("controller_away")
    found = asked(case_of("slurm"))

    assert list(found) == ["scheduler", "site file"]
    assert found["scheduler"].status is Status.MISSING


@pytest.mark.slow
def test_this_machine_without_a_scheduler(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(here / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    case = case_of("local")

    assert asked(case) == {}
    opening = by_names(doctor.opening(case))
    assert "points would run here" in opening["commands"].said
    assert sys.executable in opening["jobkit"].said
    found = python_of("local")
    assert list(found) == ["programs", "scratch", "inputs", "CPUs", "environment", "jobkit"]
    assert {one.status for one in found.values()} == {Status.OK}
    assert sys.executable in found["environment"].said
    assert list((here / "tmp").iterdir()) == [], "nothing of a look is left behind"
    assert not (here / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("scheduler", "seen"), [("slurm", "yes"), ("sge", "no")])
def test_only_some_schedulers_hand_variables_on(
    scheduler: str, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_LOGIN_SHELL", "yes")
    setup = 'echo "${OF_THE_LOGIN_SHELL:-no}, of this place" >&2; false'
    found = python_of(scheduler, f"environment: {{setup: ['{setup}']}}\n")["environment"]

    assert found.status is Status.MISSING
    assert f"{seen}, of this place" in found.said


@pytest.mark.slow
def test_a_venv_without_jobkit_and_one_that_is_not_there(here: Path) -> None:
    venv = here / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "activate").write_text(f"PATH={venv}/bin:$PATH\n", encoding="utf-8")
    (venv / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -IS "$@"\n', encoding="utf-8")
    (venv / "bin" / "python").chmod(0o755)
    found = python_of("slurm", f"environment: {{venv: {venv}}}\n")["jobkit"]
    assert found.status is Status.MISSING
    assert "No module named 'jobkit'" in found.said
    assert found.hint == f"{venv}/bin/python -m pip install jobkit"
    absent = python_of("slurm", "environment: {venv: /no/such/venv}\n")["environment"]
    assert absent.status is Status.MISSING
    assert "/no/such/venv/bin/activate" in absent.said


def node_with_image(folder: Path, monkeypatch: pytest.MonkeyPatch, options: str = "") -> None:
    """Make an image next to the spec, and a stand-in for apptainer; with the options its Python starts."""
    (folder / "tools.sif").write_text("SIF", encoding="utf-8")
    (folder / "bin").mkdir()
    python = folder / "bin" / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {options} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    (folder / "bin" / "apptainer").symlink_to(FAKES / "apptainer")
    path = f"{folder}/bin:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("FAKE_IMAGE_PATH", path)


@pytest.mark.slow
@pytest.mark.parametrize("options", ["", "-IS"])
def test_the_probes_run_in_a_container(here: Path, monkeypatch: pytest.MonkeyPatch, options: str) -> None:
    node_with_image(here, monkeypatch, options)
    found = python_of("local", "environment: {container: tools.sif}\n")

    assert found["environment"].status is Status.OK
    assert found["environment"].said.endswith(f" at {here}/bin/python3")
    assert found["jobkit"].status is (Status.MISSING if options else Status.OK)
    assert found["jobkit"].hint.startswith("when you build the image: " if options else "")


@pytest.mark.slow
@pytest.mark.parametrize(("scratch", "words"), [("/proc/$NO_SUCH_VARIABLE", ""), ("/proc/x", "(/proc/x)")])
def test_scratch_that_cannot_be_made(here: Path, scratch: str, words: str) -> None:
    site = here / "ours.yaml"
    site.write_text(f"name: ours\nscheduler: local\nscratch: {scratch}\n", encoding="utf-8")
    found = python_of("local", site=str(site))["scratch"]
    assert found.status is Status.MISSING
    assert words in found.said


@pytest.mark.slow
def test_a_step_that_hangs_is_ended(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "STEP_LIMIT_S", 1)
    (here / "bin").mkdir()
    python = here / "bin" / "python"
    python.write_text("#!/bin/sh\nexec sleep 300\n", encoding="utf-8")
    python.chmod(0o755)
    (here / "bin" / "activate").write_text(f"PATH={here}/bin:$PATH\n", encoding="utf-8")
    found = python_of("slurm", f"environment: {{venv: {here}}}\n")

    assert "the import took too long" in found["jobkit"].said


@pytest.mark.slow
def test_the_program_of_a_command_is_looked_for(here: Path) -> None:
    def said(command: str) -> list[str]:
        workload = f"workload: {{command: '{command} {{batch_size}}', files: [tag]}}"
        text = COUNT.replace("workload: count", workload)
        Path("tag.yaml").write_text(f"{text}{RESOURCES}sweep: {{batch_size: [1]}}\n", encoding="utf-8")
        case = open_case(Path("tag.yaml"), Options(scheduler="local"))
        found = [*doctor.inputs(case), *([] if "{" in command else doctor.python_here(case))]
        return [one.said for one in found if one.name == "program"]

    script = here / "tag"
    script.write_text("#!/usr/bin/env no-such-interpreter\n")
    assert said("./tag")[0] == "tag is not executable"
    script.chmod(0o755)
    assert said("./tag")[1] == "no-such-interpreter is not on PATH here"
    python = f"; `python` in it is {Path(sys.executable).parent}/python"
    assert said("cat") == [f"cat is {shutil.which('cat')}{python}"]
    assert "a knob decides it" in said("{batch_size}")[0]
