"""The parent of tries: a process that has imported the framework of a run, and from which tries are forked.

The script or the driver that runs several points one after the other is the owner: it sets ``JOBKIT_PARENT``
to its process id, or to its process id, a hyphen and a word if it may own several in turn. The first try that
finds no parent starts one with its own environment, as ``python -m jobkit.worker.parent FD OWNER WORDS...``:
FD is the listening socket, and WORDS are the arguments of the try. The parent imports the framework, opens no
GPU, and ends with its owner.

``python -m jobkit.worker`` is then only the client of its try (`run_in_child`): it passes its arguments,
environment and open files to the parent, forwards TERM and INT, and ends as the child ends. If the client is
killed, so is the child. If a child would differ from a fresh process, the try runs in a fresh process: also
if another jobkit has been installed since, in which the modules may be gone that a child would still import.

A child whose processes may do another point (`Point.loaded`) stays after its try: it reports the exit status
by a socket, and the parent sends it the next try if that needs the same. Any other try ends it first.

The socket is in Linux's abstract namespace (unix(7)): it needs no folder, and ends with the parent. Both
sides check that the other belongs to the same user. If another user has taken the address, the try runs in
a fresh process.
"""

from __future__ import annotations

import contextlib
import fcntl
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

from jobkit.core.frozen import frozen
from jobkit.worker import process

FORKED = "forked"
"""The parent's first answer; the exit status follows. Any other answer is the reason why it did not fork."""
VARIABLE = "JOBKIT_PARENT"
"""The owner's process id, perhaps with a hyphen and a word."""
LOCK_FD = 9
"""The file by which the job script holds the lock of the try's folder on scratch; the worker holds it too."""
INSTALLED = "the installed jobkit"
"""Sent with the client's variables, but none of them. Every version compares all that are sent, so also a
parent of an earlier version, which does not know this one, refuses to fork."""
_SIZE = struct.Struct("Q")


# -- the socket


