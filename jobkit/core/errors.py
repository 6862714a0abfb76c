"""jobkit's one error, its exit codes, and the translation of OSError into it."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import ClassVar

WOULD_REFUSE = "would refuse this sweep"


class ExitCode(IntEnum):
    """The exit codes of `jobkit`; see "Exit codes" in docs/commands.md."""

    DONE = 0
    BUG = 1
    USAGE = 2
    REFUSED = 3
    FAILED = 4
    TO_COME = 5
    INTERRUPTED = 130


HIDDEN = "***"
"""What is shown for a secret: a value of `environment`, or of an unknown key, and the query of an address."""


def hide_secrets(text: str) -> str:
    """Return a text in which each address has no query and no password: a signed address opens its file."""
    text = re.sub(r"(?<=://)[^\s/?#@:]*:[^\s/?#@]+(?=@)", HIDDEN, text)
    return re.sub(r"(?i)((?:https?:|:/)/[^\s?]*\?)(?!\*{3})\S*[^\s'\":;,.)]", rf"\1{HIDDEN}", text)


class JobkitError(Exception):
    """An error that the user can fix; it hides secrets in addresses.

    Parameters
    ----------
    message
        What is wrong, with which value, and where (``file:line`` if there is one).
    hint
        The next command to type or the key to change. Empty only if nothing helps.
    exit_code
        The exit code of the process. Default: that of the class.
    """

    EXIT_CODE: ClassVar[int] = ExitCode.USAGE

    def __init__(self, message: str, *, hint: str = "", exit_code: int | None = None) -> None:
        self.message, self.hint = hide_secrets(message), hide_secrets(hint)
        super().__init__(self.message)
        self.exit_code = self.EXIT_CODE if exit_code is None else exit_code

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class InvalidSpecError(JobkitError):
    """A spec, or another file that a person writes, has errors; the message lists all of them."""


class NotFoundError(JobkitError):
    """There is no run, point, file, model or job of that name."""


class RefusedError(JobkitError):
    """The scheduler or the machine refuses. Nothing has changed, or the message says what has."""

    EXIT_CODE = ExitCode.REFUSED


class BusyError(RefusedError):
    """Another process, or a job, works on the run now."""


class UnknownError(RefusedError):
    """A scheduler, a host or a machine does not answer, so jobkit does not know what is true there."""


DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
ERRNO_HINTS = {
    errno.ENOSPC: "free space or inodes on that disk (df -h, df -i), then run the same command again",
    errno.EDQUOT: "your quota is used up (quota -s shows it): delete files, then run the same command again",
    errno.EACCES: "ls -ld shows its owner and its permissions",
    errno.EPERM: "ls -ld shows its owner and its permissions",
    errno.EROFS: "that file system is mounted read-only: use another place, or ask who runs this machine",
    errno.EIO: "the disk or its file server fails: ask who runs this machine",
    errno.ESTALE: "the file server has lost the file: try again, then ask who runs this machine",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.EFBIG: "name a smaller file",
    errno.EINVAL: "name a regular file: no device and no FIFO",
}
"""The hint by error number; hints differ, so that no two errors look alike."""


def file_error(error: OSError, path: object = "", *, hint: str = "") -> JobkitError:
    """Translate an OSError; ``path`` is the file, if the error itself names none."""
    written = error.filename2 if error.errno in DISK_FULL else None  # of a copy it is the second
    where = written or error.filename or path or "standard output"
    return JobkitError(
        f"{os.fsdecode(where) if isinstance(where, bytes) else where}: {error.strerror or error}",
        hint="; ".join(filter(None, (ERRNO_HINTS.get(error.errno or 0), hint))),
    )


def lost_file(path: os.PathLike[str], so: str, *others: str) -> JobkitError:
    """Return that a file of a run folder is gone, which nothing can make again; ``so`` is what that means."""
    ways = ("restore it from a backup", *others, "or begin again in another folder")
    return JobkitError(f"{os.fspath(path)}: gone: {so}", hint="; ".join(ways))


@contextmanager
def name_file_in_errors(path: os.PathLike[str] | str) -> Iterator[None]:
    """Add the file name to an OSError inside the block if it has none: write(2) does not set it."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise
