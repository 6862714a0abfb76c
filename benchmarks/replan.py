"""Which entities change if a corpus is planned again in the middle: ``python -m benchmarks replan``.

A corpus goes through the tagger twice, with the tiny stand-in on the CPU: once in four shards that nothing
disturbs, and once stopped after its first shard and cut into seven others. Then sentences meet others
in their batches, and sums of floating-point numbers may round differently. The rows of both are compared;
benchmarks/records/replan.json has the result that docs/apply.md quotes.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.row import Row
from benchmarks.timing import JOBKIT
from jobkit.extensions.corpus.plan import read_plan
from jobkit.extensions.corpus.standing import CorpusState
from jobkit.planning.sample import sample_text

TITLE = "A corpus that is planned again: the tagger's entities"
PARAGRAPHS = 3000
BEFORE, AFTER = 4, 7
"""Shards of the first plan; of the second, for what the first had not done."""
SPEC = """\
name: replan
model: {name: en, size: tiny, fallback: stand-in}
device: cpu
order: sorted
sort_window: 200
sweep: {batch_size: [40]}
resources: {gpus: 0, cpus: 1, memory: 2GiB, walltime: "00:30:00"}
scheduler: local
"""


def measure(folder: Path) -> list[Row]:
    """Return how many entities there are, and how many differ."""
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
    (folder / "corpus.txt").write_text(sample_text(PARAGRAPHS), encoding="utf-8")
    run(folder, *apply("calm"), "--wait")
    stop_after_the_first(folder, "again")
    run(folder, "resume", "again", "--replan", "--shards", str(AFTER))
    calm, again = (Counter(rows(folder, name)) for name in ("calm", "again"))
    differ = sorted((calm - again) + (again - calm))
    raw: dict[str, object] = {"entities": calm.total(), "differ": differ, "shards": cuts(folder)}
    return [
        Row(what=f"entities in {PARAGRAPHS:,} paragraphs", shown=f"{calm.total():,}", raw=raw),
        Row(what="entities of one of the two outputs alone", shown=f"{len(differ):,}"),
    ]


def apply(out: str) -> list[str]:
    """Return the words of the command that works through the corpus."""
    return [
        "apply",
        "spec.yaml",
        "--corpus",
        "corpus.txt",
        "--out",
        out,
        "--stand-in",
        "--shards",
        str(BEFORE),
    ]


def run(folder: Path, *words: str) -> None:
    """Run jobkit, which must succeed."""
    subprocess.run([*JOBKIT, *words], cwd=folder, check=True)  # noqa: S603 - our own command


def stop_after_the_first(folder: Path, out: str) -> None:
    """Start the corpus, and interrupt it as Ctrl-C does once its first shard is done."""
    process = subprocess.Popen([*JOBKIT, *apply(out)], cwd=folder)  # noqa: S603 - our own command
    while process.poll() is None and not list(folder.glob(f"{out}/winners/*.json")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.wait()


def rows(folder: Path, out: str) -> Iterator[str]:
    """Yield the merged rows, a line each."""
    run(folder, "merge", out, "--output", f"{out}.jsonl")
    yield from (folder / f"{out}.jsonl").read_text(encoding="utf-8").splitlines()


def cuts(folder: Path) -> dict[str, list[int]]:
    """Return the paragraphs of each shard that counts, of both plans."""
    found = {}
    for out in ("calm", "again"):
        live = {point.index for point in CorpusState(folder / out).points}
        found[out] = [shard.paragraphs for shard in read_plan(folder / out) if shard.index in live]
    return found


if __name__ == "__main__":
    sys.exit("python -m benchmarks replan")
