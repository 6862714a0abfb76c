"""Jobs that are killed; scratch that others share, dead jobs, no locks, a small GPU, a wrong clock."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.layout import read_begin
from jobkit.core.records import STANZA, Outcome
from jobkit.report.tables import collect
from jobkit.runs.reader import read_status
from jobkit.runs.status import PointStanding
from jobkit.runs.tries import worker_s
from jobkit.worker.workloads.model import fingerprint
from tests.support.builders import MODEL, write_model
from tests.support.commands import ended_well
from tests.support.copiers import path_without, stand_in
from tests.support.halted import Halted, ended, outcome
from tests.support.halted import halted as halted  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.processes import gone
from tests.whole.test_job_script import WORKLOADS, ScriptRun, wait_until

pytestmark = pytest.mark.fault

EIGHT = "".join(f"Paragraph {number}.\n\n" for number in range(8))


def test_kill_9_of_one_task_of_several_on_a_node(tmp_path: Path, halted: Halted) -> None:
    """FAULT: the worker of a task is killed with SIGKILL, the script of another, all processes of a third.

    HOW: real: kill -9, while a fourth task of the run works on the same node.
    REPORTED: a worker: `lost` with exit status 137, unless the accounting has the reason (memory, walltime).
    A script: `lost`, "the job script was killed": the process that copies results home ends the worker,
    because its GPU may belong to another job by now, and writes record and exit file. All processes: what the
    accounting reports; without accounting, `lost` after the task was missing in the queue for a minute.
    LOST: nothing: the batches that were done are home; of a task without processes at most one sync interval.
    The inputs stay until the last task has ended, which also removes the folder of a task without processes.
    """
    run = ScriptRun(tmp_path, workload="broken:Waits", sweep={"batch_size": [1, 2, 3, 4]}, text=EIGHT)
    worker, script, all_, last = (halted.start(run, point) for point in (1, 2, 3, 4))
    script.kill()
    os.kill(halted.worker(1), signal.SIGKILL)
    said = ended(worker)
    assert (worker.returncode, run.exit(1).status) == (137, 137), said
    assert outcome(run, 1) == "lost"
    assert "killed (walltime, memory, or a person)" in collect([run.dir]).points.iloc[0]["evidence"]
    wait_until((run.home(3) / "batches.jsonl").exists)
    os.killpg(all_.pid, signal.SIGKILL)
    ended(all_)
    wait_until((run.home(2) / "exit").exists)
    assert gone(halted.worker(2))
    assert (run.exit(2).signal, run.exit(2).message) == ("KILL", "the job script was killed")
    assert run.record(2).outcome is Outcome.LOST
    assert not (run.home(3) / "exit").exists()
    for point in (1, 2, 3):
        assert len((run.home(point) / "batches.jsonl").read_bytes().splitlines()) == 1
    assert "t-1.inputs" in run.left_on_scratch()
    halted.go()
    ended(last)
    assert outcome(run, 4) == "ok"
    wait_until(lambda: run.left_on_scratch() == [])


@pytest.mark.parametrize("word", ["lost", "stage_out"])
def test_scratch_that_is_removed_while_the_task_runs(tmp_path: Path, halted: Halted, word: str) -> None:
    """FAULT: the folder on scratch is removed while the worker works; the script may be killed as well.

    HOW: real: Grid Engine removes the folder of a job whose script was killed while the worker still ends.
    REPORTED: `lost` of a killed script, else `stage_out`: the folder was removed; not that it is kept.
    LOST: what was not copied home yet.
    """
    run = ScriptRun(tmp_path, workload="broken:Waits", text=EIGHT)
    process = halted.start(run)
    (folder,) = (path for path in run.left_on_scratch() if not path.endswith(".inputs"))
    shutil.rmtree(run.own() / folder)
    if word == "lost":
        process.kill()
    halted.go()
    said = ended(process)
    wait_until((run.home() / "exit").exists)
    assert (outcome(run), run.exit().scratch) == (word, "")
    assert ("stage_out" in said) is (word == "stage_out")  # the outcome is looked for in the log, too
    assert run.exit().message.endswith("was removed before all results were at home")


def test_term_while_the_inputs_are_copied(tmp_path: Path, halted: Halted) -> None:
    """FAULT: a job is cancelled while it copies its inputs to the node.

    HOW: real: TERM to all its processes, as scancel does; the copy is slowed down.
    REPORTED: `cancelled`, in step `stage_in`.
    LOST: nothing; the node keeps no files, and the next task copies the inputs again.
    """
    once = f"[[ -e {tmp_path}/copying ]] || {{ touch {tmp_path}/copying; sleep 60 & wait; }}"
    slow = stand_in(tmp_path / "bin", once)
    run = ScriptRun(tmp_path, environment={"setup": [f"export PATH={slow.parent}:$PATH"]})
    process = halted.start(run, until="copying")
    os.killpg(process.pid, signal.SIGTERM)
    ended(process)
    assert (run.exit().signal, run.exit().stage) == ("TERM", "stage_in")
    assert outcome(run) == "cancelled"
    assert run.left_on_scratch() == []


@pytest.mark.parametrize(("at", "word"), [("load", Outcome.CANCELLED), ("record", Outcome.OK)])
def test_term_before_and_after_the_batches(tmp_path: Path, halted: Halted, at: str, word: Outcome) -> None:
    """FAULT: a job is cancelled while the worker loads its model, or while the record is being written.

    HOW: real: TERM to all its processes.
    REPORTED: `cancelled`, in a record without batches; `ok` once all batches are done: the worker has
    finished its work, and completes the record first.
    LOST: nothing: no batch had begun, or all are home.
    """
    run = ScriptRun(tmp_path, workload="broken:Waits")
    process = halted.start(run, at=at)
    os.killpg(process.pid, signal.SIGTERM)
    if at == "record":
        halted.go()
    said = ended(process)
    assert (run.record().outcome, run.exit().signal) == (word, "TERM"), said
    assert (process.returncode, run.record().provisional) == ((0, False) if at == "record" else (143, True))
    assert outcome(run) == word
    assert run.left_on_scratch() == []


def test_a_worker_that_takes_no_notice(tmp_path: Path, halted: Halted) -> None:
    """FAULT: the worker ignores a signal.

    HOW: real: it ignores TERM, as a long call into C does; the script gets the walltime's USR1.
    REPORTED: `timeout`, by the exit file; the script kills the worker before the scheduler does.
    LOST: nothing: at the signal the script copied home the batches done.
    """
    run = ScriptRun(
        tmp_path, workload="broken:Deaf", site={"sync_interval_s": 60, "kill_wait_s": 2, "warning_s": 2}
    )
    process = halted.start(run)
    process.send_signal(signal.SIGUSR1)
    said = ended(process)
    assert process.returncode == 137, said
    assert (run.exit().signal, outcome(run)) == ("USR1", "timeout")
    assert len((run.home() / "batches.jsonl").read_bytes().splitlines()) == 1
    assert gone(halted.worker())
    assert run.left_on_scratch() == []


REQUESTS = {name: f"--{name}={{{name}}}" for name in ("gpus", "cpus", "memory", "walltime")}
PACKED = {"scheduler": "slurm", "requests": REQUESTS}


def test_one_of_several_points_in_a_job_overruns_its_share(tmp_path: Path, halted: Halted) -> None:
    """FAULT: one of several points that share a job (`pack`) overruns its share of the walltime.

    HOW: real: a worker that never ends; bash runs the script with the variables of a job.
    REPORTED: `timeout` for that point, with the batches done; the points after it run normally.
    LOST: nothing.
    """
    resources = {"gpus": 0, "walltime": "00:00:06"}
    run = ScriptRun(tmp_path, workload="broken:Waits", pack=2, site=PACKED, resources=resources)
    (run.dir / "tasks-1.txt").write_text("1 2\n")
    waits = {"BROKEN_AT": "batch", "BROKEN_TOLD": str(tmp_path / "told"), "BROKEN_GO": str(tmp_path / "go")}
    job = {"SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "1"}
    process = run.start("--list", "tasks-1.txt", "0", **job, **waits)
    halted.started.append(process)
    wait_until((run.home(2) / "begin").exists)
    halted.go()
    said = ended(process)
    assert process.returncode == 1, said
    assert [outcome(run, point) for point in (1, 2)] == ["timeout", "ok"]
    assert run.record(1).summary is not None
    assert run.record(1).signal == "USR1"


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
    ended_well(other(attack.replace("$OWN", run.own().name), tmp))
    before = sorted(tmp.rglob("*"))
    said = run.ok(2)
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


def test_scratch_is_open_to_all_without_the_sticky_bit(tmp_path: Path, tmp: Path) -> None:
    """FAULT: everyone can rename and remove the folders of others on scratch.

    HOW: real: the scratch folder has the mode 777; then it gets the sticky bit.
    REPORTED: `scratch_full`, with the mode and the advice to name another folder in the site file.
    LOST: nothing; no point ran. The next task removes what one without a lock left.
    """
    (tmp / "open").mkdir()
    (tmp / "open").chmod(0o777)
    run = ScriptRun(tmp_path, site={"scratch": str(tmp / "open")})
    run.scratch = tmp / "open"
    status, said = run.run(1)
    assert (status, run.exit().outcome) == (1, Outcome.SCRATCH_FULL), said
    assert "(drwxrwxrwx) without the sticky bit" in run.exit().message
    (tmp / "open").chmod(0o1777)
    for name in ("t-1.7.1.abcdef", "t-1.7.2.abcdef/out", "t-1.7.3.abcdef/out", "t-1.7.4.abcdef"):
        (run.own() / name).mkdir(parents=True)
    (run.own() / "t-1.7.3.abcdef" / "out" / "record.json").touch()  # kept, because home was full
    for name in ("t-1.7.1.abcdef", "t-1.7.2.abcdef", "t-1.7.3.abcdef"):
        os.utime(run.own() / name, (0, 0))
    run.own().chmod(0o700)
    run.ok(2)
    assert {path.name for path in run.own().glob("t-1.7.*")} == {"t-1.7.3.abcdef", "t-1.7.4.abcdef"}


def test_a_model_or_a_text_that_has_changed_is_not_used(tmp_path: Path) -> None:
    """FAULT: text or model is changed after the submission; the model loses a file, or its folder is removed.

    HOW: real: the text is rewritten; a file of the model is rewritten, then removed, then all of them.
    REPORTED: for a change `stage_in`, with the beginnings of both checksums; for a lost file \
    `model_missing`, with its name; for a lost folder `stage_in`: "the model could not be copied", and the \
    message of rsync or cp in the log.
    LOST: nothing; a run never mixes figures of two texts or models.
    """
    tagger = write_model(tmp_path / "model")
    planned = fingerprint(tmp_path / "model", MODEL.name, STANZA)
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
    run.text.write_text("Another text.\n", encoding="utf-8")
    assert run.run(2)[0] == 1
    assert run.record(2).outcome is Outcome.STAGE_IN
    assert "is not the text that was planned: sha256 " in run.record(2).message
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
    last.ok(1)
    assert [name[:3] for name in live.left_on_scratch()] == ["t-3", "t-3"]
    assert (live.own() / "t-3.inputs" / "text").is_file()
    halted.go()
    ended(works)
    assert outcome(live, 1) == "ok"
    assert live.left_on_scratch() == []


def test_a_worker_that_outlives_its_script(tmp_path: Path, halted: Halted) -> None:
    """FAULT: every process of a task except its worker is killed, and another task begins on the node.

    HOW: real: kill -9 of each process of the job except the worker; fake: a link to nothing as the lock of a
    task that ends just then, which is listed and yet does not exist.
    REPORTED: what the accounting reports.
    LOST: nothing: its folder stays as long as the worker lives; the next task after that removes it.
    """
    run = ScriptRun(tmp_path, workload="broken:Waits")
    killed = halted.start(run)
    worker = halted.worker()
    for pid in (int(path.name) for path in Path("/proc").glob("[0-9]*")):
        with contextlib.suppress(ProcessLookupError):
            if pid != worker and os.getpgid(pid) == killed.pid:
                os.kill(pid, signal.SIGKILL)
    killed.wait()
    ends = run.own() / "t-1.0.first"
    ends.mkdir()
    (ends / "lock").symlink_to("gone")
    other_run = neighbour(run)
    assert other_run.run(1)[0] == 0
    assert len({*run.left_on_scratch()} - {ends.name}) == 2, "its folder, and the inputs"
    shutil.rmtree(ends, ignore_errors=True)
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: gone(worker))
    assert other_run.run(1)[0] == 0
    assert run.left_on_scratch() == []


def test_results_that_were_kept_stay(tmp_path: Path) -> None:
    """FAULT: results stay on scratch, because they could not be copied to the run folder; a task follows.

    HOW: real: a file blocks the folder of the try, then a second task runs on the node; fake: a `flock` \
    before which the lock goes of a third task that keeps its results just then.
    REPORTED: `stage_out`, with the folder that keeps the results.
    LOST: nothing: a task removes that folder only after a good try of its point; then nothing names it.
    """
    block = 'mkdir -p "$home/record.json"; touch "$home/record.json/in-the-way"'
    run = ScriptRun(tmp_path, environment={"setup": [f"[[ $point$try != 11 ]] || {{ {block}; }}"]})
    status, said = run.run(JOBKIT_TASK="1")
    assert (status, run.exit().outcome) == (73, Outcome.STAGE_OUT), said
    kept = run.own() / "t-1.0.kept"
    (kept / "out").mkdir(parents=True)
    (kept / "lock").touch()
    ends = f'[[ $1 != -n || $2 == "{run.own()}/lock" ]] || rm -f "{kept}/lock"'
    flock = stand_in(tmp_path / "bin", ends, "flock")
    run.ok(2, PATH=f"{flock.parent}:{os.environ['PATH']}")
    assert (Path(run.exit().scratch) / "out" / "record.json").is_file()
    assert run.left_on_scratch() == sorted([kept.name, Path(run.exit().scratch).name])
    assert [path.name for path in kept.iterdir()] == ["out"]
    run.ok(1)  # by hand, so it counts for nothing
    assert Path(run.exit().scratch).is_dir()
    run.ok(JOBKIT_TASK="1")
    assert (run.exit().scratch, run.exit().outcome) == ("", Outcome.STAGE_OUT)
    assert run.left_on_scratch() == [kept.name], "it is of another try"


def test_results_in_a_folder_that_goes_with_the_job_are_not_kept(tmp_path: Path) -> None:
    """FAULT: results cannot be copied home, and scratch is the `$TMPDIR` that Grid Engine makes for the job.

    HOW: real: a folder blocks a file of the try; fake: no Grid Engine removes the folder.
    REPORTED: `stage_out`, and that Grid Engine removes the folder; not that it is kept.
    LOST: the results: only a scratch folder in the site file outlives the job.
    """
    block = 'mkdir -p "$home/record.json/in-the-way"'
    requests = {"memory": "-l mem_free={memory}", "walltime": "-l h_rt={walltime}"}
    site = {"scheduler": "sge", "scratch": "$TMPDIR", "requests": requests}
    run = ScriptRun(tmp_path, environment={"setup": [block]}, site=site, resources={"gpus": 0, "cpus": 1})
    status, said = run.run(JOB_ID="7", SGE_TASK_ID="1", TMPDIR=str(tmp_path))
    assert (status, run.exit().outcome, run.exit().scratch) == (73, Outcome.STAGE_OUT, ""), said
    assert f"Grid Engine removes {tmp_path} with the job" in run.exit().message
    assert "kept" not in said


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
    said = run.ok(1, PATH=tools)
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
    said = run.ok(2)
    assert ALONE in said
    os.killpg(stopped.pid, signal.SIGCONT)
    assert ended(stopped) is not None
    assert outcome(run, 1) == "ok"
    wait_until(lambda: run.left_on_scratch() == [])


def test_a_card_that_was_too_small_for_one_point(tmp_path: Path) -> None:
    """FAULT: a point runs out of GPU memory, and larger points on the same kind of GPU would too.

    HOW: fake: an NVML with one GPU, and an error as torch raises it; script, gate and worker are real.
    REPORTED: `gpu_oom` for that point, `pruned` for larger points on the same kind of GPU, before anything
    is copied to the node; smaller points run, and so do all points on another kind of GPU.
    LOST: nothing: both are results, and GPU time is saved.
    """
    run = ScriptRun(tmp_path, workload="broken:TooLarge", sweep={"batch_size": [1, 2, 3]}, device="cuda")
    fake = {"PYTHONPATH": f"{WORKLOADS}/nvml:{WORKLOADS}", "JOBKIT_JOB": "77", "BROKEN_FROM": "2"}
    ends = [
        run.run("--offset", 0, JOBKIT_TASK=point, FAKE_CARD=card, **fake)
        for point, card in (("2", "V100"), ("3", "V100"), ("1", "V100"), ("3", "A100"))
    ]
    assert [status for status, _ in ends] == [0] * 4, ends
    assert run.record(2).outcome is Outcome.GPU_OOM
    pruned = run.exit(3)
    assert (pruned.outcome, pruned.stage) == (Outcome.PRUNED, "gate")
    assert pruned.message == "batch_size-2-r1 ran out of memory on V100, with a smaller load"
    assert run.record(1).outcome is Outcome.OK
    assert run.record(3, 2).outcome is Outcome.GPU_OOM, "it ran, on another card"


def test_a_node_whose_clock_is_wrong(tmp_path: Path) -> None:
    """FAULT: the node's clock is three hours ahead of the login node's, or behind it.

    HOW: fake: `date` and Python's clock show another time in the job.
    REPORTED: nothing: each duration is measured by one clock, so none is negative.
    LOST: nothing.
    """
    date = tmp_path / "bin" / "date"
    date.parent.mkdir()
    date.write_text(f'#!/bin/bash\nexec {shutil.which("date")} -d "$((CLOCK_OFF_S)) seconds" "$@"\n')
    date.chmod(0o755)
    run = ScriptRun(tmp_path)
    paths = {
        "PATH": f"{date.parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{WORKLOADS}/clock:{WORKLOADS}",
    }
    for point, off_s in ((1, 3 * 3600), (2, -3 * 3600)):
        run.ok(point, CLOCK_OFF_S=str(off_s), **paths)
        begun = datetime.fromisoformat(read_begin(run.home(point) / "begin").at)
        record = run.record(point)
        for told in (begun, datetime.fromisoformat(record.started_at)):
            assert abs((told - datetime.now(UTC)).total_seconds() - off_s) < 300
        took = worker_s(record)
        assert took is not None
        assert 0 <= took < 60
    found = collect([run.dir]).points
    assert found["outcome"].tolist() == ["ok", "ok"]
    assert (found.select_dtypes("number").fillna(0) >= 0).all(axis=None)
    (seen,) = read_status([run.dir], ask=False)
    assert [point.standing for point in seen.points] == [PointStanding.DONE] * 2
