"""``jobkit --on HOST`` from a laptop, by a real OpenSSH server, for a user of its own on real clusters."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobkit.core.host import PROTOCOL
from tests.cluster.daemons import until
from tests.cluster.lab import SGE, SLURM
from tests.cluster.ssh_host import SHELLS, SshHost, commands, end_jobs, kill
from tests.support.packages import MODULES, need

ROOT = Path(__file__).parents[2]
VENV = ".local/share/jobkit/venv"
SPEC = """\
name: letters
workload: count
text: letters.txt
sweep: {batch_size: [1, 10, 100]}
repeats: 1
resources: {gpus: 0, cpus: 1, memory: 1GiB, walltime: "00:02:00"}
"""
MODULES_CMD = "/usr/lib/x86_64-linux-gnu/modulecmd.tcl"
CODE = "One-time password"


class Ada:
    """Somebody with a laptop, and a project in a folder of it."""

    def __init__(self, host: SshHost) -> None:
        self.host, self.laptop = host, host.laptop
        self.project = self.laptop.home / "letters"
        shutil.rmtree(self.project, ignore_errors=True)
        self.project.mkdir()
        (self.project / "letters.txt").write_text("\n\n".join(f"Letter {n}." for n in range(300)) + "\n")
        self.write(SPEC)

    @property
    def there(self) -> Path:
        """The project on the cluster."""
        return self.host.home / "jobkit" / "letters"

    def write(self, spec: str, name: str = "first.yaml") -> None:
        (self.project / name).write_text(spec, encoding="utf-8")

    def types(self, command: str, *more: str | Path, on: str = "cluster") -> tuple[int, str, str]:
        """Type a command without a terminal; return its exit code and both streams."""
        done = self.laptop.run("jobkit", "--on", on, *command.split(), *more, cwd=self.project)
        return done.returncode, done.stdout, done.stderr

    def runs(self) -> list[Path]:
        return sorted((self.there / "runs").glob("*"))

    def submitted(self) -> list[dict[str, object]]:
        """Return what the journals of all runs on the cluster have submitted, less what follows."""
        lines = [line for run in self.runs() for line in (run / "journal.jsonl").read_text().splitlines()]
        events: list[dict[str, object]] = [json.loads(line) for line in lines]
        return [event for event in events if event["event"] == "submitted" and event["role"] == "points"]


def light_constraints(folder: Path) -> Path:
    """Write the constraints of CI with an empty PyTorch: no test here imports it, and it is 761 MB."""
    text = (ROOT / "constraints.txt").read_text()
    (version,) = re.findall(r"^torch==(\S+)$", text, re.MULTILINE)
    wheel, info = folder / f"torch-{version}-py3-none-any.whl", f"torch-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as files:
        files.writestr("torch.py", "")
        files.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        files.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        files.writestr(f"{info}/RECORD", "")
    path = folder / "constraints.txt"
    path.write_text(text.replace(f"torch=={version}", f"torch @ file://{wheel}"))
    return path


@pytest.fixture(scope="module")
def host_with_jobkit(ssh_host: SshHost) -> SshHost:
    """Have a jobkit there, installed by ``init --install``; without that word nothing is changed."""
    ssh_host.reset({})
    ssh_host.pin(light_constraints(ssh_host.folder))
    ada = Ada(ssh_host)
    (ada.project / "first.yaml").unlink()
    words = ("jobkit", "--on", "cluster", "init", "--extra", "none")
    refused = ada.laptop.type(*words, cwd=ada.project)
    assert refused.returncode == 2
    assert "nothing was changed" in refused.screen
    assert not (ssh_host.home / ".local" / "share" / "jobkit").exists()
    typed = ada.laptop.type(*words, "--install", cwd=ada.project)
    assert typed.returncode == 3, "no scheduler answers yet"
    assert f"make a virtual environment, {ssh_host.home / VENV}, with /usr/bin/python3" in typed.screen
    assert (ssh_host.home / VENV / "bin" / "jobkit").exists(), typed.screen[-2000:]
    assert not [*(ssh_host.home / VENV).glob("lib/*/site-packages/torch*")]
    return ssh_host


@pytest.fixture
def ada(host_with_jobkit: SshHost) -> Iterator[Ada]:
    """Have an empty project; no job of it runs on, which would write into that of the next test."""
    host = host_with_jobkit
    shutil.rmtree(host.home / "jobkit", ignore_errors=True)
    yield Ada(host)
    end_jobs(host.folder.parent, host.user)
    until(lambda: not host.processes(), "the jobs end")


@SGE
def test_one_code_leads_from_an_empty_folder_to_a_merged_corpus(ada: Ada, scheduler: str) -> None:
    before = ada.host.counts("code")
    asked = []

    def types(*words: str) -> str:
        done = ada.laptop.type(
            "jobkit", "--on", "cluster-code", *words, answers={CODE: ada.host.code}, cwd=ada.project
        )
        assert done.returncode == 0, done.screen
        asked.extend(done.asked)
        return done.screen

    (ada.project / "first.yaml").unlink()
    (ada.host.home / ".config" / "jobkit" / "site.yaml").unlink(missing_ok=True)
    assert "fetched first.yaml" in types("init", "--scheduler", scheduler)
    assert "jobkit --on cluster-code sweep first.yaml --dry-run" in (ada.project / "first.yaml").read_text()
    (ada.project / "first.yaml").unlink()
    types("init")
    types("init", "more", "--scheduler", scheduler)
    assert (ada.project / "first.yaml").exists()
    assert (ada.project / "more" / "first.yaml").exists()
    ada.write(SPEC + f"scheduler: {scheduler}\n")
    assert "next: jobkit --on cluster-code " in types("sweep", "first.yaml", "--wait")
    run = ada.runs()[0].name
    assert "3 points: 3 done" in types("status")
    assert "paragr./s" in types("collect")
    types("recommend", run, "--corpus", "letters.txt")
    types("apply", run, "--corpus", "letters.txt", "--out", "tagged", "--wait")
    fetched = types("merge", "tagged", "--fetch", "--format", "jsonl", "--format", "csv")
    assert "fetched tagged/merged.jsonl\nfetched tagged/merged.csv\n" in fetched
    types("report", "tagged")
    for command in ("status", f"cancel {run}", "merge tagged"):
        copied = ada.laptop.run("jobkit", *command.split(), cwd=ada.project)
        assert copied.returncode == 2
        assert "is a copy of the run on cluster-code" in copied.stderr
        assert f"hint: jobkit --on cluster-code {command.split()[0]} " in copied.stderr
    assert "100" in types("logs", run, "3")
    types("waste", run)
    rows = (ada.project / "tagged" / "merged.jsonl").read_text().splitlines()
    assert len(rows) == 300
    assert asked == [CODE]
    happened = ada.host.counts("code") - before
    assert (happened.connections, happened.logins) == (1, 1)
    assert not ada.host.processes()
    assert (ada.project / "report.html").stat().st_size > 10_000


@pytest.mark.slurm
@pytest.mark.parametrize("shell", SHELLS)
def test_no_login_shell_reads_the_words_or_adds_its_own(ada: Ada, shell: str) -> None:
    ada.host.log_in_with(shell, banner="Welcome! to {hec} 'login'")
    odd = """it's "my" $HOME; `pwd` !1 *.txt"""
    shutil.copy(ada.project / "letters.txt", ada.project / odd)
    ada.write(SPEC.replace("text: letters.txt", f"text: {json.dumps(odd)}"), "odd spec.yaml")
    code, _, said = ada.types("sweep", "odd spec.yaml", "--set", "environment.variables.NOTE=a 'b' $(c) !d")
    assert code == 0, said
    assert (ada.there / odd).read_bytes() == (ada.project / odd).read_bytes()
    (run,) = ada.runs()
    assert "a 'b' $(c) !d" in (run / "sweep.yaml").read_text()
    code, shown, _ = ada.types("status --json")
    assert "Welcome" not in shown
    assert json.loads(shown)
    until(lambda: ada.types("status")[0] == 0, "the run ends", 60)
    assert ada.types("collect", run.name)[0] == 0
    assert (ada.project / "runs" / run.name / "results").is_dir()


