"""A scheduler is one folder, one template, one site file and one line in the registry: proved by a toy."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from jobkit.cli import _exit_code
from jobkit.core.errors import ExitCode
from jobkit.runs.tries import is_fault, reported_outcome
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import SCHEDULERS, choose_scheduler, submission_environment
from tests.schedulers import toy

TOY = Path(toy.__file__).parent
SPEC = """\
name: count
workload: count
text: sample:30
sweep: {batch_size: [1, 10]}
repeats: 1
resources: {gpus: 0, cpus: 1, memory: 200MiB, walltime: "00:02:00"}
policy: {follow_up: false}
"""


@pytest.fixture
def queue(
    tmp_path: Path, kept_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str]]]:
    """Add the toy: its folder, template, site file and registry line; return a way to type `jobkit ...`."""
    config, jobs = tmp_path / "config", tmp_path / "jobs"
    for folder, file in (("templates", "toy.sh.j2"), ("sites", "toy-default.yaml")):
        (config / folder).mkdir(parents=True)
        (config / folder / file).symlink_to(TOY / file)
    jobs.mkdir()
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    variables = {"JOBKIT_CONFIG": config, "JOBKIT_CACHE": kept_cache, "TOYQ": jobs, "TMPDIR": tmp_path}
    for name, value in {**variables, "PATH": f"{TOY}:{os.environ['PATH']}", "TOY_JOB": "7"}.items():
        monkeypatch.setenv(name, str(value))
    registry = cast("dict[str, Scheduler]", SCHEDULERS)
    others = dict(registry)
    registry.clear()
    registry.update({"toy": toy, **others})

    def jobkit(*words: str) -> tuple[int, str]:
        status = _exit_code(list(words))
        return status, "".join(capsys.readouterr())

    yield jobkit
    del registry["toy"]


def run_of(folder: Path) -> str:
    (run,) = (folder / "runs").iterdir()
    return str(run)


@pytest.mark.slow
def test_a_sweep_goes_out_and_its_table_comes_home(
    queue: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    assert choose_scheduler("auto")[0] == "toy"
    status, said = queue("sweep", "spec.yaml", "--wait")
    assert status == 0, said
    assert "toy job 1" in said
    status, said = queue("collect", run_of(tmp_path), "--json")
    assert [row["outcome"] for row in json.loads(said)["points"]] == ["ok", "ok"]
    for path in tmp_path.glob("runs/*/results/*/try-1/record.json"):
        record = json.loads(path.read_text())
        assert (record["job"]["scheduler"], record["environment"]["TOY_QUEUE"]) == ("toy", "all")
    status, said = queue("recommend", run_of(tmp_path))
    assert "#TOY memory=" in said


def test_its_scripts_are_linted(queue: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    (tmp_path / "mine.sh").write_text("#!/bin/bash\n#TOY name=a\n# TOY cpus=2\n", encoding="utf-8")
    status, said = queue("lint", "mine.sh", "--json")
    (script,) = json.loads(said)["scripts"]
    assert (status, script["schedulers"]) == (2, ["toy"])
    assert [one["rule"] for one in script["findings"]] == ["space"]


@pytest.mark.slow
def test_the_doctor_asks_it_about_its_site(queue: Callable[..., tuple[int, str]]) -> None:
    _, said = queue("doctor", "spec.yaml", "--json")
    findings = {one["name"]: one for one in json.loads(said)["findings"] if one["where"] == toy.TITLE}
    assert findings["queue"]["status"] == "ok"
    assert "toy-default" in findings["site file"]["said"]


def test_its_logs_its_variables_and_its_reserved_options(queue: Callable[..., tuple[int, str]]) -> None:
    assert reported_outcome("toyq: out of time") == ("timeout", "toyq: out of time")
    assert is_fault("toyq: no such job")
    assert "TOY_JOB" not in submission_environment()
    status, said = queue("sweep", "spec.yaml", "--set", "resources.options={toy: [name=x]}")
    assert (status, "change name" in said) == (ExitCode.USAGE, True), said
    status, said = queue("sweep", "spec.yaml", "--dry-run", "--runs-dir", "50%")
    assert "with %" in said
