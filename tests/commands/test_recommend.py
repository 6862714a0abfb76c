"""The command, over a real run of ``count`` made here, and over records of a GPU."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from jobkit.core.files import write_atomically
from jobkit.core.layout import ENTITIES_FILE
from jobkit.worker.workloads.base import Entity, as_tsv
from tests.support.builders import point, try_folder
from tests.support.commands import ended_well, jobkit
from tests.support.recommendations import measured, records, write_run

SPEC = """\
name: words
workload: count
text: sample:200
sweep: {batch_size: [5, 200]}
repeats: 2
device: cpu
resources: {gpus: 0, cpus: 1, memory: 1GiB}
scheduler: local
"""
MARGINS = ("--margin half", "--margin 1", "--margin=-0.1", "--margin nan")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the run of a sweep of ``count`` that ran here."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "words.yaml").write_text(SPEC, encoding="utf-8")
    ended_well(jobkit("sweep", "words.yaml", cwd=folder, env={"JOBKIT_CACHE": str(folder / "cache")}))
    return folder


@pytest.fixture
def here(ran: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the same as the working directory."""
    monkeypatch.setenv("JOBKIT_CACHE", str(ran / "cache"))
    monkeypatch.chdir(ran)
    return ran


def test_gpus_by_name_or_by_size_and_a_margin_that_is_a_share(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "demo", records())
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    out = jobkit("recommend", folder, "--gpu", "t4,H100").stdout
    assert ("\nt4 " in out, "\nh100 " in out) == (True, True)
    done = jobkit("recommend", folder, "--gpu-memory", "3GiB", "--margin", "5%")
    assert ("\n3GiB " in done.stdout, "next: " in done.stderr) == (True, False), "apply has no such option"
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before, "nothing is written"
    assert jobkit("collect", folder, "--gpu-memory", "3GiB").stderr.endswith("demo --gpu-memory 3GiB\n")
    refused = {"--gpu t4 --gpu-memory 3GiB": "both name", "--gpu t44": "did you mean 't4'"}
    for words, said in {**refused, **dict.fromkeys(MARGINS, "not a share")}.items():
        done = jobkit("recommend", folder, *words.split())
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_a_knob_that_changes_the_rows_is_chosen_by_a_person_and_not_by_speed(tmp_path: Path) -> None:
    told = []
    for index, own in enumerate(product([10, 100], [3, 8]), start=1):
        at = point(index, params=dict(zip(("batch_size", "shortest"), own, strict=True)), device="cpu")
        told.append(measured(replace(at, workload_folder="/here"), rate=10.0 * index))
    folder = write_run(tmp_path / "own", told)
    for at_8, words in {1: "(2 rows at 3, 1 at 8)", 2: "(2 rows at 3, 2 at 8, but other rows)"}.items():
        for one in told:
            shortest = one.point.numbers["shortest"]
            ends = range(2 if shortest == 3 else at_8)
            entities = as_tsv(Entity(0, "Ann", "NAME", shortest, end) for end in ends)
            write_atomically(try_folder(folder, one.point) / ENTITIES_FILE, entities)
        done = jobkit("recommend", folder)
        assert (done.returncode, f"shortest changes the result {words}" in done.stderr) == (2, True)
        assert f"jobkit recommend {folder} --set sweep.shortest=3" in done.stderr
        assert "shortest changes the result" in jobkit("collect", folder).stdout
    done = jobkit("recommend", folder, "--set", "sweep.shortest=3")
    assert "Take batch_size 100, shortest 3:" in done.stdout
    assert "--out tagged --set sweep.shortest=3" in done.stderr
    assert "measured were 3, 8" in jobkit("recommend", folder, "--set", "sweep.shortest=5").stderr


def test_a_corpus_with_another_field_or_encoding_is_refused_with_what_reads_it(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "demo", records())
    (tmp_path / "a.jsonl").write_text('{"words": "Hello."}\n', encoding="utf-8")
    (tmp_path / "b.txt").write_text("caf\xe9\n", encoding="latin-1")
    done = jobkit("recommend", folder, "--corpus", "a.jsonl", cwd=tmp_path)
    assert "jobkit apply RUN --corpus a.jsonl --out DIR --dry-run has these options" in done.stderr
    assert "--text-field NAME" in done.stderr
    assert "iconv -f latin1" in jobkit("recommend", folder, "--corpus", "b.txt", cwd=tmp_path).stderr


@pytest.mark.slow
def test_without_a_run_the_first_line_names_the_latest(here: Path) -> None:
    (name,) = (f"runs/{path.name}" for path in (here / "runs").iterdir())
    assert jobkit("recommend").stdout.splitlines()[0] == f"Of the latest run, {name}:"
    assert jobkit("collect").stdout.splitlines()[0] == f"Of 1 run: {name}"
    assert name not in jobkit("collect", name).stdout.splitlines()[0]


@pytest.mark.slow
def test_what_finds_the_longest_items_works_as_printed(here: Path) -> None:
    (here / "letters.txt").write_text("A letter.\n\nAnother one, which is longer.\n", encoding="utf-8")
    told = jobkit("recommend", "--corpus", "letters.txt", "--why").stdout
    command = re.search(r"jobkit (preflight .*) finds them", " ".join(told.split()))
    assert command
    done = ended_well(jobkit(*shlex.split(command[1].replace("FILE", "letters.txt"))))
    assert "letters.txt" in done.stdout.splitlines()[0]
    assert "next: jobkit sweep " in done.stderr
    assert "next: jobkit apply " in jobkit("report").stderr
