"""Which machine runs a command, if the command line does not say so."""

from __future__ import annotations

import re

from jobkit.core.paths import config_folder

HERE = "here"
"""In place of a host: this machine."""


def usual_host() -> str:
    """Return the ``on`` of the user's site file; empty without one."""
    try:
        text = (config_folder() / "site.yaml").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    named = re.search(
        r"^on:[ \t]+[\"']?([^\s\"'#]+)", text, re.MULTILINE
    )  # without PyYAML, which takes longer
    return named[1] if named else ""
