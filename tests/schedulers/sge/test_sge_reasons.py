from __future__ import annotations

import pytest

from jobkit.schedulers import sge
from jobkit.schedulers.types import JobId, Queued, Remedy, State


def one(state: State, reason: str) -> Queued:
    return Queued(job_id="12", task=1, state=state, reason=reason)


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        (State.PENDING, "qw", "qw: waits for a free slot, or its turn"),
        (State.HELD, "hqw: held", "hqw: held, by its owner or until another job ends"),
        (State.RUNNING, "s: suspended", "s: suspended"),
        (State.RUNNING, "", ""),
    ],
)
def test_flags_are_reported_in_plain_words(state: State, reason: str, words: str) -> None:
    assert sge.explain(one(state, reason)) == words


def test_of_an_error_it_is_reported_who_knows_more() -> None:
    told = sge.explain(one(State.ERROR, "Eqw: in error: whatever"))
    assert told.startswith("Eqw: could not be started")
    assert "qstat -j 12 says why" in told


def test_an_error_is_cleared_and_a_hold_released_task_by_task() -> None:
    job, tasks = JobId("12"), (1, 2, 4)
    assert sge.remedy(job, tasks, one(State.ERROR, "Eqw")) == Remedy(argv=("qmod", "-cj", "12.1-2", "12.4"))
    assert sge.remedy(job, tasks, one(State.HELD, "hqw")) == Remedy(argv=("qrls", "12.1-2", "12.4"))
    assert sge.remedy(job, tasks, one(State.PENDING, "qw")) is None
