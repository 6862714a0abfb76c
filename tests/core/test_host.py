"""Which machine runs a command, and what is said of an option in the wrong place."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.host import usual_host
from tests.support.commands import jobkit


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path))
    return tmp_path / "site.yaml"


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("on: hec", "hec"),
        (
            "# a laptop\non: 'ada@hec.example.org:/scratch/ada'  # the name of ssh\n",
            "ada@hec.example.org:/scratch/ada",
        ),
        ("name: lab\nscheduler: slurm\n", ""),
        ("only: x\n  on: hec\n", ""),
    ],
)
def test_the_site_file_names_the_host(site: Path, text: str, host: str) -> None:
    assert usual_host() == ""
    site.write_text(text)
    assert usual_host() == host


@pytest.mark.parametrize("line", ["on:hec", "on hec", "on: [a", "on:", "on: a b"])
def test_a_line_that_names_no_host_is_an_error(site: Path, line: str) -> None:
    site.write_text(f"# a laptop\n{line}\n")
    with pytest.raises(JobkitError) as caught:
        usual_host()
    assert f"{site}:2" in caught.value.message
    assert caught.value.hint == "write: on: HOST"


@pytest.mark.parametrize("words", ["sweep a.yaml --on hec --new", "sweep a.yaml --new --on=hec"])
def test_on_behind_the_command_gets_the_whole_command(words: str) -> None:
    done = jobkit(*words.split())
    assert done.returncode == 2
    typed = "--on=hec" if "=" in words else "--on hec"
    assert f"--on stands before the command: jobkit {typed} sweep a.yaml --new" in done.stderr


def test_on_without_a_command_gets_an_example() -> None:
    done = jobkit("--on", "hec")
    assert done.returncode == 2
    assert "Missing command, such as: jobkit --on hec status" in done.stderr


@pytest.mark.parametrize("words", ["apply first.yaml --corpus - --out a", "shell first.yaml --go"])
def test_what_needs_this_terminal_is_refused_before_ssh(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    done = jobkit("--on", "hec", *words.split())
    assert done.returncode == 2
    assert "hint: " in done.stderr
    assert "no ssh" not in done.stderr


def test_a_group_without_a_subcommand_says_which_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    for words in (("models",), ("models", "fetsh")):
        done = jobkit("--on", "hec", *words)
        assert done.returncode == 2
        assert "jobkit models" in done.stdout + done.stderr
        assert "no ssh" not in done.stderr


def test_fetch_without_a_host_says_how() -> None:
    done = jobkit("merge", "tagged", "--fetch")
    assert "jobkit --on HOST merge RUN --fetch" in done.stderr
