"""Files of a run: append a whole line, write atomically, make folders private, read damaged JSON lines, lock.

The end of the module finds the type of a file system, and whether other machines probably see it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

from jobkit.core.errors import JobkitError, name_file_in_errors
from jobkit.core.json_codec import T, from_json, parse_json
from jobkit.core.units import format_count


def open_regular(path: Path | str, flags: int = os.O_RDONLY) -> int:
    """Open a regular file; refuse any other, because a FIFO in a run folder would block its reader."""
    try:
        handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except ValueError as error:  # a NUL character, or one that the file system's encoding lacks
        raise OSError(errno.EINVAL, "no file can have this name", repr(os.fspath(path))) from error
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    raise OSError(code, os.strerror(code) if code == errno.EISDIR else "not a regular file", os.fspath(path))


OWNER = 0o600


def _mode(path: Path, content: str) -> int:
    """Return the mode of a file before the umask: its owner's, of a script and of values of `environment`."""
    # keys of `environment` as jobkit writes a spec and in words of ``--set``; addresses with a query
    held = path.suffix in {".yaml", ".json", ".jsonl"} and re.search(
        r"^  (?:variables|setup):(?! [\[{][\]}]$)|\benvironment(?:\.\w+)*\s*=|://[^\s?]*\?(?!\*{3})",
        content,
        re.MULTILINE,
    )
    return OWNER if held or path.suffix == ".sh" else 0o666


def append_line(path: Path, line: str) -> None:
    """Append one line to a file and flush it to disk.

    If a full disk or a crash cut the last line short, that line is ended first, so that only it is lost.
    If the line holds values of `environment`, no other user can read the file from then on.
    """
    with name_file_in_errors(path):
        handle = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            if _mode(path, line) == OWNER:
                os.fchmod(handle, OWNER)
            size = os.fstat(handle).st_size
            torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
            data = b"\n" * torn + line.encode() + b"\n"
            while data:
                data = data[os.write(handle, data) :]
            os.fsync(handle)
        finally:
            os.close(handle)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    with open(open_regular(path), encoding="utf-8", errors="replace") as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                yield number, line


def last_line(path: Path) -> str:
    """Return the last whole line of a file; empty if there is none."""
    handle = open_regular(path)
    try:
        end, tail = os.fstat(handle).st_size, b""
        while end > 0 and tail.count(b"\n") < 2:
            begin = max(0, end - 2**16)
            tail = os.pread(handle, end - begin, begin) + tail
            end = begin
    finally:
        os.close(handle)
    lines = tail[: tail.rfind(b"\n") + 1].splitlines()
    return lines[-1].decode("utf-8", "replace") if lines else ""


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8, so that a reader sees either all of it or nothing.

    Of several processes that write it at the same moment, one after the other replaces it. If it holds values
    of `environment`, or is a script, no other user can read it.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with name_file_in_errors(path):
        try:
            mode = _mode(path, content) if isinstance(content, str) else 0o666
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as stream:
                stream.write(content.encode() if isinstance(content, str) else content)
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(path)
        except OSError:
            part.unlink(missing_ok=True)  # on a full disk, free its space
            raise


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on disk, as far as its file system can."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


MOST_BYTES = 2**24
"""Of a spec, a site file, a template or a script; one has some thousand."""


def read_bytes(path: Path | str, most_bytes: int | None = None, *, typed: bool = False) -> bytes:
    """Return the content of a regular file: the one way to read a file that a user names.

    ``typed``: whether a person may type ``<(command)`` for it: then it may be the FIFO that a shell makes.
    """
    made = typed and str(path).startswith(("/dev/", "/proc/"))
    handle = os.open(path, os.O_RDONLY) if made else open_regular(path)
    with os.fdopen(handle, "rb", buffering=0 if most_bytes is None else -1) as stream:
        if most_bytes is None:
            return stream.read()
        size = os.fstat(handle).st_size
        data = stream.read((size or most_bytes) + 1) if size <= most_bytes else b""
    if max(size, len(data)) > most_bytes:
        raise OSError(errno.EFBIG, f"more than {most_bytes // 2**20:,} MiB", os.fspath(path))
    return data


def read_text(path: Path | str, most_bytes: int | None = None) -> str:
    """Return the text of a file, as `read_bytes`; replace bytes that are not UTF-8."""
    return read_bytes(path, most_bytes).decode("utf-8", "replace")


def read_json(kind: type[T], path: Path) -> T:
    """Return the dataclass that a file of JSON holds, as `from_json`."""
    return from_json(kind, read_text(path), where=str(path))


