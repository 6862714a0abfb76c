"""Write docs/benchmarks-workers.md from the records of a sweep of workers on a GPU.

``python -m benchmarks.workers_page`` reads docs/benchmarks/workers/ and prints the page; the records are
what the sweeps on the page brought home, entities and logs left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.tune_page import read, speeds
from jobkit.core.records import Record
from jobkit.report.output import render
from jobkit.report.tables import collect

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "docs" / "benchmarks" / "workers"
WIDTH = 118
WHOLE, PART, LATER = "table-20261122-131011-d185", "table-20261122-125756-f497", "table-20261122-214949-eea6"

PAGE = """\
# On a GPU: workers, order, budget and MPS

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

The records of all three are in [benchmarks/workers](benchmarks/workers), without entities and logs. \
`python -m benchmarks.workers_page` makes this page from them, and a test checks that it agrees with them.

What MPS saves here is time, not memory: the context of a worker is {context_on:.2f} GiB with it and \
{context_off:.2f} GiB without.

Other texts, a corpus, caps, energy, precision and two GPUs: [what `jobkit tune` finds](benchmarks-tune.md).
"""


def page() -> str:
    """Return the page."""
    whole, part = collect([RUNS / WHOLE]), collect([RUNS / PART])
    speeds = [row.items_per_s for row in whole.rows if row.items_per_s]
    contexts = {row.params["mps"]: (row.context_bytes or 0) / 2**30 for row in whole.rows}
    table = render(whole, "table", width=WIDTH, gpu_memory_bytes=None).split("\n\nFastest", maxsplit=1)[0]
    rows = [row for row in part.rows if row.items_per_s]
    lines = [f"| {row.point.removesuffix('-r1')} | {row.items_per_s:,.0f} |" for row in rows]
    records = sorted(read(RUNS / LATER), key=lambda record: record.point.point_id)
    return PAGE.format(
        spec=(RUNS / "workers.yaml").read_text(encoding="utf-8").rstrip(),
        whole=table.rstrip(),
        ratio=max(speeds) / min(speeds),
        part="\n".join(lines),
        later="\n".join(_lines(records)),
        context_on=contexts["on"],
        context_off=contexts["off"],
    )


def _lines(records: Sequence[Record]) -> Iterator[str]:
    for record, speed in zip(records, speeds(records), strict=True):
        yield f"| {record.point.point_id.removesuffix('-r1')} | {speed:,.0f} |"


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - a script prints
