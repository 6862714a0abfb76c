"""One GPU and two: tables of the records of sweeps of workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, geometric_mean

from benchmarks.archives import group
from benchmarks.markdown import table
from benchmarks.tune_page import read, speeds
from jobkit.answers.setting import Mean
from jobkit.core.knobs import PADDED
from jobkit.core.records import Record

RUNS = group("workers")
WHOLE = "table-20261122-131011-d185"
GPUS, GPUS_8, LONG, EXPERIMENT, CORES = (
    next(group("gpus").glob(f"{name}-2*")) for name in ("gpus", "gpus8", "long", "exp", "cores")
)
HALF_16, HALF_12 = "20261122", "20261123"
"""The days on which points of one GPU had half of the cores, with 16 and with 12 workers on each GPU."""
WORK_UNIT, SIZE = 68, 120_000
"""The paragraphs of a call, and the padded characters, of the points of two GPUs without a change."""
BOTH = 2
"""The GPUs of the larger points of the sweeps of GPUs."""


def two_gpus() -> str:
    """Return the table of points with two GPUs, compared with one."""
    return table(("workers on each GPU", "repeats", "times one GPU, 95 % interval"), _two_gpus())


def _two_gpus() -> Iterator[tuple[object, ...]]:
    half_16, half_12 = ([_of_day(name, day) for name in ("one", "two")] for day in (HALF_16, HALF_12))
    commands: dict[str, Sequence[list[Record]]] = {
        "12": _by_gpus(GPUS),
        "16, half of the cores": half_16,
        "8": _by_gpus(GPUS_8),
        "12, twice the text": _by_gpus(LONG),
        "12, half of the cores": half_12,
        "12, the same text": [_of_setting(EXPERIMENT, gpus) for gpus in (1, BOTH)],
        "12, again": [_of_setting(CORES, gpus) for gpus in (1, BOTH)],
    }
    ratios = {name: Mean.of(speeds(two)).over(Mean.of(speeds(one))) for name, (one, two) in commands.items()}
    for name, ratio in ratios.items():
        repeats = len(commands[name][1])
        yield name, repeats, f"{ratio.mean:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    yield "mean", "", f"{geometric_mean(one.mean for one in ratios.values()):.2f}"
    apart = [record for name in ("left", "right") for record in _of_day(name, HALF_12)]
    together = sum(speeds(apart)) / fmean(speeds(half_12[0]))
    yield "12, two points at once", 1, f"{together:.2f}"


def _by_gpus(run: Path) -> tuple[list[Record], list[Record]]:
    """Return the records of a run with one and with two GPUs."""
    records = read(run)
    one, two = ([record for record in records if record.point.gpus == gpus] for gpus in (1, BOTH))
    return one, two


def _of_setting(run: Path, gpus: int) -> list[Record]:
    """Return the records of a run with so many GPUs and without a change of the code."""
    setting = (gpus, WORK_UNIT, SIZE)
    return [
        one
        for one in read(run)
        if (one.point.gpus, one.point.work_unit, one.point.numbers[PADDED]) == setting
    ]


def _of_day(name: str, day: str) -> list[Record]:
    """Return the records of the runs of this name and a number, of a day."""
    runs = sorted(group("gpus").glob(f"{name}?-{day}*"))
    return [record for run in runs for record in read(run)]