def test_every_way_in_is_gone_once_and_again_over_a_socket_without_a_connection(ada: Ada) -> None:
    """That over a jump host is two logins."""
    for name, asked, logins in (("cluster-jump", [], 2), ("cluster-password", ["password: "], 1)):
        before = ada.host.counts()
        status = f"jobkit --on {name} status --list"
        answers, cwd = {"password: ": ada.host.password}, ada.project
        typed = ada.laptop.type("sh", "-c", f"{status} && {status}", answers=answers, cwd=cwd)
        assert (typed.returncode, typed.asked) == (0, asked), typed.screen
        assert (ada.host.counts() - before).logins == logins
    sockets = [path for path in (ada.laptop.folder / "run" / "jobkit").iterdir() if path.is_socket()]
    kill([pid for pid, line in commands() if f"-S {sockets[0].parent}/%C -M" in line])
    until(lambda: not ada.host.connections(), "the connections end")
    assert all(socket.exists() for socket in sockets)
    again = ada.laptop.type(*status.split(), answers=answers, cwd=cwd)
    assert (again.returncode, again.asked) == (0, ["password: "]), again.screen
    assert "already exists" not in again.screen


def test_a_connection_that_is_gone_is_made_again(ada: Ada) -> None:
    """It was cut, or it ended by itself after the time that the user's configuration gives."""
    config = ada.laptop.config
    config.write_text("Host cluster\n    ControlPersist 4\n" + config.read_text())
    before = ada.host.counts()
    assert ada.types("status --list")[0] == 0
    ada.host.cut()
    assert ada.types("status --list")[0] == 0
    until(lambda: not ada.host.connections(), "the connection ends", 15)
    assert ada.types("status --list")[0] == 0
    assert (ada.host.counts() - before).logins == 3


