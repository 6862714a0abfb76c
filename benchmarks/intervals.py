# ruff: noqa: T201 - it prints what it found
"""How often the intervals of `jobkit.answers.speed` hold, simulated: scatter x repeats x nodes.

``python -m benchmarks.intervals`` writes benchmarks/records/intervals.json and prints its
table, which docs/what-is-measured.md sums up. Nothing but chance is measured, so it runs anywhere.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean

from benchmarks.raw import table
from jobkit.answers.speed import duration, not_sampled, speeds, total
from jobkit.core.json_codec import from_json
from jobkit.core.records import Record
from jobkit.core.student import deviation, half_width
from jobkit.report.output import INTERVAL, MARKS
from jobkit.spec.axes import Repeats
from jobkit.worker.skip_check import check_repeats

CONDITION = "if no other job slows some runs"
"""What the legend of the table says of each interval of a mean."""
RAW = Path(__file__).with_name("records") / "intervals.json"
RECORD = "demo/*/results/*/try-1/record.json"
CASES, SEED = 2_000, 26
WORK_S, START_S, NODES_SD, SLOWED = 60.0, 15.0, 0.05, 0.15
"""The work and the start of a job, how far nodes are apart, and the share of runs that a neighbour slows."""
SHARDS = 10
AUTO = Repeats()
REPEATS = {"3": 3, "5": 5, "10": 10, "auto": AUTO.most}


@dataclass(frozen=True, slots=True)
class Scatter:
    """How the runs of one setting on one node differ.

    Attributes
    ----------
    name
        In words.
    share
        The standard deviation of normal scatter, as a share of the time.
    slowdown
        How many times as long a run takes that a neighbour slows; 1 without neighbours.
    """

    name: str
    share: float
    slowdown: float = 1.0

    def draw(self, chance: random.Random) -> float:
        """Return how many times as long as the mean of the undisturbed runs one takes."""
        slow = self.slowdown if chance.random() < SLOWED else 1.0
        return max(0.05, chance.gauss(1.0, self.share)) * slow

    @property
    def mean(self) -> float:
        """The mean of many draws."""
        return 1 + SLOWED * (self.slowdown - 1)


SCATTERS = (
    Scatter("normal, 5 %", 0.05),
    Scatter("normal, 15 %", 0.15),
    Scatter("normal, 30 %", 0.3),
    Scatter("15 % of runs take 1.5 times as long", 0.03, 1.5),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where repeats and shards run: each on a node of its own, or all on one.

    Attributes
    ----------
    repeats_apart, shards_apart
        Whether each has a node of its own.
    there
        Whether the shards run where the repeats ran.
    """

    name: str
    repeats_apart: bool
    shards_apart: bool
    there: bool


HERE = Place("one run, the same node", repeats_apart=False, shards_apart=False, there=True)
PLACES = (
    HERE,
    Place(f"{SHARDS} shards, the same node", repeats_apart=False, shards_apart=False, there=True),
    Place(
        f"{SHARDS} shards on one node, repeats on several",
        repeats_apart=True,
        shards_apart=False,
        there=False,
    ),
    Place(
        f"{SHARDS} shards and repeats on several nodes", repeats_apart=True, shards_apart=True, there=False
    ),
    Place(
        f"{SHARDS} shards on one node, repeats on another",
        repeats_apart=False,
        shards_apart=False,
        there=False,
    ),
    Place(
        f"{SHARDS} shards on several nodes, repeats on one",
        repeats_apart=False,
        shards_apart=True,
        there=False,
    ),
)


@cache
def template() -> Record:
    """Return a committed record, whose times the simulation replaces."""
    path = min(RAW.parent.glob(RECORD))
    return from_json(Record, path.read_text(encoding="utf-8"), where=str(path))


def record_of(number: int, host: str, slow: tuple[float, float]) -> Record:
    """Return the record of a repeat whose work and start took so many times as long as the mean."""
    base = template()
    work_s, start_s = WORK_S * slow[0], START_S * slow[1]
    items = base.summary.items if base.summary else 0
    summary = replace(base.summary, work_s=work_s, items_per_s=items / work_s) if base.summary else None
    point = replace(base.point, repeat=number, params={"batch_size": 50})
    return replace(
        base, point=point, host=host, summary=summary, import_s=0.0, task_s=work_s + start_s, gpu=None
    )


