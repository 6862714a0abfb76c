"""The places of jobkit's own files: cache, configuration, ledger, shipped folders."""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from jobkit.core.errors import JobkitError
from jobkit.core.files import exclusive_lock


def user_name() -> str:
    """Return the name of this process's user, whatever USER says; it counts only if the uid has no name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return getpass.getuser()


def is_user(name: str) -> bool:
    """Return whether the system knows a user by name; each number may be one."""
    try:
        return name.isdecimal() or name == user_name() or bool(pwd.getpwnam(name))
    except KeyError:
        return False


def shipped_folder(name: str) -> Path:
    """Return the folder ``templates``, ``sweeps`` or ``docs``: of the checkout, else inside the package."""
    package = Path(__file__).resolve().parents[1]
    checkout = package.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / name).is_dir():
        return checkout / name
    if (inside := package / "shipped" / name).is_dir():
        return inside
    raise JobkitError(f"{name}/ is missing from this installation", hint="reinstall jobkit")


CACHE_VARIABLE = "JOBKIT_CACHE"


def cache_dir() -> Path:
    """Return the cache folder: ``$JOBKIT_CACHE``, else the user's cache folder.

    Jobs read texts and models from it, so on a cluster the nodes must see it.
    """
    return _named_by(CACHE_VARIABLE) or platformdirs.user_cache_path("jobkit")


def config_folder() -> Path:
    return _named_by("JOBKIT_CONFIG") or platformdirs.user_config_path("jobkit")


def ledger_path() -> Path:
    """Return the user's ledger of predictions: ``$JOBKIT_LEDGER``, else a file in the user's data folder."""
    return _named_by("JOBKIT_LEDGER") or platformdirs.user_data_path("jobkit") / "ledger.jsonl"


def runs_path() -> Path:
    """Return the list of the user's run folders: ``$JOBKIT_RUNS``, else a file in the user's data folder."""
    return _named_by("JOBKIT_RUNS") or platformdirs.user_data_path("jobkit") / "runs.txt"


def accounting_folder() -> Path:
    """Return the folder of what an accounting has answered: in ``$JOBKIT_STATE``, else the user's state."""
    return (_named_by("JOBKIT_STATE") or platformdirs.user_state_path("jobkit")) / "accounting"


def _named_by(variable: str) -> Path | None:
    name = os.environ.get(variable)
    return Path(name).expanduser().absolute() if name else None


def make_folder(folder: Path) -> Path:
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        share_with_group(folder)
    return folder


def share_with_group(path: Path) -> None:
    """In a folder with the set-group-ID bit, give the group the permissions that it has on that folder."""
    parent_mode = path.parent.stat().st_mode
    if parent_mode & stat.S_ISGID:
        for entry in (path, *path.rglob("*")):
            folder_bits = stat.S_ISGID | parent_mode & stat.S_IRWXG
            bits = folder_bits if entry.is_dir() else parent_mode & (stat.S_IRGRP | stat.S_IWGRP)
            with contextlib.suppress(PermissionError):  # another user's file: that user has done the same
                entry.chmod(entry.stat().st_mode | bits)


@contextmanager
def cache_lock(path: Path, busy: Callable[[], None]) -> Iterator[None]:
    """Hold a lock file of the cache, which the group shares; call ``busy`` before a wait for its holder."""
    with cache_write_errors(path.parent):
        make_folder(path.parent)
        path.touch()
        share_with_group(path)
    with exclusive_lock(path, busy):
        yield


@contextmanager
def cache_write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError inside the block into a message that names the cache and how to move it."""
    try:
        yield
    except OSError as error:
        raise JobkitError(
            f"{path}: cannot be written: {error.strerror or error}",
            hint=f"it belongs to jobkit's cache: set {CACHE_VARIABLE}=FOLDER to a folder of your own",
        ) from error
