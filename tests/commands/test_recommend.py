"""The command, over a real run of ``count`` made here, and over records of a GPU."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest

from jobkit.commands.recommend import recommend
from jobkit.core.errors import JobkitError
from tests.support.commands import jobkit
from tests.support.recommendations import records, write_run

SPEC = """\
name: words
workload: count
text: sample:200
sweep: {batch_size: [5, 60, 200]}
repeats: 2
device: cpu
resources: {gpus: 0, cpus: 1, memory: 1GiB}
scheduler: local
"""


ONE_RUN = pytest.mark.xdist_group("recommend")  # one worker, so that there is one run


@pytest.fixture(scope="module")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a sweep of ``count`` that ran here."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "words.yaml").write_text(SPEC, encoding="utf-8")
    assert (
        jobkit("sweep", "words.yaml", cwd=folder, env={"JOBKIT_CACHE": str(folder / "cache")}).returncode == 0
    )
    (run,) = (folder / "runs").iterdir()
    return run


def run(*args: str | Path) -> int:
    status: int = recommend.main([str(arg) for arg in args], standalone_mode=False)
    return status


@ONE_RUN
def test_a_real_run_on_this_cpu(
    real_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JOBKIT_CACHE", str(real_run.parents[1] / "cache"))
    assert run(real_run, "--corpus", "100000") == 0
    out = capsys.readouterr().out
    assert out.startswith("Take batch_size ")
    assert "\n  Measured: count: sample:200, on a CPU.\n" in out
    assert "\n6 points that succeeded, of 3 settings: " in out
    assert "\nLargest safe" in out
    assert "\nTime for 100,000 paragraphs: " in out
    assert "(t, n=2)" in out or "spread unknown (n=2)" in out
    assert "#SBATCH --time=00:05:00\n" in out
    assert "#$ -l h_rt=00:05:00\n" in out
    assert "--gres" not in out
    assert " CPU-minutes (6 tries)" in out


@ONE_RUN
def test_json_is_in_bytes_and_seconds(
    real_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JOBKIT_CACHE", str(real_run.parents[1] / "cache"))
    assert run(real_run, "--json", "--corpus", real_run.parents[1] / "words.yaml") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["measured"]["capacity_bytes"]) == (1, 2**30)
    assert told["request"]["memory_bytes"] == 2**30
    assert told["corpus"]["characters"] == len(SPEC)
    assert told["time"]["low_s"] < told["time"]["expected_s"] < told["time"]["high_s"]
    assert len(told["batch"]["settings"]) == 3


def test_cards_by_name_or_by_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path / "demo", records())
    assert run(folder, "--gpu", "t4,H100") == 0
    assert "\nt4 " in (out := capsys.readouterr().out)
    assert "\nh100 " in out
    assert run(folder, "--gpu-memory", "3GiB", "--margin", "5%") == 0
    assert "\n3GiB " in capsys.readouterr().out
    with pytest.raises(click.UsageError, match="both name"):
        run(folder, "--gpu", "t4", "--gpu-memory", "3GiB")
    with pytest.raises(JobkitError, match="did you mean 't4'"):
        run(folder, "--gpu", "t44")


@pytest.mark.parametrize("margin", ["half", "1", "-0.1", "100%", "nan"])
def test_a_margin_is_a_share(margin: str, tmp_path: Path) -> None:
    with pytest.raises(JobkitError, match="not a share"):
        run(tmp_path, "--margin", margin)


def test_nothing_is_written(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "demo", records())
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    kept = tmp_path / "kept"
    shutil.copytree(folder, kept)
    assert run(folder) == 0
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@ONE_RUN
def test_without_a_run_the_first_line_names_the_latest(real_run: Path) -> None:
    here, env = real_run.parents[1], {"JOBKIT_CACHE": str(real_run.parents[1] / "cache")}
    name = f"runs/{real_run.name}"
    assert jobkit("recommend", cwd=here, env=env).stdout.splitlines()[0] == f"Of the latest run, {name}:"
    assert jobkit("collect", cwd=here, env=env).stdout.splitlines()[0] == f"Of 1 run: {name}"
    assert name not in jobkit("collect", name, cwd=here, env=env).stdout.splitlines()[0]


@ONE_RUN
def test_what_finds_the_longest_items_works_as_printed(real_run: Path) -> None:
    here, env = real_run.parents[1], {"JOBKIT_CACHE": str(real_run.parents[1] / "cache")}
    (here / "letters.txt").write_text("A letter.\n\nAnother one, which is longer.\n", encoding="utf-8")
    told = jobkit("recommend", "--corpus", "letters.txt", cwd=here, env=env).stdout
    command = re.search(r"jobkit (preflight .*) finds them", " ".join(told.split()))
    assert command
    done = jobkit(*shlex.split(command[1].replace("FILE", "letters.txt")), cwd=here, env=env)
    assert done.returncode == 0, done.stderr
    assert "letters.txt" in done.stdout.splitlines()[0]
    assert "next: jobkit sweep " in done.stderr
    report = jobkit("report", real_run, cwd=here, env=env)
    assert "next: jobkit apply " in report.stderr
