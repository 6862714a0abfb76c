"""Which machine runs a command: this one, or a host behind ssh, on which another jobkit serves it."""

from __future__ import annotations

import re
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.extensions import each
from jobkit.core.files import MOST_BYTES, read_text
from jobkit.core.paths import config_folder

PROTOCOL = 1
"""Version of the requests between both machines; raised by a change that older jobkits do not understand."""
SERVE = "--serve"
"""The only word of the command line if jobkit reads a request on the host."""
CALL = "--call"
"""The first word if Python on a laptop calls `jobkit.handle.answer` on the host: its arguments follow."""
HERE = "here"


def own_site() -> tuple[Path, list[str]]:
    """Return the user's own site file and its lines, without PyYAML, whose import takes long."""
    path = config_folder() / "site.yaml"
    try:
        return path, read_text(path, MOST_BYTES).splitlines()
    except (OSError, JobkitError):  # missing or not readable: `load_site` reports what is wrong
        return path, []


def passed_variables() -> list[str]:
    """Return ``pass_variables`` of the user's site file: see `query_environment`."""
    listed = re.search(r"^pass_variables:(.*(?:\n(?:[ \t#-].*)?)*)", "\n".join(own_site()[1]), re.MULTILINE)
    return re.findall(r"\w+", re.sub("#.*", "", listed[1])) if listed else []


def note_begun(run_dir: Path) -> None:
    """Note with a laptop's request which run it began: if the request is sent again, that run goes on."""
    for request in each(lambda one: one.request):
        request.note_begun(run_dir)


def usual_host() -> str:
    """Return the ``on`` of the user's site file; empty without one."""
    site, lines = own_site()
    for number, line in enumerate(lines, 1):
        if re.match(r"[\"']?on\b", line):
            key = r"""(["']?)on\1[ \t]*:[ \t]+(["']?)([\w.@:/~+-]+)\2[ \t]*(?:#.*)?"""
            if named := re.fullmatch(key, line):
                return named[3]
            raise JobkitError(f"{site}:{number}: {line!r} names no host", hint="write: on: HOST")
    return ""
