"""The parent of tries: a process that has imported the framework of a run, and from which tries are forked.

The script or the driver that runs several points one after the other is the owner: it sets ``JOBKIT_PARENT``
to its process id, or to its process id, a hyphen and a word if it may own several in turn. The first try that
finds no parent starts one with its own environment, as ``python -m jobkit.worker.parent FD OWNER WORDS...``:
FD is the listening socket, and WORDS are the arguments of the try. The parent imports the framework, opens no
GPU, and ends with its owner.

``python -m jobkit.worker`` is then only the client of its try (`run_in_child`): it passes its arguments,
environment and open files to the parent, forwards TERM and INT, and ends as the child ends. If the client is
killed, so is the child. If a child would differ from a fresh process, the try runs in a fresh process.

The socket is in Linux's abstract namespace (unix(7)): it needs no folder, and ends with the parent. Both
sides check that the other belongs to the same user. If another user has taken the address, the try runs in
a fresh process.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from jobkit.worker import process

FORKED = "forked"
"""The parent's first answer; the exit status follows. Any other answer is the reason why it did not fork."""
TICK_S = 0.5
"""The longest time between the end of the owner and the end of its parent."""
FORWARDED = (signal.SIGTERM, signal.SIGINT)
VARIABLE = "JOBKIT_PARENT"
"""The owner's process id, perhaps with a hyphen and a word."""
END: tuple[str, ...] = ()
LOCK_FD = 9
"""The file by which the job script holds the lock of the try's folder on scratch; the worker holds it too."""
STANDARD_FILES = 3
_SIZE = struct.Struct("Q")
_CREDENTIALS = struct.Struct("3i")
"""``struct ucred`` of unix(7): pid, uid, gid."""
_FREE_PREFIXES = ("JOBKIT_", "CUDA_VISIBLE_DEVICES", "CUDA_MPS_")
"""Variables that may differ: jobkit reads them, or CUDA when a child initialises it."""
_FREE = frozenset({"_", "SHLVL", "OLDPWD"})
"""Variables that the shell changes by itself."""


# -- the socket


def end(owner: str) -> None:
    """End the parent of an owner that goes on, if there is one, once it has nothing to do."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connect(connection, address(owner))
        send(connection, END)


def address(owner: str) -> str:
    """Return the address of the parent's socket; a later process with the owner's id has another address."""
    if (since := process.started_at(int(owner.partition("-")[0]))) is None:
        raise ProcessLookupError(f"{VARIABLE}={owner}: there is no such process")
    return f"\0jobkit-{os.geteuid()}-{since}-{owner}"


def connect(connection: socket.socket, address: str) -> None:
    """Connect to a socket of this user, at once or not at all.

    Any user can listen at an abstract address. If the queue of such a socket is full and it accepts no
    client, connect(2) would wait until the walltime ends.
    """
    connection.settimeout(0)
    try:
        connection.connect(address)
    except BlockingIOError as error:
        raise PermissionError("the socket of its parent accepts no client") from error
    connection.settimeout(None)
    if user_of(connection) != os.geteuid():
        raise PermissionError("the socket of its parent belongs to another user")


def user_of(connection: socket.socket) -> int:
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1])


def send(parent: socket.socket, words: Sequence[str]) -> None:
    """Send what makes the child equal to this process: words, environment, folder, open files."""
    data = json.dumps([list(words), dict(os.environ), str(Path.cwd())]).encode()
    files = [0, 1, 2]
    with contextlib.suppress(OSError):
        os.fstat(LOCK_FD)
        files.append(LOCK_FD)
    socket.send_fds(parent, [_SIZE.pack(len(data))], files)
    parent.sendall(data)


@dataclass(frozen=True, slots=True)
class ForkRequest:
    words: list[str]  # the client's arguments, variables and working folder
    environment: dict[str, str]
    folder: str
    files: list[int]  # descriptors here of the client's standard files, and of its lock if there is one

    def differs(self, environment: Mapping[str, str]) -> str:
        """Return why a child of a process with this environment would differ from a fresh one; else empty."""
        if self.folder != str(Path.cwd()):
            return "its working folder is not that of its parent"
        names = self.environment.keys() | environment.keys()
        changed = sorted(
            name
            for name in names
            if self.environment.get(name) != environment.get(name)
            and name not in _FREE
            and not name.startswith(_FREE_PREFIXES)
        )
        return f"{', '.join(changed)} changed after the first try" if changed else ""

    def become(self) -> None:
        for place, descriptor in zip((0, 1, 2, LOCK_FD), self.files, strict=False):  # in this order
            os.dup2(descriptor, place)
        taken = {LOCK_FD} if len(self.files) > STANDARD_FILES else set()
        for descriptor in {*self.files} - taken:
            os.close(descriptor)
        process.replace_environment(self.environment)


def receive(client: socket.socket) -> ForkRequest | None:
    """Return the try that a client sends; ``None`` if the client ended before."""
    files: list[int] = []
    data, size = b"", 0
    with contextlib.suppress(ConnectionError):
        head, files, _, _ = socket.recv_fds(client, _SIZE.size, LOCK_FD)
        size = _SIZE.unpack(head)[0] if len(head) == _SIZE.size else 0
        data = client.recv(size, socket.MSG_WAITALL)
    if not data or len(data) < size:
        for descriptor in files:
            os.close(descriptor)
        return None
    words, environment, folder = json.loads(data)
    return ForkRequest(words, environment, folder, files)


# -- the client


def run_in_child(owner: str, words: Sequence[str]) -> int | None:
    """Have a try run in a child of the owner's parent, which is started if there is none.

    Return its exit status, or 128 and the number of the signal that killed it; ``None`` if the try has to run
    here, for the reason in the log. ``words``: the arguments of ``python -m jobkit.worker``.
    """

    def forward(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):  # it has ended, and the child with it
            parent.send(bytes([number]))

    try:
        with socket.socket(socket.AF_UNIX) as parent, parent.makefile(encoding="utf-8") as answers:
            place = address(owner)
            try:
                connect(parent, place)
            except ConnectionRefusedError:
                _start(place, owner, words)
                connect(parent, place)
            before = {number: signal.signal(number, forward) for number in FORWARDED}
            send(parent, words)
            reason = answers.readline().strip()
            if reason == FORKED:
                with contextlib.suppress(ConnectionError):
                    if line := answers.readline():
                        return int(line)
                return 128 + signal.SIGKILL  # by the kernel, because its parent has ended
            for number, handler in before.items():
                signal.signal(number, handler)
    except (OSError, ValueError) as error:
        reason = str(error)
    process.report(f"this try runs in a fresh process: {reason or 'its parent has ended'}")
    return None


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
        request = receive(client) if user_of(client) == os.geteuid() else None
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
    from jobkit.worker import record, steps, work  # a client does without
    from jobkit.worker.measure.sampler import idle_readings

    task, _ = work.parse(sys.argv[3:])
    record.work_of(task.point)  # so that no child imports its module again
    importlib.import_module(f"jobkit.worker.{'command' if task.point.command else 'pool'}")  # the same
    read_idle = idle_readings if task.point.device == "cuda" else dict
    idle, refusal, opening = read_idle(), steps.preload(task), read_idle()
    parent = Parent(listener, owner, environment, refusal, process.age_s() or 0.0)
    with process.signals_blocked():
        request = parent.serve()
        if request is None:
            return 0
        request.become()
    return work.main(request.words, forked=True, waited_s=parent.waited_s, idle=idle, opening=opening)


if __name__ == "__main__":
    sys.exit(main())
