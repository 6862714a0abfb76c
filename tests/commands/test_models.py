from __future__ import annotations

from pathlib import Path

from tests.support.commands import jobkit


def test_without_a_model_the_command_that_fetches_one_is_next(tmp_path: Path) -> None:
    told = jobkit("models", env={"JOBKIT_CACHE": str(tmp_path)})
    assert (told.returncode, told.stdout) == (0, "")
    assert told.stderr.splitlines()[-1].startswith("next: jobkit models fetch en ")
