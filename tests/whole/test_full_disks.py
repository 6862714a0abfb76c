"""Disks that are full or read-only: on the node and at home."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.files import append_line
from jobkit.core.records import Outcome
from jobkit.launch.cancel import cancel
from jobkit.launch.job import Job
from jobkit.launch.scheduler_calls import SubmissionUnconfirmed, submit_array
from jobkit.report.tables import collect
from jobkit.runs.journal import read_journal
from jobkit.schedulers import slurm
from jobkit.schedulers.types import Array
from jobkit.worker.work import RESERVED_BYTES
from tests.support.builders import grid, write_points, write_submitted
from tests.support.disks import CROWD, crowd, disk, restricted
from tests.support.halted import Halted, ended
from tests.support.halted import halted as halted  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.programs import Programs
from tests.support.programs import queue as queue  # noqa: PLC0414 - the same
from tests.whole.test_job_script import DEADLINE_S, ScriptRun, wait_until
from tests.workloads.broken import fill

pytestmark = pytest.mark.fault

LONG = "".join(f"Paragraph {number}.\n\n" for number in range(300))
"""Its batches, one paragraph each, take more room than a disk keeps back for a file."""
NO_HOME = 73


@pytest.fixture
def mounts() -> Iterator[ExitStack]:
    """Take what is mounted, and unmount it at the end."""
    with ExitStack() as stack:
        yield stack


def outcome(run: ScriptRun) -> tuple[str, str]:
    """Return outcome and evidence of point 1, as `jobkit collect` tells them."""
    row = collect([run.dir]).points.iloc[0]
    return str(row["outcome"]), str(row["evidence"])


def test_scratch_is_too_small(tmp_path: Path, mounts: ExitStack) -> None:
    """FAULT: the node's scratch has less room than text, model and 64 MiB need.

    HOW: real: a scratch of 10 MiB.
    REPORTED: `scratch_full`, with the bytes that are free and the bytes that are needed, before the job
    copies anything.
    LOST: nothing; no point ran.
    """
    mounts.enter_context(disk(tmp_path / "scratch", 10))
    run = ScriptRun(tmp_path)
    assert run.run(1)[0] == 1
    assert run.exit().outcome is Outcome.SCRATCH_FULL
    assert "bytes free and" in outcome(run)[1]
    assert run.left_on_scratch() == []


def test_scratch_fills_up_before_the_inputs_are_there(tmp_path: Path, mounts: ExitStack) -> None:
    """FAULT: scratch fills up while text and model are copied to it.

    HOW: real: ext4; another process fills the disk after the check of its free space.
    REPORTED: `scratch_full`, with what does not fit and where; the log has the message of rsync or cp.
    LOST: nothing; no point ran.
    """
    mounts.enter_context(disk(tmp_path / "scratch", 100, "ext4"))
    filling = f"cat /dev/zero >{tmp_path}/scratch/filler || true"
    run = ScriptRun(tmp_path, environment={"setup": [filling]}, text="word " * 1_000_000)
    status, said = run.run(1)
    assert (status, run.exit().stage) == (1, "stage_in"), said
    assert outcome(run)[0] == "scratch_full"
    assert "No space left on device" in said
    assert [name for name in run.left_on_scratch() if name != "lost+found"] == ["filler"]


def test_scratch_fills_up_while_the_worker_writes(tmp_path: Path, mounts: ExitStack) -> None:
    """FAULT: scratch fills up while the worker writes its results.

    HOW: real: ext4, filled to the last byte after two batches.
    REPORTED: `scratch_full`, in a record whose space was reserved at the start.
    LOST: nothing: the batches so far are home.
    """
    scratch = mounts.enter_context(disk(tmp_path / "scratch", 80, "ext4"))
    run = ScriptRun(tmp_path, workload="broken:Fills", text=LONG)
    status, said = run.run(1, BROKEN_DISK=str(scratch))
    assert status == 1, said
    record = run.record()
    assert record.outcome is Outcome.SCRATCH_FULL
    assert "No space left on device" in record.message
    lines = (run.home() / "batches.jsonl").read_bytes().splitlines(keepends=True)
    assert len([line for line in lines if line.endswith(b"}\n")]) >= 2
    assert record.summary is not None
    assert record.summary.batches >= 2
    assert [name for name in run.left_on_scratch() if name != "lost+found"] == ["filler"]


def test_scratch_is_full_when_the_worker_starts(tmp_path: Path, mounts: ExitStack) -> None:
    """FAULT: scratch has no room for even a record when the worker starts.

    HOW: real: a tmpfs, filled as soon as the inputs are there.
    REPORTED: `scratch_full`, by the job script, which tests the disk itself if there is no record.
    LOST: nothing: no batch had begun.
    """
    scratch = mounts.enter_context(disk(tmp_path / "scratch", 80))
    filling = "cat /dev/zero >$scratch/filler || true\n"
    template = f"{{% extends base %}}{{% block work %}}{filling}{{{{ super() }}}}{{% endblock %}}"
    (tmp_path / "mine.sh.j2").write_text(template)
    run = ScriptRun(tmp_path, template=str(tmp_path / "mine.sh.j2"))
    assert run.run(1)[0] == 1
    assert run.exit().outcome is Outcome.SCRATCH_FULL
    assert not (run.home() / "record.json").exists()
    assert (scratch / "filler").stat().st_size > RESERVED_BYTES


def test_home_is_full_at_the_end(tmp_path: Path, mounts: ExitStack) -> None:
    """FAULT: home is full when the job copies its results there.

    HOW: real: ext4, filled to the last byte while the try runs.
    REPORTED: `stage_out`, with the node and the folder on its scratch that keeps the results (space for this
    message is reserved when the try begins).
    LOST: nothing: copy the folder home by hand, and the results count.
    """
    home = mounts.enter_context(disk(tmp_path / "my runs", 10, "ext4"))
    run = ScriptRun(tmp_path, workload="broken:Fills", text=LONG, site={"sync_interval_s": 60})
    status, said = run.run(1, BROKEN_DISK=str(home))
    assert status == NO_HOME, said
    found = run.exit()
    assert found.outcome is Outcome.STAGE_OUT
    assert f"{found.host}:{found.scratch}" in outcome(run)[1]
    assert f"{found.host}:{found.scratch}" in said
    assert outcome(run)[0] == "stage_out"
    (home / "filler").unlink()
    shutil.copytree(Path(found.scratch) / "out", run.home(), dirs_exist_ok=True)
    assert outcome(run)[0] == "ok"
    assert len((run.home() / "batches.jsonl").read_bytes().splitlines()) == 300


def test_home_is_full_for_a_while(tmp_path: Path, mounts: ExitStack, halted: Halted) -> None:
    """FAULT: home is full for a while during a try, so that results cannot be copied there.

    HOW: real: a tmpfs, filled, and freed again once a copy has failed.
    REPORTED: only the message of rsync or cp in the log: the next copy succeeds.
    LOST: nothing.
    """
    home = mounts.enter_context(disk(tmp_path / "my runs", 10))
    run = ScriptRun(tmp_path, workload="odd:Slow")
    process = run.start(1, ODD_TOLD=str(tmp_path / "told"))
    halted.started.append(process)
    wait_until((run.home() / "exit.part").exists)
    filler = fill(home)
    assert process.stdout is not None
    for line in process.stdout:
        if "No space left on device" in line:
            break
    filler.unlink()
    wait_until((run.home() / "batches.jsonl").exists)
    process.terminate()
    process.communicate(timeout=DEADLINE_S)
    assert outcome(run)[0] == "cancelled"


@pytest.mark.parametrize("said", ["no room", "cannot write"])
def test_home_cannot_be_written_before_the_job_begins(tmp_path: Path, mounts: ExitStack, said: str) -> None:
    """FAULT: home is full before the job begins, or the run folder is read-only.

    HOW: real: a tmpfs, filled to the last byte; a read-only mount over the run folder.
    REPORTED: `stage_out`, with "no room in" or "cannot write in" and the folder in the log; from exit status
    73 in the accounting, if the log could not be written either.
    LOST: nothing: the point does not run, because its results could not be copied home.
    """
    home = mounts.enter_context(disk(tmp_path / "my runs", 10))
    run = ScriptRun(tmp_path)
    filler = fill(home) if said == "no room" else None
    if not filler:
        mounts.enter_context(restricted(run.dir, "ro"))
    status, text = run.run(1)
    assert status == NO_HOME
    assert f"job.sh: stage_out: {said} in {run.dir}/results, so nothing was run" in text
    assert not run.home().exists()
    assert not run.scratch.exists()
    if not filler:
        return
    with (home / "log").open("w") as log:
        done = subprocess.run(["bash", run.dir / "job.sh", "1"], stdout=log, stderr=log, check=False)
    assert done.returncode == NO_HOME, "the log is as full"
    filler.unlink()
    assert run.run(1)[0] == 0
    assert run.record().try_number == 1


def test_home_is_full_when_a_sweep_is_submitted(tmp_path: Path, mounts: ExitStack, queue: Programs) -> None:
    """FAULT: the disk of the run folder is full before a submission, or fills up while the scheduler answers.

    HOW: real: a tmpfs, filled to the last byte, first by another process, then by the submit command.
    REPORTED: before: the file, "No space left on device", "the job was not submitted", exit code 2. After: \
    "slurm accepted job 101, but the journal could not be written", exit code 5, and the command to run.
    LOST: nothing; jobkit finds an accepted job by its name.
    """
    home = mounts.enter_context(disk(tmp_path / "home", 1))
    filling = f"{CROWD} {home}/journal.jsonl\ncat /dev/zero >{home}/filler 2>/dev/null"
    queue.add("sbatch", f"echo 101\n{filling}\ntrue")
    job = Job(script="job.sh", array=Array(first=1, last=3, offset=0, throttle=None))
    filler = fill(home)
    with pytest.raises(JobkitError, match=f"{home}/journal.jsonl: No space left on device; the job was not"):
        submit_array(slurm, home, job)
    assert not queue.called("sbatch")
    filler.unlink()
    with pytest.raises(SubmissionUnconfirmed, match="accepted job 101, but the journal could not") as taken:
        submit_array(slurm, home, job)
    assert taken.value.exit_code == 5
    assert not (home / "journal.jsonl").read_bytes().endswith(b"\n"), "half of a line is there"
    assert f"jobkit resume {home}" in taken.value.hint
    (home / "filler").unlink()
    assert read_journal(home).unanswered is not None
    append_line(home / "journal.jsonl", '{"at": "2026-01-02T10:15:00+00:00", "event": "left"}')
    assert read_journal(home).left is not None, "it stands on a line of its own"


@pytest.mark.parametrize("said", ["No space left on device", "Read-only file system", "has no locks"])
def test_what_runs_can_be_cancelled_whatever_the_disk_does(
    tmp_path: Path, mounts: ExitStack, queue: Programs, capsys: pytest.CaptureFixture[str], said: str
) -> None:
    """FAULT: jobs run, and their run folder is on a disk that is full, read-only, or without locks.

    HOW: real: a tmpfs filled to the last byte, and one mounted read-only; fake: flock(2) fails with ENOSYS.
    REPORTED: `jobkit cancel` reports the fault, and ends the jobs. Without locks `jobkit resume` works, \
    and warns not to run two commands on the run at the same time.
    LOST: nothing.
    """
    queue.patch.setattr("jobkit.launch.cancel.SEEN_WITHIN_S", 0.0)
    home = mounts.enter_context(disk(tmp_path / "home", 1))
    run = write_points(home / "run", grid([1, 2]))
    write_submitted(run, "slurm", "101", first=1, last=2)
    queue.squeue("101_1 RUNNING")
    if "space" in said:
        crowd(run / "journal.jsonl", 0)
        fill(home)
    elif "Read-only" in said:
        mounts.enter_context(restricted(home, "ro"))
    else:
        queue.patch.setattr(fcntl, "flock", no_flock)
    assert cancel(run, [], []) == 0
    assert queue.called("scancel") == ["scancel 101"]
    assert said in capsys.readouterr().err


def no_flock(*_: object) -> None:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def test_the_walltime_passes_on_a_full_scratch(tmp_path: Path, mounts: ExitStack, halted: Halted) -> None:
    """FAULT: scratch is full when the walltime is near.

    HOW: real: a tmpfs, filled to the last byte before the script gets the walltime's USR1.
    REPORTED: `timeout`, with the batches that were done: space for the name of the signal and for the record
    is reserved at the start.
    LOST: nothing.
    """
    scratch = mounts.enter_context(disk(tmp_path / "scratch", 80))
    run = ScriptRun(tmp_path, workload="broken:Waits")
    process = halted.start(run)
    fill(scratch)
    process.send_signal(signal.SIGUSR1)
    ended(process)
    assert (run.record().outcome, run.record().signal) == (Outcome.TIMEOUT, "USR1")
    assert len((run.home() / "batches.jsonl").read_bytes().splitlines()) == 1