def end(owner: str) -> None:
    """End the parent of an owner that goes on, if there is one, once it has nothing to do."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connect(connection, address(owner))
        send(connection, ())


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
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", data)[1])  # struct ucred of unix(7): pid, uid, gid


def send(parent: socket.socket, words: Sequence[str]) -> None:
    """Send what makes the child equal to this process: words, environment, folder, open files."""
    data = json.dumps([list(words), {**os.environ, INSTALLED: installed()}, str(Path.cwd())]).encode()
    files = [0, 1, 2]
    with contextlib.suppress(OSError):
        os.fstat(LOCK_FD)
        files.append(LOCK_FD)
    send_data(parent, data, files)


def send_data(to: socket.socket, data: bytes, files: Sequence[int]) -> None:
    socket.send_fds(to, [_SIZE.pack(len(data))], files)
    to.sendall(data)


def installed() -> str:
    here = Path(__file__).stat()
    return f"{here.st_ino}-{here.st_mtime_ns}"


@frozen
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
        # CUDA reads its own when a child initialises it; the shell changes the last three by itself
        free = ("JOBKIT_", "CUDA_VISIBLE_DEVICES", "CUDA_MPS_")
        changed = sorted(
            name
            for name in names - {"_", "SHLVL", "OLDPWD"}
            if self.environment.get(name) != environment.get(name) and not name.startswith(free)
        )
        return f"{', '.join(changed)} changed after the first try" if changed else ""

    def loaded(self) -> tuple[object, ...]:
        """Return what its processes load, and on which GPUs; empty if they do no other try."""
        from jobkit.core.errors import JobkitError  # as in `main`
        from jobkit.worker.work import parse

        try:
            loaded = parse(self.words)[0].point.loaded
        except (JobkitError, OSError, SystemExit):  # its child reports this
            loaded = None
        gpus = sorted(pair for pair in self.environment.items() if pair[0].startswith("CUDA_"))
        return (loaded, *gpus) if loaded else ()

    def become(self) -> None:
        places = (0, 1, 2, LOCK_FD)[: len(self.files)]
        for place, descriptor in zip(places, self.files, strict=True):  # in this order
            os.dup2(descriptor, place)
        for descriptor in {*self.files} - {*places}:
            os.close(descriptor)
        process.replace_environment(self.environment)
        del os.environ[INSTALLED]


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
            before = {number: signal.signal(number, forward) for number in (signal.SIGTERM, signal.SIGINT)}
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
class Child:
    """A forked process.

    ``channel``: on it the process reports the status of a try after which it stays, and gets the next one.
    """

    process: process.Forked
    channel: socket.socket
    loaded: tuple[object, ...]  # as `ForkRequest.loaded` has it
    client: socket.socket | None  # of its try; ``None`` once that has ended, or has got its answer

    @property
    def connections(self) -> list[socket.socket]:
        return [sock for sock in (self.channel, self.client) if sock and sock.fileno() >= 0]

    def report(self, status: int) -> None:
        if self.client:
            _answer(self.client, str(status))
            self.client.close()
            self.client = None

    def end(self) -> None:
        """End a process that stands, and wait until it has freed its memory."""
        self.channel.close()
        # The time that a child that stands has to end its processes, and to be killed
        end_s = 30.0
        if not process.ends(self.process, end_s):
            process.kill(process.process_tree(self.process.pid))
            process.ends(self.process, end_s)


@dataclass(slots=True)
class Parent:
    listener: socket.socket
    owner: int | None  # process id; ``None`` once the owner has asked this process to end
    environment: Mapping[str, str]  # the variables with which the framework was imported
    refusal: str  # why no try may be forked; else empty
    waited_s: float  # how long the next client has waited for the framework
    children: list[Child] = field(default_factory=list)  # those that have a try
    standing: Child | None = None  # the one that has none and stays

    def serve(self) -> tuple[ForkRequest, socket.socket] | None:
        """Return request and channel in each child; ``None`` in the parent, once the owner has ended."""
        since, here = process.started_at(self.owner or 0), os.getpid()
        with process.ends_of_children() as ended:
            while self.children or (since and self.owner and process.started_at(self.owner) == since):
                heard = [sock for child in self.children for sock in child.connections]
                ready, _, _ = select.select([self.listener, ended, *heard], [], [], 0.5)
                for child in [*self.children]:
                    if child.client in ready:
                        self._signal(child)
                    if child.channel in ready:
                        self._stand(child)
                if ended in ready:
                    ended.recv(4096)
                    self._report()
                if self.listener in ready and (forked := self._fork(here)):
                    return forked
        return None

    def _fork(self, here: int) -> tuple[ForkRequest, socket.socket] | None:
        client, _ = self.listener.accept()
        request = receive(client) if user_of(client) == os.geteuid() else None
        if request is None:
            client.close()
        elif not request.words:
            self.owner = None
            client.close()
        else:
            reason = self.refusal or request.differs(self.environment)
            loaded = () if reason else request.loaded()
            if reason or not self._hand_over(request, loaded, client):
                self._end_standing()
                if reason:
                    _answer(client, reason)
                    client.close()
                elif channel := self._start(loaded, client):
                    return (request, channel) if process.end_with(here) else os._exit(1)
        for descriptor in request.files if request else ():
            os.close(descriptor)
        return None

    def _start(self, loaded: tuple[object, ...], client: socket.socket) -> socket.socket | None:
        """Fork a child for a try; return its channel in the child, and ``None`` here."""
        ours, theirs = socket.socketpair()
        with theirs:
            if pid := os.fork():
                _answer(client, FORKED)
                self.children.append(Child(process.Forked(pid), ours, loaded, client))
                self.waited_s = 0.0
                return None
            others = (sock for child in self.children for sock in child.connections)
            for connection in (self.listener, client, ours, *others):
                connection.close()
            # above the places of the client's files, which the child takes
            return socket.socket(fileno=fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, LOCK_FD + 1))

    def _hand_over(self, request: ForkRequest, loaded: tuple[object, ...], client: socket.socket) -> bool:
        """Return whether the child that stands gets a try."""
        child = self.standing
        if not child or not loaded or child.loaded != loaded:
            return False
        data = json.dumps([request.words, request.environment, request.folder]).encode()
        try:
            send_data(child.channel, data, request.files)
        except OSError:
            return False
        _answer(client, FORKED)
        child.client, self.standing = client, None
        self.children.append(child)
        return True

    def _end_standing(self) -> None:
        if self.standing:
            self.standing.end()
            self.standing = None

    def _stand(self, child: Child) -> None:
        line = b""
        with contextlib.suppress(ConnectionError):
            line = child.channel.recv(64)
        if not line:  # it ends
            child.channel.close()
            return
        child.report(int(line))
        self._end_standing()
        self.children.remove(child)
        self.standing = child

    def _signal(self, child: Child) -> None:
        numbers = b""
        with contextlib.suppress(ConnectionError):  # it has ended without reading the answer
            numbers = child.client.recv(64) if child.client else b""
        for number in numbers or [signal.SIGKILL]:
            os.kill(child.process.pid, number)  # no other process has its id: it has not been waited for
        if not numbers and child.client:
            child.client.close()
            child.client = None

    def _report(self) -> None:
        for child in [*self.children, *([self.standing] if self.standing else [])]:
            if (status := child.process.poll()) is not None:
                self.standing = None if child is self.standing else self.standing
                self.children = [one for one in self.children if one is not child]
                child.channel.close()
                child.report(status if status >= 0 else 128 - status)


def _answer(client: socket.socket, line: str) -> None:
    with contextlib.suppress(OSError):  # it has ended
        client.sendall(f"{line}\n".encode())


def main() -> int:
    listener, owner = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2].partition("-")[0])
    environment = {**os.environ, INSTALLED: installed()}
    from jobkit.worker import record, steps, work  # a client does without
    from jobkit.worker.measure.sampler import idle_readings

    task, _ = work.parse(sys.argv[3:])
    record.work_of(task.point)  # so that no child imports its module again
    importlib.import_module(f"jobkit.worker.{'command' if task.point.command else 'pool'}")  # the same
    read_idle = idle_readings if task.point.device == "cuda" else dict
    idle, refusal, opening = read_idle(), steps.preload(task), read_idle()
    parent = Parent(listener, owner, environment, refusal, process.age_s() or 0.0)
    with process.signals_blocked():
        forked = parent.serve()
        if forked is None:
            return 0
        request, channel = forked
        request.become()
    kept, inherited = steps.Kept(), {"waited_s": parent.waited_s, "idle": idle, "opening": opening}
    while True:
        status = work.main(request.words, kept, forked=True, **inherited)
        if not kept.state:
            return status
        with process.signals_blocked():
            process.release_output()
            if len(request.files) > 3:
                os.dup2(0, LOCK_FD)  # so that no library takes its place
            channel.sendall(str(status).encode())
            if not (following := receive(channel)):
                kept.close()
                return status
            request = following
            request.become()


if __name__ == "__main__":
    sys.exit(main())
