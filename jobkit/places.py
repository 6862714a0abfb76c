"""Where jobkit keeps what outlives a run: texts and models, under one cache folder."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

CACHE_VARIABLE = "JOBKIT_CACHE"
LEDGER_VARIABLE = "JOBKIT_LEDGER"


def cache_dir() -> Path:
    """Return the cache folder: ``$JOBKIT_CACHE``, else the user's cache folder.

    Jobs read texts and models from it, so on a cluster it must be seen from the nodes.
    """
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named).expanduser().absolute() if named else Path(platformdirs.user_cache_path("jobkit"))


def ledger_path() -> Path:
    """Return the user's ledger of predictions: ``$JOBKIT_LEDGER``, else in the user's data folder."""
    named = os.environ.get(LEDGER_VARIABLE)
    return (
        Path(named).expanduser().absolute()
        if named
        else Path(platformdirs.user_data_path("jobkit")) / "ledger.jsonl"
    )
