"""Which points of a run are to run again, and how. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jobkit.core.errors import JobkitError
from jobkit.core.records import Outcome
from jobkit.core.units import MIB
from jobkit.outcome.journal import Task
from jobkit.spec.policy import Change, Policy, grown, growth, retry
from jobkit.spec.sweep_spec import SweepSpec
from jobkit.status.standing import PointStanding, RunStanding, Standing, find_point, given_to, history

Overrides = tuple[str, ...]
"""``key=value`` of each ``--set``."""


@dataclass(frozen=True, slots=True)
class Group:
    """Points that run again alike.

    Attributes
    ----------
    given
        What a person gave for them, now or before: ``key=value``.
    change
        What they get beyond that.
    points
        Their indices, in order.
    spec
        With both.
    """

    given: Overrides
    change: Change
    points: tuple[int, ...]
    spec: SweepSpec


WORDS = ("failed", "cancelled", "missing")
"""What ``--only`` takes besides outcomes and names of points; all three are the default."""


def select_points(looks: Sequence[PointStanding], only: Sequence[str]) -> list[PointStanding]:
    """Return the points that a person wants run again.

    Parameters
    ----------
    looks
        All points of the run.
    only
        `WORDS`, outcomes, indices and ids of points; nothing for all of `WORDS`. With both, it is
        the named points that a word or an outcome selects.

    Raises
    ------
    JobkitError
        Where a word names no point, or one that is done, or still in the queue.
    """
    kinds = [word for word in only or WORDS if word in {*WORDS, *Outcome}]
    for word in kinds:
        _refuse_result(looks, word)
    named = {_named(looks, word).point.index for word in only if word not in kinds}
    among = [point for point in looks if point.point.index in named] if named else looks
    return [point for point in among if not kinds or any(_is(point, word) for word in kinds)]


def _is(one: PointStanding, word: str) -> bool:
    """Tell whether a word selects a point: its outcome, or that it failed, or that it is missing."""
    if word == Standing.FAILED:
        return one.standing is Standing.FAILED and not one.cancelled
    if word == Standing.MISSING:
        return one.standing is Standing.MISSING
    return one.outcome == word and (one.standing is Standing.FAILED or one.outcome is Outcome.PRUNED)


def _refuse_result(looks: Sequence[PointStanding], word: str) -> None:
    """Refuse an outcome that is a result, unless it is the failure of a trial."""
    if word in {Outcome.OK, Outcome.GPU_OOM} and not any(_is(look, word) for look in looks):
        raise JobkitError(
            f"--only {word}: a point with this outcome is done, and jobkit never runs a finished point again",
            hint="jobkit sweep SPEC --new measures all points again",
        )


def _named(looks: Sequence[PointStanding], word: str) -> PointStanding:
    try:
        one = find_point(looks, word)
    except JobkitError as error:
        words = ", ".join(WORDS)
        hint = f"{error.hint}; or --only takes {words}, or an outcome such as timeout"
        raise JobkitError(error.message, hint=hint) from error
    name = one.point.point_id
    if one.standing is Standing.DONE and one.outcome is not Outcome.PRUNED:
        raise JobkitError(f"{name} is done ({one.outcome}): a finished point is never run again")
    if one.standing not in {Standing.FAILED, Standing.MISSING, Standing.DONE}:
        raise JobkitError(
            f"{name} is {one.standing}: it is not run twice at a time", hint="jobkit cancel RUN POINT first"
        )
    return one


def groups(
    points: Sequence[PointStanding],
    spec_of: Callable[[Overrides], SweepSpec],
    given_to: Mapping[Task, Overrides],
    now: Overrides,
    *,
    strictly: bool,
    anywhere: bool = False,
) -> list[Group]:
    """Return the points by how they are to run again.

    Parameters
    ----------
    spec_of
        The spec with what a person gave.
    given_to
        What each task of the run was given so far.
    now
        What a person gives now: it holds for the points that run again, then and later.
    strictly
        Whether the policy decides that a point runs again at all; else a person has, and the
        policy says only with what.
    anywhere
        Whether no node can be stayed away from: the site file does not say how.
    """
    found: dict[tuple[Overrides, Change], list[int]] = {}
    for point in points:
        given = merge_overrides(given_to.get(point.task, ()) if point.task else (), now)
        tries = comparable_tries(point, given_to, given)
        policy = spec_of(given).policy
        change = retry(policy, tries) if strictly else growth(policy, tries)
        if change is not None:
            change = change.model_copy(update={"exclude": ()}) if anywhere else change
            found.setdefault((given, change), []).append(point.point.index)
    keep = [_key(word) for word in now]
    return [
        Group(given, change, tuple(indices), changed(spec_of(given), change, keep=keep))
        for (given, change), indices in found.items()
    ]


def due(seen: RunStanding, policy: Policy) -> bool:
    """Tell whether a policy runs a point of a run again."""
    given = given_to(seen)
    failed = [point for point in seen.points if point.standing is Standing.FAILED]
    return any(
        retry(policy, comparable_tries(one, given, given.get(one.task, ()) if one.task else ()))
        for one in failed
    )


def merge_overrides(before: Overrides, now: Overrides) -> Overrides:
    """Return what a point was given and is given now: of one key, and of its parts, the last counts."""
    keys = [_key(word) for word in now]
    return (*(one for one in before if not any(f"{_key(one)}.".startswith(f"{key}.") for key in keys)), *now)


def comparable_tries(
    one: PointStanding, given_to: Mapping[Task, Overrides], given: Overrides
) -> list[tuple[Outcome | None, str]]:
    """Return outcome and node of a point's tries, the oldest first, less those that tell nothing now.

    That a point ran out of memory counts if it had what a person has given it since; so with its walltime.
    """
    return [
        (tried.verdict.outcome, tried.node)
        for tried in history(one)
        if _about(given_to.get(tried.task, ()) if tried.task else (), tried.verdict.outcome)
        == _about(given, tried.verdict.outcome)
    ]


_LIMITED_BY = {Outcome.RAM_OOM: "resources.memory", Outcome.TIMEOUT: "resources.walltime"}


def _about(given: Overrides, outcome: Outcome | None) -> list[str]:
    """Return of what was given that on which an outcome depends."""
    key = _LIMITED_BY.get(outcome) if outcome else None
    return [one for one in given if key and f"{key}.".startswith(f"{_key(one)}.")]


def _key(word: str) -> str:
    return word.partition("=")[0].strip()


def changed(spec: SweepSpec, change: Change, *, keep: Sequence[str] = ()) -> SweepSpec:
    """Return the spec with what a group is to get beyond it; ``keep`` are keys that a person sets now."""
    asked = spec.resources
    update: dict[str, object] = {"exclude": [*dict.fromkeys([*asked.exclude, *change.exclude])]}
    if "resources.memory" not in keep:
        update["memory"] = grown(asked.memory, change.memory, step=MIB)
    if "resources.walltime" not in keep:
        update["walltime"] = grown(asked.walltime, change.walltime, step=1)
    return spec.model_copy(update={"resources": asked.model_copy(update=update)})
