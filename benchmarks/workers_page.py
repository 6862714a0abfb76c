# ruff: noqa: E501 - the page's sentences
"""Write docs/benchmarks-workers.md from the records of sweeps of workers on GPUs and on a CPU.

``python -m benchmarks.workers_page`` reads workers, grid, gpus and cpu in benchmarks/records and prints the
page; the records are what the sweeps on the page brought home, entities and logs left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, geometric_mean

from benchmarks import grid
from benchmarks.archives import RECORDS, group
from benchmarks.gpu_page import GIB
from benchmarks.tune_page import listed, read, spec, speeds, table
from jobkit.core.knobs import PADDED_CHARS
from jobkit.core.records import Record
from jobkit.fit.speed import ratio_of
from jobkit.report.tables import collect

ROOT = Path(__file__).parents[1]
RUNS = group("workers")
WHOLE, PART, LATER = "table-20261122-131011-d185", "table-20261122-125756-f497", "table-20261122-214949-eea6"
GPUS, GPUS_8, LONG, EXPERIMENT, CORES = (
    next(group("gpus").glob(f"{name}-2*")) for name in ("gpus", "gpus8", "long", "exp", "cores")
)
UNEQUAL = next(group("unequal").glob("unequal-2*"))
HALF_16, HALF_12 = "20261122", "20261123"
"""The days on which points of one GPU had half of the cores, with 16 and with 12 workers on each GPU."""
WORK_UNIT, SIZE = 68, 120_000
"""The paragraphs of a call, and the padded characters, of the points of two GPUs without a change."""
CHANGED = 120_001
"""The padded characters of points whose workers share out the cores, or of one GPU take half of them."""
BOTH = 2
"""The GPUs of the larger points of the sweeps of GPUs."""

PAGE = """\
# On a GPU: workers, order, budget, MPS and two GPUs

One NVIDIA H200 without other users and 16 CPU cores, with the full-size stand-in model and the 881 \
paragraphs of the sample text, eight times over (7,048 paragraphs). Each setting ran once, so a difference \
of a few percent means nothing.

<!-- not run: needs a GPU -->
```sh
jobkit sweep workers.yaml
```

```yaml spec
{spec}
```

```text
{whole}
```

One command ran the slowest and the fastest setting: 16 workers that share the GPU through MPS, with the \
text sorted by length and batches of at most 40,000 padded characters, tag {ratio:.1f} times as many \
paragraphs a second as one worker in text order. `entities.tsv` was the same file, byte for byte, in all four.

An earlier command on another H200 had ten settings and reached its time limit after five of them. Order \
and workers help without MPS, too:

| setting | paragraphs a second |
|---|--:|
{part}

