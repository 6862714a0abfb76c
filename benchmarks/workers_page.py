# ruff: noqa: E501 - the page's sentences
"""Write docs/benchmarks-workers.md from the records of sweeps of workers on GPUs and on a CPU.

``python -m benchmarks.workers_page`` reads docs/benchmarks/workers/, grid/, gpus/ and cpu/ and prints the
page; the records are what the sweeps on the page brought home, entities and logs left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from benchmarks import grid
from benchmarks.tune_page import listed, read, spec, speeds, table
from jobkit.core.records import Record
from jobkit.fit.speed import ratio_of
from jobkit.report.tables import collect

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "docs" / "benchmarks"
RUNS = BENCHMARKS / "workers"
WHOLE, PART, LATER = "table-20261122-131011-d185", "table-20261122-125756-f497", "table-20261122-214949-eea6"
GPUS, GPUS_8 = (next((BENCHMARKS / "gpus").glob(f"{name}-2*")) for name in ("gpus", "gpus8"))
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

The target is 1.9 times one GPU. The mean misses it: {gpus_ratio:.2f} times ({gpus_low:.2f} to {gpus_high:.2f}); repeat \
by repeat {gpus_pairs}. The queue is not the reason: the workers had no work for {gpus_idle:.2f} s at the end on average. A \
call takes {call_one:.3f} s with one GPU and {call_two:.3f} s with two: 24 processes on 32 cores of one host slow each other.

With 16 workers on each GPU, and the points of one GPU limited to 16 of the 32 cores (`taskset`), as a scheduler \
limits a job: {one_speeds} paragraphs a second on one GPU, {two_speeds} on two, {pinned:.2f} times.

With 8 workers on each GPU, on another machine with two, also without other work, 21,144 paragraphs (the time on \
that machine ended during the third repeat; the folder has the four points that ended):

| GPUs | paragraphs/s | seconds a call | CPU seconds of the point |
|--:|--:|--:|--:|
{eight}

That is {eight_ratio:.2f} times ({eight_low:.2f} to {eight_high:.2f}); repeat by repeat {eight_pairs}. Both GPUs do the \
same share ({eight_calls} calls), and the workers have no work for {eight_idle:.2f} s at the end on average. Each call is slower, \
so the processes of one host slow each other, here with half of its 32 cores free. What they share that \
slows them was not measured. The CPU seconds rise too, for the same text; part of that is the loading of eight more workers.

**1.9 is not reached**: with 8, 12 and 16 workers on each GPU every mean is below it, the best is {gpus_ratio:.2f}.

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
        gpus_section=TWO_GPUS.format(**_of_gpus(read(GPUS)), **_of_eight(read(GPUS_8))).rstrip() + "\n",
        grid=grid.section(),
        cpu=grid.cpu_section(),
    )


def _lines(records: Sequence[Record]) -> Iterator[str]:
    for record, speed in zip(records, speeds(records), strict=True):
        yield f"| {record.point.point_id.removesuffix('-r1')} | {speed:,.0f} |"


def _of_gpus(records: Sequence[Record]) -> dict[str, object]:
    one, two = ([record for record in records if record.point.gpus == gpus] for gpus in (1, BOTH))
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
        **_pinned(),
    }


def _of_eight(records: Sequence[Record]) -> dict[str, object]:
    """Return what the page says of eight workers on each GPU."""
    one, two = ([record for record in records if record.point.gpus == gpus] for gpus in (1, BOTH))
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


def _pinned() -> dict[str, object]:
    """Return the speeds of the runs whose points have as many cores as workers."""
    one, two = (
        [speed for run in sorted((BENCHMARKS / "gpus").glob(f"{name}?-2*")) for speed in speeds(read(run))]
        for name in ("one", "two")
    )
    ratio = fmean(two) / fmean(one)
    return {"one_speeds": listed(one), "two_speeds": listed(two), "pinned": ratio}


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - a script prints
