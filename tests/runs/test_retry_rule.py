from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.records import Outcome
from jobkit.runs.retry_rule import Change, policy_change, scaled
from jobkit.runs.tries import Try, TryOutcome
from jobkit.spec.policy import Policy


def ended_as(outcome: Outcome | None, node: str = "", *, hung: bool = False) -> Try:
    """Return a try that ended so, on a node."""
    return Try(number=1, verdict=TryOutcome(outcome, "", hung=hung), node=node)


COUNTED = [Outcome.RAM_OOM, Outcome.TIMEOUT, Outcome.PREEMPTED, Outcome.NODE_FAIL]
NODES = st.sampled_from(["n1", "n2", "n3", ""])
HANGS = st.builds(ended_as, st.just(Outcome.TIMEOUT), NODES, hung=st.just(True))  # noqa: FBT003 - it hung
TRIES = st.lists(st.one_of(HANGS, st.builds(ended_as, st.sampled_from([*Outcome, None]), NODES)), max_size=8)
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
def test_a_point_runs_again_as_often_as_its_last_outcome_may(policy: Policy, ended: list[Try]) -> None:
    last = ended[-1] if ended else ended_as(None)
    times = [(tried.verdict.outcome, tried.verdict.hung) for tried in ended].count(
        (last.verdict.outcome, last.verdict.hung)
    )
    assert (policy_change(policy, ended) is not None) is (0 < times <= allowed(policy, last.verdict.outcome))


@given(
    POLICIES, st.lists(st.one_of(HANGS, st.builds(ended_as, st.sampled_from(Outcome), NODES)), max_size=60)
)
def test_however_it_goes_the_tries_come_to_an_end(policy: Policy, fate: list[Try]) -> None:
    """Against fate: each outcome as it comes, run again as long as the policy says so."""
    ended: list[Try] = []
    for tried in fate:
        ended.append(tried)
        if policy_change(policy, ended) is None:
            break
    most = sum(allowed(policy, outcome) for outcome in [*COUNTED, Outcome.TIMEOUT])
    assert len(ended) <= most + 1


@given(POLICIES, TRIES)
def test_factors_compound_and_bad_nodes_are_stayed_away_from(policy: Policy, ended: list[Try]) -> None:
    change = policy_change(policy, ended)
    if change is None:
        return
    outcomes = [tried.verdict.outcome for tried in ended if not tried.verdict.hung]
    assert change.memory == policy.ram_oom.memory ** outcomes.count(Outcome.RAM_OOM)
    assert change.walltime == policy.timeout.walltime ** outcomes.count(Outcome.TIMEOUT)
    bad = [tried.node for tried in ended if tried.verdict.outcome is Outcome.NODE_FAIL and tried.node]
    assert set(change.exclude) == set(bad)
    assert len(change.exclude) == len(set(bad))


def test_the_defaults() -> None:
    policy = Policy()
    ram = [ended_as(Outcome.RAM_OOM, "n1")]
    assert policy_change(policy, ram) == Change(memory=1.5)
    assert policy_change(policy, ram * 2) == Change(memory=2.25)
    assert policy_change(policy, ram * 3) is None
    assert policy_change(policy, [*ram, ended_as(Outcome.TIMEOUT, "n1")]) == Change(memory=1.5, walltime=2)
    assert policy_change(policy, [ended_as(Outcome.NODE_FAIL, "n1")]) == Change(exclude=("n1",))
    assert policy_change(policy, [ended_as(Outcome.BUG, "n1")]) is None
    assert policy_change(policy, [ended_as(Outcome.GPU_OOM, "n1")]) is None
    assert policy_change(policy, [*ram, ended_as(None)]) is None, "it is under way"
    assert policy_change(policy, []) is None


def test_a_hang_runs_again_with_the_same_walltime_and_then_waits_for_a_person() -> None:
    policy, slow = Policy(), ended_as(Outcome.TIMEOUT, "n1")
    hang = ended_as(Outcome.TIMEOUT, "n1", hung=True)
    assert policy_change(policy, [hang]) == Change()
    assert policy_change(policy, [hang, hang]) is None
    assert policy_change(policy, [hang, slow]) == Change(walltime=2), "the walltime was too short once"
    assert policy_change(policy, [slow, hang]) == Change(walltime=2)


@given(st.integers(1, 2**45), st.sampled_from([1.0, 1.25, 1.5, 2.25, 4.0]), st.sampled_from([1, 2**20]))
def test_what_is_scaled_is_the_next_whole_step(value: int, factor: float, step: int) -> None:
    got = scaled(value, factor, step=step)
    assert got % step == 0
    assert 0 <= got - Fraction(value) * Fraction(factor) < step
