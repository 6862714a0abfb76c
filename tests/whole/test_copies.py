"""How a job script copies: with rsync, and with cp on a node without it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.records import FOLDER, ModelRef, Outcome
from jobkit.worker.workloads.model import fingerprint
from tests.support.builders import MODEL
from tests.support.copiers import path_without, rsync_of, stand_in
from tests.support.halted import Halted, ended, outcome
from tests.support.halted import halted as halted  # noqa: PLC0414 - a fixture is found by its name here
from tests.whole.test_job_script import DEADLINE_S, ScriptRun, wait_until

BOTH = pytest.mark.parametrize(
    "copier", ["cp", pytest.param("rsync", marks=pytest.mark.program("rsync"))], indirect=True
)
EVERY = pytest.mark.parametrize("copier", ["cp", "rsync 3.2", "rsync 3.5"], indirect=True)
ODD_NAMES = ("with space", "new\nline", "[x]", "-dash", "*", ".hidden", "deep/er/file")


@pytest.fixture
def no_rsync(tmp_path: Path) -> str:
    """Return a PATH with all programs of this machine but rsync."""
    return path_without(tmp_path / "programs", "rsync")


@pytest.fixture
def copier(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, no_rsync: str, tmp_path: Path
) -> str:
    """Have the job script copy with rsync, of a version if one is named, or with cp; return which."""
    name: str = request.param
    program, _, version = name.partition(" ")
    if program == "cp" or version:
        monkeypatch.setenv("PATH", f"{rsync_of(version, tmp_path)}:{no_rsync}" if version else no_rsync)
    return name


def making(files: dict[str, str]) -> dict[str, list[str]]:
    """Return an environment that writes files where a worker writes its results."""
    script = "import os, pathlib, sys; [(p := pathlib.Path(sys.argv[1], name)).parent.mkdir(parents=True, "
    script += f"exist_ok=True) or p.write_text(text) for name, text in {files!r}.items()]"
    return {"setup": [f'python3 -c {shlex.quote(script)} "$work/out"']}


def folder_of_links(at: Path) -> ModelRef:
    """Make a model that is a folder of links, as in a cache of the hub."""
    folder, blobs = at / "model", at / "blobs"
    blobs.mkdir()
    (folder / "tokenizer").mkdir(parents=True)
    for name in ("config.json", "tokenizer/vocab.txt"):
        blob = blobs / name.replace("/", "-")
        blob.write_text(name)
        (folder / name).symlink_to(blob)
    found = fingerprint(folder, "", FOLDER)
    return replace(MODEL, kind=FOLDER, path=str(folder), fingerprint=found)


@BOTH
def test_a_model_is_copied_and_results_of_every_name_come_home_but_nothing_unfinished(
    tmp_path: Path, copier: str
) -> None:
    environment = making(dict.fromkeys((*ODD_NAMES, "half.part"), "text"))
    environment["setup"] += ['ln -s "with space" "$work/out/link"; mkdir "$work/out/empty"']
    run = ScriptRun(tmp_path, environment=environment, model=folder_of_links(tmp_path))
    run.ok(1)
    assert run.record().outcome is Outcome.OK
    assert run.record().copier == copier
    assert all((run.home() / name).read_text() == "text" for name in ODD_NAMES)
    assert (run.home() / "link").readlink() == Path("with space")
    assert (run.home() / "empty").is_dir()
    assert not list(run.dir.rglob("*.part")), "what is being written stays on scratch"
    assert run.left_on_scratch() == []


@BOTH
def test_an_interval_copies_what_has_changed_and_nothing_else(
    tmp_path: Path, copier: str, halted: Halted
) -> None:
    run = ScriptRun(tmp_path, workload="broken:Waits", environment=making({"large": "x" * 2**16, "log": "1"}))
    halted.start(run)
    (out,) = run.own().glob("t-1.*/out")
    wait_until((run.home() / "large").exists)
    seen = []
    for number in range(2, 6):
        (out / "log").write_text("1" * number)
        wait_until(lambda: (run.home() / "log").read_text() == (out / "log").read_text())
        seen.append((run.home() / "large").stat())
    # the second copy may copy again what has changed in the second of the first
    assert len({(status.st_ino, status.st_ctime_ns) for status in seen[2:]}) == 1, copier
    for letter in "yz":  # as large as before, and older; then of the same second too
        (out / "large").write_text(letter * 2**16)
        os.utime(out / "large", (1, 1))
        wait_until(lambda: (run.home() / "large").read_text() == (out / "large").read_text())
    halted.go()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes links of another user")
@EVERY
def test_a_link_of_another_user_leads_to_home_and_to_scratch(tmp_path: Path, copier: str) -> None:
    """The folder with the link is not open to all: there the kernel may refuse it (`protected_symlinks`)."""
    (tmp_path / "real").mkdir()
    link = tmp_path / "a colleague's"
    link.symlink_to("real")
    os.lchown(link, os.geteuid() + 1, -1)
    site = {"scratch": f"{link}/scratch"}
    run = ScriptRun(link, site=site, environment=making({"log": "text"}), model=folder_of_links(link))
    run.ok(1)
    assert run.record().copier == copier.partition(" ")[0]
    assert (run.home() / "log").read_text() == "text"


@pytest.mark.fault
@BOTH
def test_a_file_at_home_that_is_not_as_on_scratch_keeps_scratch(tmp_path: Path, copier: str) -> None:
    """FAULT: the program that copies reports success, but a file at home has not the size of that on scratch.

    HOW: real: a copy that adds a byte at home.
    REPORTED: `stage_out`, with the file in the log.
    LOST: nothing: scratch is kept.
    """
    environment = making({"log": "text"})
    environment["setup"] += [
        'eval "really_$(declare -f copy)"',
        'copy() { really_copy "$@" && [[ ! -e $home/log ]] || echo >>"$home/log"; }',
    ]
    run = ScriptRun(tmp_path, environment=environment)
    status, said = run.run(1)
    assert (status, outcome(run), "is not that on scratch: 4 " in said) == (73, "stage_out", True), said
    assert (Path(run.exit().scratch) / "out" / "log").read_text() == "text", copier


def test_a_copy_that_is_asked_to_end_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_rsync: str
) -> None:
    """The script ends the process that copies at intervals, at any moment of a copy."""
    ends = f'*out/log*) mkdir {tmp_path}/asked && kill -TERM "$PPID" ;;'
    stand_in(tmp_path / "bin", f'case "$*" in {ends} esac', "cp")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{no_rsync}")
    run = ScriptRun(tmp_path, workload="odd:Slow", environment=making({"log": "text"}))
    process = run.start(1, ODD_TOLD=str(tmp_path / "told"))
    wait_until((run.home() / "log").exists)
    process.terminate()
    ended(process)
    assert (tmp_path / "asked").exists()
    assert not list(run.home().glob(".*"))


@pytest.mark.fault
def test_a_job_that_is_killed_while_it_copies_leaves_no_half_file(
    tmp_path: Path, halted: Halted, monkeypatch: pytest.MonkeyPatch, no_rsync: str
) -> None:
    """FAULT: a job is killed while it copies a result home, on a node without rsync.

    HOW: real: kill -9 of all its processes; a stand-in for cp has written the first 10 bytes.
    REPORTED: `cancelled` or `timeout`, from the accounting.
    LOST: the file that was copied at that moment, and what later ones of this try would have brought home.
    """
    half = 'case "$*" in *out/large*) for to; do :; done; printf %10s "" >"$to"'
    stand_in(tmp_path / "bin", f'{half}; echo "$to" >{tmp_path}/copying; kill -STOP $$ ;; esac', "cp")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{no_rsync}")
    run = ScriptRun(tmp_path, workload="broken:Waits", environment=making({"large": "x" * 2**16}))
    process = halted.start(run)
    wait_until((tmp_path / "copying").exists)
    os.killpg(process.pid, signal.SIGKILL)
    ended(process)
    (part,) = run.home().glob(".*.part")
    assert part.stat().st_size == 10
    assert not (run.home() / "large").exists()
    assert not (run.home() / "exit").exists()


@pytest.mark.fault
def test_a_failed_stage_in_stays_the_outcome_if_results_cannot_be_copied_home(tmp_path: Path) -> None:
    """FAULT: the text is removed after the submission, and then a file cannot be copied home.

    HOW: real: it is removed, and a folder has the name of the file.
    REPORTED: `stage_in`, the first cause, and where the file is kept.
    LOST: nothing: scratch is kept.
    """
    environment = making({"note": "a result"})
    environment["setup"] += ['mkdir -p "$home/note/folder"']
    run = ScriptRun(tmp_path, environment=environment)
    run.text.unlink()
    status, said = run.run(1)
    found = run.exit()
    assert (status, found.outcome, found.stage) == (1, Outcome.STAGE_IN, "stage_in"), said
    assert "the text could not be copied" in found.message
    assert "results could not be copied" in found.message
    assert outcome(run) == "stage_in"
    assert (Path(found.scratch) / "out" / "note").read_text() == "a result"
    assert run.left_on_scratch() == [Path(found.scratch).name], "the inputs are removed"


@pytest.mark.fault
@pytest.mark.parametrize(
    ("hidden", "said"), [(("rsync", "cp"), "could not be copied"), (("df",), "df is not on PATH on ")]
)
def test_a_node_without_a_program_that_the_script_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: tuple[str, ...], said: str
) -> None:
    """FAULT: a node lacks a program that the job script needs; or neither rsync nor cp works.

    HOW: real: a PATH without it.
    REPORTED: `environment`, with the program and the node; `stage_in`, if nothing can be copied.
    LOST: nothing; no point ran, and the node keeps no files.
    """
    monkeypatch.setenv("PATH", path_without(tmp_path / "some", *hidden))
    run = ScriptRun(tmp_path)
    status, text = run.run(1)
    outcome = Outcome.ENVIRONMENT if "df" in hidden else Outcome.STAGE_IN
    assert (status, run.exit().outcome, said in run.exit().message) == (1, outcome, True), text
    assert "kept" not in text
    assert not list(run.scratch.rglob("t-1*"))


def test_what_a_copy_leaves_behind_does_not_hold_the_shared_inputs(tmp_path: Path) -> None:
    setup = 'eval "really_$(declare -f copy)"; copy() { really_copy "$@" && { sleep 60 >/dev/null 2>&1 & }; }'
    run = ScriptRun(tmp_path, workload="odd:Slow", environment={"setup": [setup]})
    said = tmp_path / "told"
    process = run.start(1, ODD_TOLD=str(said))
    wait_until(said.exists)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE_S)
    assert subprocess.run(["flock", "-n", run.own() / "lock", "true"], check=False).returncode == 0
    os.killpg(process.pid, signal.SIGKILL)  # those that sleep: a group outlives its leader
    assert run.left_on_scratch() == []
