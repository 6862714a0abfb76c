"""Which points run again, and with what: pure, on looks made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.errors import JobkitError
from jobkit.core.records import Outcome
from jobkit.core.units import parse_size
from jobkit.runs.journal import JobTask
from jobkit.runs.request import (
    Change,
    Overrides,
    RetryGroup,
    changed_resources,
    groups,
    memory_request,
    merge_overrides,
    policy_change,
    select_points,
    walltime_request,
)
from jobkit.runs.status import PointStanding, PointStatus
from jobkit.runs.tries import Try, whole_s
from jobkit.schedulers.types import Accounted
from jobkit.spec.policy import Policy
from jobkit.spec.sweep_spec import SweepSpec
from tests.runs.test_hints import out_of_time
from tests.support.builders import point

TASK = JobTask("slurm", "77", 1)


def tried(outcome: Outcome | None, node: str = "n1", number: int = 1, *, hung: bool = False) -> Try:
    return Try(number=number, outcome=outcome, hung=hung, task=TASK, node=node)


def test_the_defaults() -> None:
    policy = Policy()
    ram = [tried(Outcome.RAM_OOM)]
    assert policy_change(policy, ram) == Change(memory=1.5)
    assert policy_change(policy, ram * 2) == Change(memory=2.25)
    assert policy_change(policy, ram * 3) is None
    assert policy_change(policy, [*ram, tried(Outcome.TIMEOUT)]) == Change(memory=1.5, walltime=2)
    assert policy_change(policy, [tried(Outcome.NODE_FAIL)]) == Change(exclude=("n1",))
    assert policy_change(policy, [tried(Outcome.BUG)]) is None
    assert policy_change(policy, [tried(Outcome.GPU_OOM)]) is None
    assert policy_change(policy, [*ram, tried(None)]) is None, "it is under way"
    assert policy_change(policy, []) is None
    failed = [tried(Outcome.NODE_FAIL, node) for node in ("n1", "n2", "", "n2")]
    often = Policy.model_validate({"node_fail": {"tries": 4}})
    assert policy_change(often, failed) == Change(exclude=("n1", "n2"))
    assert policy_change(often, [*failed, failed[0]]) is None
    slow, hang = tried(Outcome.TIMEOUT), tried(Outcome.TIMEOUT, hung=True)
    assert policy_change(policy, [hang]) == Change()
    assert policy_change(policy, [hang, hang]) is None
    assert policy_change(policy, [hang, slow]) == Change(walltime=2), "the walltime was too short once"
    assert policy_change(policy, [slow, hang]) == Change(walltime=2)


SPEC = SweepSpec.model_validate(
    {
        "name": "t",
        "workload": "count",
        "sweep": {"batch_size": [1]},
        "resources": {"gpus": 0, "memory": "200MiB", "walltime": "00:02:00", "exclude": ["n9"]},
    }
)


def spec_of(given_: Overrides) -> SweepSpec:
    """Return the spec with the memory that a person gave."""
    sizes = [parse_size(word.partition("=")[2]) for word in given_ if word.startswith("resources.memory=")]
    update = {"memory": sizes[-1]} if sizes else {}
    return SPEC.model_copy(update={"resources": SPEC.resources.model_copy(update=update)})


def again(
    looks: Sequence[PointStatus],
    now: Overrides = (),
    *,
    strictly: bool,
    given_: Overrides = (),
    anywhere: bool = False,
) -> list[RetryGroup]:
    """Return the groups of points whose one task was given something."""
    return groups(looks, spec_of, {TASK: given_}, now, strictly=strictly, anywhere=anywhere)


def one_look(index: int, standing: PointStanding, *ended: Outcome | None) -> PointStatus:
    """Return a look at a point; its outcomes the oldest first."""
    tries = tuple(tried(outcome, number=number) for number, outcome in enumerate(ended, 1))[::-1]
    return PointStatus(
        point=point(index), standing=standing, all_tries=tries or (tried(None, number=0),), task=TASK
    )


def looks_of(*standings: PointStanding) -> list[PointStatus]:
    outcome = {PointStanding.DONE: Outcome.OK, PointStanding.FAILED: Outcome.BUG}
    return [one_look(n, standing, outcome.get(standing)) for n, standing in enumerate(standings, 1)]


LOOKS = st.lists(st.sampled_from(PointStanding), min_size=1, max_size=12).map(lambda all_: looks_of(*all_))


@given(LOOKS, st.data())
def test_a_point_by_name_is_taken_or_refused_but_never_run_twice(
    looks: list[PointStatus], data: st.DataObject
) -> None:
    one = data.draw(st.sampled_from(looks))
    word = data.draw(st.sampled_from([one.point.point_id, str(one.point.index)]))
    if one.standing in {PointStanding.FAILED, PointStanding.MISSING}:
        assert select_points(looks, [word]) == [one]
        return
    with pytest.raises(JobkitError) as caught:
        select_points(looks, ["failed", word])
    told = "a finished point is never run again" if one.standing is PointStanding.DONE else "twice at a time"
    assert told in caught.value.message


def test_what_a_word_selects() -> None:
    failed = (Outcome.TIMEOUT, Outcome.LOST, Outcome.CANCELLED)
    looks = [one_look(n, PointStanding.FAILED, outcome) for n, outcome in enumerate(failed, 1)]
    looks += [one_look(4, PointStanding.DONE, Outcome.PRUNED), one_look(5, PointStanding.MISSING)]
    looks += [one_look(6, PointStanding.WAITING)]
    selected = {"": [1, 2, 3, 5], "failed": [1, 2], "cancelled": [3], "missing": [5], "lost": [2]}
    selected |= {"pruned": [4], "failed cancelled": [1, 2, 3], "failed 1 3": [1], "node_fail": []}
    for words, expected in selected.items():
        assert [look.point.index for look in select_points(looks, words.split())] == expected, words


def test_a_result_is_refused_unless_it_is_the_failure_of_a_trial_or_was_left_out() -> None:
    with pytest.raises(JobkitError, match="--only gpu_oom: a point with this outcome is done") as caught:
        select_points([one_look(1, PointStanding.DONE, Outcome.GPU_OOM)], ["gpu_oom"])
    assert caught.value.hint == "jobkit sweep SPEC --new runs all points again"
    trial = one_look(1, PointStanding.FAILED, Outcome.GPU_OOM)
    assert select_points([trial], ["gpu_oom"]) == [trial]
    pruned = one_look(1, PointStanding.DONE, Outcome.PRUNED)
    assert select_points([pruned], []) == []
    assert select_points([pruned], ["1"]) == [pruned]
    with pytest.raises(JobkitError, match="no point 'p0002'") as caught:
        select_points(looks_of(*[PointStanding.FAILED] * 3), ["p0002"])
    assert "--only takes failed, cancelled, missing" in caught.value.hint


def test_what_a_person_wants_is_not_counted_but_grows_as_the_policy_says() -> None:
    often = one_look(1, PointStanding.FAILED, *[Outcome.RAM_OOM] * 5)
    bug = one_look(2, PointStanding.FAILED, Outcome.BUG)
    never = replace(one_look(3, PointStanding.MISSING), task=None)
    assert again([often, bug, never], strictly=True) == []
    grown, plain = again([often, bug, never], strictly=False)
    assert (grown.points, grown.change) == ((1,), Change(memory=1.5**5))
    assert (plain.points, plain.change) == ((2, 3), Change())


def test_what_a_group_gets_beyond_the_spec() -> None:
    before, twice = SPEC.resources, Change(memory=2.0, walltime=2.0)
    assert changed_resources(before, Change()) == before
    assert changed_resources(before, Change(memory=1.001)).memory == 201 * 2**20, "a whole step"
    kept = changed_resources(before, twice, keep=["resources.memory"])
    assert (kept.memory, kept.walltime) == (200 * 2**20, 240)
    kept = changed_resources(before, twice, keep=["resources.walltime"])
    assert (kept.memory, kept.walltime) == (400 * 2**20, 120)
    (group,) = again([one_look(1, PointStanding.FAILED, Outcome.NODE_FAIL)], strictly=True)
    assert list(group.spec.resources.exclude) == ["n9", "n1"]


def test_points_of_a_group_get_no_less_than_their_tries_need(tmp_path: Path) -> None:
    """At the pace of the try one point takes two hours; the other held 1 GiB of the 200 MiB requested."""
    late = replace(out_of_time(tmp_path / "try-1", 1, batches=9, spent_s=20.0, total=14_000), task=TASK)
    account = Accounted(job_id="77", task=2, ended=True, outcome=Outcome.RAM_OOM, max_rss_bytes=2**30)
    full = one_look(2, PointStanding.FAILED, Outcome.RAM_OOM)
    full = replace(full, all_tries=(replace(full.all_tries[0], account=account),))
    gone = replace(
        one_look(4, PointStanding.FAILED, Outcome.PREEMPTED),
        all_tries=(tried(Outcome.PREEMPTED, number=2), *full.all_tries),
    )
    looks = [late, full, one_look(3, PointStanding.FAILED, Outcome.PREEMPTED), gone]
    needs = {group.points: group.spec.resources for group in again(looks, strictly=True)}
    pace_s = whole_s(late.verdict)
    assert pace_s
    assert needs[1,].walltime == walltime_request(pace_s) > 240
    assert needs[2, 4].memory == memory_request(2**30) == 2 * 2**30, "whatever came after"
    assert (needs[3,].memory, needs[3,].walltime) == (200 * 2**20, 120)
    (kept,) = again([late], ("resources.walltime=1h",), strictly=False)
    assert kept.spec.resources.walltime == 120, "what a person gives now is the last word"


def test_where_a_site_cannot_stay_away_from_a_node_points_run_again_anywhere() -> None:
    ended = (Outcome.NODE_FAIL, Outcome.PREEMPTED)
    looks = [one_look(n, PointStanding.FAILED, outcome) for n, outcome in enumerate(ended, 1)]
    for anywhere, expected in ((False, {("n1",): (1,), (): (2,)}), (True, {(): (1, 2)})):
        found = again(looks, strictly=True, anywhere=anywhere)
        assert {group.change.exclude: group.points for group in found} == expected


LARGE = ("resources.memory=16GiB",)


def test_what_a_person_gave_stays_and_grows_from_there_and_what_is_given_now_is_the_last_word() -> None:
    """The tries before ran with less: that they ran out of memory tells nothing of it."""
    earlier, later = JobTask("slurm", "76", 1), TASK
    out = replace(tried(Outcome.RAM_OOM), task=earlier)
    look = one_look(1, PointStanding.FAILED, Outcome.RAM_OOM)
    look = replace(look, all_tries=(*look.tries, out, out))
    (group,) = groups([look], spec_of, {later: LARGE}, (), strictly=True)
    assert (group.given, group.change.memory) == (LARGE, 1.5)
    assert group.spec.resources.memory == 24 * 2**30
    (group,) = groups([look], spec_of, {}, (), strictly=False)
    assert group.spec.resources.memory == 675 * 2**20
    failed = one_look(1, PointStanding.FAILED, *[Outcome.RAM_OOM] * 2)
    for before in ((), LARGE):
        (group,) = again([failed], LARGE, given_=before, strictly=False)
        assert group.spec.resources.memory == 16 * 2**30, "what a person gives now is the last word"
        assert group.given == LARGE
    given_ = ("resources.walltime=1h",)
    (group,) = again([failed], given_, strictly=False)
    assert group.change.memory == 2.25, "a walltime hides nothing that is known of memory"
    hung = tried(Outcome.TIMEOUT, hung=True)
    look = one_look(1, PointStanding.FAILED, Outcome.TIMEOUT)
    once = replace(look, all_tries=(hung,))
    (group,) = groups([once], spec_of, {later: given_}, (), strictly=True)
    assert group.change == Change()
    twice = replace(look, all_tries=(hung, replace(hung, task=earlier)))
    assert groups([twice], spec_of, {later: given_}, (), strictly=True) == []


def test_of_one_key_the_last_counts() -> None:
    assert merge_overrides(("a.b=1",), ("a.b=2",)) == ("a.b=2",)
    assert merge_overrides(("a.b=1", "ab=1"), ("a={}",)) == ("ab=1", "a={}")
    assert merge_overrides(("a={}",), ("a.b=1",)) == ("a={}", "a.b=1")
