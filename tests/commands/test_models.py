from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.support.commands import jobkit


def test_without_a_model_the_command_that_fetches_one_is_next(tmp_path: Path) -> None:
    told = jobkit("models", "list", env={"JOBKIT_CACHE": str(tmp_path)})
    assert (told.returncode, told.stdout) == (0, "")
    assert told.stderr.splitlines()[-1].startswith("next: jobkit models fetch en ")


@pytest.mark.parametrize(("name", "extra"), [("en", "stanza"), ("a/b", "hf")])
def test_without_its_library_the_line_that_installs_it_is_said(
    name: str, extra: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    done = jobkit("models", "fetch", name, env={"JOBKIT_CACHE": str(tmp_path)})
    assert (done.returncode, f"[{extra}]'   (" in done.stderr) == (2, True), done.stderr
    assert f"uv pip install --python {sys.executable} " in done.stderr, "there is no pip either"
