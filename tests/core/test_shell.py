from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

import pytest

from jobkit.core import shell
from jobkit.core.errors import JobkitError

pytestmark = pytest.mark.slow


def test_what_a_command_says_is_returned_with_its_status_and_its_environment_is_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OUTER", "that")
    line = "echo $OUTER $ONLY; printf 'err\\xff' >&2; exit 3"
    done = shell.run(["bash", "-c", line], env={"ONLY": "this"})

    assert (done.status, done.stdout, done.stderr) == (3, "this\n", "err\N{REPLACEMENT CHARACTER}")
    assert not done.ok


def test_a_command_that_cannot_be_run_is_an_answer(tmp_path: Path) -> None:
    program = tmp_path / "sinfo"
    done = shell.run([str(program)])
    assert (done.status, "command not found" in done.stderr) == (127, True)
    program.touch(0o644)
    done = shell.run([str(program)])
    assert (done.status, "denied" in done.stderr) == (126, True)


def test_a_wrapper_that_hangs_is_killed_with_what_has_not_left_its_session(tmp_path: Path) -> None:
    """A child of the wrapper holds the streams open: to kill the wrapper alone would be to wait for it."""
    child, left = tmp_path / "child", tmp_path / "left"
    began = time.monotonic()
    line = f"sleep 300 & echo $! >{child}; setsid sleep 300 & echo $! >{left}; wait"
    try:
        done = shell.run(["bash", "-c", line], timeout_s=0.5)

        assert (done.status, done.said) == (shell.NO_ANSWER, "bash: no answer within 0.5 s")
        assert time.monotonic() - began < 10
        assert _ends(int(child.read_text(encoding="ascii")))
    finally:
        os.kill(int(left.read_text(encoding="ascii")), signal.SIGKILL)


def test_an_interrupt_kills_the_command_and_goes_on_up(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    def begun() -> bool:
        """Whether the command runs, and the main thread has come back from starting it."""
        frame = sys._current_frames()[threading.main_thread().ident or 0]
        calls = {frame.f_code.co_name for frame, _ in traceback.walk_stack(frame)}
        return "communicate" in calls and pid.exists() and bool(pid.read_text(encoding="ascii").strip())

    def interrupt() -> None:
        end = time.monotonic() + 30
        while not begun() and time.monotonic() < end:
            time.sleep(0.01)
        if begun():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        shell.run(["bash", "-c", f"echo $$ >{pid}; exec sleep 300"])
    thread.join()
    assert _ends(int(pid.read_text(encoding="ascii")))


def _ends(pid: int) -> bool:
    """Tell whether a process that was killed ends: the kernel takes its time on a busy machine."""
    deadline = time.monotonic() + 10
    while _lives(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not _lives(pid)


def _lives(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and is still to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_command_at_the_terminal_gives_its_status_or_why_it_did_not_start() -> None:
    assert shell.attach(["sh", "-c", "exit $N"], {"PATH": os.environ["PATH"], "N": "7"}) == 7
    with pytest.raises(JobkitError, match="no-such-program: No such file") as caught:
        shell.attach(["no-such-program"], {})
    assert "submit host" in caught.value.hint
