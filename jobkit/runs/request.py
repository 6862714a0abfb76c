"""What points request by what was measured, which of them run again, and with what."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING

from jobkit.core.errors import JobkitError
from jobkit.core.frozen import frozen, keyed
from jobkit.core.measurements import largest
from jobkit.core.records import Outcome, Record
from jobkit.core.units import GIB, MIB
from jobkit.runs import status
from jobkit.runs.journal import JobTask
from jobkit.runs.status import SWEEP, PointStanding, PointStatus, RunStatus, kind_for
from jobkit.runs.tries import Try, whole_s
from jobkit.schedulers.registry import SCHEDULERS

if TYPE_CHECKING:
    from jobkit.spec.policy import Policy
    from jobkit.spec.sweep_spec import Resources, SweepSpec


MEMORY_FACTOR = 1.2
LEAST_ROOM_BYTES = 256 * MIB
"""A first load held 192 MiB more than a later one, and the shell of a job 34 MiB (benchmarks/records)."""
SMALL_STEP_BYTES, SMALL_STEPS = 100 * MIB, 10
WALLTIME_FACTOR, WALLTIME_STEP_S = 1.25, 300
MINUTES = 30.0  # time of a shard of a corpus by default, or half of what its queue allows if that is less
WARNING_S = 60  # the default of ``warning_s`` in a site file


def memory_request(held_bytes: float, text_bytes: float = 0) -> int:
    """Return the memory to request for a job that held this much, and has a text of this size."""
    room_bytes = max(LEAST_ROOM_BYTES, (MEMORY_FACTOR - 1) * held_bytes)
    # a shard's text beyond this is added to its request
    return round_up_memory(held_bytes + room_bytes + max(0, text_bytes - 128 * MIB))


def walltime_request(longest_s: float, warning_s: float = WARNING_S) -> int:
    """Return the walltime for work of at most ``longest_s``, with a warning before the end."""
    # 60 s: for what a node does to its jobs beyond the measured work
    return round_up_walltime(WALLTIME_FACTOR * (longest_s + 60 + warning_s))


def shard_s(limit_s: float | None, spread: float, warning_s: float = WARNING_S) -> float:
    """Return how long a shard of a corpus takes by default, as expected: its request is within a limit.

    ``spread``: the longest time over the expected one.
    """
    if limit_s is None:
        return 60 * MINUTES
    within_s = (limit_s // WALLTIME_STEP_S * WALLTIME_STEP_S / WALLTIME_FACTOR - 60 - warning_s) / spread
    return min(60 * MINUTES, max(60 * 10.0, min(limit_s / 2, within_s)))


def round_up_memory(size: float) -> int:
    """Return a request in steps that people use: whole GiB, and up to 900 MiB steps of 100 MiB."""
    small = math.ceil(size / SMALL_STEP_BYTES)
    return small * SMALL_STEP_BYTES if small < SMALL_STEPS else math.ceil(size / GIB) * GIB


def round_up_walltime(seconds: float) -> int:
    """Return a request in whole steps."""
    return math.ceil(seconds / WALLTIME_STEP_S) * WALLTIME_STEP_S


def enough(
    asked: Resources,
    *,
    held_bytes: float | None = None,
    longest_s: float | None = None,
    warning_s: float = WARNING_S,
    text_bytes: float = 0,
) -> Resources:
    """Return what suffices: memory and walltime as measured, and as asked if nothing was measured."""
    changes = {}
    if held_bytes is not None:
        changes["memory"] = memory_request(held_bytes, text_bytes)
    if longest_s is not None:
        changes["walltime"] = walltime_request(longest_s, warning_s)
    return asked.model_copy(update=changes)


def used_ram(record: Record) -> int | None:
    """Return the most RAM that a try is charged with: that of its cgroup, if any, with the page cache."""
    memory, scheduler = record.memory, SCHEDULERS.get(record.job.scheduler)
    cgroup = memory.cgroup_peak_bytes if scheduler and scheduler.CHARGES_PAGE_CACHE else None
    checked = record.check.rss_peak_bytes if record.check else None
    known = (memory.ram_peak_bytes, cgroup, checked, record.accounted_rss_bytes)
    return largest(known)


def held_in(tried: Try) -> int | None:
    """Return the most RAM of a try, by its record or by the accounting of a job that ran it alone."""
    own = used_ram(tried.record) if tried.record else None
    accounted = tried.account.max_rss_bytes if tried.account and tried.alone else None
    return largest((own, accounted)) or None


def held_by(records: Iterable[Record]) -> Callable[[Record], int | None]:
    """Return what finds the most RAM of tries that count for the setting of one; ``None`` if unknown.

    They have the same number of processes, and no larger load: memory grows with the load, so what a smaller
    load held in addition is what a first load, or chance, may add to any.
    """
    most: dict[tuple[int, int], list[tuple[int, int]]] = {}  # by processes: each load, and the RAM up to it
    own: dict[object, int | None] = {}  # of the tries of each setting
    for record in sorted(records, key=_load):
        if record.outcome is Outcome.OK and (used := used_ram(record)) is not None:
            smaller = most.setdefault(_processes(record), [])
            smaller.append((_load(record), max([used, *(ram for _, ram in smaller[-1:])])))
            own[_setting(record)] = largest((used, own.get(_setting(record))))

    def held(like: Record) -> int | None:
        load, tries = _load(like), most.get(_processes(like), [])
        end = bisect_right(tries, load, key=itemgetter(0)) if load else len(tries)
        return largest((tries[end - 1][1] if end else None, own.get(_setting(like))))

    return held


def _processes(record: Record) -> tuple[int, int]:
    return record.point.workers, record.point.gpus


def _setting(record: Record) -> object:
    return _processes(record), tuple(sorted(record.params.items()))


def _load(record: Record) -> int:
    """Return the largest load of a try; 0 if it is not known."""
    return record.summary.load_max or 0 if record.summary else 0


@keyed
class Change:
    memory: float = 1.0  # factor on the spec's request
    walltime: float = 1.0  # factor on the spec's request
    exclude: tuple[str, ...] = ()  # nodes to stay away from


def policy_change(policy: Policy, tries: Sequence[Try]) -> Change | None:
    """Return how a point runs again after its tries, the oldest first; ``None`` if it does not."""
    if not tries or tries[-1].outcome is None:
        return None
    most: int = getattr(getattr(policy, str(tries[-1].outcome), None), "tries", 0)
    times = sum(_reason(tried) == _reason(tries[-1]) for tried in tries)
    return scaled_request(policy, tries) if times <= most else None


def _reason(tried: Try) -> tuple[Outcome | None, bool]:
    return tried.outcome, tried.hung


def scaled_request(policy: Policy, tries: Sequence[Try]) -> Change:
    """Return what a point gets by its tries so far, the oldest first, however often it may run again.

    A request that was too small once is too small, whatever came after it. A try in which a batch hung did
    not have too small a walltime.
    """
    reasons = [_reason(tried) for tried in tries]
    failed = [tried.node for tried in tries if tried.outcome is Outcome.NODE_FAIL and tried.node]
    return Change(
        memory=policy.ram_oom.memory ** reasons.count((Outcome.RAM_OOM, False)),
        walltime=policy.timeout.walltime ** reasons.count((Outcome.TIMEOUT, False)),
        exclude=tuple(dict.fromkeys(failed)),
    )


def changed_resources(
    before: Resources, change: Change, *, keep: Sequence[str] = (), least: tuple[int, int] = (0, 0)
) -> Resources:
    """Return resources with the memory, in whole MiB, and the walltime of a change; the keys ``keep`` stay.

    ``least``: the least of both, memory first.
    """
    memory = max(math.ceil(before.memory * change.memory / MIB) * MIB, least[0])
    update = {"memory": memory, "walltime": max(math.ceil(before.walltime * change.walltime), least[1])}
    return before.model_copy(
        update={name: size for name, size in update.items() if f"resources.{name}" not in keep}
    )


Overrides = tuple[str, ...]  # ``key=value`` of each ``--set``


@frozen
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
    for word in kinds:  # a result never runs again, unless it is the failure of a trial
        if word in {Outcome.OK, Outcome.GPU_OOM} and not any(_is_selected(point, word) for point in points):
            kind = kind_for(points[0].point) if points else SWEEP
            raise JobkitError(
                f"--only {word}: a {kind.noun} with this outcome is done, and never runs again",
                hint=f"{kind.again} runs all {kind.noun}s again",
            )
    named = {_named(points, word).point.index for word in only if word not in kinds}
    return [
        point
        for point in points
        if (not named or point.point.index in named)
        and (not kinds or any(_is_selected(point, word) for word in kinds))
    ]


def _is_selected(point: PointStatus, word: str) -> bool:
    if word == PointStanding.FAILED:
        return point.failed
    if word == PointStanding.MISSING:
        return point.standing is PointStanding.MISSING
    return point.outcome == word and (
        point.standing is PointStanding.FAILED or point.outcome is Outcome.PRUNED
    )


def _named(points: Sequence[PointStatus], word: str) -> PointStatus:
    try:
        point = status.find_point(points, word)
    except JobkitError as error:
        words = ", ".join(WORDS)
        hint = f"{error.hint}; or --only takes {words}, or an outcome such as timeout"
        raise JobkitError(error.message, hint=hint) from error
    name = point.point.point_id
    if point.standing is PointStanding.DONE and point.outcome is not Outcome.PRUNED:
        raise JobkitError(
            f"{name} is done ({point.outcome}): a finished {point.point.kind.noun} is never run again"
        )
    if point.standing in status.LIVE:
        message = f"{name} is {point.standing}: it is not run twice at a time"
        raise JobkitError(message, hint="jobkit cancel RUN POINT first")
    return point


def groups(
    points: Sequence[PointStatus],
    spec_of: Callable[[Overrides], SweepSpec],
    given_to: Mapping[JobTask | None, Overrides],
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
    alike: dict[tuple[Overrides, Change], tuple[list[int], list[Try]]] = {}
    for point in points:
        planned = (needs or {}).get(point.point.index, ())
        given = merge_overrides(given_to.get(point.task, planned), now)
        tries = comparable_tries(point, given_to, given)
        policy = spec_of(given).policy
        change = policy_change(policy, tries) if strictly else scaled_request(policy, tries)
        if change is not None:
            change = replace(change, exclude=()) if anywhere else change
            indices, tries_of_all = alike.setdefault((given, change), ([], []))
            indices.append(point.point.index)
            tries_of_all += tries
    keep = [_key(word) for word in now]
    found = []
    for (given, change), (indices, tries) in alike.items():
        spec = spec_of(given)
        resources = changed_resources(spec.resources, change, keep=keep, least=_least(tries))
        exclude = [*dict.fromkeys([*resources.exclude, *change.exclude])]
        resources = resources.model_copy(update={"exclude": exclude})
        spec = spec.model_copy(update={"resources": resources})
        found.append(RetryGroup(given, change, tuple(indices), spec))
    return found


def _least(tries: Sequence[Try]) -> tuple[int, int]:
    """Return the memory and the walltime that points need, by what their tries held and by their pace."""
    held = (held_in(tried) for tried in tries if tried.outcome is Outcome.RAM_OOM)
    paces = (whole_s(tried) for tried in tries if tried.outcome is Outcome.TIMEOUT and not tried.hung)
    memory = max((memory_request(size) for size in held if size), default=0)
    return memory, max((walltime_request(longest_s) for longest_s in paces if longest_s), default=0)


def allow_nodes(group: RetryGroup, spec: SweepSpec) -> RetryGroup:
    """Return a group that may run on the nodes that the policy avoids; a person's exclusions stay."""
    resources = group.spec.resources.model_copy(update={"exclude": spec.resources.exclude})
    return replace(
        group,
        change=replace(group.change, exclude=()),
        spec=group.spec.model_copy(update={"resources": resources}),
    )


