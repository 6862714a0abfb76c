"""Vectors a second through writing, checking and merging, in CPU seconds of one process.

``python -m benchmarks.vectors --vectors 200000``; ``--format rows`` writes each vector as a list of JSON with
six decimals, as jobkit did before it wrote arrays. ``--documents`` makes each paragraph a document of JSONL.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet  # noqa: F401 - here, so that no step pays for it

from jobkit.core.layout import try_folder
from jobkit.extensions.corpus.merge import merge
from jobkit.extensions.corpus.rows import RowsFile
from jobkit.extensions.corpus.scan import find_sources, scan
from jobkit.extensions.corpus.winners import claim
from jobkit.extensions.corpus.work import WORK, shard_windows
from jobkit.worker.paragraphs import Window
from jobkit.worker.workloads.base import Result
from tests.support.corpora import plan, points_of, read_shard

WINDOW, CALL = 10_000, 500
COLUMNS = ("embedding",)
DIGITS = 6


def measure(folder: Path, *, vectors: int, width: int, shards: int, form: str, documents: bool) -> None:
    """Print the speed of each step, the bytes and the memory."""
    corpus = folder / ("corpus.jsonl" if documents else "corpus.txt")
    with corpus.open("w", encoding="utf-8") as stream:
        for number in range(vectors):
            text = f"Paragraph {number} of many."
            line = json.dumps({"id": f"d{number}", "text": text}) if documents else f"{text}\n"
            stream.write(f"{line}\n")
    points = points_of(folder, plan(folder, scan(find_sources([str(corpus)])), shards))
    read = [list(shard_windows(read_shard(folder, point.index), WINDOW)) for point in points]
    numbers = np.random.default_rng(1).standard_normal((WINDOW, width)).astype(np.float32)
    output = folder / ("merged.jsonl" if form == "rows" else f"merged.{form}")
    steps: dict[str, Iterable[object]] = {
        "writing": (write(folder, *one, numbers, text=form == "rows") for one in enumerate(read, 1)),
        "checking": (claim(folder, point, 1) for point in points),
        "merging": (merge(folder, output, output.suffix[1:]) for _ in range(1)),
    }
    took = {name: timed(step) for name, step in steps.items()}
    for name, seconds in {**took, "together": sum(took.values())}.items():
        sys.stdout.write(f"{name:<9} {vectors / seconds:>10,.0f} vectors a CPU second\n")
    held = sum(path.stat().st_size for path in folder.glob("results/*/*/rows.jsonl"))
    size = output.stat().st_size
    sys.stdout.write(f"bytes     {held / vectors:>10,.0f} a vector in shards, {size / vectors:,.0f} merged\n")
    sys.stdout.write(
        f"memory    {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:>10,.0f} MiB at most\n"
    )


def timed(step: Iterable[object]) -> float:
    """Return the CPU seconds of this process for all of a step."""
    began_s = time.process_time()
    for _ in step:
        pass
    return time.process_time() - began_s


def write(run: Path, index: int, windows: Iterable[Window], numbers: Any, *, text: bool) -> Path:  # noqa: ANN401 - an array
    """Write the result of a shard as a try does, from calls in reverse order; return its folder."""
    folder = Path(try_folder(run, f"shard-{index:05d}", 1))
    folder.mkdir(parents=True)
    output = RowsFile(folder)
    output.open(COLUMNS)
    for window in windows:
        order = [window.first + at for at in reversed(range(len(window.texts)))]
        rows = []
        for at in range(0, len(order), CALL):
            items = order[at : at + CALL]
            found = numbers[at : at + len(items)]
            listed = enumerate(found.astype("float64").round(DIGITS).tolist()) if text else ()
            result = Result(rows=tuple(listed) if text else None, vectors=None if text else found, load=0)
            rows += WORK.rows(result, COLUMNS, items)
        output.write(rows, window.first, window.places)
    output.close((), failed=False)
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=int, default=200_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--format", choices=("parquet", "npy", "rows"), default="parquet")
    parser.add_argument("--documents", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        measure(
            Path(name),
            vectors=given.vectors,
            width=given.width,
            shards=given.shards,
            form=given.format,
            documents=given.documents,
        )
