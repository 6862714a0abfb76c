"""A run as an object of Python: begun here, followed, read, and found again by another process."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, assert_type

import pytest

import jobkit
from jobkit.report.tables import typed
from jobkit.runs.status import RunStatus
from jobkit.spec.yaml_files import as_yaml
from tests.support import public_names
from tests.support.commands import jobkit as jobkit_command

SPEC: dict[str, Any] = {
    "name": "words",
    "workload": "count",
    "text": "sample:30",
    "sweep": {"batch_size": [5, 10]},
    "repeats": 1,
    "resources": {"gpus": 0, "cpus": 1, "memory": "500MiB", "walltime": "5m"},
    "scheduler": "local",
}


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_run_goes_on_without_the_process_that_began_it() -> None:
    begins = f"import jobkit; print(jobkit.sweep({SPEC}).folder)"
    done = subprocess.run([sys.executable, "-c", begins], capture_output=True, text=True, check=True)
    run = jobkit.load(Path(done.stdout.strip()).name)
    assert not jobkit.sweep(SPEC).submitted
    assert jobkit.sweep(SPEC).folder.samefile(run.folder)
    state = assert_type(asyncio.run(ended(run)), RunStatus)
    assert state.exit_code == 0
    assert dict(state.counts) == {"done": 2}
    assert run.wait(timeout=0).counts == state.counts
    assert run.recommend().recommended.params["batch_size"] in {5, 10}
    with pytest.raises(jobkit.NotFoundError, match="no point '7'"):
        run.resume(7)
    assert repr(run) == f"<jobkit.Run {run.folder}: 2 points: 2 done>"
    run.resume()
    assert run.wait(60).exit_code == 0
    with pytest.raises(jobkit.JobkitError, match=r"points\.jsonl"):
        run.report(run.folder / "points.jsonl")
    with pytest.raises(jobkit.JobkitError, match=r"no/run\.html"):
        run.report("no/run.html")
    with pytest.raises(jobkit.JobkitError, match="not a run of jobkit apply"):
        run.merge()
    assert run.report("run.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


async def ended(run: jobkit.Run) -> RunStatus:
    return await run


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_search_and_a_corpus_from_python() -> None:
    found = jobkit.tune({**SPEC, "text": "sample:100", "tune": {"budget": "2s"}}, {"name": "search"})
    assert found.wait(120).exit_code == 0
    tagged = jobkit.apply(found, "sample:40", "tagged", shards=2)
    assert repr(tagged.wait(60)) == f"<jobkit.RunStatus {tagged.folder.absolute()}: 2 shards: 2 done>"
    again = jobkit.apply(found, "sample:40", "tagged")
    assert (tagged.submitted, again.wait(60).exit_code) == (True, 0)
    assert again.frame["items"].sum() == 40
    assert again.frame["tries"].eq(1).all()
    assert again.to_arrow().column("items").to_pylist() == again.frame["items"].tolist()


SSH = """\
#!/bin/sh
case " $* " in *" -O check "*) exit 0 ;; esac
for script; do :; done
unset XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME
HOME={home} SHELL=/bin/none exec sh -c "$script"
"""
"""An ssh whose other end is another home on this machine; its connection is open."""


@pytest.fixture
def host(tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a host ``hec``; return the project there."""
    programs, home = tmp_path / "programs", tmp_path / "there"
    programs.mkdir()
    home.mkdir()
    (programs / "ssh").write_text(SSH.format(home=home), encoding="utf-8")
    (programs / "ssh").chmod(0o755)
    path = (str(programs), str(Path(sys.executable).parent), os.environ["PATH"])
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    return home / "jobkit" / here.name


