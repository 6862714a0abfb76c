from __future__ import annotations

import io
import json
import sys
from functools import partial
from pathlib import Path

import pytest

from jobkit.commands.lint import lint
from jobkit.core.errors import JobkitError
from tests.support.commands import called

FAULTY = "#!/bin/bash\n# SBATCH -n 4\n#SBATCH -o logs/%j\n"
CLEAN = "#!/bin/bash\n#SBATCH -n 4\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


run = partial(called, lint)


def write(name: str, text: str) -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def test_findings_go_to_stdout_and_end_with_2_or_there_is_nothing_to_find(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(write("faulty.sh", FAULTY), write("clean.sh", CLEAN)) == 2
    out, err = capsys.readouterr()
    assert out.splitlines()[::3] == ["faulty.sh:2: # SBATCH -n 4", "faulty.sh:3: #SBATCH -o logs/%j"]
    assert err == "2 findings in 2 scripts\n"
    assert run(write("plain.sh", "#!/bin/bash\ntrue\n")) == 0
    assert "plain.sh: has no directive of Slurm or Grid Engine" in capsys.readouterr().err


def test_folders_are_looked_for_from_here(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "logs").mkdir()
    text = "#!/bin/bash\n#SBATCH -o logs/%j\n#$ -S /bin/bash -cwd -o $HOME/logs/x -e ~/logs/y\n"
    assert run(write("mine.sh", text)) == 0
    (here / "logs").rmdir()
    assert run("mine.sh") == 2
    advice = [line for line in capsys.readouterr().out.splitlines() if "mkdir" in line]
    assert advice == [f"    mkdir -p {folder}" for folder in ("logs", "$HOME/logs", "~/logs")]


def test_json_goes_to_stdout_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(write("faulty.sh", FAULTY), "--json") == 2
    out, err = capsys.readouterr()
    (said,) = json.loads(out)["scripts"]
    assert (said["script"], said["schedulers"], err) == ("faulty.sh", ["slurm"], "")
    assert [one["rule"] for one in said["findings"]] == ["misspelt", "folder"]
    assert set(said["findings"][0]) == {"scheduler", "line", "text", "rule", "effect", "message", "hint"}


def test_what_cannot_be_read_is_an_error() -> None:
    Path("program").write_bytes(b"\x7fELF\0\0")
    for name in ("nowhere.sh", ".", "program"):
        with pytest.raises(JobkitError, match=r"cannot be read|not a script"):
            run(name)


def test_any_encoding_will_do(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    raw = "#!/bin/bash\n# é\n# SBATCH --job-name=é\n".encode("latin-1")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    assert run("-") == 2
    assert "write #SBATCH --job-name=\ufffd" in capsys.readouterr().out
