"""Whether a run folder is where its job script works: a copy is not, nor one that was moved."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.record_files import read_text
from jobkit.core.records import POINTS_FILE
from jobkit.core.typed import typed
from jobkit.planning.render import script_name

_RUN = re.compile(r"^run=(.+)$", re.MULTILINE)
"""The line of a job script that names its run folder."""


def check_place(run_dir: Path) -> None:
    """See that a run folder is where its job script works, before anything is written there.

    Raises
    ------
    JobkitError
        Where it is a copy, or was moved: its points would run elsewhere, or not at all.
    """
    script = run_dir / script_name(1)
    try:
        text = read_text(script)
    except OSError as error:
        hint = "what is there is read by jobkit collect; to run its points again make a new sweep"
        raise JobkitError(f"{script}: {error.strerror}: nothing can run without it", hint=hint) from error
    found = _RUN.search(text)
    words = shlex.split(found[1]) if found else []
    there = Path(words[0]) if words else run_dir
    if there.resolve() == run_dir.resolve():
        return
    what = "a copy of it" if (there / POINTS_FILE).is_file() else "a folder that was moved"
    hint = (
        f"name {typed(there)}"
        if what.startswith("a copy")
        else f"move it back: mv {typed(run_dir)} {typed(there)}"
    )
    raise JobkitError(f"{run_dir}: its {script.name} works in {there}, so this is {what}", hint=hint)
