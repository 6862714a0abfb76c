"""The commands as a user types them: what they print and leave; what is pasted; secrets; interrupts."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.builders import events
from tests.support.commands import JOBKIT, ended_well, jobkit, jobkit_process
from tests.support.swept import sweep as sweep  # noqa: PLC0414 - a fixture
from tests.whole.specs import TEXT, write_spec
from tests.whole.test_job_script import WORKLOADS, wait_until


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return write_spec(tmp_path, repeats=2).parent


def jobkit_at(home: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return jobkit(*arguments, cwd=home, env=env)


def test_a_local_sweep_prints_its_table_and_leaves_the_whole_run_folder(home: Path) -> None:
    site = home / "config" / "site.yaml"
    site.parent.mkdir()
    site.write_text("name: ours\nscheduler: local\nsync_interval_s: 1\n", encoding="utf-8")
    done = ended_well(jobkit_at(home, "sweep", "spec.yaml", JOBKIT_CONFIG=str(site.parent)))
    assert "count" in done.stdout
    (run,) = (home / "runs").iterdir()
    assert f"site: {site}" in (run / "sweep.yaml").read_text(encoding="utf-8"), "it is found again"
    files = {"accounting.jsonl", "job.sh", "journal.jsonl", "lengths.json", "points.jsonl", "sweep.yaml"}
    assert {path.name for path in run.iterdir()} == {".driver.lock", "logs", "results", *files}
    tries = sorted(str(path.relative_to(run / "results")) for path in run.glob("results/*/*"))
    assert tries == [f"batch_size-{size}-r{repeat}/try-1" for size in (1, 2) for repeat in (1, 2)]
    for path in run.glob("results/*/*"):
        names = {"batches.jsonl", "begin", "entities.tsv", "exit", "record.json"}
        assert {one.name for one in path.iterdir()} == names
    assert [event["event"] for event in events(run)] == ["submitting", "submitted"]
    accounting = (run / "accounting.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(accounting) == sum("process finished" in line for line in accounting) == 4
    assert not [path.name for path in (run / "logs").iterdir() if path.suffix in {".pkl", ".pid"}]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_local_run_keeps_what_it_has_and_ends_its_job(
    home: Path, sent: signal.Signals
) -> None:
    told, pipe = home / "told", subprocess.PIPE
    env = {**os.environ, "PYTHONPATH": str(WORKLOADS), "ODD_TOLD": str(told)}
    changes = ("workload=odd:Slow", "sweep.batch_size=[1]", "repeats=1")
    argv = [str(JOBKIT), "sweep", "spec.yaml", *(word for one in changes for word in ("--set", one))]
    with subprocess.Popen(
        argv, cwd=home, env=env, text=True, stdout=pipe, stderr=pipe, start_new_session=True
    ) as process:
        try:
            wait_until(told.exists)
            if sent is signal.SIGTERM:
                process.send_signal(sent)
            else:
                os.killpg(process.pid, sent)  # as a terminal does: to all of its group
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()  # does nothing to one that has ended
    assert process.returncode == 130
    assert "what was measured is in runs/" in said
    records = [json.loads(path.read_text()) for path in home.glob("runs/*/results/*/try-1/record.json")]
    assert [record["outcome"] for record in records] == ["cancelled"]
    assert records[0]["summary"]["batches"] == 1
    assert "Traceback" not in said
    assert len(list(home.glob("runs/*/results/*/try-1/exit"))) == 1
    collected = jobkit_at(home, "collect", "runs", "--format", "json")
    assert collected.returncode == 4
    assert {point["outcome"] for point in json.loads(collected.stdout)["points"]} == {"cancelled"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sweeep"], "No such command 'sweeep'. Did you mean 'sweep'?"),
        (["sweep", ""], "'SPEC': the path is empty"),
        (["sweep", "spec.yaml", "--shceduler", "sge"], "--scheduler"),
        (["collect", "nowhere"], "nowhere: no such file or folder"),
        (["collect", ".", "--plot", "same.svg", "--output", "./same.svg"], "both name same.svg"),
    ],
)
def test_bad_usage_ends_with_2_and_no_traceback(home: Path, arguments: list[str], said: str) -> None:
    done = jobkit_at(home, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("schema >/dev/full", 2, "jobkit: standard output: No space left on device\n"),
        ("collect >&-", 2, "jobkit: standard output is closed"),
        ("collect >&- 2>&-", 2, ""),
        ("lint long.sh | head -n 1", 0, ""),
    ],
)
def test_an_output_that_is_full_or_closed_or_is_read_no_further(
    home: Path, line: str, status: int, said: str
) -> None:
    (home / "long.sh").write_text("#!/bin/bash\n" + "# SBATCH -n 1\n" * 2000, encoding="utf-8")
    argv = ["bash", "-c", f"'{JOBKIT}' {line}; exit ${{PIPESTATUS[0]}}"]
    done = subprocess.run(argv, cwd=home, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr[: len(said) or None]) == (status, said)
    assert done.stdout == ("long.sh:2: # SBATCH -n 1\n" if "long.sh" in line else "")


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


SECRET = "hunter2 of mine"  # noqa: S105 - of no one
COMMANDS = (
    "sweep spec.yaml",
    "sweep spec.yaml --dry-run",
    "sweep spec.yaml --set environment.variables.MY_KEY=hunter2 --dry-run",
    "status",
    "status 1",
    "status --json",
    "collect --json",
    "report",
    "recommend",
    "recommend --json",
    "apply runs/t-* --corpus text.txt --out tagged --dry-run",
    "apply runs/t-* --corpus text.txt --out tagged --script",
    "apply runs/t-* --corpus text.txt --out tagged --set environment.variables.MY_KEY=hunter2",
    "status tagged",
    "resume tagged --set environment.variables.MY_KEY=hunter2",
    "merge tagged",
)
KEPT = {"sweep.yaml", "job.sh", "job-2.sh", "journal.jsonl", "spec.yaml"}
"""The files with the secret: those that jobkit reads back, and the user's own."""


