"""Where a practice cluster lies: its folder, and the ports that it was given."""

from __future__ import annotations

import getpass
import json
import os
import random
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from jobkit.core.errors import JobkitError
from jobkit.core.files import read_text, write_atomically
from jobkit.core.shell import Completed, run
from jobkit.core.terminal import shell_quote
from jobkit.practice.packages import search_path
from jobkit.schedulers.registry import by_name, query_environment

SCHEDULERS = "slurm", "sge"
PORTS = 6  # more than either scheduler listens on
FIRST_PORT, LAST_PORT = 15000, 32000
"""Below the ports that Linux gives to outgoing connections (ip(7), ip_local_port_range)."""
LONGEST_FOLDER = 85  # the path of a socket holds 107 bytes (unix(7)), a name included
STATE_FILE = "practice.json"
FOLDERS = ("run", "log", "tmp")


@dataclass(frozen=True)
class Place:
    scheduler: str  # ``slurm`` or ``sge``
    folder: Path  # all its files, below the folder that ``--dir`` names
    ports: tuple[int, ...]  # ports of this machine that only this cluster uses

    @property
    def variables(self) -> dict[str, str]:
        if self.scheduler == "slurm":
            return {"SLURM_CONF": str(self.folder / "slurm.conf")}
        ports = {"SGE_QMASTER_PORT": str(self.ports[0]), "SGE_EXECD_PORT": str(self.ports[1])}
        return {"SGE_ROOT": str(self.folder), "SGE_CELL": "default", **ports}

    def ask(self, *argv: str, timeout_s: float = 60.0) -> Completed:
        environment = {**query_environment(by_name(self.scheduler)), **self.variables, "PATH": search_path()}
        return run(argv, env=environment, timeout_s=timeout_s)


def default_folder() -> Path:
    """Return ``$JOBKIT_PRACTICE``, else ``practice`` in the user's state folder."""
    named = os.environ.get("JOBKIT_PRACTICE")
    return Path(named) if named else platformdirs.user_state_path("jobkit") / "practice"


def typed(folder: Path) -> str:
    """Return the option that names a folder; empty for the one that commands use without it."""
    return "" if folder == default_folder().absolute() else f" --dir {shell_quote(folder)}"


def found(folder: Path, scheduler: str) -> Place | None:
    """Return the cluster that was once started in a folder, up or not."""
    below = folder.absolute() / scheduler
    try:
        ports = json.loads(read_text(below / STATE_FILE))["ports"]
        return Place(scheduler, below, tuple(int(port) for port in ports))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise JobkitError(
            f"{below / STATE_FILE}: damaged", hint="end what runs there, then remove that folder"
        ) from None


def make(folder: Path, scheduler: str) -> Place:
    """Return the cluster of a folder; a new one gets free ports."""
    if (place := found(folder, scheduler)) is not None:
        return place
    below = folder.absolute() / scheduler
    if len(os.fsencode(below)) > LONGEST_FOLDER or any(char.isspace() for char in str(below)):
        raise JobkitError(
            f"{below}: sockets and the files of a scheduler need a path of at most {LONGEST_FOLDER} bytes,"
            " without blanks",
            hint="name another folder, such as --dir /tmp/practice-$USER",
        )
    if below.is_dir() and any(below.iterdir()):
        raise JobkitError(
            f"{below}: not empty, and no practice cluster", hint="name another folder with --dir"
        )
    place = Place(scheduler, below, free_ports())
    for name in FOLDERS:
        (below / name).mkdir(parents=True, exist_ok=True)
    write_atomically(below / STATE_FILE, json.dumps({"ports": place.ports}) + "\n")
    return place


def start_over(place: Place) -> None:
    """Remove what an interrupted start left of a configuration."""
    for path in place.folder.iterdir():
        if path.name not in {STATE_FILE, *FOLDERS}:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def user() -> str:
    try:
        return getpass.getuser() if os.geteuid() else "root"
    except (KeyError, OSError):
        raise JobkitError(
            f"the user id {os.geteuid()} has no name on this machine, and a scheduler needs one",
            hint="add the user to /etc/passwd, or run as one that is there",
        ) from None


def free_ports() -> tuple[int, ...]:
    """Return ports in a row that are free now, at random: two clusters hardly choose the same."""
    while True:
        first = random.randrange(FIRST_PORT, LAST_PORT, PORTS)  # noqa: S311 - no secret
        ports = tuple(range(first, first + PORTS))
        if all(map(_is_free, ports)):
            return ports


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("", port))
        except OSError:
            return False
        return True
