"""The socket of a parent of tries: how its owner and the clients reach it, and what they send.

The socket is in Linux's abstract namespace (unix(7)): it needs no folder, and ends with the parent. Both
sides check that the other belongs to the same user. If another user has taken the address, the try runs in
a fresh process.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobkit.worker import process

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
