"""What can be wrong with the fake Grid Engine, as jobkit's own parser reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.core.records import Outcome
from jobkit.schedulers.types import Accounted, Array, JobId, State
from tests.fakes.cluster import FakeCluster
from tests.fakes.contract import ScenarioLab, lab_in, until

TRAP = """\
echo "start $RESTARTED" >>told
trap 'echo USR2 >>told; exit 3' USR2
trap 'echo USR1 >>told; exit 4' USR1
until [[ -s end.$SGE_TASK_ID ]]; do sleep 0.05; done
exit "$(<"end.$SGE_TASK_ID")"
"""


@pytest.fixture
def lab(fake_sge: FakeCluster, tmp_path: Path) -> ScenarioLab:
    fake_sge.set(reschedule_delay_s=0.2, notify_s=0.5)
    return lab_in(tmp_path, "sge", body=TRAP)


def submit(lab: ScenarioLab, last: int = 1, *after: JobId) -> JobId:
    return lab.submit(
        lab.scheduler.submit_argv("job.sh", Array(first=1, last=last, offset=0, throttle=None), after)
    )


def running(lab: ScenarioLab, last: int = 1) -> JobId:
    """Return a job whose tasks are at work: their traps are set."""
    job = submit(lab, last)
    until(lambda: told(lab).count("start 0") == last)
    return job


def told(lab: ScenarioLab) -> list[str]:
    path = lab.folder / "told"
    return path.read_text().splitlines() if path.exists() else []


def done(lab: ScenarioLab, job: JobId) -> list[Accounted]:
    until(lambda: not lab.queue(job))
    return lab.accounts(job)


def test_a_task_is_in_error_and_holds_who_waits(lab: ScenarioLab, fake_sge: FakeCluster) -> None:
    fake_sge.fault("eqw", [1])
    job = submit(lab, 2)
    after = submit(lab, 1, job)
    lab.end(2, 0)
    until(lambda: {task.task: task.state for task in lab.queue(job)} == {1: State.ERROR})
    assert [task.state for task in lab.queue(after)] == [State.HELD]
    lab.run("qdel", f"{job.id}.1")
    lab.end(1, 0)
    assert [task.exit_status for task in done(lab, after)] == [0]


def test_a_log_folder_that_is_not_there_puts_a_task_in_error(fake_sge: FakeCluster, tmp_path: Path) -> None:
    lab = lab_in(tmp_path, "sge", "#$ -o /nowhere/log", body=TRAP)
    job = submit(lab)
    until(lambda: [task.state for task in lab.queue(job)] == [State.ERROR])
    assert [task.outcome for task in lab.accounts(job)] == [Outcome.QUEUE_ERROR]
    assert fake_sge.calls("qacct")


def test_h_rt_kills_and_the_figures_tell(fake_sge: FakeCluster, tmp_path: Path) -> None:
    fake_sge.set(rate=20.0)
    lab = lab_in(tmp_path, "sge", "#$ -l h_rt=10", body=TRAP)
    job = submit(lab)
    (account,) = done(lab, job)
    assert account.outcome is Outcome.TIMEOUT
    assert account.exit_status == 137
    assert told(lab) == ["start 0"]


@pytest.mark.parametrize(
    ("lines", "signals"), [(("-l s_rt=5,h_rt=100",), ["USR1"]), (("-l h_rt=5", "-notify"), ["USR2"])]
)
def test_the_walltime_comes_with_a_warning(
    fake_sge: FakeCluster, tmp_path: Path, lines: tuple[str, ...], signals: list[str]
) -> None:
    fake_sge.set(rate=10.0)
    lab = lab_in(tmp_path, "sge", *(f"#$ {line}" for line in lines), body=TRAP)
    job = submit(lab)
    assert len(done(lab, job)) == 1
    assert told(lab) == ["start 0", *signals]


def test_a_delete_kills_at_once_but_with_notify(lab: ScenarioLab, tmp_path: Path) -> None:
    job = running(lab)
    lab.run("qdel", job.id)
    assert [task.exit_status for task in done(lab, job)] == [137]
    assert told(lab) == ["start 0"]
    polite = lab_in(tmp_path, "sge", "#$ -notify", body=TRAP)
    job = submit(polite)
    until(lambda: told(lab) == ["start 0"] * 2)
    polite.run("qdel", job.id)
    assert [task.exit_status for task in done(polite, job)] == [3]


@pytest.mark.parametrize(
    ("rerun", "outcomes"), [("n", [Outcome.NODE_FAIL]), ("y", [Outcome.NODE_FAIL, None])]
)
def test_a_node_fails(
    fake_sge: FakeCluster, tmp_path: Path, rerun: str, outcomes: list[Outcome | None]
) -> None:
    fake_sge.set(reschedule_delay_s=0.2)
    lab = lab_in(tmp_path, "sge", f"#$ -r {rerun}", body=TRAP)
    job = running(lab)
    fake_sge.node_fails(job.id, 1)
    lab.end(1, 0)
    assert [task.outcome for task in done(lab, job)] == outcomes
