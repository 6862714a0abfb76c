"""``jobkit apply`` next to datatrove's local executor: the overhead of a shard."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.raw import Row
from benchmarks.timing import JOBKIT, once
from jobkit.core.paragraphs import split_paragraphs
from jobkit.planning.sample import sample_text
from jobkit.worker.workloads.function import Count

TITLE = "A corpus: jobkit apply next to datatrove"
FILES = 8
DOCUMENTS = 250
"""Of each file; of ten paragraphs each."""
COPIES = 20
"""How often a document holds its paragraphs: a shard takes seconds."""
RUNS = 3
SPEC = """\
name: corpus
workload: count
sweep: {batch_size: [32]}
resources: {gpus: 0, cpus: 1, memory: 1GiB, walltime: "00:10:00"}
scheduler: local
"""
Key = tuple[str, int]


def measure(folder: Path) -> list[Row]:
    """Return the time of a shard beyond the work itself."""
    write_corpus(folder)
    times: dict[str, list[float]] = {"work": [], "jobkit": [], "datatrove": []}
    for turn in range(RUNS):
        start = time.perf_counter()
        paragraphs = sum(1 for _ in work(folder))
        times["work"].append(time.perf_counter() - start)
        times["jobkit"].append(once(apply(folder, f"calm-{turn}"), cwd=folder).wall_s)
        trove = folder / f"trove-{turn}"
        link_corpus(folder, trove)
        times["datatrove"].append(once(datatrove(trove, FILES)).wall_s)
    middle = {name: median(values) for name, values in times.items()}
    raw: dict[str, object] = {"seconds": times, "shards": FILES, "paragraphs": paragraphs}
    return [
        Row(what="the work alone, in one process", shown=f"{middle['work']:.1f} s", raw=raw),
        *(
            Row(
                what=f"{name}: beyond that, for each of {FILES} shards",
                shown=f"{(middle[name] - middle['work']) / FILES:.2f} s",
            )
            for name in ("jobkit", "datatrove")
        ),
    ]


def write_corpus(folder: Path) -> None:
    """Write the files and the spec."""
    (folder / "corpus").mkdir()
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
    paragraphs = split_paragraphs(sample_text(DOCUMENTS * 10))
    for number in range(FILES):
        lines = []
        for document in range(DOCUMENTS):
            text = "\n".join(paragraphs[document * 10 : document * 10 + 10] * COPIES)
            lines.append(json.dumps({"id": f"{number}-{document}", "text": text}) + "\n")
        (folder / "corpus" / f"{number}.jsonl").write_text("".join(lines), encoding="utf-8")


def link_corpus(folder: Path, other: Path) -> None:
    """Give datatrove a folder of its own with the same corpus."""
    other.mkdir()
    (other / "corpus").symlink_to(folder / "corpus")


def work(folder: Path) -> Iterator[Key]:
    """Do the work in this process: yield each paragraph once its words are counted."""
    workload = Count()
    for path in sorted((folder / "corpus").iterdir()):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                document = json.loads(line)
                for number, paragraph in enumerate(split_paragraphs(document["text"])):
                    workload.process([paragraph])
                    yield document["id"], number


def apply(folder: Path, out: str) -> list[str]:
    """Return the command that works through the corpus here."""
    argv = ["apply", "spec.yaml", "--corpus", str(folder / "corpus"), "--out", out, "--shards", str(FILES)]
    return [*JOBKIT, *argv]


def datatrove(folder: Path, tasks: int) -> list[str]:
    """Return the command that works through the corpus of a folder with datatrove."""
    return [sys.executable, "-m", "benchmarks.with_datatrove", str(folder), str(tasks), "1"]


if __name__ == "__main__":
    sys.exit("python -m benchmarks apply")
