"""Daemons are started and ended; a process that is not proved to be one of them is left alone."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.practice.daemons import Daemon, end_started, started, wait_for
from tests.support.processes import gone

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    for name in ("run", "log"):
        (tmp_path / name).mkdir()
    yield tmp_path
    end_started(tmp_path)


def daemon(folder: Path, script: str = "exec sleep 60", name: str = "one") -> Daemon:
    return Daemon(name, ("sh", "-c", script), folder, {"PATH": os.environ["PATH"]})


def test_a_daemon_starts_once_and_ends(folder: Path) -> None:
    one = daemon(folder)
    one.start()
    pid = one.pid()
    one.start()
    assert one.pid() == pid is not None
    one.end()
    assert one.pid() is None
    assert not one.pid_file.exists()


def test_a_daemon_that_ignores_the_signal_is_killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobkit.practice.daemons.END_WITHIN_S", 0.2)
    one = daemon(folder, "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    one.start()
    wait_for(lambda: one.log.read_text() == "ready\n", "it ignores the signal", 60)
    one.end()
    assert one.pid() is None


@pytest.mark.parametrize("field", [1, 2], ids=["start time", "boot"])
def test_a_foreign_process_in_the_pid_file_is_not_killed(folder: Path, field: int) -> None:
    one = daemon(folder)
    one.start()
    words = one.pid_file.read_text().split()
    one.end()
    with subprocess.Popen(["sleep", "60"]) as foreign:
        try:
            stat = Path(f"/proc/{foreign.pid}/stat").read_text().rpartition(") ")[2].split()
            right = [str(foreign.pid), stat[19], words[2]]
            wrong = [*right]
            wrong[field] = "1"
            one.pid_file.write_text(" ".join(wrong))
            assert one.pid() is None
            one.end()
            assert foreign.poll() is None
            one.pid_file.write_text(" ".join(right))
            assert one.pid() == foreign.pid, "else this proves nothing"
        finally:
            foreign.kill()


def test_what_a_daemon_leaves_behind_is_found_and_ended(folder: Path) -> None:
    escapes = (
        f"(setsid env -i sleep 60 & echo $! >{folder}/child)"  # its parent has ended, it has no variable
    )
    one = daemon(folder, f"env -i sh -c '{escapes}'; exec sleep 60")
    one.start()
    wait_for(lambda: (folder / "child").is_file() and (folder / "child").read_text() != "", "the child", 60)
    child = int((folder / "child").read_text())
    one.end(signal.SIGKILL)
    assert started(folder) == started(folder, "one") == {child}
    assert started(folder, "other") == started(folder / "other") == set()
    end_started(folder)
    assert not started(folder)


def test_what_a_job_step_runs_ends_with_it(folder: Path) -> None:
    """Whichever of them is killed first, and whatever they start meanwhile."""
    step = (
        f"echo $$ >>{folder}/pids\n[ $# -gt 5 ] || env -i PATH=$PATH sh {folder}/step.sh $* x &\nsleep 60\n"
    )
    (folder / "step.sh").write_text(step, encoding="utf-8")
    one = daemon(folder, f"env -i PATH=$PATH sh {folder}/step.sh & exec sleep 60")
    one.start()
    pids = folder / "pids"
    wait_for(lambda: pids.is_file() and len(pids.read_text().split()) == 7, "seven processes", 60)
    end_started(folder)
    assert [pid for pid in pids.read_text().split() if not gone(int(pid))] == []


def test_a_daemon_gets_no_variable_of_the_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    one = daemon(folder, "env; exec sleep 60")
    one.start()
    wait_for(lambda: "PATH=" in one.log.read_text(), "its environment", 60)
    assert "PYTHONPATH" not in one.log.read_text()


def test_a_command_that_is_missing_is_named(folder: Path) -> None:
    one = Daemon("one", ("no-such-daemon",), folder, {"PATH": os.environ["PATH"]})
    one.start()
    wait_for(lambda: one.pid() is None, "it ends", 60)
    assert "no-such-daemon" in one.log.read_text()
    with pytest.raises(JobkitError, match="not within"):
        wait_for(lambda: False, "never", 0.1)
