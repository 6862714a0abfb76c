# ruff: noqa: E501 - the page's sentences
"""The parts of docs/benchmarks-workers.md on the grid of 44 settings and on the CPU.

They are made from the records grid and cpu in benchmarks/records, entities and logs left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from benchmarks.archives import group
from benchmarks.tune_page import SECOND, listed, read, spec, speeds
from jobkit.core.knobs import ORDER, PADDED_CHARS, WORKERS, numbers
from jobkit.core.layout import read_batches
from jobkit.core.measurements import Summary
from jobkit.core.records import Record
from jobkit.core.student import deviation, half_width
from jobkit.fit.speed import ratio_of
from jobkit.fit.tune import read_tuning

FINALS = next(group("grid").glob("finals-2*"))
CPU, GPU = (next(group("cpu").glob(f"{name}-2*")) for name in ("cpu", "gpu"))
COLUMNS = (("sorted", 15_000), ("sorted", 60_000), ("sorted", 240_000), ("text", 60_000))
"""The order and the padded characters of the grid."""
MOST_WORKERS, MANY = 16, 8
"""The most workers of the grid, and those from which on the two larger sizes are compared."""
LATER = ("grid-off2-", "grid-off3-")
"""The sweeps of the grid that ran on the second machine."""

Cell = tuple[int, str, str, int]
"""Workers, MPS, order and padded characters."""

GRID = """\
## A grid of 44 settings

1, 2, 4, 8, 12 and 16 workers, with and without MPS (one worker needs none), with three sizes in sorted order and one in \
text order, once each on {grid_paragraphs:,} paragraphs (the sample text four times). Each H200 is one of a machine with \
two and has 16 of the 32 cores; on the other GPU and cores another measurement ran. Paragraphs a second, by \
`padded_chars`:

{grid}

The command without MPS reached its time limit after 18 of its 24 settings. The other six (`*`) ran on another machine of \
the same kind. Each sweep is the `sweep.yaml` in its run folder.

- The best is {best}: {best_speed:,.0f} paragraphs a second, {spread:.1f} times the slowest.
- Without MPS the speed stops growing at four to eight workers. With MPS it grows up to 16, though the last four \
add only {last_low:.0f} to {last_high:.0f} %.
- Text order costs 16 workers with MPS {text_cost:.0f} % of their speed, at the same size.
- With MPS and at least {many} workers, 60,000 and 240,000 padded characters differ by {sizes:.0f} % at most. That is less than the \
repeats of one setting differ. 15,000 is slower.

