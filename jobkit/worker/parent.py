"""The parent of tries: a process that has imported the framework of a run, and from which tries are forked.

The script or the driver that runs several points one after the other is the owner: it sets ``JOBKIT_PARENT``
to its process id, or to its process id, a hyphen and a word if it may own several in turn. The first try that
finds no parent starts one with its own environment, as ``python -m jobkit.worker.parent FD OWNER WORDS...``:
FD is the listening socket, and WORDS are the arguments of the try. The parent imports the framework, opens no
GPU, and ends with its owner.

``python -m jobkit.worker`` is then only the client of its try (`run_in_child`): it passes its arguments,
environment and open files to the parent, forwards TERM and INT, and ends as the child ends. If the client is
killed, so is the child. If a child would differ from a fresh process, the try runs in a fresh process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TextIO

from jobkit.worker import parent_socket, process
from jobkit.worker.parent_socket import ForkRequest

FORKED = "forked"
"""The parent's first answer; the exit status follows. Any other answer is the reason why it did not fork."""
TICK_S = 0.5
"""The longest time between the end of the owner and the end of its parent."""
FORWARDED = (signal.SIGTERM, signal.SIGINT)


# -- the client


def run_in_child(owner: str, words: Sequence[str]) -> int | None:
    """Have a try run in a child of the owner's parent, which is started if there is none.

    Return its exit status, or 128 and the number of the signal that killed it; ``None`` if the try has to run
    here, for the reason in the log. ``words``: the arguments of ``python -m jobkit.worker``.
    """
    try:
        with socket.socket(socket.AF_UNIX) as parent, parent.makefile(encoding="utf-8") as answers:
            _connect(parent, owner, words)
            before = {number: signal.signal(number, _forwarding(parent)) for number in FORWARDED}
            parent_socket.send(parent, words)
            reason = answers.readline().strip()
            if reason == FORKED:
                return _status(answers)
            for number, handler in before.items():
                signal.signal(number, handler)
    except (OSError, ValueError) as error:
        reason = str(error)
    with contextlib.suppress(OSError):  # the log may be on a full disk
        sys.stderr.write(f"jobkit: this try runs in a fresh process: {reason or 'its parent has ended'}\n")
    return None


def _status(answers: TextIO) -> int:
    """Return the exit status of a forked try once it has ended; the kernel kills it with its parent."""
    with contextlib.suppress(ConnectionError):
        if line := answers.readline():
            return int(line)
    return 128 + signal.SIGKILL


def _connect(connection: socket.socket, owner: str, words: Sequence[str]) -> None:
    address = parent_socket.address(owner)
    try:
        parent_socket.connect(connection, address)
    except ConnectionRefusedError:
        _start(address, owner, words)
        parent_socket.connect(connection, address)


def _start(address: str, owner: str, words: Sequence[str]) -> None:
    """Start a parent; clients that connect from now on wait until it has imported the framework."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        subprocess.Popen(  # noqa: S603 - our own module, an argv list
            [sys.executable, "-m", "jobkit.worker.parent", str(listener.fileno()), owner, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            start_new_session=True,  # a signal to all processes of a try is not for it
        )


def _forwarding(parent: socket.socket) -> Any:  # noqa: ANN401 - typeshed's name for a handler is private
    def forward(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):  # it has ended, and the child with it
            parent.send(bytes([number]))

    return forward


# -- the parent


@dataclass(slots=True)
class Parent:
    listener: socket.socket
    owner: int | None  # process id; ``None`` once the owner has asked this process to end
    environment: Mapping[str, str]  # the variables with which the framework was imported
    refusal: str  # why no try may be forked; else empty
    waited_s: float  # how long the next client has waited for the framework
    # by the process id of each child not waited for: its client's connection, ``None`` once that has ended
    children: dict[int, socket.socket | None] = field(default_factory=dict)

    def serve(self) -> ForkRequest | None:
        """Return the request in each child; return ``None`` in the parent, once the owner has ended."""
        since, here = process.started_at(self.owner or 0), os.getpid()
        with process.ends_of_children() as ended:
            while self.children or (since and self.owner and process.started_at(self.owner) == since):
                clients = {client: pid for pid, client in self.children.items() if client}
                ready, _, _ = select.select([self.listener, ended, *clients], [], [], TICK_S)
                for client in clients.keys() & set(ready):
                    self._signal(clients[client], client)
                if ended in ready:
                    ended.recv(4096)
                    self._report()
                if self.listener in ready and (request := self._fork(here)):
                    return request
        return None

    def _fork(self, here: int) -> ForkRequest | None:
        client, _ = self.listener.accept()
        request = parent_socket.receive(client) if parent_socket.user_of(client) == os.geteuid() else None
        if request is None:
            client.close()
        elif not request.words:
            self.owner = None
            client.close()
        elif reason := self.refusal or request.differs(self.environment):
            _answer(client, reason)
            client.close()
        elif (pid := os.fork()) == 0:
            for connection in (self.listener, client, *self.children.values()):
                if connection:
                    connection.close()
            return request if process.end_with(here) else os._exit(1)
        else:
            _answer(client, FORKED)
            self.children[pid], self.waited_s = client, 0.0
        for descriptor in request.files if request else ():
            os.close(descriptor)
        return None

    def _signal(self, pid: int, client: socket.socket) -> None:
        numbers = b""
        with contextlib.suppress(ConnectionError):  # it has ended without reading the answer
            numbers = client.recv(64)
        for number in numbers or [signal.SIGKILL]:
            os.kill(pid, number)  # no other process has its id: it has not been waited for
        if not numbers:
            client.close()
            self.children[pid] = None

    def _report(self) -> None:
        for pid in list(self.children):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                if client := self.children.pop(pid):
                    _answer(client, str(code if code >= 0 else 128 - code))
                    client.close()


def _answer(client: socket.socket, line: str) -> None:
    with contextlib.suppress(OSError):  # it has ended
        client.sendall(f"{line}\n".encode())


def main() -> int:
    listener, owner = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2].partition("-")[0])
    environment = dict(os.environ)
    from jobkit.worker import (
        kinds,
        steps,
        work,  # a client does without
    )
    from jobkit.worker.measure import energy

    task = work.task_of(sys.argv[3:])
    kinds.work_of(task.point)  # so that no child imports its module again
    if task.point.command:
        import jobkit.worker.command  # noqa: F401 - the same
    read_idle = energy.idle_readings if task.point.device == "cuda" else dict
    idle, refusal, opening = read_idle(), steps.preload(task.point, task.inputs), read_idle()
    parent = Parent(listener, owner, environment, refusal, process.age_s() or 0.0)
    with process.signals_blocked():
        request = parent.serve()
        if request is None:
            return 0
        request.become()
    return work.main(request.words, forked=True, waited_s=parent.waited_s, idle=idle, opening=opening)


if __name__ == "__main__":
    sys.exit(main())
