"""A laptop: a home, an ssh that knows a cluster by several names, and no scheduler."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.bare_path import link_programs
from tests.support.commands import EMPTY, JOBKIT

PROGRAMS = "rsync", "scp", "sftp", "ssh-add", "ssh-agent", "ssh-keygen"
"""What this laptop has besides the programs of a bare machine."""
SSH = """\
#!/bin/sh
exec /usr/bin/ssh -F {config} "$@"
"""
"""ssh looks for its configuration in the home that the system knows, whatever HOME says."""
SERVERS = {"cluster": "key", "cluster-password": "password", "cluster-code": "code", "jump": "jump"}
"""By the name that ssh knows, the server; ``cluster-jump`` is reached over the jump host."""
ENTRY = """\
Host {name}
    HostName 127.0.0.1
    Port {port}
"""
ALL = """\
    ProxyJump jump
Host *
    User {user}
    IdentityFile {folder}/id_ed25519
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile none
"""
DEADLINE_S = 240
Answers = Mapping[str, str | Callable[[], str]]
"""By the pattern of a question, the line that is typed, with \\1 for its first group, or what returns it."""


@dataclass
class Typed:
    """What a terminal showed, and the patterns of the questions that were answered, in order."""

    returncode: int
    screen: str
    asked: list[str]


@dataclass(frozen=True)
class Laptop:
    """A computer of somebody who logs in to a cluster; all its files are in a folder."""

    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def config(self) -> Path:
        return self.home / ".ssh" / "config"

    @property
    def key(self) -> Path:
        return self.home / ".ssh" / "id_ed25519"

    @property
    def programs(self) -> Path:
        """The only folder on PATH: remove a link, and the laptop lacks the program."""
        return self.folder / "bin"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a new terminal."""
        folders = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state", "CACHE": ".cache"}
        return {
            "HOME": str(self.home),
            "PATH": str(self.programs),
            "PYTHONPATH": str(self.folder / "python"),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "COLUMNS": "140",
            "PIP_NO_BUILD_ISOLATION": "0",  # that is, none: what builds the wheel is installed here
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            **{f"XDG_{name}_HOME": str(self.home / below) for name, below in folders.items()},
        }

    def make(self, pip: list[str]) -> None:
        """Make its folders, programs and key; ``pip`` are the lines of pip's configuration."""
        for folder in (
            self.folder,
            self.config.parent,
            self.folder / "python",
            self.folder / "run",
            self.home / ".config" / "pip",
        ):
            folder.mkdir(mode=0o700, parents=True)
        (self.home / ".config" / "pip" / "pip.conf").write_text("\n".join(pip), encoding="utf-8")
        keygen = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "laptop", "-f", self.key)
        subprocess.run(keygen, check=True, timeout=60)
        link_programs(self.programs)
        ssh = self.programs / "ssh"
        ssh.write_text(SSH.format(config=self.config), encoding="utf-8")
        ssh.chmod(0o755)

    def reset(self, user: str, ports: Mapping[str, int], keys: Mapping[str, str]) -> None:
        """Write the configuration of ssh for a user of servers with these ports and keys; link programs."""
        lines = [f"[127.0.0.1]:{ports[server]} {key.strip()}\n" for server, key in keys.items()]
        (self.home / ".ssh" / "known_hosts").write_text("".join(lines), encoding="utf-8")
        names = {**SERVERS, "cluster-jump": "key"}
        entries = [ENTRY.format(name=name, port=ports[server]) for name, server in names.items()]
        entries.append(ALL.format(user=user, folder=self.config.parent))
        self.config.write_text("".join(entries), encoding="utf-8")
        (self.folder / "python" / "sitecustomize.py").unlink(missing_ok=True)
        for program in (JOBKIT, *PROGRAMS):
            link = self.programs / Path(program).name
            link.unlink(missing_ok=True)
            link.symlink_to(Path("/usr/bin") / program)

    def run(self, *argv: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command without a terminal: nothing can be asked."""
        with self.start(*argv, cwd=cwd) as process:
            try:
                out, err = process.communicate(timeout=DEADLINE_S)
            finally:
                process.kill()
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def start(self, *argv: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
        """Start a command without a terminal; its output goes to pipes."""
        return subprocess.Popen(
            self._found(argv),
            cwd=cwd or self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def type(self, *argv: str | Path, answers: Answers = EMPTY, cwd: Path | None = None) -> Typed:
        """Run a command on a terminal of its own, and type the answers to what it asks."""
        return on_terminal(self._found(argv), answers, cwd=cwd or self.home, env=self.environment)

    def _found(self, argv: tuple[str | Path, ...]) -> list[str]:
        """Return a command with the program of this PATH."""
        name, *rest = map(str, argv)
        return [name if "/" in name else str(self.programs / name), *rest]


def on_terminal(argv: Sequence[str], answers: Answers, *, cwd: Path, env: Mapping[str, str]) -> Typed:
    """Run a command on a terminal of its own, and type the answers to what it asks.

    It returns when the command has ended: a connection that stays may keep the terminal open.
    """
    terminal, its = pty.openpty()
    asked, shown, read_to, end = list[str](), b"", 0, time.monotonic() + DEADLINE_S
    # setsid: the terminal is that of the command, and ssh asks there
    process = subprocess.Popen(
        ("/usr/bin/setsid", "--ctty", *argv), stdin=its, stdout=its, stderr=its, cwd=cwd, env=env
    )
    os.close(its)
    try:
        while select.select([terminal], [], [], 0.05)[0] or process.poll() is None:
            if select.select([terminal], [], [], 0)[0]:
                try:
                    shown += os.read(terminal, 65536)
                except OSError:  # no process has the terminal open
                    process.wait(DEADLINE_S)
                    break
            text = shown.decode(errors="replace")
            if time.monotonic() > end:
                raise TimeoutError(text)
            for pattern, answer in answers.items():
                if found := re.compile(pattern).search(text, read_to):
                    read_to = found.end()
                    asked.append(pattern)
                    line = found.expand(answer) if isinstance(answer, str) else answer()
                    os.write(terminal, f"{line}\n".encode())
                    break
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    return Typed(process.returncode, shown.decode(errors="replace").replace("\r\n", "\n"), asked)
