"""Tasks that Slurm starts again, and nodes and an accounting that die, on real daemons."""

from __future__ import annotations

import os
import signal
import time

import pytest

from jobkit.core.records import Outcome
from jobkit.runs.status import PointStanding, PointStatus
from tests.cluster.daemons import SlurmDaemons, said
from tests.cluster.halted import HaltedSweep, batches, begun, home, record, seen
from tests.cluster.lab import SLURM
from tests.support.sites import EXCLUDE, REQUESTS

pytestmark = pytest.mark.fault


def scontrol(*words: str) -> None:
    assert said("scontrol", *words) is not None, words


def in_queue(job: str) -> str:
    """Return state and reason of a Slurm job or task."""
    return (said("squeue", "-h", "-r", "-j", job, "-o", "%T %r") or "").strip()


def now(halted: HaltedSweep, job: str) -> None:
    """Let a requeued task begin at once: Slurm would leave it two minutes (slurm.conf(5), cred_expire).

    A node refuses a task that begins in the second of its requeue ("Job credential revoked").
    """
    halted.wait_until(lambda: not in_queue(job).startswith("RUNNING"), 60)
    later_s = time.time() + 2

    def begins() -> bool:
        state = in_queue(job)
        if state.startswith("PENDING") and time.time() > later_s:
            said("scontrol", "update", f"JobId={job}", "StartTime=now")  # refused if it has just begun
        return state.startswith("RUNNING")

    halted.wait_until(begins, 120)  # other jobs may hold the nodes


@SLURM
def test_a_task_is_requeued_half_way(halted: HaltedSweep) -> None:
    """FAULT: a task is requeued half-way.

    HOW: real: `scontrol requeue` of one task of an array, Slurm.
    REPORTED: a second try, `restart=1`, that starts from nothing; the first keeps its batches and the
    message that the scheduler started the task again. `jobkit resume` never submits it.
    LOST: nothing.
    """
    run = halted.sweep("1, 2")
    halted.go(2)
    halted.waits(1)
    task = f"{begun(run).job}_1"
    scontrol("requeue", task)
    states = set()
    while not (state := in_queue(task)).startswith("PENDING"):
        states.add(seen(run)[0].standing)
        assert state, "the scheduler has lost the task"
    assert states <= {PointStanding.RUNNING, PointStanding.WAITING}
    assert seen(run)[0].standing is PointStanding.WAITING
    done = halted.lab.jobkit("resume", run)
    assert "nothing to run again" in done.stderr, done.stderr
    now(halted, task)
    halted.waits(1)
    assert begun(run, 1, 2).restart == 1
    halted.go(1)
    halted.is_(run, PointStanding.DONE, Outcome.OK)
    first = seen(run)[0].tries[1]
    assert first.outcome is Outcome.CANCELLED
    assert first.evidence == "stopped by SIGTERM; signal TERM; the scheduler began the task again"
    assert (record(run).job.restart, record(run, 1, 2).job.restart) == (0, 1)
    assert (batches(run), batches(run, 1, 2)) == (1, 30)
    halted.lab.clears_scratch()


@SLURM
def test_a_task_is_held_and_so_is_its_dependency(halted: HaltedSweep) -> None:
    """FAULT: a task is requeued and held, held by its owner or by an administrator, or never gets its turn.

    HOW: real: `scontrol requeuehold`, `hold`, `uhold` and a dependency on a held job, Slurm.
    REPORTED: it is held, without a time at which it begins, and with the command of whoever releases it; or
    it waits for the other job, and is stuck once that is cancelled.
    LOST: nothing.
    """
    run = halted.sweep()
    halted.waits(1)
    task = f"{begun(run).job}_1"
    release = f"scontrol release {task}"
    before = str(said("sbatch", "--parsable", "--hold", "-o", "/dev/null", "--wrap", "true")).strip()
    depends = f"update JobId={task} Dependency=afterok:{before}; release {task}"
    for commands, reason, told in (
        (f"requeuehold {task}", "job requeued in held state", f"\nnext: {release}"),
        (f"release {task}; hold {task}", "JobHeldAdmin", f"an administrator types: {release}\n"),
        (f"uhold {task}", "JobHeldUser", f"\nnext: {release}"),
        (depends, "Dependency", "Dependency: waits for another job to end"),
    ):
        for command in commands.split("; "):
            scontrol(*command.split())
        halted.wait_until(lambda reason=reason: in_queue(task) == f"PENDING {reason}", 30)  # type: ignore[misc]
        status = halted.lab.jobkit("status", run).stdout
        assert told in status
        assert "to begin about" not in status
    said("scancel", before)
    halted.wait_until(lambda: seen(run)[0].standing is PointStanding.STUCK, 15)


