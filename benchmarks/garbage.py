"""What it gives, in time and in memory, to collect garbage only between the calls of a workload.

``python -m benchmarks.garbage --model DIR --out FILE``: the workload `count` on 1 GiB of text, and the tagger
on 5 MiB, each in fresh processes, with Python's own collector and with jobkit's.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean
from typing import Any

from jobkit.planning.sample import SEED, generate
from jobkit.run import garbage
from jobkit.run.workloads.base import workload_class

MIB = 2**20
CALL = 100
WORKS = (("count", 1024, 3), ("stanza-ner", 5, 1))
"""Workload, MiB of text, and repeats."""
TITLES = {
    "count": "`count`, 1 GiB",
    "stanza-ner": "the tagger, `shortcuts: exact`, tiny model on a CPU, 5 MiB",
}


def work(name: str, size_mib: int, between: str, model: Path) -> None:
    """Work through a text and print seconds and the peak of the resident memory."""
    workload: Any = workload_class(name)()
    workload.load(model, "cpu", {"batch_size": CALL, "shortcuts": "exact"}, 1)
    if between == "between":
        garbage.only_between_calls(workload)
    paragraphs, left = cycle(generate(SEED).paragraphs), size_mib * MIB
    start = time.perf_counter()
    while left > 0:
        call = list(islice(paragraphs, CALL))
        workload.process(call)
        garbage.collect()
        left -= sum(map(len, call))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sys.stdout.write(json.dumps([time.perf_counter() - start, peak]))


def measure(model: Path) -> list[dict[str, Any]]:
    """Return the means of both ways, for each work."""
    rows = []
    for name, size_mib, repeats in WORKS:
        found: dict[str, list[list[float]]] = {"python": [], "between": []}
        for _ in range(repeats):
            for between, results in found.items():
                argv = [sys.executable, "-m", "benchmarks.garbage", "--model", str(model)]
                argv += ["--work", name, str(size_mib), between]
                done = subprocess.run(argv, capture_output=True, text=True, check=True)  # noqa: S603 - our own module
                results.append(json.loads(done.stdout.splitlines()[-1]))
        means = {
            between: [fmean(one[at] for one in results) for at in (0, 1)]
            for between, results in found.items()
        }
        rows.append(
            {
                "work": TITLES[name],
                "repeats": repeats,
                "seconds": [means["python"][0], means["between"][0]],
                "peak_bytes": [means["python"][1], means["between"][1]],
            }
        )
    return rows


def main() -> None:
    """Measure, or work in one of the processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", nargs=3)
    arguments = parser.parse_args()
    if arguments.work:
        name, size_mib, between = arguments.work
        work(name, int(size_mib), between, arguments.model)
        return
    text = json.dumps(measure(arguments.model), indent=1)
    arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
