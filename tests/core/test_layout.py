"""The run folder: which of its files no output may replace, and what a try writes first."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.layout import BY_HAND, POINTS_FILE, Begin, read_begin, refuse_contract_file
from jobkit.core.paths import shipped_folder
from tests.support.commands import jobkit

BLOCK = re.compile(r"^runs/<name>.*?^```", re.MULTILINE | re.DOTALL)


def documented() -> list[str]:
    """Return the files of a run folder that docs/contracts.md lists, with numbers for what varies."""
    block = BLOCK.search((shipped_folder("docs") / "contracts.md").read_text(encoding="utf-8"))
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


def test_other_files_may_be_replaced(run: Path, tmp_path: Path) -> None:
    for name in ("merged.jsonl", "report.html", "own/plan.jsonl", "../plan.jsonl"):
        refuse_contract_file(run / name, "--output")
    refuse_contract_file(tmp_path / "results" / "sweep.yaml", "--output")  # of a folder that is no run


def test_each_command_with_an_output_refuses(run: Path) -> None:
    for words in ("collect --output", "collect --plot", "report --output", "merge --output"):
        command, option = words.split()
        for name in ("points.jsonl", "results/x.png"):
            done = jobkit(command, run, option, run / name)
            assert (done.returncode, done.stdout) == (2, "")
            assert f"{option} {run / name}: jobkit itself reads this file" in done.stderr
    assert (run / POINTS_FILE).read_text() == "{}\n"


WHOLE = "scheduler=sge\njob=12\ntask=3\nrestart=1\nround=2\nhost=n1\npid=99\nat=2026-01-02T10:15:20Z\n"


def read(tmp_path: Path, text: str) -> Begin:
    path = tmp_path / "begin"
    path.write_text(text, encoding="utf-8")
    return read_begin(path)


def test_what_a_task_says_of_itself(tmp_path: Path) -> None:
    told: dict[str, Any] = {"scheduler": "sge", "job": "12", "task": 3, "restart": 1, "round": 2}
    whole = Begin(**told, host="n1", pid=99, at="2026-01-02T10:15:20Z")
    assert read(tmp_path, WHOLE) == whole
    by_hand = WHOLE.replace("sge", BY_HAND).replace("task=3", "task=")
    assert read(tmp_path, by_hand) == replace(whole, scheduler="hand", task=None)
    less = WHOLE.partition("host=")[0] + "pid=\n"
    assert read(tmp_path, less) == Begin(**told), "what a later jobkit added may be missing"


@pytest.mark.parametrize("text", ["", WHOLE[:20], WHOLE.replace("restart=1", "restart=?")])
def test_a_file_that_is_not_whole_is_none(tmp_path: Path, text: str) -> None:
    with pytest.raises(JobkitError, match="not a begin file"):
        read(tmp_path, text)
