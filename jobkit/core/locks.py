"""One process at a time. Standard library only."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jobkit.core.errors import naming
from jobkit.core.record_files import open_regular

NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK})
"""What flock(2) says on a file system without locks: Lustre that is mounted without ``flock``, some NFS."""


@contextmanager
def only_one(
    path: Path, busy: Callable[[], None], unlocked: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Hold a lock file; other processes wait for it, and get it when its holder ends or dies.

    Parameters
    ----------
    path
        The lock file; it stays, empty.
    busy
        Called where another process holds it, before the wait.
    unlocked
        Called where the file system has no locks: the block runs without one.

    Raises
    ------
    OSError
        With the name of the file, where it cannot be opened for writing.
    """
    handle = open_regular(path, os.O_RDWR | os.O_CREAT)
    try:
        with naming(path):
            held = take(handle)
            if held is False:
                busy()
                take(handle, wait=True)
        if held is None:
            unlocked()
        yield
    finally:
        os.close(handle)


def take(handle: int, *, shared: bool = False, wait: bool = False) -> bool | None:
    """Lock an open file; return whether that was possible, ``None`` where its file system has no locks.

    Parameters
    ----------
    shared
        Whether others may share it: enough to see that nobody holds it alone.
    wait
        Until it is free.
    """
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in NO_LOCKS:
            return None
        raise
    return True


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
