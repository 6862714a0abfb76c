"""The parts of the memory of a GPU, from the records of sweeps/stanza.yaml in benchmarks/records/gpu."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from benchmarks.archives import RECORDS
from benchmarks.markdown import table
from jobkit.core.json_codec import from_json
from jobkit.core.measurements import MemoryReadings
from jobkit.core.records import Record

RUNS = RECORDS / "gpu"
GIB = 2**30


def records(run: Path) -> list[Record]:
    """Return the records of a run, in ascending batch size."""
    paths = sorted(run.glob("results/*/try-*/record.json"))
    read = [from_json(Record, path.read_text(encoding="utf-8"), where=str(path)) for path in paths]
    return sorted(read, key=lambda record: (record.point.params["batch_size"], record.point.repeat))


def slack_bytes(memory: MemoryReadings) -> int:
    """Return the memory that torch reserved beyond its tensors, each at its peak."""
    return (memory.reserved_peak_bytes or 0) - (memory.allocated_peak_bytes or 0)


def parts_bytes(memory: MemoryReadings) -> tuple[int, int, int, int]:
    """Return context, weights, activations and slack."""
    known = (memory.context_bytes or 0, memory.weights_bytes or 0, memory.activations_bytes or 0)
    return (*known, slack_bytes(memory))


def share(memory: MemoryReadings, parts: int) -> float:
    """Return the first ``parts`` parts as a share of NVML's figure for the process."""
    return sum(parts_bytes(memory)[:parts]) / (memory.process_peak_bytes or 1)


def memory_parts() -> str:
    """Return the table: the parts of the smallest and the largest batch, with each allocator."""
    heads = ("allocator", "batch size", "context", "weights", "activations", "slack", "process, by NVML")
    found = [record for run in sorted(RUNS.iterdir()) for record in records(run)]
    sizes = {int(str(record.point.params["batch_size"])) for record in found}
    return table(
        heads, _rows([one for one in found if one.point.params["batch_size"] in (min(sizes), max(sizes))])
    )


def _rows(found: list[Record]) -> Iterator[tuple[str, ...]]:
    for allocator, size in dict.fromkeys(
        (one.point.allocator, one.point.params["batch_size"]) for one in found
    ):
        same = [
            (*parts_bytes(one.memory), one.memory.process_peak_bytes or 0)
            for one in found
            if (one.point.allocator, one.point.params["batch_size"]) == (allocator, size)
        ]
        means = [f"{statistics.mean(column) / GIB:.2f} GiB" for column in zip(*same, strict=True)]
        yield "expandable" if allocator else "default", str(size), *means
