from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jobkit.worker import parent, process
from jobkit.worker.parent import ForkRequest

ENVIRONMENT = {"PATH": "/bin", "HOME": "/home/ada"}


def test_a_try_with_another_environment_or_folder_is_not_forked() -> None:
    free = {"JOBKIT_TASK": "2", "CUDA_VISIBLE_DEVICES": "1", "CUDA_MPS_PIPE_DIRECTORY": "/x", "_": "b"}
    for changed, reason in (
        (free, ""),
        ({"OMP_NUM_THREADS": "1", "PATH": "/usr/bin"}, "OMP_NUM_THREADS, PATH changed after the first try"),
    ):
        request = ForkRequest([], {**ENVIRONMENT, **changed}, str(Path.cwd()), [])
        assert request.differs(ENVIRONMENT) == reason
    without = ForkRequest([], {"PATH": "/bin"}, str(Path.cwd()), [])
    assert without.differs(ENVIRONMENT) == "HOME changed after the first try"
    assert "folder" in ForkRequest([], ENVIRONMENT, "/nowhere", []).differs(ENVIRONMENT)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Return a socket at the address at which a client looks for the parent of this process."""
    since = process.started_at(os.getpid())
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0jobkit-{os.geteuid()}-{since}-{os.getpid()}")
        listening.listen()
        yield listening


@pytest.mark.usefixtures("listener")
def test_a_socket_of_another_user_gets_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(parent, "user_of", lambda _: os.geteuid() + 1)
    monkeypatch.setattr(parent, "send", lambda *_: pytest.fail("it got a request"))
    assert parent.run_in_child(str(os.getpid()), []) is None
    assert "fresh process: the socket of its parent belongs to another user" in capsys.readouterr().err
    parent.end(str(os.getpid()))


def test_a_socket_that_accepts_no_client_delays_no_try(
    listener: socket.socket, capsys: pytest.CaptureFixture[str]
) -> None:
    listener.listen(0)
    with ExitStack() as stack:
        status = 0
        while status == 0:
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting.settimeout(0)
            status = waiting.connect_ex(listener.getsockname())
        assert parent.run_in_child(str(os.getpid()), []) is None
        parent.end(str(os.getpid()))
    assert "fresh process: the socket of its parent accepts no client" in capsys.readouterr().err


def test_without_its_owner_or_its_parent_a_try_runs_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for owner in (str(2**22 + 1), f"{2**22 + 1}-word", "nobody"):
        assert parent.run_in_child(owner, []) is None
        assert owner in capsys.readouterr().err
    monkeypatch.setattr(parent, "_start", lambda *_: None)
    assert parent.run_in_child(f"{os.getpid()}-word", []) is None
    assert "refused" in capsys.readouterr().err


@pytest.mark.parametrize("sent", [b"", b"\0" * 4, b"\x09" + b"\0" * 7 + b"[1, 2"])
def test_a_client_that_ends_in_the_middle_of_its_request_is_forgotten(sent: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(sent)
        theirs.close()
        assert parent.receive(ours) is None