@pytest.mark.usefixtures("usual_umask")
def test_no_secret_and_no_signed_address_is_in_an_output_or_a_file_of_others(
    tmp_path: Path, serve: Callable[[Path], str]
) -> None:
    served = serve(tmp_path)
    address = f"{served}/text.txt?sig=hunter2"
    variables = {"HF_TOKEN": SECRET, "OTHER": "plain"}
    write_spec(tmp_path, content=f"{TEXT}\n" * 20, text=address, environment={"variables": variables})
    again = f"sweep spec.yaml --set text={served}/text.txt?sig=hunter2-of-tomorrow"
    of_address = (f"recommend --corpus {address}", f"apply runs/t-* --corpus {address} --out other", again)
    others = ("doctor spec.yaml", f"sweep spec.yaml --set workload=spacy-ner --set model.path={address}")
    for command in (*COMMANDS, "collect --format csv --output table.csv", *of_address, *others):
        words = [str(next(tmp_path.glob(word))) if "*" in word else word for word in command.split()]
        done = jobkit(*words, cwd=tmp_path)
        assert "hunter2" not in done.stdout + done.stderr, command
        assert "has a run already" in done.stderr or command != again
        if {"--dry-run", "--script"} & {*words}:
            assert "HF_TOKEN=***" in done.stdout, command
            shown = jobkit(*words, "--show-environment", cwd=tmp_path).stdout
            assert f"HF_TOKEN={shlex.quote(SECRET)}" in shown, command
    (run,) = (tmp_path / "runs").iterdir()
    shutil.rmtree(run / "results" / "batch_size-1-r1")
    assert "again: 1 point" in ended_well(jobkit("resume", run, cwd=tmp_path)).stderr
    holding = [path for path in tmp_path.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert {path.name for path in holding} <= KEPT
    assert {"runs", "tagged"} <= {path.relative_to(tmp_path).parts[0] for path in holding}
    assert (tmp_path / "report.html").read_text(encoding="utf-8").count("***") >= 4
    assert (tmp_path / "tagged" / "provenance.json").is_file()
    own = [path for path in holding if path.name != "spec.yaml"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in own} == {0o600}


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)
