"""What it gives, in time and in memory, to collect garbage only between the calls of a workload.

``python -m benchmarks.garbage --out FILE``: the workload `count` on 1 GiB of text, the tagger on 5 MiB, and
the other workloads that jobkit ships on 1 MiB with models of random weights, each in fresh processes on a
CPU, with Python's own collector and with jobkit's.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean
from typing import Any

from jobkit.planning.sample import SEED, generate
from jobkit.worker import steps
from jobkit.worker.workloads.base import workload_class

MIB = 2**20
CALL = 100
WORKS = (
    ("count", 1024, 3),
    ("stanza-ner", 5, 1),
    ("spacy-ner", 1, 3),
    ("hf-token-classification", 1, 3),
    ("sentence-embedding", 1, 3),
)
"""Workload, MiB of text, and repeats."""
TITLES = {
    "count": "`count`, 1 GiB",
    "stanza-ner": "the tagger, `shortcuts: exact`, tiny model on a CPU, 5 MiB",
    "spacy-ner": "`spacy-ner`, tiny model of random weights on a CPU, 1 MiB",
    "hf-token-classification": "`hf-token-classification`, the same",
    "sentence-embedding": "`sentence-embedding`, the same",
}


def model_of(name: str) -> Path | None:
    """Return the folder of a workload's tiny model; build it if it is not there."""
    if not workload_class(name).NEEDS_MODEL:
        return None
    argv = [sys.executable, "-m", "jobkit", "models", "build", "--for", name]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - our own module
    return Path(done.stdout.splitlines()[-1])


def work(name: str, size_mib: int, between: str) -> None:
    """Work through a text and print seconds and the peak of the resident memory."""
    workload: Any = workload_class(name)()
    workload.load(model_of(name), "cpu", {"batch_size": CALL, "shortcuts": "exact"}, 1)
    if between == "between":
        steps.only_between_calls(workload)
    paragraphs, left = cycle(generate(SEED).paragraphs), size_mib * MIB
    start = time.perf_counter()
    while left > 0:
        call = list(islice(paragraphs, CALL))
        workload.process(call)
        steps.collect()
        left -= sum(map(len, call))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sys.stdout.write(json.dumps([time.perf_counter() - start, peak]))


def measure(works: Sequence[tuple[str, int, int]]) -> list[dict[str, Any]]:
    """Return the means of both ways, for each work."""
    rows = []
    for name, size_mib, repeats in works:
        model_of(name)
        found: dict[str, list[list[float]]] = {"python": [], "between": []}
        for _ in range(repeats):
            for between, results in found.items():
                argv = [sys.executable, "-m", "benchmarks.garbage"]
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
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", nargs=3)
    parser.add_argument("--only", nargs="+", choices=TITLES, default=tuple(TITLES))
    arguments = parser.parse_args()
    if arguments.work:
        name, size_mib, between = arguments.work
        work(name, int(size_mib), between)
        return
    text = json.dumps(measure([one for one in WORKS if one[0] in arguments.only]), indent=1)
    arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
