"""The commands as a user types them; in a process of their own where they are interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from jobkit.commands.listing import LISTED
from tests.support import commands
from tests.support.builders import events
from tests.support.commands import JOBKIT
from tests.whole.specs import write_spec
from tests.whole.test_job_script import WORKLOADS, wait_until


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return write_spec(tmp_path, repeats=2).parent


def jobkit(home: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return commands.jobkit(*arguments, cwd=home, env=env)


def test_a_local_sweep_prints_its_table_and_leaves_the_whole_run_folder(home: Path) -> None:
    site = home / "config" / "site.yaml"
    site.parent.mkdir()
    site.write_text("name: ours\nscheduler: local\nsync_interval_s: 1\n", encoding="utf-8")
    done = jobkit(home, "sweep", "spec.yaml", JOBKIT_CONFIG=str(site.parent))
    assert done.returncode == 0, done.stderr
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
    collected = jobkit(home, "collect", "runs", "--format", "json")
    assert collected.returncode == 4
    assert {point["outcome"] for point in json.loads(collected.stdout)["points"]} == {"cancelled"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sweeep"], "No such command 'sweeep'. Did you mean 'sweep'?"),
        (["xyzzy"], "No such command 'xyzzy'.\n"),
        (["sweep", ""], "'SPEC': it is empty"),
        (["sweep"], "Missing argument 'SPEC'"),
        (["sweep", "spec.yaml", "--shceduler", "sge"], "--scheduler"),
        (["collect", "nowhere"], "nowhere: no such file or folder"),
        (["cancel", "run", "1", "--except", "2"], "not both"),
        (["collect", ".", "--plot", "same.svg", "--output", "./same.svg"], "both name same.svg"),
    ],
)
def test_bad_usage_ends_with_2_and_no_traceback(home: Path, arguments: list[str], said: str) -> None:
    done = jobkit(home, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_help_is_a_page_of_documentation(home: Path) -> None:
    for words in ([], *([name] for name in LISTED)):
        done = jobkit(home, *words, "--help")
        assert done.returncode == 0
        assert len(done.stdout.splitlines()) >= 10
        assert re.search(r"^ +jobkit \w+", done.stdout, re.MULTILINE), f"{words}: an example"


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
