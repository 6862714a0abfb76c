"""The settings of a sweep: product of the axes, ``zip``, ``include``, ``exclude``; and their repeats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, PlainSerializer
from pydantic_core import core_schema

from jobkit.core.knobs import AUTO, AUTOMATIC, BATCH_SIZE, RUN_KNOBS, SWITCH, Knob, Value
from jobkit.core.student import LEAST
from jobkit.core.terminal import suggest
from jobkit.spec.fields import MOST, POSITIVE, STRICT, number_written, or_mapping, positive
from jobkit.worker.workloads.base import knobs, offered_by

Loc = tuple[int | str, ...]
NO_KNOBS = ("zip", "include", "exclude")
"""The keys of a sweep that are no knobs."""


def settings(
    axes: Mapping[str, Sequence[Value]],
    zipped: Mapping[str, Sequence[Value]],
    include: Sequence[Mapping[str, Value]],
    exclude: Sequence[Mapping[str, Value]],
) -> tuple[dict[str, Value], ...]:
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
    combined = (
        {**dict(zip(axes, values, strict=True)), **row} for values in product(*axes.values()) for row in rows
    )
    rules = [rule.items() for rule in exclude if rule]
    kept = [setting for setting in combined if not any(rule <= setting.items() for rule in rules)]
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
        yield from name_faults(axes, known)
    yield from value_faults(axes, known or (Knob(name=BATCH_SIZE), *RUN_KNOBS))
    lengths = {name: len(values) for name, values in zipped.items() if isinstance(values, list)}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        yield ("zip",), f"sweep.zip: knobs that advance together need the same number of values: {counts}"
    for name, values in axes.items():
        if values == AUTO and name not in {BATCH_SIZE, *AUTOMATIC, *NO_KNOBS}:
            yield (name,), f"sweep.{name}: only {BATCH_SIZE} may be {AUTO!r}"
        if values == [] and name not in {"include", "exclude"}:
            yield (name,), f"sweep.{name}: no values, so the sweep has no points"
    for name in zipped:
        if name in axes:
            yield ("zip", name), f"sweep.zip.{name}: an axis of its own too; keep one of the two"


def name_faults(axes: Mapping[str, Any], known: Sequence[Knob], owner: str = "") -> Iterator[tuple[Loc, str]]:
    """Yield ``(place below sweep, what is wrong)`` for each name that is no knob.

    Parameters
    ----------
    known
        The knobs of the workload, and of jobkit.
    owner
        A class of the user's own, which can be changed: the message names it, and its knobs.
    """
    names = [knob.name for knob in known]
    own = ", ".join(knob.name for knob in known if knob not in RUN_KNOBS)
    holds = f": the KNOBS of {owner} holds {own or 'nothing'}"
    for loc, _ in places(axes):
        if (name := str(loc[-1])) in names:
            continue
        if owner:
            more = holds
        elif others := offered_by(name):
            more = f" of this workload; {each(others)} {'have' if len(others) > 1 else 'has'} it"
        elif not (more := suggest(name, names)).startswith("; did you"):
            more = f", of no shipped workload{more}"
        yield loc, f"sweep.{'.'.join(map(str, loc))}: no such knob{more}"


def each(names: Sequence[str]) -> str:
    """Return names as a sentence has them."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def value_faults(axes: Mapping[str, Any], known: Sequence[Knob]) -> Iterator[tuple[Loc, str]]:
    """Yield ``(place below sweep, what is wrong)`` for each word and number that a knob does not have."""
    named = {knob.name: knob for knob in known}
    for loc, values in places(axes):
        if (knob := named.get(str(loc[-1]))) is None:
            continue
        alone: list[tuple[Loc, Any]] = [(loc, values)]
        listed = isinstance(values, list)
        for place, value in [((*loc, at), one) for at, one in enumerate(values)] if listed else alone:
            # What is neither a number nor a word is a fault of the type.
            word = SWITCH[value] if isinstance(value, bool) else value
            whole = value == AUTO and len(place) == 1  # `axis_faults` has the others
            if not whole and isinstance(word, str | int if knob.words else str) and word not in knob.words:
                yield place, f"sweep.{'.'.join(map(str, place))}: {value!r}: should be {knob.expected}"


def places(axes: Mapping[str, Any]) -> Iterator[tuple[Loc, Any]]:
    """Yield each knob that a sweep names, by its place, and what the raw YAML gives as its values."""
    yield from knob_values(axes).items()
    for key in ("include", "exclude"):
        rows = axes[key] if isinstance(axes.get(key), list) else []
        for number, row in enumerate(rows):
            for name, value in row.items() if isinstance(row, dict) else ():
                yield (key, number, name), value


ENOUGH = 2
"""Fewer repeats have no interval."""
Percent = Annotated[
    float,
    *number_written(
        r"^\d+(\.\d+)?%$",
        lambda percent: 0 < percent < 100,
        "a share is written like 3%, and is between 0% and 100%",
    ),
    AfterValidator(lambda percent: percent / 100),
    PlainSerializer(lambda share: f"{100 * share:g}%"),
]
"""A share of 1, written ``3%``."""


class Repeats(BaseModel):
    """Repeat a setting until the mean of its speed is known well enough.

    Attributes
    ----------
    share
        Half the 95 % interval of the mean speed, as a share of the mean, at which repeats end.
    least
        The number of repeats that run in any case; fewer than `LEAST` seem precise too often by chance.
    most
        The largest number of repeats; each is planned as a point.
    """

    model_config = STRICT

    share: Percent = 0.03
    least: Annotated[int, Field(ge=ENOUGH, le=MOST)] = LEAST
    most: Annotated[int, Field(ge=ENOUGH, le=MOST)] = 10


def most(repeats: int | Repeats) -> int:
    """Return the number of repeats that are planned."""
    return repeats.most if isinstance(repeats, Repeats) else repeats


def _number_or(value: object, mapping: core_schema.ValidatorFunctionWrapHandler) -> object:
    """Return a number as it is, the defaults for ``auto``, and anything else as a mapping."""
    if value == AUTO:
        return Repeats()
    if isinstance(value, bool) or not isinstance(value, int | dict | Repeats):
        raise ValueError("should be a whole number above 0, auto, or a mapping")  # noqa: TRY004 - pydantic's
    if isinstance(value, dict) and isinstance(planned := value.get("most"), int) and planned >= ENOUGH:
        value = {"least": min(LEAST, planned), **value}
    return positive(value) if isinstance(value, int) else mapping(value)


RepeatsOrNumber = Annotated[int | Repeats, or_mapping(Repeats, _number_or, [POSITIVE, {"const": AUTO}])]
"""A whole number above 0, ``auto``, or the keys of `Repeats`."""