def test_the_users_own_connection_is_used(ada: Ada) -> None:
    socket = ada.laptop.folder / "run" / "mine"
    ada.laptop.config.write_text(f"Host cluster\n    ControlPath {socket}\n" + ada.laptop.config.read_text())
    opened = ada.laptop.run("ssh", "-M", "-f", "-N", "-oControlPersist=60", "cluster")
    assert opened.returncode == 0, opened.stderr
    before = ada.host.counts()
    assert ada.types("status --list")[0] == 0
    happened = ada.host.counts() - before
    assert (happened.logins, happened.sessions) == (0, 2), "one asks whether the other end is there"


@pytest.mark.fault
def test_a_connection_of_the_users_whose_other_end_is_gone_is_not_waited_for(ada: Ada) -> None:
    """FAULT: the laptop slept: `ssh -O check` answers, and nobody else does.

    HOW: real: the processes of sshd that serve the user's own connection are stopped.
    REPORTED: which connection gives no answer, and how to end it; the command runs over another.
    LOST: nothing.
    """
    mine = f"    ControlMaster auto\n    ControlPath {ada.laptop.folder}/run/mine-%C\n    ControlPersist 60\n"
    ada.laptop.config.write_text(f"Host cluster\n{mine}" + ada.laptop.config.read_text())
    assert ada.laptop.run("ssh", "cluster", "true").returncode == 0
    stopped = ada.host.connections()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        code, _, said = ada.types("status --list")
        assert (code, "waiting for the ssh connection" in said) == (0, True), said
        assert "your ssh connection does not answer; ssh -O exit cluster ends it" in said
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.fault
def test_init_whose_connection_ends_has_no_answer(ada: Ada) -> None:
    """FAULT: the connection ends while `init` looks around.

    HOW: real: sshd's process is killed as the first program that the script runs ends.
    REPORTED: no answer, not that the host lacks Python or jobkit.
    LOST: nothing.
    """
    ada.host.cut_after("sed")
    code, _, said = ada.types("init")
    assert (code, "cluster: no answer: " in said, "Python" in said) == (3, True, False), said


def test_a_host_key_that_changed_is_refused_in_the_words_of_ssh(ada: Ada) -> None:
    ada.host.servers["key"].change_key()
    code, _, said = ada.types("status")
    assert code == 3
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in said
    assert "hint: ssh cluster must work first" in said


@pytest.mark.slurm
@pytest.mark.fault
def test_a_transfer_that_breaks_goes_on(ada: Ada) -> None:
    """FAULT: the connection breaks while the text is sent.

    HOW: real: sshd's processes are killed once rsync has got a part of the text.
    REPORTED: exit code 3, and that the same command goes on.
    LOST: nothing; nothing was submitted.
    """
    big = ada.project / "letters.txt"
    big.write_bytes(b"\n\n".join(f"Letter {n} {n * n * 7919 % 10007:x}".encode() for n in range(400_000)))
    ada.host.cut_after("rsync", 1_000_000)
    code, _, said = ada.types("sweep first.yaml")
    assert code == 3, said
    assert "hint: type the same command again: what has come is not sent again" in said
    assert not ada.runs()
    code, _, said = ada.types("sweep first.yaml")
    assert code == 0, said
    assert (ada.there / "letters.txt").read_bytes() == big.read_bytes()
    assert len(ada.submitted()) == 1


