"""Whether the PyTorch of the jobs can use a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.extras import cpu_build_problem
from jobkit.core.files import write_atomically
from jobkit.core.json_codec import to_json
from jobkit.core.layout import POINTS_FILE
from jobkit.core.records import Outcome
from jobkit.launch.resume import run_again, verify
from jobkit.planning.prepare import Options, prepare
from tests.support.builders import MODEL
from tests.support.swept import OK, Sweep
from tests.support.swept import clock as clock  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.swept import sweep as sweep  # noqa: PLC0414 - the same

CPU = "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n"
SPEC = "name: t\ntext: sample:5\nmodel: {size: tiny, fallback: stand-in}\nresources: {gpus: 1}\n"

Install = Callable[[str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that puts a torch of such a version.py before the one that is there."""
    monkeypatch.setenv("JOBKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('torch was imported')\n")

    def write(version: str) -> None:
        monkeypatch.delitem(sys.modules, "torch", raising=False)
        (tmp_path / "torch" / "version.py").write_text(version)

    return write


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (CPU, "whose torch (2.13.0+cpu) is a CPU build"),
        ("__version__ = '2.9.0+cu126'\ncuda: Optional[str] = '12.6'\nhip: Optional[str] = None\n", ""),
        ("__version__ = '2.9.0+rocm6.4'\ncuda: Optional[str] = None\nhip: Optional[str] = '6.4.4'\n", ""),
        ("", ""),
    ],
)
def test_the_build_is_reported_without_importing_it(version: str, said: str, install: Install) -> None:
    install(version)
    assert cpu_build_problem() == said


def test_a_python_without_torch_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobkit.core.extras.importlib.util.find_spec", lambda _: None)
    assert cpu_build_problem() == "which has no torch"


def prepared(folder: Path, *overrides: str, build: bool = True) -> list[str]:
    spec, said = folder / "spec.yaml", list[str]()
    spec.write_text(SPEC)
    keys = ("device=cuda", *overrides)
    options = Options(overrides=keys, scheduler="slurm", site="slurm-default", runs_dir=folder / "runs")
    prepare(spec, options, build=build, say=said.append)
    return said


@pytest.mark.fault
def test_a_gpu_sweep_with_a_cpu_build_is_refused_before_anything_is_made(
    install: Install, tmp_path: Path
) -> None:
    """FAULT: the Python that the jobs of a GPU sweep will use has a torch that is a CPU build.

    HOW: fake: the version file of such a torch, found first on the path.
    REPORTED: jobkit refuses the sweep before it trains a stand-in or submits a job, with the pip command; \
    `environment.setup` declares that nodes have another torch at that path. If jobkit cannot know it \
    beforehand, the outcome is `no_gpu` with the same command, and two such points stop the sweep.
    LOST: nothing.
    """
    install(CPU)
    with pytest.raises(JobkitError, match=r"requests a GPU.*2\.13\.0\+cpu\) is a CPU build") as caught:
        prepared(tmp_path)
    assert f"{sys.executable} -m pip install --force-reinstall torch --index-url" in caught.value.hint
    assert not (tmp_path / "cache" / "models").exists()
    (said,) = prepared(tmp_path, build=False)
    assert "jobkit would refuse this sweep: " in said


def test_what_says_that_it_does_not_matter_is_believed(install: Install, tmp_path: Path) -> None:
    install(CPU)
    for key in ("environment.venv=/somewhere", "environment.setup=[':']", "device=cpu", "workload=count"):
        assert not any("torch" in line for line in prepared(tmp_path, key, build=False))
    install(CPU.replace("cuda: Optional[str] = None", "cuda: Optional[str] = '12.6'"))
    assert prepared(tmp_path, build=False) == []


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.usefixtures("clock")
def test_a_gpu_run_that_goes_on_with_a_cpu_build_is_warned_of(
    install: Install, sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    """FAULT: torch was replaced by a CPU build before `jobkit resume` or `jobkit verify` of a GPU run.

    HOW: fake: the version file of such a torch, found first on the path, and a Slurm of shell scripts.
    REPORTED: a warning before anything is submitted, with the pip command; another Python that \
`--set environment.venv=FOLDER` names is not judged.
    LOST: nothing: the points that run again may end as `no_gpu`.
    """
    points = [to_json(replace(point, device="cuda", model=MODEL)) for point in sweep.points]
    write_atomically(sweep.run / POINTS_FILE, "".join(f"{line}\n" for line in points))
    sweep.ended(Outcome.NO_GPU, OK, OK, OK, OK, OK)
    install(CPU)
    commands: tuple[Callable[[], int | None], ...] = (
        lambda: run_again(sweep.run, (), ()),
        lambda: verify(sweep.run, memory=None, stand_in=True),
    )
    for again in commands:
        before = len(sweep.calls())
        assert again() == 0
        said = capsys.readouterr().err
        assert "warning: the run requests a GPU" in said
        assert said.index(f"{sys.executable} -m pip install") < said.index("submitted")
        assert len(sweep.calls()) > before
    sweep.queue()
    run_again(sweep.run, ("1",), ("environment.venv=/somewhere",))
    assert "warning: the run requests a GPU" not in capsys.readouterr().err
