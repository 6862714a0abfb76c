from __future__ import annotations

import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobkit.core.records import Outcome, Point
from jobkit.worker import mps
from jobkit.worker.failure import TryFailed
from jobkit.worker.process import process_tree
from jobkit.worker.record import TryState, now
from tests.support.builders import by_hand
from tests.support.processes import gone, with_variable
from tests.whole.test_job_script import wait_until
from tests.worker.test_supervisor import ON_CARDS, on_cards
from tests.worker.test_supervisor import restored as restored  # noqa: PLC0414 - a fixture is found by its name here

FAKE = Path(__file__).parents[1] / "fakes" / "mps"
ONE_GPU = replace(ON_CARDS, gpus=1, mps="on")
AUTO = replace(ONE_GPU, mps="auto")


@pytest.fixture
def short() -> Iterator[Path]:
    """Return a folder with a path so short that a socket can be below it; nothing of MPS may be left."""
    with tempfile.TemporaryDirectory(prefix="mps") as name:
        yield Path(name)
        assert not list(Path(name).rglob("mps-*"))
        assert not with_variable(f"FAKE_HELD={name}/held")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of", "mps"),
    [(replace(AUTO, gpus=2), ""), (replace(ONE_GPU, workers=1), "stubborn")],
    ids=["two", "one"],
)
def test_workers_are_clients_of_a_daemon_of_the_try_that_may_take_no_notice_of_quit(
    short: Path, of: Point, mps: str
) -> None:
    found = on_cards(short, of, PATH=f"{FAKE}:{os.environ['PATH']}", FAKE_MPS=mps)
    assert (found.outcome, found.message, found.mps) == (Outcome.OK, "", "on")
    assert found.gpu
    assert found.gpu.foreign_processes == 0


@pytest.mark.slow
def test_a_mode_of_the_gpu_may_forbid_mps(short: Path) -> None:
    found = on_cards(short, ONE_GPU, FAKE_MIG="GPU-1", FAKE_PROHIBITED="GPU-0")
    reason = "GPU-0 is in compute mode PROHIBITED"
    assert (found.outcome, found.message) == (Outcome.ENVIRONMENT, f"mps: on, but {reason}")
    assert found.mps == f"off: {reason}"


# -- before it starts


