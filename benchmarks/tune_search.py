# ruff: noqa: T201 - it prints what it found
"""How good the answers of `jobkit tune` are, simulated: shape of the cost x scatter, 300 searches each.

``python -m benchmarks.tune_search`` writes benchmarks/records/tune-search.json and prints the table, which
docs/tune.md sums up. The search is that of `jobkit.extensions.tune.steps`, with the repeats and looks of a
spec's default; only the speeds are made up. So it runs anywhere, and the same seed gives the same table.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.raw import table
from jobkit.answers.objective import KNOWN, Finals
from jobkit.answers.setting import Ratio
from jobkit.core.knobs import MPS, ON, PADDED, SHORTCUTS, THREADS, WORKERS, Value, numbers
from jobkit.core.units import GIB
from jobkit.extensions.tune.goal import TuneGoal, whole
from jobkit.extensions.tune.job import AGAIN, LOOKS
from jobkit.extensions.tune.measured import FINAL, MEMORY, Candidate, MeasuredCandidate
from jobkit.extensions.tune.steps import propose
from tests.support.machines import FAST, GOAL, Machine

RAW = Path(__file__).with_name("records") / "tune-search.json"
SEARCHES, SEED = 300, 26
SCATTERS = (0.05, 0.10, 0.15, 0.30)
"""Standard deviations of the logarithm of a measured speed."""
NEAR, NEARER = 0.9, 0.95
"""Of the best speed, from which on a setting counts as near the best."""
START_SCATTER = 0.1
"""The standard deviation of the logarithm of the start of a try."""
GOAL_NOW = replace(GOAL, budget_s=1800, most_repeats=LOOKS * GOAL.repeats, looks=LOOKS, again=AGAIN)
SHORT = replace(
    FAST, short=True, budget_s=150, most_repeats=9, looks=1, again=AGAIN, memory_every=58, search_every=3
)
ENCODER = replace(SHORT, budget_s=90, fills_gpu=True, memory_every=3, loop={**SHORT.loop, THREADS: 16})


@dataclass(frozen=True, kw_only=True)
class Shape(Machine):
    """A machine whose measurements scatter by chance.

    Attributes
    ----------
    name
        In words.
    crowded
        Of the speed, what each doubling of the workers beyond ``cores`` leaves.
    loop
        The speed of the plain loop; ``None`` for that of one worker in text order.
    """

    name: str
    crowded: float = 1.0
    loop: float | None = None
    scatter: float = 0.0
    dice: random.Random = field(default_factory=random.Random)

    def speed(self, params: Mapping[str, Value]) -> float:
        """Return the true speed of a setting."""
        if self.loop and PADDED not in params:
            return self.loop
        beyond = max(0.0, math.log2(numbers(params)[WORKERS] / self.cores))
        crowded: float = self.crowded**beyond
        return super().speed(params) * crowded

    def scatters(self, _: Candidate, /) -> float:
        """Return by how much a measurement is off, each time anew."""
        return math.exp(self.dice.gauss(0, self.scatter))

    def noisy(self, scatter: float, dice: random.Random) -> Shape:
        return replace(self, scatter=scatter, dice=dice)

    def highest(self, goal: TuneGoal) -> float:
        """Return the highest true speed of all combinations, the plain loop included."""
        return max(self.speed(params) for params in _combinations(goal) if self.fits(params))


@dataclass(frozen=True, kw_only=True)
class Started(Shape):
    """A GPU whose processes take their time to start, by the tries of searches on H100s.

    Attributes
    ----------
    one_s, each_s, import_s, need_s, stand_s
        Of the start of one worker, of each further one, of the first try of a run, of what measures the need
        of a batch, and of one worker that stands.
    last
        The setting whose processes stay for the next try of the search.
    """

    items: int = 70_480
    gpu_bytes: int = 80 * GIB
    among: float = 1.2
    one_s: float = 8.0
    each_s: float = 0.33
    import_s: float = 23.5
    need_s: float = 1.3
    stand_s: float = 1.9
    last: list[tuple[object, ...]] = field(default_factory=list)

    def noisy(self, scatter: float, dice: random.Random) -> Shape:
        return replace(self, scatter=scatter, dice=dice, last=[])

    def run(self, candidate: Candidate) -> MeasuredCandidate:
        params = candidate.params
        loaded = candidate.phase != MEMORY, *(params.get(knob) for knob in (WORKERS, MPS, SHORTCUTS))
        stands = loaded[0] and self.last[-1:] == [loaded]
        start_s = self.stand_s if stands else self.one_s
        start_s += (self.each_s / 3 if stands else self.each_s) * (candidate.workers - 1)
        start_s += self.need_s * (candidate.phase == MEMORY) + self.import_s * (not self.last)
        start_s *= math.exp(self.dice.gauss(0, START_SCATTER))
        result = replace(self, start_s=start_s).measure(candidate)
        self.last.append(loaded)
        return result

    def measure(self, candidate: Candidate) -> MeasuredCandidate:
        result = super().run(candidate)
        import_s = 0.0 if self.last else self.import_s
        stands = bool(self.last) and self.start_s < self.one_s / 2
        changed = result.record and replace(result.record, import_s=import_s, standing=stands)
        return replace(result, record=changed)


SHAPES = (
    Shape(name="all 16 workers help"),
    Shape(name="4 workers help, more slow it down", cores=4, crowded=0.9),
    Shape(name="the plain loop is 3 % faster than the best", cores=1, crowded=0.75, loop=206.0),
)


TAGGER = Started(name="16 workers are 12 times as fast as 1", cores=12, exact=4.5, loop=300.0)
ENTITIES = replace(
    TAGGER,
    name="an encoder",
    cores=1,
    exact=25.0,
    loop=440.0,
    utilisation=95.0,
    one_s=3.3,
    each_s=0.5,
    import_s=19.0,
    need_s=0.5,
    stand_s=1.6,
)
VECTORS = replace(ENTITIES, name="a fast encoder", exact=130.0, loop=2000.0)
STARTED = (
    (TAGGER, SHORT),
    (replace(TAGGER, name="4 workers help, more slow it down", cores=4, crowded=0.9), SHORT),
    (
        replace(
            TAGGER, name="starts take 1.5 times as long", one_s=12.0, each_s=0.5, import_s=30.0, stand_s=3.0
        ),
        SHORT,
    ),
    (replace(TAGGER, name="memory holds 10 workers", gpu_bytes=14 * GIB), SHORT),
    (ENTITIES, ENCODER),
    (VECTORS, ENCODER),
    (replace(VECTORS, name="an encoder, more workers help", crowded=1.1, utilisation=80.0), ENCODER),
)


def _combinations(goal: TuneGoal) -> Iterator[dict[str, Value]]:
    """Yield every setting of a grid, and the plain loop."""
    yield dict(goal.loop)
    for size, workers, mps, order in itertools.product(
        goal.sizes, range(1, goal.workers + 1), ["off", ON], [goal.order, "text"]
    ):
        yield goal.setting(size, workers, mps=mps, order=order)


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to.

    Attributes
    ----------
    points
        How many it measured.
    share
        Of the best speed of all combinations, that of its answer.
    is_loop
        Whether its answer is the plain loop.
    slower
        Whether its answer is truly slower than the plain loop.
    held
        Whether the interval of the ratio to the plain loop has the true one.
    known
        Whether that interval ends at most `KNOWN` times above the ratio.
    seconds, settings
        How long all points held the GPU, and how many settings they are.
    """

    points: int
    share: float
    is_loop: bool
    slower: bool
    held: bool
    known: bool
    seconds: float
    settings: int


