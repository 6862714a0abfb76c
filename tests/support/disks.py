"""Small disks of their own, real ones, that a test can fill."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

MIB = 2**20
CROWD = f"{sys.executable} {__file__}"
"""A command: it leaves room for 100 bytes in the last block of the file that is named to it."""
BLOCK_BYTES = 4096
"""A file grows by these: on a full disk the last of them still takes what fits into it."""


@contextlib.contextmanager
def disk(place: Path, mib: int, kind: str = "tmpfs") -> Iterator[Path]:
    """Mount a file system of so many MiB at a folder, ``tmpfs`` or ``ext4`` in a file next to it."""
    place.mkdir(parents=True, exist_ok=True)
    if kind == "tmpfs":
        _mount("-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(place))
    else:
        image = place.with_name(f"{place.name}.img")
        with image.open("wb") as stream:
            stream.truncate(mib * MIB)
        _run("mkfs.ext4", "-q", "-m", "0", str(image))
        _mount("-o", "loop", str(image), str(place))
    with _unmounted(place):
        yield place


@contextlib.contextmanager
def restricted(place: Path, to: str) -> Iterator[None]:
    """Restrict a folder also for root: nobody can write in it (``ro``), or start a program (``noexec``)."""
    _mount("--bind", str(place), str(place))
    with _unmounted(place):
        _run("mount", "-o", f"remount,bind,{to}", str(place))
        yield


@contextlib.contextmanager
def _unmounted(place: Path) -> Iterator[None]:
    try:
        yield
    finally:
        _run("umount", "--lazy", str(place))  # whatever is still open there


def crowd(path: Path, room_bytes: int) -> None:
    """Add blank lines to a file until its last block has room for so many bytes."""
    missing = -(path.stat().st_size + room_bytes) % BLOCK_BYTES
    with path.open("ab") as stream:
        stream.write(b"\n" * missing)


def _mount(*words: str) -> None:
    try:
        _run("mount", *words)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("root alone can mount a disk of its own, where the kernel permits it")


def _run(*argv: str) -> None:
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    subprocess.run(argv, check=True, capture_output=True, text=True, env={**os.environ, "PATH": path})


if __name__ == "__main__":
    crowd(Path(sys.argv[1]), 100)
