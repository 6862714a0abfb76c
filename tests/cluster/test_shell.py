"""`jobkit shell --go` at a terminal, on the real daemons."""

from __future__ import annotations

import json
import os
import re
import sys

import pytest

from tests.cluster.lab import COUNT, QUEUE, ClusterLab
from tests.cluster.laptop import Typed, on_terminal
from tests.support.commands import JOBKIT

PROMPT = r"\n([^\n]*job\.sh[^\n\r]*)\r?\n(?:.*\n)*.*bash-"
"""With the line above it that runs the point."""
TYPED = r"tty && echo job=${SLURM_JOB_ID:-$JOB_ID}; \1; exit $((40 + 2))"


def shell(lab: ClusterLab, *more: str) -> Typed:
    """Type `jobkit shell --go` at a terminal, and there what it says."""
    spec = lab.spec(COUNT + f"scheduler: {lab.scheduler}\nsite: {lab.home}/lab.yaml\n")
    argv = (sys.executable, JOBKIT, "shell", spec, "--go", *more)
    return on_terminal([str(word) for word in argv], {PROMPT: TYPED}, cwd=lab.home, env=os.environ)


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
    options = f"resources.options={{{lab.scheduler}: ['{plain_bash}']}}"
    typed = shell(lab, "--point", "2", "--set", options)
    assert typed.returncode == 4, typed.screen
    assert "/dev/pts/" in typed.screen
    assert re.search(r"^job=\d+$", typed.screen, re.MULTILINE)
    assert "ended with status 42" in typed.screen
    (run,) = (lab.home / "runs" / "shell").iterdir()
    (record,) = [json.loads(path.read_text()) for path in run.glob("results/*/try-1/record.json")]
    assert (record["job"]["scheduler"], record["outcome"], record["point"]["index"]) == ("hand", "ok", 2)
    lab.clears_scratch()
    assert not list((run / "logs").iterdir()), "no batch job ran"


def test_what_the_scheduler_refuses_starts_no_shell(lab: ClusterLab) -> None:
    site = (lab.home / "lab.yaml").read_text()
    (lab.home / "lab.yaml").write_text(site.replace(f"queue: {QUEUE[lab.scheduler]}\n", "queue: nowhere\n"))
    typed = shell(lab)
    assert typed.returncode == 3
    assert "nowhere" in typed.screen
    assert "would refuse this shell" in typed.screen