def searched(shape: Shape, goal: TuneGoal) -> Found:
    """Search to the end, by the search of `jobkit tune` itself."""
    results: dict[tuple[object, ...], tuple[Candidate, MeasuredCandidate]] = {}

    def result_of(candidate: Candidate) -> MeasuredCandidate:
        results[candidate.key] = candidate, shape.run(candidate)
        return results[candidate.key][1]

    propose(goal, result_of)
    records = [result.record for one, result in results.values() if one.phase == FINAL and result.record]
    finals = Finals(objective=goal.objective, loop=goal.loop, looks=goal.looks, records=records)
    if not finals.winner or not finals.comparison:
        raise ValueError(shape.name)
    speed, loop = shape.speed(dict(finals.winner.params)), shape.speed(goal.loop)
    is_loop = finals.winner == finals.plain
    true = shape.speed(dict(finals.kept[0].params)) / loop
    times = finals.comparison.apart
    if not isinstance(times, Ratio):
        raise TypeError(finals.comparison)
    low, high = times.low or 0.0, times.high or math.inf
    return Found(
        len(results),
        speed / shape.highest(goal),
        is_loop,
        speed < loop,
        held=low <= true <= high,
        known=high <= KNOWN * times.mean,
        seconds=math.fsum(result.held_s for _, result in results.values()),
        settings=len({tuple(sorted(whole(one.params).items())) for one, _ in results.values()}),
    )


