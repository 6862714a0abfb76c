# ruff: noqa: T201 - it prints what it found
"""How often the bound of `jobkit.answers.memory_line` holds: scatter x points x how far x curvature.

``python -m benchmarks.coverage`` writes benchmarks/records/coverage.json and prints its
tables, which docs/what-is-measured.md sums up. Nothing but chance is measured, so it runs anywhere.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.raw import table
from jobkit.answers.memory_line import Fit, Observation, fit_memory

RAW = Path(__file__).with_name("records") / "coverage.json"
MIB = 2**20
CASES, SEED = 4_000, 11
FIXED_BYTES, GROWING_BYTES = 250 * MIB, 1024 * MIB
"""What a batch takes at load 0, and what the largest load measured adds."""
FAR = (2, 4, 8)
"""The bound is asked about so many times the largest load measured."""
CURVES = (0.02, 0.05, 0.1, 0.3)


@dataclass(frozen=True, slots=True)
class Scatter:
    """What makes measurements differ from the truth: standard deviations, and steps.

    Attributes
    ----------
    name
        In words.
    mib, share
        Of a point's measurements together: in MiB, and as a share of the value.
    step_mib
        What is rounded up to.
    in_steps
        Whether the fit is told that an allocator with constant steps makes the scatter.
    """

    name: str
    mib: float = 0.0
    share: float = 0.0
    step_mib: int = 0
    in_steps: bool = False


@dataclass(frozen=True, slots=True)
class Design:
    """How many points there are, and the parts of the worst batch that each measures."""

    name: str
    points: int
    parts: tuple[float, ...] = (1.0,)


SCATTERS = (
    Scatter("steps of 2 MiB alone", step_mib=2),
    Scatter("steps of 20 MiB alone", step_mib=20),
    Scatter("constant, 10 MiB", mib=10),
    Scatter("1 % of the value", share=0.01),
    Scatter("3 % of the value", share=0.03),
    Scatter("a need: 10 MiB and steps of 20 MiB", mib=10, step_mib=20, in_steps=True),
)
NEED_GROWING = Scatter("a need: 3 % of the value", share=0.03, in_steps=True)
"""Not claimed: no record of a GPU shows it."""
DESIGNS = (Design("4 points", 4), Design("5 points", 5), Design("5 points of 3", 5, (1.0, 0.85, 0.7)))
CURVED = (
    Scatter("none"),
    Scatter("0.1 % of the value", share=0.001),
    Scatter("1 % of the value", share=0.01),
    Scatter("3 % of the value", share=0.03),
)


@dataclass(frozen=True, slots=True)
class Found:
    """Shares of the cases: in which the bound held, at each distance, and a curve was seen."""

    held: tuple[float, ...]
    seen: float


def simulate(scatter: Scatter, design: Design, cases: int, curve: float = 0.0, seed: int = SEED) -> Found:
    """Return how often the bound holds for a batch to come.

    Parameters
    ----------
    curve
        What a term in the square of the load adds at the largest load, as a share of what grows.
    """
    dice = random.Random(f"{seed} {scatter.name} {design.name} {curve}")  # noqa: S311 - not cryptography
    held, seen = [0] * len(FAR), 0
    for _ in range(cases):
        fit = _fit(scatter, design, curve, dice)
        seen += bool(fit.curves)
        for number, far in enumerate(FAR):
            held[number] += _takes(scatter, far, curve, _luck(dice), dice) <= fit.upper(far)
    return Found(tuple(one / cases for one in held), seen / cases)


def _fit(scatter: Scatter, design: Design, curve: float, dice: random.Random) -> Fit:
    measured = []
    for number in range(1, design.points + 1):
        load, luck = number / design.points * dice.uniform(0.95, 1.05), _luck(dice)
        measured += [
            Observation(load * part, _takes(scatter, load * part, curve, luck, dice), str(number))
            for part in design.parts
        ]
    found = fit_memory(measured, in_steps=scatter.in_steps)
    if isinstance(found, str):
        raise TypeError(found)
    return found


def _luck(dice: random.Random) -> float:
    return dice.gauss(0, 1)


def _takes(scatter: Scatter, load: float, curve: float, luck: float, dice: random.Random) -> float:
    """Return what a batch takes: half of its variance is its point's, half its own."""
    straight = FIXED_BYTES + GROWING_BYTES * (load + curve * load * load)
    off = (luck + _luck(dice)) / math.sqrt(2)
    size = straight * (1 + scatter.share * off) + scatter.mib * MIB * off
    step = scatter.step_mib * MIB
    return math.ceil(size / step) * step if step else size


def measure(cases: int = CASES) -> dict[str, Any]:
    """Return the figures of all cells."""
    straight = [
        {"scatter": scatter.name, "design": design.name, **_shares(simulate(scatter, design, cases))}
        for scatter in (*SCATTERS, NEED_GROWING)
        for design in DESIGNS
    ]
    curved = [
        {"scatter": scatter.name, "curve": curve, **_shares(simulate(scatter, DESIGNS[1], cases, curve))}
        for scatter in CURVED
        for curve in CURVES
    ]
    return {"cases": cases, "seed": SEED, "far": FAR, "straight": straight, "curved": curved}


def _shares(found: Found) -> dict[str, Any]:
    return {"held": found.held, "seen": found.seen}


def tables(raw: dict[str, Any]) -> tuple[str, str]:
    """Return the tables of the straight and of the curved cells, as Markdown."""
    times = [f"{far} times" for far in raw["far"]]
    straight = (
        (row["scatter"], row["design"], *_percents(row["held"]), f"{100 * row['seen']:.1f}")
        for row in raw["straight"]
    )
    curved = (
        (row["scatter"], f"{100 * row['curve']:.0f} %", *_percents(row["held"]), f"{100 * row['seen']:.0f}")
        for row in raw["curved"]
    )
    return (
        table(("scatter", "measured", *times, "false alarm"), straight),
        table(("scatter", "the curve adds", *times, "seen"), curved),
    )


def _percents(shares: Iterable[float]) -> list[str]:
    return [f"{100 * share:.1f}" for share in shares]


def main() -> None:
    """Simulate, write the figures, and print the tables."""
    raw = measure()
    RAW.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    print("\n\n".join(tables(raw)))


if __name__ == "__main__":
    main()
