"""Copy files to the cluster and back, with the system's rsync over the open connection, else by tar.

Sources: rsync(1), "EXIT VALUES" and the options that are named here, of rsync 3.2.7; all are in 3.1, of 2013.
Apple's rsync, 2.6.9 and since macOS 15 openrsync, lacks -s, --partial-dir and --info. Since 3.5 rsync follows
a link in the destination and in --files-from only if it is root's or the user's own: here neither has links.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import cast

from jobkit.core import shell
from jobkit.core.errors import ExitCode, JobkitError, UnknownError
from jobkit.core.layout import COPY_FILE
from jobkit.core.terminal import note
from jobkit.extensions.on_host import rsh
from jobkit.extensions.on_host.connection import RUN_TAR, Connection, waiting
from jobkit.extensions.on_host.protocol import NO_RSYNC, READY, Place

THERE = "cluster"
"""The name of the host in rsync's arguments; `jobkit.extensions.on_host.rsh` has the real one."""
INTERRUPTED, VANISHED = 20, 24
"""Statuses of rsync; the last is that of a file that went while a run is under way."""
LEAVE = (
    *("rows.jsonl", "part-*", "entities.tsv", "merged.*", "trace.json.gz", "profile.pstats"),
    *(".lock", ".find.lock"),
)
"""Files of a run that no table and no picture needs, and which may be large."""
AGAIN = "type the same command again: what has come is not sent again"


def send(connection: Connection, files: Sequence[Path], base: Path, folder: str) -> None:
    """Copy files and folders to the cluster.

    ``files``: below ``base``.
    ``base``: the folder on the laptop that becomes ``folder``.
    ``folder``: the folder on the cluster, absolute, without links; the one above it exists.
    """
    if files and not _has_rsync():
        copies = copies_below(files)
        with (
            _tar(connection, folder, "-x", "-z", "-f", "-") as process,
            tarfile.open(fileobj=process.stdin, mode="w|gz", dereference=True) as packed,
        ):
            for file in files:
                name = str(file.relative_to(base))
                packed.add(file, name, filter=lambda part: None if base / part.name in copies else part)
        return
    for large in (False, True):
        named = [path for path in files if is_large(path) is large]
        if not named:
            continue
        with tempfile.NamedTemporaryFile("wb", prefix="jobkit-on-") as listed:
            listed.write(b"".join(os.fsencode(path.relative_to(base)) + b"\0" for path in named))
            listed.flush()
            compared = () if large else ("--checksum",)
            from_list = (f"--files-from={Path(listed.name).resolve()}", "--from0", "--copy-links")
            left_out = (str(copy.relative_to(base)) for copy in copies_below(named))
            excluded = ("--exclude=/" + re.sub(r"([\\\\*?\[])", r"\\\1", name) for name in left_out)
            argv = (*compared, *from_list, *excluded, f"{base}/", f"{THERE}:{folder}/")
            _rsync(connection, argv, progress=large)


def is_large(path: Path) -> bool:
    """Return whether a file or folder is so large that only sizes and times are compared."""
    files = path.rglob("*") if path.is_dir() else [path]
    # From so much on the progress of a transfer is shown, and no content is compared
    return sum(file.stat().st_size for file in files if file.is_file()) > 20 * 2**20


def copies_below(files: Iterable[Path]) -> list[Path]:
    """Return the copies of runs below files: they do not travel, for those on the cluster are newer."""
    return [marker.parent for file in files for marker in file.rglob(COPY_FILE)]


