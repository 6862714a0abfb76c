"""`jobkit shell` without a cluster; with one: tests/cluster/test_shell.py."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import jobkit, ran
from tests.support.copiers import path_without
from tests.support.sites import EXCLUDE, REQUESTS

SPEC = """\
name: t
workload: count
text: text.txt
sweep: {batch_size: [1, 2], threads: [1, 2]}
repeats: 1
resources: {gpus: 0, memory: 100MiB, walltime: "00:01:00"}
"""
SITE = """\
name: lab
scheduler: %s
queue: main
requests: {%s}
scratch: $TMPDIR
"""
SRUN = "srun --pty --partition=main --cpus-per-task=2 --mem=100M --time=00:01:00 --exclude=n1,n2 bash"
QRSH = "qrsh -pty y -now n -cwd -q main -pe smp 2 -l h_vmem=100M -l h_rt=00:01:00 -l 'h=!(n1|n2)' bash"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a user's folder with a blank in its path, on a machine without a scheduler."""
    folder = tmp_path / "my home"
    folder.mkdir()
    (folder / "text.txt").write_text("One.\n\nTwo.\n", encoding="utf-8")
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
    for name, requests in REQUESTS.items():
        (folder / f"{name}.yaml").write_text(SITE % (name, f"{requests}, {EXCLUDE[name]}"), encoding="utf-8")
    schedulers = ("sbatch", "srun", "qsub", "qrsh", "qconf")
    monkeypatch.setenv("PATH", path_without(tmp_path / "programs", *schedulers))
    return folder


def printed(text: str) -> list[str]:
    """Return the commands of an answer."""
    return [line for line in text.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(("scheduler", "line"), [("slurm", SRUN), ("sge", QRSH)])
def test_the_line_has_the_request_of_the_point(scheduler: str, line: str, here: Path) -> None:
    words = ("--scheduler", scheduler, "--site", f"{scheduler}.yaml", "--set", "resources.exclude=[n1, n2]")
    done = ran("shell", "spec.yaml", "--point", "2", *words, cwd=here)
    (run,) = (here / "runs" / "shell").iterdir()
    assert printed(done.stdout) == [line, f"bash {shlex.quote(f'{run}/job.sh')} 2"]
    assert f"there is no {line.split(maxsplit=1)[0]} on this machine" in done.stderr
    assert not (run / "journal.jsonl").read_text(), "nothing was submitted"


@pytest.mark.slow
def test_a_point_of_a_spec_runs_and_no_sweep_or_table_knows_of_it(here: Path) -> None:
    for _ in range(2):
        done = ran("shell", "spec.yaml", "--scheduler", "local", cwd=here)
        (command,) = printed(done.stdout)
        subprocess.run(["bash", "-c", command], check=True, capture_output=True)
    (run,) = (here / "runs" / "shell").iterdir()
    tries = [json.loads(path.read_text()) for path in run.glob("results/*/try-*/record.json")]
    assert [(one["job"]["scheduler"], one["outcome"]) for one in tries] == [("hand", "ok")] * 2

    words = ("--scheduler", "local", "--set", "sweep.threads=1")
    assert jobkit("sweep", "spec.yaml", *words, cwd=here).returncode == 0
    table = json.loads(jobkit("collect", "runs", "--json", cwd=here).stdout)
    assert (len(table["points"]), table["notes"]) == (2, [])

    (run,) = (path for path in (here / "runs").iterdir() if path.name != "shell")
    done = ran("shell", run.name, "--point", "batch_size-2-threads-1-r1", cwd=here)
    assert printed(done.stdout) == [f"bash {shlex.quote(f'{run}/job.sh')} 2"], "a run needs no other folder"


def test_what_cannot_be_done_is_refused_and_writes_nothing(here: Path) -> None:
    wrong = {"spec.yaml --point 9": "1 to 4", "spec.yaml --go": "terminal", "nowhere.yaml": "nowhere.yaml"}
    for words, named in wrong.items():
        done = jobkit("shell", *words.split(), cwd=here)
        assert done.returncode == 2
        assert named in done.stderr
        assert "hint: " in done.stderr
    assert not (here / "runs").exists()


def test_of_a_run_only_its_resources_change(here: Path) -> None:
    ran("shell", "spec.yaml", "--scheduler", "slurm", "--site", "slurm.yaml", cwd=here)
    (run,) = (here / "runs" / "shell").iterdir()
    for words, named in {"--set repeats=2": "repeats=2", "--site slurm.yaml": "--site"}.items():
        refused = jobkit("shell", run, *words.split(), cwd=here)
        assert (refused.returncode, named in refused.stderr) == (2, True), refused.stderr
    changed = jobkit("shell", run, "--set", "resources.walltime=1h", cwd=here)
    assert "--time=01:00:00" in changed.stdout
