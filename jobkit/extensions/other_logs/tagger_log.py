"""Logs of the taggers before jobkit.

Their line is ``<time> - <logger> - <LEVEL> - <message>``; a log has two runs or more. All lines of a run come
at its end, a run starts at ``Total time:``, and only the ``Mean batch time`` line names the batch size. Their
"GB" is 2**30 bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from jobkit.core.figures import ACTIVATIONS, BATCH_MEAN, GPU_MEMORY, MODEL, RAM, SPEED, WORK
from jobkit.core.frozen import keyed
from jobkit.core.knobs import BATCH_SIZE, CPU, CUDA
from jobkit.core.records import Outcome, Point, TextRef
from jobkit.core.units import GIB
from jobkit.report.rows import FileFormat, Row
from jobkit.runs.status import PointResult
from jobkit.runs.tries import Try

LOG = "tagger log"
"""The workload of a row that comes from a log."""
TAGGER_LOG = FileFormat(
    about="a log of a tagger before jobkit, which names neither its text nor its model",
    remark="old logs: batch s is total / number of batches, where the log itself counts a partial batch as "
    "whole; their GPU peak is the largest of samples at every 50th paragraph, so the true peak may be higher",
)

_NUMBER = r"(?:\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?:\.\d+)?(?:[eE][+-]?\d{1,2})?"
"""A number, perhaps with commas between thousands or an exponent."""
MEMORY_LINES = {
    "Total GPU memory: ": "gpu_capacity_bytes",
    "Amount of GPU memory used before running script: ": "gpu_before_bytes",
    "GPU memory used for loading model: ": "gpu_model_bytes",
    "Peak GPU memory used for processing batch ": "gpu_batch_peak_bytes",
    "Peak GPU memory used ": "gpu_peak_bytes",
    "RAM memory used for loading model: ": "ram_model_bytes",
    "Peak RAM memory used ": "ram_peak_bytes",
}
"""The words before the figure, colon or none as the logs have it, and the field it goes to."""

_LINES = [
    re.compile(rf"{line}\s*$")
    for line in (
        rf"Total time: (?P<total_s>{_NUMBER})s",
        rf"Mean batch time for batch size (?P<batch_size>{_NUMBER}): (?P<logged_batch_s>{_NUMBER})s",
        rf"Total number of samples: (?P<items>{_NUMBER})",
        *(rf"{re.escape(words)}(?P<{name}>{_NUMBER})GB" for words, name in MEMORY_LINES.items()),
    )
]
"""Each line that has figures; the groups have the names of the fields."""


@keyed
class LogRun:
    """One run as a log reports it; ``None`` for what the log does not have."""

    batch_size: int  # paragraphs per call
    items: int  # all paragraphs
    total_s: float  # time of the whole loop, writing included
    logged_batch_s: float  # the mean batch time by the log: ``total_s / items * batch_size``
    gpu_capacity_bytes: int | None = None
    gpu_before_bytes: int | None = None
    gpu_model_bytes: int | None = None  # CUDA context and weights together, above the memory in use before
    # above the model, and in all; sampled every 50 paragraphs
    gpu_batch_peak_bytes: int | None = None
    gpu_peak_bytes: int | None = None
    ram_model_bytes: int | None = None
    ram_peak_bytes: int | None = None

    @property
    def batch_mean_s(self) -> float:
        """Mean seconds of a call, partial calls counted."""
        return self.total_s / math.ceil(self.items / self.batch_size)


def parse_log(text: str) -> tuple[tuple[LogRun, ...], int]:
    """Return the runs of a log, and how many of its runs are cut short.

    Lines of any other form are passed over: a job's log holds whatever else was printed.
    """
    blocks: list[dict[str, float]] = []  # the figures of each run, from one ``Total time:`` to the next
    for line in text.splitlines():
        match = next((match for pattern in _LINES if (match := pattern.search(line))), None)
        figures = match.groupdict() if match else {}
        if "total_s" in figures:
            blocks.append({})
        for name, number in figures.items() if blocks else ():
            value = float(number.replace(",", ""))
            blocks[-1][name] = round(value * GIB) if name.endswith("_bytes") else value
    whole = tuple(run for run in map(_run, blocks) if run)
    return whole, len(blocks) - len(whole)


def _run(block: dict[str, float]) -> LogRun | None:
    """Return a run if its figures are complete: it must have its size and count, and end with its RAM."""
    if not {"batch_size", "items", "ram_peak_bytes"} <= block.keys():
        return None
    counts = block["batch_size"], block["items"]
    if block["total_s"] <= 0 or any(count < 1 or count % 1 for count in counts):
        return None
    figures = block | {"batch_size": int(block["batch_size"]), "items": int(block["items"])}
    return LogRun(**figures)  # type: ignore[arg-type]  # its whole numbers are ints by now


def rows_of_log(file: str, runs: Iterable[LogRun]) -> list[Row]:
    """Return the rows of an old log; the file stands for text, model and versions, which it does not name."""
    rows: list[Row] = []
    repeats: dict[int, int] = {}
    for index, run in enumerate(runs, 1):
        repeats[run.batch_size] = repeats.get(run.batch_size, 0) + 1
        capacity = run.gpu_capacity_bytes
        point = Point(
            run_id=file,
            index=index,
            point_id=f"run {index}",
            workload=LOG,
            params={BATCH_SIZE: run.batch_size},
            repeat=repeats[run.batch_size],
            text=TextRef(path="", sha256="", size_bytes=0, name=""),
            model=None,
            device=CPU if capacity is None else CUDA,
            order="",
            allocator=None,
            threads=1,
        )
        given: dict[str, object] = dict.fromkeys(
            ("text", "text_sha256", "order", "threads", "workers", "gpus")
        )
        given |= {"machine": file, "items": run.items, "items_total": run.items}
        if capacity is not None:
            given["gpu"] = f"unknown GPU, {capacity / GIB:.1f} GiB"
            given["gpu_capacity_bytes"] = capacity
            given["gpu_instrument"] = "NVML device, sampled every 50 paragraphs"
        given |= {
            SPEED.name: run.items / run.total_s,
            WORK.name: run.total_s,
            BATCH_MEAN.name: run.batch_mean_s,
            MODEL.name: run.gpu_model_bytes,
            ACTIVATIONS.name: run.gpu_batch_peak_bytes,
            GPU_MEMORY.name: run.gpu_peak_bytes,
            RAM.name: run.ram_peak_bytes,
        }
        tried = Try(number=1, outcome=Outcome.OK, evidence="log of a run that ended")
        row = Row(
            folder=file,
            result=PointResult(point=point, all_tries=(tried,)),
            params=point.params,
            file_format=TAGGER_LOG,
            given=given,
        )
        rows.append(row)
    return rows