@pytest.fixture
def begun(short: Path, monkeypatch: pytest.MonkeyPatch) -> TryState:
    monkeypatch.setenv("PATH", f"{FAKE}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return TryState(by_hand(ONE_GPU, short, short / "out"), now())


GPUS: Any = [
    SimpleNamespace(uuid="GPU-0", forbids_mps=""),
    SimpleNamespace(uuid="GPU-1", forbids_mps="in MIG mode"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "env", "reason"),
    [
        ({"gpus": 2}, {}, "in MIG mode"),
        ({}, {"CUDA_VISIBLE_DEVICES": "GPU-1"}, "in MIG mode"),
        ({}, {"CUDA_VISIBLE_DEVICES": "MIG-abc"}, "MIG-abc is a MIG instance"),
        ({}, {"PATH": "/none"}, "nvidia-cuda-mps-control is not on PATH"),
        (
            {},
            {"FAKE_MPS": "fails"},
            "nvidia-cuda-mps-control does not answer: Failed to create pipe: Permission denied",
        ),
        ({"mps": "auto", "workers": 1, "gpus": 2}, {}, "one worker on each GPU"),
    ],
)
def test_what_forbids_mps_ends_a_try_that_must_have_it_and_is_in_the_record_of_another(
    begun: TryState,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    env: dict[str, str],
    reason: str,
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    for mps_ in {changes.get("mps", "on"), "auto"}:
        begun.task = replace(begun.task, point=replace(ONE_GPU, **{**changes, "mps": mps_}))
        with ExitStack() as stack:
            if mps_ == "on":
                stack.enter_context(pytest.raises(TryFailed, match=f"^mps: on, but {reason}$"))
            assert mps.start_if_wanted(begun, stack, GPUS) is None
        assert begun.mps == f"off: {reason}"


@pytest.mark.slow
@pytest.mark.parametrize("visible", ["1", "GPU-0"])
def test_only_the_gpus_of_the_job_decide(
    begun: TryState, monkeypatch: pytest.MonkeyPatch, visible: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with ExitStack() as stack:
        assert mps.start_if_wanted(begun, stack, GPUS)
    assert begun.mps == "on"


# -- while it runs


@pytest.mark.slow
def test_a_daemon_that_does_not_answer_in_time_is_refused(
    begun: TryState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MPS", "silent")
    monkeypatch.setattr(mps, "START_S", 0.0)
    with ExitStack() as stack, pytest.raises(TryFailed, match="does not answer"):
        mps.start_if_wanted(begun, stack, [])


def clients(begun: TryState, stack: ExitStack, *names: int) -> None:
    """Have processes of these ids become clients of the daemon."""
    (folder,) = begun.task.out.parent.glob("mps-*")
    for name in names:
        client = stack.enter_context(socket.socket(socket.AF_UNIX))
        client.connect(str(folder / "pipe" / "control"))
        client.send(f"client {name}".encode())
        client.recv(7)


@pytest.mark.slow
def test_a_worker_that_is_no_client_ends_the_try_unless_none_uses_the_gpu(begun: TryState) -> None:
    """Also a try that may do without MPS: some of its workers use it, and some do not."""
    begun.task = replace(begun.task, point=AUTO)
    with ExitStack() as stack:
        daemon = mps.start_if_wanted(begun, stack, [])
        assert daemon
        assert daemon.check_clients({0: 7, 1: 8}) == "off: no worker is a client of the daemon"
        clients(begun, stack, 7)
        with pytest.raises(TryFailed, match=r"^worker 1 is not a client of the MPS daemon$") as caught:
            daemon.check_clients({0: 7, 1: 8})
    assert caught.value.outcome is Outcome.ENVIRONMENT


@pytest.mark.slow
def test_clients_are_counted_if_their_ids_are_hidden(
    begun: TryState, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_MPS", "another")
    with ExitStack() as stack:
        daemon = mps.start_if_wanted(begun, stack, [])
        assert daemon
        clients(begun, stack, 7, 8)
        assert daemon.check_clients({0: 7, 1: 8}) == "on"
    assert "MPS has 2 clients, with ids of another namespace" in capfd.readouterr().err


def family(begun: TryState) -> tuple[int, int, int]:
    """Return the process ids of the guard, the daemon, and a server that has a client."""
    trees = [tree for pid in process_tree(os.getpid())[1:] if len(tree := process_tree(pid)) > 1]
    [[guard, daemon]] = trees  # without what an earlier test has left of multiprocessing
    with ExitStack() as stack:
        clients(begun, stack, 1)
    wait_until(lambda: len(process_tree(guard)) == 3)
    (server,) = {*process_tree(guard)} - {guard, daemon}
    return guard, daemon, server


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_the_end_of_daemon_or_guard_is_seen(begun: TryState, killed: int) -> None:
    with ExitStack() as stack:
        daemon = mps.start_if_wanted(begun, stack, [])
        assert daemon
        daemon.refuse_end()
        pids = family(begun)
        assert daemon.check_clients({}) == "on"
        os.kill(pids[killed], signal.SIGKILL)
        with pytest.raises(TryFailed, match="the MPS daemon has ended: Starting control") as caught:
            daemon.refuse_end(wait_s=10)
        assert caught.value.outcome is Outcome.ENVIRONMENT
        with pytest.raises(TryFailed):
            daemon.check_clients({0: 1})
    wait_until(lambda: all(map(gone, pids)))


@pytest.mark.slow
def test_a_guard_that_does_not_end_is_killed(begun: TryState, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANSWER_S", "QUIT_S", "KILL_S"):
        monkeypatch.setattr(mps, name, 0.1)
    with ExitStack() as stack:
        mps.start_if_wanted(begun, stack, [])
        pids = family(begun)
        os.kill(pids[0], signal.SIGSTOP)
    wait_until(lambda: all(map(gone, pids)))
