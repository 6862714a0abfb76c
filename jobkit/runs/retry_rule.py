"""How a point runs again: the spec's policy, applied to its tries. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jobkit.core.records import Outcome
from jobkit.core.units import MIB
from jobkit.runs.tries import Try
from jobkit.spec.policy import Policy
from jobkit.spec.sweep_spec import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    memory: float = 1.0  # factor on the spec's request
    walltime: float = 1.0  # factor on the spec's request
    exclude: tuple[str, ...] = ()  # nodes to stay away from


def policy_change(policy: Policy, tries: Sequence[Try]) -> Change | None:
    """Return how a point runs again after its tries, the oldest first; ``None`` if it does not."""
    if not tries or tries[-1].verdict.outcome is None:
        return None
    most: int = getattr(getattr(policy, str(tries[-1].verdict.outcome), None), "tries", 0)
    times = sum(_reason(tried) == _reason(tries[-1]) for tried in tries)
    return scaled_request(policy, tries) if times <= most else None


def _reason(tried: Try) -> tuple[Outcome | None, bool]:
    return tried.verdict.outcome, tried.verdict.hung


def scaled_request(policy: Policy, tries: Sequence[Try]) -> Change:
    """Return what a point gets by its tries so far, the oldest first, however often it may run again.

    A request that was too small once is too small, whatever came after it. A try in which a batch hung did
    not have too small a walltime.
    """
    reasons = [_reason(tried) for tried in tries]
    failed = [tried.node for tried in tries if tried.verdict.outcome is Outcome.NODE_FAIL and tried.node]
    return Change(
        memory=policy.ram_oom.memory ** reasons.count((Outcome.RAM_OOM, False)),
        walltime=policy.timeout.walltime ** reasons.count((Outcome.TIMEOUT, False)),
        exclude=tuple(dict.fromkeys(failed)),
    )


def scaled(value: int, factor: float, *, step: int) -> int:
    """Return a value times a factor, rounded up to a whole step."""
    return math.ceil(value * factor / step) * step


def changed_resources(before: Resources, change: Change, *, keep: Sequence[str] = ()) -> Resources:
    """Return resources with the memory and the walltime of a change, except for the keys to keep."""
    update = {}
    if "resources.memory" not in keep:
        update["memory"] = scaled(before.memory, change.memory, step=MIB)
    if "resources.walltime" not in keep:
        update["walltime"] = scaled(before.walltime, change.walltime, step=1)
    return before.model_copy(update=update)
