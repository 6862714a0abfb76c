from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.support.commands import jobkit


def test_without_a_model_the_command_that_fetches_one_is_next(tmp_path: Path) -> None:
    told = jobkit("models", "list", env={"JOBKIT_CACHE": str(tmp_path)})
    assert (told.returncode, told.stdout) == (0, "")
    assert told.stderr.splitlines()[-1].startswith("next: jobkit models fetch en ")


@pytest.mark.parametrize(("name", "package"), [("en", "'stanza>=1.10'"), ("a/b", "huggingface_hub")])
def test_without_its_library_the_line_that_installs_it_is_said(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    done = jobkit("models", "fetch", name, env={"JOBKIT_CACHE": str(tmp_path)})
    assert (done.returncode, done.stderr.rstrip().endswith(f" -m pip install {package}")) == (2, True)
