"""Copy files to the cluster and back, with the system's rsync over the connection that is open.

Sources: rsync(1), "EXIT VALUES" and the options that are named here, of rsync 3.2.7; all are in 3.1, of 2013.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from jobkit.core import shell
from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.layout import COPY_FILE
from jobkit.extensions.on_host import rsh
from jobkit.extensions.on_host.connection import Connection
from jobkit.extensions.on_host.protocol import NO_RSYNC

THERE = "cluster"
"""The name of the host in rsync's arguments; `jobkit.extensions.on_host.rsh` has the real one."""
OPTIONS = ("-rtz", "-s", "--partial-dir=.rsync-partial", "--relative")
"""Paths travel in rsync's own protocol; a half-copied file is kept, and the next copy goes on from it."""
INTERRUPTED, VANISHED = 20, 24
"""Statuses of rsync; the last is that of a file that went while a run is under way."""
LEAVE = ("rows.jsonl", "entities.tsv", "merged.*", "trace.json.gz", "profile.pstats", ".lock", ".find.lock")
"""Files of a run that no table and no picture needs, and which may be large."""
AGAIN = "type the same command again: what has come is not sent again"
LARGE_BYTES = 20 * 2**20
"""From so much on the progress of a transfer is shown, and no content is compared."""
INSTALL = "install it there (ask who runs the cluster), or load its module in your login shell's start file"


def send(connection: Connection, files: Sequence[Path], base: Path, folder: str) -> None:
    """Copy files and folders to the cluster.

    ``files``: below ``base``.
    ``base``: the folder on the laptop that becomes ``folder``.
    ``folder``: the folder on the cluster, absolute; the one above it exists.
    """
    for large in (False, True):
        named = [path for path in files if is_large(path) is large]
        if not named:
            continue
        with tempfile.NamedTemporaryFile("wb", prefix="jobkit-on-") as listed:
            listed.write(b"".join(os.fsencode(path.relative_to(base)) + b"\0" for path in named))
            listed.flush()
            compared = () if large else ("--checksum",)
            from_list = (f"--files-from={listed.name}", "--from0", "--copy-links", *_copies(named, base))
            argv = (*compared, *from_list, f"{base}/", f"{THERE}:{folder}/")
            _rsync(connection, argv, progress=large)


def is_large(path: Path) -> bool:
    """Return whether a file or folder is so large that only sizes and times are compared."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file()) > LARGE_BYTES


def _copies(files: Iterable[Path], base: Path) -> Iterator[str]:
    """Yield the options that leave out copies of runs: those on the cluster are newer."""
    for file in files:
        for marker in file.rglob(COPY_FILE):
            name = re.sub(r"([\\\\*?\[])", r"\\\1", str(marker.parent.relative_to(base)))
            yield f"--exclude=/{name}"


def fetch(
    connection: Connection, parts: Iterable[tuple[str, Path, bool]], to: Path, *, leave: Sequence[str]
) -> None:
    """Copy files and folders from the cluster.

    ``parts``: of each the folder on the cluster, and the path below it, which it has below ``to`` too.
    ``to``: A folder on the laptop.
    ``leave``: patterns of names that are not copied.
    """
    sources = [f"{THERE}:{base}/./{path}" for base, path, _ in parts]
    if sources:
        excluded = (f"--exclude={name}" for name in leave)
        _rsync(connection, (*excluded, *sources, f"{to}/"), progress=not leave)


def _rsync(connection: Connection, arguments: Sequence[str], *, progress: bool) -> None:
    if not shutil.which("rsync"):
        raise JobkitError(
            "no rsync on this machine", hint="install rsync 3: apt install rsync, or brew install rsync"
        )
    shell_command = f'"{sys.executable}" -P -m {rsh.__name__}'
    shown = ("--info=progress2",) if progress and sys.stderr.isatty() else ()
    argv = ["rsync", *OPTIONS, *shown, "-e", shell_command, *arguments]
    ssh = {rsh.SSH_VARIABLE: json.dumps([connection.host, *connection.control])}
    with tempfile.NamedTemporaryFile("r", prefix="jobkit-on-") as note:
        environment = {**os.environ, **ssh, rsh.NOTE_VARIABLE: note.name}
        status = shell.attach(argv, environment, output=sys.stderr)
        absent = note.read() == NO_RSYNC
    if absent:
        raise JobkitError(f"{connection.host} has no rsync", hint=INSTALL)
    if status in {INTERRUPTED, -2}:
        raise JobkitError("interrupted", hint=AGAIN, exit_code=ExitCode.INTERRUPTED)
    if status not in {0, VANISHED}:
        raise JobkitError(
            f"{connection.host}: the transfer has not ended (rsync's status {status}); its reason is above",
            hint=AGAIN,
            exit_code=ExitCode.REFUSED,
        )
