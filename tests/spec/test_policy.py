from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from jobkit.core.records import Outcome
from jobkit.spec.policy import Change, Policy, TryEnd, grown, retry

COUNTED = [Outcome.RAM_OOM, Outcome.TIMEOUT, Outcome.PREEMPTED, Outcome.NODE_FAIL]
NODES = st.sampled_from(["n1", "n2", "n3", ""])
HANGS = st.builds(TryEnd, st.just(Outcome.TIMEOUT), NODES, st.just(True))  # noqa: FBT003 - it hung
TRIES = st.lists(st.one_of(HANGS, st.builds(TryEnd, st.sampled_from([*Outcome, None]), NODES)), max_size=8)
POLICIES = st.builds(
    lambda most, memory, walltime: Policy.model_validate(
        {
            "ram_oom": {"tries": most[0], "memory": f"x{memory}"},
            "timeout": {"tries": most[1], "walltime": f"x{walltime}"},
            "preempted": {"tries": most[2]},
            "node_fail": {"tries": most[3]},
        }
    ),
    st.tuples(*[st.integers(0, 4)] * 4),
    st.sampled_from(["1.5", "2", "1.25"]),
    st.sampled_from(["2", "3.5"]),
)


def allowed(policy: Policy, outcome: Outcome | None) -> int:
    part = getattr(policy, str(outcome), None) if outcome in COUNTED else None
    return part.tries if part else 0


@given(POLICIES, TRIES)
def test_a_point_runs_again_as_often_as_its_last_outcome_may(policy: Policy, ended: list[TryEnd]) -> None:
    last = ended[-1] if ended else TryEnd(None)
    times = [(tried.outcome, tried.hung) for tried in ended].count((last.outcome, last.hung))
    assert (retry(policy, ended) is not None) is (0 < times <= allowed(policy, last.outcome))


@given(POLICIES, st.lists(st.one_of(HANGS, st.builds(TryEnd, st.sampled_from(Outcome), NODES)), max_size=60))
def test_however_it_goes_the_tries_come_to_an_end(policy: Policy, fate: list[TryEnd]) -> None:
    """Against fate: each outcome as it comes, run again as long as the policy says so."""
    ended: list[TryEnd] = []
    for tried in fate:
        ended.append(tried)
        if retry(policy, ended) is None:
            break
    most = sum(allowed(policy, outcome) for outcome in [*COUNTED, Outcome.TIMEOUT])
    assert len(ended) <= most + 1


@given(POLICIES, TRIES)
def test_factors_compound_and_bad_nodes_are_stayed_away_from(policy: Policy, ended: list[TryEnd]) -> None:
    change = retry(policy, ended)
    if change is None:
        return
    outcomes = [tried.outcome for tried in ended if not tried.hung]
    assert change.memory == policy.ram_oom.memory ** outcomes.count(Outcome.RAM_OOM)
    assert change.walltime == policy.timeout.walltime ** outcomes.count(Outcome.TIMEOUT)
    bad = [tried.node for tried in ended if tried.outcome is Outcome.NODE_FAIL and tried.node]
    assert set(change.exclude) == set(bad)
    assert len(change.exclude) == len(set(bad))


def test_the_defaults() -> None:
    policy = Policy()
    ram = [TryEnd(Outcome.RAM_OOM, "n1")]
    assert retry(policy, ram) == Change(memory=1.5)
    assert retry(policy, ram * 2) == Change(memory=2.25)
    assert retry(policy, ram * 3) is None
    assert retry(policy, [*ram, TryEnd(Outcome.TIMEOUT, "n1")]) == Change(memory=1.5, walltime=2)
    assert retry(policy, [TryEnd(Outcome.NODE_FAIL, "n1")]) == Change(exclude=("n1",))
    assert retry(policy, [TryEnd(Outcome.BUG, "n1")]) is None
    assert retry(policy, [TryEnd(Outcome.GPU_OOM, "n1")]) is None
    assert retry(policy, [*ram, TryEnd(None)]) is None, "it is under way"
    assert retry(policy, []) is None


def test_a_hang_runs_again_with_the_same_walltime_and_then_waits_for_a_person() -> None:
    policy, slow = Policy(), TryEnd(Outcome.TIMEOUT, "n1")
    hang = slow._replace(hung=True)
    assert retry(policy, [hang]) == Change()
    assert retry(policy, [hang, hang]) is None
    assert retry(policy, [hang, slow]) == Change(walltime=2), "the walltime was too short once"
    assert retry(policy, [slow, hang]) == Change(walltime=2)


@pytest.mark.parametrize("factor", ["1.5", "x", "x1", "x0.5", "x101", "xnan", "xinf", "2x", 2, None])
def test_a_factor_that_is_none(factor: object) -> None:
    with pytest.raises(ValidationError, match=r"a factor is written like x1\.5, and is more than 1"):
        Policy.model_validate({"ram_oom": {"memory": factor}})


@given(st.integers(101, 10_000))
def test_a_factor_is_written_as_it_is_read(hundredths: int) -> None:
    text = f"x{hundredths / 100:g}"
    dumped = Policy.model_validate({"timeout": {"walltime": text}}).model_dump(mode="json")
    assert dumped["timeout"]["walltime"] == text


@given(st.integers(1, 2**45), st.sampled_from([1.0, 1.25, 1.5, 2.25, 4.0]), st.sampled_from([1, 2**20]))
def test_what_has_grown_is_the_next_whole_step(value: int, factor: float, step: int) -> None:
    got = grown(value, factor, step=step)
    assert got % step == 0
    assert 0 <= got - Fraction(value) * Fraction(factor) < step
