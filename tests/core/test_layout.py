"""The run folder: which of its files no output may replace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.layout import POINTS_FILE, refuse_contract_file
from jobkit.core.paths import shipped_folder
from tests.support.commands import jobkit

BLOCK = re.compile(r"^runs/<name>.*?^```", re.MULTILINE | re.DOTALL)


def documented() -> list[str]:
    """Return the files of a run folder that docs/structure.md lists, with numbers for what varies."""
    block = BLOCK.search((shipped_folder("docs") / "structure.md").read_text(encoding="utf-8"))
    assert block
    words = re.findall(r"^    ((?:[\w.<>/-]+, )*[\w.<>/-]+)(?= |$)", block[0], re.MULTILINE)
    names = [name for word in words for name in word.replace(" ", "").split(",")]
    return [re.sub(r"/$", "/any", re.sub(r"<\w+>", "1", name)) for name in names]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = tmp_path / "runs" / "t"
    run.mkdir(parents=True)
    (run / POINTS_FILE).write_text("{}\n", encoding="utf-8")
    return run


def test_every_documented_file_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = documented()
    assert {"plan.jsonl", "job-1.sh", "tasks-1.txt", "winners/1.json", "results/1/try-1/any"} <= set(names)
    for name in [*names, "results/p/try-1/record.json", "logs/running.pid"]:
        with pytest.raises(JobkitError, match="does not replace it"):
            refuse_contract_file(run / name, "--output")
    monkeypatch.chdir(run)
    with pytest.raises(JobkitError):
        refuse_contract_file(Path("plan.jsonl"), "--output")
    (run.parent / "link").symlink_to(run)
    with pytest.raises(JobkitError):
        refuse_contract_file(run.parent / "link" / "sweep.yaml", "--output")


@pytest.mark.parametrize(
    "name", ["merged.jsonl", "merged.tsv", "report.html", "own/plan.jsonl", "../plan.jsonl"]
)
def test_other_files_may_be_replaced(run: Path, name: str) -> None:
    refuse_contract_file(run / name, "--output")


def test_a_folder_that_is_no_run_has_no_contract(tmp_path: Path) -> None:
    refuse_contract_file(tmp_path / "results" / "sweep.yaml", "--output")


@pytest.mark.parametrize(
    "words",
    [("collect", "--output"), ("collect", "--plot"), ("report", "--output"), ("merge", "--output")],
)
def test_each_command_with_an_output_refuses(run: Path, words: tuple[str, str]) -> None:
    command, option = words
    for name in ("points.jsonl", "results/x.png"):
        done = jobkit(command, run, option, run / name)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{option} {run / name}: jobkit itself reads this file" in done.stderr
    assert (run / POINTS_FILE).read_text() == "{}\n"
