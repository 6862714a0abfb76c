"""The remote shell of rsync (``rsync -e``): ssh, without what a login shell prints before rsync begins.

rsync takes such a line for its own protocol ("is your shell clean?", rsync(1), DIAGNOSTICS).
"""

from __future__ import annotations

import json
import os
import re
import sys
from io import BufferedReader
from pathlib import Path
from typing import cast

from jobkit.core import shell
from jobkit.extensions.on_host.connection import RUN_RSYNC, Connection
from jobkit.extensions.on_host.protocol import NO_RSYNC, READY

SSH_VARIABLE = "JOBKIT_ON_SSH"
"""The variable with the host and the options that find its connection, as a list in JSON."""
NOTE_VARIABLE = "JOBKIT_ON_NOTE"
"""The variable with the file that gets `NO_RSYNC`: rsync itself may end before it knows this status."""


def main(arguments: list[str]) -> int:
    """Run rsync on the cluster, with standard input and output as they are.

    ``arguments``: the host, which is not used, then ``rsync`` and its arguments.
    """
    words = arguments[2:]
    # What no shell reads as more than itself: with rsync's option `-s` all arguments are such
    if odd := [word for word in words if not re.fullmatch(r"[A-Za-z0-9.,=_/-]+", word)]:
        sys.stderr.write(f"jobkit: rsync's argument {odd[0]!r} is not plain\n")
        return 1
    host, *control = json.loads(os.environ[SSH_VARIABLE])
    argv = Connection(host, tuple(control)).argv(RUN_RSYNC, *words)
    process = shell.open_pipes(argv, own_input=True)
    stream = cast("BufferedReader", process.stdout)
    for line in stream:
        if line.rstrip().endswith(NO_RSYNC.encode()):
            Path(os.environ[NOTE_VARIABLE]).write_text(NO_RSYNC)
            return shell.NOT_FOUND
        if line.rstrip().endswith(READY.encode()):
            break
    while data := stream.read1(1 << 16):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