def fetch(connection: Connection, places: Sequence[Place], to: Path, *, leave: Sequence[str]) -> None:
    """Copy files and folders from the cluster.

    ``to``: the folder on the laptop below which each has its path.
    ``leave``: patterns of names that are not copied.
    """
    if _has_rsync():
        if sources := [f"{THERE}:{base}/./{path}" for base, path, _ in places]:
            excluded = (f"--exclude={name}" for name in leave)
            _rsync(connection, (*excluded, *sources, f"{to}/"), progress=not leave)
        return
    left_out = (f'--exclude="{name}"' for name in leave)
    words = ("-c", "-z", "-f", "-", "--hard-dereference", *left_out, "--null", "-T", "-")
    for base in dict.fromkeys(place.base for place in places):
        names = [str(place.path) for place in places if place.base == base]
        with _tar(connection, base, *words) as process:
            stdin = cast("BufferedWriter", process.stdin)
            stdin.write(b"".join(os.fsencode(name) + b"\0" for name in names))
            stdin.close()
            with tarfile.open(fileobj=process.stdout, mode="r|gz") as packed:
                # Python 3.11.3 and earlier have no filter
                packed.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
                packed.extractall(to, (member for member in packed if _is_part(member, names)))  # noqa: S202 - checked


@functools.cache
def _has_rsync() -> bool:
    """Return whether this machine has rsync 3.1 or later; openrsync names its version on another line."""
    answer = shell.run(["rsync", "--version"]).stdout
    version = re.match(r"rsync\s+version v?(\d+)\.(\d+)", answer)
    has = version is not None and (int(version[1]), int(version[2])) >= (3, 1)
    if not has:
        note("this machine has no rsync 3.1 or later: each copy sends every file (macOS: brew install rsync)")
    return has


def _is_part(member: tarfile.TarInfo, names: Sequence[str]) -> bool:
    path = Path(member.name)
    return (
        (member.isfile() or member.isdir())
        and ".." not in path.parts
        and any(map(path.is_relative_to, names))
    )


@contextlib.contextmanager
def _tar(connection: Connection, folder: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Have a tar on the cluster, in a folder, that reads or writes what it packs."""
    process, why = shell.open_pipes(connection.argv(RUN_TAR, *words)), ""
    stdin, stdout = cast("BufferedWriter", process.stdin), cast("BufferedReader", process.stdout)
    try:
        with process, waiting(f"tar, which copies files from or to {connection.host}"):
            while (line := stdout.readline()) and not line.rstrip().endswith(READY.encode()):
                pass
            stdin.write(os.fsencode(folder) + b"\n")
            yield process
            stdin.close()
            stdout.read()  # what fills the last block
    except (OSError, tarfile.TarError) as error:
        why = f"; {error}"
    if why or process.returncode:
        raise UnknownError(
            f"{connection.host}: the transfer has not ended (tar's status {process.returncode}{why})",
            hint="type the same command again",
        )


def _rsync(connection: Connection, arguments: Sequence[str], *, progress: bool) -> None:
    shell_command = f'"{sys.executable}" -P -m {rsh.__name__}'
    shown = ("--info=progress2",) if progress and sys.stderr.isatty() else ()
    # Paths travel in rsync's own protocol; a half-copied file is kept, and the next copy goes on from it
    options = ("-rtz", "-s", "--partial-dir=.rsync-partial", "--relative")
    argv = ["rsync", *options, *shown, "-e", shell_command, *arguments]
    ssh = {rsh.SSH_VARIABLE: json.dumps([connection.host, *connection.control])}
    with tempfile.NamedTemporaryFile("r", prefix="jobkit-on-") as said:
        environment = {**os.environ, **ssh, rsh.NOTE_VARIABLE: said.name}
        with waiting(f"rsync, which copies files from or to {connection.host}"):
            status = shell.attach(argv, environment, output=sys.stderr)
        absent = said.read() == NO_RSYNC
    install = (
        "install it there (ask who runs the cluster), or load its module in your login shell's start file"
    )
    if absent:
        raise JobkitError(f"{connection.host} has no rsync", hint=install)
    if status in {INTERRUPTED, -2}:
        raise JobkitError("interrupted", hint=AGAIN, exit_code=ExitCode.INTERRUPTED)
    if status not in {0, VANISHED}:
        raise UnknownError(
            f"{connection.host}: the transfer has not ended (rsync's status {status}); its reason is above",
            hint=AGAIN,
        )