@pytest.mark.slow
def test_a_host_answers_as_this_machine_does(host: Path, here: Path) -> None:
    (here / "letters.txt").write_text("One.\n\nTwo.\n", encoding="utf-8")
    spec = {**SPEC, "text": "letters.txt"}
    (here / "spec.yaml").write_text(as_yaml(spec), encoding="utf-8")
    sent = jobkit.sweep(here / "spec.yaml", on="hec")
    assert sent.wait(300).exit_code == 0
    assert str(here / "letters.txt") not in (host / sent.folder / "points.jsonl").read_text(encoding="utf-8")
    run = jobkit.sweep(spec, on="hec", new=True)
    state = run.wait(300)
    assert (run.submitted, dict(state.counts), state.exit_code) == (True, {"done": 2}, 0)
    assert (host / run.folder / "points.jsonl").is_file()
    again = jobkit.sweep(spec, on="hec")
    assert (again.submitted, again.folder) == (False, run.folder)
    loaded = jobkit.load(run.folder.name, on="hec")
    assert loaded.frame["items"].tolist() == [2, 2]
    assert loaded.recommend().recommended.params["batch_size"] in {5, 10}
    assert [one.job for one in loaded.jobs] == [one.job for one in state.submissions]
    assert not loaded.resume().submitted
    tagged = jobkit.apply(loaded, "letters.txt", "tagged")
    state = tagged.wait(300)
    assert (tagged.on, dict(state.counts), state.exit_code) == ("hec", {"done": 1}, 0)
    assert tagged.merge().read_text(encoding="utf-8").count("\n") == 2
    assert tagged.cancel().frame["items"].sum() == 2
    with pytest.raises(jobkit.InvalidSpecError, match="wrkload: no such key"):
        jobkit.sweep({**spec, "wrkload": 1}, on="hec")
    with pytest.raises(jobkit.NotFoundError, match="no point '7'"):
        run.resume(7)
    with pytest.raises(jobkit.NotFoundError, match="hec: nosuch"):
        jobkit.load("nosuch", on="hec")


def test_a_type_depends_on_no_other_row() -> None:
    rows: list[dict[str, object]] = [
        {"index": 1, "batch_size": 5, "work_s": 1, "outcome": "ok", "stand_in": True},
        {"index": 2, "batch_size": None, "work_s": 1.5, "outcome": None, "stand_in": None},
    ]
    kinds = {"index": "Int64", "batch_size": "Int64", "work_s": "Float64", "outcome": "string"}
    frame = typed(rows, [*rows[0]])
    assert frame.dtypes.astype(str).to_dict() == kinds | {"stand_in": "boolean"}
    assert frame["batch_size"].isna().tolist() == [False, True]
    names = ["index", "gpu_peak_bytes", "group", "work_s", "outcome"]
    of_numbers = ["Int64", "Int64", "Int64", "Float64"]
    assert typed([{}], names).dtypes.astype(str).tolist() == [*of_numbers, "string"]
    known = dict.fromkeys(names[:4], 1)
    assert typed([known], names[:4]).dtypes.astype(str).tolist() == of_numbers


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        ({**SPEC, "wrkload": 1}, jobkit.InvalidSpecError, "wrkload: no such key"),
        ("no.yaml", jobkit.NotFoundError, "no.yaml: No such file"),
    ],
)
def test_a_program_can_tell_errors_apart(spec: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        jobkit.sweep(spec)
    with pytest.raises(jobkit.InvalidSpecError, match="no argument shard") as refused:
        jobkit.apply("run", "letters.txt", "tagged", shard=4)
    assert "shards, shard_minutes, format" in refused.value.hint
    assert issubclass(jobkit.BusyError, jobkit.RefusedError)
    assert issubclass(jobkit.UnknownError, jobkit.RefusedError)


@pytest.mark.parametrize("words", [("status", "nosuch"), ("status", "--nosuch")])
def test_an_error_is_json_for_a_program_that_asked_for_json(words: tuple[str, ...]) -> None:
    done = jobkit_command(*words, "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["exit_code"]) == (2, 2)
    assert "nosuch" in error["message"]
    assert error["kind"] == ("NotFoundError" if words[1] == "nosuch" else "JobkitError")
    assert error["hint"] in done.stderr.replace("jobkit status --help", "jobkit COMMAND --help")


def test_changes_are_named_by_key() -> None:
    with pytest.raises(jobkit.JobkitError, match="is one text"):
        jobkit.sweep(SPEC, "repeats=1")


def test_what_is_public_changes_on_purpose_only() -> None:
    assert public_names.FILE.read_text(encoding="utf-8").splitlines() == [*public_names.lines()]
