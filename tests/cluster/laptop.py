"""A laptop: a home, an ssh that knows a cluster by several names, and no scheduler."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.bare_path import link_programs
from tests.support.commands import EMPTY, JOBKIT

PROGRAMS = "rsync", "scp", "sftp", "ssh-add", "ssh-agent", "ssh-keygen"
"""What this laptop has besides the programs of a bare machine."""
SSH = """\
#!/bin/sh
printf '%s\\0' "$*" >>{calls}
exec /usr/bin/ssh -F {config} "$@"
"""
"""ssh looks for its configuration in the home that the system knows, whatever HOME says."""
ENTRY = """\
Host {name}
    HostName 127.0.0.1
    Port {port}
"""
ALL = """\
Host *
    User {user}
    IdentityFile {folder}/id_ed25519
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile none
"""
DEADLINE_S = 240
Answers = Mapping[str, str | Callable[[], str]]
"""By the pattern of a question, the line that is typed, or what returns it."""


@dataclass
class Typed:
    """What happened on a terminal.

    Attributes
    ----------
    returncode
        Of the command.
    screen
        What the terminal showed.
    stdout
        What went to a pipe instead, if standard output was one.
    asked
        The patterns of the questions that were answered, in order.
    """

    returncode: int
    screen: str = ""
    stdout: str = ""
    asked: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Laptop:
    """A computer of somebody who logs in to a cluster.

    Attributes
    ----------
    folder
        All its files.
    """

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
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "COLUMNS": "140",
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            **{f"XDG_{name}_HOME": str(self.home / below) for name, below in folders.items()},
        }

    def make(self, pip: list[str]) -> None:
        """Make its folders, programs and key.

        Parameters
        ----------
        pip
            The lines of pip's configuration.
        """
        for folder in (self.folder, self.config.parent, self.folder / "run", self.home / ".config" / "pip"):
            folder.mkdir(mode=0o700, parents=True)
        (self.home / ".config" / "pip" / "pip.conf").write_text("\n".join(pip), encoding="utf-8")
        keygen = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "laptop", "-f", self.key)
        subprocess.run(keygen, check=True, timeout=60)
        link_programs(self.programs)
        ssh = self.programs / "ssh"
        ssh.write_text(SSH.format(calls=self.folder / "calls", config=self.config), encoding="utf-8")
        ssh.chmod(0o755)

    def reset(self, user: str, ports: Mapping[str, int], keys: Mapping[str, str]) -> None:
        """Write the configuration of ssh, and have all programs.

        Parameters
        ----------
        user
            Of the cluster.
        ports
            Of the servers, by name.
        keys
            Their public host keys.
        """
        lines = [f"[127.0.0.1]:{ports[server]} {key.strip()}\n" for server, key in keys.items()]
        (self.home / ".ssh" / "known_hosts").write_text("".join(lines), encoding="utf-8")
        names = {"cluster": "key", "cluster-password": "password", "cluster-code": "code", "jump": "jump"}
        entries = [ENTRY.format(name=name, port=ports[server]) for name, server in names.items()]
        entries.append(ENTRY.format(name="cluster-jump", port=ports["key"]) + "    ProxyJump jump\n")
        entries.append(ALL.format(user=user, folder=self.config.parent))
        self.config.write_text("".join(entries), encoding="utf-8")
        for program in (JOBKIT, *PROGRAMS):
            link = self.programs / Path(program).name
            link.unlink(missing_ok=True)
            link.symlink_to(Path("/usr/bin") / program)

    def calls(self) -> list[str]:
        """Return the arguments of every ssh that was started here."""
        path = self.folder / "calls"
        return path.read_text(encoding="utf-8").split("\0")[:-1] if path.exists() else []

    def run(
        self, *argv: str | Path, cwd: Path | None = None, env: Mapping[str, str] = EMPTY, said: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command without a terminal: nothing can be asked."""
        around = {**self.environment, **env}
        return subprocess.run(
            self._found(argv),
            input=said,
            cwd=cwd or self.home,
            env=around,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
            start_new_session=True,
        )

    def start(
        self, *argv: str | Path, cwd: Path | None = None, env: Mapping[str, str] = EMPTY
    ) -> subprocess.Popen[str]:
        """Start a command without a terminal; its output goes to pipes."""
        return subprocess.Popen(
            self._found(argv),
            cwd=cwd or self.home,
            env={**self.environment, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def type(
        self,
        *argv: str | Path,
        answers: Answers = EMPTY,
        piped: bool = False,
        cwd: Path | None = None,
        env: Mapping[str, str] = EMPTY,
    ) -> Typed:
        """Run a command on a terminal of its own, and answer what it asks.

        Parameters
        ----------
        answers
            What to type at which question.
        piped
            Standard output is a pipe, as in ``command | less``.
        """
        ours, its = pty.openpty()
        # setsid: the terminal is that of the command, and ssh asks there
        process = subprocess.Popen(
            ("/usr/bin/setsid", "--ctty", *self._found(argv)),
            stdin=its,
            stdout=subprocess.PIPE if piped else its,
            stderr=its,
            cwd=cwd or self.home,
            env={**self.environment, **env},
        )
        os.close(its)
        try:
            return _Conversation(process, ours, answers).held()
        finally:
            process.kill()
            process.wait()
            os.close(ours)

    def _found(self, argv: tuple[str | Path, ...]) -> list[str]:
        """Return a command with the program of this PATH."""
        name, *rest = map(str, argv)
        return [name if "/" in name else str(self.programs / name), *rest]


class _Conversation:
    """Reads a terminal until its command ends, and answers."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int, answers: Answers) -> None:
        self.process, self.terminal, self.answers = process, terminal, answers
        self.shown, self.piped, self.asked, self.read_to = b"", b"", list[str](), 0
        self.open = {terminal} | ({process.stdout.fileno()} if process.stdout else set())

    def held(self) -> Typed:
        end = time.monotonic() + DEADLINE_S
        while self._read() or self.process.poll() is None:
            if time.monotonic() > end:
                raise TimeoutError(self._screen())
        if self.process.stdout:
            self.process.stdout.close()
        return Typed(self.process.returncode, self._screen(), self.piped.decode(errors="replace"), self.asked)

    def _screen(self) -> str:
        return self.shown.decode(errors="replace").replace("\r\n", "\n")

    def _read(self) -> bool:
        """Read what is there; return whether it was anything."""
        if not self.open:
            self.process.wait(DEADLINE_S)
            return False
        ready, _, _ = select.select([*self.open], [], [], 0.05)
        for file in ready:
            try:
                data = os.read(file, 65536)
            except OSError:  # nobody has the terminal open
                data = b""
            if not data:
                self.open.discard(file)
            elif file == self.terminal:
                self.shown += data
                self._answer()
            else:
                self.piped += data
        return bool(ready)

    def _answer(self) -> None:
        text = self.shown.decode(errors="replace")
        for pattern, answer in self.answers.items():
            if found := re.compile(pattern).search(text, self.read_to):
                self.read_to = found.end()
                self.asked.append(pattern)
                line = answer if isinstance(answer, str) else answer()
                os.write(self.terminal, f"{line}\n".encode())
                return
