"""Secrets of `environment.variables`: in no output, and in no file that another user can read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import jobkit
from tests.whole.specs import TEXT, write_spec

SECRET = "hunter2 of mine"  # noqa: S105 - of no one
COMMANDS = (
    "sweep spec.yaml --dry-run",
    "sweep spec.yaml --set environment.variables.MY_KEY=hunter2 --dry-run",
    "sweep spec.yaml",
    "status",
    "status 1",
    "status --json",
    "collect --json",
    "report",
    "recommend",
    "recommend --json",
    "apply runs/t-* --corpus text.txt --out tagged --dry-run",
    "apply runs/t-* --corpus text.txt --out tagged --script",
    "apply runs/t-* --corpus text.txt --out tagged --set environment.variables.MY_KEY=hunter2",
    "status tagged",
    "resume tagged --set environment.variables.MY_KEY=hunter2",
    "merge tagged",
)
KEPT = {"sweep.yaml", "job.sh", "journal.jsonl", "spec.yaml"}
"""The files with the secret: those that jobkit reads back, and the user's own."""


def test_a_secret_is_in_no_output_and_no_file_of_others(tmp_path: Path) -> None:
    variables = {"HF_TOKEN": SECRET, "OTHER": "plain"}
    write_spec(tmp_path, content=f"{TEXT}\n" * 20, environment={"variables": variables})
    for command in COMMANDS:
        words = [str(next(tmp_path.glob(word))) if "*" in word else word for word in command.split()]
        done = jobkit(*words, cwd=tmp_path)
        assert "hunter2" not in done.stdout + done.stderr, command
        if (words[0] == "sweep" and "--dry-run" in words) or "--script" in words:
            assert "HF_TOKEN=***" in done.stdout, command
    holding = [path for path in tmp_path.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert {path.name for path in holding} <= KEPT
    assert {"runs", "tagged"} <= {path.relative_to(tmp_path).parts[0] for path in holding}
    assert (tmp_path / "report.html").read_text(encoding="utf-8").count("***") == 2
    assert (tmp_path / "tagged" / "provenance.json").is_file()
    own = [path for path in holding if path.name != "spec.yaml"]
    assert [oct(stat.S_IMODE(path.stat().st_mode)) for path in own] == ["0o600"] * len(own)


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)
