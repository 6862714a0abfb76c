"""What a sweep costs beside its work: two builds of jobkit next to each other on this machine.

``python -m benchmarks.point_cost FILE --builds OLD NEW`` runs in turn ``jobkit sweep`` of four points of
``sentence-embedding`` (2,000 paragraphs of the sample) and of ``stanza-ner`` (300), with small stand-ins on a
CPU and a cache that has these models alone; and finds the lengths of a text. OLD and NEW are checkouts; both
run with this Python. FILE gets the seconds of each.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.timing import once
from jobkit.core.paragraphs import split_paragraphs
from jobkit.core.paths import CACHE_VARIABLE, cache_dir
from jobkit.planning.sample import sample_text

WORKLOADS = {
    "sentence-embedding": ("sentence-transformers/all-MiniLM-L6-v2", 2_000, [500, 1_000, 2_000, 4_000]),
    "stanza-ner": ("en", 300, [1_000, 2_000, 4_000, 8_000]),
}
SPEC = """\
name: cost
workload: {workload}
model: {{name: {name}, size: tiny}}
text: sample:{count}
repeats: 1
device: cpu
shortcuts: exact
sweep: {{padded: {sizes}}}
"""
SWEEP = ("-m", "jobkit", "sweep", "--stand-in", "--scheduler", "local", "--new")
LENGTHS = """\
import sys
from pathlib import Path
from jobkit.core.records import ModelRef
from jobkit.core.paths import cache_dir
from jobkit.planning import models, texts

cache = cache_dir()
model = models.find_or_stand_in("sentence-embedding", {"name": sys.argv[2], "size": "tiny"}, Path(), cache)
text = texts.find_text(sys.argv[1], base=Path(), cache=cache)
found = texts.text_lengths("sentence-embedding", text, model, cache=cache, say=print)
print(sum(map(sum, found.paragraphs)))
"""


def timed(build: Path, words: list[str]) -> dict[str, Any]:
    """Run a command of a build, with a cache of its own that has the models; return its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PYTHONPATH": str(build), CACHE_VARIABLE: folder, "PYTHONSAFEPATH": "1"}
        shutil.copytree(cache_dir() / "models", Path(folder) / "models")
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(  # noqa: S603 - our own modules
            [sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, check=True
        )
        wall_s, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": round(wall_s, 2), "cpu_s": round(cpu_s, 2), "last": done.stdout.strip().split("\n")[-1]}


def main() -> None:
    """Measure, and write the seconds of each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--builds", type=Path, nargs=2, required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--lengths", type=int, default=100_000, help="paragraphs of the text")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch, work = Path(name), dict[str, list[str]]()
        for workload, (model, count, sizes) in WORKLOADS.items():
            spec = scratch / f"{workload}.yaml"
            text = SPEC.format(workload=workload, name=model, count=count, sizes=sizes)
            spec.write_text(text, encoding="utf-8")
            work[workload] = [*SWEEP, str(spec)]
            once([sys.executable, *work[workload]], cwd=scratch)  # builds the model
        sample = split_paragraphs(sample_text(9_000))
        several = (f"{sample[number % len(sample)]} {number}" for number in range(arguments.lengths))
        (scratch / "text.txt").write_text("\n\n".join(several), encoding="utf-8")
        model, *_ = WORKLOADS["sentence-embedding"]
        work["lengths"] = ["-c", LENGTHS, str(scratch / "text.txt"), model]
        rows, seconds = list[dict[str, Any]](), defaultdict[str, list[float]](list)
        for run in range(arguments.runs):
            for what, words in work.items():
                for build in arguments.builds[:: 1 if run % 2 else -1]:
                    found = timed(build.absolute(), words)
                    rows.append({"what": what, "build": build.name, **found})
                    sys.stdout.write(f"{rows[-1]}\n")
                    sys.stdout.flush()
                    seconds[f"{what} {build.name}"].append(found["wall_s"])
                    medians = {name: median(several) for name, several in seconds.items()}
                    record = {"cores": os.cpu_count(), "paragraphs": arguments.lengths}
                    record |= {"median_s": medians, "rows": rows}
                    arguments.file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