A third command, with half of the cores of a machine with two H200s, reached its time limit after five of \
seven settings. On the other GPU ran the sweeps of \
[caps](benchmarks-tune.md#the-safe-bound-with-several-workers):

| setting | paragraphs a second |
|---|--:|
{later}

What MPS saves here is time, not memory: the context of a worker is {context_on:.2f} GiB with it and \
{context_off:.2f} GiB without.

The records are in [benchmarks/records/workers.tar.xz](../benchmarks/records/workers.tar.xz), [grid](../benchmarks/records/grid.tar.xz), [gpus](../benchmarks/records/gpus.tar.xz) \
and [cpu](../benchmarks/records/cpu.tar.xz), without entities and logs; `tar -xJf` unpacks the run folders. `python -m benchmarks.workers_page` makes this page from \
them, and a test checks that it agrees with them. Other texts, a corpus, caps, energy and precision: \
[what `jobkit tune` finds](benchmarks-tune.md).

{grid}
{gpus_section}
{cpu}"""

TWO_GPUS = """\
## Two GPUs

One command on a machine with two H200s and 32 cores without other work, 28,192 paragraphs, 12 workers on each GPU:

```yaml spec
{gpus_spec}
```

```text
{gpus}
```

The ratio is below 2, and the queue is not the reason: the workers had no work for {gpus_idle:.2f} s at the end on average.

All commands, on six machines with two H200s, 32 cores and no other work (the first two on one machine):

| workers on each GPU | one GPU: paragraphs/s | two GPUs | times | 95 % interval | a call takes longer by |
|---|---|---|--:|--:|--:|
{all_gpus}

- The target is 1.9 times one GPU. **The last command, with the most repeats, reaches it by its mean: {last:.2f} times.** The others \
are below it, and the mean of all is {mean:.2f} times.
- That command also measured one GPU whose workers had 16 of the 32 cores: {half} paragraphs a second. Two GPUs are {over_half:.2f} times that, \
so the {last:.2f} depends on what one GPU is compared with. The two ways of one GPU show no difference ({half_low:.2f} to {half_high:.2f}).
- With two GPUs each call takes longer, and this is all of the difference. A likely reason, not measured: twice as many busy \
cores share the memory and the clock of one host.

The workers of a point share cores, a daemon of MPS and the process that they are forked from. So this was tried, each without \
a difference that the interval shows, and nothing of it was kept:

| change | paragraphs/s | without it, in the same command | times | 95 % interval |
|---|---|---|--:|--:|
{changes}

The last two commands ran commit 7d4ae30b with a patch ([exp](../benchmarks/records/gpus/exp.patch), [cores](../benchmarks/records/gpus/cores.patch)) that acts on \
points of `work_unit` 65 to 67 or `padded_chars` 120,001 only. The time of the last one ended before its sixteenth point. Each sweep is the \
`sweep.yaml` in its run folder.

**Two points with one GPU each**, side by side and started 2 s apart, each with 16 cores (`taskset`, `CUDA_VISIBLE_DEVICES`), 12 workers: {apart} \
paragraphs a second, together {apart_sum:,.0f}. This is {apart_ratio:.2f} times one such point alone ({alone}). It ran once, 13 s of \
work, on the machine of the fifth row. With a setting of one GPU, the shards of `jobkit apply` run so: each is a job with a GPU of its own.

## Unequal GPUs

One point may have GPUs that differ. Here one H200 is idle, and on the other another program holds {held_gib:.0f} of 140 GiB and \
multiplies matrices all the time. 8,810 paragraphs, 4 workers on each GPU, 16 cores, each point once:

```yaml spec
{unequal_spec}
```

| padded characters | GPUs | paragraphs/s | idle GPU: paragraphs, seconds a call | shared GPU: paragraphs, seconds a call |
|--:|--:|--:|--:|--:|
{unequal}

One queue feeds all workers, so the slower GPU gets fewer paragraphs: {shared_share} % of them. The two GPUs are \
{unequal_ratios} times as fast as the idle one alone. At the end a worker has no work for {unequal_idle:.2f} s at most. The \
energy of the points with two GPUs is `not attributable`, because of the other program.

"""


def page() -> str:
    """Return the page."""
    whole, part = collect([RUNS / WHOLE]), collect([RUNS / PART])
    rates = [row.items_per_s for row in whole.rows if row.items_per_s]
    contexts = {row.params["mps"]: (row.context_bytes or 0) / 2**30 for row in whole.rows}
    rows = [row for row in part.rows if row.items_per_s]
    lines = [f"| {row.point.removesuffix('-r1')} | {row.items_per_s:,.0f} |" for row in rows]
    records = sorted(read(RUNS / LATER), key=lambda record: record.point.point_id)
    return PAGE.format(
        spec=(RECORDS / "workers" / "workers.yaml").read_text(encoding="utf-8").rstrip(),
        whole=table(RUNS / WHOLE),
        ratio=max(rates) / min(rates),
        part="\n".join(lines),
        later="\n".join(_lines(records)),
        context_on=contexts["on"],
        context_off=contexts["off"],
        gpus_section=TWO_GPUS.format(**_of_gpus(), **_of_unequal()).rstrip() + "\n",
        grid=grid.section(),
        cpu=grid.cpu_section(),
    )


def _lines(records: Sequence[Record]) -> Iterator[str]:
    for record, speed in zip(records, speeds(records), strict=True):
        yield f"| {record.point.point_id.removesuffix('-r1')} | {speed:,.0f} |"


def _by_gpus(run: Path) -> tuple[list[Record], list[Record]]:
    """Return the records of a run with one and with two GPUs."""
    records = read(run)
    one, two = ([record for record in records if record.point.gpus == gpus] for gpus in (1, BOTH))
    return one, two


def _of_gpus() -> dict[str, object]:
    """Return what the page says of one and two GPUs."""
    _, two = _by_gpus(GPUS)
    half_16, half_12 = ([_of_day(name, day) for name in ("one", "two")] for day in (HALF_16, HALF_12))
    commands: dict[str, Sequence[list[Record]]] = {
        "12": _by_gpus(GPUS),
        "16; one GPU had 16 of the cores": half_16,
        "8": _by_gpus(GPUS_8),
        "12, twice the text": _by_gpus(LONG),
        "12; one GPU had 16 of the cores": half_12,
        "12, two repeats": [_of_size(EXPERIMENT, gpus, WORK_UNIT) for gpus in (1, BOTH)],
        "12, four repeats": [_of_size(CORES, gpus, WORK_UNIT) for gpus in (1, BOTH)],
    }
    ratios = [ratio_of(speeds(many), speeds(one)).mean for one, many in commands.values()]
    alone = _of_day("one", HALF_12)
    apart = [record for name in ("left", "right") for record in _of_day(name, HALF_12)]
    return {
        "gpus_spec": spec(GPUS),
        "gpus": table(GPUS),
        "gpus_idle": fmean(share.idle_s for record in two for share in record.workers),
        "all_gpus": "\n".join(_command(name, one, many) for name, (one, many) in commands.items()),
        "last": ratios[-1],
        **_with_half_of_the_cores(),
        "mean": geometric_mean(ratios),
        "changes": "\n".join(_changes()),
        "alone": listed(speeds(alone)),
        "apart": listed(speeds(apart)),
        "apart_sum": sum(speeds(apart)),
        "apart_ratio": sum(speeds(apart)) / fmean(speeds(alone)),
    }


def _of_size(run: Path, gpus: int, work_unit: int, size: int = SIZE) -> list[Record]:
    """Return the records of one setting of a run."""
    return [
        record
        for record in read(run)
        if (record.point.gpus, record.point.work_unit) == (gpus, work_unit)
        and record.point.numbers[PADDED_CHARS] == size
    ]


def _command(name: str, one: Sequence[Record], two: Sequence[Record]) -> str:
    ratio = ratio_of(speeds(two), speeds(one))
    longer = _call_s(two) / _call_s(one) - 1
    return (
        f"| {name} | {listed(speeds(one))} | {listed(speeds(two))} | {ratio.mean:.2f} |"
        f" {ratio.low:.2f} to {ratio.high:.2f} | {100 * longer:.0f} % |"
    )


def _with_half_of_the_cores() -> dict[str, object]:
    """Return what the last command shows of one GPU whose workers had half of the cores."""
    half = speeds(_of_size(CORES, 1, WORK_UNIT, CHANGED))
    ratio = ratio_of(half, speeds(_of_size(CORES, 1, WORK_UNIT)))
    return {
        "half": listed(half),
        "over_half": fmean(speeds(_of_size(CORES, BOTH, WORK_UNIT))) / fmean(half),
        "half_low": ratio.low,
        "half_high": ratio.high,
    }


def _changes() -> Iterator[str]:
    """Yield for each change of the code what it came to."""
    plain, later = (_of_size(run, BOTH, WORK_UNIT) for run in (EXPERIMENT, CORES))
    for name, changed, before in (
        ("the cores divided between the GPUs", _of_size(CORES, BOTH, WORK_UNIT, CHANGED), later),
        ("the same", _of_size(EXPERIMENT, BOTH, 66), plain),
        ("a daemon of MPS for each GPU", _of_size(EXPERIMENT, BOTH, 67), plain),
        ("both", _of_size(EXPERIMENT, BOTH, 65), plain),
    ):
        ratio = ratio_of(speeds(changed), speeds(before))
        yield (
            f"| {name} | {listed(speeds(changed))} | {listed(speeds(before))} | {ratio.mean:.2f} |"
            f" {ratio.low:.2f} to {ratio.high:.2f} |"
        )
    [fresh] = speeds(read(next(group("gpus").glob("fresh-2*"))))
    yield (
        f"| `fork: false`, each worker a fresh process | {fresh:,.0f} | {listed(speeds(plain))} |"
        f" {fresh / fmean(speeds(plain)):.2f} | one repeat |"
    )


def _call_s(records: Sequence[Record]) -> float:
    return fmean(record.summary.batch_mean_s or 0 for record in records if record.summary)


def _of_day(name: str, day: str) -> list[Record]:
    """Return the records of the runs of this name and a number, of a day."""
    runs = sorted(group("gpus").glob(f"{name}?-{day}*"))
    return [record for run in runs for record in read(run)]


def _of_unequal() -> dict[str, object]:
    """Return what the page says of an idle GPU and one that another program uses."""
    one, two = _by_gpus(UNEQUAL)
    alone = {record.point.numbers[PADDED_CHARS]: speeds([record])[0] for record in one}
    idle_gpu = one[0].workers[0].gpu_uuid
    shared = [
        100 * share.items / record.summary.items
        for record in two
        for share in [_totals(record, lambda uuid: uuid != idle_gpu)]
        if record.summary
    ]
    ratios = [speeds([record])[0] / alone[record.point.numbers[PADDED_CHARS]] for record in two]
    return {
        "unequal_spec": spec(UNEQUAL),
        "unequal": "\n".join(_unequal_line(record, idle_gpu) for record in [*one, *two]),
        "held_gib": (two[0].memory.device_idle_bytes or 0) / GIB,
        "shared_share": listed(shared),
        "unequal_ratios": listed(ratios, ".2f"),
        "unequal_idle": max(share.idle_s for record in two for share in record.workers),
    }


@dataclass(frozen=True, slots=True)
class _OfGpu:
    """What the workers of a GPU did together: paragraphs, and seconds of each call."""

    items: int
    call_s: float

    def __str__(self) -> str:
        return f"{self.items:,}, {self.call_s:.3f}" if self.items else ""


def _totals(record: Record, on: Callable[[str | None], bool]) -> _OfGpu:
    shares = [share for share in record.workers if on(share.gpu_uuid)]
    calls = sum(share.batches for share in shares)
    work_s = sum(share.work_s for share in shares)
    return _OfGpu(sum(share.items for share in shares), work_s / calls if calls else 0.0)


def _unequal_line(record: Record, idle_gpu: str | None) -> str:
    idle, shared = (
        _totals(record, on) for on in (lambda uuid: uuid == idle_gpu, lambda uuid: uuid != idle_gpu)
    )
    size = record.point.numbers[PADDED_CHARS]
    return f"| {size:,} | {record.point.gpus} | {speeds([record])[0]:,.0f} | {idle} | {shared} |"


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - a script prints
