"""The login node of the tests: each way in, each shell, what can break, and jobs of its user."""

from __future__ import annotations

import pytest

from tests.cluster.daemons import until
from tests.cluster.ssh_host import SHELLS, Counts, SshHost

ONE = Counts(connections=1, logins=1, sessions=1)
SUBMIT = {
    "slurm": "sbatch --wait -p cpu -t 1 -o $HOME/out --wrap whoami",
    "sge": "echo whoami | qsub -sync y -q serial.q -j y -o $HOME/out",
}
"""What submits a job and waits for it, in the words of every shell."""
LOGIN = {"bash": "bash -lc '%s'", "tcsh": "%s", "fish": "%s"}
"""How a command gets what the start files of a login set; bash reads them only then."""


def test_a_key_is_asked_for_nothing(ssh_host: SshHost) -> None:
    before = ssh_host.counts()
    done = ssh_host.laptop.run("ssh", "cluster", "whoami; pwd")
    assert (done.stdout, done.stderr) == (f"{ssh_host.user}\n{ssh_host.home}\n", "")
    assert ssh_host.counts() - before == ONE
    assert ssh_host.laptop.calls()[-1] == "cluster whoami; pwd"


def test_a_password_is_asked_on_the_terminal(ssh_host: SshHost) -> None:
    typed = ssh_host.laptop.type(
        "ssh", "cluster-password", "whoami", answers={"password: ": ssh_host.password}, piped=True
    )
    assert (typed.returncode, typed.stdout) == (0, f"{ssh_host.user}\n")
    assert typed.asked == ["password: "]
    refused = ssh_host.laptop.run("ssh", "cluster-password", "whoami")
    assert refused.returncode == 255
    assert "Permission denied (password)" in refused.stderr


def test_each_code_is_accepted_once(ssh_host: SshHost) -> None:
    code = ssh_host.code()
    given = iter((code, code, ssh_host.code()))
    ask = {"One-time password": lambda: next(given)}
    assert ssh_host.laptop.type("ssh", "cluster-code", "true", answers=ask).asked == [*ask]
    again = ssh_host.laptop.type("ssh", "cluster-code", "echo in", answers=ask)
    assert again.asked == [*ask] * 2
    assert again.screen.endswith("\nin\n")


def test_one_login_serves_what_follows(ssh_host: SshHost) -> None:
    before = ssh_host.counts()
    socket = f"ControlPath={ssh_host.laptop.environment['XDG_RUNTIME_DIR']}/%C"
    options = ("-o", "ControlMaster=auto", "-o", "ControlPersist=60", "-o", socket)
    words = ("ssh", *options, "cluster-code", "whoami")
    assert ssh_host.laptop.type(*words, answers={"One-time password": ssh_host.code}).returncode == 0
    assert [ssh_host.laptop.run(*words).stdout for _ in range(3)] == [f"{ssh_host.user}\n"] * 3
    assert ssh_host.counts() - before == Counts(connections=1, logins=1, sessions=4)
    assert len(ssh_host.connections()) == 2, "sshd has two processes a connection"
    assert not ssh_host.processes()


def test_the_way_over_the_jump_host_is_two_logins(ssh_host: SshHost) -> None:
    before = {name: ssh_host.counts(name) for name in ("jump", "key")}
    assert ssh_host.laptop.run("ssh", "cluster-jump", "whoami").stdout == f"{ssh_host.user}\n"
    assert ssh_host.counts("jump") - before["jump"] == Counts(connections=1, logins=1, sessions=0)
    assert ssh_host.counts("key") - before["key"] == ONE


@pytest.mark.parametrize("shell", SHELLS)
def test_a_banner_and_a_path_are_those_of_the_shell(ssh_host: SshHost, shell: str) -> None:
    ssh_host.log_in_with(shell, banner="Welcome to hec")
    said = ssh_host.laptop.run("ssh", "cluster", "echo $SHELL; which rsync").stdout
    assert said == f"Welcome to hec\n{SHELLS[shell]}\n/usr/bin/rsync\n"
    ssh_host.log_in_with(shell, without=("rsync",))
    lacking = ssh_host.laptop.run("ssh", "cluster", "rsync --version")
    assert lacking.returncode == (1 if shell == "tcsh" else 127)
    assert lacking.stdout == ""


def test_a_host_key_that_changed_is_refused(ssh_host: SshHost) -> None:
    ssh_host.servers["key"].change_key()
    refused = ssh_host.laptop.run("ssh", "cluster", "true")
    assert refused.returncode == 255
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in refused.stderr


def test_a_connection_is_cut(ssh_host: SshHost) -> None:
    ssh = ssh_host.laptop.start("ssh", "cluster", "echo begun; cat /dev/zero")
    assert ssh.stdout is not None
    assert ssh.stdout.readline() == "begun\n"
    assert ssh_host.connections()
    ssh_host.cut()
    _, said = ssh.communicate(timeout=60)
    assert ssh.returncode == 255
    assert "closed by remote host" in said
    until(lambda: not ssh_host.processes(), "no process of the user is left")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_transfer_is_cut_once(ssh_host: SshHost, shell: str) -> None:
    ssh_host.log_in_with(shell)
    data, there = ssh_host.laptop.home / "data", f"data-{shell}"
    data.write_bytes(bytes(3_000_000))
    ssh_host.cut_after("rsync", sent=1_000_000)
    copy = ("rsync", "--inplace", "--whole-file", data, f"cluster:{there}")
    assert ssh_host.laptop.run(*copy).returncode != 0
    until(lambda: not ssh_host.processes(), "rsync has ended there")
    assert 0 < (ssh_host.home / there).stat().st_size < 1_000_000
    assert ssh_host.laptop.run(*copy).returncode == 0
    assert (ssh_host.home / there).stat().st_size == 3_000_000


def test_an_answer_is_cut_off(ssh_host: SshHost) -> None:
    ssh_host.cut_after("mkdir")
    assert ssh_host.laptop.run("ssh", "cluster", "mkdir made && echo made").returncode == 255
    assert (ssh_host.home / "made").is_dir()


def test_pip_of_the_user_finds_packages(ssh_host: SshHost) -> None:
    install = (
        "python3 -m venv venv && venv/bin/pip download -q --no-deps --no-binary=:none: -d got click && ls got"
    )
    done = ssh_host.laptop.run("ssh", "cluster", install)
    assert done.stdout.startswith("click-"), done.stderr


def test_the_laptop_has_no_scheduler(ssh_host: SshHost) -> None:
    assert ssh_host.laptop.run("sh", "-c", "command -v sbatch qsub").stdout == ""
    assert ssh_host.laptop.run("jobkit", "--version").returncode == 0


@pytest.mark.parametrize("shell", SHELLS)
def test_the_user_submits_a_job(ssh_host: SshHost, scheduler: str, shell: str) -> None:
    ssh_host.log_in_with(shell)
    done = ssh_host.laptop.run("ssh", "cluster", LOGIN[shell] % SUBMIT[scheduler])
    assert done.returncode == 0, done.stdout + done.stderr
    out = ssh_host.home / "out"
    assert out.read_text() == f"{ssh_host.user}\n"
    out.unlink()
