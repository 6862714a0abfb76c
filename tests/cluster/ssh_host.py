"""A login node: real OpenSSH servers on loopback, in front of the practice clusters, and a user there.

The user has a name, a home, a login shell and start files of its own. Each server takes one way to log
in; `Laptop` is the other side, whose ssh knows them all by name.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import hashlib
import hmac
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field
from itertools import count
from pathlib import Path

from jobkit.practice import cluster
from jobkit.practice.daemons import Daemon, wait_for
from jobkit.practice.packages import apt_install
from jobkit.practice.place import free_ports
from tests.cluster.laptop import Laptop

SSHD = "/usr/sbin/sshd"
SHELLS = {"bash": "/bin/bash", "tcsh": "/bin/tcsh", "fish": "/usr/bin/fish"}
PACKAGES = {
    "usr/sbin/sshd": "openssh-server",
    "usr/bin/rsync": "rsync",
    "usr/bin/tcsh": "tcsh",
    "usr/bin/fish": "fish",
    "usr/lib/*/security/pam_oath.so": "libpam-oath",
}
"""What a login node needs: a pattern of a file, and the package of Debian that has it."""
METHODS = {"key": "publickey", "password": "password", "code": "keyboard-interactive", "jump": "publickey"}
"""By server, its only way to log in."""
CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {key}
PidFile none
LogLevel VERBOSE
UsePAM {pam}
AllowUsers {user}
AuthenticationMethods {method}
KbdInteractiveAuthentication yes
MaxStartups 100
PrintMotd no
AcceptEnv LANG LC_*
Subsystem sftp /usr/lib/openssh/sftp-server
"""
JUMP_CONFIG = """\
ForceCommand /bin/false
PermitOpen {target}
"""
"""A jump host runs nothing, and leads to one server."""
PAM = """\
auth required pam_oath.so usersfile={codes} window=20 digits=6
account required pam_permit.so
session required pam_permit.so
"""
CUT = """\
#!/usr/bin/python3
# The real program; the first run that finds the file CUT ends the connection that it came by.
import os, signal, subprocess, sys
cut, real = {cut!r}, {real!r}
try:
    os.unlink("" if {{"--test-only", "-w"}} & {{*sys.argv}} else cut)
except FileNotFoundError:
    os.execv(real, [real, *sys.argv[1:]])
sshd, left = os.getppid(), {after}
while not open(f"/proc/{{sshd}}/comm").read().startswith("sshd"):
    sshd = int(open(f"/proc/{{sshd}}/stat").read().rpartition(") ")[2].split()[1])
if left is None:
    subprocess.run([real, *sys.argv[1:]])
else:
    child = subprocess.Popen([real, *sys.argv[1:]], stdin=subprocess.PIPE)
    while left and (data := os.read(0, min(left, 65536))):
        left -= os.write(child.stdin.fileno(), data)
os.kill(sshd, signal.SIGKILL)
"""


@dataclass(frozen=True)
class Counts:
    """What happened at servers: connections, logins that were accepted, and commands or shells begun."""

    connections: int
    logins: int
    sessions: int

    def __sub__(self, before: Counts) -> Counts:
        return Counts(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))


@dataclass(frozen=True)
class Login:
    """How the user logs in."""

    shell: str = "bash"
    banner: str = ""
    """All start files print it: a line, then the same without its end."""
    without: tuple[str, ...] = ()  # programs of /usr/bin that the user's PATH lacks
    variables: dict[str, str] = field(default_factory=dict)
    """As a site sets them: bash has them in login shells only, tcsh and fish always."""


