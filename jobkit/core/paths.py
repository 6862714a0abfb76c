"""Where jobkit keeps and finds things: cache, configuration, ledger, shipped folders."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from jobkit.core.errors import JobkitError


def shipped_folder(name: str) -> Path:
    """Return the folder ``templates``, ``sweeps`` or ``docs``.

    The checkout is looked at first: an editable install leaves a copy inside the package that
    grows stale (seen with hatchling's force-include).

    Raises
    ------
    JobkitError
        Where the installation is incomplete.
    """
    package = Path(__file__).resolve().parents[1]
    checkout = package.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / name).is_dir():
        return checkout / name
    if (inside := package / "shipped" / name).is_dir():
        return inside
    raise JobkitError(f"{name}/ is missing from this installation", hint="reinstall jobkit")


CACHE_VARIABLE = "JOBKIT_CACHE"
LEDGER_VARIABLE = "JOBKIT_LEDGER"
GROUP_FILE = stat.S_IRGRP | stat.S_IWGRP


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


def make_folder(folder: Path) -> Path:
    """Return a folder of the cache, made with its parents where it is missing."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        share_with_group(folder)
    return folder


def share_with_group(path: Path) -> None:
    """Give a file or folder of the cache, and all in it, the permissions that its folder asks for.

    The umask decides, unless a folder has the set-group-ID bit: a cache that a group shares. Then the
    group may do with what lies there what it may do with the folder.
    """
    asked = path.parent.stat().st_mode
    if asked & stat.S_ISGID:
        for one in (path, *path.rglob("*")):
            wanted = stat.S_ISGID | asked & stat.S_IRWXG if one.is_dir() else asked & GROUP_FILE
            with contextlib.suppress(PermissionError):  # another user's, who has done the same
                one.chmod(one.stat().st_mode | wanted)


@contextmanager
def cache_write_errors(path: Path) -> Iterator[None]:
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