@SLURM
@pytest.mark.fault
def test_an_answer_that_is_lost_is_asked_for(ada: Ada, scheduler: str) -> None:
    """FAULT: the connection breaks after the job was submitted, before the answer came.

    HOW: real: sshd's processes are killed as sbatch ends.
    REPORTED: exit code 3; the same command prints the answer.
    LOST: nothing; one job was submitted.
    """
    ada.write(SPEC + f"scheduler: {scheduler}\npolicy: {{follow_up: false}}\n")
    ada.host.cut_after("sbatch")
    code, _, said = ada.types("sweep first.yaml")
    assert code == 3, said
    assert "the connection broke before the answer came" in said
    until(lambda: not ada.host.processes(), "the command ends by itself", 60)
    assert len(ada.submitted()) == 1
    code, _, said = ada.types("sweep first.yaml")
    assert code == 0, said
    assert "has the answer to this command" in said
    assert f"run folder: runs/{ada.runs()[0].name}" in said
    assert len(ada.submitted()) == 1
    code, _, said = ada.types("sweep first.yaml")
    assert code == 2
    assert "this sweep has a run already" in said


@pytest.mark.slurm
def test_nothing_watches_on_once_the_laptop_has_gone(ada: Ada) -> None:
    ada.write(SPEC.replace("gpus: 0", "gpus: 0, options: {slurm: [--hold]}"))
    assert ada.types("sweep first.yaml")[0] == 0
    with ada.laptop.start("jobkit", "--on", "cluster", "status", "--watch", cwd=ada.project) as watch:
        assert watch.stdout
        while "waiting" not in watch.stdout.readline():
            assert watch.poll() is None
        assert ada.host.processes()
        ada.host.cut()
        assert watch.wait(60) == 3
    until(lambda: not ada.host.processes(), "the watch ends", 20)
    assert ada.types("cancel", ada.runs()[0].name)[0] == 0


def test_without_rsync_a_sentence_says_so(ada: Ada) -> None:
    ada.host.log_in_with(without=("rsync",))
    code, _, said = ada.types("sweep first.yaml --dry-run")
    assert (code, "cluster has no rsync" in said) == (2, True), said


OPENRSYNC = "#!/bin/sh\necho 'openrsync: protocol version 29'; echo 'rsync version 2.6.9 compatible'\n"
"""What Apple's answers to --version."""


@pytest.mark.slurm
def test_a_mac_sends_and_fetches_by_tar(ada: Ada) -> None:
    shutil.copy(ROOT / "tests" / "support" / "macos.py", ada.laptop.folder / "python" / "sitecustomize.py")
    rsync = ada.laptop.programs / "rsync"
    rsync.unlink()
    rsync.write_text(OPENRSYNC)
    rsync.chmod(0o755)
    text, there = ada.project / "more" / "é.txt", ada.there / "more" / "é.txt"
    text.parent.mkdir()
    text.write_text("One.\n\nTwo.\n")
    code, _, said = ada.types("sweep first.yaml --scheduler slurm --wait --set text=more/é.txt")
    assert (code, "has no rsync 3.1 or later" in said) == (0, True), said
    assert there.stat().st_mtime == pytest.approx(text.stat().st_mtime, abs=1)
    code, out, said = ada.types("collect")
    assert (code, "paragr./s" in out) == (0, True), said
    assert len([*ada.project.glob("runs/*/results/*/*/record.json")]) == 3
    assert not [*ada.project.glob("runs/*/.lock")]
    there.unlink()
    there.parent.rmdir()
    there.parent.touch()
    code, _, said = ada.types("sweep first.yaml --dry-run --set text=more/é.txt")
    assert (code, "the transfer has not ended (tar's status 2" in said) == (3, True), said


def test_an_extra_that_the_cluster_lacks_is_offered_by_init(ada: Ada) -> None:
    ada.write(SPEC.replace("count", "spacy-ner").replace("text:", "model: {fallback: stand-in}\ntext:"))
    code, _, said = ada.types("sweep first.yaml")
    assert (code, "workload 'spacy-ner' needs the Python module spacy" in said) == (2, True), said
    assert "hint: jobkit --on cluster init --install --extra spacy   (spaCy: " in said
    words = ("jobkit", "--on", "cluster", "init", "--extra", "spacy")
    typed = ada.laptop.type(*words, cwd=ada.project)
    assert "protocol 1, which lacks an extra." in typed.screen
    assert "with spaCy: " in typed.screen


