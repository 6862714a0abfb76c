"""Answers of a scheduler, shared for a few seconds between all who watch on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from jobkit.core.locks import only_one
from jobkit.core.places import cache_dir
from jobkit.core.shell import Completed

FOLDER = "answers"


def recently(argv: tuple[str, ...], ask: Callable[[], Completed], max_age_s: float) -> Completed:
    """Return a command's answer, the one that somebody got a moment ago where that is young enough.

    Two terminals that watch the same run then cost the controller one call, not two.

    Parameters
    ----------
    argv
        The command.
    ask
        Runs it.
    max_age_s
        How old an answer may be; 0 asks anew, always.
    """
    if max_age_s <= 0:
        return ask()
    path = cache_dir() / FOLDER / f"{_key(argv)}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with only_one(path.with_suffix(".lock"), lambda: None):
            return _young(path, argv, max_age_s) or _kept(path, ask())
    except OSError:  # no place to keep it: everybody asks for himself
        return ask()


def _key(argv: tuple[str, ...]) -> str:
    """Return a name for who is asked what: a home may be seen from two clusters, with the same job ids."""
    cluster = {name: value for name, value in os.environ.items() if name.startswith(("SLURM_", "SGE_"))}
    asked = [platform.node(), shutil.which(argv[0]), sorted(cluster.items()), argv]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def _young(path: Path, argv: tuple[str, ...], max_age_s: float) -> Completed | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        if 0 <= time.time() - path.stat().st_mtime < max_age_s:
            data = json.loads(path.read_text(encoding="utf-8"))
            return Completed(argv, int(data["status"]), str(data["stdout"]), str(data["stderr"]))
    return None


def _kept(path: Path, answer: Completed) -> Completed:
    data = {"status": answer.status, "stdout": answer.stdout, "stderr": answer.stderr}
    path.write_text(json.dumps(data), encoding="utf-8")
    return answer