The finals are the three best of the grid and the answer of [the second search](benchmarks-tune.md#six-searches), \
{answer_size:,} padded characters; three repeats in turn on the second machine, with \
16 cores, other sweeps on its other GPU:

| workers | padded characters | paragraphs/s | mean | times the best | 95 % interval |
|--:|--:|---|--:|--:|--:|
{finals}

The target: the answer of `jobkit tune` is at least 97 % as fast as the best, or the intervals overlap. **By the means it \
is {answer_share:.0f} %, less than 97 %. The intervals overlap**, so the target is met by its second half only. The interval of the \
ratio is {answer_low:.2f} to {answer_high:.2f}: three repeats show no difference, and do not show that there is none. {answer_size:,} \
and 60,000 padded characters are practically one setting: the {answer_gap:.0f} % between them are scatter.
"""

ON_THE_CPU = """\
## On the CPU

Workers and threads on 16 cores (`device: cpu`), and at the same time workers on one H200 with 16 other cores of the machine. The \
first {paragraphs} paragraphs of the sample text, calls of 7 paragraphs, each point once. The sweep on the GPU differs in `device: cuda`, \
`mps: auto`, one GPU, and has no point with several threads:

```yaml spec
{cpu_spec}
```

| workers | threads of each | CPU: paragraphs/s | workers busy | GPU: paragraphs/s | GPU, times the CPU |
|--:|--:|--:|--:|--:|--:|
{cpu}

*Busy* is the share of the time in which the workers had a call.

- On the CPU 16 workers with one thread each are the fastest, {cpu_best:.0f} paragraphs a second: {over_threads:.1f} times one worker \
with 16 threads. At the end some of them have no work: {calls} calls are few for 16 workers.
- The fastest on the GPU is {gpu_best:.1f} times as fast as the fastest on the CPU. This is not the GPU at its best, with {gpu_work:.1f} s of \
work: in the grid above 16 workers reach {grid_best:,.0f}, with calls of 68 paragraphs, a longer text and another machine.
- The energy of the CPU is not measured, so the two are not compared by energy.
"""


def section() -> str:
    """Return the part on the grid."""
    return GRID.format(**_of_grid(grid()), **_of_finals())


def cpu_section() -> str:
    """Return the part on the CPU."""
    return ON_THE_CPU.format(**_of_cpu(_by_size(CPU), _by_size(GPU)))


def grid() -> dict[Cell, Record]:
    """Return the records of the grid, by workers, MPS, order and padded characters."""
    runs = sorted(group("grid").glob("grid-*"))
    return {_cell(record): record for run in runs for record in read(run)}


def _cell(record: Record) -> Cell:
    point = record.point
    return point.workers, record.mps or "", str(point.params[ORDER]), numbers(point.params)[PADDED_CHARS]


def _of_grid(records: Mapping[Cell, Record]) -> dict[str, object]:
    """Return what the page says of the grid."""
    speed = {cell: speeds([record])[0] for cell, record in records.items()}
    best = max(speed, key=lambda cell: speed[cell])
    most = [speed[MOST_WORKERS, "on", *column] for column in COLUMNS]
    last = [fast / speed[12, "on", *column] - 1 for fast, column in zip(most, COLUMNS, strict=True)]
    by_size = [
        [speed[(*cell[:3], size)] for size in (60_000, 240_000)]
        for cell in speed
        if cell[1:] == ("on", "sorted", 60_000) and cell[0] >= MANY
    ]
    return {
        "grid": "\n".join(_grid(records)),
        "grid_paragraphs": _summary(records[best]).items,
        "best": f"{best[0]} workers with MPS and {best[3]:,} padded characters, {best[2]}",
        "best_speed": speed[best],
        "spread": speed[best] / min(speed.values()),
        "last_low": 100 * min(last),
        "last_high": 100 * max(last),
        "text_cost": 100 * (1 - most[-1] / most[1]),
        "many": MANY,
        "sizes": 100 * max(max(pair) / min(pair) - 1 for pair in by_size),
    }


def _grid(records: Mapping[Cell, Record]) -> Iterator[str]:
    columns = [(mps, *column) for mps in ("off", "on") for column in COLUMNS]
    names = [f"{size:,}{', text order' if order == 'text' else ''}" for order, size in COLUMNS]
    yield f"| workers | {' | '.join(f'MPS {mps}: {name}' for mps in ('off', 'on') for name in names)} |"
    yield f"|--:|{len(columns) * '--:|'}"
    for workers in sorted({cell[0] for cell in records}):
        cells = [records.get((workers, *column)) for column in columns]
        yield f"| {workers} | {' | '.join(_speed(record) if record else '' for record in cells)} |"


def _speed(record: Record) -> str:
    """Return the speed of a setting of the grid, marked if it ran on the second machine."""
    return f"{speeds([record])[0]:,.0f}{' *' if record.point.run_id.startswith(LATER) else ''}"


def finals() -> dict[tuple[int, int], list[float]]:
    """Return the speeds of the finals, by workers and padded characters."""
    found: dict[tuple[int, int], list[float]] = {}
    for record in read(FINALS):
        found.setdefault((record.point.workers, numbers(record.point.params)[PADDED_CHARS]), []).extend(
            speeds([record])
        )
    return found


def answer() -> tuple[int, int]:
    """Return the workers and padded characters that the second search found."""
    best = read_tuning(SECOND).winner
    if best is None:
        raise ValueError(SECOND)
    found = numbers(best.params)
    return found[WORKERS], found[PADDED_CHARS]


def _of_finals() -> dict[str, object]:
    """Return what the page says of the finals."""
    found, tuned = finals(), answer()
    best = max(found.values(), key=fmean)
    ratio = ratio_of(found[tuned], best)
    return {
        "finals": "\n".join(_finals(found, best)),
        "answer_size": tuned[1],
        "answer_share": 100 * ratio.mean,
        "answer_gap": 100 * (1 - ratio.mean),
        "answer_low": ratio.low,
        "answer_high": ratio.high,
    }


def _finals(found: Mapping[tuple[int, int], Sequence[float]], best: Sequence[float]) -> Iterator[str]:
    for (workers, size), each in sorted(found.items(), key=lambda row: -fmean(row[1])):
        half, ratio = half_width(deviation(each), len(each)) or 0.0, ratio_of(each, best)
        compared = " | " if each is best else f"{ratio.mean:.2f} | {ratio.low:.2f} to {ratio.high:.2f}"
        yield f"| {workers} | {size:,} | {listed(each)} | {fmean(each):,.0f} ± {half:,.0f} | {compared} |"


def _by_size(run: Path) -> dict[tuple[int, int], Record]:
    """Return the records of a run by workers and threads."""
    return {(record.point.workers, record.point.threads): record for record in read(run)}


def _of_cpu(
    cpu: Mapping[tuple[int, int], Record], gpu: Mapping[tuple[int, int], Record]
) -> dict[str, object]:
    """Return what the page says of the CPU."""
    speed = {size: speeds([record])[0] for size, record in cpu.items()}
    best = max(speed, key=lambda size: speed[size])
    return {
        "paragraphs": _summary(cpu[best]).items,
        "cpu_spec": spec(CPU),
        "cpu": "\n".join(_cpu(cpu, gpu)),
        "calls": _summary(cpu[best]).batches,
        "cpu_best": speed[best],
        "over_threads": speed[best] / speed[1, MOST_WORKERS],
        "gpu_best": max(map(_items_per_s, gpu.values())) / speed[best],
        "gpu_work": _summary(gpu[MOST_WORKERS, 1]).work_s,
        "grid_best": _items_per_s(grid()[MOST_WORKERS, "on", *COLUMNS[1]]),
    }


def _cpu(cpu: Mapping[tuple[int, int], Record], gpu: Mapping[tuple[int, int], Record]) -> Iterator[str]:
    for (workers, threads), record in sorted(cpu.items()):
        speed, other = _items_per_s(record), gpu.get((workers, threads))
        compared = f"{_items_per_s(other):,.0f} | {_items_per_s(other) / speed:.1f}" if other else " | "
        yield f"| {workers} | {threads} | {speed:.1f} | {100 * _busy(record):.0f} % | {compared} |"


def _items_per_s(record: Record) -> float:
    return _summary(record).items_per_s or 0.0


def _summary(record: Record) -> Summary:
    if record.summary is None:
        raise ValueError(record.point.point_id)
    return record.summary


def _busy(record: Record) -> float:
    """Return the share of the time of the work in which the workers had a call."""
    folder = CPU / "results" / record.point.point_id / f"try-{record.try_number}"
    busy_s = sum(call.seconds for call in read_batches(folder)[0])
    return busy_s / (record.point.workers * _summary(record).work_s)
