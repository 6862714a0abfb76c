"""The parent of a practice daemon: it gets every process that the daemon leaves behind, and ends last.

Runs as ``python -I -S guard.py FOLDER NAME COMMAND...``: a small file that imports nothing of jobkit. As a
child subreaper (prctl(2)) it becomes the parent of each descendant whose own parent ends, so all of them stay
below it in the tree of processes. When the kernel says that it has no child any more, nothing of the daemon
is left.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path


def note(file: Path) -> None:
    """Write this process's id, start time (proc(5), field 22 of its stat) and boot into a file."""
    born = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()[19]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    part = file.with_name(f"{file.name}.part")
    part.write_text(f"{os.getpid()} {born} {boot}\n", encoding="ascii")
    part.replace(file)


def main(folder: Path, name: str, *argv: str) -> None:
    """Start the daemon, with its log as output, and wait for it and for all that comes after it."""
    log = folder / "log" / f"{name}.out"
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), 1)
    os.dup2(1, 2)
    os.chdir(log.parent)
    # <sys/prctl.h>
    ctypes.CDLL(None).prctl(36, ctypes.c_ulong(1))
    mark = folder / "run" / f"{name}.{os.getpid()}.guard"
    note(mark)
    if os.fork() == 0:
        os.setsid()
        note(folder / "run" / f"{name}.pid")
        try:
            os.execvp(argv[0], argv)  # noqa: S606 - an argv list, no shell
        except OSError as error:
            os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
            os._exit(127)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            mark.unlink(missing_ok=True)
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
