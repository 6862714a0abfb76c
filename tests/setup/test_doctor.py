"""What the doctor checks, and finds here and in a job: fake schedulers, real shells, this Python."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from jobkit.launch import helper_job
from jobkit.planning.prepare import Options
from jobkit.schedulers.survey import Survey
from jobkit.setup import doctor
from jobkit.setup.ask import ask_site
from jobkit.setup.doctor import Case, inputs_of, open_case, with_gpus
from jobkit.setup.findings import Finding, Status, missing
from tests.fakes.cluster import FakeCluster
from tests.support.surveys import survey_of
from tests.whole.test_environments import FAKES

COUNT = "name: mine\nworkload: count\ntext: a.txt\nrepeats: 1\n"
RESOURCES = 'resources: {gpus: 1, cpus: 1, memory: 200MiB, walltime: "00:02:00"}\n'
pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def here(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory: with a text, a configuration folder and a cache that is still missing."""
    monkeypatch.setattr(helper_job, "FIRST_PAUSE_S", 0.2)
    (here / "config").mkdir()
    (here / "a.txt").write_text("One.\n\nTwo.\n", encoding="utf-8")
    return here


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
    fetch = helper_job.submit_fetch("en", ["en"], scheduler="slurm", site="auto", runs_dir=here)
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


