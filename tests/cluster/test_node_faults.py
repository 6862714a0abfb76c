"""What happens to jobs and nodes, on the real daemons: killed, requeued, preempted, a node that dies."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from jobkit.begin import Begin, read_begin
from jobkit.look import IN_QUEUE, Look, Standing, look
from jobkit.records import Outcome, Record, from_json, read_text
from tests.cluster.daemons import SlurmDaemons, said
from tests.cluster.test_sweeps import WORKLOADS, Lab
from tests.cluster.test_sweeps import lab as lab  # noqa: PLC0414 - a fixture is found by its name here
from tests.disks import disk, read_only
from tests.workloads.broken import fill

pytestmark = pytest.mark.fault

Wait = Callable[[Callable[[], bool], float], None]

SPEC = """\
name: broken
workload: broken:%s
text: sample:30
sweep: {batch_size: [%s]}
repeats: 1
resources: {gpus: 0, cpus: 1, memory: 200MiB, walltime: "00:02:00"}
policy: {follow_up: false}
environment:
  variables:
    PYTHONPATH: '%s'
    BROKEN_AT: batch
    BROKEN_TOLD: '%s/told-{}'
    BROKEN_GO: '%s/go-{}'
"""

SLURM = pytest.mark.parametrize(
    "lab", [pytest.param("slurm", marks=[pytest.mark.slurm, pytest.mark.xdist_group("slurm")])], indirect=True
)
SGE = pytest.mark.parametrize(
    "lab", [pytest.param("sge", marks=[pytest.mark.sge, pytest.mark.xdist_group("sge")])], indirect=True
)


class Broken:
    """Sweeps whose points wait in the middle of their work, each until it is told to go on."""

    def __init__(self, lab: Lab, wait_until: Wait) -> None:
        self.lab, self.wait_until = lab, wait_until

    def site(self, **keys: object) -> None:
        """Change keys of the site file."""
        path = self.lab.home / "lab.yaml"
        kept = [line for line in path.read_text().splitlines() if line.partition(":")[0] not in keys]
        path.write_text("\n".join([*kept, *(f"{key}: {value}" for key, value in keys.items())]) + "\n")

    def sweep(self, sizes: str = "1", *arguments: str, workload: str = "Waits", runs: str = "runs") -> Path:
        """Submit points of these batch sizes; return the run folder."""
        home = self.lab.home
        spec = self.lab.spec(SPEC % (workload, sizes, WORKLOADS, home, home))
        done = self.lab.sweep(spec, "--runs-dir", runs, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        (run,) = (home / runs).iterdir()
        return run

    def waits(self, size: int) -> int:
        """Return the worker's process id, once it waits, and forget that it has told."""
        told = self.lab.home / f"told-{size}"
        self.wait_until(told.exists, 60)
        pid = int(told.read_text())
        told.unlink()
        return pid

    def go(self, *sizes: int) -> None:
        for size in sizes:
            (self.lab.home / f"go-{size}").touch()

    def is_(self, run: Path, standing: Standing, outcome: Outcome | None, index: int = 1) -> None:
        """Wait until a point stands so."""
        self.wait_until(lambda: self.stands(run, index) == (standing, outcome), 60)

    def stands(self, run: Path, index: int = 1) -> tuple[Standing, Outcome | None]:
        one = seen(run)[index - 1]
        return one.standing, one.outcome


@pytest.fixture
def broken(lab: Lab, wait_until: Wait, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broken]:
    monkeypatch.setenv("PYTHONPATH", str(WORKLOADS))
    starter = Broken(lab, wait_until)
    starter.site(kill_wait_s=4)
    yield starter
    starter.go(*range(1, 10))
    for run in lab.home.glob("runs*/broken*"):
        if any(one.standing in IN_QUEUE for one in seen(run)):
            lab.jobkit("cancel", run)


def seen(run: Path, *, ask: bool = True) -> tuple[Look, ...]:
    return look([run], ask=ask)[0].points


def home(run: Path, size: int = 1, number: int = 1) -> Path:
    return run / "results" / f"batch_size-{size}-r1" / f"try-{number}"


def begun(run: Path, size: int = 1, number: int = 1) -> Begin:
    return read_begin(home(run, size, number) / "begin")


def record(run: Path, size: int = 1, number: int = 1) -> Record:
    path = home(run, size, number) / "record.json"
    return from_json(Record, read_text(path), where=str(path))


