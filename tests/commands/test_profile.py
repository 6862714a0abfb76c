"""The words of `jobkit profile`; what it does: tests/extensions/profile/test_rerun.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.commands.profile import profile as command
from jobkit.extensions.profile import rerun
from tests.support.builders import grid, write_points


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ((None, None, ()), {"again": False, "wait": False})),
        (
            ["3", "--with", "python", "--again", "--wait", "--set", "resources.walltime=1h"],
            (("3", "python", ("resources.walltime=1h",)), {"again": True, "wait": True}),
        ),
    ],
)
def test_the_words_arrive(
    words: list[str], expected: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[object] = []

    def profile(run: Path, *arguments: object, **options: object) -> int:
        found.extend([run, (arguments, options)])
        return 4

    monkeypatch.setattr(rerun, "profile", profile)
    monkeypatch.chdir(tmp_path)
    write_points(tmp_path / "run", grid((10,)))
    assert command.main(args=["run", *words], standalone_mode=False) == 4
    assert found == [tmp_path / "run", expected]