def any_retry_due(run: RunStatus, policy: Policy) -> bool:
    given = status.given_to(run)
    return any(
        policy_change(policy, comparable_tries(point, given, given.get(point.task, ())))
        for point in run.points
        if point.standing is PointStanding.FAILED
    )


def merge_overrides(before: Overrides, now: Overrides) -> Overrides:
    """Return what a point was given and is given now: the last value of a key, and of its parts, counts."""
    keys = [_key(word) for word in now]
    kept = (word for word in before if not any(f"{_key(word)}.".startswith(f"{key}.") for key in keys))
    return (*kept, *now)


def comparable_tries(
    point: PointStatus, given_to: Mapping[JobTask | None, Overrides], given: Overrides
) -> list[Try]:
    """Return a point's tries, the oldest first, without those that no longer apply.

    A try that ran out of memory applies if it had the memory that a person gave; so with its walltime.
    """
    return [
        tried
        for tried in status.history(point)
        if _relevant_overrides(given_to.get(tried.task, ()), tried) == _relevant_overrides(given, tried)
    ]


def _relevant_overrides(given: Overrides, tried: Try) -> list[str]:
    """Return the given words on which an outcome depends."""
    limited_by = {Outcome.RAM_OOM: "resources.memory", Outcome.TIMEOUT: "resources.walltime"}
    key = limited_by.get(tried.outcome) if tried.outcome and not tried.hung else None
    return [word for word in given if key and f"{key}.".startswith(f"{_key(word)}.")]


def _key(word: str) -> str:
    return word.partition("=")[0].strip()