def measured(
    scatter: Scatter, place: Place, repeats: str, nodes: Sequence[float], chance: random.Random
) -> list[Record]:
    """Return the records of the repeats of one setting; of ``auto`` as many as the gate lets run."""
    records: list[Record] = []
    alike: list[Record] = []
    for number in range(REPEATS[repeats]):
        node = number if place.repeats_apart else 0
        slow = nodes[node] * scatter.draw(chance), nodes[node] * scatter.draw(chance)
        records.append(record_of(number, f"node{node}", slow))
        alike.append(replace(records[-1], host=""))  # the gate compares those of one kind
        if repeats == "auto" and check_repeats(alike, AUTO.share, AUTO.least):
            break
    return records


@dataclass(frozen=True, slots=True)
class Cell:
    """How often the intervals of one kind held, and what jobkit says next to them."""

    scatter: str
    repeats: str
    what: str
    held: float
    mean_repeats: float
    warnings: tuple[str, ...]


def simulate(scatter: Scatter, place: Place, repeats: str, cases: int = CASES, seed: int = SEED) -> Cell:
    """Return how often the interval of a time holds."""
    chance, held, numbers = random.Random(seed), 0, 0  # noqa: S311 - not cryptography
    said: Counter[str] = Counter()
    shards = 1 if place is HERE else SHARDS
    for _ in range(cases):
        nodes = [chance.gauss(1, NODES_SD) for _ in range(2 * max(SHARDS, AUTO.most))]
        records = measured(scatter, place, repeats, nodes, chance)
        (speed,) = speeds(records)
        items = records[0].summary.items if records[0].summary else 0
        promised = total([duration(speed, items=items)] * shards)
        took_s = 0.0
        for shard in range(shards):
            node = nodes[(0 if place.there else AUTO.most) + (shard if place.shards_apart else 0)]
            took_s += WORK_S * node * scatter.draw(chance) + START_S * node * scatter.draw(chance)
        held += (promised.low_s or 0.0) <= took_s <= (promised.high_s or 0.0)
        numbers += len(records)
        said.update(not_sampled(speed, elsewhere=not place.there, shared=scatter.slowdown > 1))
    always = tuple(words.split(":")[0] for words, number in said.items() if number)
    return Cell(
        scatter.name, repeats, place.name, held / cases, numbers / cases, tuple(dict.fromkeys(always))
    )


def simulate_mean(scatter: Scatter, repeats: str, cases: int = CASES, seed: int = SEED) -> Cell:
    """Return how often the interval of the mean time of a setting holds, as the table shows it."""
    chance, held, numbers = random.Random(seed), 0, 0  # noqa: S311 - not cryptography
    for _ in range(cases):
        records = measured(scatter, HERE, repeats, [1.0], chance)
        times = [record.summary.work_s for record in records if record.summary]
        half = half_width(deviation(times), len(times)) or 0.0
        held += abs(fmean(times) - WORK_S * scatter.mean) <= half
        numbers += len(records)
    warnings = (CONDITION,) if scatter.slowdown > 1 and CONDITION in MARKS[INTERVAL] else ()
    return Cell(scatter.name, repeats, "mean of a setting", held / cases, numbers / cases, warnings)


def cells(cases: int = CASES) -> Iterator[Cell]:
    """Yield all cells of the table."""
    for scatter in SCATTERS:
        for repeats in REPEATS:
            yield simulate_mean(scatter, repeats, cases)
            yield from (simulate(scatter, place, repeats, cases) for place in PLACES)


def shown(found: Sequence[Cell]) -> str:
    """Return the table: a row for each thing that is predicted, a column for each number of repeats."""
    rows: dict[tuple[str, str], list[str]] = {}
    for cell in found:
        mark = "*" if cell.warnings else ""
        rows.setdefault((cell.scatter, cell.what), []).append(f"{100 * cell.held:.1f}{mark}")
    return table(("scatter", "interval of", *REPEATS), [(*key, *shares) for key, shares in rows.items()])


def main() -> None:
    """Simulate all cells, write them, and print the table."""
    found = list(cells())
    rows = [asdict(cell) for cell in found]
    data = {"command": "python -m benchmarks.intervals", "cases": CASES, "seed": SEED, "cells": rows}
    RAW.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(shown(found))


if __name__ == "__main__":
    main()