def simulate(shape: Shape, scatter: float, goal: TuneGoal, searches: int, seed: int = SEED) -> list[Found]:
    """Return what so many searches come to, each with luck of its own."""
    dice = random.Random(f"{seed} {shape.name} {scatter}")  # noqa: S311 - not cryptography
    return [searched(shape.noisy(scatter, dice), goal) for _ in range(searches)]


def cell(found: Sequence[Found]) -> dict[str, float]:
    """Return the shares of some searches, and what they took."""
    return {
        "near_or_loop": fmean(one.is_loop or one.share >= NEAR for one in found),
        "nearer": fmean(one.share >= NEARER for one in found),
        "is_loop": fmean(one.is_loop for one in found),
        "slower": fmean(one.slower for one in found),
        "held": fmean(one.held for one in found),
        "known_or_loop": fmean(one.is_loop or one.known for one in found),
        "points_mean": fmean(one.points for one in found),
        "points_most": max(one.points for one in found),
        "settings_most": max(one.settings for one in found),
        "seconds_most": max(one.seconds for one in found),
    }


def measure(searches: int = SEARCHES) -> dict[str, Any]:
    """Return the figures of all cells, first those of long searches."""
    cells = [*((shape, scatter, GOAL_NOW) for shape in SHAPES for scatter in SCATTERS)]
    cells += [(shape, scatter, goal) for shape, goal in STARTED for scatter in SCATTERS[:2]]
    rows = [
        {"shape": shape.name, "scatter": scatter, "budget_s": goal.budget_s}
        | cell(simulate(shape, scatter, goal, searches))
        for shape, scatter, goal in cells
    ]
    goals = {"goal": asdict(GOAL_NOW), "short": asdict(SHORT)}
    return {"searches": searches, "seed": SEED, **goals, "rows": rows}


HEADS = {
    "near_or_loop": "near the best, or not shown",
    "nearer": "within 5 % of it",
    "is_loop": "not shown",
    "slower": "slower than the loop",
    "held": "interval holds",
    "known_or_loop": "known to 20 %, or not shown",
}


def shown(raw: dict[str, Any]) -> str:
    """Return the table in Markdown."""
    heads = ["cost", "scatter", "budget [s]", *HEADS.values(), "points: mean, most", "settings", "seconds"]
    rows = (
        (
            row["shape"],
            f"{100 * row['scatter']:.0f} %",
            f"{row['budget_s']:.0f}",
            *(f"{100 * row[name]:.1f} %" for name in HEADS),
            f"{row['points_mean']:.0f}, {row['points_most']}",
            row["settings_most"],
            f"{row['seconds_most']:.0f}",
        )
        for row in raw["rows"]
    )
    return table(heads, rows)


def main() -> None:
    """Simulate, write the figures, and print the table."""
    raw = measure()
    RAW.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    print(shown(raw))


if __name__ == "__main__":
    main()
