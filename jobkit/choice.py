"""Which points of a run are to run again, and how. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobkit.errors import JobkitError
from jobkit.in_words import find_point
from jobkit.look import Look, Standing, history
from jobkit.policy import Change, Policy, grown, growth, retry
from jobkit.records import Outcome
from jobkit.spec import SweepSpec

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Group:
    """Points that run again alike.

    Attributes
    ----------
    change
        What is asked for beyond the spec.
    points
        Their indices, in order.
    """

    change: Change
    points: tuple[int, ...]


AGAIN = {
    "failed": frozenset({Standing.FAILED}),
    "missing": frozenset({Standing.MISSING}),
}
"""What ``--only`` takes beside the names of points."""


def chosen(looks: Sequence[Look], only: Sequence[str]) -> list[Look]:
    """Return the points that a person wants run again.

    Parameters
    ----------
    looks
        All points of the run.
    only
        ``failed``, ``missing``, indices and ids of points; nothing for all that failed or are missing.

    Raises
    ------
    JobkitError
        Where a word names no point, or one that is done, or still in the queue.
    """
    wanted = {standing for word in only for standing in AGAIN.get(word, ())}
    if not only:
        wanted = {standing for some in AGAIN.values() for standing in some}
    named = {one.point.index for word in only if word not in AGAIN for one in [_named(looks, word)]}
    return [one for one in looks if one.standing in wanted or one.point.index in named]


def _named(looks: Sequence[Look], word: str) -> Look:
    one = find_point(looks, word)
    name = one.point.point_id
    if one.standing is Standing.DONE and one.outcome is not Outcome.PRUNED:
        raise JobkitError(f"{name} is done ({one.outcome}): a finished point is never run again")
    if one.standing not in {Standing.FAILED, Standing.MISSING, Standing.DONE}:
        raise JobkitError(
            f"{name} is {one.standing}: it is not run twice at a time", hint="jobkit cancel RUN POINT first"
        )
    return one


def groups(points: Sequence[Look], policy: Policy, *, strictly: bool, anywhere: bool = False) -> list[Group]:
    """Return the points by how they are to run again.

    Parameters
    ----------
    strictly
        Whether the policy decides that a point runs again at all; else a person has, and the
        policy says only with what.
    anywhere
        Whether no node can be stayed away from: the site file does not say how.
    """
    found: dict[Change, list[int]] = {}
    for one in points:
        tries = history(one)
        change = retry(policy, tries) if strictly else growth(policy, tries)
        if change is not None:
            change = change.model_copy(update={"exclude": ()}) if anywhere else change
            found.setdefault(change, []).append(one.point.index)
    return [Group(change, tuple(indices)) for change, indices in found.items()]


def changed(spec: SweepSpec, change: Change, *, keep: Sequence[str] = ()) -> SweepSpec:
    """Return the spec with what a group is to get beyond it; ``keep`` are keys that a person has set."""
    asked = spec.resources
    update: dict[str, object] = {"exclude": [*dict.fromkeys([*asked.exclude, *change.exclude])]}
    if "resources.memory" not in keep:
        update["memory"] = grown(asked.memory, change.memory, step=MIB)
    if "resources.walltime" not in keep:
        update["walltime"] = grown(asked.walltime, change.walltime, step=1)
    return spec.model_copy(update={"resources": asked.model_copy(update=update)})