def batches(run: Path, size: int = 1, number: int = 1) -> int:
    return len((home(run, size, number) / "batches.jsonl").read_bytes().splitlines())


def scontrol(*words: str) -> None:
    assert said("scontrol", *words) is not None, words


def in_queue(job: str) -> str:
    """Return state and reason of a Slurm job or task."""
    return (said("squeue", "-h", "-r", "-j", job, "-o", "%T %r") or "").strip()


def now(broken: Broken, job: str) -> None:
    """Let a requeued task begin at once: Slurm would leave it two minutes (slurm.conf(5), cred_expire)."""

    def begins() -> bool:
        state = in_queue(job)
        if state.startswith("PENDING"):
            scontrol("update", f"JobId={job}", "StartTime=now")
        return state.startswith("RUNNING")

    broken.wait_until(lambda: not in_queue(job).startswith("RUNNING"), 30)
    broken.wait_until(begins, 30)


def test_kill_9_of_the_job_script(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULT: the job script is killed outright.

    HOW: real: kill -9, Slurm and Grid Engine, with their accounting and without (fake: a command \
    that says it is off).
    REPORTED: `lost`: on Slurm, which leaves the worker alive, "the job script was killed", by the process \
    that copies results home; on Grid Engine, which kills all, what qacct says, or that the queue has not \
    held it for a minute.
    LOST: at most one sync interval.
    """
    run = broken.sweep("1, 2")
    worker = broken.waits(1)
    broken.wait_until((home(run) / "batches.jsonl").exists, 30)
    os.kill(begun(run).pid or 0, signal.SIGKILL)
    broken.go(2)
    broken.wait_until(lambda: gone(worker), 30)
    broken.wait_until((home(run, 2) / "exit").exists, 30)
    if broken.lab.scheduler == "slurm":
        broken.wait_until((home(run) / "exit").exists, 30)
    else:
        broken.wait_until(lambda: f" {begun(run).job} " not in (said("qstat") or ""), 30)
    apart = Path(shutil.copytree(run, run.with_name("apart")))
    broken.is_(run, Standing.FAILED, Outcome.LOST)
    assert {"slurm": "the job script was killed", "sge": "qacct: failed 100"}[broken.lab.scheduler] in why(
        run
    )
    with_none(broken.lab, monkeypatch)
    if broken.lab.scheduler == "sge":
        assert broken.stands(apart) == (Standing.UNSETTLED, None)
        a_minute_passes(apart)
    assert broken.stands(apart) == (Standing.FAILED, Outcome.LOST)
    assert {"slurm": "the job script was killed", "sge": "not in the queue since"}[
        broken.lab.scheduler
    ] in why(apart)
    assert batches(run) == 1
    assert broken.stands(run, 2) == (Standing.DONE, Outcome.OK)


def gone(pid: int) -> bool:
    """Tell whether a process has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2][:1]
    except OSError:
        return True
    return state == "Z"


def why(run: Path) -> str:
    return seen(run, ask=False)[0].counts.verdict.evidence


