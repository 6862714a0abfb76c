"""Input that is odd but valid works; other input ends at once, with a sentence that names the file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from jobkit.extensions.corpus.scan import scan
from jobkit.extensions.corpus.sources import find_sources
from tests.support.commands import JOBKIT
from tests.support.corpora import plan, read_all


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_a_closed_standard_output_is_reported(tmp_path: Path, closed: str) -> None:
    line = f"{JOBKIT} collect {closed}"
    done = subprocess.run(
        ["bash", "-c", line], check=False, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert ("standard output is closed" in done.stderr) == ("2>" not in closed)


def test_a_name_that_is_not_utf_8_is_read_and_named(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"in-\xff")
    folder.mkdir()
    (folder / os.fsdecode(b"t\xff.txt")).write_text("one\n\ntwo\n", encoding="utf-8")
    run = tmp_path / "run"
    run.mkdir()
    found = read_all(run, plan(run, scan(find_sources([str(folder)])), 2))
    assert [(one.document, one.text.strip()) for one in found] == [
        ("in-\\xff/t\\xff.txt", "one"),
        ("in-\\xff/t\\xff.txt", "two"),
    ]
