"""The words of `jobkit verify`; what it does: tests/launch/test_verify.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.commands.verify import verify as command
from jobkit.core.errors import JobkitError
from jobkit.launch import verify as verification
from tests.support.builders import grid, write_points


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int | str | None]]:
    found: list[tuple[Path, int | str | None]] = []

    def verify(run_dir: Path, *, memory: int | str | None, stand_in: bool) -> int:
        assert not stand_in
        found.append((run_dir, memory))
        return 4

    monkeypatch.setattr(verification, "verify", verify)
    return found


@pytest.mark.parametrize(
    ("words", "memory"), [([], None), (["--gpu-memory", "device"], "device"), (["--memory", "1GiB"], 2**30)]
)
def test_the_run_and_the_memory_are_handed_on(
    words: list[str],
    memory: int | str | None,
    asked: list[tuple[Path, int | str | None]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_points(tmp_path / "run", grid((10,)))
    monkeypatch.chdir(tmp_path)
    assert command.main(args=["run", *words], standalone_mode=False) == 4
    assert asked == [(tmp_path / "run", memory)]


@pytest.mark.parametrize(
    ("words", "said"),
    [(["nowhere"], "nowhere: not a run folder"), (["run", "--memory", "16"], "size '16': not understood")],
)
def test_what_cannot_be_meant_is_refused(
    words: list[str],
    said: str,
    asked: list[tuple[Path, int | str | None]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_points(tmp_path / "run", grid((10,)))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JobkitError, match=said):
        command.main(args=words, standalone_mode=False)
    assert asked == []
