"""Which points of a run are to run again, in which groups. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from jobkit.core.errors import JobkitError
from jobkit.core.records import Outcome
from jobkit.runs import standing
from jobkit.runs.journal import JobTask
from jobkit.runs.kinds import SWEEP, kind_for
from jobkit.runs.progress import whole_s
from jobkit.runs.request import held_in, memory_request, walltime_request
from jobkit.runs.retry_rule import Change, changed_resources, policy_change, scaled_request
from jobkit.runs.standing import PointState, PointStatus, RunStanding
from jobkit.runs.tries import Try, TryOutcome
from jobkit.spec.policy import Policy
from jobkit.spec.sweep_spec import SweepSpec

Overrides = tuple[str, ...]  # ``key=value`` of each ``--set``


@dataclass(frozen=True, slots=True)
class RetryGroup:
    """Points that run again with the same resources."""

    given: Overrides  # what a person gave for them, now or before: ``key=value``
    change: Change  # what the policy adds to it
    points: tuple[int, ...]  # their indices, in order
    spec: SweepSpec  # with both


WORDS = ("failed", "cancelled", "missing")
"""What ``--only`` takes, besides outcomes and names of points; all three are the default."""


def select_points(points: Sequence[PointStatus], only: Sequence[str]) -> list[PointStatus]:
    """Return the points that a person wants to run again.

    ``only`` has words of `WORDS`, outcomes, indices and ids of points; nothing for all of `WORDS`. With both,
    of the named points those that a word or an outcome selects.
    """
    kinds = [word for word in only or WORDS if word in {*WORDS, *Outcome}]
    for word in kinds:
        _refuse_result(points, word)
    named = {_named(points, word).point.index for word in only if word not in kinds}
    return [
        point
        for point in points
        if (not named or point.point.index in named)
        and (not kinds or any(_is_selected(point, word) for word in kinds))
    ]


def _is_selected(point: PointStatus, word: str) -> bool:
    if word == PointState.FAILED:
        return point.standing is PointState.FAILED and not point.cancelled
    if word == PointState.MISSING:
        return point.standing is PointState.MISSING
    return point.outcome == word and (point.standing is PointState.FAILED or point.outcome is Outcome.PRUNED)


def _refuse_result(points: Sequence[PointStatus], word: str) -> None:
    """Refuse an outcome that is a result, unless it is the failure of a trial."""
    if word in {Outcome.OK, Outcome.GPU_OOM} and not any(_is_selected(point, word) for point in points):
        kind = kind_for(points[0].point) if points else SWEEP
        raise JobkitError(
            f"--only {word}: a {kind.noun} with this outcome is done, and never runs again",
            hint=f"{kind.again} runs all {kind.noun}s again",
        )


def _named(points: Sequence[PointStatus], word: str) -> PointStatus:
    try:
        point = standing.find_point(points, word)
    except JobkitError as error:
        words = ", ".join(WORDS)
        hint = f"{error.hint}; or --only takes {words}, or an outcome such as timeout"
        raise JobkitError(error.message, hint=hint) from error
    name = point.point.point_id
    if point.standing is PointState.DONE and point.outcome is not Outcome.PRUNED:
        raise JobkitError(
            f"{name} is done ({point.outcome}): a finished {point.point.kind.noun} is never run again"
        )
    if point.standing in standing.LIVE:
        message = f"{name} is {point.standing}: it is not run twice at a time"
        raise JobkitError(message, hint="jobkit cancel RUN POINT first")
    return point


def groups(
    points: Sequence[PointStatus],
    spec_of: Callable[[Overrides], SweepSpec],
    given_to: Mapping[JobTask, Overrides],
    now: Overrides,
    *,
    strictly: bool,
    anywhere: bool = False,
    needs: Mapping[int, Overrides] | None = None,
) -> list[RetryGroup]:
    """Group points by how they are to run again.

    ``given_to`` is what each task was given so far, ``now`` what a person gives these points from now on, and
    ``spec_of`` makes the spec of both. ``strictly``: the policy decides that a point runs again at all;
    otherwise a person has decided, and the policy only sets its resources. ``anywhere``: nodes cannot be
    excluded, because the site file names no option for it. ``needs``, by index, is what points were planned
    with; it holds until a person gives them something else.
    """
    alike: dict[tuple[Overrides, Change], list[tuple[PointStatus, list[Try]]]] = {}
    for point in points:
        planned = (needs or {}).get(point.point.index, ())
        given = merge_overrides(given_to.get(point.task, planned) if point.task else planned, now)
        tries = comparable_tries(point, given_to, given)
        policy = spec_of(given).policy
        change = policy_change(policy, tries) if strictly else scaled_request(policy, tries)
        if change is not None:
            change = replace(change, exclude=()) if anywhere else change
            alike.setdefault((given, change), []).append((point, tries))
    keep = [_key(word) for word in now]
    return [
        RetryGroup(
            given,
            change,
            tuple(point.point.index for point, _ in members),
            changed(spec_of(given), change, keep=keep, least=_least(members)),
        )
        for (given, change), members in alike.items()
    ]


def _least(members: Sequence[tuple[PointStatus, Sequence[Try]]]) -> dict[str, int]:
    """Return the memory and the walltime that points need, by what their tries held and by their pace."""
    tries = [(tried, tried.task in point.shared_tasks) for point, all_ in members for tried in all_]
    held = [held_in(tried) for tried, _ in tries if tried.verdict.outcome is Outcome.RAM_OOM]
    late = [pair for pair in tries if pair[0].verdict.outcome is Outcome.TIMEOUT and not pair[0].verdict.hung]
    paces = [whole_s(tried, shared=shared) for tried, shared in late]
    return {
        "memory": max((memory_request(size) for size in held if size), default=0),
        "walltime": max((walltime_request(longest_s) for longest_s in paces if longest_s), default=0),
    }


def allow_nodes(group: RetryGroup, spec: SweepSpec) -> RetryGroup:
    """Return a group that may run on the nodes that the policy avoids; a person's exclusions stay."""
    resources = group.spec.resources.model_copy(update={"exclude": spec.resources.exclude})
    return replace(
        group,
        change=replace(group.change, exclude=()),
        spec=group.spec.model_copy(update={"resources": resources}),
    )


