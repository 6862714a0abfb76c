"""What queue and accounting answer about a job decides whether another may begin after it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.errors import RefusedError
from jobkit.runs.after import Parent, Stands, judged, refuse
from jobkit.schedulers import sge
from jobkit.schedulers.protocol import PastJob
from jobkit.schedulers.types import JobId, Queued, State
from tests.support.commands import jobkit, ran


def past(job_id: str, *, well: bool, ended: bool = True) -> PastJob:
    """Return a run of a job in the accounting."""
    words = "COMPLETED" if well else "status 3"
    return PastJob(
        scheduler="slurm", job_id=job_id, name="p", user="u", queue="q", state=words, ended=ended, well=well
    )


def held(state: State, reason: str = "") -> tuple[Queued, ...]:
    """Return what the queue holds of job 12."""
    return (Queued(job_id="12", task=0, state=state, reason=reason),)


@pytest.mark.parametrize(
    ("queued", "accounts", "stands"),
    [
        (held(State.RUNNING), (), Stands.LIVES),
        (held(State.PENDING), (past("12", well=False),), Stands.LIVES),  # it was requeued after it failed
        (held(State.ERROR, "Eqw"), (past("12", well=False),), Stands.STUCK),
        ((), (past("12", well=True),), Stands.WELL),
        ((), (past("12", well=False), past("12", well=True)), Stands.WELL),
        ((), (past("12_1", well=True), past("12_2", well=False)), Stands.BADLY),
        ((), (past("12.1", well=True), past("12.2", well=True)), Stands.WELL),
        ((), (past("12", well=False, ended=False),), Stands.LIVES),
        ((), (past("121", well=True),), Stands.UNKNOWN),
        ((), (), Stands.UNKNOWN),
        ((), None, Stands.UNHEARD),
        (None, (past("12", well=True),), Stands.UNHEARD),
    ],
)
def test_how_a_job_stands(
    queued: tuple[Queued, ...] | None, accounts: tuple[PastJob, ...] | None, stands: Stands
) -> None:
    assert judged(Parent(word="12"), queued, accounts, sge).stands is stands


def test_what_is_refused() -> None:
    plain = Parent(word="12", stands=Stands.WELL, jobs=(JobId("12"),))
    refuse(plain)
    refuse(replace(plain, stands=Stands.LIVES))
    for stands, hint in ((Stands.BADLY, "any:12"), (Stands.UNHEARD, "any:12"), (Stands.UNKNOWN, "number")):
        with pytest.raises(RefusedError, match="nothing was submitted") as refused:
            refuse(replace(plain, stands=stands))
        assert hint in refused.value.hint
        if stands is not Stands.UNKNOWN:
            refuse(replace(plain, stands=stands, word="any:12"))
    with pytest.raises(RefusedError) as refused:
        refuse(replace(plain, word="any:12", stands=Stands.STUCK, typed="qmod -cj 12"))
    assert "qmod -cj 12" in refused.value.hint


SPEC = """\
name: {name}
workload: {workload}
text: sample
scheduler: local
sweep: {{batch_size: 1}}
repeats: 1
resources: {{gpus: 0, cpus: 1}}
"""


@pytest.mark.slow
def test_a_run_here_begins_after_runs(tmp_path: Path) -> None:
    """A run that failed is refused unless its end is enough; `apply` asks only for what it is given."""
    (tmp_path / "bad.py").write_text("def bad(paragraphs):\n    raise ValueError('on purpose')\n")
    for name, workload in (("bad", "./bad.py:bad"), ("good", "count")):
        (tmp_path / f"{name}.yaml").write_text(SPEC.format(name=name, workload=workload))
    assert jobkit("sweep", "bad.yaml", cwd=tmp_path).returncode == 4
    [bad] = (tmp_path / "runs").iterdir()
    refused = jobkit("sweep", "good.yaml", "--after", bad, cwd=tmp_path)
    assert (refused.returncode, "did not end well (1 point: 1 failed" in refused.stderr) == (3, True)
    ran("sweep", "good.yaml", "--after", f"any:runs/{bad.name}", cwd=tmp_path)
    [good] = (tmp_path / "runs").glob("good-*")
    assert f"after:\n- any:{bad}\n" in (good / "sweep.yaml").read_text()
    assert "has a run already" in jobkit("sweep", "good.yaml", "--after", good, cwd=tmp_path).stderr
    done = ran("apply", good, "--corpus", "sample", "--out", "tagged", "--after", good, cwd=tmp_path)
    assert "has ended well" in done.stderr
    assert str(bad) not in (tmp_path / "tagged" / "sweep.yaml").read_text()
