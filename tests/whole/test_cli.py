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
from tests.whole.test_job_script import wait_until

WORKLOADS = Path(__file__).parents[1] / "workloads"
SPEC = """\
name: t
workload: count
text: text.txt
sweep: {batch_size: [1, 2]}
repeats: 2
resources: {gpus: 0}
scheduler: local
"""


ONE_POINT = ("--set", "sweep.batch_size=[1]", "--set", "repeats=1")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("One two.\n\nThree.\n\n  Four five six.\n", encoding="utf-8")
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    return tmp_path


def jobkit(home: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return commands.jobkit(*arguments, cwd=home, env=env)


def test_a_local_sweep_prints_its_table_and_leaves_the_whole_run_folder(home: Path) -> None:
    done = jobkit(home, "sweep", "spec.yaml")
    assert done.returncode == 0, done.stderr
    assert "count" in done.stdout
    (run,) = (home / "runs").iterdir()
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


def test_a_dry_run_prints_script_and_command_and_writes_nothing(home: Path) -> None:
    done = jobkit(home, "sweep", "spec.yaml", "--scheduler", "sge", "--site", "lancaster-hec", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("#!/bin/bash\n")
    assert "#$ -l h_rt=00:10:00" in done.stdout
    assert re.search(r"#   qsub -terse -t 1-4 -tc 4 .*job\.sh", done.stdout)
    assert not (home / "runs").exists()


def slow(home: Path) -> Path:
    """Let the points never end; return the file that appears when one has begun."""
    text = SPEC.replace("workload: count", "workload: odd:Slow")
    text += f"environment: {{variables: {{ODD_TOLD: '{home / 'told'}'}}}}\n"
    (home / "spec.yaml").write_text(text, encoding="utf-8")
    return home / "told"


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_local_run_keeps_what_it_has_and_ends_its_job(
    home: Path, sent: signal.Signals
) -> None:
    told = slow(home)
    env, pipe = {**os.environ, "PYTHONPATH": str(WORKLOADS)}, subprocess.PIPE
    argv = [str(JOBKIT), "sweep", "spec.yaml", *ONE_POINT]
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


def test_a_point_that_is_over_its_walltime_ends_as_timeout(home: Path) -> None:
    slow(home)
    words = (*ONE_POINT, "--set", "resources.walltime=12s", "--set", "policy.timeout.tries=0")
    done = jobkit(home, "sweep", "spec.yaml", *words, PYTHONPATH=str(WORKLOADS))
    assert done.returncode == 4, done.stderr
    record = json.loads(next(home.glob("runs/*/results/*/try-1/record.json")).read_text())
    assert (record["outcome"], record["signal"]) == ("timeout", "USR1")
    assert "its walltime of 00:00:12: " in jobkit(home, "status").stdout


@pytest.mark.parametrize("arguments", [[], *([name] for name in LISTED)])
def test_help_is_a_page_of_documentation(arguments: list[str], tmp_path: Path) -> None:
    done = jobkit(tmp_path, *arguments, "--help")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) >= 10
    assert re.search(r"^ +jobkit \w+", done.stdout, re.MULTILINE), "an example"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sweeep"], "No such command 'sweeep'. Did you mean 'sweep'?"),
        (["xyzzy"], "No such command 'xyzzy'.\n"),
        (["sweep", ""], "'SPEC': it is empty"),
        (["sweep"], "Missing argument 'SPEC'"),
        (["sweep", "gone.yaml"], "gone.yaml: No such file or directory"),
        (["sweep", "spec.yaml", "--shceduler", "sge"], "--scheduler"),
        (["collect", "nowhere"], "nowhere: no such file or folder"),
        (["cancel", "run", "1", "--except", "2"], "not both"),
    ],
)
def test_bad_usage_ends_with_2_and_no_traceback(home: Path, arguments: list[str], said: str) -> None:
    done = jobkit(home, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_site_of_ones_own_is_found_again(home: Path) -> None:
    config = home / "config"
    config.mkdir()
    (config / "site.yaml").write_text("name: ours\nscheduler: local\nsync_interval_s: 1\n", encoding="utf-8")
    done = jobkit(home, "sweep", "spec.yaml", *ONE_POINT, JOBKIT_CONFIG=str(config))
    assert done.returncode == 0, done.stderr
    (run,) = (home / "runs").iterdir()
    assert f"site: {config}/site.yaml" in (run / "sweep.yaml").read_text(encoding="utf-8")
    (home / "near.yaml").write_text("name: near\nscheduler: local\nsync_interval_s: 1\n", encoding="utf-8")
    done = jobkit(home, "sweep", "spec.yaml", "--site", "near.yaml", "--dry-run")
    assert done.returncode == 0, done.stderr


def test_a_full_disk_is_no_bug(home: Path) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run([JOBKIT, "schema"], cwd=home, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.stderr.decode().startswith("jobkit: standard output: No space left on device\n")
    assert done.returncode == 2


def test_a_reader_that_has_gone_is_no_fault(home: Path) -> None:
    (home / "long.sh").write_text("#!/bin/bash\n" + "# SBATCH -n 1\n" * 2000, encoding="utf-8")
    line = f"'{JOBKIT}' lint long.sh | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=home, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("long.sh:2: # SBATCH -n 1\n0\n", "")


def test_the_picture_does_not_replace_the_table(home: Path) -> None:
    (home / "runs").mkdir()
    done = jobkit(home, "collect", "--plot", "same.svg", "--output", "./same.svg")
    assert done.returncode == 2
    assert "--plot and --output both name same.svg" in done.stderr
    assert not (home / "same.svg").exists()
