"""`jobkit shell --go` at a terminal, on the real daemons."""

from __future__ import annotations

import json
import os
import pty
import select
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.lab import COUNT, QUEUE, ClusterLab
from tests.support.commands import JOBKIT

DEADLINE_S = 300


class Terminal:
    """A command at a terminal, and all that it has printed."""

    def __init__(self, folder: Path, *words: str | Path) -> None:
        self.text = ""
        self.process, self.end = pty.fork()
        if not self.process:
            os.chdir(folder)
            os.execv(sys.executable, [sys.executable, *map(str, words)])  # noqa: S606 - no shell

    def until(self, wanted: str) -> None:
        """Read until a text is there."""
        deadline = time.monotonic() + DEADLINE_S
        while wanted not in self.text:
            assert time.monotonic() < deadline, self.text
            if not self._read():
                raise AssertionError(self.text)

    def _read(self) -> bool:
        if select.select([self.end], [], [], 1)[0]:
            try:
                self.text += os.read(self.end, 4096).decode(errors="replace")
            except OSError:  # the command has ended
                return False
        return True

    def type(self, line: str) -> None:
        os.write(self.end, f"{line}\n".encode())

    def status(self) -> int:
        """Return the exit status, once the command has ended."""
        deadline = time.monotonic() + DEADLINE_S
        while self._read():
            assert time.monotonic() < deadline, self.text
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


@pytest.fixture
def plain_bash(lab: ClusterLab, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let bash read no file of the user's at its start; return the option of qrsh that takes it there."""
    programs = lab.home.parent / "bin"
    programs.mkdir()
    bash = programs / "bash"
    bash.write_text('#!/bin/bash\nexec /bin/bash --norc "$@"\n', encoding="utf-8")
    bash.chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    return f"-v PATH={path}" if lab.scheduler == "sge" else "--export=ALL"


def test_a_point_runs_in_a_shell_on_a_node(lab: ClusterLab, plain_bash: str) -> None:
    spec = lab.spec(COUNT + f"scheduler: {lab.scheduler}\nsite: {lab.home}/lab.yaml\n")
    options = f"resources.options={{{lab.scheduler}: ['{plain_bash}']}}"
    terminal = Terminal(lab.home, JOBKIT, "shell", spec, "--point", "2", "--go", "--set", options)
    terminal.until("bash-")  # its prompt
    (command,) = [line for line in terminal.text.splitlines() if "job.sh" in line]
    terminal.type("tty && echo job=${SLURM_JOB_ID:-$JOB_ID}")
    terminal.until("/dev/pts/")
    terminal.type(command.strip())
    terminal.type("exit $((40 + 2))")
    assert terminal.status() == 4
    assert "ended with status 42" in terminal.text
    (run,) = (lab.home / "runs" / "shell").iterdir()
    (record,) = [json.loads(path.read_text()) for path in run.glob("results/*/try-1/record.json")]
    assert (record["job"]["scheduler"], record["outcome"], record["point"]["index"]) == ("hand", "ok", 2)
    lab.clears_scratch()
    assert not list((run / "logs").iterdir()), "no batch job ran"


def test_what_the_scheduler_refuses_starts_no_shell(lab: ClusterLab) -> None:
    site = (lab.home / "lab.yaml").read_text()
    (lab.home / "lab.yaml").write_text(site.replace(f"queue: {QUEUE[lab.scheduler]}\n", "queue: nowhere\n"))
    spec = lab.spec(COUNT + f"scheduler: {lab.scheduler}\nsite: {lab.home}/lab.yaml\n")
    terminal = Terminal(lab.home, JOBKIT, "shell", spec, "--go")
    assert terminal.status() == 3
    assert "nowhere" in terminal.text
    assert "would refuse this shell" in terminal.text
