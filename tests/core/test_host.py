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


def test_the_site_file_names_the_host(site: Path) -> None:
    assert usual_host() == ""
    long = "ada@hec.example.org:/scratch/ada"
    texts = {"on: hec": "hec", f"# a laptop\non: '{long}'  # the name of ssh\n": long}
    for text, host in {**texts, "name: lab\n": "", "only: x\n  on: hec\n": ""}.items():
        site.write_text(text)
        assert usual_host() == host


@pytest.mark.parametrize("line", ["on hec", "on: [a", "on:", "on: a b"])
def test_a_line_that_names_no_host_is_an_error(site: Path, line: str) -> None:
    site.write_text(f"# a laptop\n{line}\n")
    with pytest.raises(JobkitError) as caught:
        usual_host()
    assert f"{site}:2" in caught.value.message
    assert caught.value.hint == "write: on: HOST"


def test_on_in_the_wrong_place_or_without_a_command_gets_the_whole_command() -> None:
    done = jobkit("sweep", "a.yaml", "--on", "hec", "--new")
    assert (done.returncode, "the command: jobkit --on hec sweep a.yaml --new" in done.stderr) == (2, True)
    done = jobkit("sweep", "a.yaml", "--new", "--on=hec")
    assert (done.returncode, "the command: jobkit --on=hec sweep a.yaml --new" in done.stderr) == (2, True)
    done = jobkit("--on", "hec")
    assert (done.returncode, "command, such as: jobkit --on hec status" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("apply first.yaml --corpus - --out a", "hint: "),
        ("workload", "jobkit workload"),
        ("models fetsh", "jobkit models"),
    ],
)
def test_what_no_host_would_run_is_refused_before_ssh(
    words: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    done = jobkit("--on", "hec", *words.split())
    assert done.returncode == 2
    assert said in done.stdout + done.stderr
    assert "no ssh" not in done.stderr


def test_fetch_without_a_host_says_how() -> None:
    done = jobkit("merge", "tagged", "--fetch")
    assert "jobkit --on HOST merge RUN --fetch" in done.stderr
