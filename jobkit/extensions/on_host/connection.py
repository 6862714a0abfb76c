"""The connection to a cluster: the user's own ``ssh``, one login for many commands.

Sources: ssh(1), ssh_config(5) (ControlMaster, ControlPath, ControlPersist) of OpenSSH 9.2.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from jobkit.core import shell
from jobkit.core.errors import JobkitError, UnknownError
from jobkit.core.files import exclusive_lock
from jobkit.core.frozen import frozen
from jobkit.core.host import SERVE
from jobkit.core.terminal import note, shell_quote
from jobkit.extensions.on_host.protocol import ABSENT, NO_RSYNC, READY

ANSWER_S = 15
"""How long ssh may take to answer about a connection, and a login shell to go on with a line."""
MOST_PATH = 60
"""Characters of the folder of the control sockets: ssh adds 58, and a socket has at most 108 (unix(7))."""
QUIET = ("-a", "-x", "-oClearAllForwardings=yes", "-oRemoteCommand=none", "-oPermitLocalCommand=no")
"""No agent, no display, no forwarded port, and no command of the user's configuration."""
VENV = "$HOME/.local/share/jobkit/venv"
"""The environment that `jobkit --on HOST init` makes, as a shell on the cluster spells it."""

# No quote, backslash, exclamation mark or newline: bash, tcsh and fish read it alike between single quotes.
_AS_AT_LOGIN = (
    'case "$SHELL" in */bash|*/zsh|*/ksh) exec "$SHELL" -lc "$0" ;; '
    '*/sh|*/dash) exec sh -lc "$0" ;; *) exec sh -c "$0" ;; esac'
)
"""csh and fish read their start files for every command; the others only some of them."""
RUN_JOBKIT = (
    f"echo {READY}; "
    f'for p in "{VENV}/bin/jobkit" "$(command -v jobkit)"; do [ -x "$p" ] && exec "$p" {SERVE}; done; '
    f"echo {ABSENT}"
)
"""Starts the jobkit there, which reads a request."""
RUN_RSYNC = f"command -v rsync >/dev/null || {{ echo {NO_RSYNC}; exit 127; }}; echo {READY}; exec rsync"
RUN_TAR = f'echo {READY}; IFS= read -r folder; cd "$folder" && exec tar'
"""Runs tar in the folder that standard input names in a line."""


@frozen
class Connection:
    """An open connection to a host."""

    host: str  # as ssh knows it
    # the options that find its control socket; none for that of the user's configuration
    control: tuple[str, ...]

    def argv(self, script: str, *words: str) -> list[str]:
        """Return the command that runs a script there, such as `RUN_JOBKIT`.

        ``words``: what follows the script, without a character that a shell reads.
        """
        options = (*self.control, *QUIET, "-T", "-oControlMaster=no", "-oBatchMode=yes")
        whole = " ".join((script, *words))
        return ["ssh", *options, "--", self.host, f"sh -c '{_AS_AT_LOGIN}' '{whole}'"]


@contextlib.contextmanager
def waiting(what: str) -> Iterator[Callable[[], None]]:
    """Print on what this block waits if it takes long; yields what ends the wait before the block does."""
    # A wait that is longer says on what it waits
    timer = threading.Timer(5.0, note, (f"waiting for {what}",))
    timer.start()
    try:
        yield timer.cancel
    finally:
        timer.cancel()


def connect(host: str) -> Connection:
    """Return the connection to a host; log in if there is none.

    ssh asks on the terminal for what it needs.
    """
    if host.startswith("-") or not host:
        raise JobkitError(f"--on {host}: not the name of a host", hint="a name that `ssh NAME` knows")
    if not shutil.which("ssh"):
        hint = "install OpenSSH's client: apt install openssh-client"
        raise JobkitError("no ssh on this machine", hint=hint)
    folder = _socket_folder()
    ours = Connection(host, ("-S", str(folder / "%C")))
    with exclusive_lock(folder / "login.lock", lambda: note("waiting for another jobkit that logs in")):
        with waiting(f"the ssh connection to {host} that is open"):
            if _is_open(ours):
                return ours
            theirs = Connection(host, ())
            configured = _configuration(theirs)
            if configured.get("controlpath", "none") != "none" and _is_open(theirs):
                # only ssh here has answered: the other end may be gone, as after a sleep
                probe = shell.run((*theirs.argv("")[:-1], "true"), timeout_s=ANSWER_S)
                if probe.status != shell.NO_ANSWER:
                    return theirs
                note(f"{host}: your ssh connection does not answer; ssh -O exit {shell_quote(host)} ends it")
        note(f"logging in to {host}")
        if socket := _configuration(ours).get("controlpath"):
            Path(socket).unlink(missing_ok=True)  # of a connection that was killed
        theirs_s = configured.get("controlpersist", "no")
        # How long it stays open without a command, unless the user's configuration names a time
        persist = f"-oControlPersist={3600 if theirs_s == 'no' else theirs_s}"
        options = ("-M", "-f", "-N", persist, "-oServerAliveInterval=15")
        status = shell.attach(["ssh", *ours.control, *options, *QUIET, "--", host], dict(os.environ))
    if status < 0:
        raise KeyboardInterrupt
    if status:
        raise UnknownError(
            f"{host}: ssh made no connection (status {status}); its reason is above",
            hint=f"ssh {shell_quote(host)} must work first",
        )
    return ours


def _is_open(connection: Connection) -> bool:
    argv = ["ssh", *connection.control, "-O", "check", "--", connection.host]
    return shell.run(argv, timeout_s=ANSWER_S).ok


def _configuration(connection: Connection) -> dict[str, str]:
    """Return how ssh would connect: each key of ssh_config(5) in lower case, and its value."""
    answer = shell.run(["ssh", *connection.control, "-G", "--", connection.host], timeout_s=ANSWER_S)
    pairs = (line.partition(" ") for line in answer.stdout.splitlines())
    return {key: value for key, _, value in pairs}


def _socket_folder() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    folder = Path(runtime) / "jobkit"
    if not runtime or "%" in runtime or len(str(folder)) > MOST_PATH or not Path(runtime).is_dir():
        folder = Path(tempfile.gettempdir()) / f"jobkit-{os.getuid()}"
        if len(str(folder)) > MOST_PATH:
            folder = Path("/tmp") / folder.name  # noqa: S108 - its owner and mode are checked below
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise JobkitError(
            f"{folder}: others can read this folder, or it is not yours",
            hint=f"ls -ld {folder}; remove it, or set XDG_RUNTIME_DIR to a folder of your own",
        )
    return folder
