"""Write docs/benchmarks-gpu.md from the records of sweeps/stanza.yaml on a GPU.

``python -m benchmarks.gpu_page`` reads benchmarks/records/gpu/ and prints the page; the records are
what ``jobkit sweep sweeps/stanza.yaml`` brought home, entities and logs left out.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from jobkit.core.json_codec import from_json
from jobkit.core.measurements import Memory
from jobkit.core.records import Record
from jobkit.report.output import render
from jobkit.report.tables import collect

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "benchmarks" / "records" / "gpu"
WIDTH = 110
GIB = 2**30

PAGE = """\
# On a GPU: the parts of the memory

The whole sweep `sweeps/stanza.yaml` on one NVIDIA H200 without other users, with the full-size stand-in \
model: once with expandable segments (jobkit's default, 3 repeats) and once with PyTorch's default \
allocator setting (2 repeats).

<!-- not run: needs a GPU -->
```sh
jobkit models build --size full
jobkit sweep sweeps/stanza.yaml
jobkit sweep sweeps/stanza.yaml --set repeats=2 --set 'environment.variables={{PYTORCH_ALLOC_CONF: ""}}'
```

The records are in [benchmarks/records/gpu](../benchmarks/records/gpu), without entities and logs.
`python -m benchmarks.gpu_page` makes this page from them, and a test checks that it agrees with them.

## The table

```text
{table}
```

## The parts add up

GiB, means over the repeats. *Slack* is the memory that torch reserved beyond its tensors at the peak. \
*Sum* is context, weights, activations and slack; *NVML* is the memory of the process by the driver's count.

{parts}

Context, weights and activations alone are {three_low:.0f} to {three_high:.0f} % of NVML's figure with \
expandable segments, and {three_low_default:.0f} to {three_high_default:.0f} % without. The rest is the \
allocator's slack: with it the sum is always within {worst:.1f} % of NVML. \
The line through the points (memory against load) misses them by 0.004 GiB with expandable segments \
and by 0.6 GiB without; therefore expandable segments are the default.

## Four instruments compared

GiB at the peak, means over the repeats.

{instruments}

- *torch allocated* is the memory of tensors; *torch reserved* adds the allocator's cache.
- *NVML process* adds the CUDA context and kernels.
- *NVML device* is the whole GPU, with all processes (call v2, which excludes the driver's reserve).
"""


def records(run: Path) -> list[Record]:
    """Return the records of a run, in ascending batch size."""
    paths = sorted(run.glob("results/*/try-*/record.json"))
    read = [from_json(Record, path.read_text(encoding="utf-8"), where=str(path)) for path in paths]
    return sorted(read, key=lambda record: (record.point.params["batch_size"], record.point.repeat))


def slack_bytes(memory: Memory) -> int:
    """Return what torch reserved beyond what its tensors held, each at its peak."""
    return (memory.reserved_peak_bytes or 0) - (memory.allocated_peak_bytes or 0)


def parts_bytes(memory: Memory) -> tuple[int, int, int, int]:
    """Return context, weights, activations and slack."""
    known = (memory.context_bytes or 0, memory.weights_bytes or 0, memory.activations_bytes or 0)
    return (*known, slack_bytes(memory))


def share(memory: Memory, parts: int) -> float:
    """Return the first ``parts`` parts as a share of NVML's figure for the process."""
    return sum(parts_bytes(memory)[:parts]) / (memory.process_peak_bytes or 1)


def _instruments(memory: Memory) -> tuple[int, int, int, int]:
    return (
        memory.allocated_peak_bytes or 0,
        memory.reserved_peak_bytes or 0,
        memory.process_peak_bytes or 0,
        memory.device_peak_bytes or 0,
    )


def _parts(memory: Memory) -> tuple[int, ...]:
    parts = parts_bytes(memory)
    return (*parts, sum(parts), memory.process_peak_bytes or 0)


def _table(heads: Sequence[str], figures: Callable[[Memory], Sequence[int]], found: Sequence[Record]) -> str:
    lines = ["| allocator | batch | " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) + 1)]
    return "\n".join([*lines, *_rows(figures, found)])


def _rows(figures: Callable[[Memory], Sequence[int]], found: Sequence[Record]) -> Iterator[str]:
    settings = dict.fromkeys((record.point.allocator, record.point.params["batch_size"]) for record in found)
    for allocator, size in settings:
        same = [
            figures(record.memory)
            for record in found
            if (record.point.allocator, record.point.params["batch_size"]) == (allocator, size)
        ]
        means = [f"{statistics.mean(column) / GIB:.3f}" for column in zip(*same, strict=True)]
        yield f"| {'expandable' if allocator else 'default'} | {size} | {' | '.join(means)} |"


def page() -> str:
    """Return the page."""
    runs = sorted(path for path in RUNS.iterdir() if path.is_dir())
    found = [record for run in runs for record in records(run)]
    three = {
        default: [100 * share(r.memory, 3) for r in found if (r.point.allocator is None) == default]
        for default in (False, True)
    }
    return PAGE.format(
        table=render(collect(runs), "table", width=WIDTH).replace(f"{ROOT}/", "").rstrip(),
        parts=_table(("context", "weights", "activations", "slack", "sum", "NVML"), _parts, found),
        instruments=_table(
            ("torch allocated", "torch reserved", "NVML process", "NVML device"), _instruments, found
        ),
        three_low=min(three[False]),
        three_high=max(three[False]),
        three_low_default=min(three[True]),
        three_high_default=max(three[True]),
        worst=max(abs(100 * share(record.memory, 4) - 100) for record in found),
    )


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - a script prints