@SLURM
def test_a_task_is_preempted(slurm_alone: SlurmDaemons, halted: HaltedSweep) -> None:
    """FAULT: a task is preempted by a job in a partition of higher priority.

    HOW: real: partitions `low` and `high` of a Slurm with PreemptMode=REQUEUE.
    REPORTED: the first try is `preempted` as soon as the accounting reports it; the second, which Slurm
    starts by itself, is `ok`.
    LOST: nothing.
    """
    del slurm_alone
    halted.site(queue="low")
    run = halted.sweep()
    halted.waits(1)
    begin = begun(run)
    halted.wait_until(lambda: (seen(run)[0].elapsed_s or 0) >= 2, 30)
    taker = ("sbatch", "--parsable", "-p", "high", "-w", begin.host, "-c", "8", "-o", "/dev/null", "--wrap")
    job = said(*taker, "sleep 60")
    now(halted, f"{begin.job}_1")
    said("scancel", (job or "").strip())
    halted.waits(1)
    halted.go(1)
    halted.is_(run, PointStanding.DONE, Outcome.OK)
    halted.wait_until(lambda: seen(run)[0].tries[1].outcome is Outcome.PREEMPTED, 30)
    assert "sacct: PREEMPTED" in seen(run)[0].tries[1].evidence
    assert (batches(run), batches(run, 1, 2)) == (1, 30)


@SLURM
def test_a_node_dies(slurm_alone: SlurmDaemons, halted: HaltedSweep) -> None:
    """FAULT: a node dies, with `--requeue` and with `--no-requeue`, while its processes go on.

    HOW: real: kill -9 of slurmd; the test sets the node down at once, as the controller would after
    SlurmdTimeout.
    REPORTED: with `--requeue` the task waits and runs again as a second try; without it the point is
    `node_fail`, and `jobkit resume` runs it again on another node. Whatever the old process still writes
    goes into its own try.
    LOST: nothing: results that the old process copies home later count.
    """
    halted.site(requests=f"{{{REQUESTS['slurm']}, {EXCLUDE['slurm']}}}")
    runs = {
        word: halted.sweep(
            size, "--set", f"resources.options={{slurm: ['{word}', '--nodelist=n1']}}", runs=f"runs{word}"
        )
        for size, word in (("1", "--requeue"), ("2", "--no-requeue"))
    }
    back, left = runs.values()
    for size in (1, 2):
        halted.waits(size)
    jobs = begun(back, 1).job, begun(left, 2).job
    slurm_alone.kill("slurmd-n1")
    scontrol("update", "nodename=n1", "state=down", "reason=killed")
    halted.is_(left, PointStanding.FAILED, Outcome.NODE_FAIL)
    halted.is_(back, PointStanding.WAITING, None)
    scontrol("update", f"JobId={jobs[0]}_1", "ReqNodeList=n2")
    now(halted, f"{jobs[0]}_1")
    halted.waits(1)
    assert begun(back, 1, 2).restart == 1
    done = halted.lab.jobkit("resume", left, "--set", "resources.options={}")
    assert "again: 1 point, with resources.options={} and not on n1" in done.stderr, done.stderr
    halted.waits(2)
    assert begun(left, 2, 2).round == 2
    halted.go(1, 2)
    halted.is_(back, PointStanding.DONE, Outcome.OK)
    halted.is_(left, PointStanding.DONE, Outcome.OK)
    for run, size in ((back, 1), (left, 2)):
        halted.wait_until((home(run, size) / "exit").exists, 30)
        assert [record(run, size, number).try_number for number in (1, 2)] == [1, 2]
        assert [batches(run, size, number) for number in (1, 2)] == [30 // size] * 2


@SLURM
def test_the_accounting_dies_before_a_task_and_comes_back_after_it(
    slurm_alone: SlurmDaemons, halted: HaltedSweep
) -> None:
    """FAULT: slurmdbd is down before a task begins, and comes back after the task was killed.

    HOW: real: kill -9 of slurmdbd, and of the job script with all its processes; then slurmdbd starts again.
    At first it reports such a task as `FAILED`, with status 0 and no end; the end follows some seconds
    later.
    REPORTED: the point is unsettled until slurmdbd knows the end; then `lost`, with the signal that it
    reports. `jobkit waste` says meanwhile that the accounting does not answer, with exit status 3.
    LOST: results that the try had not yet copied to the run folder.
    """
    slurm_alone.kill("slurmdbd")
    run = halted.sweep()
    halted.waits(1)
    begin = begun(run)
    os.killpg(os.getpgid(begin.pid or 0), signal.SIGKILL)
    halted.wait_until(lambda: not in_queue(begin.job), 30)
    assert (seen(run)[0].standing, seen(run)[0].outcome) == (PointStanding.UNSETTLED, None)
    away = halted.lab.jobkit("waste", "--scheduler", "slurm", "--mine")
    assert (away.returncode, away.stdout) == (3, "")
    assert "does not answer" in away.stderr
    slurm_alone.start("slurmdbd")
    looks: list[PointStatus] = []

    def settled() -> bool:
        looks.append(seen(run)[0])
        return looks[-1].outcome is not None

    halted.wait_until(settled, 60)
    assert {look.standing for look in looks[:-1]} <= {PointStanding.UNSETTLED, PointStanding.RUNNING}
    assert (looks[-1].standing, looks[-1].outcome) == (PointStanding.FAILED, Outcome.LOST)
    assert "sacct: FAILED, ExitCode 0:9" in looks[-1].verdict.evidence
