"""The settings of a sweep: product of the axes, ``zip``, ``include``, ``exclude``. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from jobkit.core.records import BATCH_SIZE
from jobkit.core.terminal import suggest
from jobkit.run.workloads.base import knobs
from jobkit.spec.fields import AUTO

Loc = tuple[int | str, ...]
NO_KNOBS = ("zip", "include", "exclude")
"""The keys of a sweep that are no knobs."""


def settings(
    axes: Mapping[str, Sequence[int]],
    zipped: Mapping[str, Sequence[int]],
    include: Sequence[Mapping[str, int]],
    exclude: Sequence[Mapping[str, int]],
) -> tuple[dict[str, int], ...]:
    """Return the settings of a sweep, each once, in the order of the axes.

    Parameters
    ----------
    axes
        Knob to values: every combination of them.
    zipped
        Knobs that advance together; as one more axis.
    include
        Settings to add, whatever ``exclude`` says.
    exclude
        A setting is dropped if it agrees with all knobs of one of these.
    """
    rows = [dict(zip(zipped, values, strict=True)) for values in zip(*zipped.values(), strict=True)] or [{}]
    if not (axes or zipped):
        rows = [] if include else [{}]
    combined = [
        {**dict(zip(axes, values, strict=True)), **row} for values in product(*axes.values()) for row in rows
    ]
    kept = [
        setting
        for setting in combined
        if not any(rule and rule.items() <= setting.items() for rule in exclude)
    ]
    unique = {tuple(sorted(setting.items())): dict(setting) for setting in [*kept, *include]}
    return tuple(unique.values())


def knob_values(axes: Mapping[str, Any]) -> dict[Loc, Any]:
    """Return what raw YAML gives as the values of each knob that is swept, by its place below sweep."""
    zipped = axes["zip"] if isinstance(axes.get("zip"), dict) else {}
    alone: dict[Loc, Any] = {(name,): values for name, values in axes.items() if name not in NO_KNOBS}
    return alone | {("zip", name): values for name, values in zipped.items()}


def axis_faults(axes: Mapping[str, Any], workload: str) -> Iterator[tuple[Loc, str]]:
    """Yield ``(place below sweep, what is wrong)`` for raw YAML of any shape."""
    known = knobs(workload)
    zipped = axes["zip"] if isinstance(axes.get("zip"), dict) else {}
    if known is not None:
        yield from unknown_knobs(axes, known)
    lengths = {name: len(values) for name, values in zipped.items() if isinstance(values, list)}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        yield ("zip",), f"sweep.zip: knobs that advance together need the same number of values: {counts}"
    for name, values in axes.items():
        if values == AUTO and name not in {BATCH_SIZE, *NO_KNOBS}:
            yield (name,), f"sweep.{name}: only {BATCH_SIZE} may be {AUTO!r}"
        if values == [] and name not in {"include", "exclude"}:
            yield (name,), f"sweep.{name}: no values, so the sweep has no points"
    for name in zipped:
        if name in axes:
            yield ("zip", name), f"sweep.zip.{name}: an axis of its own too; keep one of the two"


def unknown_knobs(
    axes: Mapping[str, Any], known: Sequence[str], owner: str = ""
) -> Iterator[tuple[Loc, str]]:
    """Yield ``(place below sweep, what is wrong)`` for each knob of a sweep that a workload does not have.

    Parameters
    ----------
    known
        What the workload has.
    owner
        A class of the user's own, which can be changed: the message names it, and what it has.
    """
    names = list(knob_values(axes))
    for key in ("include", "exclude"):
        rows = axes[key] if isinstance(axes.get(key), list) else []
        names += [(key, i, name) for i, row in enumerate(rows) if isinstance(row, dict) for name in row]
    holds = f": the KNOBS of {owner} holds {', '.join(known) or 'nothing'}" if owner else ""
    for loc in names:
        if loc[-1] not in known:
            more = holds or suggest(str(loc[-1]), list(known))
            yield loc, f"sweep.{'.'.join(map(str, loc))}: no such knob{more}"
