"""Which machine runs a command: this one, or a host behind ssh, on which another jobkit serves it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.files import MOST_BYTES, read_text
from jobkit.core.paths import config_folder

PROTOCOL = 1
"""Of the two sides; raised by a change that an older one would not understand."""
SERVE = "--serve"
"""The only word of the command line with which a jobkit on the host reads a request."""
HERE = "here"
"""In place of a host: this machine."""
_HOST = re.compile(r"""(["']?)on\1[ \t]*:[ \t]+(["']?)([\w.@:/~+-]+)\2[ \t]*(?:#.*)?""")
_PASS = re.compile(r"^pass_variables:(.*(?:\n(?:[ \t#-].*)?)*)", re.MULTILINE)
"""A list on a line, or on several."""


def own_site() -> tuple[Path, list[str]]:
    """Return the user's own site file and its lines, without PyYAML, which takes long to import."""
    path = config_folder() / "site.yaml"
    try:
        return path, read_text(path, MOST_BYTES).splitlines()
    except OSError:
        return path, []


def passed_variables() -> list[str]:
    """Return ``pass_variables`` of the user's site file: see `query_environment`."""
    listed = _PASS.search("\n".join(own_site()[1]))
    return re.findall(r"\w+", re.sub("#.*", "", listed[1])) if listed else []


@dataclass(slots=True)
class Served:
    """The request of a laptop that this process serves.

    Attributes
    ----------
    note
        The file that gets the run folder before anything is submitted; ``None`` without a request.
    begun
        The run folder that the same request has begun before; ``None`` if none.
    sent
        The SHA-256 of files that the laptop has sent, by absolute path.
    """

    note: Path | None = None
    begun: Path | None = None
    sent: Mapping[str, str] = field(default_factory=dict)


served = Served()


def note_begun(run_dir: Path) -> None:
    """Note with the request that a run begins, so that the same request goes on with it.

    Raises
    ------
    OSError
        If it cannot be noted: then nothing may be submitted.
    """
    from jobkit.core.files import append_line

    if served.note:
        append_line(served.note, str(run_dir.absolute()))


def refuse_other(path: Path, content: bytes) -> None:
    """Refuse a file that is no longer the one that the laptop has sent.

    Raises
    ------
    JobkitError
        If another laptop has sent its own.
    """
    sent = served.sent.get(str(path.absolute()))
    if sent and hashlib.sha256(content).hexdigest() != sent:
        raise other_file(path)


def other_file(path: Path) -> JobkitError:
    """Return that a file is not the one that the laptop has sent."""
    return JobkitError(
        f"{path}: another machine, or another terminal, has just sent another file of this name",
        hint="type the same command again; two who work at a time take a folder each: --on HOST:FOLDER",
    )


def usual_host() -> str:
    """Return the ``on`` of the user's site file; empty without one.

    Raises
    ------
    JobkitError
        If the line is not ``on: HOST``.
    """
    site, lines = own_site()
    for number, line in enumerate(lines, 1):
        if re.match(r"[\"']?on\b", line):
            if named := _HOST.fullmatch(line):
                return named[3]
            raise JobkitError(f"{site}:{number}: {line!r} names no host", hint="write: on: HOST")
    return ""