@pytest.mark.program(MODULES)
def test_a_python_that_no_path_names_is_offered(ada: Ada) -> None:
    need(MODULES)
    if any(any(Path("/").glob(f"{place}/bin/python3*")) for place in ("usr/local", "opt/*", "opt/*/*")):
        pytest.skip("this machine has a Python in a usual place")
    old = tuple(path.name for path in Path("/usr/bin").glob("python3*"))
    home, words = ada.host.home, ("jobkit", "--on", "cluster", "init")
    ada.host.log_in_with(without=old)
    kept = (home / VENV).rename(home / "kept")
    refused = ada.laptop.type(*words, cwd=ada.project)
    assert "UV_PYTHON_INSTALL_MIRROR=" in refused.screen
    python, module = home / "software" / "bin" / "python3", home / "modules" / "Python" / "3.11.3-GCCcore"
    for file in (python, module):
        file.parent.mkdir(parents=True)
    python.symlink_to("/usr/bin/python3.11")
    module.write_text(f"#%Module\nprepend-path PATH {python.parent}\n")
    ada.host.reset({"MODULEPATH": str(home / "modules"), "MODULES_CMD": MODULES_CMD})
    ada.host.log_in_with(without=old)
    offered = ada.laptop.type(*words, cwd=ada.project)
    kept.rename(home / VENV)
    assert (offered.returncode, offered.asked) == (2, []), offered.screen
    assert f"make a virtual environment, {home / VENV}, with {python}" in offered.screen
    assert "Stanza with torch: " in offered.screen


def test_an_older_protocol_is_updated_and_an_extra_added_by_init(ada: Ada) -> None:
    (module,) = (ada.host.home / VENV).glob("lib/*/site-packages/jobkit/core/host.py")
    now = module.read_text()
    module.write_text(now.replace(f"PROTOCOL = {PROTOCOL}", "PROTOCOL = 0"))
    code, _, said = ada.types("status")
    assert (code, "with protocol 0, and this machine" in said) == (2, True), said
    assert "hint: jobkit --on cluster init --install brings" in said
    words = ("jobkit", "--on", "cluster", "init", "--extra", "zst")
    typed = ada.laptop.type(*words, "--install", cwd=ada.project)
    assert "which this version cannot talk to" in typed.screen
    assert module.read_text() == now, typed.screen
    assert [*(ada.host.home / VENV).glob("lib/*/site-packages/zstandard")], typed.screen[-2000:]
    assert ada.laptop.type(*words, cwd=ada.project).asked == []
    assert ada.types("status --list")[0] == 0


def test_a_folder_of_another_project_is_refused(ada: Ada) -> None:
    assert ada.types("status --list")[0] == 0
    other = ada.laptop.home / "other" / "letters"
    other.mkdir(parents=True)
    done = ada.laptop.run("jobkit", "--on", "cluster", "status", cwd=other)
    assert done.returncode == 2
    assert f"{ada.there} belongs to {ada.project}, not to {other}" in done.stderr
    assert (
        ada.laptop.run("jobkit", "--on", "cluster:elsewhere", "status", "--list", cwd=other).returncode == 0
    )
    assert (ada.host.home / "elsewhere" / "letters").is_dir()


def test_a_model_travels_that_the_cluster_lacks(ada: Ada) -> None:
    folder = ada.laptop.home / ".cache" / "jobkit" / "models" / "hub-ada--tagger"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").touch()
    (folder / "tokenizer.json").touch()
    ada.write(SPEC.replace("workload: count", "workload: hf-token-classification\nmodel: {name: ada/tagger}"))
    _, _, said = ada.types("sweep first.yaml --dry-run")
    copy = ada.host.home / ".cache" / "jobkit" / "models" / "hub-ada--tagger" / "config.json"
    assert copy.read_text() == "{}", said
    assert "cluster lacks the model" in said
    _, _, said = ada.types("sweep first.yaml --dry-run")
    assert "cluster lacks the model" not in said
    code, listed, said = ada.types("models")
    assert (code, "ada/tagger" in listed) == (0, True), said


def test_the_site_file_of_a_laptop_names_its_host(ada: Ada) -> None:
    site = ada.laptop.home / ".config" / "jobkit" / "site.yaml"
    site.parent.mkdir(parents=True, exist_ok=True)
    site.write_text("on: cluster   # the name of ssh\n")
    done = ada.laptop.run("jobkit", "sweep", "missing.yaml", cwd=ada.project)
    assert "looking for it on the cluster" in done.stderr
    here = ada.laptop.run("jobkit", "--on", "here", "sweep", "first.yaml", cwd=ada.project)
    assert here.returncode == 0, here.stderr
    assert "300 paragraphs" in here.stdout
    assert (ada.project / "runs").is_dir()
    refused = ada.laptop.run("jobkit", "collect", *[path.name for path in (ada.project / "runs").iterdir()])
    assert refused.returncode == 2
