"""Where jobkit keeps what outlives a run: texts and models under one cache folder, and what is the user's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from jobkit.errors import JobkitError

CACHE_VARIABLE = "JOBKIT_CACHE"
LEDGER_VARIABLE = "JOBKIT_LEDGER"


def cache_dir() -> Path:
    """Return the cache folder: ``$JOBKIT_CACHE``, else the user's cache folder.

    Jobs read texts and models from it, so on a cluster it must be seen from the nodes.
    """
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named).expanduser().absolute() if named else Path(platformdirs.user_cache_path("jobkit"))


def config_folder() -> Path:
    """Return the user's own folder for sites and templates: ``$JOBKIT_CONFIG`` or ``~/.config/jobkit``."""
    named = os.environ.get("JOBKIT_CONFIG")
    return Path(named).expanduser().absolute() if named else Path(platformdirs.user_config_path("jobkit"))


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name what lies in the cache folder, and how to move that, where it cannot be written.

    Raises
    ------
    JobkitError
        For any OSError inside the block.
    """
    try:
        yield
    except OSError as error:
        raise JobkitError(
            f"{path}: cannot be written: {error.strerror or error}",
            hint=f"it belongs to jobkit's cache: name a folder of yours by {CACHE_VARIABLE}=FOLDER",
        ) from error


def ledger_path() -> Path:
    """Return the user's ledger of predictions: ``$JOBKIT_LEDGER``, else in the user's data folder."""
    named = os.environ.get(LEDGER_VARIABLE)
    return (
        Path(named).expanduser().absolute()
        if named
        else Path(platformdirs.user_data_path("jobkit")) / "ledger.jsonl"
    )
