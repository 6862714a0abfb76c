"""A model that is not the real one: what is refused, what is permitted, and what says so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.layout import SPEC_FILE
from jobkit.core.paths import CACHE_VARIABLE
from jobkit.core.records import ModelRef
from jobkit.planning.sample import sample_text
from tests.support.builders import TEXT, grid, record, write_records
from tests.support.commands import jobkit, ran
from tests.whole.specs import write_spec

pytestmark = pytest.mark.xdist_group("torch")  # one test imports it, in its own process

MODELS: dict[str, dict[str, object]] = {
    "first": {"name": "en"},
    "full": {"name": "en", "fallback": "stand-in"},
    "tiny": {"name": "en", "size": "tiny", "fallback": "stand-in"},
}
RESOURCES = {"gpus": 0, "cpus": 1, "memory": "4GiB", "walltime": "00:05:00"}
FETCH = "hint: jobkit models fetch en\n"
LABEL = "STAND-IN model, in place of en tiny"
WARNING = f"warning: {LABEL}: its results are not those of en"


@pytest.fixture
def home(tmp_path: Path, tiny_model: ModelRef, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a text, and a cache that has the tiny stand-in alone."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("JOBKIT_LEDGER", str(tmp_path / "ledger.jsonl"))
    (tmp_path / "cache" / "models").mkdir(parents=True)
    (tmp_path / "cache" / "models" / Path(tiny_model.path).name).symlink_to(tiny_model.path)
    for name in MODELS:
        spec(folder, name)
    return folder


def spec(home: Path, name: str, workload: str = "stanza-ner", of: str = "") -> None:
    """Write a spec with a model of `MODELS`, and its text."""
    text = "Mary lives in London.\n\nA second paragraph, of Berlin.\n"
    keys = {"workload": workload, "model": MODELS[of or name], "resources": RESOURCES}
    write_spec(home, f"{name}.yaml", content=text, sweep={"batch_size": [5]}, **keys)


def measured(run: Path, *, text: str) -> Path:
    """Write a finished run of the tiny stand-in."""
    points = [
        replace(one, model=replace(one.model, size="tiny"), text=replace(TEXT, name=text))
        for one in grid((10, 20), 1, device="cpu")
        if one.model
    ]
    write_records(run, [record(point) for point in points])
    (run / SPEC_FILE).write_text((run.parent / "tiny.yaml").read_text())
    (run / "job.sh").write_text(f"run={run}\n", encoding="utf-8")
    return run


APPLY = ("--corpus", "text.txt", "--out", "tagged")
TO_FULL = "--set model.size=full"


@pytest.mark.parametrize(
    ("words", "then"),
    [
        (("apply", "full.yaml", *APPLY, "--dry-run"), ""),
        (("apply", "tiny.yaml", *APPLY), "`model.size: full` in tiny.yaml"),
        (("apply", "sampled", *APPLY), f"jobkit sweep sampled/sweep.yaml {TO_FULL}"),
        (("tune", "tiny.yaml", "--set", "text=./text.txt"), TO_FULL),
        (("sweep", "tiny.yaml", "--set", "find_max={verify: false}"), TO_FULL),
        (("verify", "run"), f"jobkit sweep run/sweep.yaml {TO_FULL}"),
    ],
)
def test_a_model_that_is_not_the_real_one_is_refused_before_anything_is_written(
    words: tuple[str, ...], then: str, home: Path
) -> None:
    measured(home / "run", text="text.txt")
    measured(home / "sampled", text="sample:300")
    before = sorted(home.rglob("*"))
    done = jobkit(*words)
    assert done.returncode == 2, done.stderr
    assert "STAND-IN model, in place of en" in done.stderr
    assert FETCH in done.stderr
    assert then in done.stderr
    assert "--stand-in" in done.stderr
    assert (done.stdout, sorted(home.rglob("*"))) == ("", before)
    assert len([*(home.parent / "cache" / "models").iterdir()]) == 1  # the full stand-in was not trained


def test_the_sample_and_the_option_permit_it(home: Path, kept_cache: Path) -> None:
    (kept_cache / "lengths").mkdir(exist_ok=True)
    (home.parent / "cache" / "lengths").symlink_to(kept_cache / "lengths")  # `make model` found the sample's
    found = ("--set", "find_max.memory=2GiB")
    for words in (
        ("sweep", "tiny.yaml", "--dry-run", "--set", "text=sample", *found),
        ("sweep", "tiny.yaml", "--dry-run", "--stand-in", *found),
        ("sweep", "first.yaml", "--dry-run", "--stand-in"),
        ("tune", "tiny.yaml", "--dry-run", "--set", "text=sample"),
    ):
        done = ran(*words, cwd=home)
        assert "STAND-IN model" in done.stdout, words


@pytest.mark.fault
def test_a_corpus_with_a_stand_in_says_so_everywhere(home: Path) -> None:
    """FAULT: a corpus was tagged with a stand-in, perhaps by a version that did not ask.

    HOW: real: a corpus, and then its folder as that version wrote it, with a shard that is not done.
    REPORTED: a warning by every command on the corpus.
    LOST: nothing: they go on.
    """
    words = ("apply", "first.yaml", *APPLY, "--stand-in")
    done = ran(*words)
    assert f"model      {LABEL}\n" in done.stderr
    assert WARNING in done.stdout.splitlines()
    for command in ("status", "resume", "merge"):
        again = ran(command, "tagged")
        assert WARNING in again.stdout + again.stderr, command
        assert f", {LABEL}" in again.stdout + again.stderr, command
    (shown,) = json.loads(jobkit("status", "tagged", "--json").stdout)["runs"]
    assert (shown["model"], shown["stand_in"], shown["caveat"]) == ("en tiny", True, "STAND-IN model")
    assert json.loads((home / "tagged" / "provenance.json").read_text())["model"]["caveat"] == LABEL
    kept = (home / "tagged" / SPEC_FILE).read_text()
    assert "size: tiny" in kept
    assert "fallback: stand-in" in kept
    for more in (("--stand-in",), ()):  # planned already: the same command goes on, with a warning
        again = jobkit("apply", "tiny.yaml", *APPLY, *more)
        assert (again.returncode, WARNING in again.stderr) == (0, True), again.stderr
    (home / "tagged" / "provenance.json").unlink()
    for winner in (home / "tagged" / "winners").iterdir():
        winner.unlink()
    for path in (home / "tagged").glob("results/*/try-*/record.json"):
        path.write_text("")
    for command in ("status", "resume", "merge"):
        again = jobkit(command, "tagged")
        assert WARNING in again.stdout + again.stderr, command
        assert again.returncode == 0 or command == "status", again.stderr


def test_the_sample_is_a_corpus_that_a_stand_in_may_tag(home: Path) -> None:
    done = ran("apply", "tiny.yaml", "--corpus", "sample:3", "--out", "tagged", "--dry-run")
    assert ("3 paragraphs" in done.stdout, LABEL in done.stdout) == (True, True)
    (home / "twice.txt").write_text(f"{sample_text(3)}\n{sample_text(3)}")
    twice = jobkit("apply", "tiny.yaml", "--corpus", "twice.txt", "--out", "tagged", "--dry-run")
    both = jobkit("apply", "tiny.yaml", "--corpus", "sample:3", "text.txt", "--out", "tagged", "--dry-run")
    assert (twice.returncode, both.returncode) == (2, 2)
    (home / "sample").mkdir()
    (home / "sample" / "a.txt").write_text("A folder that is named so.\n")
    own = jobkit("apply", "tiny.yaml", "--corpus", "sample", "--out", "tagged", "--dry-run")
    assert (own.returncode, FETCH in own.stderr) == (2, True)


@pytest.mark.usefixtures("home")
def test_the_command_of_the_error_fetches_the_real_model(mirror: tuple[Path, str]) -> None:
    words = ("apply", "full.yaml", *APPLY)
    refused = jobkit(*words)
    assert refused.returncode == 2
    line = next(line for line in refused.stderr.splitlines() if "models fetch" in line)
    fetch = line.partition("hint: jobkit ")[2].split()
    assert jobkit(*fetch, "--resources-url", mirror[1]).returncode == 0
    for more in ((), ("--stand-in",)):
        done = ran(*words, "--dry-run", *more)
        assert "STAND-IN" not in done.stdout + done.stderr
