from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from tests.support.commands import jobkit, ran

FAULTY = "#!/bin/bash\n# SBATCH -n 4\n#SBATCH -o logs/%j\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def write(name: str, text: str) -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def test_findings_go_to_stdout_and_end_with_2_or_there_is_nothing_to_find() -> None:
    done = jobkit("lint", write("faulty.sh", FAULTY), write("clean.sh", "#!/bin/bash\n#SBATCH -n 4\n"))
    assert (done.returncode, done.stderr) == (2, "2 findings in 2 scripts\n")
    assert done.stdout.splitlines()[::3] == ["faulty.sh:2: # SBATCH -n 4", "faulty.sh:3: #SBATCH -o logs/%j"]
    done = ran("lint", write("plain.sh", "#!/bin/bash\ntrue\n"))
    assert "plain.sh: has no directive of Slurm or Grid Engine" in done.stderr


def test_folders_are_looked_for_from_here(here: Path) -> None:
    (here / "logs").mkdir()
    text = "#!/bin/bash\n#SBATCH -o logs/%j\n#$ -S /bin/bash -cwd -o $HOME/logs/x -e ~/logs/y\n"
    assert jobkit("lint", write("mine.sh", text)).returncode == 0
    (here / "logs").rmdir()
    done = jobkit("lint", "mine.sh")
    assert done.returncode == 2
    advice = [line for line in done.stdout.splitlines() if "mkdir" in line]
    assert advice == [f"    mkdir -p {folder}" for folder in ("logs", "$HOME/logs", "~/logs")]


def test_json_goes_to_stdout_alone() -> None:
    done = jobkit("lint", write("faulty.sh", FAULTY), "--json")
    (said,) = json.loads(done.stdout)["scripts"]
    assert (done.returncode, said["script"], said["schedulers"]) == (2, "faulty.sh", ["slurm"])
    assert [one["rule"] for one in said["findings"]] == ["misspelt", "folder"]
    assert set(said["findings"][0]) == {"scheduler", "line", "text", "rule", "effect", "message", "hint"}
    assert done.stderr == ""


def test_what_cannot_be_read_is_an_error() -> None:
    Path("program").write_bytes(b"\x7fELF\0\0")
    for name in ("nowhere.sh", ".", "program"):
        said = "not a script" if name == "program" else "cannot be read"
        done = jobkit("lint", name)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_any_encoding_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = "#!/bin/bash\n# é\n# SBATCH --job-name=é\n".encode("latin-1")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    done = jobkit("lint", "-")
    assert (done.returncode, "write #SBATCH --job-name=\ufffd" in done.stdout) == (2, True)
