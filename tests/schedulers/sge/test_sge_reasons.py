from __future__ import annotations

import pytest

from jobkit.core.shell import Completed
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


HEAD = "queuename qtype resv/used/tot. load_avg arch states\n---\n"
ROW = "{name}                BIP   0/0/16         1.97     lx-amd64      {state}\n"


def shut(states: dict[str, str], status: int = 0) -> str:
    text = HEAD + "".join(ROW.format(name=name, state=state) for name, state in states.items())
    return sge.shut_reason(Completed(sge.shut_argv(), status, text, ""))


def test_queue_instances_in_error_are_named_with_the_command_that_clears_them() -> None:
    why = shut({"all.q@n1": "E", "gpu.q@n1": "aE"})
    assert why == "no queue starts a job until an administrator types: qmod -cq all.q@n1 gpu.q@n1"
    assert sge.explain(one(State.PENDING, f"qw: {why}")) == f"qw: {why}"
    many = shut({f"all.q@n{n}": "E" for n in range(9)} | {"gpu.q@n1": "d"})
    assert many == "no queue starts a job until an administrator types: qmod -cq '*'"


def test_a_queue_in_error_is_named_although_another_may_start_a_job() -> None:
    why = shut({"a.q@n": "E", "b.q@n": ""})
    assert why == "waits for a free slot; a.q starts no job until an administrator types: qmod -cq a.q@n"


@pytest.mark.parametrize(
    ("states", "status"),
    [({"a.q@n": "E", "a.q@m": ""}, 0), ({"a.q@n": "d"}, 0), ({}, 0), ({"a.q@n": "E"}, 1)],
)
def test_a_cluster_that_may_start_a_job_or_does_not_answer_is_not_blamed(
    states: dict[str, str], status: int
) -> None:
    assert shut(states, status) == ""
