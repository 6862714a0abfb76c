"""The wheel and the sdist, installed where no checkout is near."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from benchmarks.archives import unpack
from jobkit.core.records import ModelRef

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the sdist of this checkout, and the wheel that is built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    build: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "-d", folder, "-t"]
    subprocess.run([*build, "sdist"], cwd=ROOT, check=True, capture_output=True)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as packed:
        unpack(packed, folder)
    (source,) = (path for path in folder.iterdir() if path.is_dir())
    subprocess.run([*build, "wheel"], cwd=source, check=True, capture_output=True)
    return folder


def needed(names: Iterable[str]) -> set[str]:
    """Return these distributions and, without extras, all that they require."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name not in found:
            found.add(name)
            wanted = map(Requirement, metadata.distribution(name).requires or ())
            waiting += [one.name for one in wanted if not one.marker or one.marker.evaluate({"extra": ""})]
    return found


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


PYTHONS = [f"3.{minor}.{patch}" for minor in range(11, 15) for patch in range(16)]


def test_every_pin_permits_each_python_that_the_project_permits() -> None:
    """One pin of 140 that wants Python 3.11.5, and pip on Debian 12 (3.11.2) installs nothing."""
    extras = PROJECT["optional-dependencies"].values()
    named = [
        Requirement(one) for one in (*PROJECT["dependencies"], *(one for extra in extras for one in extra))
    ]
    markers = {canonicalize_name(one.name): one.marker for one in named}
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    refused = set()
    for pin in pins:
        name = canonicalize_name(Requirement(pin).name)
        with suppress(metadata.PackageNotFoundError):  # of the extra `bench`
            requires = SpecifierSet(metadata.distribution(name).metadata["Requires-Python"] or "")
            for python in filter(SpecifierSet(PROJECT["requires-python"]).contains, PYTHONS):
                marker = markers.get(name)
                if not marker or marker.evaluate({"python_full_version": python, "extra": ""}):
                    refused |= set() if python in requires else {f"{pin} refuses Python {python}"}
    assert not refused


def link(folder: Path, requirements: Iterable[str]) -> None:
    """Have what is required in the environment of a folder, as it is installed here."""
    (site,) = folder.glob("venv/lib/python*/site-packages")
    for name in needed({Requirement(one).name for one in requirements}):
        for file in metadata.distribution(name).files or ():
            top, place = file.parts[0], site / file.parts[0]
            if top != ".." and not place.exists():
                place.symlink_to(str(metadata.distribution(name).locate_file(top)))


@pytest.fixture(scope="module")
def elsewhere(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clean environment that holds the wheel and what it declares, without an extra."""
    folder = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "venv" / "bin" / "python")]
    subprocess.run([*pip, "install", "-q", "--no-deps", "--no-compile", str(wheel)], check=True)
    link(folder, PROJECT["dependencies"])
    return folder


def jobkit(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env["JOBKIT_CACHE"] = str(folder / "cache")
    argv = [folder / "venv" / "bin" / "jobkit", *words]
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.installs
def test_the_shipped_demo_runs_from_the_wheel_and_the_pages_can_be_read(elsewhere: Path) -> None:
    (shipped,) = elsewhere.glob("venv/lib/python*/site-packages/jobkit/shipped/sweeps")
    changes = ("workload=count", "sweep={batch_size: [5, 20]}", "repeats=1")
    done = jobkit(
        elsewhere, "sweep", shipped / "demo.yaml", *(word for one in changes for word in ("--set", one))
    )
    assert done.returncode == 0, done.stderr
    assert "count: sample:300 (300 paragraphs) on a CPU" in done.stdout
    assert len(list(elsewhere.glob("runs/*/results/*/try-1/record.json"))) == 2
    page = (ROOT / "docs" / "terms.md").read_text(encoding="utf-8")
    assert jobkit(elsewhere, "help", "terms").stdout.rstrip() == page.rstrip()


@pytest.mark.installs
def test_the_tagger_needs_its_extra_and_then_runs(elsewhere: Path, built: Path, tiny_model: ModelRef) -> None:
    (spec,) = elsewhere.glob("venv/lib/python*/site-packages/jobkit/shipped/sweeps/stanza.yaml")
    changes = "model.size=tiny text=sample:30 repeats=1 scheduler=local device=cpu resources.gpus=0"
    sets = (word for one in changes.split() for word in ("--set", one))
    sweep: tuple[str | Path, ...] = ("sweep", spec, "--set", "sweep={batch_size: [10, 20]}", *sets)
    (wheel,) = built.glob("*.whl")
    for command in (sweep, ("models", "fetch", "en"), ("tune", spec), ("workload", "check", spec)):
        lacks = jobkit(elsewhere, *command)
        assert "the Python module stanza, which is not" in lacks.stderr
        assert f"install --python {elsewhere}/venv/bin/python '{wheel}[stanza]'   (" in lacks.stderr
    link(elsewhere, PROJECT["optional-dependencies"]["stanza"])
    (elsewhere / "cache" / "models").mkdir(parents=True, exist_ok=True)
    (elsewhere / "cache" / "models" / Path(tiny_model.path).name).symlink_to(tiny_model.path)
    swept = jobkit(elsewhere, *sweep, "--new")
    assert swept.returncode == 0, swept.stderr
    assert "paragr./s" in jobkit(elsewhere, "collect", "runs/").stdout
    next(elsewhere.glob("venv/lib/python*/site-packages/stanza")).unlink()
    (run,) = elsewhere.glob("runs/stanza-*")
    (elsewhere / "letters.txt").write_text("A letter.\n")
    refused = jobkit(elsewhere, "apply", run, "--corpus", "letters.txt", "--out", "tagged", "--stand-in")
    assert "the Python module stanza, which is not" in refused.stderr
    assert not (elsewhere / "tagged").exists()


def test_wheel_and_sdist_hold_what_a_user_needs(built: Path) -> None:
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as packed:
        inside = set(packed.namelist())
    for folder in ("templates", "sweeps"):
        for path in (ROOT / folder).rglob("*.*"):
            assert f"jobkit/shipped/{path.relative_to(ROOT)}" in inside
    docs = ROOT / "docs"
    files = [*docs.glob("*.md"), *docs.glob("lesson/*.md")]
    pages = {f"jobkit/shipped/docs/{path.relative_to(docs)}" for path in files}
    assert {name for name in inside if name.startswith("jobkit/shipped/docs/")} == pages
    assert {"jobkit/py.typed", "jobkit/planning/sample_grammar.txt"} <= inside
    assert not [name for name in inside if name.startswith(("tests/", "benchmarks/", "docs/"))]
    with tarfile.open(sdist) as packed_source:
        names = {name.split("/", 1)[-1] for name in packed_source.getnames()}
    assert {"README.md", "LICENSE", "Makefile", "constraints.txt", "pyproject.toml"} <= names
    assert not [name for name in names if name.startswith("benchmarks/records")]
