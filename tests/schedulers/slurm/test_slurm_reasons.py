from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.schedulers import slurm
from jobkit.schedulers.types import JobId, Queued, Remedy, State

JOB = JobId("12")


def waits(reason: str, state: State = State.PENDING) -> Queued:
    return Queued(job_id="12", task=1, state=state, reason=reason)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Resources", "Resources: what it needs is in use"),
        ("Priority", "Priority: other jobs are ahead of it"),
        ("QOSMaxJobsPerUserLimit", "QOSMaxJobsPerUserLimit: a limit of the QOS is reached"),
        ("QOSGrpGRES", "QOSGrpGRES: a limit of the QOS is reached"),
        ("AssocGrpCPUMinutesLimit", "AssocGrpCPUMinutesLimit: a limit of the account is reached"),
        ("DependencyNeverSatisfied", "DependencyNeverSatisfied: its dependency can never be satisfied"),
        ("Dependency", "Dependency: waits for another job to end"),
        ("SomethingNew", "SomethingNew"),
        ("", ""),
    ],
)
def test_a_reason_is_reported_in_its_own_word_and_in_plain_ones(reason: str, words: str) -> None:
    assert slurm.explain(waits(reason)) == words


def test_what_slurm_holds_is_released_and_by_one_command() -> None:
    held = waits("JobHeldUser", State.HELD)
    assert slurm.remedy(JOB, (2, 4, 5), held) == Remedy(argv=("scontrol", "release", "12_[2,4-5]"))
    assert slurm.remedy(JOB, (7,), held) == Remedy(argv=("scontrol", "release", "12_7"))
    there = slurm.remedy(JobId("12", "lab2"), (7,), held)
    assert there == Remedy(argv=("scontrol", "-M", "lab2", "release", "12_7"))
    failed = waits("launch failed requeued held", State.HELD)
    assert slurm.remedy(JOB, (1,), failed) == Remedy(argv=("scontrol", "release", "12_1"))


def test_what_will_never_begin_as_it_is_names_the_key_to_change() -> None:
    assert slurm.remedy(JOB, (1,), waits("PartitionTimeLimit", State.ERROR)) == Remedy(
        key="resources.walltime"
    )
    assert slurm.remedy(JOB, (1,), waits("DependencyNeverSatisfied", State.ERROR)) == Remedy()


def test_only_an_administrator_releases_what_one_holds() -> None:
    assert slurm.remedy(JOB, (1,), waits("JobHeldAdmin", State.HELD)) == Remedy()


def test_what_waits_for_its_turn_has_no_remedy() -> None:
    assert slurm.remedy(JOB, (1,), waits("Priority")) is None


@given(st.text(), st.sampled_from([State.PENDING, State.RUNNING, State.ENDING, State.UNKNOWN]))
def test_what_needs_nobody_has_no_remedy_and_any_reason_can_be_put_in_words(
    reason: str, state: State
) -> None:
    one = waits(reason, state)
    assert slurm.remedy(JOB, (1,), one) is None
    assert slurm.explain(one).startswith(reason)
