"""Which machine runs a command: this one, or a host behind ssh, on which another jobkit serves it."""

from __future__ import annotations

import re
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.extensions import load_all
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
        return path, path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return path, []


def passed_variables() -> list[str]:
    """Return ``pass_variables`` of the user's site file: see `query_environment`."""
    listed = _PASS.search("\n".join(own_site()[1]))
    return re.findall(r"\w+", re.sub("#.*", "", listed[1])) if listed else []


def note_begun(run_dir: Path) -> None:
    """Note with the request of a laptop that a run begins, so that the same request goes on with it.

    Raises
    ------
    JobkitError
        If another laptop has sent other files since.
    OSError
        If it cannot be noted: then nothing may be submitted.
    """
    for request in load_all("request"):
        request.note_begun(run_dir)


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