def a_venv(folder: Path, python: str) -> Path:
    """Make an environment whose Python is a program."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "activate").write_text(f"PATH={folder}/bin:$PATH\n", encoding="utf-8")
    (folder / "bin" / "python").write_text(f"#!/bin/sh\nexec {python}\n", encoding="utf-8")
    (folder / "bin" / "python").chmod(0o755)
    return folder


@pytest.mark.slow
def test_a_venv_without_jobkit_and_one_that_is_not_there(here: Path) -> None:
    venv = a_venv(here / "venv", f'{sys.executable} -IS "$@"')
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
def test_scratch_that_cannot_be_made(here: Path) -> None:
    for scratch, words in (("/proc/$NO_SUCH_VARIABLE", ""), ("/proc/x", "(/proc/x)")):
        site = write(here / "ours.yaml", f"name: ours\nscheduler: local\nscratch: {scratch}\n")
        found = python_of("local", site=str(site))["scratch"]
        assert (found.status, words in found.said) == (Status.MISSING, True)


@pytest.mark.slow
def test_a_step_that_hangs_is_ended(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "STEP_LIMIT_S", 1)
    found = python_of("slurm", f"environment: {{venv: {a_venv(here / 'venv', 'sleep 300')}}}\n")
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


def opened(path: Path | None = None, **options: str) -> Case:
    return open_case(path, Options(**options))  # type: ignore[arg-type]  # names and values of a test


MINE = "name: mine\nworkload: count\ntext: a.txt\nscheduler: slurm\nresources: {gpus: 2, queue: gpu}\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_spec_a_small_one_is_looked_at(here: Path) -> None:
    case = opened(scheduler="slurm")
    assert (case.given, case.local, case.device, case.spec.resources.gpus) == (False, False, "cpu", 0)
    (found,) = case.opening
    assert (found.name, found.status) == ("site file", Status.WARNING)
    assert found.hint.startswith("jobkit init")
    at_lab = with_gpus(case, survey_of("slurm", "lab"))
    assert (at_lab.spec.resources.gpus, at_lab.device) == (1, "cuda"), "the site has some"
    assert with_gpus(case, Survey(product="Slurm", queues=())) == case
    own = write(here / "config" / "site.yaml", "name: ours\nscheduler: slurm\n")
    case = opened(scheduler="slurm")
    assert (case.site_file, case.opening[0].status) == (own, Status.OK)
    of_site = opened(scheduler="slurm", site=str(own))
    assert of_site.importable == "count", "a check of a site is not about the packages of a workload"
    alone = opened(scheduler="local")
    assert (alone.local, [one.status for one in alone.opening]) == (True, [Status.OK]), "needs no site file"
    assert with_gpus(alone, Survey(product="this machine")).spec.resources.gpus == 1


@pytest.mark.slow
def test_a_spec_is_taken_as_it_is(here: Path) -> None:
    case = opened(write(here / "spec.yaml", MINE))

    assert (case.given, case.spec.name, case.base) == (True, "mine", here)
    assert with_gpus(case, survey_of("slurm", "lab")) == case
    assert [one.name for one in case.opening] == ["spec", "site file"]
    assert list(inputs_of(case)) == [here / "a.txt"]
    assert case.request().queue == "gpu"
    lost = opened(write(here / "spec.yaml", MINE.replace("a.txt", "b.txt").replace("count", "x.y:Z")))
    assert list(inputs_of(lost)) == []


def test_a_spec_with_faults_is_reported_and_a_small_one_takes_its_place(here: Path) -> None:
    case = opened(write(here / "spec.yaml", MINE + "reources: {}\n"), scheduler="slurm")

    assert not case.given
    assert case.opening[0].status is Status.MISSING
    assert "did you mean 'resources'?" in case.opening[0].said
    assert list(inputs_of(case)) == []


def test_a_site_file_with_faults_is_reported_and_the_default_takes_its_place(here: Path) -> None:
    path = write(here / "ours.yaml", "name: ours\nscheduler: slurm\nqueu: gpu\n")
    case = opened(scheduler="slurm", site=str(path))

    (found,) = case.opening
    assert (found.name, found.status) == ("site file", Status.MISSING)
    assert "did you mean 'queue'?" in found.said
    assert case.site.name == "slurm-default"


def in_a_job(case: Case, within_s: float = 60, say: Callable[[str], None] = print) -> dict[str, Finding]:
    return by_names(doctor.in_a_job(case, [], within_s, say))


def job_case(scheduler: str, more: str = "") -> Case:
    return case_of(scheduler, more, overrides=("device=cpu", "resources.gpus=0"))


def folders() -> list[Path]:
    return list(Path("runs").iterdir()) if Path("runs").exists() else []


def test_what_a_job_finds_comes_home(fake_slurm: FakeCluster, here: Path) -> None:
    said: list[str] = []
    script = here / "seen.sh"
    found = in_a_job(job_case("slurm", f'environment: {{setup: ["cp $0 {script}"]}}\n'), say=said.append)

    assert list(found)[:2] == ["job", "home"]
    assert {"programs", "scratch", "inputs", "environment", "jobkit"} < set(found)
    assert {one.status for one in found.values()} == {Status.OK}, found
    assert found["job"].where.startswith("In a job, on ")
    assert any(line.startswith("submitted: slurm job") for line in said)
    assert folders() == [], "all was well: nothing is left behind"
    assert fake_slurm.jobs()[0].name.startswith("doctor-")
    header = script.read_text(encoding="utf-8")
    assert all(line in header for line in ("#SBATCH --mem=200M", "#SBATCH --time=00:03:00"))
    assert "#SBATCH --signal" not in header, "it needs no warning"


def test_a_queue_that_does_not_start_it_is_not_waited_for_for_ever(fake_slurm: FakeCluster) -> None:
    fake_slurm.fault("full")
    said: list[str] = []
    found = in_a_job(job_case("slurm"), within_s=1.5, say=said.append)

    (job,) = fake_slurm.jobs()
    assert found["job"].status is Status.MISSING
    assert "the job did not begin within 0:02" in found["job"].said
    assert "Resources" in found["job"].said
    assert f"job {job.id} was cancelled" in found["job"].said
    assert "--within" in found["job"].hint
    assert any("pending" in line for line in said)
    assert "cancelled" in json.dumps(fake_slurm.words(job.id)).lower()


def test_a_job_that_never_begins_is_cancelled_at_once_and_names_what_to_change(
    fake_slurm: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "WALLTIME_S", 10**6)
    found = in_a_job(job_case("slurm"))["job"]
    assert found.status is Status.MISSING
    assert found.said.startswith("the job will not begin: PartitionTimeLimit: the walltime is longer")
    assert f"job {fake_slurm.jobs()[0].id} was cancelled" in found.said
    assert found.hint.startswith("change resources.walltime in the spec; the scheduler's answer: ")


def test_a_job_that_vanishes_without_an_answer(
    fake_slurm: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    del fake_slurm
    monkeypatch.setattr(helper_job, "GONE_GRACE_S", 1.0)
    found = in_a_job(job_case("slurm", 'environment: {setup: ["echo last words; kill -9 $$"]}\n'))

    assert found["job"].status is Status.MISSING
    assert "left the queue and wrote no answer" in found["job"].said
    assert len(folders()) == 1, "what a failure leaves is kept"


def test_a_queue_that_does_not_answer_is_not_believed_to_be_empty(
    fake_slurm: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper_job, "GONE_GRACE_S", 0.2)
    fake_slurm.fault("squeue_refuses_every", 1)
    found = in_a_job(job_case("slurm"))

    assert found["job"].status is Status.OK, "its answer came home all the same"


REFUSED = (
    "name: ours\nscheduler: slurm\nqueue: nope\nrequests:\n"
    '  queue: "--partition={queue}"\n  memory: "--mem={memory}"\n  walltime: "--time={walltime}"\n'
)


def test_what_cannot_be_submitted_is_a_finding(fake_slurm: FakeCluster) -> None:
    write(Path("ours.yaml"), REFUSED)
    found = in_a_job(job_case("slurm", "site: ours.yaml\n"))["job"]
    assert found.status is Status.MISSING
    assert "slurm refused" in found.said
    nowhere = case_of("slurm", runs_dir=Path("/proc/runs"))
    assert in_a_job(nowhere)["job"].status is Status.MISSING
    (found,) = doctor.in_a_job(job_case("slurm"), [missing("partition", "none")], 60, print)
    assert found.status is Status.UNKNOWN
    (found,) = doctor.in_a_job(job_case("local"), [], 60, print)
    assert (found.status, "submitted nothing" in found.said) == (Status.WARNING, True)
    assert fake_slurm.jobs() == []
