# ruff: noqa: E501 - the page's sentences
"""Write docs/benchmarks-workers.md from the records of sweeps of workers on GPUs and on a CPU.

``python -m benchmarks.workers_page`` reads docs/benchmarks/workers/, grid/, gpus/ and cpu/ and prints the
page; the records are what the sweeps on the page brought home, entities and logs left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks import grid
from benchmarks.gpu_page import GIB
from benchmarks.tune_page import listed, read, spec, speeds, table
from jobkit.core.knobs import PADDED_CHARS
from jobkit.core.records import Record
from jobkit.fit.speed import ratio_of
from jobkit.report.tables import collect

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "docs" / "benchmarks"
RUNS = BENCHMARKS / "workers"
WHOLE, PART, LATER = "table-20261122-131011-d185", "table-20261122-125756-f497", "table-20261122-214949-eea6"
GPUS, GPUS_8, LONG = (next((BENCHMARKS / "gpus").glob(f"{name}-2*")) for name in ("gpus", "gpus8", "long"))
UNEQUAL = next((BENCHMARKS / "unequal").glob("unequal-2*"))
PINNED_16, PINNED_12 = "20261122", "20261123"
"""The days on which points had half of the cores, with 16 and with 12 workers on each GPU."""
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

The records are in [benchmarks/workers](benchmarks/workers), [grid](benchmarks/grid), [gpus](benchmarks/gpus) \
and [cpu](benchmarks/cpu), without entities and logs. `python -m benchmarks.workers_page` makes this page from \
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

The mean is {gpus_ratio:.2f} times one GPU ({gpus_low:.2f} to {gpus_high:.2f}); repeat by repeat {gpus_pairs}. The queue is not \
the reason: the workers had no work for {gpus_idle:.2f} s at the end on average. A call takes {call_one:.3f} s with one GPU and \
{call_two:.3f} s with two.

With 16 workers on each GPU, and the points of one GPU limited to 16 of the 32 cores (`taskset`), as a scheduler \
limits a job: {one_speeds} paragraphs a second on one GPU, {two_speeds} on two, {pinned:.2f} times.

With 8 workers on each GPU, on another machine with two, also without other work, 21,144 paragraphs (the time on \
that machine ended during the third repeat; the folder has the four points that ended):

| GPUs | paragraphs/s | seconds a call | CPU seconds of the point |
|--:|--:|--:|--:|
{eight}

That is {eight_ratio:.2f} times ({eight_low:.2f} to {eight_high:.2f}); repeat by repeat {eight_pairs}. Both GPUs do the \
same share ({eight_calls} calls), and the workers have no work for {eight_idle:.2f} s at the end on average.

A longer text does not help. 56,384 paragraphs and 12 workers on each GPU, two repeats on another machine: {long_one} \
paragraphs a second on one GPU, {long_two} on two, {long_ratio:.2f} times.

**Two points with one GPU each** are faster. On a fourth machine, 28,192 paragraphs, 12 workers on each GPU, 16 cores \
for each GPU (`taskset`, `CUDA_VISIBLE_DEVICES`):

| | paragraphs/s | seconds a call | times one GPU |
|---|--:|--:|--:|
| one point with one GPU, alone, twice | {alone} | {alone_call:.3f} | |
| one point with two GPUs, twice | {both} | {both_call:.3f} | {both_ratio:.2f} |
| two points with one GPU each, started 2 s apart, once | {apart}, together {apart_sum:,.0f} | {apart_call:.3f} | {apart_ratio:.2f} |

The target is 1.9 times one GPU. **Two points with one GPU each reach it: {apart_ratio:.2f} times. One point with two GPUs does \
not**: with 8, 12 and 16 workers on each GPU every mean is below it, the best is {gpus_ratio:.2f}. So the machine can do it, and \
something that the workers of one point share slows them: the process that they are forked from, the daemon of MPS, \
or all 32 cores without a division between the GPUs. Which of these it is was not measured. For a corpus it does not matter: each shard of \
[`jobkit apply`](apply.md) is a job with a GPU of its own.

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
        spec=(RUNS / "workers.yaml").read_text(encoding="utf-8").rstrip(),
        whole=table(RUNS / WHOLE),
        ratio=max(rates) / min(rates),
        part="\n".join(lines),
        later="\n".join(_lines(records)),
        context_on=contexts["on"],
        context_off=contexts["off"],
        gpus_section=TWO_GPUS.format(
            **_of_gpus(), **_pinned(), **_of_eight(), **_of_long(), **_of_unequal()
        ).rstrip()
        + "\n",
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
    one, two = _by_gpus(GPUS)
    [size] = [size for size in collect([GPUS]).sizes.to_dict("records") if size["gpus"] == BOTH]
    pairs = [after / before for before, after in zip(speeds(one), speeds(two), strict=True)]
    return {
        "gpus_spec": spec(GPUS),
        "gpus": table(GPUS),
        "gpus_ratio": size["speedup"],
        "gpus_low": size["speedup_low"],
        "gpus_high": size["speedup_high"],
        "gpus_pairs": ", ".join(f"{pair:.2f}" for pair in pairs),
        "gpus_idle": fmean(share.idle_s for record in two for share in record.workers),
        "call_one": _call_s(one),
        "call_two": _call_s(two),
    }


def _of_eight() -> dict[str, object]:
    """Return what the page says of eight workers on each GPU."""
    one, two = _by_gpus(GPUS_8)
    records = read(GPUS_8)
    ratio = ratio_of(speeds(two), speeds(one))
    pairs = [after / before for before, after in zip(speeds(one), speeds(two), strict=True)]
    shares = Counter[str | None]()
    for share in two[0].workers:
        shares[share.gpu_uuid] += share.batches
    return {
        "eight": "\n".join(
            f"| {len(shares) if record in two else 1} | {speed:,.0f} | {_call_s([record]):.3f} | {record.cpu_s:.0f} |"
            for record, speed in zip(records, speeds(records), strict=True)
        ),
        "eight_ratio": ratio.mean,
        "eight_low": ratio.low,
        "eight_high": ratio.high,
        "eight_pairs": listed(pairs, ".2f"),
        "eight_calls": listed(list(shares.values())),
        "eight_idle": fmean(share.idle_s for record in two for share in record.workers),
    }


def _call_s(records: Sequence[Record]) -> float:
    return fmean(record.summary.batch_mean_s or 0 for record in records if record.summary)


def _of_day(name: str, day: str) -> list[Record]:
    """Return the records of the runs of this name and a number, of a day."""
    runs = sorted((BENCHMARKS / "gpus").glob(f"{name}?-{day}*"))
    return [record for run in runs for record in read(run)]


def _pinned() -> dict[str, object]:
    """Return the speeds of the runs whose points have half of the cores for each GPU."""
    one, two = (speeds(_of_day(name, PINNED_16)) for name in ("one", "two"))
    alone, both = (_of_day(name, PINNED_12) for name in ("one", "two"))
    apart = [record for name in ("left", "right") for record in _of_day(name, PINNED_12)]
    return {
        "one_speeds": listed(one),
        "two_speeds": listed(two),
        "pinned": fmean(two) / fmean(one),
        "alone": listed(speeds(alone)),
        "alone_call": _call_s(alone),
        "both": listed(speeds(both)),
        "both_call": _call_s(both),
        "both_ratio": fmean(speeds(both)) / fmean(speeds(alone)),
        "apart": listed(speeds(apart)),
        "apart_sum": sum(speeds(apart)),
        "apart_call": _call_s(apart),
        "apart_ratio": sum(speeds(apart)) / fmean(speeds(alone)),
    }


def _of_long() -> dict[str, object]:
    """Return what the page says of the longer text."""
    one, two = map(speeds, _by_gpus(LONG))
    return {"long_one": listed(one), "long_two": listed(two), "long_ratio": fmean(two) / fmean(one)}


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
