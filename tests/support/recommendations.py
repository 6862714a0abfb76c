"""Runs on a GPU whose points tell what a batch needs, as jobkit brings them home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from jobkit.answers.loads import Lengths, Loads
from jobkit.core.layout import LENGTHS_FILE
from jobkit.core.records import Point, Record
from jobkit.report.recommend.material import RunData
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import Resources
from tests.support.builders import GPU, ITEMS, grid, need, record, write_records

SIZES = (40, 85, 130, 175, 220)
RATES: Mapping[int, float] = {40: 206, 85: 258, 130: 284, 175: 301, 220: 306}
"""Paragraphs a second by batch size."""
SCATTER = (-3.0, 0.0, 3.0)
"""By which the repeats differ, in paragraphs a second."""
FIXED_BYTES, BYTES_PER_LOAD = 150_000_000, 12_000
H200_BYTES = 150_754_820_096
CONTEXT_BYTES = 719_323_136
SPEC = """\
name: demo
sweep: {batch_size: [40, 85, 130, 175, 220]}
resources: {gpu_type: h200, account: nlp}
scheduler: slurm
site: slurm-default
"""

LENGTHS = Lengths(paragraphs=tuple((900 if n == 300 else 20 + n % 41,) for n in range(ITEMS)))
"""One sentence a paragraph, one of them long."""
LOADS = Loads(LENGTHS)


def measured(point: Point, rate: float, off: float = 0.0) -> Record:
    """Return the record of a point that ran at so many paragraphs a second."""
    load = LOADS.own(point.numbers["batch_size"])
    told = record(point, work_s=ITEMS / rate)
    assert told.summary
    return replace(
        told,
        summary=replace(told.summary, load_max=load),
        needs=(need(load, int((FIXED_BYTES + BYTES_PER_LOAD * load) * (1 + off))),),
        gpu=replace(GPU, total_bytes=H200_BYTES, foreign_processes=0),
        memory=replace(told.memory, context_bytes=CONTEXT_BYTES, device_idle_bytes=0),
        retries=0,
        load_s=5.0,
        warm_up_s=0.5,
    )


def records(sizes: Sequence[int] = SIZES, repeats: int = 3) -> list[Record]:
    """Return the records of a sweep, every need within 0.1 % of the line."""
    points = grid(sizes, repeats)
    return [
        measured(
            point, RATES[point.numbers["batch_size"]] + SCATTER[point.repeat - 1], (-1) ** point.index / 1000
        )
        for point in points
    ]


def material(told: Sequence[Record], lengths: Lengths | None = LENGTHS) -> RunData:
    """Return what a run folder with these records holds."""
    return RunData(
        run="runs/demo",
        records=told,
        batches={},
        lengths=lengths,
        seconds=[60.0] * len(told),
        resources=Resources(gpu_type="h200", account="nlp"),
        site=load_site("slurm-default", "slurm"),
    )


def write_run(folder: Path, told: Sequence[Record]) -> Path:
    """Write these records as a run folder."""
    write_records(folder, told)
    (folder / "sweep.yaml").write_text(SPEC, encoding="utf-8")
    (folder / LENGTHS_FILE).write_text(LENGTHS.to_json(), encoding="utf-8")
    return folder
