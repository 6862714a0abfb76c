from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from jobkit.commands.doctor import doctor
from jobkit.commands.init import init
from jobkit.commands.sweep import sweep
from jobkit.core.errors import WOULD_REFUSE
from tests.fakes.cluster import FakeCluster
from tests.support.commands import called


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("JOBKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


run = partial(called, init)


@pytest.mark.parametrize("scheduler", ["slurm", "sge"])
def test_what_it_writes_passes_doctor_and_a_dry_run(
    scheduler: str, here: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    request.getfixturevalue(f"fake_{scheduler}")
    assert run("--scheduler", scheduler) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("wrote config/site.yaml")
    assert out[1].startswith("wrote first.yaml")
    assert out[2] == "next: jobkit doctor first.yaml"

    light = ["--set", "workload=count", "--set", "resources.gpus=0"]
    assert doctor.main(["first.yaml", *light], standalone_mode=False) == 0
    assert "missing" not in capsys.readouterr().out
    (trial,) = [line for line in (here / "first.yaml").read_text().splitlines() if "--stand-in" in line]
    words = trial.removeprefix("#   jobkit sweep ").partition("    ")[0].split()
    assert sweep.main([*words, "--dry-run"], standalone_mode=False) == 0
    said = capsys.readouterr().err
    assert "queue" not in said
    assert WOULD_REFUSE not in said, "also where torch is a CPU build"


def test_only_a_site_file(fake_slurm: FakeCluster, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    del fake_slurm
    assert run("--scheduler", "slurm", "--only", "site", "--site", str(here / "ours.yaml")) == 0
    out = capsys.readouterr().out
    assert f"a spec names it: site: {here / 'ours.yaml'}" in out
    assert out.splitlines()[-1] == "next: jobkit doctor"