def digest(path: Path | str) -> tuple[str, int]:
    """Return the SHA-256 and the size of a file; for a folder, over the names and contents of its files."""
    path = Path(path)
    if not path.is_dir():
        with os.fdopen(open_regular(path), "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest(), os.fstat(stream.fileno()).st_size
    whole, size = hashlib.sha256(), 0
    for file in files_of(path):
        sha256, size_bytes = digest(file)
        whole.update(f"{file.relative_to(path).as_posix()}\0{sha256}\n".encode(errors="surrogateescape"))
        size += size_bytes
    return whole.hexdigest(), size


def files_of(path: Path) -> list[Path]:
    """Return a file, or the files in a folder sorted by name, without those that no run copies."""
    if not path.is_dir():
        return [path]
    kept = (
        child
        for child in sorted(path.iterdir())
        if not any(fnmatch(child.name, pattern) for pattern in ("__pycache__", ".git", "*.pyc"))
    )
    return [file for child in kept for file in files_of(child)]


def copy_files(source: Path, target: Path) -> None:
    for file in files_of(source):
        copy = target / file.relative_to(source) if source.is_dir() else target
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)


def read_tolerantly(
    path: Path, parse: Callable[[str, str], T], *, growing: bool = True
) -> tuple[list[T], tuple[str, ...]]:
    """Parse the lines of a file, if it exists; return the values and at most one note on lines that failed.

    ``parse``: called with a line and ``file:line``; raises JobkitError for a damaged line. A line that jobkit
    0.1 appended to one cut short is read all the same.
    ``growing``: a last line without a newline is still being written: it is skipped without a note.
    """
    values: list[T] = []
    faults: list[str] = []
    try:
        for number, line in read_lines(path):
            try:
                values.append(parse(line, f"{path}:{number}"))
            except JobkitError as error:
                if line.endswith("\n") or not growing:
                    faults.append(error.message)
                if (begin := line.rfind('{"at": ')) > 0:
                    with suppress(JobkitError):
                        values.append(parse(line[begin:], f"{path}:{number}"))
    except FileNotFoundError:
        return [], ()
    except OSError as error:
        return [], (f"{path}: cannot be read: {error.strerror}",)
    more = f" (and {format_count(len(faults) - 1, 'more line')} of this file)" if len(faults) > 1 else ""
    return values, ((f"{faults[0]}{more}: skipped",) if faults else ())


def parse_object(line: str, where: str) -> dict[str, Any]:
    """Return a line as a JSON object."""
    data = parse_json(line, where)
    if not isinstance(data, dict):
        raise JobkitError(f"{where}: not a JSON object")
    return data


@contextmanager
def exclusive_lock(
    path: Path, busy: Callable[[], None], unlocked: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Hold a lock file, which remains, empty; another process waits until the holder exits or dies.

    ``busy``: called before the wait if another process holds the lock.
    ``unlocked``: called if the file system has no locks: then the block runs without one.
    """
    handle = open_regular(path, os.O_RDWR | os.O_CREAT)
    try:
        with name_file_in_errors(path):
            held = try_lock(handle)
            if held is False:
                busy()
                try_lock(handle, wait=True)
        if held is None:
            unlocked()
        yield
    finally:
        os.close(handle)


def try_lock(handle: int, *, shared: bool = False, wait: bool = False) -> bool | None:
    """Lock an open file; return whether that succeeded, ``None`` if its file system has no locks.

    A ``shared`` lock shows that no process holds it exclusively.
    """
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}:
            return None  # Lustre mounted without ``flock``, some NFS
        raise
    return True


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder itself; hold none if its file system cannot lock a folder.

    Linux's NFS client locks only files open for writing, and a folder never is (flock(2), NFS details).
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def filesystem_type(path: str, mountinfo: str) -> str:
    r"""Return the type of the file system that holds a path; empty if unknown.

    ``path``: absolute, with links resolved.
    ``mountinfo``: the text of ``/proc/self/mountinfo`` (proc(5)): the mount point is the fifth word, with
        spaces as ``\040``; the type follows the `` - ``. If two mounts share a mount point, the later counts.
    """
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        left, dash, right = line.partition(" - ")
        words = left.split()
        if not dash or len(words) < 5 or not right.split():
            continue
        place = PurePosixPath(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), words[4]))
        if PurePosixPath(path).is_relative_to(place) and len(place.parts) >= best:
            best, kind = len(place.parts), right.split()[0]
    return kind


def likely_shared(kind: str) -> bool | None:
    """Return whether nodes share a file system of this type; ``None`` if unknown."""
    of_servers = (  # on clusters FUSE mostly is one
        r"nfs\d?|lustre|gpfs|beegfs|fhgfs|ceph|glusterfs|cifs|smb\d?|afs|panfs|pvfs2|orangefs|wekafs|ocfs2"
        r"|gfs2|9p|fuse\..*"
    )
    # of one machine (zfs: its clients see nfs)
    of_disks = r"ext\d|xfs|btrfs|zfs|f2fs|jfs|reiserfs|vfat|tmpfs|ramfs|overlay"
    return True if re.fullmatch(of_servers, kind) else False if re.fullmatch(of_disks, kind) else None