@dataclass
class Server:
    """One sshd on loopback, by a key of `METHODS`; the name of its program is that of the PAM service."""

    name: str
    folder: Path  # that of the host, with run/ and log/
    port: int
    program: str

    def __post_init__(self) -> None:
        servers = self.folder / "servers"
        self.key, self.log, self.config = (servers / f"{self.name}.{end}" for end in ("key", "log", "conf"))
        argv = (self.program, "-D", "-f", str(self.config), "-E", str(self.log))
        self.daemon = Daemon(f"sshd-{self.name}", argv, self.folder, {"PATH": "/usr/bin:/bin"})

    def start(self) -> None:
        """Start it unless it runs, and return when it listens."""
        listens = f"Server listening on 127.0.0.1 port {self.port}."
        before = self.said().count(listens)
        if self.daemon.pid() is None:
            self.daemon.start()
            wait_for(lambda: self.said().count(listens) > before, f"sshd listens; see {self.log}")

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def counts(self) -> Counts:
        log = self.said()
        heads = ("Connection from", r"Accepted \S+ for", "Starting session:")
        return Counts(*(len(re.findall(f"^{head} ", log, re.MULTILINE)) for head in heads))

    def change_key(self) -> None:
        """Start it again with another host key; connections that are open stay."""
        self.daemon.end()
        new_key(self.key)
        self.start()


