"""Every command that is printed can be pasted, whatever the folder is called."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jobkit.launch.resume import run_again
from tests.support.commands import jobkit, jobkit_process
from tests.support.swept import BUG, OK, Sweep
from tests.support.swept import sweep as sweep  # noqa: PLC0414 - a fixture
from tests.whole.specs import write_spec
from tests.whole.test_job_script import wait_until

BIN = Path(sys.executable).parent
COMMAND = re.compile(r"jobkit (?:status|collect|resume|cancel|logs|doctor|sweep) (?:'[^']*'|\S)+(?: \d\b)?")
RUNS = "-r u n s"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a space in its name, where jobkit runs without a scheduler."""
    folder = tmp_path / "my proj"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")
    return write_spec(folder, "a spec.yaml", sweep={"batch_size": [1]}).parent


def shell(line: str) -> tuple[int, str]:
    """Paste a line; return its status and all that it said: bash splits it, jobkit runs in this process."""
    split = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True, check=True
    )
    program, *words = split.stdout.splitlines()
    if program == "jobkit":
        done = (jobkit_process if "--detach" in words else jobkit)(*words)
    else:
        done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def pasted(text: str) -> list[str]:
    """Paste all commands that stand in a text; return them. All must find what they name."""
    commands = list(dict.fromkeys(COMMAND.findall(text)))
    for command in commands:
        code, said = shell(command)
        assert code in {0, 4, 5}, (command, said)
    return commands


def test_what_a_sweep_prints_and_what_moves_it_back_can_be_pasted(here: Path) -> None:
    sweep = f"jobkit sweep 'a spec.yaml' '--runs-dir={RUNS}'"
    code, said = shell(f"{sweep} --detach")
    assert code == 0, said
    (run,) = (here / RUNS).iterdir()
    named = f"'./{RUNS}/{run.name}'"
    wait_until(lambda: jobkit("status", run).returncode == 0)  # a busy machine would cancel it before its end
    assert pasted(said) == [f"jobkit status {named}"], "with --watch, which the pattern leaves out"
    assert f"jobkit collect {named}" in pasted(shell(sweep)[1])
    assert f"jobkit collect {named}" in pasted(shell(f"jobkit status {named}")[1])
    (here / "-new").mkdir()
    run.rename(here / "-new" / run.name)
    back = shell(f"jobkit resume ./-new/{run.name}")[1].strip().rpartition("move it back: ")[2]
    assert back == f"mv ./-new/{run.name} {named}"
    assert (shell(back)[0], run.is_dir()) == (0, True)


def test_what_init_and_doctor_print_can_be_pasted(here: Path) -> None:
    (command,) = pasted(shell("jobkit init 'a b' --scheduler local")[1])
    assert command == "jobkit doctor 'a b/first.yaml'"
    assert (here / "a b" / "first.yaml").is_file()
    said = shell("jobkit doctor 'a spec.yaml'")[1]
    assert COMMAND.findall(said)[-1] == "jobkit sweep 'a spec.yaml'"


def test_what_resume_says_names_the_run_from_here(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(sweep.run.parent)
    sweep.ended(OK, OK, BUG, OK, OK, OK)
    assert run_again(sweep.run, (), ()) == 0
    assert f"jobkit status {sweep.run.name} --watch\n" in capsys.readouterr().err
