"""Every pair of command and parser against the daemons themselves."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from jobkit.core import shell
from jobkit.core.layout import ACCOUNTING_FILE
from jobkit.core.records import Outcome
from jobkit.schedulers.parsing import find_job_id
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import by_name
from jobkit.schedulers.types import Accounted, Array, JobId, Request, State
from jobkit.status.queue import ask_accounting, ask_queue

Wait = Callable[[Callable[[], bool], float], None]

HEADERS = {
    "slurm": "#SBATCH --job-name={name} --mem=50M --cpus-per-task=1 --chdir={folder} --output=/dev/null",
    "sge": "#$ -N {name} -S /bin/bash -wd {folder} -o /dev/null -e /dev/null",
}
# Task K waits until a test says how it is to end.
BODY = """\
k=${SLURM_ARRAY_TASK_ID:-$SGE_TASK_ID}
echo "$*" >"arguments.$k"
until [[ -s end.$k ]]; do sleep 0.2; done
exit "$(<"end.$k")"
"""

both = pytest.mark.parametrize(
    "scheduler",
    [
        pytest.param(by_name("slurm"), marks=pytest.mark.slurm),
        pytest.param(by_name("sge"), marks=pytest.mark.sge),
    ],
    ids=["slurm", "sge"],
)


@dataclass(frozen=True)
class Sweep:
    """A script in a folder, and what asking about it needs."""

    scheduler: Scheduler
    folder: Path
    name: str
    since: str

    @property
    def script(self) -> str:
        """Where it lies."""
        return str(self.folder / "job.sh")

    def submit(self, array: Array) -> JobId:
        """Submit it and return the id that was read."""
        argv = self.scheduler.submit_argv(self.script, array)
        return find_job_id(self.run(argv).stdout, self.scheduler.JOB_ID_PATTERNS, argv[0])

    def run(self, argv: tuple[str, ...]) -> shell.Completed:
        """Run a command of the scheduler."""
        return shell.run(argv, env={**os.environ, **self.scheduler.ENVIRONMENT})

    def end(self, task: int, status: int) -> None:
        """Let a task end with this status."""
        (self.folder / f"end.{task}").write_text(str(status))

    def states(self, job: JobId) -> dict[int, State]:
        """Return what the queue says, by task."""
        tasks = ask_queue(self.scheduler, (job,), [self.folder])
        assert tasks is not None
        return {task.task: task.state for task in tasks}

    def accounted(self, job: JobId) -> dict[int, Accounted]:
        """Return what the accounting knows of the tasks that have ended."""
        tasks = ask_accounting(self.scheduler, (job,), self.since, self.name, [self.folder])
        return {task.task: task for task in tasks or () if task.ended}


@pytest.fixture
def sweep(scheduler: Scheduler, tmp_path: Path, request: pytest.FixtureRequest) -> Sweep:
    request.getfixturevalue(scheduler.NAME)
    name = f"live-{uuid4().hex[:8]}"
    script = tmp_path / "job.sh"
    header = HEADERS[scheduler.NAME].format(name=name, folder=tmp_path)
    script.write_text(f"#!/bin/bash\n{header}\n{BODY}")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    since = datetime.now().astimezone() - timedelta(seconds=5)
    return Sweep(scheduler, tmp_path, name, since.strftime("%Y-%m-%dT%H:%M:%S"))


def asking(**changes: object) -> Request:
    plain = {"name": "live", "queue": None, "gpus": 0, "gpu_type": None, "cpus": 1}
    more = {"memory_bytes": 50 * 2**20, "walltime_s": 60, "account": None, "qos": None}
    return Request(**(plain | more | changes))  # type: ignore[arg-type]  # a test names the fields it changes


@both
def test_the_life_of_an_array(sweep: Sweep, wait_until: Wait) -> None:
    scheduler = sweep.scheduler
    job = sweep.submit(Array(first=1, last=3, offset=1000, throttle=2))
    throttled = {1: State.RUNNING, 2: State.RUNNING, 3: State.PENDING}
    wait_until(lambda: sweep.states(job) == throttled, 20)

    sweep.end(1, 0)
    wait_until(lambda: sweep.states(job) == {2: State.RUNNING, 3: State.RUNNING}, 20)
    sweep.end(2, 7)
    assert sweep.run(scheduler.cancel_argv(job, (3,))).ok
    wait_until(lambda: not sweep.states(job), 30)
    wait_until(lambda: set(sweep.accounted(job)) == {1, 2, 3}, 20)

    tasks = sweep.accounted(job)
    assert [tasks[k].exit_status for k in (1, 2)] == [0, 7]
    assert [tasks[k].outcome for k in (1, 2)] == [None, None]
    # A qdel cannot be told from any other SIGKILL in Grid Engine's accounting.
    assert tasks[3].outcome is (Outcome.CANCELLED if scheduler.NAME == "slurm" else None)
    assert (sweep.folder / "arguments.1").read_text().split() == ["--offset", "1000"]
    assert (sweep.folder / ACCOUNTING_FILE).exists()


@both
def test_a_whole_job_is_cancelled(sweep: Sweep, wait_until: Wait) -> None:
    job = sweep.submit(Array(first=1, last=2, offset=0, throttle=1))
    wait_until(lambda: State.RUNNING in sweep.states(job).values(), 20)

    assert sweep.run(sweep.scheduler.cancel_argv(job)).ok

    wait_until(lambda: not sweep.states(job), 30)


@both
def test_an_unknown_job_is_in_no_queue_and_no_accounting(sweep: Sweep) -> None:
    unknown = (JobId("999999"),)

    assert ask_queue(sweep.scheduler, unknown, [sweep.folder]) == ()
    assert ask_accounting(sweep.scheduler, unknown, sweep.since, "no-such-name", [sweep.folder]) == ()


@both
def test_the_array_limit(sweep: Sweep) -> None:
    scheduler = sweep.scheduler
    limit = scheduler.parse_limit(sweep.run(scheduler.limit_argv()).stdout)

    assert limit == {"slurm": 10_000, "sge": 75_000}[scheduler.NAME]


def refusals(sweep: Sweep, asked: Request, *, header: str = "") -> str:
    if header:
        lines = Path(sweep.script).read_text().splitlines()
        Path(sweep.script).write_text("\n".join([lines[0], header, *lines[1:], ""]))
    array = Array(first=1, last=2, offset=0, throttle=1)
    said = [
        check.refusal(sweep.run(check.argv)) for check in sweep.scheduler.checks(sweep.script, array, asked)
    ]
    return "\n".join(text for text in said if text)


@both
def test_what_the_cluster_can_do_is_not_refused(sweep: Sweep) -> None:
    assert refusals(sweep, asking()) == ""
    queue = {"slurm": "gpu", "sge": "gpu.q"}[sweep.scheduler.NAME]
    assert refusals(sweep, asking(queue=queue, walltime_s=3600)) == ""


@pytest.mark.parametrize(
    "scheduler", [pytest.param(by_name("slurm"), marks=pytest.mark.slurm)], ids=["slurm"]
)
@pytest.mark.parametrize(
    ("changes", "header", "words"),
    [
        ({"queue": "gqu"}, "#SBATCH --partition=gqu", ["did you mean 'gpu'?", "Invalid partition name"]),
        ({"walltime_s": 7200}, "#SBATCH --time=2:00:00", ["at most 01:00:00"]),
        ({"gpus": 5}, "#SBATCH --gres=gpu:5", ["at most 2 GPUs a node", "not available"]),
        ({"gpus": 1, "gpu_type": "a100"}, "#SBATCH --gres=gpu:a100:1", ["no GPU type", "it has: v100"]),
        ({}, "#SBATCH --gres=fpga:1", ["Invalid generic resource (gres)"]),
        ({"account": "rooot"}, "", ["did you mean 'root'?"]),
    ],
)
def test_slurm_refuses(sweep: Sweep, changes: dict[str, object], header: str, words: list[str]) -> None:
    said = refusals(sweep, asking(**changes), header=header)

    assert [word for word in words if word not in said] == []


@pytest.mark.parametrize("scheduler", [pytest.param(by_name("sge"), marks=pytest.mark.sge)], ids=["sge"])
@pytest.mark.parametrize(
    ("changes", "header", "words"),
    [
        ({"queue": "gpus.q"}, "#$ -q gpus.q", ["did you mean 'gpu.q'?", 'unknown queue "gpus.q"']),
        ({"resources": ("ngpu",)}, "#$ -l ngpu=1", ["did you mean 'ngpus'?", 'unknown resource "ngpu"']),
        ({"gpus": 9, "resources": ("ngpus",)}, "#$ -l ngpus=9", ["offers only hc:ngpus=2"]),
    ],
)
def test_sge_refuses(sweep: Sweep, changes: dict[str, object], header: str, words: list[str]) -> None:
    said = refusals(sweep, asking(**changes), header=header)

    assert [word for word in words if word not in said] == []
