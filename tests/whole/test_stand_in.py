"""A model that is not the real one: what is refused, what is permitted, and what says so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.layout import SPEC_FILE, read_points
from jobkit.core.paths import CACHE_VARIABLE, LEDGER_VARIABLE
from jobkit.core.records import FOLDER, ModelRef
from jobkit.planning.models import find_or_stand_in
from jobkit.planning.sample import sample_text
from tests.support.builders import TEXT, grid, record, write_records
from tests.support.commands import jobkit

pytestmark = pytest.mark.xdist_group("whole-stand-in")

SPEC = """\
name: first
workload: stanza-ner
text: docs.txt
model: {name: en%s}
sweep: {batch_size: [5]}
device: cpu
scheduler: local
resources: {gpus: 0, cpus: 1, memory: 4GiB, walltime: "00:05:00"}
"""
FALLBACK, TINY = ", fallback: stand-in", ", size: tiny, fallback: stand-in"
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
    monkeypatch.setenv(LEDGER_VARIABLE, str(tmp_path / "ledger.jsonl"))
    (tmp_path / "cache" / "models").mkdir(parents=True)
    (tmp_path / "cache" / "models" / Path(tiny_model.path).name).symlink_to(tiny_model.path)
    (folder / "docs.txt").write_text(
        "Mary lives in London.\n\nA second paragraph, of Berlin.\n", encoding="utf-8"
    )
    for name, model in {"first": "", "full": FALLBACK, "tiny": TINY}.items():
        (folder / f"{name}.yaml").write_text(SPEC % model, encoding="utf-8")
    return folder


def measured(run: Path, *, text: str) -> Path:
    """Write a finished run of the tiny stand-in."""
    points = [
        replace(one, model=replace(one.model, size="tiny"), text=replace(TEXT, name=text))
        for one in grid((10, 20), 1, device="cpu")
        if one.model
    ]
    write_records(run, [record(point) for point in points])
    (run / SPEC_FILE).write_text(SPEC % TINY, encoding="utf-8")
    (run / "job.sh").write_text(f"run={run}\n", encoding="utf-8")
    return run


APPLY = ("--corpus", "docs.txt", "--out", "tagged")
TO_FULL = "--set model.size=full"


@pytest.mark.parametrize(
    ("words", "then"),
    [
        (("apply", "full.yaml", *APPLY), ""),
        (("apply", "full.yaml", *APPLY, "--dry-run"), ""),
        (("apply", "tiny.yaml", *APPLY), "`model.size: full` in tiny.yaml"),
        (("apply", "run", *APPLY), f"jobkit sweep run/sweep.yaml {TO_FULL}"),
        (("apply", "sampled", *APPLY), f"jobkit sweep sampled/sweep.yaml {TO_FULL}"),
        (("apply", "run", *APPLY, "--plan-as-job"), f"jobkit sweep run/sweep.yaml {TO_FULL}"),
        (("tune", "full.yaml"), ""),
        (("tune", "tiny.yaml", "--set", "text=./docs.txt"), TO_FULL),
        (("sweep", "full.yaml", "--set", "find_max.memory=2GiB"), ""),
        (("sweep", "tiny.yaml", "--set", "find_max={verify: false}"), TO_FULL),
        (("verify", "run"), f"jobkit sweep run/sweep.yaml {TO_FULL}"),
    ],
)
def test_a_model_that_is_not_the_real_one_is_refused_before_anything_is_written(
    words: tuple[str, ...], then: str, home: Path
) -> None:
    measured(home / "run", text="docs.txt")
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


@pytest.mark.parametrize(
    "words",
    [
        ("sweep", "tiny.yaml", "--dry-run"),
        ("sweep", "tiny.yaml", "--dry-run", "--set", "text=sample:5", "--set", "find_max.memory=2GiB"),
        ("sweep", "tiny.yaml", "--dry-run", "--stand-in", "--set", "find_max.memory=2GiB"),
        ("tune", "tiny.yaml", "--dry-run", "--set", "text=sample:5"),
        ("tune", "first.yaml", "--dry-run", "--stand-in"),
        ("sweep", "first.yaml", "--dry-run", "--stand-in"),
        ("preflight", "first.yaml", "--stand-in"),
    ],
)
def test_the_sample_and_the_option_permit_it(words: tuple[str, ...], home: Path) -> None:
    done = jobkit(*words, cwd=home)
    assert done.returncode == 0, done.stderr
    assert "STAND-IN model" in done.stdout


def test_a_corpus_with_a_stand_in_says_so_everywhere(home: Path) -> None:
    words = ("apply", "first.yaml", *APPLY, "--stand-in")
    done = jobkit(*words)
    assert done.returncode == 0, done.stderr
    assert f"model      {LABEL}\n" in done.stderr
    assert WARNING in done.stdout.splitlines()
    for command in ("status", "resume", "merge"):
        again = jobkit(command, "tagged")
        assert again.returncode == 0, again.stderr
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


def test_the_sample_is_a_corpus_that_a_stand_in_may_tag(home: Path) -> None:
    done = jobkit("apply", "tiny.yaml", "--corpus", "sample:3", "--out", "tagged", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert ("3 paragraphs" in done.stdout, LABEL in done.stdout) == (True, True)
    (home / "twice.txt").write_text(f"{sample_text(3)}\n{sample_text(3)}")
    twice = jobkit("apply", "tiny.yaml", "--corpus", "twice.txt", "--out", "tagged", "--dry-run")
    both = jobkit("apply", "tiny.yaml", "--corpus", "sample:3", "docs.txt", "--out", "tagged", "--dry-run")
    assert (twice.returncode, both.returncode) == (2, 2)
    (home / "sample").mkdir()
    (home / "sample" / "a.txt").write_text("A folder that is named so.\n")
    own = jobkit("apply", "tiny.yaml", "--corpus", "sample", "--out", "tagged", "--dry-run")
    assert (own.returncode, FETCH in own.stderr) == (2, True)


def test_the_command_of_the_error_fetches_the_real_model(home: Path, mirror: tuple[Path, str]) -> None:
    words = ("apply", "full.yaml", *APPLY)
    refused = jobkit(*words)
    assert refused.returncode == 2
    line = next(line for line in refused.stderr.splitlines() if "models fetch" in line)
    fetch = line.partition("hint: jobkit ")[2].split()
    assert jobkit(*fetch, "--resources-url", mirror[1]).returncode == 0
    done = jobkit(*words)
    assert done.returncode == 0, done.stderr
    assert "STAND-IN" not in done.stdout + done.stderr
    point = read_points(home / "tagged")[0][0]
    assert point.model
    assert not point.model.stand_in
    permitted = jobkit(
        "apply", "full.yaml", "--corpus", "docs.txt", "--out", "again", "--stand-in", "--dry-run"
    )
    assert (permitted.returncode, "STAND-IN" in permitted.stderr) == (0, False)


def test_a_folder_of_an_earlier_version_warns_and_goes_on(home: Path) -> None:
    """FAULT: a corpus was tagged with a stand-in by a version that did not ask.

    HOW: real: a folder as that version wrote it, with a shard that is not done.
    REPORTED: a warning by `jobkit status`, `jobkit resume` and `jobkit merge`.
    LOST: nothing: they go on.
    """
    assert jobkit("apply", "tiny.yaml", *APPLY, "--stand-in").returncode == 0
    tagged = home / "tagged"
    (tagged / "provenance.json").unlink()
    for winner in (tagged / "winners").iterdir():
        winner.unlink()
    for record_ in tagged.glob("results/*/try-*/record.json"):
        record_.write_text("")
    status = jobkit("status", "tagged")
    assert WARNING in status.stdout
    resumed = jobkit("resume", "tagged")
    assert (resumed.returncode, WARNING in resumed.stderr) == (0, True), resumed.stderr
    joined = jobkit("merge", "tagged")
    assert (joined.returncode, WARNING in joined.stderr) == (0, True), joined.stderr


def test_random_weights_are_a_stand_in_too(home: Path) -> None:
    spec = SPEC.replace("stanza-ner", "hf-token-classification") % FALLBACK
    (home / "random.yaml").write_text(spec, encoding="utf-8")
    done = jobkit("apply", "random.yaml", *APPLY)
    if "is not installed" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 2
    assert "RANDOM weights, architecture bert-base, in place of dslim/bert-base-NER" in done.stderr
    assert "hint: jobkit models fetch dslim/bert-base-NER\n" in done.stderr


def test_a_workload_without_a_model_is_not_concerned(home: Path) -> None:
    done = jobkit("apply", "tiny.yaml", *APPLY, "--dry-run", "--set", "workload=count")
    assert done.returncode == 2  # the workload belongs to the setting
    (home / "count.yaml").write_text((SPEC % TINY).replace("stanza-ner", "count"), encoding="utf-8")
    done = jobkit("apply", "count.yaml", *APPLY, "--dry-run")
    assert (done.returncode, "STAND-IN" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize(
    ("asked", "size"), [({}, "tiny"), ({"fallback": "stand-in"}, "full"), ({"size": "full"}, "full")]
)
def test_the_option_takes_the_tiny_one_unless_the_spec_names_another(
    asked: dict[str, object], size: str, home: Path
) -> None:
    found = find_or_stand_in("stanza-ner", {"name": "en", **asked}, home, home.parent / "cache")
    assert (found.size, found.stand_in) == (size, True)


def test_the_option_takes_the_real_model_if_it_is_there(home: Path) -> None:
    (home / "mine").mkdir()
    (home / "mine" / "config.json").write_text("{}")
    found = find_or_stand_in("hf-token-classification", {"path": "mine"}, home, home.parent / "cache")
    assert (found.kind, found.stand_in) == (FOLDER, False)