def with_none(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an accounting on PATH that says that it is off."""
    for name in ("sacct", "qacct"):
        program = lab.home / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\necho 'accounting is off' >&2\nexit 1\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def a_minute_passes(run: Path) -> None:
    """Let what was missed in the queue have been missed two minutes earlier."""
    path = run / "accounting.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["at"] = (datetime.fromisoformat(line["at"]) - timedelta(minutes=2)).isoformat()
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("what", ["cancelled", "killed"])
def test_a_job_of_several_points_ends_half_way(broken: Broken, what: str) -> None:
    """FAULT: a job that several points share (`pack`) ends half-way.

    HOW: real: `jobkit cancel`, or kill -9 of its processes, Slurm and Grid Engine.
    REPORTED: the point that ran is `cancelled` or `lost`; those never begun are `cancelled` with it, or \
    `stopped`: "its job ended before its turn came".
    LOST: at most one sync interval; points that were done are done.
    """
    run = broken.sweep("1, 2, 3, 4", "--set", "pack=4")
    broken.go(1)
    worker = broken.waits(2)
    broken.wait_until((home(run, 2) / "batches.jsonl").exists, 30)
    if what == "cancelled":
        done = broken.lab.jobkit("cancel", run)
        assert done.returncode == 0, done.stderr
        ends = [Outcome.OK, Outcome.CANCELLED, Outcome.CANCELLED, Outcome.CANCELLED]
    else:
        script = begun(run, 2).pid or 0
        os.killpg(os.getpgid(script), signal.SIGKILL)
        ends = [Outcome.OK, Outcome.LOST, Outcome.STOPPED, Outcome.STOPPED]
    broken.wait_until(lambda: [one.outcome for one in seen(run)] == ends, 60)
    broken.wait_until(lambda: gone(worker), 30)
    assert batches(run, 2) == 1
    assert not home(run, 3).exists()


@SLURM
def test_a_task_is_requeued_half_way(broken: Broken) -> None:
    """FAULT: a task is requeued half-way.

    HOW: real: `scontrol requeue` of one task of an array, Slurm.
    REPORTED: a second try, `restart=1`, that begins clean; the first keeps its batches and says that the \
    scheduler began the task again. `jobkit resume` leaves it to the scheduler at every moment.
    LOST: nothing.
    """
    run = broken.sweep("1, 2")
    broken.go(2)
    broken.waits(1)
    task = f"{begun(run).job}_1"
    scontrol("requeue", task)
    states = set()
    while not (state := in_queue(task)).startswith("PENDING"):
        states.add(seen(run)[0].standing)
        assert state, "the scheduler has lost the task"
    assert states <= {Standing.RUNNING, Standing.WAITING}
    assert seen(run)[0].standing is Standing.WAITING
    done = broken.lab.jobkit("resume", run)
    assert "nothing to run again" in done.stderr, done.stderr
    now(broken, task)
    broken.waits(1)
    assert begun(run, 1, 2).restart == 1
    broken.go(1)
    broken.is_(run, Standing.DONE, Outcome.OK)
    first = seen(run)[0].tries[1].verdict
    assert first.outcome is Outcome.CANCELLED
    assert first.evidence == "stopped by SIGTERM; signal TERM; the scheduler began the task again"
    assert (record(run).job.restart, record(run, 1, 2).job.restart) == (0, 1)
    assert (batches(run), batches(run, 1, 2)) == (1, 30)
    assert list(broken.lab.scratch.iterdir()) == []


@SLURM
def test_a_task_is_preempted(slurm_alone: SlurmDaemons, broken: Broken) -> None:
    """FAULT: a task is preempted by a job of a higher partition.

    HOW: real: partitions `low` and `high` of a Slurm with PreemptMode=REQUEUE.
    REPORTED: the first try is `preempted` as soon as the accounting says so; the second, which Slurm begins \
    by itself, is `ok`.
    LOST: nothing.
    """
    del slurm_alone
    broken.site(queue="low")
    run = broken.sweep()
    broken.waits(1)
    begin = begun(run)
    taker = ("sbatch", "--parsable", "-p", "high", "-w", begin.host, "-c", "8", "-o", "/dev/null", "--wrap")
    job = said(*taker, "sleep 60")
    now(broken, f"{begin.job}_1")
    said("scancel", (job or "").strip())
    broken.waits(1)
    broken.go(1)
    broken.is_(run, Standing.DONE, Outcome.OK)
    broken.wait_until(lambda: seen(run)[0].tries[1].verdict.outcome is Outcome.PREEMPTED, 30)
    assert "sacct: PREEMPTED" in seen(run)[0].tries[1].verdict.evidence
    assert (batches(run), batches(run, 1, 2)) == (1, 30)


@SLURM
def test_a_node_dies(slurm_alone: SlurmDaemons, broken: Broken) -> None:
    """FAULT: a node dies, with `--requeue` and with `--no-requeue`, while its processes go on.

    HOW: real: kill -9 of slurmd; the controller is told at once that the node is down, which it would \
    find by itself after SlurmdTimeout.
    REPORTED: with `--requeue` the task waits and runs again as a second try; without it the point is \
    `node_fail`, and `jobkit resume` runs it again on another node. What the old process still writes goes \
    into its own try alone.
    LOST: nothing: what the old process brings home later counts.
    """
    requests = (broken.lab.home / "lab.yaml").read_text().splitlines()
    line = next(line for line in requests if line.startswith("requests"))
    broken.site(requests=line.partition(": ")[2][:-1] + ', exclude: "--exclude={exclude}"}')
    runs = {
        word: broken.sweep(
            size, "--set", f"resources.options={{slurm: ['{word}', '--nodelist=n1']}}", runs=f"runs{word}"
        )
        for size, word in (("1", "--requeue"), ("2", "--no-requeue"))
    }
    back, left = runs.values()
    for size in (1, 2):
        broken.waits(size)
    jobs = begun(back, 1).job, begun(left, 2).job
    slurm_alone.kill("slurmd-n1")
    scontrol("update", "nodename=n1", "state=down", "reason=killed")
    broken.is_(left, Standing.FAILED, Outcome.NODE_FAIL)
    broken.is_(back, Standing.WAITING, None)
    scontrol("update", f"JobId={jobs[0]}_1", "ReqNodeList=n2")
    now(broken, f"{jobs[0]}_1")
    broken.waits(1)
    assert begun(back, 1, 2).restart == 1
    done = broken.lab.jobkit("resume", left, "--set", "resources.options={}")
    assert "again: 1 point, not on n1" in done.stderr, done.stderr
    broken.waits(2)
    assert begun(left, 2, 2).round == 2
    broken.go(1, 2)
    broken.is_(back, Standing.DONE, Outcome.OK)
    broken.is_(left, Standing.DONE, Outcome.OK)
    for run, size in ((back, 1), (left, 2)):
        broken.wait_until((home(run, size) / "exit").exists, 30)
        assert [record(run, size, number).try_number for number in (1, 2)] == [1, 2]
        assert [batches(run, size, number) for number in (1, 2)] == [30 // size] * 2


@SGE
def test_a_status_that_grid_engine_takes_for_an_order(broken: Broken) -> None:
    """FAULT: the worker ends with exit status 99 or 100, by which Grid Engine reschedules a job or holds it.

    HOW: real: such workers, Grid Engine.
    REPORTED: `bug`; the job ends with 98, so it is neither rescheduled nor in `Eqw`; the exit file keeps \
    the worker's status.
    LOST: nothing.
    """
    run = broken.sweep("1, 2", workload="Orders")
    broken.wait_until(lambda: [one.outcome for one in seen(run)] == [Outcome.BUG] * 2, 60)
    for size in (1, 2):
        assert f"status={98 + size}\n" in (home(run, size) / "exit").read_text()
        assert not home(run, size, 2).exists()
    job = begun(run).job
    broken.wait_until(lambda: (said("qacct", "-j", job) or "").count("exit_status  98") == 2, 30)
    assert f" {job} " not in (said("qstat") or "")


HELD = {"slurm": "--hold", "sge": "-h"}
RELEASE = {"slurm": ("scontrol", "release"), "sge": ("qalter", "-h", "U")}


def test_home_cannot_be_written_when_the_job_begins(broken: Broken) -> None:
    """FAULT: home is full, or read-only, when the job begins.

    HOW: real: a tmpfs filled to the last byte, then a read-only mount, Slurm and Grid Engine.
    REPORTED: full: `stage_out`, by exit status 73, for the log is on the same disk. Read-only: Slurm \
    cannot even open the log, `stage_out` by its exit code 0:53; on Grid Engine the job is in `Eqw`, and \
    `jobkit status` says so.
    LOST: nothing: nothing was run.
    """
    scheduler = broken.lab.scheduler
    asked = f"resources.options={{{scheduler}: ['{HELD[scheduler]}']}}"
    with disk(broken.lab.home / "runs", 4) as full:
        run = broken.sweep("1", "--set", asked)
        filler = fill(full)
        release(broken.lab)
        broken.is_(run, Standing.FAILED, Outcome.STAGE_OUT)
        assert "the job could not write in the run folder" in seen(run)[0].counts.verdict.evidence
        assert not home(run).exists()
        filler.unlink()
    run = broken.sweep("1", "--set", asked, runs="runs2")
    with read_only(run.parent):
        release(broken.lab, "runs2")
        if scheduler == "slurm":
            broken.is_(run, Standing.FAILED, Outcome.STAGE_OUT)
        else:
            broken.is_(run, Standing.STUCK, Outcome.QUEUE_ERROR)
            assert "Eqw" in broken.lab.jobkit("status", run).stdout


def release(lab: Lab, runs: str = "runs") -> None:
    """Let the run's job begin, which was submitted held."""
    (journal,) = (lab.home / runs).glob("*/journal.jsonl")
    job = json.loads(journal.read_text().splitlines()[-1])["job_id"]
    assert said(*RELEASE[lab.scheduler], job) is not None
