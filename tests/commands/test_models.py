from __future__ import annotations

from pathlib import Path

from tests.support.commands import jobkit


def test_without_a_model_the_command_that_fetches_one_is_next(tmp_path: Path) -> None:
    told = jobkit("models", env={"JOBKIT_CACHE": str(tmp_path)})
    assert (told.returncode, told.stdout) == (0, "")
    assert told.stderr.splitlines()[-1].startswith("next: jobkit models fetch en ")


def test_a_word_that_is_no_command_of_a_group_is_refused_with_what_is() -> None:
    for words, hint in (
        ("models fetsh", "'fetch'"),
        ("models ls", "jobkit models does"),
        ("practice upp", "'up'"),
    ):
        told = jobkit(*words.split())
        assert (told.returncode, hint in told.stderr) == (2, True)