@dataclass
class SshHost:
    """A login node, all of whose files are in a folder, and its only user."""

    folder: Path
    user: str
    password: str = field(default_factory=lambda: secrets.token_urlsafe(9))

    def __post_init__(self) -> None:
        self.login = Login()
        self._secret, self._used = secrets.token_bytes(20), 0
        self._ports = dict(zip(METHODS, free_ports(), strict=False))
        self._first_keys: dict[str, tuple[bytes, str]] = {}

    @property
    def home(self) -> Path:
        """The user's home."""
        return self.folder / "home"

    @property
    def laptop(self) -> Laptop:
        """The computer of somebody who logs in here."""
        return Laptop(self.folder / "laptop")

    @property
    def servers(self) -> dict[str, Server]:
        """The servers by name; that of codes goes by another name, which is its PAM service."""
        programs = {name: str(self.folder / self.user) if name == "code" else SSHD for name in METHODS}
        return {name: Server(name, self.folder, port, programs[name]) for name, port in self._ports.items()}

    # The user

    def log_in_with(self, shell: str = "bash", *, banner: str = "", without: tuple[str, ...] = ()) -> None:
        """Set the login shell, and what all start files do: see `Login`."""
        self._set(Login(shell, banner, without, self.login.variables))

    def _set(self, login: Login) -> None:
        """Set the login shell, and write the start files of all shells."""
        if login.shell != self.login.shell:
            done("usermod", "--shell", SHELLS[login.shell], self.user)
        self.login = login
        path, site = self._path(login.without), login.variables
        greet = [f"echo '{login.banner}'", f"printf '{login.banner}'"] if login.banner else []
        self._start_file(".bashrc", *set_all("export {}='{}'", path), *greet)
        self._start_file(".profile", *set_all("export {}='{}'", site | path), *greet)
        self._start_file(".cshrc", *set_all("setenv {} '{}'", site | path), *greet)
        fish = {name: value.replace(":", " ") for name, value in path.items()}
        self._start_file(".config/fish/config.fish", *set_all("set -gx {} {}", site | fish), *greet)

    def cut_after(self, program: str, sent: int | None = None) -> None:
        """Let the connection break by which a program is run next on the host, once.

        It breaks when the program was given so many bytes; if not given, when the program has ended,
        and before its user hears of it.
        """
        first, trigger = self.folder / "first", self.home / ".cut"
        real = shutil.which(program, path="/usr/bin:/bin")
        wrapper = first / program
        wrapper.write_text(CUT.format(cut=str(trigger), real=real, after=sent), encoding="utf-8")
        wrapper.chmod(0o755)
        self._own(trigger)
        self._set(self.login)

    def _path(self, without: tuple[str, ...]) -> dict[str, str]:
        """Return the PATH that the start files set, if it is not the usual one."""
        folders = ["/usr/local/bin", "/usr/bin", "/bin"]
        if without:
            rest = self.folder / "rest"
            shutil.rmtree(rest, ignore_errors=True)
            rest.mkdir()
            for program in Path("/usr/bin").iterdir():
                if program.name not in without:
                    (rest / program.name).symlink_to(program)
            folders = [str(rest)]
        if any((self.folder / "first").iterdir()):
            folders.insert(0, str(self.folder / "first"))
        return {} if folders[0] == "/usr/local/bin" else {"PATH": ":".join(folders)}

    def _start_file(self, name: str, *lines: str) -> None:
        self._own(self.home / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def _own(self, path: Path) -> Path:
        """Return the path of a file that the user owns, with its folders below home."""
        made = [folder for folder in path.relative_to(self.home).parents if folder.name]
        for folder in [self.home / part for part in reversed(made)]:
            folder.mkdir(exist_ok=True)
            shutil.chown(folder, self.user, self.user)
        path.touch(0o600)
        shutil.chown(path, self.user, self.user)
        return path

    def pin(self, constraints: Path) -> None:
        """Let pip there take the versions of a file, whose torch may be small."""
        pinned, pip = self.home / constraints.name, self.home / ".config" / "pip" / "pip.conf"
        shutil.copy(constraints, pinned)
        kept = [line for line in pip.read_text().splitlines() if not line.startswith("constraint")]
        pip.write_text("\n".join((*kept, f"constraint = {pinned}", "")))

    def code(self) -> str:
        """Return the next one-time code (HOTP, RFC 4226); the server takes each once."""
        digest = hmac.digest(self._secret, self._used.to_bytes(8), hashlib.sha1)
        self._used += 1
        at = digest[-1] & 15
        return f"{(int.from_bytes(digest[at : at + 4]) & 0x7FFFFFFF) % 10**6:06}"

    # What can be seen, and what can break

    def counts(self, *names: str) -> Counts:
        """Count what happened since the session began at some servers, or at all of them."""
        each = [astuple(self.servers[name].counts()) for name in names or METHODS]
        return Counts(*map(sum, zip(*each, strict=True)))

    def processes(self) -> dict[int, str]:
        """Return the processes of the user, with their command lines."""
        return {pid: line for pid, line in commands(pwd.getpwnam(self.user).pw_uid) if not self._serves(line)}

    def connections(self) -> list[int]:
        """Return the processes of sshd that serve open connections of the user."""
        return [pid for pid, line in commands() if self._serves(line)]

    def _serves(self, line: str) -> bool:
        return bool(re.match(rf"(sshd|{self.user}): {self.user}( |@|$)", line))

    def cut(self) -> None:
        """Break all open connections of the user; what they ran may live on."""

        def none_left() -> bool:
            kill(pids := self.connections())
            return not pids

        wait_for(none_left, "the connections end")

    # Begin and end

    def begin(self) -> None:
        """Make the user, the laptop and the servers."""
        for name in ("run", "log", "servers", "first"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "servers").chmod(0o700)
        Path("/run/sshd").mkdir(exist_ok=True)
        self._make_user()
        self._make_servers()
        self.laptop.make(pip_settings())
        self._start_file(".ssh/authorized_keys", self.laptop.key.with_suffix(".pub").read_text().strip())

    def _make_user(self) -> None:
        self.home.mkdir()
        done("useradd", "--no-create-home", "--home-dir", self.home, "--shell", SHELLS["bash"], self.user)
        done("chpasswd", said=f"{self.user}:{self.password}\n")
        shutil.chown(self.home, self.user, self.user)
        self.home.chmod(0o750)
        self._start_file(".config/pip/pip.conf", *pip_settings())

    def _make_servers(self) -> None:
        codes = self.folder / "servers" / "codes"
        codes.touch(0o600)
        codes.write_text(f"HOTP {self.user} - {self._secret.hex()}\n", encoding="utf-8")
        (self.folder / self.user).symlink_to(SSHD)
        pam_service(self.user).write_text(PAM.format(codes=codes), encoding="utf-8")
        for name, server in self.servers.items():
            pam, method = "yes" if name == "code" else "no", METHODS[name]
            text = CONFIG.format(port=server.port, key=server.key, pam=pam, user=self.user, method=method)
            if name == "jump":
                text += JUMP_CONFIG.format(target=f"127.0.0.1:{self._ports['key']}")
            server.config.write_text(text, encoding="utf-8")
            new_key(server.key)
            self._first_keys[name] = server.key.read_bytes(), server.key.with_suffix(".key.pub").read_text()
            server.start()

    def reset(self, variables: dict[str, str]) -> None:
        """Set all as a test finds it: no connection, the first keys and configuration, bash, all programs.

        The homes stay as they are, start files apart; by the variables the user's commands find a cluster.
        """
        self.cut()
        for name, server in self.servers.items():
            first, _ = self._first_keys[name]
            if server.key.read_bytes() != first:
                server.daemon.end()
                server.key.write_bytes(first)
                server.start()
        for wrapper in (self.folder / "first").iterdir():
            wrapper.unlink()
        self.laptop.reset(self.user, self._ports, {name: key for name, (_, key) in self._first_keys.items()})
        self._set(Login(variables=variables))

    def end(self) -> None:
        """End all that the user runs, and remove the user, the servers and all files; also what is left."""
        with contextlib.suppress(KeyError):
            uid = pwd.getpwnam(self.user).pw_uid
            end_jobs(self.folder.parent, self.user)
            for pid_file in (self.folder / "run").glob("sshd-*.pid"):
                Daemon(pid_file.stem, (), self.folder, {}).end()

            def none_left() -> bool:
                kill(pids := [*self.connections(), *(pid for pid, _ in commands(uid))])
                return not pids

            wait_for(none_left, f"the processes of {self.user} end")
            done("userdel", "--force", self.user)
        pam_service(self.user).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def login_node(place: Path) -> Iterator[SshHost]:
    """Have a login node in front of the clusters of a folder; several sessions at once have one each."""
    if lacking := [package for path, package in PACKAGES.items() if not any(Path("/").glob(path))]:
        apt_install(lacking)
    place.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        for number in count(1):
            lock = stack.enter_context((place / f"ssh-{number}.lock").open("w"))
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
        host = SshHost(place / f"ssh-{number}", f"jobkit-ada-{number}")
        host.end()  # of a session that was killed
        stack.callback(host.end)
        host.begin()
        yield host


def end_jobs(place: Path, user: str) -> None:
    """Cancel the user's jobs on the clusters that are up."""
    ends = {"slurm": ("scancel", "-u", user), "sge": ("qdel", "-f", "-u", user)}
    for one in cluster.running(place):
        one.place.ask(*ends[one.place.scheduler])


def pam_service(name: str) -> Path:
    """Return the file of a PAM service."""
    return Path("/etc/pam.d") / name


def pip_settings() -> list[str]:
    """Return what pip is told here, as lines of a pip.conf for another user."""
    listed = done(sys.executable, "-m", "pip", "config", "list").splitlines()
    told = {key.rpartition(".")[2]: value for key, _, value in (line.partition("=") for line in listed)}
    return [
        "[global]",
        *(f"{key} = {' '.join(ast.literal_eval(value).split())}" for key, value in told.items()),
    ]


def set_all(form: str, variables: Mapping[str, str]) -> list[str]:
    """Return lines that set variables, in the form of a shell."""
    return [form.format(name, value) for name, value in variables.items()]


def new_key(path: Path) -> None:
    """Make a pair of keys, in the place of another."""
    for old in (path, path.with_suffix(f"{path.suffix}.pub")):
        old.unlink(missing_ok=True)
    done("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path)


def commands(uid: int | None = None) -> Iterator[tuple[int, str]]:
    """Yield every process of a user, or of all, that is no zombie, with its command line."""
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        with contextlib.suppress(OSError):
            if uid is None or Path(f"/proc/{pid}").stat().st_uid == uid:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if line:
                    yield pid, line.rstrip()


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def done(*argv: str | Path, said: str = "") -> str:
    """Run a command, and return what it printed."""
    return subprocess.run(argv, input=said, capture_output=True, text=True, check=True, timeout=60).stdout
