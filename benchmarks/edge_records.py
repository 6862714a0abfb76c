"""The records of benchmarks/edge.py, read into cells."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from jobkit.answers.memory_line import Fit, Observation, fit_memory

RECORDS = Path(__file__).with_name("records") / "edge"
LOAD, TEXT = "load", "text"
EXPANDABLE, DEFAULT = "expandable", "default"
JOBKIT, BISECTION = "jobkit", "bisection"
BINSEARCH, POWER = "Lightning, binsearch", "Lightning, power"
TIGHT = 0.95
"""The least share of the largest batch that fits that a bound should reach."""


@dataclass(frozen=True, slots=True)
class Contender:
    """What one way of searching took."""

    name: str
    found: int
    trials: int
    out_of_memory: int
    work_s: float
    with_starts_s: float


@dataclass(frozen=True, slots=True)
class Cell:
    """One allocator setting, text, order and cap.

    Attributes
    ----------
    hole
        The smallest batch size below the truth that failed.
    point, safe
        The batch sizes of jobkit's line and of its bound.
    verified
        Whether the safe one passed when it was run.
    beyond
        The load at the truth over the largest measured.
    now
        The load at the bound of the fit as it is now, over that at the truth.
    held_bytes
        What tensors held before the trials: one figure where all began alike.
    """

    allocator: str
    order: str
    paragraphs: int
    cap_gib: float
    saturated: bool
    truth: int
    hole: int | None
    point: int
    safe: int
    verified: bool
    beyond: float
    now: float
    held_bytes: frozenset[int]
    contenders: dict[str, Contender]

    @property
    def counts(self) -> bool:
        """Whether memory ends the batch, largest load first."""
        return self.order == LOAD and not self.saturated

    @property
    def tightness(self) -> float:
        """The safe bound as a share of the truth."""
        return self.safe / self.truth

    @property
    def holds(self) -> bool:
        """Whether the safe bound passed, and lies below all that is known to fail."""
        return self.verified and self.safe <= self.truth and (self.hole is None or self.safe < self.hole)


def reports() -> list[dict[str, Any]]:
    """Return what every process wrote: expandable segments first, the longer text first."""
    read = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RECORDS.glob("*.json"))]
    return sorted(read, key=lambda one: (one["allocator"] == DEFAULT, -one["paragraphs"], one["order"]))


def cells(report: dict[str, Any]) -> list[Cell]:
    """Return the cells of a process."""
    return [_cell(report, one) for one in report["cells"]]


def _cell(report: dict[str, Any], raw: dict[str, Any]) -> Cell:
    told, searches = raw["prediction"], raw["contenders"]
    tried = [trial for searche in searches for trial in searche["tried"]] + raw["scanned"]
    safe = told["safe_batch"]
    return Cell(
        allocator=DEFAULT if report["allocator"] == DEFAULT else EXPANDABLE,
        order=report["order"],
        paragraphs=report["paragraphs"],
        cap_gib=raw["cap_gib"],
        saturated=raw["saturated"],
        truth=raw["truth"],
        hole=raw["first_failing_below"],
        point=told["largest_batch"],
        safe=safe,
        verified=searches[0]["tried"][-1]["batch"] == safe and searches[0]["tried"][-1]["passed"],
        beyond=raw["truth_load"] / told["fit"]["load_max"],
        now=fit_now(report["order"], told).safe_load(told["capacity_bytes"]) / raw["truth_load"],
        held_bytes=frozenset(one["held_bytes"] for one in tried) - {None},
        contenders={searche["name"]: _contender(searche) for searche in searches},
    )


def fit_now(order: str, told: dict[str, Any]) -> Fit:
    """Return what the fit says today of the points that a prediction rested on.

    Raises
    ------
    TypeError
        Where it says nothing.
    """
    observations = [
        Observation(need["load"], _size_bytes(order, need, told["slack"]), str(point["batch"]))
        for point in told["points"]
        for need in point["needs"]
    ]
    found = fit_memory(observations, in_steps=order == LOAD)
    if isinstance(found, str):
        raise TypeError(found)
    return found


@dataclass(frozen=True, slots=True)
class Smaller:
    """What today's fit says of a cap from the points of its own cell, and from those of twice the cap.

    Attributes
    ----------
    line, bound
        The loads of the fit of each, over the load at the truth.
    reach
        The largest load of each, over the load at the truth.
    """

    cell: Cell
    line: tuple[float, float]
    bound: tuple[float, float]
    reach: tuple[float, float]


def smaller(report: dict[str, Any], cap_gib: float = 4.0) -> Smaller:
    """Return how much nearer the truth larger points bring the answer under a small cap."""
    by_cap = {raw["cap_gib"]: raw for raw in report["cells"]}
    fits = [fit_now(report["order"], by_cap[cap]["prediction"]) for cap in (cap_gib, 2 * cap_gib)]
    own = by_cap[cap_gib]
    capacity_bytes, truth = own["prediction"]["capacity_bytes"], own["truth_load"]
    (line, wide), (bound, wide_bound), (reach, wide_reach) = (
        [value / truth for value in values]
        for values in (
            [fit.largest(capacity_bytes) for fit in fits],
            [fit.safe_load(capacity_bytes) for fit in fits],
            [fit.load_max for fit in fits],
        )
    )
    return Smaller(_cell(report, own), (line, wide), (bound, wide_bound), (reach, wide_reach))


def _size_bytes(order: str, need: dict[str, Any], slack: float) -> float:
    """Return what a measurement counts, as `benchmarks.edge` takes it."""
    size: float = need["passed_bytes"] if order == LOAD else need["allocated_bytes"] * slack
    return size


def _contender(raw: dict[str, Any]) -> Contender:
    return Contender(**{field.name: raw[field.name] for field in fields(Contender)})