def any_retry_due(run: RunStanding, policy: Policy) -> bool:
    given = standing.given_to(run)
    return any(
        policy_change(policy, comparable_tries(point, given, given.get(point.task, ()) if point.task else ()))
        for point in run.points
        if point.standing is PointState.FAILED
    )


def merge_overrides(before: Overrides, now: Overrides) -> Overrides:
    """Return what a point was given and is given now: the last value of a key, and of its parts, counts."""
    keys = [_key(word) for word in now]
    kept = (word for word in before if not any(f"{_key(word)}.".startswith(f"{key}.") for key in keys))
    return (*kept, *now)


def comparable_tries(
    point: PointStatus, given_to: Mapping[JobTask, Overrides], given: Overrides
) -> list[Try]:
    """Return a point's tries, the oldest first, without those that no longer apply.

    A try that ran out of memory applies if it had the memory that a person gave; so with its walltime.
    """
    return [
        tried
        for tried in standing.history(point)
        if _relevant_overrides(given_to.get(tried.task, ()) if tried.task else (), tried.verdict)
        == _relevant_overrides(given, tried.verdict)
    ]


_LIMITED_BY = {Outcome.RAM_OOM: "resources.memory", Outcome.TIMEOUT: "resources.walltime"}


def _relevant_overrides(given: Overrides, verdict: TryOutcome) -> list[str]:
    """Return the given words on which an outcome depends."""
    key = _LIMITED_BY.get(verdict.outcome) if verdict.outcome and not verdict.hung else None
    return [word for word in given if key and f"{key}.".startswith(f"{_key(word)}.")]


def _key(word: str) -> str:
    return word.partition("=")[0].strip()


def changed(
    spec: SweepSpec, change: Change, *, keep: Sequence[str] = (), least: Mapping[str, int] | None = None
) -> SweepSpec:
    """Return the spec with the resources of a group.

    A person sets the keys ``keep`` now; of the others the group gets at least ``least``.
    """
    resources = changed_resources(spec.resources, change, keep=keep)
    floors = {name: size for name, size in (least or {}).items() if f"resources.{name}" not in keep}
    update: dict[str, object] = {name: max(size, getattr(resources, name)) for name, size in floors.items()}
    update["exclude"] = [*dict.fromkeys([*resources.exclude, *change.exclude])]
    return spec.model_copy(update={"resources": resources.model_copy(update=update)})
