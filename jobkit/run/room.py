"""Room on scratch set aside for a try's record, should scratch be full by then. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path

ROOM_BYTES = 64 * 2**10
"""More than any record takes: some KiB, and the environment that it keeps."""
_FILE = "room.part"


def set_aside(out: Path) -> None:
    """Take room for a record.

    Raises
    ------
    OSError
        ``ENOSPC`` or ``EDQUOT`` where there is none.
    """
    with (out / _FILE).open("wb") as stream:
        stream.write(b" " * ROOM_BYTES)
        stream.flush()
        os.fsync(stream.fileno())  # a file system over the network may say only now that it is full


def give_back(out: Path) -> None:
    """Leave the room to the record."""
    (out / _FILE).unlink(missing_ok=True)
