"""One process at a time. Standard library only."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def only_one(path: Path, busy: Callable[[], None]) -> Iterator[None]:
    """Hold a lock file; other processes wait for it, and get it when its holder ends or dies.

    Parameters
    ----------
    path
        The lock file; it stays, empty.
    busy
        Called where another process holds it, before the wait.
    """
    with path.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            busy()
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder itself, waiting for others; where its file system has no such lock, hold none.

    Linux's NFS client locks only what is open for writing, and a folder never is (flock(2), NFS details).
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
