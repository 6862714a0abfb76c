"""The one error of jobkit, and what the errors of files come to in it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum


class ExitCode(IntEnum):
    """What the process ends with; see "Exit codes" in docs/structure.md."""

    DONE = 0
    BUG = 1
    USAGE = 2
    REFUSED = 3
    FAILED = 4
    TO_COME = 5
    INTERRUPTED = 130


class JobkitError(Exception):
    """Something that the user can mend.

    Parameters
    ----------
    message
        What is wrong, with which value, and where (``file:line`` where there is one).
    hint
        The next command to type or the key to change. Empty only where nothing helps.
    exit_code
        What the process ends with.
    """

    def __init__(self, message: str, *, hint: str = "", exit_code: int = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        """Return the message with its hint on a line of its own."""
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""A disk, or a quota, that takes no more."""
ERRNO_HINTS = {
    errno.ENOSPC: "free space on that disk (df -h shows it), then run the same command again",
    errno.EDQUOT: "your quota is used up (quota -s shows it): delete files, then run the same command again",
    errno.EACCES: "ls -ld shows its owner and its permissions",
    errno.EPERM: "ls -ld shows its owner and its permissions",
    errno.EROFS: "that file system is mounted read-only: use another place, or ask who runs this machine",
    errno.EIO: "the disk or its file server fails: ask who runs this machine",
    errno.ESTALE: "the file server has lost the file: try again, then ask who runs this machine",
    errno.ENAMETOOLONG: "use a shorter name",
}
"""What a person can do, by error number: each says something else, so none may be taken for another."""


def file_error(error: OSError, path: object = "", *, hint: str = "") -> JobkitError:
    """Return what the system said of a file as jobkit's error: the file, the reason, what helps.

    Parameters
    ----------
    path
        The file or folder, where the error itself names none.
    hint
        What else helps, whatever the reason is.
    """
    where = error.filename or path or "standard output"
    meaning = ERRNO_HINTS.get(error.errno or 0, "")
    return JobkitError(
        f"{os.fsdecode(where) if isinstance(where, bytes) else where}: {error.strerror or error}",
        hint="; ".join(filter(None, (meaning, hint))),
    )


@contextmanager
def name_file_in_errors(path: os.PathLike[str] | str) -> Iterator[None]:
    """Give an OSError inside the block the file that it is about, where it names none: write(2) does not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise
