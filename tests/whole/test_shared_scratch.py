"""A node's scratch that is shared with other users, dead jobs, and nodes without locks."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.records import Outcome
from jobkit.worker.workloads.model_files import fingerprint
from tests.support.builders import MODEL, MODEL_FILES, write_model
from tests.support.copiers import path_without, stand_in
from tests.support.halted import Halted, ended, outcome
from tests.support.halted import halted as halted  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.processes import gone
from tests.whole.test_job_script import ScriptRun, wait_until

pytestmark = pytest.mark.fault

OTHER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-euc")
ALONE = "job.sh: this task makes its own copy of the inputs: "


@pytest.fixture
def tmp() -> Iterator[Path]:
    """Return a scratch that all users can write in, as /tmp is."""
    if os.geteuid() != 0:
        pytest.skip("root alone can act as another user")
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def other(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell script as another user."""
    return subprocess.run([*OTHER, script], cwd=folder, capture_output=True, text=True, check=False)


def neighbour(run: ScriptRun) -> ScriptRun:
    """Return another run that uses the same scratch."""
    folder = run.scratch.parent / "2"
    folder.mkdir()
    return ScriptRun(folder, site={"scratch": str(run.scratch)}, run_id="t-2")


FOREIGN = (
    "mkdir -p $OWN/t-1.inputs/model; echo Foreign. >$OWN/t-1.inputs/text; touch $OWN/t-1.inputs/complete"
)


@pytest.mark.parametrize(
    "attack",
    [f"{FOREIGN}; chmod -R a+rwX $OWN", "ln -s /root $OWN", "mkfifo $OWN"],
    ids=["folder", "link to a folder of mine", "fifo"],
)
def test_another_user_was_there_first(tmp_path: Path, tmp: Path, attack: str) -> None:
    """FAULT: another user makes the scratch folder in which a task looks for its inputs.

    HOW: real: another uid makes a folder with its own inputs, links, or a FIFO under that name.
    REPORTED: the log says that the task makes its own copy of the inputs, and why.
    LOST: only the time of a copy: the other user's files are neither used nor touched.
    """
    run = ScriptRun(tmp_path, site={"scratch": str(tmp)})
    run.scratch = tmp
    planted = other(attack.replace("$OWN", run.own().name), tmp)
    assert planted.returncode == 0, planted.stderr
    before = sorted(tmp.rglob("*"))
    status, said = run.run(2)
    assert status == 0, said
    assert f"{ALONE}{run.own()} is not a folder that only user 0 can enter" in said
    summary = run.record(2).summary
    assert summary is not None
    assert summary.items == 3, "the text that was planned"
    assert sorted(tmp.rglob("*")) == before


def test_another_user_holds_locks_and_tries_to_change_the_inputs(
    tmp_path: Path, tmp: Path, halted: Halted
) -> None:
    """FAULT: another user locks the scratch folder, and tries to change the inputs that tasks share.

    HOW: real: another uid holds `flock` on the folder, and writes to every file in it.
    REPORTED: nothing: no job waits, and the other user cannot even list the inputs.
    LOST: nothing.
    """
    with subprocess.Popen(
        [*OTHER, f"exec 8<{tmp}; flock 8; echo held; exec cat"], stdin=-1, stdout=-1
    ) as held:
        assert held.stdout is not None
        assert held.stdout.readline() == b"held\n"
        run = ScriptRun(tmp_path, workload="broken:Waits", site={"scratch": str(tmp)})
        run.scratch = tmp
        process = halted.start(run)
        assert (run.own() / "t-1.inputs" / "text").is_file()
        for attempt in (f"ls {run.own()}", f"echo x >{run.own()}/t-1.inputs/text", f"mv {run.own()} mine"):
            assert other(attempt, tmp).returncode != 0
        halted.go()
        said = ended(process)
        held.communicate()
    assert process.returncode == 0, said
    assert ALONE not in said
    assert run.left_on_scratch() == []


def test_scratch_belongs_to_another_user(tmp_path: Path, tmp: Path) -> None:
    """FAULT: another user makes the scratch folder itself.

    HOW: real: another uid makes the folder that the site file names, open to all.
    REPORTED: `scratch_full`, with the owner of the folder and the advice to name another in the site file.
    LOST: nothing; no point ran.
    """
    assert other("mkdir -m 777 alice", tmp).returncode == 0
    run = ScriptRun(tmp_path, site={"scratch": str(tmp / "alice")})
    status, said = run.run(1)
    assert (status, run.exit().outcome) == (1, Outcome.SCRATCH_FULL), said
    assert "belongs to user 65534" in run.exit().message


def test_a_model_that_has_changed_is_not_used(tmp_path: Path) -> None:
    """FAULT: the model is changed after the submission, or loses a file, or its folder is removed.

    HOW: real: a file of the model is rewritten, then removed, then all of them.
    REPORTED: for a change `stage_in`, with the beginnings of both fingerprints; for a lost file \
    `model_missing`, with its name; for a lost folder `stage_in`: "the model could not be copied", and the \
    message of rsync or cp in the log.
    LOST: nothing; a run never mixes figures of two models.
    """
    tagger = write_model(tmp_path / "model")
    planned = fingerprint(tmp_path / "model", MODEL_FILES)
    ref = replace(MODEL, path=str(tmp_path / "model"), fingerprint=planned)
    run = ScriptRun(tmp_path, model=ref)
    tagger.write_bytes(b"another model")
    assert run.run(1)[0] == 1
    assert run.record().outcome is Outcome.STAGE_IN
    assert "is not the model that was planned: fingerprint " in run.record().message
    assert planned[:12] in run.record().message
    tagger.unlink()
    assert run.run(1)[0] == 1
    assert run.record(1, 2).outcome is Outcome.MODEL_MISSING
    assert "en/ner/n.pt" in run.record(1, 2).message
    shutil.rmtree(tmp_path / "model")
    status, said = run.run(1)
    assert (status, run.exit(1, 3).outcome) == (1, Outcome.STAGE_IN), said
    assert "the model could not be copied" in run.exit(1, 3).message
    assert "No such file or directory" in said
    assert run.left_on_scratch() == []


def test_what_dead_tasks_leave_goes_with_the_next_task(tmp_path: Path, halted: Halted) -> None:
    """FAULT: all processes of two tasks are killed: one before its worker starts, one while it works.

    HOW: real: kill -9 of their process groups, while a task of a third run works on the node.
    REPORTED: what the accounting reports; the next task of the same user on the node removes the folders and
    inputs of both, whatever their run.
    LOST: nothing: files that a live task uses are never removed.
    """

    def run(number: int, **changes: Any) -> ScriptRun:
        folder = tmp_path / str(number)
        folder.mkdir()
        made = ScriptRun(folder, site={"scratch": str(tmp_path / "scratch")}, run_id=f"t-{number}", **changes)
        made.scratch = tmp_path / "scratch"
        return made

    early = run(1, environment={"setup": [f"touch {tmp_path}/begun; sleep 60"]})
    late, live, last = run(2, workload="broken:Waits"), run(3, workload="broken:Waits"), run(4)
    killed = [halted.start(early, 1, until="begun"), halted.start(late, 2)]
    works = halted.start(live, 1)
    for process in killed:
        os.killpg(process.pid, signal.SIGKILL)
        ended(process)
    assert [name[:3] for name in live.left_on_scratch()] == ["t-1", "t-2", "t-2", "t-3", "t-3"]
    status, said = last.run(1)
    assert status == 0, said
    assert [name[:3] for name in live.left_on_scratch()] == ["t-3", "t-3"]
    assert (live.own() / "t-3.inputs" / "text").is_file()
    halted.go()
    ended(works)
    assert outcome(live, 1) == "ok"
    assert live.left_on_scratch() == []


def test_a_task_ends_while_another_looks_for_unused_inputs(tmp_path: Path, halted: Halted) -> None:
    """FAULT: a task removes its folder while another lists the folders whose tasks use the same inputs.

    HOW: fake: a link to nothing as a lock, which is listed and yet does not exist; the rest is real.
    REPORTED: nothing.
    LOST: nothing: the inputs stay as long as a live task uses them.
    """
    run = ScriptRun(tmp_path, workload="broken:Waits")
    works = halted.start(run)
    ends = run.own() / "t-1.0.first"
    ends.mkdir()
    (ends / "lock").symlink_to("gone")
    assert neighbour(run).run(1)[0] == 0
    assert (run.own() / "t-1.inputs" / "text").is_file()
    halted.go()
    ended(works)
    assert outcome(run) == "ok"


@pytest.mark.program("pgrep")
def test_a_worker_that_outlives_its_script(tmp_path: Path, halted: Halted) -> None:
    """FAULT: every process of a task except its worker is killed, and another task begins on the node.

    HOW: real: kill -9 of each process of the job except the worker.
    REPORTED: what the accounting reports.
    LOST: nothing: its folder stays as long as the worker lives; the next task after that removes it.
    """
    run = ScriptRun(tmp_path, workload="broken:Waits")
    killed = halted.start(run)
    worker = halted.worker()
    members = subprocess.run(["pgrep", "-g", str(killed.pid)], capture_output=True, text=True, check=True)
    for pid in map(int, members.stdout.split()):
        if pid != worker:
            os.kill(pid, signal.SIGKILL)
    killed.wait()
    other_run = neighbour(run)
    assert other_run.run(1)[0] == 0
    assert len(run.left_on_scratch()) == 2, "its folder, and the inputs"
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: gone(worker))
    assert other_run.run(1)[0] == 0
    assert run.left_on_scratch() == []


def test_results_that_were_kept_stay(tmp_path: Path) -> None:
    """FAULT: results stay on scratch, because they could not be copied to the run folder; a task follows.

    HOW: real: a file blocks the folder of the try, then a second task runs on the node; fake: a `flock` \
    before which the lock goes of a third task that keeps its results just then.
    REPORTED: `stage_out`, with the folder that keeps the results.
    LOST: nothing: no task removes that folder.
    """
    block = 'mkdir -p "$home/record.json"; touch "$home/record.json/in-the-way"'
    run = ScriptRun(tmp_path, environment={"setup": [f"[[ $point == 2 ]] || {{ {block}; }}"]})
    status, said = run.run(1)
    assert (status, run.exit().outcome) == (73, Outcome.STAGE_OUT), said
    kept = run.own() / "t-1.0.kept"
    (kept / "out").mkdir(parents=True)
    (kept / "lock").touch()
    ends = f'[[ $1 != -n || $2 == "{run.own()}/lock" ]] || rm -f "{kept}/lock"'
    flock = stand_in(tmp_path / "bin", ends, "flock")
    status, said = run.run(2, PATH=f"{flock.parent}:{os.environ['PATH']}")
    assert status == 0, said
    assert (Path(run.exit().scratch) / "out" / "record.json").is_file()
    assert run.left_on_scratch() == sorted([kept.name, Path(run.exit().scratch).name])
    assert [path.name for path in kept.iterdir()] == ["out"]


@pytest.mark.parametrize("body", ["", "echo 'flock: 8: Function not implemented' >&2; exit 71", "exit 0"])
def test_a_node_without_locks(tmp_path: Path, body: str) -> None:
    """FAULT: a node lacks the program `flock`, or its scratch is on a file system without locks.

    HOW: real: a PATH without it; fake: a `flock` that fails as the real one does there, and one that \
    grants every lock.
    REPORTED: the log says that the task makes its own copy of the inputs, and why; `jobkit doctor` warns.
    LOST: only the time of the copies.
    """
    tools = path_without(tmp_path / "bin", "flock")
    if body:
        (tmp_path / "bin" / "flock").write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "bin" / "flock").chmod(0o755)
    run = ScriptRun(tmp_path)
    status, said = run.run(1, PATH=tools)
    assert status == 0, said
    assert f"{ALONE}no file in {run.own()}" in said
    assert run.record().outcome is Outcome.OK
    assert run.left_on_scratch() == []


def test_a_task_that_copies_without_end_holds_no_other(tmp_path: Path, halted: Halted) -> None:
    """FAULT: a task stops in the middle of its copy, as a suspended job does.

    HOW: real: SIGSTOP to its processes while it copies; other tasks wait one second here instead of five
    minutes.
    REPORTED: the log of the next task says that it makes its own copy of the inputs.
    LOST: nothing.
    """
    slow = stand_in(tmp_path / "bin", f"mkdir {tmp_path}/copying && kill -STOP 0")
    run = ScriptRun(tmp_path, environment={"setup": [f"export PATH={slow.parent}:$PATH"]})
    job = run.dir / "job.sh"
    job.write_text(job.read_text().replace("lock 300", "lock 1"), encoding="utf-8")
    stopped = halted.start(run, 1, until="copying")
    status, said = run.run(2)
    assert status == 0, said
    assert ALONE in said
    os.killpg(stopped.pid, signal.SIGCONT)
    assert ended(stopped) is not None
    assert outcome(run, 1) == "ok"
    wait_until(lambda: run.left_on_scratch() == [])
